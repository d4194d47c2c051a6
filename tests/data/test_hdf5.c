/* HDF5 files: accepted files, and the message for each rejected one. ctest-labels: unit */
#include "hdf5_cases.h"

TEST(reads_any_number_type) {
    const hid_t types[] = {H5T_STD_I8LE,  H5T_STD_U8LE,  H5T_STD_I16BE,  H5T_STD_U16LE,  H5T_STD_I32LE, H5T_STD_U32BE,
                           H5T_STD_I64BE, H5T_STD_U64LE, H5T_IEEE_F32LE, H5T_IEEE_F32BE, H5T_IEEE_F64BE};
    const float expected[] = {1, 2, 3, 4, 5, 6};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        hid_t file = create_file(path);
        write_values(file, "x", 2, (hsize_t[]){3, 2}, types[i], H5P_DEFAULT, H5T_NATIVE_DOUBLE, six);
        write_values(file, "y", 1, (hsize_t[]){3}, types[i], H5P_DEFAULT, H5T_NATIVE_INT64, classes);
        H5Fclose(file);
        check_rows("", true, 6, expected, 3);
    }
    hid_t half = H5Tcopy(H5T_IEEE_F32LE); /* numpy's float16 */
    H5Tset_fields(half, 15, 10, 5, 0, 10);
    H5Tset_size(half, 2);
    H5Tset_ebias(half, 15);
    hid_t file = create_file(path);
    write_values(file, "x", 2, (hsize_t[]){3, 2}, half, H5P_DEFAULT, H5T_NATIVE_DOUBLE, six);
    write_integers(file, "y", 2, (hsize_t[]){3, 1}, classes); /* a column of classes */
    H5Fclose(file);
    H5Tclose(half);
    check_rows("", true, 6, expected, 3);
    hid_t bit = H5Tcopy(H5T_STD_U8LE); /* one bit of a byte */
    H5Tset_precision(bit, 1);
    file = create_file(path);
    write_values(file, "x", 2, (hsize_t[]){3, 2}, bit, H5P_DEFAULT, H5T_NATIVE_INT64, (int64_t[]){0, 1, 1, 0, 1, 1});
    write_integers(file, "y", 1, (hsize_t[]){3}, classes);
    H5Fclose(file);
    H5Tclose(bit);
    check_rows("", true, 6, (const float[]){0, 1, 1, 0, 1, 1}, 3);
}

/* An enumeration of one byte, as h5py's; FALSE is [no]. */
static hid_t boolean_type(int8_t no) {
    hid_t type = H5Tenum_create(H5T_NATIVE_INT8);
    H5Tenum_insert(type, "FALSE", &no);
    H5Tenum_insert(type, "TRUE", (int8_t[]){1});
    return type;
}

/* In one piece of the file, and in compressed chunks. */
TEST(reads_booleans) {
    static const int8_t x[] = {0, 1, 1, 0, 1, 1}, y[] = {0, 1, 0};
    hid_t boolean = boolean_type(0), chunks = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(chunks, 2, (hsize_t[]){2, 2});
    H5Pset_deflate(chunks, 1);
    for (int i = 0; i < 2; i++) {
        hid_t file = create_file(path);
        write_values(file, "x", 2, (hsize_t[]){3, 2}, boolean, i ? chunks : H5P_DEFAULT, boolean, x);
        write_values(file, "y", 1, (hsize_t[]){3}, boolean, H5P_DEFAULT, boolean, y);
        H5Fclose(file);
        check_rows("", false, 6, (const float[]){0, 1, 1, 0, 1, 1}, 3);
        check_rows("inputs: y, targets: x", false, 3, (const float[]){0, 1, 0}, 3);
    }
    H5Tclose(boolean), H5Pclose(chunks);
}

TEST(joins_vectors_of_groups) {
    hid_t file = create_file(path);
    write_doubles(file, "train/a", 1, (hsize_t[]){3}, (double[]){1, 2, 3});
    write_doubles(file, "train/deep/b", 2, (hsize_t[]){3, 2}, six);
    write_integers(file, "labels", 1, (hsize_t[]){3}, classes);
    ck_assert_int_ge(H5Lcreate_soft("/train/a", file, "soft", H5P_DEFAULT, H5P_DEFAULT), 0);
    H5Fclose(file);
    check_rows("inputs: [train/a, /train/deep/b], targets: labels", true, 9, (float[]){1, 1, 2, 2, 3, 4, 3, 5, 6}, 3);
    check_rows("inputs: soft, targets: labels", true, 3, (float[]){1, 2, 3}, 3);
}

/* Images keep their shape; one mean for all of it, or one per channel. Chunked and compressed. */
TEST(reads_images) {
    enum { N = 40, C = 3, H = 2, W = 2, SIZE = C * H * W };
    double x[N * SIZE];
    int64_t y[N];
    float expected[N * SIZE];
    for (int i = 0; i < N * SIZE; i++) x[i] = (i * 37) % 256;
    for (int i = 0; i < N; i++) y[i] = i % 10;
    hid_t plan = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(plan, 4, (hsize_t[]){7, 2, 2, 1});
    H5Pset_shuffle(plan);
    H5Pset_deflate(plan, 4);
    H5Pset_fletcher32(plan);
    hid_t file = create_file(path);
    write_values(file, "x", 4, (hsize_t[]){N, C, H, W}, H5T_STD_U8LE, plan, H5T_NATIVE_DOUBLE, x);
    write_integers(file, "y", 1, (hsize_t[]){N}, y);
    H5Fclose(file);
    H5Pclose(plan);
    for (int i = 0; i < N * SIZE; i++) expected[i] = (float)((x[i] - (i / (H * W) % C + 1)) / 2);
    check_rows("scale: {mean: [1, 2, 3], std: 2}", false, N * SIZE, expected, N);
    double mean = 0, square = 0;
    for (int i = 0; i < N * SIZE; i++) mean += x[i] / (N * SIZE);
    for (int i = 0; i < N * SIZE; i++) square += (x[i] - mean) * (x[i] - mean) / (N * SIZE);
    struct dataset *dataset;
    ck_ok(open_yaml(&dataset, true, "{path: %s, scale: standard}", path));
    const struct dataset_info *info = dataset_info(dataset);
    ck_assert_int_eq(info->input_dims, 3);
    ck_assert_int_eq(info->input_shape[0], C);
    ck_assert_int_eq(info->input_shape[2], W);
    ck_assert_int_eq(info->classes, 10);
    const double *m, *s;
    size_t features;
    dataset_scaler(dataset, &m, &s, &features);
    ck_assert_uint_eq(features, 1);
    ck_assert_double_le(fabs(*m - mean), 1e-10);
    ck_assert_double_le(fabs(*s - sqrt(square)), 1e-10);
    float *inputs;
    void *targets;
    read_part(dataset, DATASET_TRAIN, &inputs, &targets);
    for (int i = 0; i < N * SIZE; i++) ck_assert(inputs[i] == (float)((x[i] - *m) / *s));
    free(inputs), free(targets);
    dataset_close(dataset);
    ck_failure(open_yaml(&dataset, true, "{path: %s, scale: {mean: [1, 2], std: 1}}", path), STATUS_USAGE,
               "dataset.scale.mean has 2 numbers; rows with 3 channels need 1 or 3");
}

/* Rows read from the file, in any order and with repetitions, are equal to those in memory. */
TEST(streams_what_memory_holds) {
    enum { N = 997, WIDTH = 11 };
    double *x = calloc(N * WIDTH, sizeof *x), *y = calloc(N * 2, sizeof *y);
    for (int i = 0; i < N * WIDTH; i++) x[i] = sin(i) * 100;
    for (int i = 0; i < N * 2; i++) y[i] = cos(i);
    hid_t file = create_file(path);
    write_doubles(file, "x", 2, (hsize_t[]){N, WIDTH}, x);
    write_doubles(file, "y", 2, (hsize_t[]){N, 2}, y);
    H5Fclose(file);
    free(x), free(y);
    SCOPED_DATASET memory, *stream;
    ck_ok(open_yaml(&memory, false, "{path: %s, scale: minmax, split: {test: 0.5, seed: 9}}", path));
    ck_ok(open_yaml(&stream, false, "{path: %s, scale: minmax, split: {test: 0.5, seed: 9}, cache_mb: 0}", path));
    ck_assert(dataset_is_in_memory(memory) && !dataset_is_in_memory(stream));
    ck_assert_str_eq(dataset_info(memory)->fingerprint, dataset_info(stream)->fingerprint);
    int64_t positions[64];
    float a[64 * WIDTH], b[64 * WIDTH], s[64 * 2], t[64 * 2];
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 64; i++) positions[i] = round < 2 ? i : (i * 7919 + round * 104729) % (round < 4 ? 5 : 498);
        ck_ok(dataset_read(memory, round % 2, positions, 64, a, s));
        ck_ok(dataset_read(stream, round % 2, positions, 64, b, t));
        ck_assert_mem_eq(a, b, sizeof a);
        ck_assert_mem_eq(s, t, sizeof s);
    }
}

/* Classes are read from the first row to the last, in memory or not. */
TEST(every_row_has_its_class) {
    static const int64_t y[] = {2, 0, 1, 0, 1, 0, 1, 0, 1, 0};
    double x[10] = {0};
    hid_t file = create_file(path);
    write_doubles(file, "x", 1, (hsize_t[]){10}, x);
    write_integers(file, "y", 1, (hsize_t[]){10}, y);
    H5Fclose(file);
    for (int cache = 0; cache < 2; cache++) {
        SCOPED_DATASET dataset;
        int64_t all[10];
        ck_ok(open_yaml(&dataset, true, "{path: %s, cache_mb: %d}", path, cache));
        ck_assert_int_eq(dataset_info(dataset)->classes, 3);
        ck_ok(dataset_train_classes(dataset, all));
        ck_assert_mem_eq(all, y, sizeof y);
    }
}

/* 2 GiB of rows, a hole in the file but for the first: sampled for the fingerprint, and read where asked. */
TEST(samples_large_files) {
    char hashes[3][65];
    for (int i = 0; i < 3; i++) {
        hid_t file = create_file(path), plan = H5Pcreate(H5P_DATASET_CREATE);
        H5Pset_fill_time(plan, H5D_FILL_TIME_NEVER);
        hsize_t rows = (hsize_t)1 << 28;
        write_values(file, "x", 1, &rows, H5T_IEEE_F32LE, plan, H5T_NATIVE_FLOAT, NULL);
        write_values(file, "y", 1, &rows, H5T_IEEE_F32LE, plan, H5T_NATIVE_FLOAT, NULL);
        const char *const names[] = {"x", "y"};
        for (int k = 0; k < 2; k++) {
            hid_t dataset = H5Dopen2(file, names[k], H5P_DEFAULT), space = H5Dget_space(dataset);
            float value = i == k + 1 ? 2 : 1;
            hsize_t start = 0, count = 1;
            hid_t one = H5Screate_simple(1, &count, NULL);
            H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &count, NULL);
            ck_assert_int_ge(H5Dwrite(dataset, H5T_NATIVE_FLOAT, one, space, H5P_DEFAULT, &value), 0);
            H5Sclose(one), H5Sclose(space), H5Dclose(dataset);
        }
        H5Pclose(plan);
        H5Fclose(file);
        SCOPED_DATASET dataset;
        ck_ok(open_yaml(&dataset, false, "path: %s", path));
        ck_assert(!dataset_is_in_memory(dataset));
        strcpy(hashes[i], dataset_info(dataset)->fingerprint);
        int64_t positions[] = {200000000, 0};
        float x[2], y[2];
        ck_ok(dataset_read(dataset, DATASET_TRAIN, positions, 2, x, y));
        ck_assert(x[0] == 0 && x[1] == (i == 1 ? 2 : 1));
    }
    ck_assert_str_ne(hashes[0], hashes[1]);
    ck_assert_str_ne(hashes[0], hashes[2]);
}

/* ---- rejected files ---- */

TEST(rejects_wrong_names) {
    write_plain();
    check_rejection(false, "inputs: z",
                    "t.h5: there is no dataset 'z'; the file has: x, y (see dataset.inputs, targets)");
    check_rejection(false, "inputs: a/b", "t.h5: there is no dataset 'a/b'");
    struct dataset *dataset;
    ck_failure(open_yaml(&dataset, false, "{path: %s, inputs: ''}", path), STATUS_USAGE,
               "t.h5: the name of a dataset is empty");
    hid_t file = create_file(path);
    write_doubles(file, "g/x", 2, (hsize_t[]){3, 2}, six);
    write_doubles(file, "images", 3, (hsize_t[]){3, 2, 1}, six);
    write_integers(file, "y", 1, (hsize_t[]){3}, classes);
    write_integers(file, "short", 1, (hsize_t[]){2}, classes);
    H5Fclose(file);
    check_rejection(false, "inputs: g", "t.h5: 'g' is a group, not a dataset; name a dataset in it, such as 'g/x'");
    check_rejection(false, "inputs: [g/x, images]",
                    "'images' has rows of 2 dimensions; only vectors can be concatenated");
    check_rejection(false, "inputs: g/x, targets: short", "t.h5: dataset 'g/x' has 3 rows, but 'short' has 2");
    check_rejection(true, "inputs: g/x, targets: g/x", "dataset 'g/x' is used twice, as input and as target");
    check_rejection(false, "inputs: y, targets: [short, short]", "dataset 'short' is used twice, as target");
}

TEST(rejects_wrong_values) {
    static const struct {
        double x[6], y[3];
        bool wants_classes;
        const char *sentence;
    } cases[] = {
        {{1, 2, 3, NAN, 5, 6}, {0, 1, 2}, true, "t.h5: dataset 'x', row 1, column 1: NaN is not a finite number"},
        {{1, 2, 3, 4, -INFINITY, 6},
         {0, 1, 2},
         true,
         "t.h5: dataset 'x', row 2, column 0: -Inf is not a finite number"},
        {{1, 2, 3, 4, 5, 1e200},
         {0, 1, 2},
         false,
         "t.h5: dataset 'x', row 2, column 1: 1e+200 is too large for float32"},
        {{1, 2, 3, 4, 5, 6}, {0, 1.5, 2}, true, "t.h5: dataset 'y', row 1: 1.5 is not a class; classes are integers"},
        {{1, 2, 3, 4, 5, 6}, {0, 1, -1}, true, "t.h5: dataset 'y', row 2: -1 is not a class"},
        {{1, 2, 3, 4, 5, 6}, {0, 1, 3e9}, true, "t.h5: dataset 'y', row 2: 3e+09 is not a class"},
        {{1, 2, 3, 4, 5, 6}, {0, NAN, 1}, false, "t.h5: dataset 'y', row 1: NaN is not a finite number"},
        {{1, 2, 3, 4, 5, 6}, {0, 1e39, 1}, false, "t.h5: dataset 'y', row 1: 1e+39 is too large for float32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hid_t file = create_file(path);
        write_doubles(file, "x", 2, (hsize_t[]){3, 2}, cases[i].x);
        write_doubles(file, "y", 1, (hsize_t[]){3}, cases[i].y);
        H5Fclose(file);
        struct dataset *dataset;
        ck_failure(open_yaml(&dataset, cases[i].wants_classes, "path: %s", path), STATUS_DATA, cases[i].sentence);
    }
    hid_t file = create_file(path);
    write_doubles(file, "x", 4, (hsize_t[]){1, 1, 2, 3}, (double[]){1, 2, 3, 4, 5, NAN});
    write_integers(file, "y", 1, (hsize_t[]){1}, classes);
    H5Fclose(file);
    check_rejection(false, "", "t.h5: dataset 'x', row 0, element [0, 1, 2]: NaN is not a finite number");
}

/* Scaled float32 values may be too large. */
TEST(rejects_overflow_when_scaled) {
    hid_t file = create_file(path);
    write_doubles(file, "x", 2, (hsize_t[]){3, 2}, (double[]){1, 1e308, 1, -1e308, 1, 1e308});
    write_integers(file, "y", 1, (hsize_t[]){3}, classes);
    H5Fclose(file);
    check_rejection(false, "scale: minmax", "t.h5: the values of input feature 1 are too large to be scaled");
    check_rejection(false, "scale: standard", "t.h5: the values of input feature 1 are too large to be scaled");
}

/* The message has the row of the file, for a table in memory and for one that is read on demand. */
TEST(names_the_row_that_overflows) {
    enum { N = 9 };
    double x[N * 2] = {0}, y[N] = {0};
    static const char *const places[] = {"dataset 'x', row 6, column 1: 1e+30 is too large for float32 after scaling",
                                         "dataset 'y', row 6: 1e+39 is too large for float32"};
    for (int i = 0; i < 4; i++) {
        bool is_target = i % 2, is_stream = i / 2;
        x[6 * 2 + 1] = is_target ? 0 : 1e30, y[6] = is_target ? 1e39 : 0;
        hid_t file = create_file(path);
        write_doubles(file, "x", 2, (hsize_t[]){N, 2}, x);
        write_doubles(file, "y", 1, (hsize_t[]){N}, y);
        H5Fclose(file);
        struct dataset *dataset;
        status s =
            open_yaml(&dataset, false, "{path: %s, scale: {mean: 0, std: 1.0e-9}, cache_mb: %d}", path, !is_stream);
        if (is_stream) {
            float inputs[5 * 2], targets[5];
            ck_ok(s);
            ck_ok(dataset_read(dataset, DATASET_TRAIN, (int64_t[]){5, 0, 7, 3, 4}, 5, inputs, targets));
            s = dataset_read(dataset, DATASET_TRAIN, (int64_t[]){5, 7, 6, 3, 4}, 5, inputs, targets);
            dataset_close(dataset);
        }
        ck_failure(s, STATUS_DATA, places[is_target]);
    }
}

TEST(rejects_other_types) {
    hid_t file = create_file(path), text = H5Tcopy(H5T_C_S1), colors = boolean_type(2);
    H5Tset_size(text, 4);
    hid_t odd = H5Tcopy(H5T_STD_I64LE);
    H5Tset_precision(odd, 20);
    H5Tset_size(odd, 3);
    write_integers(file, "y", 1, (hsize_t[]){3}, classes);
    write_values(file, "text", 1, (hsize_t[]){3}, text, H5P_DEFAULT, text, "aaaabbbbcccc");
    write_values(file, "colors", 1, (hsize_t[]){3}, colors, H5P_DEFAULT, colors, (int8_t[]){2, 1, 2});
    write_values(file, "odd", 1, (hsize_t[]){3}, odd, H5P_DEFAULT, H5T_NATIVE_INT64, classes);
    write_doubles(file, "none", 2, (hsize_t[]){0, 2}, NULL);
    write_integers(file, "no", 1, (hsize_t[]){0}, NULL);
    write_doubles(file, "thin", 2, (hsize_t[]){3, 0}, NULL);
    write_doubles(file, "unwritten", 1, (hsize_t[]){3}, NULL);
    write_doubles(file, "deep", 10, (hsize_t[]){3, 1, 1, 1, 1, 1, 1, 1, 1, 1}, six);
    hid_t scalar = H5Screate(H5S_SCALAR);
    H5Dclose(H5Dcreate2(file, "scalar", H5T_IEEE_F64LE, scalar, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Sclose(scalar), H5Tclose(text), H5Tclose(colors), H5Tclose(odd);
    H5Fclose(file);
    check_rejection(false, "inputs: text",
                    "t.h5: dataset 'text' is of type string; only integers and floats can be read");
    check_rejection(false, "inputs: colors",
                    "t.h5: dataset 'colors' is of an enumeration type that is not that of h5py's booleans");
    check_rejection(false, "inputs: odd", "t.h5: dataset 'odd' has numbers of 3 bytes");
    check_rejection(false, "inputs: none, targets: no", "t.h5: there are no rows");
    check_rejection(false, "inputs: thin", "t.h5: dataset 'thin' has rows of 0 values");
    check_rejection(false, "inputs: unwritten",
                    "t.h5: dataset 'unwritten' was created but its values were never written");
    check_rejection(false, "inputs: deep", "t.h5: dataset 'deep' has 10 dimensions; rows need 1 to 9");
    check_rejection(false, "inputs: scalar", "t.h5: dataset 'scalar' has 0 dimensions");
}

/* Only one of 12 chunks exists: libhdf5 would read zeros for the others. */
TEST(rejects_missing_chunks) {
    hid_t file = create_file(path), plan = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(plan, 2, (hsize_t[]){1, 1});
    write_values(file, "x", 2, (hsize_t[]){6, 2}, H5T_IEEE_F64LE, plan, H5T_NATIVE_DOUBLE, NULL);
    write_integers(file, "y", 1, (hsize_t[]){6}, (int64_t[]){0, 1, 2, 0, 1, 2});
    hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT), space = H5Dget_space(dataset);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, (hsize_t[]){2, 1}, NULL, (hsize_t[]){1, 1}, NULL);
    hid_t one = H5Screate_simple(1, (hsize_t[]){1}, NULL);
    ck_assert_int_ge(H5Dwrite(dataset, H5T_NATIVE_DOUBLE, one, space, H5P_DEFAULT, six), 0);
    H5Sclose(one), H5Sclose(space), H5Dclose(dataset), H5Pclose(plan);
    H5Fclose(file);
    check_rejection(false, "", "t.h5: dataset 'x' has 1 chunks of 12: its other values were never written");
}

/* Nothing outside the file: external links, external storage, virtual datasets, plugins. */
TEST(rejects_other_files) {
    SCOPED_MEMORY char *other = path_in(folder, "other.h5");
    write_plain();
    ck_assert_int_eq(rename(path, other), 0);
    hid_t file = create_file(path), plan = H5Pcreate(H5P_DATASET_CREATE), mapped = H5Pcreate(H5P_DATASET_CREATE);
    write_integers(file, "y", 1, (hsize_t[]){3}, classes);
    H5Lcreate_external("other.h5", "/x", file, "link", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_external("other.h5", "/", file, "root", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/link", file, "soft", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/root/x", file, "through", H5P_DEFAULT, H5P_DEFAULT);
    H5Pset_external(plan, other, 0, 48);
    write_values(file, "outside", 2, (hsize_t[]){3, 2}, H5T_IEEE_F64LE, plan, H5T_NATIVE_DOUBLE, NULL);
    hid_t space = H5Screate_simple(2, (hsize_t[]){3, 2}, NULL);
    H5Pset_virtual(mapped, space, other, "/x", space);
    write_values(file, "virtual", 2, (hsize_t[]){3, 2}, H5T_IEEE_F64LE, mapped, H5T_NATIVE_DOUBLE, NULL);
    H5Sclose(space), H5Pclose(plan), H5Pclose(mapped);
    H5Fclose(file);
    check_rejection(false, "inputs: link", "t.h5: 'link' is a link to another file, which is not followed");
    check_rejection(false, "inputs: root/x", "t.h5: 'root' is a link to another file, which is not followed");
    check_rejection(false, "inputs: soft", "t.h5: 'soft' cannot be opened: ");
    check_rejection(false, "inputs: through", "t.h5: 'through' cannot be opened: ");
    check_rejection(false, "inputs: outside", "t.h5: dataset 'outside' has its values in other files");
    check_rejection(false, "inputs: virtual", "t.h5: dataset 'virtual' has its values in other files");
}

static size_t keep(unsigned flags, size_t n, const unsigned *values, size_t size, size_t *room, void **bytes) {
    (void)flags, (void)n, (void)values, (void)room, (void)bytes;
    return size;
}

/* A filter that libhdf5 would load as a plugin. */
TEST(rejects_unknown_filters) {
    const H5Z_class2_t filter = {H5Z_CLASS_T_VERS, 32004, 1, 1, "lz4", NULL, NULL, (H5Z_func_t)keep};
    ck_assert_int_ge(H5Zregister(&filter), 0);
    hid_t file = create_file(path), plan = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(plan, 2, (hsize_t[]){3, 2});
    H5Pset_filter(plan, 32004, 0, 0, NULL);
    write_values(file, "x", 2, (hsize_t[]){3, 2}, H5T_IEEE_F64LE, plan, H5T_NATIVE_DOUBLE, six);
    write_integers(file, "y", 1, (hsize_t[]){3}, classes);
    H5Pclose(plan);
    H5Fclose(file);
    H5Zunregister(32004);
    check_rejection(false, "",
                    "t.h5: dataset 'x' is compressed by filter 32004 (lz4), which is not read; write it "
                    "again with compression='gzip' or none");
}

TEST(rejects_what_is_no_hdf5) {
    spill(path, "a,b\n1,2\n", 8);
    check_rejection(false, "", "t.h5: this is not an HDF5 file");
    spill(path, "", 0);
    check_rejection(false, "", "t.h5: this is not an HDF5 file");
    write_plain();
    ck_assert_int_eq(truncate(path, 2100), 0);
    check_rejection(false, "", "t.h5: cannot be opened as HDF5 file: truncated file");
    ck_assert_int_eq(unlink(path), 0);
    check_rejection(false, "", "No such file or directory");
}

/* The validation file must have rows of the same shape. */
TEST(validation_file) {
    SCOPED_MEMORY char *second = path_in(folder, "v.h5");
    write_plain();
    ck_assert_int_eq(rename(path, second), 0);
    hid_t file = create_file(path);
    write_doubles(file, "x", 2, (hsize_t[]){1, 2}, six);
    write_integers(file, "y", 1, (hsize_t[]){1}, classes);
    H5Fclose(file);
    struct dataset *dataset;
    float *x;
    void *y;
    ck_ok(open_yaml(&dataset, true, "{path: %s, validation: {path: %s}, scale: standard}", path, second));
    ck_assert_uint_eq(dataset_info(dataset)->train_rows, 1);
    ck_assert_uint_eq(dataset_info(dataset)->validation_rows, 3);
    ck_assert_int_eq(dataset_info(dataset)->classes, 3); /* of both files */
    read_part(dataset, DATASET_VALIDATION, &x, &y);
    ck_assert(x[2] == 2); /* scaled by the training rows: mean 1, constant */
    free(x), free(y);
    dataset_close(dataset);
    file = create_file(path);
    write_doubles(file, "x", 2, (hsize_t[]){2, 3}, six);
    write_integers(file, "y", 1, (hsize_t[]){2}, classes);
    H5Fclose(file);
    ck_failure(open_yaml(&dataset, true, "{path: %s, validation: {path: %s}}", path, second), STATUS_DATA,
               "have shape 3 and 1 target values, those of '");
}

CHECK_MAIN("hdf5")
