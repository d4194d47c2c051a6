/* Any bytes as the two files of an IDX dataset, plain or compressed: read, or refused with a sentence, never a crash.
 * The first two bytes say where the labels start. */
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
    void *targets = malloc(4 * dataset_target_bytes(info));
    if (!inputs || !targets) abort();
    status_free(dataset_read(dataset, DATASET_TRAIN, positions, 4, inputs, targets));
    free(inputs);
    free(targets);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    if (size < 2) return 0;
    size_t cut = ((size_t)bytes[0] << 8 | bytes[1]) % (size - 1);
    memory_file_set(0, "images.idx", bytes + 2, cut);
    memory_file_set(1, "labels.idx", bytes + 2 + cut, size - 2 - cut);
    const char *names[] = {"labels.idx"};
    struct dataset_config config = {
        .path = "images.idx", .targets = {.items = names, .count = 1}, .divide = (double)NAN, .cache_mb = bytes[0] % 2};
    while (dataset_format_at((size_t)config.format) != &dataset_idx) config.format++;
    config.format++;
    for (int wants_classes = 0; wants_classes < 2; wants_classes++) {
        struct dataset *dataset;
        status s = dataset_open(&config, wants_classes, false, &dataset);
        if (s == OK) read_rows(dataset);
        if (s != OK && status_message(s)[0] == 0) abort();
        dataset_close(dataset);
        status_free(s);
    }
    memory_files_check_closed();
    return 0;
}
