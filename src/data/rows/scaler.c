/* The scaler: numbers of the config, or scikit-learn's StandardScaler and MinMaxScaler fitted to the training rows. All
 * computations are in double and rounded once, as when scikit-learn gets float64. */
#include <float.h>
#include <math.h>

#include "base/scoped.h"
#include "data/rows/table.h"
#include "data/source/config.h"

/* ---- config ---- */

static const char *const scale_choices[] = {"none", "standard", "minmax", NULL};

static const struct schema_row scale_rows[] = {
    SCHEMA_ROW(CHOICE, struct scale_config, type, .fallback = "none", .choices = scale_choices,
               .doc = "Fitted on the training rows: standard is scikit-learn's StandardScaler, minmax its MinMaxScaler "
                      "to 0..1, in double; per feature for vectors, one pair for all elements of N-D rows, or with "
                      "per_feature one for each feature of a series."),
    SCHEMA_ROW(REAL_LIST, struct scale_config, mean, .fallback = "[]",
               .doc = "Instead of type, with std: x' = (x - mean) / std, as torchvision's Normalize. One number, or "
                      "one per feature (vectors) or per channel (the first dimension of N-D rows)."),
    SCHEMA_ROW(REAL_LIST, struct scale_config, std, .fallback = "[]", .min = 0, .max = 1e300, .excludes_min = true,
               .doc = "See mean."),
    SCHEMA_ROW(BOOL, struct scale_config, per_feature, .fallback = "false",
               .doc =
                   "For rows (steps, features), such as windows of a series: a mean and a scale for each feature, over "
                   "all steps, instead of one for all elements; mean and std then have a number for each feature."),
    {0},
};

static void check_scale(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct scale_config *scale = config;
    struct place place = where ? where->place : (struct place){0};
    if (!scale->mean.count != !scale->std.count)
        problems_add(problems, place, path, "mean and std must be given together");
    else if (scale->mean.count && scale->type != SCALE_NONE)
        problems_add(problems, place, path,
                     "type (fitted to the rows) and mean/std (given) exclude each other; give one");
}

const struct schema scale_section =
    SCHEMA("dataset.scale", struct scale_config, .rows = scale_rows, .shorthand = "type", .check = check_scale);

/* ---- bytes ---- */

/* Lookup tables of 256 float32 values per channel, so that images can be stored as bytes in memory. */

/* Numbers of the config are applied in float32, as torchvision's ToTensor and Normalize; fitted numbers in double and
 * rounded once, as scikit-learn. */
float byte_table_value(const struct scaler *scaler, size_t feature, double divide, int byte) {
    float value = (float)byte / (float)divide;
    if (scaler->features == 0) return value;
    double mean = scaler->mean[feature], scale = scaler->scale[feature];
    if (scaler->is_given) return (value - (float)mean) / (float)scale;
    return (float)(((double)byte / divide - mean) / scale);
}

status byte_table_create(const struct scaler *scaler, double divide, size_t size, struct byte_table *table) {
    size_t features = scaler->features ? scaler->features : 1;
    *table = (struct byte_table){.features = features, .block = size / features};
    TRY(rows_alloc(features, 256 * sizeof(float), "the scaler", &table->values));
    for (size_t f = 0; f < features; f++)
        for (int byte = 0; byte < 256; byte++) {
            float value = table->values[f * 256 + (size_t)byte] = byte_table_value(scaler, f, divide, byte);
            if (!isfinite(value))
                return status_usage("dataset.scale: the scaled value of byte %d is too large for float32", byte);
        }
    return OK;
}

void byte_table_free(struct byte_table *table) {
    buffer_free(table->values);
    *table = (struct byte_table){0};
}

void byte_table_apply(const struct byte_table *table, const uint8_t *bytes, float *out) {
    for (size_t f = 0; f < table->features; f++) {
        const float *values = table->values + f * 256;
        for (size_t i = f * table->block; i < (f + 1) * table->block; i++) out[i] = values[bytes[i]];
    }
}

/* ---- scaling ---- */

/* Of [features] numbers, each [period] are the same. */
static status copy_numbers(const struct real_list *list, const char *name, const char *what, double *out,
                           size_t features, size_t period) {
    if (list->count != 1 && list->count != period)
        return status_usage("dataset.scale.%s has %zu numbers; rows with %zu %s need 1 or %zu", name, list->count,
                            period, what, period);
    for (size_t f = 0; f < features; f++) out[f] = list->items[list->count == 1 ? 0 : f % period];
    return OK;
}

/* Memory for [features] pairs and their types. */
static status scaler_alloc(struct scaler *scaler, size_t features) {
    TRY(rows_alloc(features, 2 * sizeof(double) + sizeof(enum scale_type), "the scaler", &scaler->mean));
    scaler->features = scaler->period = features;
    scaler->scale = scaler->mean + features;
    scaler->types = (enum scale_type *)(void *)(scaler->scale + features);
    for (size_t f = 0; f < features; f++) scaler->scale[f] = 1;
    return OK;
}

/* The features of a preparation; those of a checkpoint have fitted numbers. */
static status create_for_features(const struct scale_config *config, const struct preparation *preparation,
                                  struct scaler *scaler) {
    bool is_given = config->mean.count > 0;
    if (is_given && !config->is_fitted)
        return status_usage("dataset.scale: mean and std are for tables whose columns are all numbers; "
                            "give each column its scale in dataset.columns");
    TRY(scaler_alloc(scaler, preparation->features));
    scaler->block = 1;
    if (is_given) {
        TRY(copy_numbers(&config->mean, "mean", "features", scaler->mean, scaler->features, scaler->features));
        return copy_numbers(&config->std, "std", "features", scaler->scale, scaler->features, scaler->features);
    }
    if (!preparation_scales(preparation, scaler->types)) scaler_free(scaler);
    return OK;
}

/* Sets *features, the pairs of numbers, and *period for rows of [source]. */
static status choose_features(const struct scale_config *config, const struct source *source, size_t *features,
                              size_t *period) {
    bool is_vector = source->input_dims == 1;
    bool is_checkpoint = config->mean.count == source->input_size && config->std.count == source->input_size;
    bool per_channel = config->mean.count > 1 || config->std.count > 1;
    *features = *period = is_vector || is_checkpoint ? source->input_size
                          : per_channel              ? (size_t)source->input_shape[0]
                                                     : 1;
    if (!config->per_feature || is_vector || is_checkpoint) return OK;
    if (source->input_dims != 2)
        return status_usage("dataset.scale.per_feature: is for rows (steps, features), but a row has %d dimensions",
                            source->input_dims);
    *features = source->input_size;
    *period = (size_t)source->input_shape[1];
    return OK;
}

status scaler_create(const struct scale_config *config, const struct source *source,
                     const struct preparation *preparation, struct scaler *scaler) {
    *scaler = (struct scaler){0};
    bool is_given = config->mean.count > 0;
    if (preparation) return create_for_features(config, preparation, scaler);
    if (!is_given && config->type == SCALE_NONE) return OK;
    if (source->input_kind == INPUT_TOKENS) return status_usage("dataset.scale: tokens cannot be scaled; remove it");
    size_t features, period;
    TRY(choose_features(config, source, &features, &period));
    const char *what = source->input_dims == 1 || config->per_feature ? "features" : "channels";
    TRY(scaler_alloc(scaler, features));
    scaler->is_given = is_given && !config->is_fitted;
    scaler->block = features ? source->input_size / features : 0;
    scaler->period = period;
    for (size_t f = 0; f < features; f++) scaler->types[f] = (enum scale_type)config->type;
    if (!is_given) return OK;
    TRY(copy_numbers(&config->mean, "mean", what, scaler->mean, features, period));
    return copy_numbers(&config->std, "std", what, scaler->scale, features, period);
}

void scaler_free(struct scaler *scaler) {
    buffer_free(scaler->mean);
    *scaler = (struct scaler){0};
}

/* A loop that compilers vectorize. */
static void apply_to_row(const double *mean, const double *scale, const double *row, size_t size, float *out) {
    for (size_t i = 0; i < size; i++) out[i] = (float)((row[i] - mean[i]) / scale[i]);
}

void scaler_apply(const struct scaler *scaler, const double *rows, size_t count, size_t size, float *out) {
    if (scaler->features == 0) {
        for (size_t i = 0; i < count * size; i++) out[i] = (float)rows[i];
        return;
    }
    if (scaler->block == 1) {
        for (size_t row = 0; row < count; row++)
            apply_to_row(scaler->mean, scaler->scale, rows + row * size, size, out + row * size);
        return;
    }
    for (size_t row = 0; row < count; row++)
        for (size_t f = 0; f < scaler->features; f++) {
            double mean = scaler->mean[f], scale = scaler->scale[f];
            size_t first = row * size + f * scaler->block;
            for (size_t i = first; i < first + scaler->block; i++) out[i] = (float)((rows[i] - mean) / scale);
        }
}

struct fit {
    const struct scaler *scaler;
    size_t begin, end;              /* features that a row has */
    double *sum, *min, *max;        /* (features), first pass */
    double *correction, *deviation; /* (features), second pass: sum of d and of d*d, d = x - mean */
    size_t *scaled, scaled_count;   /* (scaled_count): those of begin .. end - 1 that are scaled */
};

/* A feature is one value with its own statistics, so that those that are not scaled are left out. */
static bool is_of_values(const struct scaler *scaler) {
    return scaler->block == 1 && scaler->period == scaler->features;
}

static void add_value(struct fit *fit, size_t at, double value) {
    fit->sum[at] += value;
    if (value < fit->min[at]) fit->min[at] = value;
    if (value > fit->max[at]) fit->max[at] = value;
}

static void add_deviation(struct fit *fit, size_t at, double value) {
    double d = value - fit->scaler->mean[at];
    fit->correction[at] += d;
    fit->deviation[at] += d * d;
}

/* The statistics of feature f are at f % period. */
static void visit_sum(void *context, const double *row) {
    struct fit *fit = context;
    size_t period = fit->scaler->period, at = fit->begin % period;
    if (is_of_values(fit->scaler)) {
        for (size_t i = 0; i < fit->scaled_count; i++) add_value(fit, fit->scaled[i], row[fit->scaled[i] - fit->begin]);
        return;
    }
    for (size_t f = fit->begin; f < fit->end; f++, row += fit->scaler->block, at = at + 1 == period ? 0 : at + 1)
        for (size_t i = 0; i < fit->scaler->block && fit->scaler->types[f] != SCALE_NONE; i++)
            add_value(fit, at, row[i]);
}

static void visit_deviation(void *context, const double *row) {
    struct fit *fit = context;
    size_t period = fit->scaler->period, at = fit->begin % period;
    if (is_of_values(fit->scaler)) {
        for (size_t i = 0; i < fit->scaled_count; i++)
            if (fit->scaler->types[fit->scaled[i]] == SCALE_STANDARD)
                add_deviation(fit, fit->scaled[i], row[fit->scaled[i] - fit->begin]);
        return;
    }
    for (size_t f = fit->begin; f < fit->end; f++, row += fit->scaler->block, at = at + 1 == period ? 0 : at + 1)
        for (size_t i = 0; i < fit->scaler->block && fit->scaler->types[f] == SCALE_STANDARD; i++)
            add_deviation(fit, at, row[i]);
}

/* MinMaxScaler: x' = (x - min) / (max - min) */
static void set_range(const struct fit *fit, double *mean, double *scale) {
    for (size_t f = 0; f < fit->scaler->period; f++) {
        if (fit->scaler->types[f] != SCALE_MINMAX) continue;
        double range = fit->max[f] - fit->min[f];
        mean[f] = fit->min[f];
        scale[f] = range < 10 * DBL_EPSILON ? 1 : range; /* scikit-learn's rule for a constant feature */
    }
}

double standard_deviation(double mean, double correction, double deviation, double n) {
    double var = (deviation - correction * correction / n) / n, rounding = n * mean * DBL_EPSILON;
    return var <= n * DBL_EPSILON * var + rounding * rounding ? 1 : sqrt(var);
}

static void set_deviation(const struct fit *fit, double n, double *scale) {
    for (size_t f = 0; f < fit->scaler->period; f++) {
        if (fit->scaler->types[f] != SCALE_STANDARD) continue;
        scale[f] = standard_deviation(fit->scaler->mean[f], fit->correction[f], fit->deviation[f], n);
    }
}

static status check_fit(const struct scaler *scaler, const char *name) {
    for (size_t f = 0; f < scaler->features; f++)
        if (!isfinite(scaler->mean[f]) || !isfinite(scaler->scale[f]))
            return status_data("%s: the values of input feature %zu are too large to be scaled", name, f);
    return OK;
}

static bool has_type(const struct scaler *scaler, enum scale_type type) {
    for (size_t f = 0; f < scaler->features; f++)
        if (scaler->types[f] == type) return true;
    return false;
}

/* Both passes over the features begin .. end - 1. Rows are divided only where each feature has its own statistics. */
static status fit_features(struct scaler *scaler, struct fit *fit, struct table *table, const struct selection *rows,
                           size_t count) {
    fit->scaled_count = 0;
    for (size_t f = fit->begin; f < fit->end; f++)
        if (scaler->types[f] != SCALE_NONE) fit->scaled[fit->scaled_count++] = f;
    if (fit->scaled_count == 0) return OK;
    bool is_whole = fit->begin == 0 && fit->end == scaler->features;
    TRY(table_load_features(table, fit->begin, is_whole ? table->input_size : fit->end - fit->begin));
    TRY(table_each(table, rows, count, visit_sum, fit));
    if (!has_type(scaler, SCALE_STANDARD)) return OK;
    double n = (double)count * (double)scaler->block * (double)(scaler->features / scaler->period);
    for (size_t f = fit->begin; f < fit->end && f < scaler->period; f++)
        if (scaler->types[f] == SCALE_STANDARD) scaler->mean[f] = fit->sum[f] / n;
    return table_each(table, rows, count, visit_deviation, fit);
}

status scaler_fit(struct scaler *scaler, const char *name, struct table *table, const struct selection *rows,
                  size_t count) {
    size_t features = scaler->features, group = table_feature_group(table);
    SCOPED_BUFFER double *at = NULL;
    TRY(rows_alloc(features, 5 * sizeof(double) + sizeof(size_t), "the scaler", &at));
    struct fit fit = {.scaler = scaler,
                      .sum = at,
                      .min = at + features,
                      .max = at + 2 * features,
                      .correction = at + 3 * features,
                      .deviation = at + 4 * features,
                      .scaled = (size_t *)(void *)(at + 5 * features)};
    for (size_t f = 0; f < features; f++) fit.min[f] = INFINITY, fit.max[f] = -INFINITY;
    if (scaler->block != 1 || scaler->period != features) group = features;
    status s = OK;
    for (fit.begin = 0; !s && fit.begin < features; fit.begin = fit.end) {
        fit.end = features - fit.begin < group ? features : fit.begin + group;
        s = fit_features(scaler, &fit, table, rows, count);
    }
    if (!s) s = table_load_features(table, 0, table->input_size);
    if (!s) set_range(&fit, scaler->mean, scaler->scale);
    size_t repeats = scaler->period ? features / scaler->period : 0;
    if (!s) set_deviation(&fit, (double)count * (double)scaler->block * (double)repeats, scaler->scale);
    for (size_t f = scaler->period; f < features; f++) {
        scaler->mean[f] = scaler->mean[f - scaler->period];
        scaler->scale[f] = scaler->scale[f - scaler->period];
    }
    return s == OK ? check_fit(scaler, name) : s;
}
