/* The statistics are summed in the order of the file, in two passes, so that the targets of large files need no memory.
 */
#include "data/rows/target_scale.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/scoped.h"
#include "data/rows/table.h"

const char *const target_scale_names[] = {"none", "standard", "minmax", "log1p", NULL};

double target_scale_apply(const struct target_scale *scale, size_t element, double value) {
    if (scale->type == TARGET_SCALE_LOG1P) return log1p(value);
    return (value - scale->mean[element]) / scale->scale[element];
}

double target_scale_undo(const struct target_scale *scale, size_t element, double value) {
    if (scale->type == TARGET_SCALE_LOG1P) return expm1(value);
    return value * scale->scale[element] + scale->mean[element];
}

struct target_scale target_scale_new(enum target_scale_type type, size_t size, struct arena *arena) {
    struct target_scale scale = {.type = type, .size = size};
    scale.mean = arena_alloc(arena, (size + 1) * sizeof *scale.mean);
    scale.scale = arena_alloc(arena, (size + 1) * sizeof *scale.scale);
    for (size_t i = 0; i < size; i++) scale.scale[i] = 1;
    return scale;
}

struct target_scale target_scale_copy(const struct target_scale *scale, struct arena *arena) {
    struct target_scale copy = target_scale_new(scale->type, scale->size, arena);
    memcpy(copy.mean, scale->mean, scale->size * sizeof *copy.mean);
    memcpy(copy.scale, scale->scale, scale->size * sizeof *copy.scale);
    return copy;
}

/* ---- fitting ---- */

struct fit {
    struct target_scale *scale;
    const bool *is_train;                             /* (rows) */
    double *sum, *min, *max, *correction, *deviation; /* (size) each; d = y - mean */
};

static void visit_sum(void *context, size_t row, const double *targets) {
    struct fit *fit = context;
    for (size_t i = 0; fit->is_train[row] && i < fit->scale->size; i++) {
        fit->sum[i] += targets[i];
        fit->min[i] = fmin(fit->min[i], targets[i]);
        fit->max[i] = fmax(fit->max[i], targets[i]);
    }
}

static void visit_deviation(void *context, size_t row, const double *targets) {
    struct fit *fit = context;
    for (size_t i = 0; fit->is_train[row] && i < fit->scale->size; i++) {
        double d = targets[i] - fit->scale->mean[i];
        fit->correction[i] += d;
        fit->deviation[i] += d * d;
    }
}

/* MinMaxScaler: a constant target gets scale 1 */
static void set_range(const struct fit *fit) {
    for (size_t i = 0; i < fit->scale->size; i++) {
        double range = fit->max[i] - fit->min[i];
        fit->scale->mean[i] = fit->min[i];
        fit->scale->scale[i] = range < 10 * DBL_EPSILON ? 1 : range;
    }
}

static status set_deviation(const struct fit *fit, struct table *table, double n) {
    for (size_t i = 0; i < fit->scale->size; i++) fit->scale->mean[i] = fit->sum[i] / n;
    TRY(table_each_target(table, visit_deviation, (void *)fit));
    for (size_t i = 0; i < fit->scale->size; i++)
        fit->scale->scale[i] = standard_deviation(fit->scale->mean[i], fit->correction[i], fit->deviation[i], n);
    return OK;
}

static status fit_all(const struct fit *fit, struct table *table, double n) {
    for (size_t i = 0; i < fit->scale->size; i++) fit->min[i] = INFINITY, fit->max[i] = -INFINITY;
    TRY(table_each_target(table, visit_sum, (void *)fit));
    if (fit->scale->type == TARGET_SCALE_MINMAX)
        set_range(fit);
    else
        TRY(set_deviation(fit, table, n));
    for (size_t i = 0; i < fit->scale->size; i++)
        if (!isfinite(fit->scale->mean[i]) || !isfinite(fit->scale->scale[i]))
            return status_data("dataset.target_scale: the values of target %zu are too large to be scaled", i);
    return OK;
}

status target_scale_fit(struct target_scale *scale, struct table *table, const struct selection *rows, size_t count) {
    SCOPED_BUFFER bool *is_train = NULL;
    SCOPED_BUFFER double *sums = NULL;
    if (scale->type == TARGET_SCALE_NONE || scale->type == TARGET_SCALE_LOG1P) return OK;
    TRY(rows_alloc(table->rows, sizeof *is_train, "the training rows", &is_train));
    for (size_t i = 0; i < count; i++) is_train[selection_row(rows, i)] = true;
    status s = rows_alloc(scale->size, 5 * sizeof *sums, "the scale of the targets", &sums);
    struct fit fit = {.scale = scale, .is_train = is_train};
    if (!s) {
        double **const parts[] = {&fit.sum, &fit.min, &fit.max, &fit.correction, &fit.deviation};
        for (size_t i = 0; i < 5; i++) *parts[i] = sums + i * scale->size;
        s = fit_all(&fit, table, (double)count);
    }
    return s;
}
