/* NumPy's .npy and .npz: every type that NumPy wrote, names of arrays and files, the message for each rejected file.
 * ctest-labels: unit */
#include "open.h"

#include <math.h>

static char *folder;

static void setup(void) { folder = make_folder(); }
static void teardown(void) { remove_folder(folder); }
FIXTURE(setup, teardown)

/* Writes an .npy file of version 1 with this dictionary, whose values are [bytes] (size). */
static char *write_npy(const char *name, const char *dictionary, const void *bytes, size_t size) {
    char *path = path_in(folder, name);
    uint8_t file[4096] = "\x93NUMPY\x01\x00";
    size_t length = strlen(dictionary);
    ck_assert_uint_le(10 + length + size, sizeof file);
    file[8] = (uint8_t)length;
    file[9] = (uint8_t)(length >> 8);
    memcpy(file + 10, dictionary, length);
    if (size) memcpy(file + 10 + length, bytes, size);
    spill(path, file, 10 + length + size);
    return path;
}

static const float two_rows[] = {1, 2, 3, 4, 5, 6};
static const int64_t two_classes[] = {1, 0};
#define TWO_ROWS "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n"
#define TWO_CLASSES "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }\n"

/* ---- types ---- */

static double expected(const char *type, int i) {
    bool is_float = strstr(type, "float"), is_signed = is_float || (strstr(type, "int") && !strstr(type, "uint"));
    double value = strstr(type, "bool") ? i % 2 : i + (is_float ? 0.5 : 0);
    return is_signed && i % 3 == 1 ? -value : value;
}

static void check_type(const char *file, const char *type, int cache) {
    SCOPED_DATASET dataset;
    SCOPED_MEMORY float *x;
    SCOPED_MEMORY void *y;
    ck_ok(open_yaml(&dataset, false, "{path: %s/npy/%s, inputs: %s, targets: little_float64, cache_mb: %d}",
                    TEST_VECTORS, file, type, cache));
    ck_assert_uint_eq(dataset_info(dataset)->train_rows, 4);
    ck_assert_int_eq(dataset_info(dataset)->input_shape[0], 3);
    read_part(dataset, DATASET_TRAIN, &x, &y);
    for (int i = 0; i < 12; i++) {
        ck_assert_msg((double)x[i] == expected(type, i), "%s of %s: value %d is %g", type, file, i, (double)x[i]);
        ck_assert((double)((float *)y)[i] == expected("float64", i));
    }
}

TEST(reads_every_type) {
    static const char *const types[] = {"bool",
                                        "int8",
                                        "uint8",
                                        "little_int16",
                                        "little_uint16",
                                        "little_int32",
                                        "little_uint32",
                                        "little_int64",
                                        "little_uint64",
                                        "little_float16",
                                        "little_float32",
                                        "little_float64",
                                        "big_int16",
                                        "big_uint16",
                                        "big_int32",
                                        "big_uint32",
                                        "big_int64",
                                        "big_uint64",
                                        "big_float16",
                                        "big_float32",
                                        "big_float64",
                                        "fortran_uint8",
                                        "fortran_big_int16",
                                        "fortran_little_float64"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (int cache = 0; cache < 2; cache++) {
            check_type("types.npz", types[i], cache);
            check_type("types_compressed.npz", types[i], cache);
        }
}

/* cube.npy has its first index change fastest; rows are (3, 4) in C order. */
TEST(reads_fortran_order) {
    for (int cache = 0; cache < 2; cache++) {
        struct dataset *dataset;
        float *x;
        void *y;
        char *targets = write_npy("t.npy", TWO_CLASSES, two_classes, sizeof two_classes);
        ck_ok(open_yaml(&dataset, true, "{path: %s/npy/cube.npy, targets: %s, cache_mb: %d}", TEST_VECTORS, targets,
                        cache));
        const struct dataset_info *info = dataset_info(dataset);
        ck_assert(info->input_dims == 2 && info->input_shape[0] == 3 && info->input_shape[1] == 4);
        read_part(dataset, DATASET_TRAIN, &x, &y);
        for (int i = 0; i < 24; i++) ck_assert(x[i] == (float)i);
        ck_assert_mem_eq(y, two_classes, sizeof two_classes);
        free(x), free(y), free(targets);
        dataset_close(dataset);
        empty_folder(folder);
    }
}

/* (1, height 2, width 1, channels 3) -> (3, 2, 1), bytes and values */
TEST(channels_last) {
    static const char *const dictionaries[] = {"{'descr': '|u1', 'fortran_order': False, 'shape': (1, 2, 1, 3), }",
                                               "{'descr': '|i1', 'fortran_order': False, 'shape': (1, 2, 1, 3), }"};
    static const uint8_t image[] = {1, 2, 3, 4, 5, 6}, class[] = {0};
    for (int i = 0; i < 4; i++) {
        SCOPED_DATASET dataset;
        SCOPED_MEMORY float *x;
        SCOPED_MEMORY void *y;
        SCOPED_MEMORY char *path = write_npy("x.npy", dictionaries[i / 2], image, sizeof image);
        SCOPED_MEMORY char *targets =
            write_npy("y.npy", "{'descr': '|b1', 'fortran_order': False, 'shape': (1,), }", class, 1);
        ck_ok(open_yaml(&dataset, true, "{path: %s, layout: nhwc, cache_mb: %d}", path, i % 2));
        ck_assert_int_eq(dataset_info(dataset)->input_shape[0], 3);
        read_part(dataset, DATASET_TRAIN, &x, &y);
        ck_assert_mem_eq(x, ((float[]){1, 4, 2, 5, 3, 6}), 24);
    }
    char *path = write_npy("x.npy", TWO_ROWS, two_rows, sizeof two_rows);
    char *targets = write_npy("y.npy", TWO_CLASSES, two_classes, sizeof two_classes);
    struct dataset *dataset;
    ck_failure(open_yaml(&dataset, true, "{path: %s, layout: nhwc}", path), STATUS_USAGE, "x.npy has 2 dimensions");
    free(path), free(targets);
}

/* ---- names ---- */

/* The file of the targets follows from the name of the inputs. */
TEST(finds_the_targets_of_a_file) {
    static const char *const pairs[][2] = {{"x.npy", "y.npy"}, {"X_train.npy", "y_train.npy"},
                                           {"X2.npy", NULL},   {"train-images.npy", "train-labels.npy"},
                                           {"box.npy", NULL},  {"data.npy", "targets.npy"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct dataset *dataset;
        char *path = write_npy(pairs[i][0], TWO_ROWS, two_rows, sizeof two_rows);
        char *targets = write_npy(pairs[i][1] ? pairs[i][1] : "y.npy", TWO_CLASSES, two_classes, sizeof two_classes);
        status s = open_yaml(&dataset, true, "path: %s", path);
        if (pairs[i][1])
            ck_ok(s);
        else
            ck_failure(s, STATUS_USAGE, "dataset.targets is missing: give the .npy file of the targets of '");
        dataset_close(dataset);
        ck_ok(open_yaml(&dataset, true, "{path: %s, targets: %s, validation: {path: %s, targets: %s}}", path, targets,
                        path, targets));
        ck_assert_uint_eq(dataset_info(dataset)->validation_rows, 2);
        dataset_close(dataset);
        free(path), free(targets);
        empty_folder(folder);
    }
    struct dataset *dataset;
    char *path = write_npy("train_x.npy", TWO_ROWS, two_rows, sizeof two_rows);
    ck_failure(open_yaml(&dataset, true, "path: %s", path), STATUS_USAGE, "train_y.npy");
    ck_failure(open_yaml(&dataset, true, "{path: %s, targets: [a, b]}", path), STATUS_USAGE,
               "dataset.targets: format npy takes one file, got 2");
    ck_failure(open_yaml(&dataset, true, "{path: %s, inputs: a}", path), STATUS_USAGE,
               "dataset.inputs: an .npy file is one array");
    free(path);
}

/* ---- archives ---- */

static void put(uint8_t *at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(value >> 8 * i);
}

struct archive {
    uint8_t bytes[8192], directory[2048];
    size_t size, directory_size, count;
};

/* Adds a stored member "[name].npy" with these values. */
static void add_array(struct archive *archive, const char *name, const char *dictionary, const void *values,
                      size_t size) {
    char *npy = write_npy("part", dictionary, values, size), file[64];
    size_t length, name_length = (size_t)snprintf(file, sizeof file, "%s.npy", name);
    char *content = slurp(npy, &length);
    uint8_t *local = archive->bytes + archive->size, *entry = archive->directory + archive->directory_size;
    memcpy(local, "PK\3\4", 4);
    memcpy(entry, "PK\1\2", 4);
    put(local + 26, name_length, 2);
    put(entry + 20, length, 4);
    put(entry + 24, length, 4);
    put(entry + 28, name_length, 2);
    put(entry + 42, archive->size, 4);
    memcpy(local + 30, file, name_length);
    memcpy(local + 30 + name_length, content, length);
    memcpy(entry + 46, file, name_length);
    archive->size += 30 + name_length + length;
    archive->directory_size += 46 + name_length;
    archive->count++;
    free(npy), free(content);
}

static char *write_archive(const struct archive *archive) {
    uint8_t file[16384];
    char *path = path_in(folder, "a.npz");
    uint8_t *end = file + archive->size + archive->directory_size;
    memset(file, 0, sizeof file);
    memcpy(file, archive->bytes, archive->size);
    memcpy(file + archive->size, archive->directory, archive->directory_size);
    memcpy(end, "PK\5\6", 4);
    put(end + 8, archive->count, 2);
    put(end + 10, archive->count, 2);
    put(end + 12, archive->directory_size, 4);
    put(end + 16, archive->size, 4);
    spill(path, file, archive->size + archive->directory_size + 22);
    return path;
}

/* An archive of arrays [names] (NULL-terminated): inputs of two rows where the name is in upper case or has x, else
 * classes. */
static char *write_arrays(const char *const *names) {
    struct archive archive = {0};
    for (; *names; names++)
        if (strpbrk(*names, "xX0") || strstr(*names, "image"))
            add_array(&archive, *names, TWO_ROWS, two_rows, sizeof two_rows);
        else
            add_array(&archive, *names, TWO_CLASSES, two_classes, sizeof two_classes);
    return write_archive(&archive);
}

TEST(chooses_arrays) {
    static const struct {
        const char *names[5], *keys, *message; /* message NULL: works */
    } cases[] = {
        {{"x", "y"}, "", NULL},
        {{"y_test", "X_train", "y_train", "X_test"}, "", NULL},
        {{"images", "labels"}, "", NULL},
        {{"arr_0", "arr_1"}, "", NULL},
        {{"ax", "b"}, "inputs: ax, targets: b", NULL},
        {{"x", "y", "z"}, "targets: z", NULL},
        {{"x", "b"}, "targets: b", NULL},
        {{"ax", "b"}, "", "a.npz: it is not clear which arrays are the inputs and the targets; the file has: ax, b"},
        {{"x", "b"}, "inputs: x", "a.npz: dataset.targets is missing, and no array has a usual name for targets"},
        {{"x", "y"}, "inputs: z, targets: y", "a.npz: there is no array 'z'; the file has: x, y (see dataset.inputs"},
        {{"x", "y"}, "inputs: [x, y], targets: y", "dataset.inputs: format npz takes one array, got 2"},
        {{"x", "y"}, "targets: [x, y]", "dataset.targets: format npz takes one array, got 2"},
        {{NULL}, "", "the file has: nothing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dataset *dataset;
        char *path = write_arrays(cases[i].names);
        status s = open_yaml(&dataset, true, "{path: %s, %s}", path, cases[i].keys);
        if (cases[i].message)
            ck_failure(s, i == 10 || i == 11 ? STATUS_USAGE : STATUS_DATA, cases[i].message);
        else
            ck_ok(s);
        dataset_close(dataset);
        free(path);
        empty_folder(folder);
    }
}

/* x_test and y_test validate x_train and y_train. */
TEST(chooses_validation_arrays) {
    struct archive archive = {0};
    struct dataset *dataset;
    add_array(&archive, "x_train", TWO_ROWS, two_rows, sizeof two_rows);
    add_array(&archive, "y_train", TWO_CLASSES, two_classes, sizeof two_classes);
    add_array(&archive, "x_test", "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3)}", two_rows, 12);
    add_array(&archive, "y_test", "{'descr': '<i8', 'fortran_order': False, 'shape': (1,)}", two_classes, 8);
    SCOPED_MEMORY char *path = write_archive(&archive);
    ck_ok(open_yaml(&dataset, true, "{path: %s, validation: %s}", path, path));
    ck_assert_uint_eq(dataset_info(dataset)->validation_rows, 1);
    dataset_close(dataset);
    ck_failure(open_yaml(&dataset, true, "{path: %s, validation: {path: %s, targets: y_train}}", path, path),
               STATUS_DATA, "array 'x_test' has 1 rows, but ");
}

TEST(rejects_damaged_archives) {
    static const struct {
        size_t at; /* from the start, or from the end of the file with [from_end] */
        bool from_end;
        uint8_t byte;
        const char *message;
    } cases[] = {
        {22, true, 'Q', "a.npz: the zip archive is damaged or truncated (its directory is missing)"},
        {10, true, 0xff, "a.npz: the zip archive is damaged or truncated (its directory)"},
        {6, true, 0xff, "a.npz: the zip archive is damaged or truncated (its directory)"},
        {22 + 51, true, 'Q', "a.npz: the zip archive is damaged or truncated (its directory)"},
        {22 + 51 - 8, true, 1, "a.npz: 'y.npy' is encrypted, which is not supported"},
        {22 + 51 - 10, true, 12, "a.npz: 'y.npy' is compressed with method 12; only stored and deflated"},
        {22 + 51 - 20, true, 0, "a.npz: the zip archive is damaged or truncated (y.npy)"},
        {22 + 51 - 21, true, 0xff, "a.npz: the zip archive is damaged or truncated (y.npy)"},
        {0, false, 'Q', "a.npz: the zip archive is damaged or truncated (x.npy)"},
        {29, false, 0xff, "a.npz: the zip archive is damaged or truncated (x.npy)"},
        {35, false, 'Q', "a.npz: array 'x': this is not an array as numpy.save writes it"},
    };
    static const char *const names[] = {"x", "y", NULL};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dataset *dataset;
        size_t size;
        char *path = write_arrays(names), *bytes = slurp(path, &size);
        bytes[cases[i].from_end ? size - cases[i].at : cases[i].at] = (char)cases[i].byte;
        spill(path, bytes, size);
        status s = open_yaml(&dataset, true, "path: %s", path);
        ck_assert_msg(s, "case %zu was read", i);
        ck_failure(s, STATUS_DATA, cases[i].message);
        free(path), free(bytes);
        empty_folder(folder);
    }
}

/* Every length that a copy may stop at is a failure, never a crash. */
TEST(rejects_truncated_archives) {
    size_t size;
    SCOPED_MEMORY char *source;
    ck_assert_int_gt(asprintf(&source, "%s/npy/types_compressed.npz", TEST_VECTORS), 0);
    SCOPED_MEMORY char *bytes = slurp(source, &size), *path = path_in(folder, "a.npz");
    for (size_t length = 0; length < size; length += 13) {
        struct dataset *dataset;
        spill(path, bytes, length);
        status s = open_yaml(&dataset, false, "{path: %s, inputs: uint8, targets: bool}", path);
        ck_failure(s, STATUS_DATA, "a.npz: the zip archive is damaged or truncated");
    }
    bytes[100] ^= 0x40; /* within the first member, bool */
    spill(path, bytes, size);
    struct dataset *dataset;
    status s = open_yaml(&dataset, false, "{path: %s, inputs: uint8, targets: bool}", path);
    ck_assert_int_eq((int)status_code(s), (int)STATUS_DATA);
    status_free(s);
}

/* ---- headers ---- */

TEST(rejects_headers) {
    static const char *const cases[][2] = {
        {"{'descr': '|O', 'fortran_order': False, 'shape': (2, 3), }",
         "x.npy: the type of its values, '|O', is pickled Python objects, which are not read"},
        {"{'descr': '<U3', 'fortran_order': False, 'shape': (2, 3), }", "'<U3', is texts; save numbers"},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (2, 3), }", "'<c8', is complex numbers"},
        {"{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (2, 3), }", "is dates or times; convert them"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3), }", "[...], is records"},
        {"{'descr': '<f16', 'fortran_order': False, 'shape': (2, 3), }",
         "'<f16', is not integers, floats or booleans of 1, 2, 4 or 8 bytes"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (), }", "x.npy: it is a single number"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } 1", "damaged or not one that NumPy writes"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, -3), }", "damaged or not one that NumPy writes"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 99999999999999999999), }", "damaged or not one"},
        {"{'descr': '<f4', 'fortran_order': None, 'shape': (2, 3), }", "damaged or not one that NumPy writes"},
        {"{'descr': '<f4', 'descr': '<f4', 'shape': (2, 3), }", "damaged or not one that NumPy writes"},
        {"{'descr': '<f4', 'shape': (2, 3), }", "damaged or not one that NumPy writes"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)", "damaged or not one that NumPy writes"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'x': 1}", "damaged or not one that NumPy"},
        {"", "damaged or not one that NumPy writes"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 0), }", "x.npy: its rows have 0 values"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 65536, 65536), }", "have more than 2147483647 values"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1, 6), }",
         "it has 10 dimensions; rows need 1 to 9"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 3), }",
         "x.npy: it has 93 bytes, but its header says 105; copy the file again"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }", "the file is damaged, or has several arrays"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (281474976710655, 3), }", "copy the file again"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 3), }", "the file is damaged"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }", "has 6 rows, but "},
    };
    SCOPED_MEMORY char *targets = write_npy("y.npy", TWO_CLASSES, two_classes, sizeof two_classes);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dataset *dataset;
        SCOPED_MEMORY char *path = write_npy("x.npy", cases[i][0], two_rows, sizeof two_rows);
        status s = open_yaml(&dataset, true, "path: %s", path);
        ck_assert_msg(s, "'%s' was read", cases[i][0]);
        ck_failure(s, STATUS_DATA, cases[i][1]);
    }
}

TEST(rejects_other_files) {
    static const struct {
        const char *bytes;
        size_t size;
        const char *message;
    } cases[] = {
        {"", 0, "x.npy: this is not an array as numpy.save writes it"},
        {"\x93NUMPY\1", 7, "x.npy: this is not an array as numpy.save writes it"},
        {"a,b\n1,2\n3,4\n", 12, "x.npy: this is not an array as numpy.save writes it"},
        {"PK\3\4zipzipzip", 13, "x.npy: this is an archive of arrays; name it .npz"},
        {"\x93NUMPY\4\0\0\0\0\0", 12, "version 4 of the .npy format is not known; 1 to 3 are"},
        {"\x93NUMPY\2\0\0\0", 10, "damaged or not one that NumPy writes"},
        {"\x93NUMPY\2\0\xff\xff\xff\xff{}", 14, "damaged or not one that NumPy writes"},
    };
    SCOPED_MEMORY char *path = path_in(folder, "x.npy");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dataset *dataset;
        spill(path, cases[i].bytes, cases[i].size);
        ck_failure(open_yaml(&dataset, true, "{path: %s, targets: %s}", path, path), STATUS_DATA, cases[i].message);
    }
}

/* The place of a value that is wrong. */
TEST(names_places) {
    static const float wrong[] = {1, 2, 3, 4, (float)NAN, 6};
    struct dataset *dataset;
    char *path = write_npy("x.npy", TWO_ROWS, wrong, sizeof wrong);
    SCOPED_MEMORY char *targets = write_npy("y.npy", TWO_CLASSES, ((int64_t[]){1, -1}), 16);
    ck_failure(open_yaml(&dataset, false, "path: %s", path), STATUS_DATA,
               "x.npy: row 1, column 1: NaN is not a finite");
    ck_failure(open_yaml(&dataset, true, "path: %s", path), STATUS_DATA, "y.npy: row 1: -1 is not a class");
    free(path);
    path = write_npy("x.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1, 3)}", wrong, sizeof wrong);
    ck_failure(open_yaml(&dataset, false, "path: %s", path), STATUS_DATA, "x.npy: row 1, element [0, 1]: NaN");
    free(path);
}

CHECK_MAIN("npy")
