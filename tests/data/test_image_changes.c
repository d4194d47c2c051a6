/* Rotations, changes of colours and erased rectangles of images. ctest-labels: unit */
#include "data/images/augment.h"
#include "hdf5_files.h"
#include "marks.h"
#include "open.h"

enum { HEIGHT = 5, WIDTH = 7, PIXELS = HEIGHT * WIDTH, COLOR_PIXELS = 24 };

static size_t read_floats(const json_t *array, float *out) {
    for (size_t i = 0; i < json_array_size(array); i++) out[i] = (float)json_number_value(json_array_get(array, i));
    return json_array_size(array);
}

static void read_doubles(const json_t *array, double *out) {
    for (size_t i = 0; i < json_array_size(array); i++) out[i] = json_number_value(json_array_get(array, i));
}

static double number_of(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

/* ---- rotation ---- */

/* The second channel is the first one with another sign. */
TEST(rotates_as_torchvision) {
    json_t *root = vectors_load("augment"), *c;
    size_t i;
    float image[2 * PIXELS], expected[PIXELS], out[2 * PIXELS];
    for (int k = 0; k < PIXELS; k++) image[PIXELS + k] = -(image[k] = (float)((k + 1) * (k + 1)) / 64);
    json_array_foreach(json_object_get(root, "rotated"), i, c) {
        bool is_bilinear = json_is_true(json_object_get(c, "bilinear"));
        struct turn turn = turn_create(number_of(c, "degrees"), HEIGHT, WIDTH);
        ck_assert_uint_eq(read_floats(json_object_get(c, "rotated"), expected), PIXELS);
        float fill = (float)number_of(c, "fill"), fills[] = {fill, -fill};
        turn_image(&turn, is_bilinear, 2, fills, image, out);
        for (int k = 0; k < PIXELS; k++) {
            ck_assert_msg(fabsf(out[k] - expected[k]) <= (is_bilinear ? 1e-5F : 0), "case %zu, pixel %d: %g, not %g", i,
                          k, (double)out[k], (double)expected[k]);
            ck_assert_float_eq(out[PIXELS + k], -out[k]);
        }
    }
    ck_assert_uint_eq(i, 24);
    json_decref(root);
}

/* Angles are uniform in their range; other rows and epochs have other ones. */
TEST(draws_angles) {
    double numbers[] = {30, 50}, sum = 0, squares = 0;
    struct random_rotation one = rotation_create(&(struct rotation_config){.degrees = {.items = numbers, .count = 1}});
    struct random_rotation two = rotation_create(&(struct rotation_config){.degrees = {.items = numbers, .count = 2}});
    ck_assert(!rotation_create(&(struct rotation_config){0}).is_on);
    for (size_t count = 1; count <= 2; count++) {
        struct rotation_config zero = {.degrees = {.items = (double[]){0, 0}, .count = count}};
        ck_assert(!rotation_create(&zero).is_on && !augment_moves(&(struct augment_config){.rotation = zero}));
    }
    ck_assert(rotation_is_on(&(struct rotation_config){.degrees = {.items = (double[]){0, 5}, .count = 2}}));
    ck_assert(one.is_on && !one.is_bilinear && one.degrees[0] == -30 && one.degrees[1] == 30);
    ck_assert(two.is_on && two.degrees[0] == 30 && two.degrees[1] == 50);
    for (int64_t row = 0; row < 10000; row++) {
        double degrees = rotation_draw(&two, &(struct augment_key){.seed = 1, .epoch = 2, .row = row});
        ck_assert(degrees >= 30 && degrees < 50);
        sum += degrees, squares += degrees * degrees;
    }
    ck_assert_double_eq_tol(sum / 10000, 40, 0.25);
    ck_assert_double_eq_tol(sqrt(squares / 10000 - sum / 10000 * (sum / 10000)), 20 / sqrt(12), 0.15);
    ck_assert_double_ne(rotation_draw(&one, &(struct augment_key){1, 2, 3}),
                        rotation_draw(&one, &(struct augment_key){1, 3, 3}));
}

/* A target for each pixel has the pixels that the image has, after all changes that move them. */
TEST(targets_rotate_with_images) {
    double degrees[] = {40}, scale[] = {0.5, 0.9}, ratio[] = {0.8, 1.2};
    float fill = -1, from[PIXELS], to[PIXELS], scratch[PIXELS];
    int64_t pixels[PIXELS], outside = 0;
    struct augment_config config = {.horizontal_flip = 0.5,
                                    .vertical_flip = 0.5,
                                    .random_crop = {1},
                                    .rotation = {.degrees = {.items = degrees, .count = 1}}};
    struct augment augment = {.config = config, 1, HEIGHT, WIDTH, &fill};
    ck_assert(augment_moves(&config));
    ck_assert(augment_moves(&(struct augment_config){.rotation = config.rotation}));
    augment_prepare(&augment);
    for (int i = 0; i < PIXELS; i++) from[i] = (float)i;
    for (int64_t row = 0; row < 200; row++) {
        memcpy(to, from, sizeof to);
        augment_image(&augment, 1, row, to, scratch);
        augment_pixels(&augment, 1, row, pixels);
        for (int i = 0; i < PIXELS; i++) {
            ck_assert_float_eq(to[i], pixels[i] < 0 ? fill : from[pixels[i]]);
            outside += pixels[i] < 0;
        }
    }
    ck_assert_int_gt(outside, 500);
    augment.config.random_crop.padding = 0;
    augment.config.random_resized_crop = (struct random_resized_crop_config){{scale, 2, 0}, {ratio, 2, 0}};
    augment_prepare(&augment);
    augment_pixels(&augment, 1, 5, pixels);
    struct augment_window window = augment_draw_window(&augment, 1, 5);
    for (int i = 0; i < PIXELS; i++) {
        if (pixels[i] < 0) continue;
        ck_assert_uint_lt((size_t)(pixels[i] / WIDTH) - window.top, window.height);
        ck_assert_uint_lt((size_t)(pixels[i] % WIDTH) - window.left, window.width);
    }
}

/* ---- colours ---- */

TEST(changes_colors_as_torchvision) {
    json_t *root = vectors_load("augment"), *c;
    size_t i;
    json_array_foreach(json_object_get(root, "colors"), i, c) {
        size_t channels = (size_t)number_of(c, "channels"), values = channels * COLOR_PIXELS;
        float image[3 * COLOR_PIXELS], expected[3 * COLOR_PIXELS];
        ck_assert_uint_eq(read_floats(json_array_get(json_object_get(root, "images"), channels == 1), image), values);
        ck_assert_uint_eq(read_floats(json_object_get(c, "adjusted"), expected), values);
        color_adjust((enum color)number_of(c, "color"), number_of(c, "factor"), channels, COLOR_PIXELS, image);
        for (size_t k = 0; k < values; k++)
            ck_assert_msg(fabsf(image[k] - expected[k]) <= 2e-7F, "case %zu, value %zu: %g, not %g", i, k,
                          (double)image[k], (double)expected[k]);
    }
    ck_assert_uint_eq(i, 26);
    json_decref(root);
}

static struct color_jitter jitter_of(double brightness, double contrast, double saturation, double hue) {
    double numbers[] = {brightness, contrast, saturation, hue};
    struct real_list lists[COLORS];
    for (int i = 0; i < COLORS; i++) lists[i] = (struct real_list){numbers + i, numbers[i] >= 0, 0};
    return color_jitter_create(&(struct color_jitter_config){lists[0], lists[1], lists[2], lists[3]});
}

TEST(ranges_of_factors) {
    struct color_jitter jitter = jitter_of(0.25, 3, -1, 0.125);
    double range[] = {0.5, 0.75};
    ck_assert(jitter.is_on && jitter.changes[0] && jitter.changes[1] && !jitter.changes[2] && jitter.changes[3]);
    ck_assert(jitter.low[0] == 0.75 && jitter.high[0] == 1.25);
    ck_assert(jitter.low[1] == 0 && jitter.high[1] == 4);
    ck_assert(jitter.low[3] == -0.125 && jitter.high[3] == 0.125);
    ck_assert(!jitter_of(0, 0, 0, 0).is_on && !jitter_of(-1, -1, -1, -1).is_on);
    jitter = color_jitter_create(&(struct color_jitter_config){.saturation = {range, 2, 0}});
    ck_assert(jitter.is_on && jitter.low[2] == 0.5 && jitter.high[2] == 0.75);
    ck_assert(color_jitter_is_on(&(struct color_jitter_config){.hue = {range, 1, 0}}));
}

/* All 24 orders are equally frequent, and factors uniform. */
TEST(draws_orders_and_factors) {
    enum { DRAWS = 24000 };
    struct color_jitter jitter = jitter_of(0.5, 0.5, 0.5, 0.5);
    int counts[256] = {0}, orders = 0;
    double sum[COLORS] = {0};
    for (int64_t row = 0; row < DRAWS; row++) {
        struct color_change change = color_jitter_draw(&jitter, &(struct augment_key){3, row % 5, row});
        unsigned order = 0, seen = 0;
        for (int i = 0; i < COLORS; i++) {
            order = order * 4 + change.order[i];
            seen |= 1U << change.order[i];
            ck_assert(change.factors[i] >= jitter.low[i] && change.factors[i] < jitter.high[i]);
            sum[i] += change.factors[i];
        }
        ck_assert_uint_eq(seen, 15);
        counts[order]++;
    }
    for (int i = 0; i < 256; i++) {
        orders += counts[i] > 0;
        if (counts[i]) ck_assert_int_lt(abs(counts[i] - DRAWS / 24), 150);
    }
    ck_assert_int_eq(orders, 24);
    for (int i = 0; i < COLORS; i++) ck_assert_double_eq_tol(sum[i] / DRAWS, i == COLOR_HUE ? 0 : 1, 0.01);
}

/* Scaled values are changed as those before scaling, in the order that was drawn; outside of 0 .. 1 they are cut. */
TEST(changes_scaled_values) {
    const struct color_jitter jitter = jitter_of(0.5, 0.5, -1, 0.2);
    const struct color_change change = {{COLOR_HUE, COLOR_SATURATION, COLOR_CONTRAST, COLOR_BRIGHTNESS},
                                        {1.25, 0.5, 0, 0.1}};
    const struct color_range ranges[] = {{0.25F, 0.5F}, {0.5F, 0.25F}, {0.125F, 0.5F}};
    float plain[6] = {0.5F, 0.75F, 0.25F, 1, 0.625F, 0}, scaled[6];
    for (int i = 0; i < 6; i++) scaled[i] = (plain[i] - ranges[i / 2].offset) / ranges[i / 2].slope;
    color_jitter_apply(&jitter, &change, 3, 2, ranges, scaled);
    color_adjust(COLOR_HUE, 0.1, 3, 2, plain);
    color_adjust(COLOR_CONTRAST, 0.5, 3, 2, plain);
    color_adjust(COLOR_BRIGHTNESS, 1.25, 3, 2, plain);
    for (int i = 0; i < 6; i++) {
        float expected = (plain[i] - ranges[i / 2].offset) / ranges[i / 2].slope;
        ck_assert_float_eq_tol(scaled[i], expected, 1e-6F);
    }
    float outside[] = {-3, 5};
    const struct color_change none = {{0, 1, 2, 3}, {1, 1, 1, 0}};
    color_jitter_apply(&jitter, &none, 1, 2, ranges, outside);
    ck_assert_float_eq(outside[0], -2);
    ck_assert_float_eq(outside[1], 2);
}

/* ---- erasing ---- */

/* Means and deviations of the rectangles agree with those of as many draws of torchvision. */
TEST(draws_rectangles_as_torchvision) {
    enum { DRAWS = 50000 };
    json_t *root = vectors_load("augment"), *c;
    size_t i;
    json_array_foreach(json_object_get(root, "erased"), i, c) {
        double size[2], mean[4], deviation[4], sum[4] = {0}, squares[4] = {0};
        struct erasing erasing = {.p = 1};
        read_doubles(json_object_get(c, "size"), size);
        read_doubles(json_object_get(c, "scale"), erasing.scale);
        read_doubles(json_object_get(c, "ratio"), erasing.ratio);
        read_doubles(json_object_get(c, "mean"), mean);
        read_doubles(json_object_get(c, "deviation"), deviation);
        for (int64_t row = 0; row < DRAWS; row++) {
            struct erased e =
                erasing_draw(&erasing, &(struct augment_key){7, row % 3, row}, (size_t)size[0], (size_t)size[1]);
            const double drawn[] = {(double)e.top, (double)e.left, (double)e.height, (double)e.width};
            ck_assert(drawn[0] + drawn[2] <= size[0] && drawn[1] + drawn[3] <= size[1]);
            for (int k = 0; k < 4; k++) sum[k] += drawn[k], squares[k] += drawn[k] * drawn[k];
        }
        for (int k = 0; k < 4; k++) {
            double m = sum[k] / DRAWS, d = sqrt(fmax(squares[k] / DRAWS - m * m, 0));
            ck_assert_msg(fabs(m - mean[k]) <= 4.5 * deviation[k] * sqrt(2.0 / DRAWS), "case %zu, %d: mean %g, not %g",
                          i, k, m, mean[k]);
            ck_assert_msg(fabs(d - deviation[k]) <= 0.02 * deviation[k], "case %zu, %d: deviation %g, not %g", i, k, d,
                          deviation[k]);
        }
    }
    ck_assert_uint_eq(i, 3);
    json_decref(root);
}

TEST(erases_a_rectangle) {
    double scale[] = {0.1, 0.4}, ratio[] = {0.5, 2};
    float fill[2] = {9, 9}, image[2 * PIXELS], scratch[2 * PIXELS];
    struct augment_config config = {.erasing = {0.25, {scale, 2, 0}, {ratio, 2, 0}}, .has_erasing = true, .seed = 1};
    struct augment augment = {.config = config, 2, HEIGHT, WIDTH, fill};
    int count = 0;
    ck_assert(augment_is_on(&config) && !augment_moves(&config));
    ck_assert(!augment_is_on(&(struct augment_config){.erasing = {0, {scale, 2, 0}, {ratio, 2, 0}}}));
    augment_prepare(&augment);
    for (int64_t row = 0; row < 4000; row++) {
        struct erased e = erasing_draw(&augment.erasing, &(struct augment_key){1, 6, row}, HEIGHT, WIDTH);
        count += e.height > 0;
        for (int i = 0; i < 2 * PIXELS; i++) image[i] = (float)(i + 1);
        augment_image(&augment, 6, row, image, scratch);
        for (size_t i = 0; i < (size_t)2 * PIXELS; i++) {
            size_t y = i % PIXELS / WIDTH, x = i % WIDTH;
            bool is_erased = y >= e.top && y < e.top + e.height && x >= e.left && x < e.left + e.width;
            ck_assert_float_eq(image[i], is_erased ? 0 : (float)(i + 1));
        }
    }
    ck_assert_int_lt(abs(count - 1000), 120);
}

/* ---- a dataset ---- */

static char *folder, *path;

/* "bytes" and "floats" (4, 3, 2, 2), where a value of floats is that of bytes / 255; "four" (4, 4, 2, 2); "numbers"
 * (4, 2) */
static void setup(void) {
    int64_t bytes[48], four[64] = {0}, numbers[8] = {0}, classes[4] = {0, 1, 0, 1};
    double floats[48];
    folder = make_folder();
    path = path_in(folder, "t.h5");
    for (int i = 0; i < 48; i++) bytes[i] = i * 5, floats[i] = i * 5 / 255.0;
    hid_t file = create_file(path);
    hsize_t shape[] = {4, 3, 2, 2};
    write_values(file, "bytes", 4, shape, H5T_STD_U8LE, H5P_DEFAULT, H5T_NATIVE_INT64, bytes);
    write_values(file, "floats", 4, shape, H5T_IEEE_F32LE, H5P_DEFAULT, H5T_NATIVE_DOUBLE, floats);
    write_values(file, "large", 4, shape, H5T_IEEE_F32LE, H5P_DEFAULT, H5T_NATIVE_INT64, bytes);
    write_integers(file, "four", 4, (hsize_t[]){4, 4, 2, 2}, four);
    write_integers(file, "numbers", 2, (hsize_t[]){4, 2}, numbers);
    write_integers(file, "y", 1, (hsize_t[]){4}, classes);
    H5Fclose(file);
}

static void teardown(void) {
    remove_folder(folder);
    free(path);
}

/* out (4, 12): the rows of epoch 2 */
static void read_rows(const char *keys, float *out) {
    static const struct sampler_config sampler = {.batch_size = 4, .global_batch_size = SCHEMA_NO_INT};
    SCOPED_DATASET dataset;
    struct loader *loader;
    struct batch batch;
    ck_ok(open_yaml(&dataset, true, "{path: %s, targets: y, %s}", path, keys));
    ck_ok(loader_create(dataset, &sampler, 4, 0, 1, 0, &loader));
    ck_ok(loader_seek(loader, 2, 0));
    ck_ok(loader_next(loader, &batch));
    ck_assert_uint_eq(batch.rows, 4);
    memcpy(out, batch.inputs, 48 * sizeof *out);
    loader_destroy(loader);
}

/* Bytes with and without division, floats and scaled values are changed alike. */
TEST(colors_do_not_depend_on_the_scale) {
    static const char jitter[] = "augment: {color_jitter: {brightness: 0.5, contrast: 0.5, saturation: 0.5, hue: 0.3}}";
    static const struct {
        const char *keys;
        float slope, offset[3];
    } cases[] = {
        {"inputs: bytes, divide: 255", 1, {0, 0, 0}},
        {"inputs: bytes", 1 / 255.0F, {0, 0, 0}},
        {"inputs: large, divide: 255", 1, {0, 0, 0}},
        {"inputs: floats, scale: {mean: [0.5, 0.25, 0.125], std: 2}", 2, {0.5F, 0.25F, 0.125F}},
        {"inputs: bytes, scale: {mean: [10, 20, 30], std: 51}", 0.2F, {10 / 255.0F, 20 / 255.0F, 30 / 255.0F}},
    };
    float expected[48], got[48], plain[48];
    char keys[300];
    int changed = 0;
    setup();
    snprintf(keys, sizeof keys, "inputs: floats, %s", jitter);
    read_rows("inputs: floats", plain);
    read_rows(keys, expected);
    for (int i = 0; i < 48; i++) changed += fabsf(plain[i] - expected[i]) > 0.01F;
    ck_assert_int_gt(changed, 30);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        snprintf(keys, sizeof keys, "%s, %s", cases[c].keys, jitter);
        read_rows(keys, got);
        for (int i = 0; i < 48; i++) {
            float value = got[i] * cases[c].slope + cases[c].offset[i % 12 / 4];
            ck_assert_msg(fabsf(value - expected[i]) < 2e-6F, "%s, value %d: %g, not %g", cases[c].keys, i,
                          (double)value, (double)expected[i]);
        }
    }
    teardown();
}

TEST(images_without_colors) {
    struct dataset *dataset;
    setup();
    ck_failure(
        open_yaml(&dataset, true, "{path: %s, inputs: four, targets: y, augment: {color_jitter: {hue: 0.1}}}", path),
        STATUS_USAGE,
        "dataset.augment.color_jitter needs images of 1 or 3 channels (RGB), but these have 4; remove it");
    ck_failure(
        open_yaml(&dataset, true, "{path: %s, inputs: large, targets: y, augment: {color_jitter: {hue: 0.1}}}", path),
        STATUS_DATA,
        "row 0, element [0, 0, 1]: 5 is not from 0 to 1, as dataset.augment.color_jitter needs it; if 255 is "
        "the largest value, write dataset.divide: 255");
    teardown();
}

/* Targets that cannot move are refused, and several numbers cause a warning, only if pixels move. */
TEST(colors_do_not_move) {
    struct dataset *dataset;
    setup();
    for (int moves = 0; moves < 2; moves++) {
        ck_ok(open_yaml(&dataset, false, "{path: %s, inputs: bytes, targets: numbers, augment: {%s}}", path,
                        moves ? "rotation: 10" : "erasing: 0.5, color_jitter: {brightness: 0.5}"));
        const struct string_list notes = dataset_notes(dataset);
        int warnings = 0;
        for (size_t i = 0; i < notes.count; i++) warnings += strstr(notes.items[i], "not its 2 targets") != NULL;
        ck_assert_int_eq(warnings, moves);
        dataset_close(dataset);
    }
    teardown();
}

CHECK_MAIN("image_changes")
