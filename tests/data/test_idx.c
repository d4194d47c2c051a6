/* IDX files and images of bytes: accepted files, scaling, and the message for each rejected file. ctest-labels: unit */
#include <zlib.h>

#include "base/files/digest.h"
#include "hdf5_files.h"
#include "open.h"

static char *folder, *images, *labels;

static void setup(void) {
    folder = make_folder();
    images = path_in(folder, "a-images-idx3-ubyte");
    labels = path_in(folder, "a-labels-idx1-ubyte");
}

static void teardown(void) {
    remove_folder(folder);
    free(images);
    free(labels);
}

FIXTURE(setup, teardown)

/* Plain, or as gzip. */
static void write_file(const char *path, bool is_packed, const void *bytes, size_t size) {
    if (!is_packed) {
        spill(path, bytes, size);
        return;
    }
    gzFile file = gzopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(gzwrite(file, bytes, (unsigned)size), (int)size);
    ck_assert_int_eq(gzclose(file), Z_OK);
}

/* 3 images of 2 x 2, values 0 .. 11 times 20; labels 2 0 1 */
static const uint8_t three_images[] = {0, 0, 8, 3,  0,  0,  0,  3,   0,   0,   0,   2,   0,   0,
                                       0, 2, 0, 20, 40, 60, 80, 100, 120, 140, 160, 180, 200, 220};
static const uint8_t three_labels[] = {0, 0, 8, 1, 0, 0, 0, 3, 2, 0, 1};

static void write_three(bool is_packed) {
    write_file(images, is_packed, three_images, sizeof three_images);
    write_file(labels, is_packed, three_labels, sizeof three_labels);
}

/* The inputs of all training rows are f(0), f(20), ... */
static void check_levels(const char *keys, bool wants_classes, float (*f)(float)) {
    for (int cache = 0; cache < 2; cache++) {
        SCOPED_DATASET dataset;
        ck_ok(open_yaml(&dataset, wants_classes, "{path: %s, cache_mb: %d, %s}", images, cache, keys));
        const struct dataset_info *info = dataset_info(dataset);
        ck_assert_uint_eq(info->train_rows, 3);
        ck_assert_int_eq(info->input_dims, 3);
        ck_assert_int_eq(info->input_shape[0], 1);
        ck_assert_int_eq(info->input_shape[2], 2);
        SCOPED_MEMORY float *x;
        SCOPED_MEMORY void *y;
        read_part(dataset, DATASET_TRAIN, &x, &y);
        for (int i = 0; i < 12; i++) {
            float expected = f((float)(20 * i));
            ck_assert_msg(x[i] == expected, "%s: %d is %.9g, not %.9g", keys, i, (double)x[i], (double)expected);
        }
        if (wants_classes) ck_assert_mem_eq(y, ((int64_t[]){2, 0, 1}), 24);
        if (!wants_classes) ck_assert_mem_eq(y, ((float[]){2, 0, 1}), 12);
    }
}

static float as_tensor(float value) { return value / 255.0f; }
static float as_it_is(float value) { return value; }
static float normalized(float value) { return (value / 255.0f - 0.1307f) / 0.3081f; }
static float minmax(float value) { return (float)(((double)value / 255.0 - 0) / (220.0 / 255.0 - 0)); }

TEST(reads_images) {
    for (int is_packed = 0; is_packed < 2; is_packed++) {
        write_three(is_packed);
        check_levels("", true, as_tensor);
        check_levels("", false, as_tensor);
        check_levels("divide: 1", true, as_it_is);
        check_levels("scale: {mean: 0.1307, std: 0.3081}", true, normalized);
        check_levels("scale: minmax", true, minmax);
        char *other = path_in(folder, "classes.idx");
        write_file(other, is_packed, three_labels, sizeof three_labels);
        unlink(labels);
        char keys[300];
        snprintf(keys, sizeof keys, "targets: %s", other);
        check_levels(keys, true, as_tensor);
        free(other);
        empty_folder(folder);
    }
}

/* The statistics are those of the same numbers as doubles. */
TEST(fits_a_scaler_to_bytes) {
    write_three(false);
    for (int cache = 0; cache < 2; cache++) {
        SCOPED_DATASET dataset;
        const double *mean, *scale;
        size_t features;
        ck_ok(open_yaml(&dataset, true, "{path: %s, cache_mb: %d, divide: 1, scale: standard}", images, cache));
        dataset_scaler(dataset, &mean, &scale, &features);
        ck_assert_uint_eq(features, 1);
        ck_assert_double_eq(*mean, 110);
        ck_assert_double_eq_tol(*scale, sqrt(20.0 * 20 * 143 / 12), 1e-12);
    }
}

TEST(other_types_and_shapes) {
    struct dataset *dataset;
    const uint8_t x[] = {0, 0, 0x0d, 2,    0, 0, 0, 2, 0, 0, 0,    2,    0x3f, 0x80,
                         0, 0, 0xc0, 0x20, 0, 0, 0, 0, 0, 0, 0x41, 0x20, 0,    0}; /* float32 (2, 2): 1 -2.5 0 10 */
    const uint8_t y[] = {0, 0, 0x0b, 2, 0, 0, 0, 2, 0, 0, 0, 2, 0xff, 0xff, 1, 0, 0, 3, 0x7f, 0xff}; /* int16 (2, 2) */
    spill(images, x, sizeof x);
    spill(labels, y, sizeof y);
    ck_ok(open_yaml(&dataset, false, "path: %s", images));
    const struct dataset_info *info = dataset_info(dataset);
    ck_assert_int_eq(info->input_dims, 1);
    ck_assert_uint_eq(info->target_size, 2);
    float *inputs;
    void *targets;
    read_part(dataset, DATASET_TRAIN, &inputs, &targets);
    ck_assert_mem_eq(inputs, ((float[]){1, -2.5f, 0, 10}), 16);
    ck_assert_mem_eq(targets, ((float[]){-1, 256, 3, 32767}), 16);
    free(inputs), free(targets);
    dataset_close(dataset);

    const uint8_t i32[] = {0, 0, 0x0c, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xfe};
    const uint8_t f64[] = {0, 0, 0x0e, 1, 0, 0, 0, 1, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0};
    const uint8_t i8[] = {0, 0, 0x09, 1, 0, 0, 0, 1, 0x80};
    const struct {
        const uint8_t *bytes;
        size_t size;
        float value;
    } cases[] = {{i32, sizeof i32, -2}, {f64, sizeof f64, 1.5f}, {i8, sizeof i8, -128}};
    spill(labels, f64, sizeof f64);
    for (int i = 0; i < 3; i++) {
        spill(images, cases[i].bytes, cases[i].size);
        ck_ok(open_yaml(&dataset, false, "path: %s", images));
        read_part(dataset, DATASET_TRAIN, &inputs, &targets);
        ck_assert(inputs[0] == cases[i].value && *(float *)targets == 1.5f);
        free(inputs), free(targets);
        dataset_close(dataset);
    }
    const uint8_t nan[] = {0, 0, 0x0d, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0x7f, 0xc0, 0, 0};
    spill(images, nan, sizeof nan);
    ck_failure(open_yaml(&dataset, false, "path: %s", images), STATUS_DATA,
               "a-images-idx3-ubyte: row 0, element [0]: NaN is not a finite number");
}

/* MNIST's test digits equal torchvision's ToTensor and Normalize((0.1307,), (0.3081,)). */
TEST(equals_torchvision) {
    SCOPED_DATASET dataset;
    ck_ok(open_yaml(&dataset, true,
                    "{path: %s/datasets/mnist/t10k-images-idx3-ubyte.gz, scale: {mean: 0.1307, std: "
                    "0.3081}}",
                    SOURCE_DIR));
    ck_assert_uint_eq(dataset_info(dataset)->train_rows, 10000);
    ck_assert_int_eq(dataset_info(dataset)->classes, 10);
    SCOPED_MEMORY float *x;
    SCOPED_MEMORY void *y;
    uint8_t hash[DIGEST_SIZE];
    char hex[DIGEST_HEX_SIZE];
    read_part(dataset, DATASET_TRAIN, &x, &y);
    digest_of(x, (size_t)10000 * 784 * sizeof *x, hash);
    digest_hex(hash, hex);
    ck_assert_str_eq(hex, "757b3cee157a4aa2c485805da043b480cbfaf2ac25054baf1a0d998fbb91f8b4");
    digest_of(y, 10000 * sizeof(int64_t), hash);
    digest_hex(hash, hex);
    ck_assert_str_eq(hex, "2fd8de6bdb8d11780b4b96dc57847bcfe6953f7c32aa48bfcd8237c3b7847243");
}

/* Writes the images with byte [at] changed, opens them, and expects a sentence. */
static void check_changed(size_t at, uint8_t byte, const char *sentence) {
    uint8_t bytes[sizeof three_images];
    memcpy(bytes, three_images, sizeof bytes);
    bytes[at] = byte;
    for (int is_packed = 0; is_packed < 2; is_packed++) {
        struct dataset *dataset;
        write_file(images, is_packed, bytes, sizeof bytes);
        ck_failure(open_yaml(&dataset, true, "path: %s", images), STATUS_DATA, sentence);
    }
}

TEST(rejects_wrong_headers) {
    write_three(false);
    check_changed(0, 'P',
                  "a-images-idx3-ubyte: this is not an IDX file: it starts with the bytes 50 00 08 03, but MNIST's "
                  "images with 00 00 08 03 and labels with 00 00 08 01");
    check_changed(2, 0x0a, "unknown type of values 0x0a; IDX has 08, 09, 0b, 0c, 0d, 0e");
    check_changed(3, 0, "it has 0 dimensions; rows need 1 to 9");
    check_changed(3, 10, "it has 10 dimensions; rows need 1 to 9");
    check_changed(11, 0, "its rows have 0 values");
    check_changed(8, 0x80, "its rows have more than 2147483647 values; the file may be damaged");
}

static void check_images(bool is_packed, const void *bytes, size_t size, const char *sentence) {
    struct dataset *dataset;
    write_file(images, is_packed, bytes, size);
    ck_failure(open_yaml(&dataset, true, "path: %s", images), STATUS_DATA, sentence);
}

TEST(rejects_wrong_sizes) {
    uint8_t bytes[sizeof three_images + 1] = {0};
    memcpy(bytes, three_images, sizeof three_images);
    write_three(false);
    check_images(false, bytes, 0, "the file has only 0 bytes; this is not an IDX file");
    check_images(false, bytes, 3, "the file has only 3 bytes; this is not an IDX file");
    check_images(false, bytes, 15, "the file ends within its header; copy the file again");
    check_images(false, bytes, 27, "the file has 27 bytes, but its header says 28; copy the file again");
    check_images(false, bytes, 29, "the file has 29 bytes, but its header says 28; the file is damaged");
    check_images(true, bytes, 3, "the file is 1 bytes shorter than its header says");
    check_images(true, bytes, 15, "the file is 1 bytes shorter than its header says");
    check_images(true, bytes, 27, "the file is 1 bytes shorter than its header says");
    check_images(true, bytes, 29, "the file is longer than its header says");
    bytes[4] = 0x10; /* 268 million images */
    check_images(true, bytes, 28, "its header says that it has 1073741836 bytes, which ");
}

/* A truncated or changed compressed file. */
TEST(rejects_damaged_gzip) {
    struct dataset *dataset;
    write_three(true);
    size_t size;
    SCOPED_MEMORY char *good = slurp(images, &size);
    ck_assert_uint_gt(size, 20);
    for (size_t length = 2; length < size; length++) {
        spill(images, good, length);
        ck_failure(open_yaml(&dataset, true, "path: %s", images), STATUS_DATA,
                   "the compressed data is truncated; copy the file again");
    }
    for (size_t at = 10; at < size; at++) {
        good[at] ^= 0x10;
        spill(images, good, size);
        status s = open_yaml(&dataset, true, "path: %s", images);
        ck_assert_msg(status_code(s) == STATUS_DATA, "byte %zu", at);
        status_free(s);
        good[at] ^= 0x10;
    }
    good[size - 6] ^= 1; /* of the checksum */
    spill(images, good, size);
    ck_failure(open_yaml(&dataset, true, "path: %s", images), STATUS_DATA,
               "a-images-idx3-ubyte: the compressed data is damaged: incorrect data check; get the file again");
    good[size - 6] ^= 1;
    good[size] = 7; /* slurp gives one byte more */
    spill(images, good, size + 1);
    ck_failure(open_yaml(&dataset, true, "path: %s", images), STATUS_DATA, "there are bytes after the compressed data");
}

TEST(labels_and_validation) {
    struct dataset *dataset;
    char *other = path_in(folder, "digits.idx"), *second = path_in(folder, "b-images-idx3-ubyte");
    SCOPED_MEMORY char *second_labels = path_in(folder, "b-labels-idx1-ubyte");
    write_three(false);
    ck_ok(open_yaml(&dataset, true, "{path: %s, validation: %s}", images, images));
    ck_assert_uint_eq(dataset_info(dataset)->validation_rows, 3);
    dataset_close(dataset);

    spill(second, three_images, sizeof three_images);
    ck_failure(open_yaml(&dataset, true, "path: %s", second), STATUS_DATA, "b-labels-idx1-ubyte' (working directory");
    ck_ok(open_yaml(&dataset, true, "{path: %s, validation: {path: %s, targets: %s}}", images, second, labels));
    dataset_close(dataset);
    uint8_t two[] = {0, 0, 8, 1, 0, 0, 0, 2, 1, 1};
    spill(second_labels, two, sizeof two);
    ck_failure(open_yaml(&dataset, true, "path: %s", second), STATUS_DATA, "b-images-idx3-ubyte has 3 rows, but '");
    uint8_t four[] = {0, 0, 8, 1, 0, 0, 0, 4, 1, 1, 1, 1};
    spill(second_labels, four, sizeof four);
    ck_failure(open_yaml(&dataset, true, "path: %s", second), STATUS_DATA, "b-labels-idx1-ubyte' has 4");
    spill(other, three_images, sizeof three_images);
    ck_failure(open_yaml(&dataset, true, "path: %s", other), STATUS_USAGE,
               "dataset.targets is missing: give the IDX file of the labels of '");
    ck_failure(open_yaml(&dataset, true, "{path: %s, scale: {mean: 0, std: 1.0e-300}}", images), STATUS_USAGE,
               "dataset.scale: the scaled value of byte 0 is too large for float32");
    ck_failure(open_yaml(&dataset, true, "{path: %s, targets: [a, b]}", images), STATUS_USAGE,
               "dataset.targets: format idx takes one file, got 2");
    free(other), free(second);
}

TEST(file_that_shrinks) {
    write_three(false);
    SCOPED_DATASET dataset;
    ck_ok(open_yaml(&dataset, true, "{path: %s, cache_mb: 0}", images));
    ck_assert_int_eq(truncate(images, 20), 0);
    int64_t position = 2, y;
    float x[4];
    ck_failure(dataset_read(dataset, DATASET_TRAIN, &position, 1, x, &y), STATUS_DATA,
               "a-images-idx3-ubyte: the file was truncated after it was opened");
}

/* The fingerprint is that of the bytes, in memory or not. */
TEST(fingerprint_of_bytes) {
    char seen[2][65];
    write_three(false);
    for (int cache = 0; cache < 2; cache++) {
        SCOPED_DATASET dataset;
        ck_ok(open_yaml(&dataset, true, "{path: %s, cache_mb: %d}", images, cache));
        strcpy(seen[cache], dataset_info(dataset)->fingerprint);
    }
    ck_assert_str_eq(seen[0], seen[1]);
}

/* ---- images in HDF5 ---- */

/* 2 images of 2 x 3 pixels and 2 channels; value = 100 row + 10 channel + 3 y + x in (rows, channels, height, width) */
static void write_hdf5(const char *path, bool is_nhwc, hid_t type) {
    int64_t values[24], y[2] = {0, 1};
    for (int n = 0; n < 2; n++)
        for (int c = 0; c < 2; c++)
            for (int p = 0; p < 6; p++) values[n * 12 + (is_nhwc ? p * 2 + c : c * 6 + p)] = 100 * n + 10 * c + p;
    hid_t file = create_file(path);
    const hsize_t nchw[] = {2, 2, 2, 3}, nhwc[] = {2, 2, 3, 2};
    write_values(file, "x", 4, is_nhwc ? nhwc : nchw, type, H5P_DEFAULT, H5T_NATIVE_INT64, values);
    write_integers(file, "y", 1, (hsize_t[]){2}, y);
    H5Fclose(file);
}

TEST(layouts_of_hdf5) {
    char *here = make_folder(), *path = path_in(here, "t.h5");
    const hid_t types[] = {H5T_STD_U8LE, H5T_IEEE_F32LE};
    for (int t = 0; t < 2; t++)
        for (int cache = 0; cache < 2; cache++)
            for (int is_nhwc = 0; is_nhwc < 2; is_nhwc++) {
                SCOPED_DATASET dataset;
                write_hdf5(path, is_nhwc, types[t]);
                ck_ok(open_yaml(&dataset, true,
                                "{path: %s, cache_mb: %d, layout: %s, divide: 2, scale: {mean: [1, 2], std: [2, 4]}}",
                                path, cache, is_nhwc ? "nhwc" : "nchw"));
                const struct dataset_info *info = dataset_info(dataset);
                ck_assert_int_eq(info->input_shape[0], 2);
                ck_assert_int_eq(info->input_shape[1], 2);
                ck_assert_int_eq(info->input_shape[2], 3);
                SCOPED_MEMORY float *x;
                SCOPED_MEMORY void *y;
                read_part(dataset, DATASET_TRAIN, &x, &y);
                for (int i = 0; i < 24; i++) {
                    float value = (float)(100 * (i / 12) + 10 * (i / 6 % 2) + i % 6) / 2;
                    ck_assert_float_eq(x[i], i / 6 % 2 ? (value - 2) / 4 : (value - 1) / 2);
                }
            }
    struct dataset *dataset;
    double nan[24] = {0};
    nan[12 + 2 * 2 + 1] = NAN; /* row 1, y 0, x 2, channel 1 */
    hid_t file = create_file(path);
    write_doubles(file, "x", 4, (hsize_t[]){2, 2, 3, 2}, nan);
    write_doubles(file, "y", 1, (hsize_t[]){2}, (double[]){0, 1});
    H5Fclose(file);
    ck_failure(open_yaml(&dataset, true, "{path: %s, layout: nhwc}", path), STATUS_DATA,
               "dataset 'x', row 1, element [0, 2, 1]: NaN is not a finite number");
    file = create_file(path);
    write_doubles(file, "x", 2, (hsize_t[]){2, 2}, nan);
    write_doubles(file, "y", 1, (hsize_t[]){2}, (double[]){0, 1});
    H5Fclose(file);
    ck_failure(open_yaml(&dataset, true, "{path: %s, layout: nhwc}", path), STATUS_USAGE,
               "dataset.layout: nhwc needs images, (rows, height, width, channels), but dataset 'x' of ");
    ck_failure(open_yaml(&dataset, true, "{path: a.csv, layout: nhwc}"), STATUS_USAGE,
               "dataset.layout: nhwc needs format hdf5, npy or npz, not csv");
    free(path);
    remove_folder(here);
}

/* A scaler per feature of long vectors: too many for a table of bytes. */
TEST(scales_long_rows_of_bytes) {
    char *here = make_folder(), *path = path_in(here, "t.h5");
    const hsize_t width = 5000;
    int64_t *values = calloc(2 * width, sizeof *values);
    for (size_t i = 0; i < width; i++) values[i] = (int64_t)(i % 200), values[width + i] = (int64_t)(i % 200 + 20);
    hid_t file = create_file(path);
    write_values(file, "x", 2, (hsize_t[]){2, width}, H5T_STD_U8LE, H5P_DEFAULT, H5T_NATIVE_INT64, values);
    write_integers(file, "y", 1, (hsize_t[]){2}, (int64_t[]){0, 1});
    H5Fclose(file);
    free(values);
    SCOPED_DATASET dataset;
    ck_ok(open_yaml(&dataset, true, "{path: %s, scale: standard}", path));
    SCOPED_MEMORY float *x;
    SCOPED_MEMORY void *y;
    read_part(dataset, DATASET_TRAIN, &x, &y);
    for (size_t i = 0; i < 2 * width; i++) ck_assert_float_eq(x[i], i < width ? -1 : 1);
    free(path);
    remove_folder(here);
}

CHECK_MAIN("idx")
