/* Any bytes as an .npy file (its targets are itself) and as an .npz archive: read, or rejected with a sentence, never a
 * crash. */
#include <math.h>
#include <stdlib.h>

#include "data/dataset/dataset.h"
#include "data/source/source.h"
#include "fuzz/memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void read_rows(struct dataset *dataset) {
    const struct dataset_info *info = dataset_info(dataset);
    int64_t positions[4] = {0, (int64_t)info->train_rows - 1, 0, (int64_t)info->train_rows / 2};
    float *inputs = malloc(4 * info->input_size * sizeof *inputs);
    void *targets = malloc(4 * dataset_target_bytes(info) + 1);
    if (!inputs || !targets) abort();
    status_free(dataset_read(dataset, DATASET_TRAIN, positions, 4, inputs, targets));
    free(inputs);
    free(targets);
}

static void open_and_read(const struct dataset_config *config) {
    struct dataset *dataset;
    status s = dataset_open(config, false, false, &dataset);
    if (s == OK) read_rows(dataset);
    if (s != OK && status_message(s)[0] == 0) abort();
    dataset_close(dataset);
    status_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    const char *path = "fuzz.npy";
    memory_file_set(0, path, bytes, size);
    const char *names[] = {path};
    struct dataset_config config = {.path = path, .divide = (double)NAN, .cache_mb = size % 2};
    for (config.format = 0; dataset_format_at((size_t)config.format); config.format++) {
        bool is_file = dataset_format_at((size_t)config.format) == &dataset_npy;
        if (!is_file && dataset_format_at((size_t)config.format) != &dataset_npz) continue;
        struct dataset_config one = config;
        one.format++;
        if (is_file) one.targets = (struct string_list){.items = names, .count = 1};
        open_and_read(&one);
    }
    struct text out = {0};
    status_free(dataset_npz.inspect(path, &out));
    text_free(&out);
    memory_files_check_closed();
    return 0;
}
