/* The baseline. Targets are in memory as losses get them, so nothing is read and nothing is scaled here. */
#include "data/dataset/dataset.h"

#include <math.h>
#include <stdlib.h>

#include "data/dataset/open_dataset.h"

const char *const baseline_names[] = {[BASELINE_CLASS] = "always the most frequent class",
                                      [BASELINE_MEAN] = "always the mean of the training rows",
                                      [BASELINE_LAST] = "always the last value"};

#define MAX_CLASSES ((int64_t)1 << 24)

/* The targets (info.target_size) of row [position] of [part], which are adjacent also in a window. */
static size_t first_target(const struct dataset *dataset, const struct dataset_rows *part, size_t position) {
    return (selection_row(&part->rows, position) + dataset->info.windows.first_target) * part->table->target_size;
}

static bool is_counted(const struct table *table, int64_t class, int64_t classes) {
    return class >= 0 && class < classes && !(table->ignored.is_set && class == table->ignored.value);
}

static struct baseline of_classes(const struct dataset *dataset) {
    const struct dataset_info *info = &dataset->info;
    const struct dataset_rows *train = &dataset->parts[DATASET_TRAIN],
                              *validation = &dataset->parts[DATASET_VALIDATION];
    size_t *counts = info->classes <= MAX_CLASSES ? calloc((size_t)info->classes + 1, sizeof *counts) : NULL;
    size_t right = 0, counted = 0;
    int64_t frequent = 0;
    if (!counts) return (struct baseline){BASELINE_NONE, 0, 0, 0};
    for (size_t i = 0; i < info->train_rows; i++) {
        const int64_t *targets = (const int64_t *)train->table->targets + first_target(dataset, train, i);
        for (size_t k = 0; k < info->target_size; k++)
            if (is_counted(train->table, targets[k], info->classes)) counts[targets[k]]++;
    }
    for (int64_t c = 1; c < info->classes; c++)
        if (counts[c] > counts[frequent]) frequent = c;
    free(counts);
    for (size_t i = 0; i < info->validation_rows; i++) {
        const int64_t *targets = (const int64_t *)validation->table->targets + first_target(dataset, validation, i);
        for (size_t k = 0; k < info->target_size; k++) {
            if (!is_counted(validation->table, targets[k], info->classes)) continue;
            right += targets[k] == frequent;
            counted++;
        }
    }
    return (struct baseline){.kind = counted ? BASELINE_CLASS : BASELINE_NONE,
                             .accuracy = (double)right / (double)(counted ? counted : 1)};
}

/* The mean (info.target_size) of each training target. */
static void find_means(const struct dataset *dataset, double *means) {
    const struct dataset_info *info = &dataset->info;
    const struct dataset_rows *train = &dataset->parts[DATASET_TRAIN];
    for (size_t i = 0; i < info->train_rows; i++) {
        const float *targets = (const float *)train->table->targets + first_target(dataset, train, i);
        for (size_t k = 0; k < info->target_size; k++) means[k] += targets[k];
    }
    for (size_t k = 0; k < info->target_size; k++) means[k] /= (double)info->train_rows;
}

static struct baseline of_values(const struct dataset *dataset) {
    const struct dataset_info *info = &dataset->info;
    const struct dataset_rows *validation = &dataset->parts[DATASET_VALIDATION];
    const float *all = validation->table->targets;
    size_t of_row = validation->table->target_size, steps = info->windows.steps;
    struct baseline b = {.kind = steps ? BASELINE_LAST : BASELINE_MEAN};
    double *means = steps ? NULL : calloc(info->target_size, sizeof *means);
    if (!steps && !means) return (struct baseline){BASELINE_NONE, 0, 0, 0};
    if (means) find_means(dataset, means);
    for (size_t i = 0; i < info->validation_rows; i++) {
        const float *targets = all + first_target(dataset, validation, i);
        const float *last = all + (selection_row(&validation->rows, i) + (steps ? steps - 1 : 0)) * of_row;
        for (size_t k = 0; k < info->target_size; k++) {
            double error = targets[k] - (means ? means[k] : last[k % of_row]);
            b.squared += error * error;
            b.absolute += fabs(error);
        }
    }
    free(means);
    b.squared /= (double)(info->validation_rows * info->target_size);
    b.absolute /= (double)(info->validation_rows * info->target_size);
    return b;
}

struct baseline baseline_of(const struct dataset *dataset) {
    const struct dataset_info *info = &dataset->info;
    bool has_rows = info->validation_rows && info->target_size && !info->has_weights && !info->target_count &&
                    !dataset->drawn.members;
    bool is_read =
        has_rows && dataset->parts[DATASET_TRAIN].table->targets && dataset->parts[DATASET_VALIDATION].table->targets;
    if (!is_read || info->input_kind == INPUT_TOKENS) return (struct baseline){BASELINE_NONE, 0, 0, 0};
    return info->target_kind == TARGET_CLASS ? of_classes(dataset) : of_values(dataset);
}
