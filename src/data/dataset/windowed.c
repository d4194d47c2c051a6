/* dataset.window: samples are windows of adjacent rows. The rows stay in their table, where everything is fitted to the
 * training rows; a part is a list of first rows of windows. Windows are found in the rows of a part, so that no row is
 * in windows of both, except that with window.history inputs for validation may be of the rows before. */
#include "base/scoped.h"
#include "data/dataset/open_dataset.h"
#include "data/sampling/split.h"
#include "data/sampling/windows.h"

/* ---- series ---- */

/* Whether each series is in one place of the file. */
static status check_series(const struct dataset_config *config, const struct table *table, const int64_t *series,
                           size_t count) {
    SCOPED_BUFFER bool *was_seen = NULL;
    SCOPED_TEXT place = {0};
    TRY(rows_alloc(count, sizeof *was_seen, "the series", &was_seen));
    size_t row = windows_interruption(series, table->rows, was_seen);
    if (row == table->rows) return OK;
    table->source->format->describe(table->source, ROW_GROUP, row, 0, &place);
    return status_data("%s: the rows of a series are not adjacent; sort the rows by '%s', then by time (%s)",
                       text_string(&place), dataset_group(config), dataset_group_key(config));
}

static status read_series(const struct dataset_config *config, struct table *table, int64_t **series, size_t *count) {
    *series = NULL;
    if (!dataset_group(config) || table->rows == 0) return OK;
    TRY(groups_read(config, table, series, count));
    return check_series(config, table, *series, *count);
}

status windowed_open(struct dataset *dataset, const struct dataset_config *config) {
    const struct source *source = dataset->tables[0].source;
    if (config->window.steps == 0) return OK;
    if (source->input_kind != INPUT_VALUES || source->input_dims != 1)
        return status_usage("dataset.window: the rows must be lists of numbers, one row for each time");
    if (config->request.has_losses)
        return status_usage("dataset.window: `losses` cannot be combined with it; write `loss`");
    dataset->info.windows = (struct dataset_windows){
        .steps = (size_t)config->window.steps,
        .target_steps = (size_t)config->window.predict_steps,
        .first_target = (size_t)(config->window.steps + config->window.horizon - 1),
    };
    return read_series(config, &dataset->tables[0], &dataset->groups, &dataset->group_count);
}

bool windowed_splits_series(const struct dataset_config *config) {
    const struct split_config *split = &config->split;
    return config->window.steps > 0 && config->window.group && !split->group && (split->test > 0 || split->train > 0);
}

void windowed_split(struct dataset *dataset, const struct dataset_config *config) {
    struct dataset_info *info = &dataset->info;
    struct split_counts counts;
    windows_split(&config->split, dataset->groups, info->rows, dataset->order.wide, &counts);
    info->test_rows = counts.test;
    info->validation_rows = counts.validation;
    info->train_rows = counts.train;
}

/* ---- windows ---- */

static status too_short(const struct dataset_config *config, const char *path, enum dataset_part part, size_t rows,
                        size_t span) {
    static const char *const names[] = {
        [DATASET_TRAIN] = "training ", [DATASET_VALIDATION] = "validation ", [DATASET_TEST] = "test "};
    const struct window_config *window = &config->window;
    SCOPED_TEXT targets = {0};
    if (!config->request.without_targets)
        text_printf(&targets, " and %lld up to the last target",
                    (long long)(window->horizon + window->predict_steps - 1));
    if (part != DATASET_TRAIN && !window->has_history)
        text_add(&targets, "; with history: true its inputs may be of the rows before them");
    return status_new(STATUS_DATA,
                      "%s: dataset.window: no %zu adjacent rows%s are among the %zu %srow%s: a window has %lld steps%s",
                      path ? path : "synthetic dataset", span, dataset_group(config) ? " of one series" : "", rows,
                      dataset_has_validation(config) ? names[part] : "", text_plural(rows, "s"),
                      (long long)window->steps, text_string(&targets));
}

/* Sets [part], which has [count] rows, to the windows in them. Forecasts use all, because their targets are not
 * known. */
static status find_windows(struct dataset *dataset, const struct dataset_config *config, enum dataset_part part,
                           const int64_t *series, bool *is_used, size_t *count) {
    struct dataset_rows *rows = &dataset->parts[part];
    const struct window_config *window = &config->window;
    for (size_t i = 0; i < *count; i++) is_used[selection_row(&rows->rows, i)] = true;
    struct window_rows of = {.rows = rows->table->rows, .series = series, .is_used = is_used};
    if (part != DATASET_TRAIN && window->has_history) of.history = dataset->info.windows.first_target;
    size_t span =
        (size_t)(window->steps + (config->request.without_targets ? 0 : window->horizon + window->predict_steps - 1));
    size_t stride = config->request.without_targets ? 1 : (size_t)window->stride,
           windows = windows_find(&of, span, stride, NULL);
    if (windows == 0)
        return too_short(config,
                         part == DATASET_VALIDATION && config->validation.path ? config->validation.path : config->path,
                         part, *count, span);
    TRY(rows_alloc(windows, sizeof(int64_t), "the windows", &dataset->window_starts[part].wide));
    int64_t *starts = dataset->window_starts[part].wide;
    windows_find(&of, span, stride, starts);
    if (series) dataset->short_series[part] = windows_short_series(&of, starts, windows, &dataset->first_short[part]);
    order_shrink(&dataset->window_starts[part], windows, rows->table->rows);
    rows->rows = (struct selection){.order = dataset->window_starts[part]};
    *count = windows;
    return OK;
}

static status assign_part(struct dataset *dataset, const struct dataset_config *config, enum dataset_part part,
                          size_t *count) {
    struct table *table = dataset->parts[part].table;
    SCOPED_BUFFER int64_t *own = NULL;
    SCOPED_BUFFER bool *is_used = NULL;
    size_t series;
    bool is_first = table == &dataset->tables[0];
    TRY(rows_alloc(table->rows, sizeof *is_used, "the windows", &is_used));
    if (!is_first) TRY(read_series(config, table, &own, &series));
    return find_windows(dataset, config, part, is_first ? dataset->groups : own, is_used, count);
}

status windowed_assign(struct dataset *dataset, const struct dataset_config *config) {
    struct dataset_info *info = &dataset->info;
    if (config->window.steps == 0) return OK;
    for (int i = 0; i < dataset->n_tables; i++) info->windows.rows += dataset->tables[i].rows;
    info->windows.series = dataset->group_count;
    TRY(assign_part(dataset, config, DATASET_TRAIN, &info->train_rows));
    if (info->validation_rows) TRY(assign_part(dataset, config, DATASET_VALIDATION, &info->validation_rows));
    return info->test_rows ? assign_part(dataset, config, DATASET_TEST, &info->test_rows) : OK;
}

void windowed_note(struct dataset *dataset) {
    static const char *const names[] = {
        [DATASET_TRAIN] = "training ", [DATASET_VALIDATION] = "validation ", [DATASET_TEST] = "test "};
    for (int part = 0; part < DATASET_PARTS; part++) {
        size_t count = dataset->short_series[part];
        SCOPED_TEXT place = {0};
        if (count == 0) continue;
        const struct source *source = dataset->parts[part].table->source;
        source->format->describe(source, ROW_GROUP, dataset->first_short[part], 0, &place);
        dataset->notes.items[dataset->notes.count++] = arena_printf(
            dataset->arena,
            "warning: %zu of the series %s too few %srows for a window and %s not used (dataset.window); %s at %s",
            count, count == 1 ? "has" : "have", dataset->info.validation_rows ? names[part] : "",
            count == 1 ? "is" : "are", count == 1 ? "it is" : "the first is", text_string(&place));
    }
}

/* ---- shapes and scales ---- */

static status check_columns(const struct preparation *preparation) {
    for (size_t i = 0; preparation && i < preparation->count; i++) {
        const struct prepared_column *column = &preparation->items[i];
        bool is_token = column->type == COLUMN_CATEGORY && column->encoding == ENCODING_EMBEDDING;
        if (column->type == COLUMN_TEXT || is_token)
            return status_new(
                STATUS_USAGE,
                "dataset.columns: '%.60s' becomes tokens, which a window of numbers cannot have; write %s",
                column->name, is_token ? "encoding: one_hot" : "`ignore`");
    }
    return OK;
}

status windowed_describe(struct dataset *dataset) {
    struct dataset_info *info = &dataset->info;
    struct dataset_windows *windows = &info->windows;
    if (windows->steps == 0) return OK;
    TRY(check_columns(dataset_preparation(dataset)));
    windows->features = info->input_size;
    info->input_dims = 2;
    info->input_shape[0] = (int64_t)windows->steps;
    info->input_shape[1] = (int64_t)windows->features;
    info->input_size *= windows->steps;
    info->target_size *= windows->target_steps;
    if (windows->target_steps > 1) info->target_dims = 0;
    return OK;
}

struct scale_config windowed_row_scale(const struct dataset *dataset, const struct dataset_config *config) {
    const struct dataset_info *info = &dataset->info;
    struct scale_config scale = config->scale;
    if (!info->windows.steps || !config->request.is_trained) return scale;
    if (scale.mean.count == info->input_size) scale.mean.count = info->windows.features;
    if (scale.std.count == info->input_size) scale.std.count = info->windows.features;
    return scale;
}

/* [count] copies of values (size), in [arena]. */
static double *repeat(struct arena *arena, const double *values, size_t size, size_t count) {
    double *out = arena_alloc(arena, (size * count + 1) * sizeof *out);
    for (size_t i = 0; i < size * count; i++) out[i] = values[i % size];
    return out;
}

void windowed_finish(struct dataset *dataset) {
    struct dataset_info *info = &dataset->info;
    const struct dataset_windows *windows = &info->windows;
    const struct scaler *scaler = &dataset->scaler;
    if (windows->steps == 0) return;
    if (scaler->features) {
        dataset->window_mean = repeat(dataset->arena, scaler->mean, windows->features, windows->steps);
        dataset->window_scale = repeat(dataset->arena, scaler->scale, windows->features, windows->steps);
    }
    if (!info->target_scale) return;
    const struct target_scale *row = info->target_scale;
    dataset->window_target_scale =
        (struct target_scale){.type = row->type,
                              .size = row->size * windows->target_steps,
                              .mean = repeat(dataset->arena, row->mean, row->size, windows->target_steps),
                              .scale = repeat(dataset->arena, row->scale, row->size, windows->target_steps)};
    info->target_scale = &dataset->window_target_scale;
}
