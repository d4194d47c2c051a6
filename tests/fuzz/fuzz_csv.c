/* Any bytes as a CSV file: read, or refused with a sentence, never a crash. The first byte says which columns,
 * and whether the target is a class. */
#include <math.h>
#include <stdlib.h>

#include "data/dataset/dataset.h"
#include "data/source/source.h"
#include "fuzz/memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check_rows(struct dataset *dataset) {
    const struct dataset_info *info = dataset_info(dataset);
    int64_t position = (int64_t)info->train_rows - 1;
    float *inputs = malloc(info->input_size * sizeof *inputs);
    void *targets = malloc(dataset_target_bytes(info));
    if (!inputs || !targets) abort();
    status s = dataset_read(dataset, DATASET_TRAIN, &position, 1, inputs, targets);
    if (s != OK) abort(); /* all rows were read before */
    for (size_t i = 0; i < info->input_size; i++)
        if (!isfinite(inputs[i])) abort();
    if (info->target_kind == TARGET_CLASS && *(int64_t *)targets >= info->classes) abort();
    free(inputs);
    free(targets);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    if (size < 1) return 0;
    memory_file_set(0, "fuzz.csv", bytes + 1, size - 1);
    const char *columns[] = {"a", "b"};
    struct dataset_config config = {.path = "fuzz.csv",
                                    .divide = (double)NAN,
                                    .inputs = {.items = columns, .count = bytes[0] & 1},
                                    .targets = {.items = columns + 1, .count = bytes[0] >> 1 & 1},
                                    .csv = {.has_no_header = bytes[0] >> 3 & 1},
                                    .scale = {.type = bytes[0] >> 2 & 1 ? SCALE_STANDARD : SCALE_NONE}};
    while (dataset_format_at((size_t)config.format) != &dataset_csv) config.format++;
    config.format++;
    struct dataset *dataset;
    status s = dataset_open(&config, bytes[0] >> 4 & 1, false, &dataset);
    if (s == OK) check_rows(dataset);
    if (s != OK && status_message(s)[0] == 0) abort();
    dataset_close(dataset);
    status_free(s);
    memory_files_check_closed();
    return 0;
}
