/* The rows of an open dataset, and what is known about them. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "data/dataset/open_dataset.h"

const struct dataset_info *dataset_info(const struct dataset *dataset) { return &dataset->info; }

size_t dataset_part_rows(const struct dataset_info *info, enum dataset_part part) {
    return part == DATASET_TRAIN ? info->train_rows : part == DATASET_TEST ? info->test_rows : info->validation_rows;
}

bool dataset_is_in_memory(const struct dataset *dataset) { return dataset->is_in_memory; }

void dataset_scaler(const struct dataset *dataset, const double **mean, const double **scale, size_t *features) {
    bool is_window = dataset->window_mean != NULL;
    *mean = is_window ? dataset->window_mean : dataset->scaler.mean;
    *scale = is_window ? dataset->window_scale : dataset->scaler.scale;
    *features = is_window ? dataset->info.input_size : dataset->scaler.features;
}

const char *dataset_vocabulary(const struct dataset *dataset) {
    const struct source *source = dataset->tables[0].source;
    return source && source->format->vocabulary ? source->format->vocabulary(source) : NULL;
}

const char *dataset_tokenizer(const struct dataset *dataset) {
    const struct source *source = dataset->tables[0].source;
    if (dataset->texts.json) return dataset->texts.json;
    return source && source->format->tokenizer ? source->format->tokenizer(source) : NULL;
}

struct string_list dataset_labels(const struct dataset *dataset) {
    return dataset->labels;
}

struct column_list dataset_columns(const struct dataset *dataset) {
    return dataset->columns;
}

const char *dataset_target_name(const struct dataset *dataset) { return dataset->target_name; }

const struct preparation *dataset_preparation(const struct dataset *dataset) {
    return dataset->preparation.count ? &dataset->preparation : NULL;
}

void dataset_describe_columns(const struct dataset *dataset, const struct dataset_config *config, struct text *out) {
    const struct source *source = dataset->tables[0].source;
    if (!dataset->preparation.count || !source) return;
    columns_describe(&dataset->preparation, source->columns, &config->rules, out);
}

struct string_list dataset_notes(const struct dataset *dataset) {
    return dataset->notes;
}

double dataset_divide(const struct dataset *dataset) { return dataset->divide; }

struct row_list dataset_left_out(const struct dataset *dataset, enum dataset_part part) {
    return dataset->left_out[dataset->parts[part].table - dataset->tables];
}

size_t row_of_file(struct row_list left_out, size_t row) {
    size_t first = 0, end = left_out.count; /* the number of those before the row: the first that is behind it */
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (left_out.items[middle] - middle <= row)
            first = middle + 1;
        else
            end = middle;
    }
    return row + first;
}

int64_t dataset_row(const struct dataset *dataset, enum dataset_part part, int64_t position) {
    size_t steps = dataset->info.windows.steps;
    size_t row = selection_row(&dataset->parts[part].rows, (size_t)position) + (steps ? steps - 1 : 0);
    return (int64_t)row_of_file(dataset_left_out(dataset, part), row);
}

status dataset_train_classes(struct dataset *dataset, int64_t *classes) {
    const struct dataset_rows *train = &dataset->parts[DATASET_TRAIN];
    void *memory;
    TRY(rows_alloc(train->table->rows, sizeof(int64_t), "the classes", &memory));
    int64_t *all = memory;
    pthread_mutex_lock(&dataset->reading);
    status s = table_classes(train->table, all);
    pthread_mutex_unlock(&dataset->reading);
    for (size_t i = 0; s == OK && i < dataset->info.train_rows; i++)
        classes[i] = all[selection_row(&train->rows, i) + dataset->info.windows.first_target];
    buffer_free(memory);
    return s;
}

size_t dataset_target_bytes(const struct dataset_info *info) {
    return info->target_size * (info->target_kind == TARGET_CLASS ? sizeof(int64_t) : sizeof(float));
}

/* Moves targets (count, size) to rows that also have the inputs that are targets. */
static void spread_targets(const struct dataset_info *info, size_t size, size_t count, const float *inputs,
                           float *targets) {
    for (size_t i = count; size > 0 && i-- > 1;)
        memmove(targets + i * info->target_size, targets + i * size, size * sizeof *targets);
    dataset_copy_inputs(info, inputs, count, targets);
}

void dataset_will_read(struct dataset *dataset, enum dataset_part part, const int64_t *positions, size_t count) {
    const struct dataset_rows *from = &dataset->parts[part];
    if (dataset->is_in_memory) return;
    pthread_mutex_lock(&dataset->reading);
    table_will_read(from->table, &from->rows, positions, count);
    pthread_mutex_unlock(&dataset->reading);
}

status dataset_read(struct dataset *dataset, enum dataset_part part, const int64_t *positions, size_t count,
                    void *inputs, void *targets) {
    assert(!dataset->is_metadata);
    const struct dataset_rows *from = &dataset->parts[part];
    bool needs_lock = !dataset->is_in_memory && dataset->info.input_kind != INPUT_TOKENS;
    if (needs_lock) pthread_mutex_lock(&dataset->reading);
    const struct dataset_windows *windows = &dataset->info.windows;
    status s = windows->steps ? table_read_windows(from->table, windows, &from->rows, positions, count, inputs, targets)
                              : table_read(from->table, &from->rows, positions, count, inputs, targets);
    if (needs_lock) pthread_mutex_unlock(&dataset->reading);
    if (!s && !windows->steps && dataset->info.target_size > from->table->target_size)
        spread_targets(&dataset->info, from->table->target_size, count, inputs, targets);
    return s;
}

status dataset_read_file_targets(struct dataset *dataset, enum dataset_part part, const int64_t *positions,
                                 size_t count, double *targets) {
    const struct dataset_rows *from = &dataset->parts[part];
    const struct dataset_windows *windows = &dataset->info.windows;
    size_t rows = windows->steps ? windows->target_steps : 1, behind = windows->steps ? windows->first_target : 0;
    status s = OK;
    if (!dataset->is_in_memory) pthread_mutex_lock(&dataset->reading);
    for (size_t i = 0; !s && i < count; i++)
        s = table_read_file_targets(from->table, selection_row(&from->rows, (size_t)positions[i]) + behind, rows,
                                    targets + i * dataset->info.target_size);
    if (!dataset->is_in_memory) pthread_mutex_unlock(&dataset->reading);
    return s;
}

void dataset_read_weights(const struct dataset *dataset, enum dataset_part part, const int64_t *positions, size_t count,
                          bool is_divided, float *weights) {
    const struct dataset_rows *from = &dataset->parts[part];
    double divisor = is_divided ? dataset->info.weights.mean : 1;
    for (size_t i = 0; i < count; i++)
        weights[i] = (float)(from->table->weights[selection_row(&from->rows, (size_t)positions[i])] / divisor);
}

status dataset_explain_columns(const struct dataset_config *config, status failure) {
    const struct dataset_format *format = config->path ? dataset_format_of(config, config->path) : NULL;
    bool is_named = config->columns.count || config->inputs.count || config->targets.count || config->trained_inputs;
    bool may_be_wrong = status_code(failure) == STATUS_DATA || status_code(failure) == STATUS_USAGE;
    if (!may_be_wrong || !config->without_targets || is_named || format != &dataset_csv) return failure;
    status s =
        status_new(status_code(failure),
                   "%s\nthe checkpoint does not have the names of the columns, so the last column of %s was taken "
                   "for the target; if the file has no target, name its columns: dataset.inputs=[a, b, c]",
                   status_message(failure), config->path);
    status_free(failure);
    return s;
}
