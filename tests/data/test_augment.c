/* Augmented images and the weighted sampler, through the loader. ctest-labels: unit */
#include "data/images/augment.h"

#include "hdf5_files.h"
#include "marks.h"
#include "open.h"

enum { ROWS = 40, CHANNELS = 2, HEIGHT = 4, WIDTH = 5, SIZE = CHANNELS * HEIGHT * WIDTH };

static char *folder, *path;

/* x[n][c][y][x] = 1 + n + 50 c + 4 (WIDTH y + x); classes: one row in eight is of class 1 */
static void setup(void) {
    folder = make_folder();
    path = path_in(folder, "t.h5");
    int64_t *x = calloc((size_t)ROWS * SIZE, sizeof *x), y[ROWS];
    for (int n = 0; n < ROWS; n++) {
        for (int i = 0; i < SIZE; i++) x[n * SIZE + i] = 1 + n + 50 * (i / 20) + 4 * (i % 20);
        y[n] = n % 8 == 0;
    }
    hid_t file = create_file(path);
    write_values(file, "x", 4, (hsize_t[]){ROWS, CHANNELS, HEIGHT, WIDTH}, H5T_STD_U8LE, H5P_DEFAULT, H5T_NATIVE_INT64,
                 x);
    write_integers(file, "y", 1, (hsize_t[]){ROWS}, y);
    H5Fclose(file);
    free(x);
}

static void teardown(void) {
    remove_folder(folder);
    free(path);
}

FIXTURE(setup, teardown)

/* Pixel (y, x) of channel c of a row of an image with black padding. */
static float pixel(const float *image, int c, int y, int x, float black) {
    return y >= 0 && y < HEIGHT && x >= 0 && x < WIDTH ? image[(c * HEIGHT + y) * WIDTH + x] : black;
}

static bool is_change(const float *from, const float *to, int down, int across, bool is_flipped, float black) {
    for (int c = 0; c < CHANNELS; c++)
        for (int y = 0; y < HEIGHT; y++)
            for (int x = 0; x < WIDTH; x++) {
                int column = is_flipped ? WIDTH - 1 - x : x;
                if (pixel(to, c, y, x, 0) != pixel(from, c, y + down, column + across, black)) return false;
            }
    return true;
}

/* Checks that the image is one of the (2 * padding + 1)^2 * 2 possible ones; *which: its index. */
static void check_image(const float *from, const float *to, int padding, bool flips, float black, int *which) {
    *which = -1;
    int number = 0;
    for (int down = -padding; down <= padding; down++)
        for (int across = -padding; across <= padding; across++)
            for (int flip = 0; flip <= flips; flip++, number++)
                if (is_change(from, to, down, across, flip, black)) *which = number;
    ck_assert_int_ge(*which, 0);
}

/* All changes occur with nearly equal frequency. */
TEST(draws_every_change) {
    enum { PADDING = 2, CHANGES = (2 * PADDING + 1) * (2 * PADDING + 1) * 2, DRAWS = 20000 };
    float fill[CHANNELS] = {-1, -1}, scratch[SIZE], from[SIZE], to[SIZE];
    for (int i = 0; i < SIZE; i++) from[i] = (float)i;
    const struct augment augment = {
        .config = {.random_crop = {PADDING}, .horizontal_flip = 0.5, .seed = 9}, CHANNELS, HEIGHT, WIDTH, fill};
    int counts[CHANGES] = {0}, which;
    for (int64_t i = 0; i < DRAWS; i++) {
        memcpy(to, from, sizeof to);
        augment_image(&augment, i % 7, i / 7, to, scratch);
        check_image(from, to, PADDING, true, -1, &which);
        counts[which]++;
    }
    for (int i = 0; i < CHANGES; i++)
        ck_assert_msg(abs(counts[i] - 400) < 100, "change %d came %d times", i, counts[i]);
}

TEST(flip_alone_and_nothing) {
    float fill[CHANNELS] = {0}, scratch[SIZE], from[SIZE], to[SIZE];
    struct augment augment = {.config = {.horizontal_flip = 1}, CHANNELS, HEIGHT, WIDTH, fill};
    for (int i = 0; i < SIZE; i++) to[i] = from[i] = (float)i;
    augment_image(&augment, 0, 0, to, scratch);
    ck_assert(is_change(from, to, 0, 0, true, 0));
    augment_image(&augment, 0, 0, to, scratch);
    ck_assert_mem_eq(from, to, sizeof from);
    augment.config.horizontal_flip = 0.25;
    int flips = 0;
    for (int64_t row = 0; row < 10000; row++) {
        memcpy(to, from, sizeof to);
        augment_image(&augment, 3, row, to, scratch);
        flips += memcmp(from, to, sizeof from) != 0;
    }
    ck_assert_int_lt(abs(flips - 2500), 200);
}

/* With both flips pixel (y, x) is that of the opposite corner; augment_pixels finds the same. */
TEST(flips_top_to_bottom) {
    float fill[CHANNELS] = {0}, scratch[SIZE], from[SIZE], to[SIZE];
    int64_t pixels[HEIGHT * WIDTH];
    for (int flip = 0; flip < 2; flip++) {
        struct augment augment = {
            .config = {.horizontal_flip = flip, .vertical_flip = 1}, CHANNELS, HEIGHT, WIDTH, fill};
        for (int i = 0; i < SIZE; i++) to[i] = from[i] = (float)i;
        ck_assert(augment_is_on(&(struct augment_config){.vertical_flip = 0.1}));
        augment_image(&augment, 0, 0, to, scratch);
        augment_pixels(&augment, 0, 0, pixels);
        for (int c = 0; c < CHANNELS; c++)
            for (int y = 0; y < HEIGHT; y++)
                for (int x = 0; x < WIDTH; x++) {
                    int at = (HEIGHT - 1 - y) * WIDTH + (flip ? WIDTH - 1 - x : x);
                    ck_assert_float_eq(pixel(to, c, y, x, 0), from[c * HEIGHT * WIDTH + at]);
                    ck_assert_int_eq(pixels[y * WIDTH + x], at);
                }
    }
    struct augment augment = {.config = {.vertical_flip = 0.25}, CHANNELS, HEIGHT, WIDTH, fill};
    int flips = 0;
    for (int64_t row = 0; row < 10000; row++) {
        memcpy(to, from, sizeof to);
        augment_image(&augment, 3, row, to, scratch);
        flips += memcmp(from, to, sizeof from) != 0;
    }
    ck_assert_int_lt(abs(flips - 2500), 200);
}

static void read_numbers(const json_t *array, double *out) {
    for (size_t i = 0; i < json_array_size(array); i++) out[i] = json_number_value(json_array_get(array, i));
}

/* The windows of torchvision give its images. */
TEST(resizes_as_torchvision) {
    json_t *root = vectors_load("windows"), *c;
    size_t i;
    const struct augment augment = {.channels = 2, .height = 6, .width = 7};
    json_array_foreach(json_object_get(root, "resized"), i, c) {
        double numbers[84], expected[84], at[4];
        float image[84], out[84];
        ck_assert_uint_eq(json_array_size(json_object_get(c, "image")), 84);
        read_numbers(json_object_get(c, "image"), numbers);
        read_numbers(json_object_get(c, "resized"), expected);
        read_numbers(json_object_get(c, "window"), at);
        for (int k = 0; k < 84; k++) image[k] = (float)numbers[k];
        const struct augment_window window = {(size_t)at[0], (size_t)at[1], (size_t)at[2], (size_t)at[3]};
        augment_resize(&augment, &window, image, out);
        for (int k = 0; k < 84; k++) ck_assert_double_le(fabs(out[k] - expected[k]), 1e-6 * (1 + expected[k]));
    }
    ck_assert_uint_eq(i, 5);
    json_decref(root);
}

/* Means and deviations of the windows agree with those of as many draws of torchvision. */
TEST(draws_windows_as_torchvision) {
    enum { DRAWS = 100000 };
    json_t *root = vectors_load("windows"), *c;
    size_t i;
    json_array_foreach(json_object_get(root, "drawn"), i, c) {
        double size[2], mean[4], deviation[4], sum[4] = {0}, squares[4] = {0};
        struct augment augment = {.config = {.seed = 5}};
        read_numbers(json_object_get(c, "size"), size);
        read_numbers(json_object_get(c, "scale"), augment.scale);
        read_numbers(json_object_get(c, "ratio"), augment.ratio);
        read_numbers(json_object_get(c, "mean"), mean);
        read_numbers(json_object_get(c, "deviation"), deviation);
        augment.height = (size_t)size[0], augment.width = (size_t)size[1];
        for (int64_t row = 0; row < DRAWS; row++) {
            struct augment_window w = augment_draw_window(&augment, row % 3, row);
            const double drawn[] = {(double)w.top, (double)w.left, (double)w.height, (double)w.width};
            ck_assert(w.height > 0 && w.width > 0 && w.top + w.height <= augment.height &&
                      w.left + w.width <= augment.width);
            for (int k = 0; k < 4; k++) sum[k] += drawn[k], squares[k] += drawn[k] * drawn[k];
        }
        for (int k = 0; k < 4; k++) {
            double m = sum[k] / DRAWS, error = deviation[k] * sqrt(2.0 / DRAWS);
            double d = sqrt(fmax(squares[k] / DRAWS - m * m, 0));
            ck_assert_msg(fabs(m - mean[k]) <= 4.5 * error + 1e-9, "case %zu, %d: mean %g, not %g", i, k, m, mean[k]);
            ck_assert_msg(fabs(d - deviation[k]) <= 0.02 * deviation[k] + 1e-4, "case %zu, %d: deviation %g, not %g", i,
                          k, d, deviation[k]);
        }
    }
    ck_assert_uint_eq(i, 4);
    json_decref(root);
}

/* An image is a window of its row and epoch, resized, and perhaps flipped. */
TEST(crops_and_flips) {
    float fill[CHANNELS] = {0}, scratch[SIZE], from[SIZE], to[SIZE], expected[SIZE];
    struct augment augment = {.config = {.horizontal_flip = 0.5, .seed = 3}, CHANNELS, HEIGHT, WIDTH, fill};
    augment.is_resized = true;
    augment.scale[0] = 0.1, augment.scale[1] = augment.ratio[0] = 0.9, augment.ratio[1] = 1.5;
    for (int i = 0; i < SIZE; i++) from[i] = (float)(i * i);
    int flips = 0, changes = 0;
    for (int64_t row = 0; row < 200; row++) {
        struct augment_window window = augment_draw_window(&augment, 2, row);
        memcpy(to, from, sizeof to);
        augment_image(&augment, 2, row, to, scratch);
        augment_resize(&augment, &window, from, expected);
        bool is_flipped = memcmp(to, expected, sizeof to) != 0;
        ck_assert(is_change(expected, to, 0, 0, is_flipped, 0));
        flips += is_flipped;
        changes += memcmp(to, from, sizeof to) != 0;
    }
    ck_assert_int_gt(flips, 60);
    ck_assert_int_lt(flips, 140);
    ck_assert_int_gt(changes, 190);
}

static struct dataset *open_images(const char *keys) {
    struct dataset *dataset;
    ck_ok(open_yaml(&dataset, true, "{path: %s, %s}", path, keys));
    return dataset;
}

#define CHANGED "augment: {random_crop: {padding: 1}, horizontal_flip: 0.5, seed: 4}, scale: {mean: [10, 20], std: 2}"

static const struct sampler_config shuffled = {
    .batch_size = 4, .global_batch_size = SCHEMA_NO_INT, .shuffle = true, .seed = 2};

/* Reads an epoch from batch [first] on as [world] ranks would; out (ROWS, SIZE) by the row's own number. */
static void read_epoch(struct dataset *dataset, int64_t epoch, size_t first, int world, int64_t prefetch, float *out) {
    int64_t indices[ROWS];
    for (int rank = 0; rank < world; rank++) {
        struct loader *loader;
        struct batch batch;
        ck_ok(loader_create(dataset, &shuffled, 4, rank, world, prefetch, &loader));
        ck_ok(loader_seek(loader, epoch, first));
        draw_indices(&shuffled, dataset_info(dataset)->train_rows, epoch, rank, world, indices);
        for (size_t at = first * 4;; at += batch.rows) {
            ck_ok(loader_next(loader, &batch));
            if (batch.rows == 0) break;
            for (size_t i = 0; i < batch.rows; i++)
                memcpy(out + indices[at + i] * SIZE, batch.inputs + i * SIZE, SIZE * sizeof *out);
        }
        loader_destroy(loader);
    }
}

/* The same images on 1, 2 and 5 ranks, with a thread and without, in memory and from the file, and from the middle of
 * an epoch on; others in another epoch. */
TEST(depends_on_epoch_and_row_only) {
    float *expected = calloc((size_t)3 * ROWS * SIZE, sizeof *expected), *got = expected + ROWS * SIZE,
          *other = got + ROWS * SIZE;
    struct dataset *plain = open_images("scale: {mean: [10, 20], std: 2}"), *dataset = open_images(CHANGED);
    read_epoch(dataset, 6, 0, 1, 0, expected);
    read_epoch(plain, 6, 0, 1, 0, other);
    int seen[18] = {0}, which, n_seen = 0;
    for (int n = 0; n < ROWS; n++) {
        float *from = other + n * SIZE, *to = expected + n * SIZE;
        for (int i = 0; i < SIZE; i++) { /* as if both channels had the same black */
            if (i >= SIZE / 2) from[i] += 5, to[i] += 5;
        }
        check_image(from, to, 1, true, -5, &which);
        n_seen += seen[which]++ == 0;
        for (int i = SIZE / 2; i < SIZE; i++) to[i] -= 5;
    }
    ck_assert_int_gt(n_seen, 9);
    for (int world = 1; world <= 5; world += world == 1 ? 1 : 3)
        for (int64_t prefetch = 0; prefetch <= 2; prefetch += 2) {
            memset(got, 0, ROWS * SIZE * sizeof *got);
            read_epoch(dataset, 6, 0, world, prefetch, got);
            ck_assert_mem_eq(got, expected, ROWS * SIZE * sizeof *got);
        }
    memcpy(got, expected, ROWS * SIZE * sizeof *got);
    read_epoch(dataset, 6, 3, 1, 2, got); /* the rows it reads are the same */
    ck_assert_mem_eq(got, expected, ROWS * SIZE * sizeof *got);
    read_epoch(dataset, 7, 0, 1, 0, got);
    int differ = 0;
    for (int n = 0; n < ROWS; n++) differ += memcmp(got + n * SIZE, expected + n * SIZE, SIZE * sizeof *got) != 0;
    ck_assert_int_gt(differ, ROWS / 2);
    dataset_close(dataset);
    dataset = open_images("cache_mb: 0, " CHANGED);
    read_epoch(dataset, 6, 0, 2, -1, got);
    ck_assert_mem_eq(got, expected, ROWS * SIZE * sizeof *got);
    dataset_close(dataset);
    dataset_close(plain);
    free(expected);
}

TEST(validation_rows_stay) {
    SCOPED_DATASET dataset = open_images("split: {test: 0.5, shuffle: false}, " CHANGED);
    struct loader *loader;
    struct batch batch;
    ck_ok(loader_create_evaluation(dataset, DATASET_VALIDATION, 20, 0, 1, false, &loader));
    ck_ok(loader_next(loader, &batch));
    for (int n = 0; n < 20; n++) ck_assert_float_eq(batch.inputs[n * SIZE + 1], (float)(1 + 20 + n + 4 - 10) / 2);
    loader_destroy(loader);
}

TEST(is_for_images) {
    struct dataset *dataset;
    SCOPED_MEMORY char *table = path_in(folder, "t.csv"), *text = path_in(folder, "t.txt");
    spill(table, "a,b,y\n1,2,0\n3,4,1\n", 18);
    spill(text, "hello", 5);
    ck_failure(open_yaml(&dataset, true, "{path: %s, augment: {horizontal_flip: 0.5}}", table), STATUS_USAGE,
               "dataset.augment needs images, (channels, height, width), but a row is 2");
    ck_failure(open_yaml_as("{format: synthetic, augment: {random_crop: 4}}", false, true, &dataset), STATUS_USAGE,
               "but a row is 20");
    ck_failure(open_yaml(&dataset, true, "{path: %s, text: {block_size: 3}, augment: {random_crop: 4}}", text),
               STATUS_USAGE, "but a row is 3");
}

/* A range may be a single number; the only window of the whole area and the image's ratio is the image. */
TEST(a_window_may_be_the_whole_image) {
    float *plain = calloc((size_t)2 * ROWS * SIZE, sizeof *plain), *got = plain + ROWS * SIZE;
    struct dataset *dataset = open_images("split: {seed: 1}");
    read_epoch(dataset, 6, 0, 1, 0, plain);
    dataset_close(dataset);
    dataset = open_images("augment: {random_resized_crop: {scale: [1, 1], ratio: [1.25, 1.25]}}");
    read_epoch(dataset, 6, 0, 1, 0, got);
    ck_assert_mem_eq(got, plain, ROWS * SIZE * sizeof *got);
    dataset_close(dataset);
    free(plain);
}

/* One row in eight is of class 1; half of the draws are of class 1. */
TEST(weighted_rows) {
    for (int cache = 0; cache < 2; cache++) {
        SCOPED_DATASET dataset = open_images(cache ? "split: {test: 0.1}" : "cache_mb: 0, split: {test: 0.1}");
        const struct sampler_config config = {
            .type = SAMPLER_WEIGHTED, .batch_size = 4, .global_batch_size = SCHEMA_NO_INT};
        struct loader *loader;
        struct batch batch;
        int rare = 0, all = 0;
        ck_ok(loader_create(dataset, &config, 4, 0, 1, 0, &loader));
        for (int64_t epoch = 0; epoch < 50; epoch++) {
            ck_ok(loader_seek(loader, epoch, 0));
            for (;;) {
                ck_ok(loader_next(loader, &batch));
                if (batch.rows == 0) break;
                for (size_t i = 0; i < batch.rows; i++, all++) {
                    int64_t class = ((const int64_t *)batch.targets)[i];
                    ck_assert_int_eq(class, ((int)batch.inputs[i * SIZE] - 1) % 8 == 0);
                    rare += (int)class;
                }
            }
        }
        ck_assert_int_eq(all, 50 * 36);
        ck_assert_int_lt(abs(rare - 900), 120);
        loader_destroy(loader);
    }
    struct dataset *dataset;
    struct loader *loader;
    const struct sampler_config config = {.type = SAMPLER_WEIGHTED, .batch_size = 4};
    ck_ok(open_yaml(&dataset, false, "format: synthetic"));
    ck_failure(loader_create(dataset, &config, 4, 0, 1, 0, &loader), STATUS_USAGE,
               "sampler.type weighted needs one class per row as target, but this dataset has other targets");
    dataset_close(dataset);
}

/* x[n] as in setup; "mask" (rows, height, width) is its first channel, "image" (rows, 2, height, width) all of it, and
 * other targets. */
static void setup_targets(void) {
    int64_t image[ROWS * SIZE], mask[ROWS * SIZE / 2], zeros[ROWS * SIZE] = {0};
    for (int i = 0; i < ROWS * SIZE; i++) {
        int n = i / SIZE, pixel = i % SIZE;
        image[i] = 1 + n + 50 * (pixel / 20) + 4 * (pixel % 20);
        if (pixel < SIZE / 2) mask[n * SIZE / 2 + pixel] = image[i];
    }
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    write_integers(file, "mask", 3, (hsize_t[]){ROWS, HEIGHT, WIDTH}, mask);
    write_integers(file, "image", 4, (hsize_t[]){ROWS, 2, HEIGHT, WIDTH}, image);
    write_integers(file, "small", 3, (hsize_t[]){ROWS, 2, 2}, zeros);
    write_integers(file, "list", 2, (hsize_t[]){ROWS, HEIGHT * WIDTH}, zeros);
    write_integers(file, "labels", 2, (hsize_t[]){ROWS, 7}, zeros);
    H5Fclose(file);
}

/* [ignored]: of the loss; 0: none. */
static status open_targets(const char *keys, bool wants_classes, int64_t ignored, struct dataset **out) {
    struct dataset_config config;
    struct document *document;
    char yaml[512];
    snprintf(yaml, sizeof yaml, "{path: %s, %s}", path, keys);
    ck_ok(bind_yaml(&dataset_schema, yaml, &config, &document));
    config.request.ignored = (struct ignored_class){.is_set = ignored != 0, .value = ignored};
    status s = dataset_open(&config, wants_classes, false, out);
    document_destroy(document);
    return s;
}

/* Each pixel of the target is that of the image at its place, and [fill] where this is black; *moved: rows that
 * changed. */
static void check_targets(struct dataset *dataset, int channels, int64_t fill, int *moved) {
    struct loader *loader;
    struct batch batch;
    bool is_class = dataset_info(dataset)->target_kind == TARGET_CLASS;
    *moved = 0;
    ck_ok(loader_create(dataset, &shuffled, 4, 0, 1, 0, &loader));
    ck_ok(loader_seek(loader, 3, 0));
    for (;;) {
        ck_ok(loader_next(loader, &batch));
        if (batch.rows == 0) break;
        for (size_t n = 0; n < batch.rows; n++) {
            *moved += batch.inputs[n * SIZE + 1] != batch.inputs[n * SIZE] + 4;
            for (int i = 0; i < channels * SIZE / 2; i++) {
                int64_t pixel = (int64_t)batch.inputs[n * SIZE + (size_t)i], at = (int64_t)n * channels * SIZE / 2 + i;
                int64_t target =
                    is_class ? ((const int64_t *)batch.targets)[at] : (int64_t)((const float *)batch.targets)[at];
                ck_assert_int_eq(target, pixel ? pixel : fill);
            }
        }
    }
    loader_destroy(loader);
}

TEST(targets_move_with_images) {
    static const struct {
        const char *keys;
        bool are_classes;
        int64_t ignored, fill;
        int channels;
    } cases[] = {{"targets: mask", true, -100, -100, 1},
                 {"targets: mask", true, 255, 255, 1},
                 {"targets: mask", false, 0, 0, 1},
                 {"targets: image", false, 0, 0, 2},
                 {"targets: image", true, -100, -100, 2}};
    setup_targets();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        SCOPED_DATASET dataset;
        char keys[200];
        int moved;
        snprintf(keys, sizeof keys,
                 "%s, augment: {random_crop: {padding: 2}, horizontal_flip: 0.5, vertical_flip: 0.5}", cases[i].keys);
        ck_ok(open_targets(keys, cases[i].are_classes, cases[i].ignored, &dataset));
        check_targets(dataset, cases[i].channels, cases[i].fill, &moved);
        ck_assert_int_gt(moved, ROWS / 3);
    }
}

/* The pixel whose centre is the nearest in the window. */
TEST(resized_targets_are_of_the_nearest_pixel) {
    float fill[CHANNELS] = {0};
    struct augment augment = {.config = {.horizontal_flip = 1, .seed = 3}, CHANNELS, HEIGHT, WIDTH, fill};
    augment.is_resized = true;
    augment.scale[0] = 0.1, augment.scale[1] = augment.ratio[0] = 0.9, augment.ratio[1] = 1.5;
    for (int64_t row = 0; row < 100; row++) {
        int64_t from[HEIGHT * WIDTH];
        struct augment_window window = augment_draw_window(&augment, 2, row);
        augment_pixels(&augment, 2, row, from);
        for (int i = 0; i < HEIGHT * WIDTH; i++) {
            double y = (i / WIDTH + 0.5) * (double)window.height / HEIGHT;
            double x = (WIDTH - 1 - i % WIDTH + 0.5) * (double)window.width / WIDTH;
            ck_assert_int_eq(from[i] / WIDTH, (int64_t)window.top + (int64_t)floor(y + 1e-9));
            ck_assert_int_eq(from[i] % WIDTH, (int64_t)window.left + (int64_t)floor(x + 1e-9));
        }
    }
}

TEST(targets_that_cannot_move) {
    static const struct {
        const char *keys, *sentence;
    } cases[] = {{"targets: small",
                  "dataset.augment moves the pixels of the inputs, but cannot move those of the targets (2x2); "
                  "remove dataset.augment; or, if the targets have no place in the image, store them as lists "
                  "(rows, values)"},
                 {"targets: list", NULL}, /* may be labels */
                 {"targets: mask, target_scale: standard",
                  "dataset.augment moves the pixels of the inputs, but cannot move those of the targets (4x5); "
                  "dataset.target_scale scales each pixel for itself; remove one of the two"},
                 {"targets: labels", NULL},
                 {"targets: mask, target_scale: log1p", NULL}};
    setup_targets();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        SCOPED_DATASET dataset = NULL;
        char keys[200];
        snprintf(keys, sizeof keys, "%s, augment: {horizontal_flip: 0.5}", cases[i].keys);
        status s = open_targets(keys, false, 0, &dataset);
        if (cases[i].sentence)
            ck_assert_str_eq(status_message(s), cases[i].sentence);
        else
            ck_ok(s);
        if (s) ck_assert_int_eq(status_code(s), STATUS_USAGE);
        if (cases[i].sentence) status_free(s);
    }
}

CHECK_MAIN("augment")
