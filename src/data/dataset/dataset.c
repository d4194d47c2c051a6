/* Opens a dataset: one or two tables of rows, the split into training and validation rows, and the scaler fitted to the
 * training rows. */
#include "data/dataset/dataset.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/io.h"
#include "data/dataset/identifiers.h"
#include "data/dataset/open_dataset.h"
#include "data/files/files.h"
#include "data/sampling/split.h"
#include "data/source/source.h"

#define MAX_BYTE_FEATURES 4096 /* with more scaled features the lookup tables of bytes would be large */

/* ---- opening ---- */

/* Rows to predict may be a single image. */
static status check_folder(const struct dataset_config *config, const char *path) {
    struct io_info info = {0};
    bool may_be_image = config->without_targets && !config->image.labels && image_is_named(path);
    if (may_be_image) TRY(io_stat(path, &info));
    if (may_be_image && !info.exists)
        return status_new(STATUS_DATA, "cannot read the image '%s': %s", path, strerror(ENOENT));
    return info.is_file ? OK : folder_check(path);
}

static status open_file(const struct dataset_format *format, const struct dataset_config *config, const char *path,
                        bool wants_classes, const struct source *train, struct source **out) {
    uint64_t bytes = 0;
    if (format->is_folder) TRY(check_folder(config, path));
    if (format->extensions && !format->is_folder && !format->reads_patterns) TRY(file_check(path, &bytes));
    TRY(format->open(config, path, wants_classes, train, out));
    if (bytes) (*out)->file_bytes = bytes;
    return OK;
}

/* Opens [files] as one text. */
static status open_concatenated(const struct dataset_format *format, const struct dataset_config *config,
                                const struct string_list *files, bool wants_classes, const struct source *train,
                                struct source **out) {
    struct dataset_config own = *config;
    uint64_t bytes = 0, size;
    *(train ? &own.validation.others : &own.others) = (struct string_list){files->items + 1, files->count - 1};
    for (size_t i = 0; i < files->count; i++) {
        TRY(file_check(files->items[i], &size));
        bytes += size;
    }
    TRY(format->open(&own, files->items[0], wants_classes, train, out));
    (*out)->file_bytes = bytes;
    return OK;
}

/* Opens all files that [path], and the list after it, names. */
static status open_files(const struct dataset_format *format, const struct dataset_config *config, const char *path,
                         bool wants_classes, const struct source *train, struct source **out) {
    struct string_list files = {0};
    const struct string_list *others = dataset_others(config, train != NULL);
    train = joined_first(train);
    if (!format->extensions || format->reads_patterns)
        return open_file(format, config, path, wants_classes, train, out);
    struct arena *arena = arena_create();
    status s = file_list_expand(path, others, arena, &files);
    if (!s && files.count > 1) files_raise_limit(files.count * (format->has_target_file ? 2 : 1)); /* all stay open */
    if (!s && files.count > 1 && format->concatenates)
        s = open_concatenated(format, config, &files, wants_classes, train, out);
    else if (!s && files.count > 1 && !joined_supports(format))
        s = files_are_too_many(path, others, files.count, format->name);
    else if (!s && files.count > 1)
        s = joined_open(format, config, &files, wants_classes, train, out);
    else if (!s)
        s = open_file(format, config, files.items[0], wants_classes, train, out);
    arena_destroy(arena);
    return s;
}

static status open_source(const struct dataset_config *config, const char *path, bool wants_classes,
                          const struct source *train, struct source **out) {
    const struct dataset_format *format = config->cells ? &dataset_cells : dataset_format_of(config, path);
    if (!format) {
        struct text names = {0};
        dataset_format_names(&names);
        status s = status_new(STATUS_USAGE, "'%s': unknown file extension; set dataset.format to one of: %s",
                              path ? path : "", text_string(&names));
        text_free(&names);
        return s;
    }
    if (config->skips_bad_rows && (!(format->keys & KEY_COLUMNS) || config->window.steps))
        return status_new(STATUS_USAGE, "--skip-bad-rows is for rows of CSV files and SQLite tables%s",
                          config->window.steps ? ", but not for those of windows, which are adjacent" : "");
    TRY(open_files(format, config, path, wants_classes, train, out));
    struct source *source = *out;
    if (!isnan(config->divide)) source->divide = config->divide;
    if (source->divide == 0) source->divide = 1;
    return OK;
}

static int by_number(const void *a, const void *b) {
    const struct numbered_class *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

/* Numbers in a file without labels are those of the model's labels, if these are numbers, too. */
static void use_labels(struct dataset *dataset, const struct dataset_config *config, const struct source *source,
                       bool wants_classes, struct table *table) {
    const struct string_list *labels = &config->classes;
    bool are_decisions = config->target_range == TARGETS_ARE_PROBABILITIES && !config->has_losses;
    if (!config->is_trained || labels->count == 0 || !config->path || !(wants_classes || are_decisions)) return;
    if (source->format->labels && source->format->labels(source).count) return;
    double *numbers = arena_alloc(dataset->arena, labels->count * sizeof *numbers);
    if (!labels_as_numbers(labels, numbers)) return;
    struct numbered_class *classes = arena_alloc(dataset->arena, labels->count * sizeof *classes);
    for (size_t i = 0; i < labels->count; i++) classes[i] = (struct numbered_class){numbers[i], (double)i};
    qsort(classes, labels->count, sizeof *classes, by_number);
    table->classes = classes;
    table->class_count = labels->count;
}

/* Adds [source], which is owned by the dataset then, as the next table. */
static status add_table(struct dataset *dataset, const struct dataset_config *config, struct source *source,
                        bool wants_classes) {
    enum target_kind kind = wants_classes ? TARGET_CLASS : TARGET_VALUES;
    struct table *table = &dataset->tables[dataset->n_tables++];
    TRY(table_create(source, kind, &dataset->scaler, table));
    table->ignored = config->ignored;
    use_labels(dataset, config, source, wants_classes, table);
    if (source->input_kind == INPUT_TOKENS && !wants_classes)
        return status_new(STATUS_USAGE, "dataset: the target of a token is the next token, which is a class; use "
                                        "loss: cross_entropy");
    return OK;
}

static void add_target_shape(const struct source *source, struct text *out) {
    text_add(out, " of shape ");
    source_add_shape(source->target_dims, source->target_shape, out);
}

static status check_same_shape(const struct dataset_config *config, const struct source *train,
                               const struct source *validation) {
    if (source_is_like(train, validation)) return OK;
    bool has_shapes = train->target_size == validation->target_size && train->target_dims;
    struct text shapes = {0};
    source_add_shape(train->input_dims, train->input_shape, &shapes);
    text_printf(&shapes, " and %zu target values", train->target_size);
    if (has_shapes) add_target_shape(train, &shapes);
    text_printf(&shapes, ", those of '%s' ", config->validation.path);
    source_add_shape(validation->input_dims, validation->input_shape, &shapes);
    text_printf(&shapes, " and %zu", validation->target_size);
    if (has_shapes) add_target_shape(validation, &shapes);
    status s = status_new(STATUS_DATA, "rows of '%s' have shape %s", config->path, text_string(&shapes));
    text_free(&shapes);
    return s;
}

static status open_tables(struct dataset *dataset, const struct dataset_config *config, bool wants_classes) {
    struct source *train = NULL, *validation = NULL;
    TRY(open_source(config, config->path, wants_classes, NULL, &train));
    TRY(add_table(dataset, config, train, wants_classes));
    if (!config->validation.path) return OK;
    TRY(open_source(config, config->validation.path, wants_classes, train, &validation));
    TRY(add_table(dataset, config, validation, wants_classes));
    TRY(check_same_shape(config, train, validation));
    static const char where[] = "dataset.validation", other[] = "validation";
    TRY(source_compare_names(train, validation, false, &config->inputs, where, other));
    if (config->without_targets) return OK;
    return source_compare_names(train, validation, true, &config->targets, where, other);
}

/* Reads the classes (rows) for a stratified split; the caller frees them with buffer_free. */
static status read_classes(struct table *table, const struct dataset_config *config, void **classes) {
    *classes = NULL;
    if (table->target_kind != TARGET_CLASS && config->target_range != TARGETS_ARE_PROBABILITIES)
        return status_new(STATUS_USAGE, "dataset.split.stratify: it needs classes as targets, but this loss has "
                                        "other targets");
    if (table->target_size != 1)
        return status_new(STATUS_USAGE, "dataset.split.stratify: it needs one class per row, but a row has %zu targets",
                          table->target_size);
    TRY(rows_alloc(table->rows, sizeof(int64_t), "the classes", classes));
    return status_prefix(table_classes(table, *classes), "dataset.split.stratify");
}

/* The same for three parts, the test rows first. */
static status order_three(struct dataset *dataset, const struct dataset_config *config) {
    struct dataset_info *info = &dataset->info;
    struct table *table = &dataset->tables[0];
    struct split_counts counts = {0};
    void *classes = NULL;
    if (config->split.group && !dataset->groups)
        TRY(groups_read(config, table, &dataset->groups, &dataset->group_count));
    if (config->split.group) info->groups = dataset->group_count;
    status s = config->split.stratify ? read_classes(table, config, &classes) : OK;
    struct split_labels labels = {classes, dataset->groups, config->split.group ? dataset->group_count : 0};
    if (!s) s = split_rows_three(&config->split, &labels, table->rows, dataset->order, &counts);
    buffer_free(classes);
    TRY(status_prefix(s, "%s: dataset.split", config->path ? config->path : "synthetic dataset"));
    info->test_rows = counts.test;
    info->validation_rows = counts.validation;
    info->validation_groups = counts.validation_groups;
    info->train_rows = counts.train;
    return OK;
}

/* Orders the rows by groups, the validation rows first, and sets the sizes of both parts. */
static status order_groups(struct dataset *dataset, const struct dataset_config *config) {
    struct dataset_info *info = &dataset->info;
    struct table *table = &dataset->tables[0];
    if (!dataset->groups) TRY(groups_read(config, table, &dataset->groups, &dataset->group_count));
    info->groups = dataset->group_count;
    TRY(status_prefix(split_rows_grouped(&config->split, dataset->groups, table->rows, info->groups, dataset->order,
                                         &info->validation_rows, &info->validation_groups),
                      "%s: dataset.split.group", config->path));
    info->train_rows = table->rows - info->validation_rows;
    return OK;
}

/* Orders the rows of a stratified split or of folds, the validation rows first, and sets the sizes of both parts.
 * [classes]: NULL unless stratified. */
static status order_rows(struct dataset *dataset, const struct dataset_config *config, const int64_t *classes) {
    const struct split_config *split = &config->split;
    struct dataset_info *info = &dataset->info;
    size_t rows = dataset->tables[0].rows, *n_validation = &info->validation_rows;
    status s = split->time_series ? split_rows_time_series(split, rows, dataset->order, n_validation, &info->train_rows)
               : split->folds     ? split_rows_folds(split, classes, rows, dataset->order, n_validation)
                                  : split_rows_stratified(split, classes, rows, dataset->order);
    if (!split->time_series) info->train_rows = rows - *n_validation;
    return status_prefix(s, "%s: dataset.split.%s", config->path ? config->path : "synthetic dataset",
                         split->stratify ? "stratify" : "folds");
}

/* The same, for each kind of these splits. */
static status order_parts(struct dataset *dataset, const struct dataset_config *config) {
    void *classes = NULL;
    if (config->split.group) return order_groups(dataset, config);
    status s = config->split.stratify ? read_classes(&dataset->tables[0], config, &classes) : OK;
    if (!s) s = order_rows(dataset, config, classes);
    buffer_free(classes);
    return s;
}

/* Assigns the rows to training and validation. */
static status assign_rows(struct dataset *dataset, const struct dataset_config *config) {
    struct table *table = &dataset->tables[0];
    struct dataset_info *info = &dataset->info;
    const char *name = config->path ? config->path : "synthetic dataset";
    if (table->rows == 0) return status_new(STATUS_DATA, "%s: there are no rows", name);
    dataset->parts[DATASET_TRAIN].table = dataset->parts[DATASET_TEST].table = table;
    dataset->parts[DATASET_VALIDATION].table = &dataset->tables[dataset->n_tables - 1];
    info->train_rows = info->rows = table->rows;
    if (dataset->n_tables == 2) {
        info->validation_rows = dataset->tables[1].rows;
        if (info->validation_rows > 0) return OK;
        return status_new(STATUS_DATA, "%s: there are no validation rows", config->validation.path);
    }
    if (!split_is_given(&config->split)) return OK;
    bool is_ordered = config->split.stratify || config->split.folds || config->split.group;
    bool has_test = split_has_test(&config->split);
    if (!config->split.folds && !config->split.group && !has_test)
        split_sizes(&config->split, table->rows, &info->train_rows, &info->validation_rows);
    bool is_torch = config->split.train > 0;
    if (info->train_rows == 0)
        return status_new(STATUS_DATA, "%s: split.%s %g of %zu row%s leaves no training row", name,
                          is_torch ? "train" : "test", is_torch ? config->split.train : config->split.test, table->rows,
                          text_plural(table->rows, "s"));
    bool is_by_series = windowed_splits_series(config);
    if (config->split.shuffle || config->split.folds || is_by_series || has_test) {
        void *order;
        TRY(rows_alloc(table->rows, sizeof(int64_t), "the split", &order));
        dataset->order = order;
    }
    struct selection *train = &dataset->parts[DATASET_TRAIN].rows;
    struct selection *validation = &dataset->parts[DATASET_VALIDATION].rows;
    if (is_by_series) {
        windowed_split(dataset, config);
    } else if (has_test) {
        TRY(order_three(dataset, config));
    } else if (is_ordered) {
        TRY(order_parts(dataset, config));
    } else {
        split_rows(&config->split, table->rows, dataset->order, &train->first, &validation->first);
    }
    if (is_by_series || is_ordered || has_test) {
        validation->first = info->test_rows;
        train->first = info->test_rows + info->validation_rows;
    }
    train->order = validation->order = dataset->parts[DATASET_TEST].rows.order = dataset->order;
    return OK;
}

/* ---- preparation ---- */

/* Windows of numbers are prepared only where a rule asks for more than to ignore a column: without a preparation they
 * can be exported. */
static bool has_rules(const struct dataset_config *config) {
    const struct column_rule *rules = config->rules.items;
    for (size_t i = 0; i < config->rules.count; i++)
        if (config->window.steps == 0 || rules[i].type != COLUMN_IGNORED) return true;
    return false;
}

/* Whether the inputs are more than numbers without missing values and without rules. */
static bool needs_preparation(const struct dataset *dataset, const struct dataset_config *config) {
    if (!dataset->tables[0].source->columns) return false;
    bool is_needed = config->is_trained ? config->preparation != NULL : has_rules(config);
    for (int t = 0; t < dataset->n_tables; t++)
        for (size_t i = 0; i < dataset->tables[t].source->input_size; i++) {
            const struct raw_column *column = &dataset->tables[t].source->columns[i];
            is_needed = is_needed || column->type != COLUMN_NUMBER || column->missing > 0;
        }
    return is_needed;
}

/* Whether the preparation of a checkpoint is for these columns, in this order. */
static status check_trained(const struct preparation *preparation, const struct source *source) {
    bool is_same = preparation->count == source->input_size;
    for (size_t i = 0; is_same && i < source->input_size; i++)
        is_same = strcmp(preparation->items[i].name, source->columns[i].name) == 0 &&
                  preparation->items[i].type == source->columns[i].type;
    return is_same ? OK
                   : status_new(STATUS_DATA, "the checkpoint's preparation (data/preparation) has other columns than "
                                             "its data/columns; the file was changed");
}

/* The columns of a model without a preparation: numbers, of which none may be missing. */
static struct preparation plain_numbers(const struct source *source, struct arena *arena) {
    struct preparation plain = {.items = arena_alloc(arena, (source->input_size + 1) * sizeof *plain.items),
                                .count = source->input_size};
    for (size_t i = 0; i < plain.count; i++)
        plain.items[i] = (struct prepared_column){.name = source->columns[i].name,
                                                  .type = COLUMN_NUMBER,
                                                  .missing = MISSING_ERROR,
                                                  .fill = arena_alloc(arena, sizeof *plain.items[i].fill)};
    preparation_number_features(&plain);
    return plain;
}

static status fit_preparation(struct dataset *dataset, const struct dataset_config *config, const double *raw) {
    struct source *source = dataset->tables[0].source;
    const struct selection *train = &dataset->fit;
    struct fit_rows rows = {raw,          source,       source->rows,      source->format->read,
                            train->order, train->first, dataset->fit_rows, dataset->texts.tokenizer};
    struct preparation fitted;
    if (config->is_trained) {
        fitted = config->preparation ? *config->preparation : plain_numbers(source, dataset->arena);
        TRY(check_trained(&fitted, source));
    } else {
        TRY(text_columns_fit(source, &rows, &dataset->texts));
        rows.tokenizer = dataset->texts.tokenizer;
        TRY(preparation_fit(source->columns, source->input_size, &rows, &config->rules,
                            (enum scale_type)config->scale.type, dataset->arena, &fitted));
    }
    dataset->preparation = preparation_copy(&fitted, dataset->arena); /* the source may be closed before */
    return OK;
}

/* Replaces the inputs by the features of their preparation, if they need one. A model that was trained without one sets
 * dataset.divide itself; what its inputs must not have is then rejected by table_prepare, with its place. */
static status prepare(struct dataset *dataset, const struct dataset_config *config) {
    if (!needs_preparation(dataset, config)) return OK;
    bool is_divide_of_model = config->is_trained && !config->preparation;
    if (!isnan(config->divide) && !is_divide_of_model)
        return status_new(STATUS_USAGE, "dataset.divide is for inputs that are all numbers; remove it, or scale the "
                                        "columns with dataset.columns");
    TRY(text_columns_open(config, dataset->tables[0].source, &dataset->texts));
    for (int i = 0; i < dataset->n_tables; i++) {
        double *raw;
        status s = table_read_raw(&dataset->tables[i], &raw);
        if (!s && i == 0) s = fit_preparation(dataset, config, raw);
        buffer_free(raw);
        TRY(s);
        TRY(table_prepare(&dataset->tables[i], &dataset->preparation, dataset->texts.tokenizer, config->is_trained,
                          i == 0 ? config->path : config->validation.path, dataset->arena));
    }
    return OK;
}

/* Labels are copied because the source may be closed before the dataset. */
static void copy_labels(struct dataset *dataset) {
    const struct source *source = dataset->tables[0].source;
    struct string_list labels = source->format->labels ? source->format->labels(source) : (struct string_list){0};
    dataset->labels.items = arena_alloc(dataset->arena, (labels.count + 1) * sizeof *labels.items);
    dataset->labels.count = labels.count;
    for (size_t i = 0; i < labels.count; i++) dataset->labels.items[i] = arena_copy(dataset->arena, labels.items[i]);
}

/* Images that are stored as (height, width, channels), which the config does not say, would be trained with as many
 * channels as they have lines. */
static void note_layout(struct dataset *dataset, const struct dataset_config *config) {
    const struct source *source = dataset->tables[0].source;
    const int64_t *shape = source->input_shape;
    if (!source->format->has_layout || config->layout != LAYOUT_NCHW) return;
    if (!source_seems_channels_last(source->input_dims, shape)) return;
    dataset->notes.items[dataset->notes.count++] = arena_printf(
        dataset->arena,
        "warning: the rows (%lld, %lld, %lld) are used as %lld channels of %lld x %lld pixels; if they are "
        "images (height, width, channels), write dataset.layout: nhwc",
        (long long)shape[0], (long long)shape[1], (long long)shape[2], (long long)shape[0], (long long)shape[1],
        (long long)shape[2]);
}

/* Several numbers for each image may be places in it, such as key points, which augmentation does not move. */
static void note_augment(struct dataset *dataset, const struct dataset_config *config) {
    const struct dataset_info *info = &dataset->info;
    bool are_numbers =
        info->target_kind == TARGET_VALUES && !info->is_binary && info->target_dims <= 1 && info->target_size > 1;
    if (!augment_moves(&config->augment) || !are_numbers) return;
    dataset->notes.items[dataset->notes.count++] = arena_printf(
        dataset->arena,
        "warning: dataset.augment moves the pixels of an image, but not its %zu targets; leave it out if they are "
        "coordinates",
        info->target_size);
}

/* They are needed when the source is closed. */
static void copy_left_out(struct dataset *dataset) {
    for (int i = 0; i < dataset->n_tables; i++) {
        const struct source *source = dataset->tables[i].source;
        size_t *items = arena_alloc(dataset->arena, (source->left_out_count + 1) * sizeof *items);
        if (source->left_out_count) memcpy(items, source->left_out, source->left_out_count * sizeof *items);
        dataset->left_out[i] = (struct row_list){items, source->left_out_count};
    }
}

/* Of a table in memory, whose inputs the config does not name; in a series what counts the rows is a time. */
static status note_identifiers(struct dataset *dataset, const struct dataset_config *config) {
    struct source *source = dataset->tables[0].source;
    const char *note = NULL;
    if (!source->columns || !source->is_small || config->is_trained || config->inputs.count ||
        dataset->info.windows.steps)
        return OK;
    TRY(identifiers_note(source, &config->rules, dataset->arena, &note));
    if (note) dataset->notes.items[dataset->notes.count++] = note;
    return OK;
}

static void copy_columns(struct dataset *dataset, const struct dataset_config *config) {
    const struct source *source = dataset->tables[0].source;
    const char *overlap = overlap_note(dataset, config);
    dataset->notes.items = arena_alloc(dataset->arena, 16 * sizeof *dataset->notes.items);
    if (overlap) dataset->notes.items[dataset->notes.count++] = overlap;
    note_layout(dataset, config);
    note_augment(dataset, config);
    windowed_note(dataset);
    for (int i = 0; i < dataset->n_tables; i++) {
        const char *note = dataset->tables[i].source->note;
        if (note) dataset->notes.items[dataset->notes.count++] = arena_copy(dataset->arena, note);
        const char *warning = dataset->tables[i].source->warning;
        if (warning)
            dataset->notes.items[dataset->notes.count++] = arena_printf(dataset->arena, "warning: %s", warning);
        note = dataset->tables[i].note;
        if (note) dataset->notes.items[dataset->notes.count++] = note;
    }
    if (source->target_name) dataset->target_name = arena_copy(dataset->arena, source->target_name);
    if (!source->format->columns) return;
    struct column_list columns = source->format->columns(source, dataset->arena);
    dataset->columns = columns_copy(dataset->arena, &columns);
}

static status count_classes(struct dataset *dataset) {
    struct dataset_info *info = &dataset->info;
    struct class_count count;
    bool are_counted = true;
    class_count_start(&count);
    for (int i = 0; i < dataset->n_tables; i++) {
        struct table *table = &dataset->tables[i];
        int64_t classes = table->source->classes;
        are_counted = are_counted && classes == 0;
        if (classes == 0) TRY(table_count_classes(table, 0, table->source->target_size, &count));
        if (classes > info->classes) info->classes = classes;
    }
    if (count.classes > info->classes) info->classes = count.classes;
    info->first_class = are_counted ? count.first : 0;
    info->absent_class = are_counted ? class_count_absent(&count) : 0;
    return OK;
}

static status describe(struct dataset *dataset, const struct dataset_config *config, bool wants_classes) {
    const struct source *source = dataset->tables[0].source;
    struct dataset_info *info = &dataset->info;
    info->input_kind = source->input_kind;
    info->vocabulary = source->vocabulary;
    info->input_dims = source->input_dims;
    memcpy(info->input_shape, source->input_shape, sizeof info->input_shape);
    info->input_size = dataset->tables[0].input_size;
    if (dataset->preparation.count) info->input_shape[0] = (int64_t)info->input_size;
    info->input_tokens = preparation_tokens(&dataset->preparation, 0, dataset->preparation.count);
    info->target_size = source->target_size;
    info->target_dims = source->target_dims;
    memcpy(info->target_shape, source->target_shape, sizeof info->target_shape);
    info->target_kind = wants_classes ? TARGET_CLASS : TARGET_VALUES;
    info->is_binary = !wants_classes && config->target_range == TARGETS_ARE_PROBABILITIES;
    if (wants_classes) TRY(count_classes(dataset));
    for (int i = 0; i < dataset->n_tables && config->target_range && source->target_size > 0; i++)
        TRY(table_check_range(&dataset->tables[i], config->target_range, 0, source->target_size));
    TRY(windowed_describe(dataset));
    return dataset_name_parts(config, dataset->tables, dataset->n_tables, dataset_preparation(dataset), info,
                              dataset->arena);
}

/* Fits the scale of the targets, or takes that of the checkpoint. */
static status scale_targets(struct dataset *dataset, const struct dataset_config *config) {
    struct table *table = &dataset->tables[0];
    const struct target_scale *trained = config->trained_target_scale;
    size_t targets = dataset->info.target_size;
    enum target_scale_type type = (enum target_scale_type)config->target_scale;
    if (config->is_trained) type = trained ? trained->type : TARGET_SCALE_NONE;
    if (type == TARGET_SCALE_NONE || table->target_size == 0 || dataset->info.target_kind == TARGET_CLASS) return OK;
    if (trained && trained->size != targets)
        return status_new(STATUS_DATA, "the model was trained with %zu targets per row, but a row has %zu",
                          trained->size, targets);
    for (int i = 0; i < dataset->n_tables && type == TARGET_SCALE_LOG1P; i++)
        TRY(table_check_log1p(&dataset->tables[i]));
    dataset->target_scale = trained ? target_scale_copy(trained, dataset->arena)
                                    : target_scale_new(type, table->target_size, dataset->arena);
    dataset->target_scale.size = table->target_size; /* of a row of a window */
    if (!trained) TRY(target_scale_fit(&dataset->target_scale, table, &dataset->fit, dataset->fit_rows));
    dataset->info.target_scale = &dataset->target_scale;
    for (int i = 0; i < dataset->n_tables; i++) dataset->tables[i].target_scale = &dataset->target_scale;
    return OK;
}

/* ---- rows ---- */

static bool fits_in_memory(const struct dataset *dataset, const struct dataset_config *config) {
    double bytes = 0;
    bool is_small = true, has_tokens = false;
    for (int i = 0; i < dataset->n_tables; i++) {
        bytes += table_bytes(&dataset->tables[i]);
        bytes += table_file_target_bytes(&dataset->tables[i]);
        is_small = is_small && dataset->tables[i].source->is_small;
        has_tokens = has_tokens || dataset->tables[i].source->input_kind == INPUT_TOKENS;
    }
    if (has_tokens) return is_small;
    return is_small || bytes <= (double)config->cache_mb * 1048576;
}

/* Reads one table and adds it to [digest], whose result does not depend on whether rows are kept in memory. */
static status load_table(struct dataset *dataset, struct table *table, bool needs_fit, struct digest *digest) {
    uint64_t shape[4] = {table->rows, table->target_size, table->target_kind, table->source->is_float32};
    digest_add(digest, shape, sizeof shape);
    if (table->weights) digest_add(digest, table->weights, table->rows * sizeof *table->weights);
    if (table->source->input_kind == INPUT_TOKENS) return table->source->format->digest(table->source, digest);
    bool is_whole = table_bytes(table) <= MAX_DIGESTED;
    if (!is_whole) TRY(table_sample(table, digest));
    if (dataset->is_in_memory) return table_load(table, needs_fit, is_whole ? digest : NULL);
    return is_whole ? table_digest(table, digest) : OK;
}

/* Reads, fingerprints and scales. */
static status load(struct dataset *dataset, const struct dataset_config *config) {
    struct dataset_info *info = &dataset->info;
    bool needs_fit = config->scale.mean.count == 0 && dataset->scaler.features > 0;
    struct digest digest;
    digest_start(&digest);
    digest_add(&digest, info->input_shape, sizeof info->input_shape);
    if (dataset->groups) digest_add(&digest, dataset->groups, info->rows * sizeof *dataset->groups);
    buffer_free(dataset->groups);
    dataset->groups = NULL;
    dataset->is_in_memory = fits_in_memory(dataset, config);
    for (int i = 0; i < dataset->n_tables; i++) TRY(load_table(dataset, &dataset->tables[i], needs_fit, &digest));
    uint8_t hash[DIGEST_SIZE];
    digest_finish(&digest, hash);
    digest_hex(hash, info->fingerprint);

    if (needs_fit)
        TRY(status_prefix(scaler_fit(&dataset->scaler, &dataset->tables[0], &dataset->fit, dataset->fit_rows), "%s",
                          config->path ? config->path : "synthetic dataset"));
    TRY(dataset_prepare_augment(dataset, config));
    for (int i = 0; i < dataset->n_tables; i++) TRY(table_finish(&dataset->tables[i]));
    return OK;
}

static status open_all(struct dataset *dataset, const struct dataset_config *config, bool wants_classes) {
    TRY(open_tables(dataset, config, wants_classes));
    TRY(windowed_open(dataset, config));
    TRY(assign_rows(dataset, config));
    dataset->fit = dataset->parts[DATASET_TRAIN].rows;
    dataset->fit_rows = dataset->info.train_rows;
    TRY(windowed_assign(dataset, config));
    TRY(prepare(dataset, config));
    TRY(weights_read(config, dataset->tables, dataset->n_tables, &dataset->parts[DATASET_TRAIN].rows,
                     &dataset->parts[DATASET_VALIDATION].rows, &dataset->info));
    TRY(describe(dataset, config, wants_classes));
    TRY(class_weights_set(dataset, config));
    TRY(scale_targets(dataset, config));
    copy_labels(dataset);
    copy_columns(dataset, config);
    TRY(note_identifiers(dataset, config));
    copy_left_out(dataset);
    struct scale_config scale = windowed_row_scale(dataset, config);
    TRY(scaler_create(&scale, dataset->tables[0].source, dataset_preparation(dataset), &dataset->scaler));
    for (int i = 0; i < dataset->n_tables; i++)
        if (dataset->scaler.features > MAX_BYTE_FEATURES) dataset->tables[i].source->is_bytes = false;
    dataset->divide = dataset->tables[0].source->divide;
    dataset->is_bytes = dataset->tables[0].source->is_bytes;
    if (fits_in_memory(dataset, config)) TRY(classes_warn_absent(dataset, config));
    TRY(dataset->is_metadata ? dataset_prepare_augment(dataset, config) : load(dataset, config));
    windowed_finish(dataset);
    return OK;
}

status dataset_open(const struct dataset_config *config, bool wants_classes, bool metadata_only, struct dataset **out) {
    *out = NULL;
    struct dataset *dataset = calloc(1, sizeof *dataset);
    if (!dataset) return status_memory("a dataset");
    pthread_mutex_init(&dataset->reading, NULL);
    dataset->is_metadata = metadata_only;
    dataset->arena = arena_create();
    dataset->owners = 1;
    status s = open_all(dataset, config, wants_classes);
    if (s == OK)
        *out = dataset;
    else
        dataset_close(dataset);
    return s;
}

struct dataset *dataset_retain(struct dataset *dataset) {
    dataset->owners++;
    return dataset;
}

struct orders *dataset_orders(struct dataset *dataset) {
    return dataset->owners > 1 ? &dataset->orders : NULL;
}

void dataset_close(struct dataset *dataset) {
    if (!dataset || --dataset->owners > 0) return;
    orders_free(&dataset->orders);
    for (int i = 0; i < 2; i++) table_free(&dataset->tables[i]);
    scaler_free(&dataset->scaler);
    text_columns_close(&dataset->texts);
    buffer_free(dataset->augment.fill);
    buffer_free(dataset->order);
    buffer_free(dataset->groups);
    for (int i = 0; i < DATASET_PARTS; i++) buffer_free(dataset->window_starts[i]);
    arena_destroy(dataset->arena);
    pthread_mutex_destroy(&dataset->reading);
    free(dataset);
}
