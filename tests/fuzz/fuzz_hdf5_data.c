/* Any bytes as an HDF5 dataset, of one or two inputs, kept in memory or not, which a hash of the bytes chooses: its
 * rows are read, or it is refused with a sentence. Parsed in this process, as in fuzz_hdf5.c. What is found without
 * libhdf5 is what libhdf5 finds, unless it refuses it. */
#include <math.h>
#include <stdlib.h>

#include "base/files/hdf5.h"

#include "data/dataset/dataset.h"
#include "data/source/source.h"
#include "fuzz/hdf5_file.h"
#include "fuzz/hdf5_mutator.h"
#include "hdf5_in_process.h"

#define MAX_VALUES ((size_t)1 << 20) /* of a row that is read */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void read_rows(struct dataset *dataset) {
    const struct dataset_info *info = dataset_info(dataset);
    int64_t positions[] = {0, (int64_t)info->train_rows - 1};
    if (info->input_size > MAX_VALUES || info->target_size > MAX_VALUES || info->train_rows == 0) return;
    float *inputs = malloc(2 * info->input_size * sizeof *inputs);
    void *targets = malloc(2 * dataset_target_bytes(info) + 1);
    if (!inputs || !targets) abort();
    status_free(dataset_read(dataset, DATASET_TRAIN, positions, 2, inputs, targets));
    free(inputs);
    free(targets);
}

static void try_file(const char *path, int variant) {
    const char *names[] = {"a", "b"};
    struct dataset_config config = {.path = path,
                                    .divide = (double)NAN,
                                    .inputs = {.items = names, .count = variant & 1 ? 2 : 0},
                                    .cache_mb = variant >> 1 & 1};
    struct dataset *dataset;
    while (dataset_format_at((size_t)config.format) != &dataset_hdf5) config.format++;
    config.format++;
    status s = dataset_open(&config, variant == 0, false, &dataset);
    if (s == OK) read_rows(dataset);
    if (s != OK && status_message(s)[0] == 0) abort();
    dataset_close(dataset);
    status_free(s);
}

static bool is_same(const struct hdf5_plain *plain, hid_t dataset) {
    hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset), plan = H5Dget_create_plist(dataset);
    H5T_class_t class = plain->is_text ? H5T_STRING : plain->is_float ? H5T_FLOAT : H5T_INTEGER;
    hsize_t shape[H5S_MAX_RANK];
    uint64_t values = 1;
    bool is = H5Tget_class(type) == class && H5Tget_size(type) == plain->value_bytes &&
              H5Pget_layout(plan) == H5D_CONTIGUOUS && H5Pget_external_count(plan) == 0 && H5Pget_nfilters(plan) == 0 &&
              H5Sget_simple_extent_dims(space, shape, NULL) == plain->dims;
    if (is && !plain->is_text && plain->value_bytes > 1) is = (H5Tget_order(type) == H5T_ORDER_BE) == plain->is_big;
    if (is && class == H5T_INTEGER) is = (H5Tget_sign(type) != H5T_SGN_NONE) == plain->is_signed;
    for (int i = 0; is && i < plain->dims; i++) {
        values *= plain->shape[i];
        is = shape[i] == plain->shape[i];
    }
    is = is && (values == 0 || H5Dget_offset(dataset) == plain->start);
    H5Pclose(plan);
    H5Sclose(space);
    H5Tclose(type);
    return is;
}

static void compare(const struct hdf5_file *file, uint64_t size) {
    static const char *const names[] = {"x", "y", "a", "b", "g/x"};
    struct hdf5_silence silence;
    hid_t opened = -1;
    hdf5_enter(&silence);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct hdf5_plain plain;
        if (!hdf5_plain_find(file->fd, size, names[i], &plain)) continue;
        if (opened < 0) opened = H5Fopen(file->path, H5F_ACC_RDONLY, H5P_DEFAULT);
        hid_t dataset = opened < 0 ? -1 : H5Dopen2(opened, names[i], H5P_DEFAULT);
        if (dataset < 0) continue;
        if (!is_same(&plain, dataset)) abort();
        H5Dclose(dataset);
    }
    if (opened >= 0) H5Fclose(opened);
    hdf5_leave(&silence);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    struct hdf5_file file;
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < size; i++) hash = (hash ^ bytes[i]) * 16777619u;
    hdf5_file_create(&file, bytes, size);
    try_file(file.path, (int)(hash >> 30));
    compare(&file, size);
    hdf5_file_remove(&file);
    return 0;
}
