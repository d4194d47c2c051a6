/* Folders of images: the pixels of Pillow, torchvision's order of files, the message for each rejected file or folder.
 * ctest-labels: unit */
#include <sys/stat.h>
#include <zlib.h>

#include "data/images/image.h"
#include "marks.h"
#include "open.h"

#define IMAGES TEST_VECTORS "/images"

static char *folder;

static void setup(void) { folder = make_folder(); }
static void teardown(void) { remove_folder(folder); }
FIXTURE(setup, teardown)

/* Creates the folders of "a/b/name". */
static char *path_below(const char *name) {
    char *path = path_in(folder, name);
    for (char *at = path + strlen(folder) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = 0;
        mkdir(path, 0777);
    }
    return path;
}

static void spill_below(const char *name, const char *text) {
    SCOPED_MEMORY char *path = path_below(name);
    spill(path, text, strlen(text));
}

static void copy(const char *vector, const char *name) {
    SCOPED_MEMORY char *from, *to = path_below(name);
    size_t size;
    ck_assert_int_gt(asprintf(&from, "%s/all/%s", IMAGES, vector), 0);
    SCOPED_MEMORY char *bytes = slurp(from, &size);
    spill(to, bytes, size);
}

/* ---- pixels ---- */

/* All images of the vectors are the rows of array [name] of expected.npz. */
static void check_pixels(const char *image, const char *name, int cache) {
    SCOPED_DATASET dataset, *expected;
    SCOPED_MEMORY float *x, *right;
    SCOPED_MEMORY void *y, *ignored;
    ck_ok(open_yaml(&dataset, true, "{path: %s, image: %s, divide: 1, cache_mb: %d}", IMAGES, image, cache));
    ck_ok(open_yaml(&expected, false, "{path: %s/expected.npz, inputs: %s, targets: %s}", IMAGES, name, name));
    const struct dataset_info *info = dataset_info(dataset), *other = dataset_info(expected);
    ck_assert_uint_eq(info->train_rows, other->train_rows);
    ck_assert_mem_eq(info->input_shape, other->input_shape, sizeof info->input_shape);
    ck_assert_int_eq(info->classes, 1);
    read_part(dataset, DATASET_TRAIN, &x, &y);
    read_part(expected, DATASET_TRAIN, &right, &ignored);
    for (size_t i = 0; i < info->train_rows * info->input_size; i++)
        ck_assert_msg(x[i] == right[i], "%s: image %zu, value %zu: %g, not %g", image, i / info->input_size,
                      i % info->input_size, (double)x[i], (double)right[i]);
}

TEST(pixels_are_pillows) {
    for (int cache = 0; cache < 2; cache++) {
        check_pixels("{size: [24, 18], threads: 3}", "center", cache);
        check_pixels("{size: [24, 18], resize: 24}", "center", cache);
        check_pixels("{size: [20, 28], crop: none}", "stretched", cache);
        check_pixels("{size: [20, 28], resize: [20, 28]}", "stretched", cache);
        check_pixels("{size: 40, channels: 1}", "grey", cache);
    }
}

/* As torchvision's ToTensor and Normalize; a fitted scaler sees the same numbers. */
TEST(scales_as_torchvision) {
    struct dataset *dataset, *expected;
    float *x, *right;
    void *y, *ignored;
    ck_ok(open_yaml(&dataset, true, "{path: %s, image: {size: [24, 18]}, scale: {mean: [0.4, 0.5, 0.6], std: 0.25}}",
                    IMAGES));
    ck_ok(open_yaml(&expected, false, "{path: %s/expected.npz, inputs: center, targets: center}", IMAGES));
    read_part(dataset, DATASET_TRAIN, &x, &y);
    read_part(expected, DATASET_TRAIN, &right, &ignored);
    static const float mean[] = {0.4f, 0.5f, 0.6f};
    for (size_t i = 0, size = (size_t)24 * 18; i < 3 * size; i++)
        ck_assert(x[i] == (right[i] / 255.0f - mean[i / size]) / 0.25f);
    free(x), free(y), free(right), free(ignored);
    dataset_close(dataset);
    dataset_close(expected);
    for (int cache = 0; cache < 2; cache++) {
        const double *fitted, *scale;
        size_t features;
        ck_ok(open_yaml(&dataset, true, "{path: %s, image: {size: 8}, scale: standard, cache_mb: %d}", IMAGES, cache));
        dataset_scaler(dataset, &fitted, &scale, &features);
        ck_assert_uint_eq(features, 1);
        ck_assert(*fitted > 0.3 && *fitted < 0.7);
        dataset_close(dataset);
    }
}

/* Those of Pillow's exif_transpose, whose version 13 resizes some sizes in another order, which changes the last bit.
 */
static void check_upright(const char *image, const char *name) {
    SCOPED_DATASET dataset, *expected;
    SCOPED_MEMORY float *x, *right;
    SCOPED_MEMORY void *y, *ignored;
    ck_ok(open_yaml(&dataset, true, "{path: %s/oriented, image: %s, divide: 1}", TEST_VECTORS, image));
    ck_ok(open_yaml(&expected, false, "{path: %s/oriented/expected.npz, inputs: %s, targets: %s}", TEST_VECTORS, name,
                    name));
    const struct dataset_info *info = dataset_info(dataset);
    ck_assert_uint_eq(info->train_rows, 10);
    ck_assert_mem_eq(info->input_shape, dataset_info(expected)->input_shape, sizeof info->input_shape);
    ck_assert_uint_eq(dataset_notes(dataset).count, 0);
    read_part(dataset, DATASET_TRAIN, &x, &y);
    read_part(expected, DATASET_TRAIN, &right, &ignored);
    for (size_t i = 0; i < info->train_rows * info->input_size; i++)
        ck_assert_msg(fabsf(x[i] - right[i]) <= 1, "%s: image %zu, value %zu: %g, not %g", image, i / info->input_size,
                      i % info->input_size, (double)x[i], (double)right[i]);
}

TEST(exif_orientation_is_applied) {
    check_upright("{size: [24, 18], exif_orientation: true, threads: 2}", "center");
    check_upright("{size: [20, 28], crop: none, channels: 1, exif_orientation: true}", "grey");
}

/* The fraction follows from the sides of the upright image: 45 x 31 pixels of images 5 to 8, else 31 x 45. */
TEST(dct_scaling_of_upright_images) {
    static const char *const sizes[] = {"[22, 10]", "[10, 22]"};
    for (int wide = 0; wide < 2; wide++) {
        SCOPED_DATASET whole, *half;
        SCOPED_MEMORY float *x, *other;
        SCOPED_MEMORY void *y, *ignored;
        static const char keys[] = "{path: %s/oriented, image: {size: %s, crop: none, exif_orientation: true, "
                                   "dct_scaling: %s}, divide: 1}";
        ck_ok(open_yaml(&whole, true, keys, TEST_VECTORS, sizes[wide], "false"));
        ck_ok(open_yaml(&half, true, keys, TEST_VECTORS, sizes[wide], "true"));
        size_t size = dataset_info(whole)->input_size;
        read_part(whole, DATASET_TRAIN, &x, &y);
        read_part(half, DATASET_TRAIN, &other, &ignored);
        for (size_t i = 0; i < 10; i++) {
            bool is_swapped = i >= 5 && i <= 8,
                 is_equal = memcmp(x + i * size, other + i * size, size * sizeof *x) == 0;
            float largest = 0;
            for (size_t k = i * size; k < (i + 1) * size; k++) largest = fmaxf(largest, fabsf(x[k] - other[k]));
            ck_assert_int_eq(is_equal, is_swapped == (wide == 1));
            ck_assert_msg(largest < 100, "image %zu: %g", i, (double)largest);
        }
    }
}

/* Without the key a warning says that images are not upright: 2 .. 8 of 0 .. 9. */
TEST(exif_orientation_is_noted) {
    SCOPED_DATASET dataset;
    ck_ok(open_yaml(&dataset, true, "{path: %s/oriented, image: 8}", TEST_VECTORS));
    ck_assert_uint_eq(dataset_notes(dataset).count, 1);
    ck_assert_str_eq(dataset_notes(dataset).items[0],
                     "warning: 7 of 10 images that were examined, such as " TEST_VECTORS
                     "/oriented/all/2.jpg, have an orientation in their EXIF data that is not applied; "
                     "dataset.image.exif_orientation: true turns them upright");
}

#define EXIF_BYTES 200

/* Any byte that is changed, and any end, gives a number from 1 to 8; what is damaged, 1. */
TEST(damaged_exif) {
    size_t size;
    SCOPED_MEMORY char *bytes = slurp(TEST_VECTORS "/oriented/all/6.jpg", &size);
    uint8_t *file = (uint8_t *)bytes;
    ck_assert_uint_gt(size, EXIF_BYTES);
    ck_assert_int_eq(exif_orientation(file, size), 6);
    for (size_t end = 0; end <= EXIF_BYTES; end++) {
        SCOPED_MEMORY uint8_t *copied = malloc(end + 1); /* so that a sanitizer finds what is read behind the end */
        memcpy(copied, file, end);
        int found = exif_orientation(copied, end);
        ck_assert(found == (end >= 64 ? 6 : 1));
    }
    for (size_t at = 0; at < EXIF_BYTES; at++)
        for (int value = 0; value < 256; value++) {
            uint8_t before = file[at];
            file[at] = (uint8_t)value;
            int found = exif_orientation(file, EXIF_BYTES);
            ck_assert(found >= 1 && found <= 8);
            file[at] = before;
        }
}

/* Images that are decoded at a half or a quarter differ, but not completely. */
TEST(dct_scaling) {
    SCOPED_DATASET whole, *half;
    float *x, *other, largest = 0;
    SCOPED_MEMORY void *y, *ignored;
    ck_ok(open_yaml(&whole, true, "{path: %s, image: {size: 8}, divide: 1}", IMAGES));
    ck_ok(open_yaml(&half, true, "{path: %s, image: {size: 8, dct_scaling: true}, divide: 1}", IMAGES));
    size_t values = dataset_info(whole)->train_rows * dataset_info(whole)->input_size;
    read_part(whole, DATASET_TRAIN, &x, &y);
    read_part(half, DATASET_TRAIN, &other, &ignored);
    for (size_t i = 0; i < values; i++) largest = fmaxf(largest, fabsf(x[i] - other[i]));
    ck_assert_msg(largest > 0 && largest < 128, "%g", (double)largest);
    free(x), free(other);
}

/* ---- files and classes ---- */

TEST(order_of_files) {
    static const char *const names[] = {"b/1.png", "b/2.JPG", "b/10.png", "a/sub/3.png", "a/sub-1/4.png", "a/5.png"};
    struct dataset *dataset;
    float *x;
    void *y;
    for (size_t i = 0; i < 6; i++) copy("png-rgb.png", names[i]);
    spill_below("b/notes.txt", "text");
    spill_below("readme.txt", "text");
    ck_ok(open_yaml(&dataset, true, "{path: %s/, image: 4}", folder));
    ck_assert_uint_eq(dataset_info(dataset)->train_rows, 6);
    ck_assert_str_eq(dataset_labels(dataset).items[1], "b");
    read_part(dataset, DATASET_TRAIN, &x, &y);
    ck_assert_mem_eq(y, ((int64_t[]){0, 0, 0, 1, 1, 1}), 48);
    free(x), free(y);
    dataset_close(dataset);
    spill_below("a/sub-1/4.png", "x"); /* row 1: "a/sub-1" is before "a/sub/", as in Python's sorted */
    ck_failure(open_yaml(&dataset, true, "{path: %s, image: 4}", folder), STATUS_DATA,
               "a/sub-1/4.png: this is not a JPEG or PNG image; convert or remove the file");
}

/* The classes of the validation folder have the numbers of the training folder. */
TEST(validation_classes) {
    struct dataset *dataset;
    float *x;
    void *y;
    copy("png-rgb.png", "train/a/1.png");
    copy("png-rgb.png", "train/b/1.png");
    copy("png-rgb.png", "val/b/1.png");
    ck_ok(open_yaml(&dataset, true, "{path: %s/train, validation: %s/val, image: 4}", folder, folder));
    read_part(dataset, DATASET_VALIDATION, &x, &y);
    ck_assert_int_eq(*(int64_t *)y, 1);
    free(x), free(y);
    dataset_close(dataset);
    ck_failure(open_yaml(&dataset, true, "{path: %s, image: 4}", folder), STATUS_DATA,
               "the folders 'train' to 'val' are parts of a dataset, not classes; give each part by itself");
    copy("png-rgb.png", "val/c/1.png");
    ck_failure(open_yaml(&dataset, true, "{path: %s/train, validation: %s/val, image: 4}", folder, folder), STATUS_DATA,
               "val: class 'c' is not in the data that the model was trained with");
}

TEST(wrong_folders) {
    struct dataset *dataset;
    ck_failure(open_yaml(&dataset, true, "{path: %s, image: 4}", folder), STATUS_DATA, "there are no sub-folders");
    ck_failure(open_yaml(&dataset, true, "{path: %s/none, image: 4}", folder), STATUS_DATA,
               "/none': No such file or directory");
    copy("png-rgb.png", "a/1.png");
    ck_failure(open_yaml(&dataset, true, "{path: %s/a/1.png, image: 4}", folder), STATUS_DATA,
               "it is a file, and format images reads a folder");
    ck_failure(open_yaml(&dataset, true, "{path: %s, format: images}", folder), STATUS_USAGE,
               "a folder of images needs dataset.image.size");
    ck_failure(open_yaml(&dataset, true, "path: %s/", folder), STATUS_USAGE,
               "a folder of images needs dataset.image.size");
    ck_failure(open_yaml(&dataset, false, "{path: %s, image: 4}", folder), STATUS_USAGE,
               "the target of an image is the class of its folder; use loss: cross_entropy");
    char *link = path_below("a/loop");
    ck_assert_int_eq(symlink("..", link), 0);
    ck_failure(open_yaml(&dataset, true, "{path: %s, image: 4}", folder), STATUS_DATA,
               "is there a link to a folder above");
    unlink(link);
    free(link);
    mkdir(link = path_below("empty"), 0777);
    ck_failure(open_yaml(&dataset, true, "{path: %s, image: 4}", folder), STATUS_DATA,
               "the folder of class 'empty' has no images (.jpg, .jpeg, .png)");
    rmdir(link);
    free(link);
    copy("png-rgb.png", "a/2.webp");
    ck_failure(open_yaml(&dataset, true, "{path: %s, image: 4}", folder), STATUS_DATA,
               "a/2.webp: only JPEG and PNG images are read; convert or remove the file");
}

TEST(wrong_keys) {
    static const char *const cases[][2] = {
        {"image: {size: [4, 4, 4]}", "size and resize are [height, width] or one number"},
        {"image: {size: 4, resize: 3}", "resize is smaller than size, so that there is nothing to crop"},
        {"image: {size: [4, 8], resize: [8, 4]}", "resize is smaller than size"},
        {"image: {size: 4, resize: 8, crop: none}", "with crop none the image is resized to size; remove resize"},
        {"image: {size: 4, channels: 2}", "channels must be 3 (RGB) or 1 (grey)"},
        {"image: {size: 0}", "dataset.image.size"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dataset *dataset;
        ck_failure(open_yaml(&dataset, true, "{path: photos, %s}", cases[i][0]), STATUS_USAGE, cases[i][1]);
    }
}

/* ---- damaged images ---- */

/* The message for an image of these bytes. */
static status open_bytes(const void *bytes, size_t size) {
    struct dataset *dataset;
    char *path = path_below("a/x.png");
    spill(path, bytes, size);
    free(path);
    status s = open_yaml(&dataset, true, "{path: %s, image: 4}", folder);
    dataset_close(dataset);
    return s;
}

static char *vector(const char *name, size_t *size) {
    char *path;
    ck_assert_int_gt(asprintf(&path, "%s/all/%s", IMAGES, name), 0);
    char *bytes = slurp(path, size);
    free(path);
    return bytes;
}

/* An image that is cut at any length is an error, even where Pillow needs only the first rows. */
TEST(truncated_images) {
    static const char *const names[] = {"jpeg-420.jpg", "jpeg-progressive.jpg", "png-rgb.png",
                                        "png-palette-2-bits.png"};
    for (size_t i = 0; i < 4; i++) {
        size_t size;
        SCOPED_MEMORY char *bytes = vector(names[i], &size);
        for (size_t length = 9; length < size * 9 / 10; length += size / 40)
            ck_failure(open_bytes(bytes, length), STATUS_DATA, "a/x.png: the image is damaged: ");
    }
    ck_failure(open_bytes("", 0), STATUS_DATA, "a/x.png: the file is empty; replace or remove it");
    ck_failure(open_bytes("GIF89a..", 8), STATUS_DATA, "a/x.png: this is not a JPEG or PNG image");
}

/* Any changed byte is read or rejected. */
TEST(changed_images) {
    static const char *const names[] = {"jpeg-420.jpg", "jpeg-cmyk.jpg", "jpeg-progressive.jpg", "png-rgba.png"};
    for (size_t i = 0; i < 4; i++) {
        size_t size;
        SCOPED_MEMORY char *bytes = vector(names[i], &size);
        for (size_t at = 3; at < size; at += 1 + size / 150) {
            char before = bytes[at];
            bytes[at] = (char)(before ^ (1 << at % 8));
            status_free(open_bytes(bytes, size));
            bytes[at] = before;
        }
    }
}

static void put(char *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (char)(value >> (24 - 8 * i));
}

TEST(images_of_wrong_sizes) {
    size_t size;
    char *bytes = vector("png-rgb.png", &size);
    put(bytes + 16, 100000);
    put(bytes + 20, 100000);
    put(bytes + 29, (uint32_t)crc32(0, (const Bytef *)bytes + 12, 17));
    ck_failure(open_bytes(bytes, size), STATUS_DATA,
               "a/x.png: the image has 100000 x 100000 pixels; at most 178956970 in total are decoded");
    put(bytes + 16, 0);
    put(bytes + 29, (uint32_t)crc32(0, (const Bytef *)bytes + 12, 17));
    ck_failure(open_bytes(bytes, size), STATUS_DATA, "a/x.png: the image is damaged: ");
    free(bytes);
    bytes = vector("jpeg-420.jpg", &size);
    char *frame = memmem(bytes, size, "\xff\xc0", 2);
    ck_assert_ptr_nonnull(frame);
    put(frame + 5, 0xffdcffdc);
    ck_failure(open_bytes(bytes, size), STATUS_DATA, "a/x.png: the image has 65500 x 65500 pixels; at most 178956970");
    put(frame + 5, 0);
    ck_failure(open_bytes(bytes, size), STATUS_DATA, "a/x.png: the image is damaged: ");
    free(bytes);
}

CHECK_MAIN("images")
