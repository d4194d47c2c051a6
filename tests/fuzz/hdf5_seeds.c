/* hdf5_seeds FOLDER: small HDF5 files for fuzz_hdf5 and fuzz_hdf5_data to start from: a checkpoint and a dataset, and
 * each again with one attribute or dataset of another class, size, rank, storage or filter. */
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files/sealed.h"
#include "checkpoint/checkpoint.h"

static void must(bool condition, const char *what) {
    if (condition) return;
    perror(what);
    exit(1);
}

/* ---- types, shapes and storage ---- */

enum kind {
    KIND_INT8,
    KIND_INT64_BIG,
    KIND_FLOAT16,
    KIND_FLOAT32,
    KIND_FLOAT64,
    KIND_TEXT,
    KIND_LONG_TEXT,
    KIND_ANY_TEXT,
    KIND_LISTS,
    KIND_COMPOUND,
    KIND_REFERENCE,
    KIND_REGION,
    KIND_ENUM,
    KIND_OPAQUE,
    KIND_BITS,
    KIND_ARRAY,
    KIND_TIME,
    KINDS
};

static hid_t sized(hid_t base, size_t size) {
    hid_t type = H5Tcopy(base);
    H5Tset_size(type, size);
    return type;
}

static hid_t make_half(void) {
    hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    H5Tset_fields(type, 15, 10, 5, 0, 10);
    H5Tset_size(type, 2);
    H5Tset_ebias(type, 15);
    return type;
}

static hid_t make_compound(void) {
    hid_t type = H5Tcreate(H5T_COMPOUND, 16);
    H5Tinsert(type, "a", 0, H5T_STD_I64LE);
    H5Tinsert(type, "b", 8, H5T_IEEE_F64LE);
    return type;
}

static hid_t make_enum(void) {
    hid_t type = H5Tenum_create(H5T_STD_I8LE);
    H5Tenum_insert(type, "FALSE", (int8_t[]){0});
    H5Tenum_insert(type, "TRUE", (int8_t[]){1});
    return type;
}

static hid_t make_type(enum kind kind) {
    switch (kind) {
    case KIND_INT8:
        return H5Tcopy(H5T_STD_I8LE);
    case KIND_INT64_BIG:
        return H5Tcopy(H5T_STD_I64BE);
    case KIND_FLOAT16:
        return make_half();
    case KIND_FLOAT32:
        return H5Tcopy(H5T_IEEE_F32LE);
    case KIND_FLOAT64:
        return H5Tcopy(H5T_IEEE_F64LE);
    case KIND_TEXT:
        return sized(H5T_C_S1, 9);
    case KIND_LONG_TEXT:
        return sized(H5T_C_S1, 900);
    case KIND_ANY_TEXT:
        return sized(H5T_C_S1, H5T_VARIABLE);
    case KIND_LISTS:
        return H5Tvlen_create(H5T_IEEE_F32LE);
    case KIND_COMPOUND:
        return make_compound();
    case KIND_REFERENCE:
        return H5Tcopy(H5T_STD_REF_OBJ);
    case KIND_REGION:
        return H5Tcopy(H5T_STD_REF_DSETREG);
    case KIND_ENUM:
        return make_enum();
    case KIND_OPAQUE:
        return H5Tcreate(H5T_OPAQUE, 5);
    case KIND_BITS:
        return H5Tcopy(H5T_STD_B16LE);
    case KIND_ARRAY:
        return H5Tarray_create2(H5T_IEEE_F32LE, 1, (hsize_t[]){3});
    default:
        return H5Tcopy(H5T_UNIX_D32LE);
    }
}

enum extent { SCALAR, EMPTY, ONE, FORTY, NONE, MATRIX, DEEP, EXTENTS };

static hid_t make_space(enum extent extent) {
    static const hsize_t deep[32] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                     1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2};
    switch (extent) {
    case SCALAR:
        return H5Screate(H5S_SCALAR);
    case EMPTY:
        return H5Screate(H5S_NULL);
    case ONE:
        return H5Screate_simple(1, (hsize_t[]){1}, NULL);
    case FORTY:
        return H5Screate_simple(1, (hsize_t[]){40}, NULL);
    case NONE:
        return H5Screate_simple(1, (hsize_t[]){0}, NULL);
    case MATRIX:
        return H5Screate_simple(2, (hsize_t[]){2, 3}, NULL);
    default:
        return H5Screate_simple(32, deep, NULL);
    }
}

enum storage { PLAIN, COMPACT, CHUNKED, DEFLATED, SHUFFLED, CHECKED, SCALED, NBIT, FILLED, STORAGES };

static hid_t make_plan(enum storage storage, hid_t space) {
    hid_t plan = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t chunk[H5S_MAX_RANK];
    int dims = H5Sget_simple_extent_dims(space, chunk, NULL);
    for (int i = 0; i < dims; i++) chunk[i] = chunk[i] > 2 ? 2 : 1;
    if (storage == COMPACT) H5Pset_layout(plan, H5D_COMPACT);
    if (storage >= CHUNKED && storage <= NBIT && dims > 0) H5Pset_chunk(plan, dims, chunk);
    if (storage == DEFLATED) H5Pset_deflate(plan, 6);
    if (storage == SHUFFLED) H5Pset_shuffle(plan);
    if (storage == CHECKED) H5Pset_fletcher32(plan);
    if (storage == SCALED) H5Pset_scaleoffset(plan, H5Z_SO_INT, 4);
    if (storage == NBIT) H5Pset_nbit(plan);
    if (storage == FILLED) H5Pset_fill_value(plan, H5T_NATIVE_INT, &(int){7});
    return plan;
}

/* ---- the files ---- */

static const char *folder;
static int files;

static const char *next_path(void) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/seed-%04d", folder, files++);
    return path;
}

static void put_attribute(hid_t file, const char *name, enum kind kind, enum extent extent) {
    static const uint64_t values[1024];
    hid_t type = make_type(kind), space = make_space(extent);
    H5Adelete(file, name);
    hid_t attribute = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    if (attribute >= 0 && kind != KIND_LONG_TEXT) H5Awrite(attribute, type, values);
    if (attribute >= 0) H5Aclose(attribute);
    H5Sclose(space);
    H5Tclose(type);
}

static void put_dataset(hid_t file, const char *name, enum kind kind, enum extent extent, enum storage storage) {
    static const uint64_t values[8192];
    hid_t type = make_type(kind), space = make_space(extent), plan = make_plan(storage, space);
    H5Ldelete(file, name, H5P_DEFAULT);
    hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, plan, H5P_DEFAULT);
    if (dataset >= 0 && storage != FILLED && storage != NBIT)
        H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    if (dataset >= 0) H5Dclose(dataset);
    H5Pclose(plan);
    H5Sclose(space);
    H5Tclose(type);
}

/* A copy of [image] to change; closing it makes the seed. */
static hid_t open_copy(const void *image, size_t size) {
    const char *path = next_path();
    FILE *out = fopen(path, "wb");
    must(out && fwrite(image, 1, size, out) == size && fclose(out) == 0, path);
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    must(file >= 0, path);
    return file;
}

static void make_variants(const void *image, size_t size, const char *const *datasets, const char *const *attributes) {
    H5Fclose(open_copy(image, size));
    for (; *attributes; attributes++)
        for (enum kind kind = 0; kind < KINDS; kind++) {
            hid_t file = open_copy(image, size);
            put_attribute(file, *attributes, kind, (enum extent)(kind % EXTENTS));
            H5Fclose(file);
        }
    for (int which = 0; datasets[which]; which++)
        for (enum kind kind = 0; kind < KINDS; kind++) {
            hid_t file = open_copy(image, size);
            put_dataset(file, datasets[which], kind, (enum extent)((kind + which) % EXTENTS),
                        (enum storage)((kind * 2 + which) % STORAGES));
            H5Fclose(file);
        }
    hid_t file = open_copy(image, size);
    H5Ldelete(file, datasets[0], H5P_DEFAULT);
    H5Lcreate_soft(datasets[1], file, datasets[0], H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_external("/dev/zero", "/x", file, "outside", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_hard(file, "/", file, "circle", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
}

static void *read_file(const char *path, size_t *size) {
    struct stat info;
    FILE *in = fopen(path, "rb");
    must(in && fstat(fileno(in), &info) == 0, path);
    void *bytes = malloc((size_t)info.st_size);
    must(bytes && fread(bytes, 1, (size_t)info.st_size, in) == (size_t)info.st_size, path);
    fclose(in);
    *size = (size_t)info.st_size;
    return bytes;
}

static void make_checkpoints(void) {
    static const char *const datasets[] = {"model/0.weight", "model/0.bias", "state/step",
                                           "scaler/scale",   "config",       NULL};
    static const char *const attributes[] = {"format", "format_version", NULL};
    static float weight[6], bias[2];
    static double vector[3] = {1, 2, 3};
    static int64_t step = 7;
    static char config[] = "name: test\n",
                columns[] = "{\"format\": \"csv\", \"columns\": [{\"name\": \"a\", \"role\": \"input\"}]}",
                labels[] = "[\"a\", \"b\"]", characters[] = "abc";
    const struct entry entries[] = {{"model/0.weight", ENTRY_FLOAT32, 2, {2, 3}, weight, false},
                                    {"model/0.bias", ENTRY_FLOAT32, 1, {2}, bias, false},
                                    {"optimizer/exp_avg/0.weight", ENTRY_FLOAT32, 2, {2, 3}, weight, false},
                                    {"scaler/mean", ENTRY_FLOAT64, 1, {3}, vector, false},
                                    {"scaler/scale", ENTRY_FLOAT64, 1, {3}, vector, false},
                                    {"state/step", ENTRY_INT64, 0, {0}, &step, false},
                                    {"data/columns", ENTRY_TEXT, 0, {0}, columns, false},
                                    {"data/labels", ENTRY_TEXT, 0, {0}, labels, false},
                                    {"data/vocabulary", ENTRY_TEXT, 0, {0}, characters, false},
                                    {"config", ENTRY_TEXT, 0, {0}, config, false}};
    char path[4096];
    size_t size;
    must(checkpoint_write(folder, "whole", entries, sizeof entries / sizeof *entries) == OK, folder);
    snprintf(path, sizeof path, "%s/whole.h5", folder);
    void *bytes = read_file(path, &size);
    unlink(path);
    make_variants(bytes, size - SEALED_TRAILER_SIZE, datasets, attributes);
    free(bytes);
}

static void make_data(void) {
    static const char *const datasets[] = {"x", "y", "a", "b", NULL}, *const none[] = {NULL};
    char path[4096];
    size_t size;
    snprintf(path, sizeof path, "%s/whole.h5", folder);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    put_dataset(file, "x", KIND_FLOAT32, MATRIX, DEFLATED);
    put_dataset(file, "a", KIND_FLOAT64, MATRIX, PLAIN);
    put_dataset(file, "b", KIND_INT8, MATRIX, CHUNKED);
    hid_t space = H5Screate_simple(1, (hsize_t[]){2}, NULL);
    hid_t y = H5Dcreate2(file, "y", H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Dwrite(y, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, (int64_t[]){0, 1});
    H5Dclose(y);
    H5Sclose(space);
    H5Fclose(file);
    void *bytes = read_file(path, &size);
    unlink(path);
    make_variants(bytes, size, datasets, none);
    free(bytes);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 64;
    }
    folder = argv[1];
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    make_checkpoints();
    make_data();
    printf("%d files\n", files);
    return 0;
}
