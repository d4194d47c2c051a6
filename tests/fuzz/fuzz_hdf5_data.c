/* Any bytes as an HDF5 dataset, of one or two inputs, kept in memory or not, which a hash of the bytes chooses: its
 * rows are read, or it is refused with a sentence. Parsed in this process, as in fuzz_hdf5.c. */
#include <math.h>
#include <stdlib.h>

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

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    struct hdf5_file file;
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < size; i++) hash = (hash ^ bytes[i]) * 16777619u;
    hdf5_file_create(&file, bytes, size);
    try_file(file.path, (int)(hash >> 30));
    hdf5_file_remove(&file);
    return 0;
}
