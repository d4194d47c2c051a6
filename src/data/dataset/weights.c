/* dataset.weights: a weight for each row, read once and kept in memory. */
#include <math.h>

#include "data/dataset/open_dataset.h"

#define CHUNK_ROWS ((size_t)1 << 16)

static status reject(struct source *source, size_t row, double weight) {
    struct text place = {0};
    source->format->describe_weight(source, row, &place);
    text_add(&place, ": the weight ");
    if (isfinite(weight))
        text_add_double(&place, weight);
    else
        text_add(&place, isnan(weight) ? "NaN" : weight > 0 ? "Inf" : "-Inf");
    status s = status_new(STATUS_DATA, "%s is %s; weights are finite numbers from 0", text_string(&place),
                          isfinite(weight) ? weight < 0 ? "negative" : "too large for float32" : "not finite");
    text_free(&place);
    return s;
}

/* Reads the weights of all rows to *out, for buffer_free, also after a failure. */
static status read_all(struct source *source, double **out) {
    void *memory;
    *out = NULL;
    TRY(rows_alloc(source->rows, sizeof(double), "the weights of the rows", &memory));
    double *weights = *out = memory;
    for (size_t row = 0, count; row < source->rows; row += count) {
        count = source->rows - row < CHUNK_ROWS ? source->rows - row : CHUNK_ROWS;
        TRY(source->format->read_weights(source, row, count, weights + row));
        for (size_t i = row; i < row + count; i++)
            if (!(weights[i] >= 0 && isfinite((float)weights[i]))) return reject(source, i, weights[i]);
    }
    return OK;
}

static double sum_of(const double *weights, const struct selection *rows, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += weights[selection_row(rows, i)];
    return sum;
}

/* The weights of [count] rows may not all be 0. */
static status check_sum(const struct dataset_config *config, const char *path, const char *rows, double sum,
                        size_t count) {
    if (sum > 0 || count == 0) return OK;
    return status_new(STATUS_DATA, "%s: the weights ('%s') of the %s rows are all 0", path, config->weights, rows);
}

static void set_range(struct dataset_info *info, const double *weights, const struct selection *train, double sum) {
    info->weights = (struct dataset_weights){.min = INFINITY, .mean = sum / (double)info->train_rows};
    for (size_t i = 0; i < info->train_rows; i++) {
        double weight = weights[selection_row(train, i)];
        info->weights.min = fmin(info->weights.min, weight);
        info->weights.max = fmax(info->weights.max, weight);
    }
}

static status check_parts(const struct dataset_config *config, const struct table *tables, int n_tables,
                          const struct selection *train, const struct selection *validation,
                          struct dataset_info *info) {
    double sum = sum_of(tables[0].weights, train, info->train_rows);
    const char *validation_path = n_tables == 2 ? config->validation.path : config->path;
    TRY(check_sum(config, config->path, "training", sum, info->train_rows));
    TRY(check_sum(config, validation_path, "validation",
                  sum_of(tables[n_tables - 1].weights, validation, info->validation_rows), info->validation_rows));
    set_range(info, tables[0].weights, train, sum);
    info->has_weights = true;
    return OK;
}

status weights_read(const struct dataset_config *config, struct table *tables, int n_tables,
                    const struct selection *train, const struct selection *validation, struct dataset_info *info) {
    if (!config->weights || config->without_targets) return OK;
    if (!tables[0].source->format->read_weights)
        return status_new(STATUS_USAGE,
                          "dataset.weights: format %s has no names for weights; hdf5, csv, sqlite and npz have",
                          dataset_format_of(config, config->path)->name);
    for (int i = 0; i < n_tables; i++) TRY(read_all(tables[i].source, &tables[i].weights));
    return check_parts(config, tables, n_tables, train, validation, info);
}
