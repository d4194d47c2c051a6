/* Rows of HDF5 datasets without chunks, which are read without libhdf5, equal those in chunks, which are read with it.
 * Those of simple files are also found without it. ctest-labels: unit */
#include <fcntl.h>
#include <unistd.h>

#include "base/files/hdf5.h"
#include "hdf5_files.h"
#include "open.h"

/* The values of x, one piece of the file, are read without libhdf5; in t-1.h5, which has a user block, they are found
 * with it, in t-2.h5 without; those of z, the same ones in chunks, are read with it. Rows are wide enough for every way
 * from the file to a batch; t-1.h5 and t-2.h5 are two files as one.
 */
TEST(pieces_are_equal_to_chunks) {
    SCOPED_FOLDER folder = make_folder();
    enum { ROWS = 5, WIDTH = 1100 };
    static double values[ROWS * WIDTH];
    char *names[] = {path_in(folder, "t-1.h5"), path_in(folder, "t-2.h5")};
    hid_t half = H5Tcopy(H5T_IEEE_F32BE), chunks = H5Pcreate(H5P_DATASET_CREATE);
    H5Tset_fields(half, 15, 10, 5, 0, 10);
    H5Tset_size(half, 2);
    H5Tset_ebias(half, 15);
    H5Pset_chunk(chunks, 2, (hsize_t[]){2, 300});
    const hid_t types[] = {H5T_IEEE_F32LE, H5T_IEEE_F32BE, H5T_IEEE_F64LE, H5T_IEEE_F64BE, half,
                           H5T_STD_I8LE,   H5T_STD_U8BE,   H5T_STD_I16BE,  H5T_STD_U16LE,  H5T_STD_I32BE,
                           H5T_STD_U32LE,  H5T_STD_I64BE,  H5T_STD_U64LE};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        bool is_float = H5Tget_class(types[t]) == H5T_FLOAT,
             is_signed = is_float || H5Tget_sign(types[t]) != H5T_SGN_NONE;
        double limit = is_float ? 60000 : ldexp(1, (int)(8 * H5Tget_size(types[t])) - is_signed);
        uint64_t state = t + 1;
        for (size_t i = 0; i < ROWS * WIDTH; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            double unit = (double)(state >> 11) * 0x1p-53; /* 0 to 1 */
            values[i] = (is_signed ? 2 * unit - 1 : unit) * limit * (i % 3 == 0 ? 1e-4 : 0.999);
        }
        for (int k = 0; k < 2; k++) {
            hid_t plan = H5Pcreate(H5P_FILE_CREATE);
            if (k == 0) H5Pset_userblock(plan, 512);
            hid_t file = H5Fcreate(names[k], H5F_ACC_TRUNC, plan, H5P_DEFAULT);
            const hsize_t shape[] = {ROWS, WIDTH}, line[] = {ROWS};
            write_values(file, "x", 2, shape, types[t], H5P_DEFAULT, H5T_NATIVE_DOUBLE, values);
            write_values(file, "z", 2, shape, types[t], chunks, H5T_NATIVE_DOUBLE, values);
            write_values(file, "y", 1, line, H5T_STD_I32BE, H5P_DEFAULT, H5T_NATIVE_INT64, (int64_t[]){0, 1, 2, 1, 0});
            H5Fclose(file);
            H5Pclose(plan);
        }
        static const char *const keys[] = {"", "scale: standard", "divide: 7"};
        for (size_t i = 0; i < 3 * 2 * 2; i++) {
            struct dataset *dataset[2];
            float *x[2];
            void *y[2];
            for (int k = 0; k < 2; k++) {
                ck_ok(open_yaml(&dataset[k], true, "{path: %s/t-%s.h5, inputs: %s, cache_mb: %d, %s}", folder,
                                i / 6 ? "*"
                                : k   ? "1"
                                      : "2",
                                k ? "z" : "x", (int)(i / 3 % 2), keys[i % 3]));
                read_part(dataset[k], DATASET_TRAIN, &x[k], &y[k]);
            }
            size_t rows = i / 6 ? 2 * ROWS : ROWS;
            ck_assert_uint_eq(dataset_info(dataset[0])->train_rows, rows);
            ck_assert_mem_eq(x[0], x[1], rows * WIDTH * sizeof(float));
            ck_assert_mem_eq(y[0], y[1], rows * sizeof(int64_t));
            for (int k = 0; k < 2; k++) free(x[k]), free(y[k]), dataset_close(dataset[k]);
        }
    }
    H5Tclose(half);
    H5Pclose(chunks);
    free(names[0]), free(names[1]);
}

/* ---- found without libhdf5 ---- */

static bool find(const char *path, const char *name, struct hdf5_plain *out) {
    int fd = open(path, O_RDONLY);
    ck_assert_int_ge(fd, 0);
    bool is_found = hdf5_plain_find(fd, (uint64_t)lseek(fd, 0, SEEK_END), name, out);
    close(fd);
    return is_found;
}

/* As libhdf5 finds it. */
static void check_plain(const char *path, hid_t file, const char *name, const hsize_t *shape, int dims) {
    struct hdf5_plain plain;
    hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT), type = H5Dget_type(dataset);
    ck_assert_msg(find(path, name, &plain), "%s", name);
    ck_assert_uint_eq(plain.start, H5Dget_offset(dataset));
    ck_assert_int_eq(plain.dims, dims);
    for (int i = 0; i < dims; i++) ck_assert_uint_eq(plain.shape[i], shape[i]);
    ck_assert_uint_eq(plain.value_bytes, H5Tget_size(type));
    ck_assert_int_eq(plain.is_float, H5Tget_class(type) == H5T_FLOAT);
    ck_assert_int_eq(plain.is_signed, plain.is_float || H5Tget_sign(type) != H5T_SGN_NONE);
    ck_assert_int_eq(plain.is_big, H5Tget_order(type) == H5T_ORDER_BE);
    H5Tclose(type);
    H5Dclose(dataset);
}

/* 600 datasets of a group are in several nodes of two levels. */
TEST(simple_datasets_are_found) {
    enum { COUNT = 600 };
    char *folder = make_folder(), *path = path_in(folder, "a.h5"), name[32];
    const hid_t types[] = {H5T_IEEE_F32LE, H5T_IEEE_F64BE, H5T_STD_I8LE,  H5T_STD_U8LE,  H5T_STD_I16BE,
                           H5T_STD_U16LE,  H5T_STD_I32LE,  H5T_STD_U32BE, H5T_STD_I64LE, H5T_STD_U64LE};
    double values[6] = {1, 2, 3, 4, 5, 6};
    const hsize_t shape[] = {2, 3};
    struct hdf5_plain plain;
    hid_t file = create_file(path);
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, i % 2 ? "a/%d" : "a/b/%d", i);
        write_values(file, name, 2, shape, types[i % 10], H5P_DEFAULT, H5T_NATIVE_DOUBLE, values);
    }
    H5Fclose(file);
    ck_assert_int_ge(file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT), 0);
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, i % 2 ? "a/%d" : "a/b/%d", i);
        check_plain(path, file, name, shape, 2);
    }
    H5Fclose(file);
    static const char *const others[] = {"", "a", "/a/1", "a/", "a//1", "a/./1", "a/0", "a/1/x", "b/1", "a/b"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        ck_assert_msg(!find(path, others[i], &plain), "%s", others[i]);
    free(path);
    remove_folder(folder);
}

static bool count_one(void *context, const char *path, const struct hdf5_plain *dataset) {
    (void)path, (void)dataset;
    ++*(size_t *)context;
    return true;
}

/* Two links of one name, as damage can leave them, and nodes of a tree that name others beside them. */
TEST(in_a_damaged_group_what_libhdf5_finds_is_found) {
    enum { COUNT = 300 };
    char *folder = make_folder(), *path = path_in(folder, "a.h5"), name[32];
    struct hdf5_plain_attributes a;
    size_t size, nodes = 0, visited = 0;
    hid_t file = create_file(path);
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "name-%03d", i);
        write_doubles(file, name, 1, (const hsize_t[]){1}, (double[]){i});
    }
    H5Fclose(file);
    char *bytes = slurp(path, &size);
    for (char *c = bytes; (c = memmem(c, (size_t)(bytes + size - c), "TREE\0", 6)); nodes++, c++) memset(c + 16, 0, 8);
    ck_assert_uint_gt(nodes, 1);
    ck_assert(hdf5_plain_walk(bytes, size, &a, count_one, &visited));
    ck_assert_uint_eq(visited, COUNT);
    for (char *c = bytes; (c = memmem(c, (size_t)(bytes + size - c), "name-001", 9));) memcpy(c, "name-000", 8);
    spill(path, bytes, size);
    ck_assert_int_ge(file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT), 0);
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "name-%03d", i == 1 ? 0 : i);
        check_plain(path, file, name, (const hsize_t[]){1}, 1);
    }
    H5Fclose(file);
    ck_assert(!hdf5_plain_walk(bytes, size, &a, count_one, &visited));
    free(bytes), free(path);
    remove_folder(folder);
}

static void write_one(const char *path, const char *name, hsize_t limit, hid_t type, hid_t plan) {
    const hsize_t shape[] = {4, 3}, most[] = {limit, 3};
    double values[12] = {0};
    hid_t file = create_file(path), space = H5Screate_simple(2, shape, most);
    hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, plan, H5P_DEFAULT);
    ck_assert_int_ge(dataset, 0);
    if (H5Tget_class(type) == H5T_FLOAT && H5Pget_external_count(plan) == 0)
        H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    H5Dclose(dataset);
    H5Sclose(space);
    H5Pclose(plan);
    ck_assert_int_ge(H5Lcreate_soft("x", file, "soft", H5P_DEFAULT, H5P_DEFAULT), 0);
    H5Fclose(file);
}

static hid_t plan_of(int kind) {
    hid_t plan = H5Pcreate(H5P_DATASET_CREATE);
    if (kind == 1) H5Pset_layout(plan, H5D_COMPACT);
    if (kind == 2) H5Pset_chunk(plan, 2, (hsize_t[]){2, 3});
    if (kind == 3) H5Pset_external(plan, "values.raw", 0, 96);
    return plan;
}

TEST(other_datasets_are_left_to_libhdf5) {
    char *folder = make_folder(), *path = path_in(folder, "a.h5");
    struct hdf5_plain plain;
    for (int kind = 0; kind < 4; kind++) {
        write_one(path, "x", 4, H5T_IEEE_F64LE, plan_of(kind));
        ck_assert_int_eq(find(path, "x", &plain), kind == 0);
        ck_assert(!find(path, "soft", &plain));
    }
    write_one(path, "x", H5S_UNLIMITED, H5T_IEEE_F64LE, plan_of(2));
    ck_assert(!find(path, "x", &plain));
    const hid_t types[] = {H5T_NATIVE_LDOUBLE, H5T_VAX_F32, H5T_STD_B8LE, H5T_UNIX_D32LE, H5T_STD_I32LE};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        write_one(path, "x", 4, types[i], plan_of(0)); /* no values of integers are written */
        ck_assert_msg(!find(path, "x", &plain), "type %zu", i);
    }
    hid_t narrow = H5Tcopy(H5T_STD_I32LE);
    H5Tset_precision(narrow, 24);
    hid_t early = plan_of(0);
    H5Pset_alloc_time(early, H5D_ALLOC_TIME_EARLY);
    write_one(path, "x", 4, narrow, early);
    ck_assert(!find(path, "x", &plain));
    H5Tclose(narrow);
    free(path);
    remove_folder(folder);
}

/* ---- a whole file ---- */

struct listed {
    char paths[8][16];
    struct hdf5_plain datasets[8];
    size_t count;
};

static bool list(void *context, const char *path, const struct hdf5_plain *dataset) {
    struct listed *listed = context;
    snprintf(listed->paths[listed->count], sizeof listed->paths[0], "%s", path);
    listed->datasets[listed->count++] = *dataset;
    return listed->count < 8;
}

static void add_attribute(hid_t file, const char *name, hid_t type, const void *value) {
    hid_t scalar = H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(file, name, type, scalar, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert_int_ge(H5Awrite(attribute, type, value), 0);
    H5Aclose(attribute);
    H5Sclose(scalar);
}

static void write_whole(const char *path, hid_t text) {
    hid_t file = create_file(path), scalar = H5Screate(H5S_SCALAR);
    write_doubles(file, "b/x", 2, (const hsize_t[]){2, 3}, (double[]){1, 2, 3, 4, 5, 6});
    write_values(file, "b/none", 1, (const hsize_t[]){0}, H5T_IEEE_F32LE, H5P_DEFAULT, H5T_NATIVE_DOUBLE, NULL);
    hid_t dataset = H5Dcreate2(file, "a", text, scalar, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert_int_ge(H5Dwrite(dataset, text, H5S_ALL, H5S_ALL, H5P_DEFAULT, "abcde"), 0);
    H5Dclose(dataset);
    add_attribute(file, "format", text, "plain");
    add_attribute(file, "format_version", H5T_STD_I16LE, &(int16_t){-3});
    add_attribute(file, "other", H5T_IEEE_F32LE, &(float){1});
    H5Sclose(scalar);
    H5Fclose(file);
}

TEST(all_datasets_and_two_attributes_of_a_file_are_found) {
    char *folder = make_folder(), *path = path_in(folder, "a.h5");
    struct hdf5_plain_attributes a;
    struct listed l = {0};
    hid_t text = H5Tcopy(H5T_C_S1);
    H5Tset_size(text, 5);
    write_whole(path, text);
    size_t size;
    char *bytes = slurp(path, &size);
    ck_assert(hdf5_plain_walk(bytes, size, &a, list, &l));
    ck_assert_str_eq(a.format, "plain");
    ck_assert_int_eq(a.format_version, -3);
    ck_assert_uint_eq(l.count, 3);
    ck_assert_str_eq(l.paths[0], "a");
    ck_assert(l.datasets[0].is_text && l.datasets[0].value_bytes == 5 && l.datasets[0].dims == 0);
    ck_assert_mem_eq(bytes + l.datasets[0].start, "abcde", 5);
    ck_assert_str_eq(l.paths[1], "b/none");
    ck_assert_int_eq(l.datasets[1].dims, 1);
    ck_assert_uint_eq(l.datasets[1].shape[0], 0);
    ck_assert_str_eq(l.paths[2], "b/x");
    ck_assert_mem_eq(bytes + l.datasets[2].start + 8, &(double){2}, 8);
    H5Tclose(text);
    free(bytes);
    free(path);
    remove_folder(folder);
}

/* Whatever is changed; the copy has no byte more, so that a sanitizer sees a read behind it. A group that contains
 * itself has an end, too. */
TEST(a_damaged_file_is_read_to_its_end_at_most) {
    char *folder = make_folder(), *path = path_in(folder, "a.h5");
    struct hdf5_plain_attributes a;
    hid_t text = H5Tcopy(H5T_C_S1);
    H5Tset_size(text, 5);
    write_whole(path, text);
    size_t size;
    char *bytes = slurp(path, &size), *copy = malloc(size);
    for (size_t i = 0; i < 3 * size; i++) {
        memcpy(copy, bytes, size);
        copy[i / 3] = (char)(i % 3 == 0 ? bytes[i / 3] ^ 1 : i % 3 == 1 ? bytes[i / 3] ^ 0x80 : ~bytes[i / 3]);
        struct listed l = {0};
        bool is_plain = hdf5_plain_walk(copy, size, &a, list, &l);
        for (size_t k = 0; is_plain && k < l.count; k++) {
            uint64_t count = l.datasets[k].value_bytes;
            for (int d = 0; d < l.datasets[k].dims; d++) count *= l.datasets[k].shape[d];
            if (count) ck_assert_uint_le(l.datasets[k].start + count, size);
        }
    }
    free(copy), free(bytes);
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    ck_assert_int_ge(H5Lcreate_hard(file, "/", file, "b/again", H5P_DEFAULT, H5P_DEFAULT), 0);
    H5Fclose(file);
    bytes = slurp(path, &size);
    ck_assert(!hdf5_plain_walk(bytes, size, &a, list, &(struct listed){0}));
    H5Tclose(text);
    free(bytes);
    free(path);
    remove_folder(folder);
}

/* With any byte changed, and at any length, either nothing is found or values that are in the file. */
TEST(damage_leads_to_nothing_outside_of_the_file) {
    char *folder = make_folder(), *path = path_in(folder, "a.h5");
    const hsize_t shape[] = {2, 3};
    struct hdf5_plain plain;
    hid_t file = create_file(path);
    write_doubles(file, "a/x", 2, shape, (double[]){1, 2, 3, 4, 5, 6});
    write_doubles(file, "a/y", 2, shape, (double[]){1, 2, 3, 4, 5, 6});
    H5Fclose(file);
    size_t size, found = 0;
    SCOPED_MEMORY char *bytes = slurp(path, &size);
    int fd = open(path, O_RDWR);
    for (size_t i = 0; i < 3 * size; i++) {
        char changed = (char)(i % 3 == 0 ? bytes[i / 3] ^ 1 : i % 3 == 1 ? bytes[i / 3] ^ 0x80 : ~bytes[i / 3]);
        ck_assert_int_eq(pwrite(fd, &changed, 1, (off_t)i / 3), 1);
        if (hdf5_plain_find(fd, size, "a/y", &plain)) {
            uint64_t count = plain.value_bytes;
            for (int d = 0; d < plain.dims; d++) count *= plain.shape[d];
            ck_assert_uint_le(plain.start + count, size);
            ck_assert_uint_eq(count, 48);
            found++;
        }
        ck_assert_int_eq(pwrite(fd, bytes + i / 3, 1, (off_t)i / 3), 1);
    }
    ck_assert_uint_gt(found, 0);
    for (size_t length = 0; length < size; length++) ck_assert(!hdf5_plain_find(fd, length, "a/y", &plain));
    close(fd);
    free(path);
    remove_folder(folder);
}

CHECK_MAIN("hdf5_piece")
