/* Opens a dataset: one or two tables of rows, the split into training and validation rows, and the scaler fitted to the
 * training rows. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/archive.h"
#include "base/files/digest.h"
#include "base/files/io.h"
#include "base/numbers/statistics.h"
#include "base/scoped.h"
#include "data/columns/preparation.h"
#include "data/columns/raw_columns.h"
#include "data/dataset/dataset.h"
#include "data/dataset/identifiers.h"
#include "data/dataset/open_dataset.h"
#include "data/files/files.h"
#include "data/sampling/split.h"
#include "data/source/config.h"
#include "data/text/tokenizer.h"

#define CHUNK_ROWS ((size_t)1 << 16) /* whose groups or weights are read at once */

/* ---- groups ---- */

/* dataset.split.group and window.group: the groups of the rows, numbered in their order. */

#define MAX_EXACT 9007199254740992.0 /* 2^53, which 2^53 + 1 becomes as a double, too */

static status reject_group(struct source *source, const char *key, size_t row, double group) {
    SCOPED_TEXT place = {0};
    source->format->describe(source, ROW_GROUP, row, 0, &place);
    return isnan(group) ? status_data("%s: the group is missing (%s)", text_string(&place), key)
                        : status_data("%s: the group is not a number between -2^53 and 2^53", text_string(&place));
}

static status read_all_groups(struct source *source, const char *key, double *values) {
    for (size_t row = 0, count; row < source->rows; row += count) {
        count = source->rows - row < CHUNK_ROWS ? source->rows - row : CHUNK_ROWS;
        TRY(source->format->read_extra(source, ROW_GROUP, row, count, values + row));
        for (size_t i = row; i < row + count; i++)
            if (!(fabs(values[i]) < MAX_EXACT)) return reject_group(source, key, i, values[i]);
    }
    return OK;
}

/* The rank of each value (rows) among the different ones, whose number is returned. Sorts [unique], a copy of [values].
 */
static size_t rank_values(const double *values, double *unique, size_t rows, int64_t *ranks) {
    size_t count = 0;
    qsort(unique, rows, sizeof *unique, statistics_compare);
    for (size_t i = 0; i < rows; i++)
        if (i == 0 || unique[i] != unique[count - 1]) unique[count++] = unique[i];
    for (size_t i = 0; i < rows; i++) {
        const double *found = bsearch(&values[i], unique, count, sizeof *unique, statistics_compare);
        ranks[i] = found - unique;
    }
    return count;
}

/* [memory]: (2, rows) workspace. */
static status number_groups(const struct dataset_config *config, struct table *table, double *memory, int64_t *groups,
                            size_t *count) {
    double *values = memory, *unique = memory + table->rows;
    TRY(read_all_groups(table->source, dataset_group_key(config), values));
    for (size_t i = 0; i < table->rows; i++) unique[i] = values[i];
    *count = rank_values(values, unique, table->rows, groups);
    if (*count > 1 || !dataset_splits_groups(config)) return OK;
    return status_data("%s: dataset.split.group: all rows have the same '%s'; a split needs two groups", config->path,
                       config->split.group);
}

status groups_read(const struct dataset_config *config, struct table *table, int64_t **groups, size_t *count) {
    SCOPED_BUFFER double *memory = NULL;
    *groups = NULL;
    TRY(rows_alloc(table->rows, sizeof(int64_t), "the groups of the rows", groups));
    TRY(rows_alloc(table->rows, 2 * sizeof(double), "the groups of the rows", &memory));
    return number_groups(config, table, memory, *groups, count);
}

/* ---- weights ---- */

/* dataset.weights: a weight for each row, read once and kept in memory. */

static status reject_weight(struct source *source, size_t row, double weight) {
    SCOPED_TEXT place = {0};
    source->format->describe(source, ROW_WEIGHT, row, 0, &place);
    text_add(&place, ": the weight ");
    if (isfinite(weight))
        text_add_double(&place, weight);
    else
        text_add(&place, isnan(weight) ? "NaN" : weight > 0 ? "Inf" : "-Inf");
    return status_data("%s is %s; weights are finite numbers from 0", text_string(&place),
                       isfinite(weight) ? weight < 0 ? "negative" : "too large for float32" : "not finite");
}

/* Reads the weights of all rows to *out, for buffer_free, also after a failure. */
static status read_all_weights(struct source *source, double **out) {
    TRY(rows_alloc(source->rows, sizeof **out, "the weights of the rows", out));
    double *weights = *out;
    for (size_t row = 0, count; row < source->rows; row += count) {
        count = source->rows - row < CHUNK_ROWS ? source->rows - row : CHUNK_ROWS;
        TRY(source->format->read_extra(source, ROW_WEIGHT, row, count, weights + row));
        for (size_t i = row; i < row + count; i++)
            if (!(weights[i] >= 0 && isfinite((float)weights[i]))) return reject_weight(source, i, weights[i]);
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
    return status_data("%s: the weights ('%s') of the %s rows are all 0", path, config->weights, rows);
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

/* Reads dataset.weights, if it is given, and sets the weights of the tables and those of [info]. STATUS_DATA with the
 * place of the first weight that is negative or not finite, or if all of a part are 0. */
static status weights_read(const struct dataset_config *config, struct table *tables, int n_tables,
                           const struct selection *train, const struct selection *validation,
                           struct dataset_info *info) {
    if (!config->weights || config->request.without_targets) return OK;
    if (!joined_first(tables[0].source)->format->read_extra)
        return status_usage("dataset.weights: format %s has no names for weights; hdf5, csv, sqlite and npz have",
                            dataset_format_of(config, config->path)->name);
    for (int i = 0; i < n_tables; i++) TRY(read_all_weights(tables[i].source, &tables[i].weights));
    return check_parts(config, tables, n_tables, train, validation, info);
}

/* ---- columns of texts ---- */

/* All columns of texts have one tokenizer, because a checkpoint stores one. */

/* The first column of texts among count columns; SIZE_MAX: there is none. */
static size_t find_texts(const struct raw_column *columns, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (columns[i].type == COLUMN_TEXT) return i;
    return SIZE_MAX;
}

static status reject_shared(const struct dataset_config *config, const char *name) {
    return status_usage("%s: column '%s' is a text, whose tokens are an input of their own; give the other columns "
                        "another name, as in dataset.inputs: {words: [%s], numbers: [...]}, or ignore them",
                        config->path, text_name(name).s, text_name(name).s);
}

/* Each column of texts must be all of its input. */
static status check_inputs(const struct dataset_config *config, const struct raw_column *columns, size_t count) {
    const struct string_groups *groups = &config->input_groups;
    size_t texts = find_texts(columns, count), first = 0;
    if (texts == SIZE_MAX || count == 1) return OK;
    if (groups->count == 0) return reject_shared(config, columns[texts].name);
    for (size_t i = 0; i < groups->count && first < count; first += groups->items[i++].count) {
        size_t size = groups->items[i].count;
        texts = find_texts(columns + first, first + size <= count ? size : count - first);
        if (texts != SIZE_MAX && size > 1) return reject_shared(config, columns[first + texts].name);
    }
    return OK;
}

/* Reads the tokenizer of the columns, that of the trained model if [config] has one; none is left to text_columns_fit.
 * STATUS_USAGE for a column of texts that shares its input with other columns, STATUS_DATA for a file that cannot be
 * read. */
static status text_columns_open(const struct dataset_config *config, const struct source *source,
                                struct text_columns *out) {
    size_t texts = find_texts(source->columns, source->input_size);
    if (texts == SIZE_MAX) return OK;
    SCOPED_ARENA arena = arena_create();
    struct column_rules rules = column_rules_index(arena, &config->rules);
    const struct column_rule *rule = column_rule_find(&rules, source->columns[texts].name);
    const char *trained = config->request.is_trained ? config->request.trained_tokenizer : NULL;
    if (config->request.is_trained && !trained)
        return status_data("the checkpoint has columns of texts, but no tokenizer (data/tokenizer)");
    if (!config->request.is_trained) TRY(check_inputs(config, source->columns, source->input_size));
    if (!config->request.is_trained && (!rule || !rule->tokenizer)) return OK;
    return tokenizer_open(rule ? rule->tokenizer : NULL, "dataset.columns", trained, &out->json, &out->tokenizer);
}

/* Makes the tokenizer from the words of the training rows, if the columns have none. */
static status text_columns_fit(const struct source *source, const struct fit_rows *rows, struct text_columns *texts) {
    if (texts->tokenizer || find_texts(source->columns, source->input_size) == SIZE_MAX) return OK;
    SCOPED_TEXT json = {0};
    TRY(preparation_make_tokenizer(source->columns, source->input_size, rows, &json));
    return tokenizer_open(NULL, NULL, text_string(&json), &texts->json, &texts->tokenizer);
}

static void text_columns_close(struct text_columns *texts) {
    tokenizer_destroy(texts->tokenizer);
    buffer_free(texts->json);
    *texts = (struct text_columns){0};
}

/* ---- classes ---- */

/* Classes of the training rows: a warning about those that none has, and `weight: balanced` of a loss of classes:
 * scikit-learn's compute_class_weight, of the training rows. */

#define MAX_CLASSES ((int64_t)1 << 24) /* a larger class is rather an identifier than the output of a model */

/* weights (n_classes): rows / (classes * rows of the class), of the rows and classes that are counted. A class without
 * training rows has the weight 1. */
static void weigh(const struct dataset_config *config, const int64_t *classes, size_t rows, size_t n_classes,
                  double *weights) {
    size_t counted = 0, present = 0;
    for (size_t i = 0; i < rows; i++) {
        if (classes[i] < 0 || (config->request.ignored.is_set && classes[i] == config->request.ignored.value)) continue;
        weights[classes[i]]++;
        counted++;
    }
    for (size_t c = 0; c < n_classes; c++) present += weights[c] > 0;
    for (size_t c = 0; c < n_classes; c++)
        weights[c] = weights[c] > 0 ? (double)counted / ((double)present * weights[c]) : 1;
}

/* With balances_classes: sets the weights of [info], in the arena of [dataset]. STATUS_USAGE unless a row has one
 * class. */
static status class_weights_set(struct dataset *dataset, const struct dataset_config *config) {
    struct dataset_info *info = &dataset->info;
    if (!config->request.balances_classes || config->request.without_targets) return OK;
    info->class_weights = config->request.trained_class_weights;
    if (info->class_weights.count) return OK;
    if (info->target_kind != TARGET_CLASS || info->target_size != 1 || info->input_kind == INPUT_TOKENS)
        return status_usage("loss.weight: balanced needs one class per row; give a list of numbers");
    if (info->classes > MAX_CLASSES)
        return status_data("loss.weight: balanced: the largest class is %lld; at most %lld classes are counted",
                           (long long)info->classes - 1, (long long)MAX_CLASSES);
    SCOPED_BUFFER void *classes = NULL;
    size_t n = (size_t)info->classes;
    TRY(rows_alloc(info->train_rows, sizeof(int64_t), "the classes", &classes));
    status s = dataset_train_classes(dataset, classes);
    info->class_weights =
        (struct real_list){.items = arena_alloc(dataset->arena, (n + 1) * sizeof(double)), .count = n};
    for (size_t c = 0; c < n; c++) info->class_weights.items[c] = 0;
    if (!s) weigh(config, classes, info->train_rows, n, info->class_weights.items);
    return s;
}

static void mark(const int64_t *classes, struct selection rows, size_t count, const struct table *table,
                 int64_t n_classes, bool *marks) {
    for (size_t i = 0; i < count; i++) {
        int64_t of = classes[selection_row(&rows, i)];
        if (of >= 0 && of < n_classes && !(table->ignored.is_set && of == table->ignored.value)) marks[of] = true;
    }
}

/* Marks the classes of all rows of a table as seen, and those of training rows as trained. */
static status mark_classes(struct dataset *dataset, struct table *table, bool *seen, bool *trained) {
    SCOPED_BUFFER void *classes = NULL;
    const struct dataset_info *info = &dataset->info;
    const struct dataset_rows *train = &dataset->parts[DATASET_TRAIN];
    TRY(rows_alloc(table->rows, sizeof(int64_t), "the classes", &classes));
    TRY(table_classes(table, classes));
    mark(classes, (struct selection){0}, table->rows, table, info->classes, seen);
    if (table == train->table) mark(classes, train->rows, info->train_rows, table, info->classes, trained);
    return OK;
}

#define MAX_NAMED 5 /* classes of the warning */

static void warn_absent(struct dataset *dataset, const bool *seen, const bool *trained) {
    SCOPED_TEXT names = {0};
    size_t count = 0;
    for (size_t c = 0; c < (size_t)dataset->info.classes; c++) {
        if (!seen[c] || trained[c] || ++count > MAX_NAMED) continue;
        text_add(&names, count == 1 ? "" : ", ");
        if (c < dataset->labels.count) {
            text_add(&names, "'");
            text_add_value(&names, dataset->labels.items[c], TEXT_MAX_NAME);
            text_add(&names, "'");
        } else {
            text_printf(&names, "%zu", c);
        }
    }
    if (count > MAX_NAMED) text_printf(&names, " and %zu more", count - MAX_NAMED);
    if (count)
        dataset->notes.items[dataset->notes.count++] =
            arena_printf(dataset->arena,
                         "warning: %zu class%s no training row, so that the model cannot learn %s: %s (dataset.split: "
                         "stratify divides each class, shuffle mixes sorted rows)",
                         count, count == 1 ? " has" : "es have", count == 1 ? "it" : "them", text_string(&names));
}

/* Adds a warning about classes of the rows that no training row has; reads all targets. */
static status classes_warn_absent(struct dataset *dataset, const struct dataset_config *config) {
    const struct dataset_info *info = &dataset->info;
    bool has_classes = info->target_kind == TARGET_CLASS && info->target_size == 1 && info->windows.steps == 0 &&
                       info->input_kind == INPUT_VALUES && info->classes <= MAX_CLASSES;
    if (!has_classes || config->request.is_trained || config->request.without_targets || info->validation_rows == 0)
        return OK;
    SCOPED_BUFFER bool *seen = NULL;
    TRY(rows_alloc((size_t)info->classes, 2 * sizeof *seen, "the classes", &seen));
    bool *trained = seen + info->classes;
    for (int i = 0; i < dataset->n_tables; i++) TRY(mark_classes(dataset, &dataset->tables[i], seen, trained));
    warn_absent(dataset, seen, trained);
    return OK;
}

/* ---- named inputs and targets ---- */

/* named_parts: which values of a row belong to which name, where dataset.inputs or dataset.targets is a mapping. Rows
 * remain vectors of all inputs and of all targets; a name is a range of them. */

/* Values of a row of name [index] of the config's list, and their shape. */
static size_t shape_of(const struct source *source, bool is_target, size_t index, int *dims, int64_t *shape) {
    *dims = 1;
    shape[0] = 1;
    if (source->format->shape_of_name) source->format->shape_of_name(source, is_target, index, dims, shape);
    size_t size = 1;
    for (int i = 0; i < *dims; i++) size *= (size_t)shape[i];
    return size;
}

/* Features of the columns before [column]. */
static size_t first_feature(const struct preparation *preparation, size_t column, size_t features) {
    return column < preparation->count ? preparation->items[column].first : features;
}

static status differs(const struct dataset_config *config, const char *key, size_t named, size_t size) {
    return status_usage("%s: dataset.%s names %zu value%s of a row, but a row has %zu",
                        config->path ? config->path : "synthetic dataset", key, named, text_plural(named, "s"), size);
}

static status name_inputs(const struct dataset_config *config, const struct source *source,
                          const struct preparation *preparation, struct dataset_info *info, struct arena *arena) {
    const struct string_groups *groups = &config->input_groups;
    size_t index = 0, first = 0;
    struct dataset_input *inputs = arena_alloc(arena, (groups->count + 1) * sizeof *inputs);
    for (size_t g = 0; g < groups->count; g++) {
        struct dataset_input *input = &inputs[g];
        *input = (struct dataset_input){.name = arena_copy(arena, groups->items[g].name), .first = first, .dims = 1};
        if (preparation) input->tokens = preparation_tokens(preparation, index, groups->items[g].count);
        for (size_t i = 0; i < groups->items[g].count; i++, index++)
            input->size += preparation ? first_feature(preparation, index + 1, info->input_size) -
                                             first_feature(preparation, index, info->input_size)
                                       : shape_of(source, false, index, &input->dims, input->shape);
        if (groups->items[g].count > 1 || preparation) {
            input->dims = 1;
            input->shape[0] = (int64_t)input->size;
        }
        first += input->size;
    }
    info->inputs = inputs;
    info->input_count = groups->count;
    return groups->count == 0 || first == info->input_size ? OK : differs(config, "inputs", first, info->input_size);
}

const struct ignored_class *dataset_ignored_class(const struct dataset_config *config, const char *target) {
    for (size_t i = 0; i < config->request.class_targets.count; i++)
        if (strcmp(config->request.class_targets.items[i], target) == 0)
            return &config->request.class_targets_ignored[i];
    return NULL;
}

/* Checks the values of a target in all rows, and counts its classes. */
static status check_target(const struct dataset_config *config, struct table *table, struct dataset_target *target) {
    for (enum target_range range = TARGETS_ARE_ANY; range < TARGET_RANGES; range++)
        if (string_list_has(&config->request.range_targets[range], target->name))
            TRY(table_check_range(table, range, target->first, target->size, &target->classes));
    const struct ignored_class *ignored = dataset_ignored_class(config, target->name);
    if (!ignored) return OK;
    struct class_count count;
    class_count_start(&count);
    table->ignored = *ignored;
    TRY(table_count_classes(table, target->first, target->size, &count));
    if (count.classes > TABLE_MAX_FLOAT_CLASS)
        return status_data("dataset.targets: '%s' has the class %lld; the largest with `losses` is %d", target->name,
                           (long long)count.classes - 1, TABLE_MAX_FLOAT_CLASS);
    if (count.classes > target->classes) target->classes = count.classes;
    if (count.first < target->first_class) target->first_class = count.first;
    return OK;
}

/* The target of a dataset without names of targets. */
static void set_whole_target(const struct source *source, struct dataset_target *target) {
    target->size = source->target_size;
    target->dims = source->target_dims;
    memcpy(target->shape, source->target_shape, sizeof target->shape);
}

static status name_targets(const struct dataset_config *config, struct table *tables, int n_tables,
                           struct dataset_info *info, struct arena *arena) {
    struct string_group whole = {DATASET_TARGET_NAME, config->targets.count};
    struct string_groups groups = config->target_groups;
    const struct source *source = tables[0].source;
    if (source->target_size == 0) groups.count = 0;
    if (groups.count == 0 && source->target_size > 0) groups = (struct string_groups){&whole, 1};
    size_t index = 0, first = 0;
    struct dataset_target *targets =
        arena_alloc(arena, (groups.count + config->request.input_targets.count + 1) * sizeof *targets);
    for (size_t g = 0; g < groups.count; g++) {
        struct dataset_target *target = &targets[g];
        *target = (struct dataset_target){
            .name = arena_copy(arena, groups.items[g].name), .first = first, .first_class = INT64_MAX};
        for (size_t i = 0; i < groups.items[g].count; i++, index++)
            target->size += shape_of(source, true, index, &target->dims, target->shape);
        if (groups.items[g].count != 1) target->dims = 0;
        if (groups.items == &whole) set_whole_target(source, target);
        first += target->size;
    }
    if (groups.count && first != source->target_size) return differs(config, "targets", first, source->target_size);
    for (size_t g = 0; g < groups.count; g++) {
        for (int i = 0; i < n_tables; i++) TRY(check_target(config, &tables[i], &targets[g]));
        if (targets[g].first_class == INT64_MAX) targets[g].first_class = 0;
    }
    info->targets = targets;
    info->target_count = groups.count;
    return OK;
}

/* Adds the inputs that are also targets. */
static status add_input_targets(const struct dataset_config *config, struct dataset_info *info) {
    struct dataset_target *targets = (struct dataset_target *)info->targets;
    for (size_t i = 0; i < config->request.input_targets.count; i++) {
        const char *name = config->request.input_targets.items[i];
        struct dataset_input whole = {.name = DATASET_INPUT_NAME, .size = info->input_size, .dims = info->input_dims};
        memcpy(whole.shape, info->input_shape, sizeof whole.shape);
        const struct dataset_input *input = info->input_count == 0 ? &whole : NULL;
        for (size_t n = 0; n < info->input_count; n++)
            if (strcmp(info->inputs[n].name, name) == 0) input = &info->inputs[n];
        if (!input || strcmp(input->name, name) != 0)
            return status_usage("losses: the target '%s' is neither a target nor an input of the dataset", name);
        struct dataset_target *target = &targets[info->target_count++];
        *target = (struct dataset_target){.name = name,
                                          .first = info->target_size,
                                          .size = input->size,
                                          .dims = input->dims,
                                          .is_input = true,
                                          .input_first = input->first};
        memcpy(target->shape, input->shape, sizeof target->shape);
        info->target_size += input->size;
    }
    return OK;
}

/* Sets inputs and targets of [info], whose sizes are set, and checks the values of the targets: STATUS_DATA with the
 * place of the first that does not fit its loss. [preparation]: NULL: none. */
static status dataset_name_parts(const struct dataset_config *config, struct table *tables, int n_tables,
                                 const struct preparation *preparation, struct dataset_info *info,
                                 struct arena *arena) {
    TRY(name_inputs(config, tables[0].source, preparation, info, arena));
    if (!config->request.has_losses) return OK;
    TRY(name_targets(config, tables, n_tables, info, arena));
    return add_input_targets(config, info);
}

void dataset_copy_inputs(const struct dataset_info *info, const float *inputs, size_t count, float *targets) {
    for (size_t t = 0; t < info->target_count; t++) {
        const struct dataset_target *target = &info->targets[t];
        for (size_t i = 0; target->is_input && i < count; i++)
            memcpy(targets + i * info->target_size + target->first, inputs + i * info->input_size + target->input_first,
                   target->size * sizeof *targets);
    }
}

/* ---- files that are in both parts ---- */

/* A pattern such as data/part-*.csv easily names the validation file, too. Files are compared by their inodes. */

/* The files that [path], and the list after it, names; a folder of images, or its file of labels, is one. */
static status list_files(const struct dataset_config *config, bool is_validation, struct arena *arena,
                         struct string_list *files) {
    const char *path = is_validation ? config->validation.path : config->path;
    const char *labels = is_validation ? config->validation.targets : config->image.labels;
    if (!dataset_format_of(config, path)->is_folder)
        return file_list_expand(path, dataset_others(config, is_validation), arena, files);
    files->items = arena_alloc(arena, sizeof *files->items);
    files->items[files->count++] = config->image.labels ? labels : path;
    return OK;
}

static status stat_all(const struct string_list *files, struct arena *arena, struct io_info **out) {
    *out = arena_alloc(arena, (files->count + 1) * sizeof **out);
    for (size_t i = 0; i < files->count; i++)
        if (files->items[i]) TRY(io_stat(files->items[i], &(*out)[i]));
    return OK;
}

/* Adds the first file of both lists and the number of the others; returns how many there are. */
static size_t add_common(const struct string_list *train, const struct io_info *train_info,
                         const struct string_list *validation, const struct io_info *info, struct text *out) {
    size_t count = 0;
    for (size_t i = 0; i < validation->count; i++) {
        bool is_common = false;
        for (size_t k = 0; k < train->count && !is_common && info[i].exists; k++)
            is_common = train->items[k] && io_is_same(&info[i], &train_info[k]);
        if (is_common && count++ == 0) text_add(out, validation->items[i]);
    }
    if (count > 1) text_printf(out, " and %zu more", count - 1);
    return count;
}

/* Adds the array of the inputs, as messages name it: ": array 'x': row 0". */
static void add_array(const struct source *source, struct text *out) {
    SCOPED_TEXT place = {0};
    source->format->describe(source, ROW_INPUT, 0, 0, &place);
    const char *array = strstr(text_string(&place), ": array ");
    text_add(out, array ? array : text_string(&place));
}

/* Whether rows of one file are the same in both parts: not of other arrays of an .npz file, or another query. */
static bool reads_alike(const struct dataset *dataset, const struct dataset_config *config) {
    const struct dataset_format *format = dataset_format_of(config, config->validation.path);
    SCOPED_TEXT train = {0}, validation = {0};
    if (format->has_queries && config->validation.query)
        return config->query && strcmp(config->query, config->validation.query) == 0;
    if (format != &dataset_npz) return true;
    add_array(dataset->tables[0].source, &train);
    add_array(dataset->tables[1].source, &validation);
    return strcmp(text_string(&train), text_string(&validation)) == 0;
}

/* A warning about files that are in both parts, in the arena of [dataset]; NULL: there are none, or a trained model
 * uses the dataset. */
static const char *overlap_note(struct dataset *dataset, const struct dataset_config *config) {
    struct string_list train = {0}, validation = {0};
    struct io_info *train_info = NULL, *info = NULL;
    SCOPED_TEXT names = {0};
    const char *note = NULL;
    size_t count = 0;
    if (dataset->n_tables < 2 || config->request.is_trained || !reads_alike(dataset, config)) return NULL;
    SCOPED_ARENA arena = arena_create();
    status s = list_files(config, false, arena, &train);
    if (!s) s = list_files(config, true, arena, &validation);
    if (!s) s = stat_all(&train, arena, &train_info);
    if (!s) s = stat_all(&validation, arena, &info);
    if (!s) count = add_common(&train, train_info, &validation, info, &names);
    if (count)
        note = arena_printf(dataset->arena,
                            "warning: %s %s in dataset.path and in dataset.validation: the model is trained on "
                            "validation rows, so their loss and metrics are better than those of new rows",
                            text_string(&names), count > 1 ? "are" : "is");
    status_free(s);
    return note;
}

#define MAX_BYTE_FEATURES 4096 /* with more scaled features the lookup tables of bytes would be large */

/* ---- opening ---- */

/* Rows to predict may be a single image. */
static status check_folder(const struct dataset_config *config, const char *path) {
    struct io_info info = {0};
    bool may_be_image =
        config->request.without_targets && !config->image.labels && image_is_named(path) && !archive_in_path(path);
    if (may_be_image) TRY(io_stat(path, &info));
    if (may_be_image && !info.exists) return status_data("cannot read the image '%s': %s", path, strerror(ENOENT));
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
    SCOPED_ARENA arena = arena_create();
    TRY(file_list_expand(path, others, arena, &files));
    if (files.count == 1) return open_file(format, config, files.items[0], wants_classes, train, out);
    files_raise_limit(files.count * (format->has_target_file ? 2 : 1)); /* all stay open */
    if (format->concatenates) return open_concatenated(format, config, &files, wants_classes, train, out);
    return joined_supports(format) ? joined_open(format, config, &files, wants_classes, train, out)
                                   : files_are_too_many(path, others, files.count, format->name);
}

status dataset_open_source(const struct dataset_config *config, const char *path, bool wants_classes,
                           const struct source *train, struct source **out) {
    const struct dataset_format *format = config->request.cells ? &dataset_cells : dataset_format_of(config, path);
    if (!format) {
        SCOPED_TEXT names = {0};
        dataset_format_names(&names);
        return status_usage("'%s': unknown file extension; set dataset.format to one of: %s", path ? path : "",
                            text_string(&names));
    }
    if (config->request.skips_bad_rows && (!(format->keys & KEY_COLUMNS) || config->window.steps))
        return status_usage("--skip-bad-rows is for rows of CSV files and SQLite tables%s",
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
    const struct string_list *labels = &config->request.classes;
    bool are_decisions = config->request.target_range == TARGETS_ARE_PROBABILITIES && !config->request.has_losses;
    if (!config->request.is_trained || labels->count == 0 || !config->path || !(wants_classes || are_decisions)) return;
    if (source->labels.count) return;
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
    table->ignored = config->request.ignored;
    use_labels(dataset, config, source, wants_classes, table);
    if (source->input_kind == INPUT_TOKENS && !wants_classes)
        return status_new(
            STATUS_USAGE,
            "dataset: the target of a token is the next token, which is a class; use loss: cross_entropy");
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
    SCOPED_TEXT shapes = {0};
    source_add_shape(train->input_dims, train->input_shape, &shapes);
    text_printf(&shapes, " and %zu target values", train->target_size);
    if (has_shapes) add_target_shape(train, &shapes);
    text_printf(&shapes, ", those of '%s' ", config->validation.path);
    source_add_shape(validation->input_dims, validation->input_shape, &shapes);
    text_printf(&shapes, " and %zu", validation->target_size);
    if (has_shapes) add_target_shape(validation, &shapes);
    return status_data("rows of '%s' have shape %s", config->path, text_string(&shapes));
}

static status open_tables(struct dataset *dataset, const struct dataset_config *config, bool wants_classes) {
    struct source *train = NULL, *validation = NULL;
    TRY(dataset_open_source(config, config->path, wants_classes, NULL, &train));
    TRY(add_table(dataset, config, train, wants_classes));
    if (!config->validation.path) return OK;
    TRY(dataset_open_source(config, config->validation.path, wants_classes, train, &validation));
    TRY(add_table(dataset, config, validation, wants_classes));
    TRY(check_same_shape(config, train, validation));
    static const char where[] = "dataset.validation", other[] = "validation";
    TRY(source_compare_names(train, validation, false, &config->inputs, where, other));
    if (config->request.without_targets) return OK;
    return source_compare_names(train, validation, true, &config->targets, where, other);
}

/* Reads the classes (rows) for a stratified split; the caller frees them with buffer_free. */
static status read_classes(struct table *table, const struct dataset_config *config, void **classes) {
    *classes = NULL;
    if (table->target_kind != TARGET_CLASS && config->request.target_range != TARGETS_ARE_PROBABILITIES)
        return status_usage("dataset.split.stratify: it needs classes as targets, but this loss has other targets");
    if (table->target_size != 1)
        return status_usage("dataset.split.stratify: it needs one class per row, but a row has %zu targets",
                            table->target_size);
    TRY(rows_alloc(table->rows, sizeof(int64_t), "the classes", classes));
    return status_prefix(table_classes(table, *classes), "dataset.split.stratify");
}

/* The same for three parts, the test rows first. */
static status order_three(struct dataset *dataset, const struct dataset_config *config) {
    struct dataset_info *info = &dataset->info;
    struct table *table = &dataset->tables[0];
    struct split_counts counts = {0};
    SCOPED_BUFFER void *classes = NULL;
    if (config->split.group && !dataset->groups)
        TRY(groups_read(config, table, &dataset->groups, &dataset->group_count));
    status s = config->split.stratify ? read_classes(table, config, &classes) : OK;
    struct split_labels labels = {classes, dataset->groups, config->split.group ? dataset->group_count : 0};
    if (!s) s = split_rows_three(&config->split, &labels, table->rows, dataset->order.wide, &counts);
    TRY(status_prefix(s, "%s: dataset.split", config->path ? config->path : "synthetic dataset"));
    info->test_rows = counts.test;
    info->validation_rows = counts.validation;
    info->groups = counts.groups;
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
    TRY(status_prefix(split_rows_grouped(&config->split, dataset->groups, table->rows, info->groups,
                                         dataset->order.wide, &info->validation_rows, &info->validation_groups),
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
    status s = split->time_series
                   ? split_rows_time_series(split, rows, dataset->order.wide, n_validation, &info->train_rows)
               : split->folds ? split_rows_folds(split, classes, rows, dataset->order.wide, n_validation)
                              : split_rows_stratified(split, classes, rows, dataset->order.wide);
    if (!split->time_series) info->train_rows = rows - *n_validation;
    return status_prefix(s, "%s: dataset.split.%s", config->path ? config->path : "synthetic dataset",
                         split->stratify ? "stratify" : "folds");
}

/* The same, for each kind of these splits. */
static status order_parts(struct dataset *dataset, const struct dataset_config *config) {
    SCOPED_BUFFER void *classes = NULL;
    if (config->split.group) return order_groups(dataset, config);
    TRY(config->split.stratify ? read_classes(&dataset->tables[0], config, &classes) : OK);
    return order_rows(dataset, config, classes);
}

/* Assigns the rows to training and validation. */
static status assign_rows(struct dataset *dataset, const struct dataset_config *config) {
    struct table *table = &dataset->tables[0];
    struct dataset_info *info = &dataset->info;
    const char *name = config->path ? config->path : "synthetic dataset";
    if (table->rows == 0) return status_data("%s: there are no rows", name);
    dataset->parts[DATASET_TRAIN].table = dataset->parts[DATASET_TEST].table = table;
    dataset->parts[DATASET_VALIDATION].table = &dataset->tables[dataset->n_tables - 1];
    info->train_rows = info->rows = table->rows;
    if (dataset->n_tables == 2) {
        info->validation_rows = dataset->tables[1].rows;
        if (info->validation_rows > 0) return OK;
        return status_data("%s: there are no validation rows", config->validation.path);
    }
    if (!split_is_given(&config->split)) return OK;
    bool is_ordered = config->split.stratify || config->split.folds || config->split.group;
    bool has_test = split_has_test(&config->split);
    if (!config->split.folds && !config->split.group && !has_test)
        split_sizes(&config->split, table->rows, &info->train_rows, &info->validation_rows);
    bool is_torch = config->split.train > 0;
    if (info->train_rows == 0)
        return status_data("%s: split.%s %g of %zu row%s leaves no training row", name, is_torch ? "train" : "test",
                           is_torch ? config->split.train : config->split.test, table->rows,
                           text_plural(table->rows, "s"));
    bool is_by_series = windowed_splits_series(config);
    if (config->split.shuffle || config->split.folds || is_by_series || has_test) {
        bool is_plain = !config->split.folds && !is_by_series && !has_test;
        TRY(rows_alloc(table->rows, sizeof(int64_t),
                       is_plain ? "the split, which dataset.split.shuffle: false does not need" : "the split",
                       &dataset->order.wide));
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
        split_rows(&config->split, table->rows, dataset->order.wide, &train->first, &validation->first);
    }
    if (is_by_series || is_ordered || has_test) {
        validation->first = info->test_rows;
        train->first = info->test_rows + info->validation_rows;
    }
    order_shrink(&dataset->order, table->rows, table->rows);
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
    bool is_needed = config->request.is_trained ? config->request.preparation != NULL : has_rules(config);
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
                   : status_data("the checkpoint's preparation (data/preparation) has other columns than "
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

static size_t row_of_selection(const void *selection, size_t position) { return selection_row(selection, position); }

static status fit_preparation(struct dataset *dataset, const struct dataset_config *config) {
    struct source *source = dataset->tables[0].source;
    const struct selection *train = &dataset->fit;
    struct fit_rows rows = {.source = source,
                            .source_rows = source->rows,
                            .read_column = source->format->read_column,
                            .is_in_file_order = !source->is_small,
                            .row = order_is_given(&train->order) ? row_of_selection : NULL,
                            .selection = train,
                            .first = train->first,
                            .count = dataset->fit_rows,
                            .tokenizer = dataset->texts.tokenizer};
    struct preparation *fitted = &dataset->preparation;
    if (config->request.is_trained) {
        *fitted = config->request.preparation ? *config->request.preparation : plain_numbers(source, dataset->arena);
        TRY(check_trained(fitted, source));
    } else {
        TRY(text_columns_fit(source, &rows, &dataset->texts));
        rows.tokenizer = dataset->texts.tokenizer;
        TRY(preparation_fit(source->columns, source->input_size, &rows, &config->rules,
                            (enum scale_type)config->scale.type, dataset->arena, fitted));
    }
    return OK;
}

/* Replaces the inputs by the features of their preparation, if they need one. A model that was trained without one sets
 * dataset.divide itself; what its inputs must not have is then rejected by table_prepare, with its place. */
static status prepare(struct dataset *dataset, const struct dataset_config *config) {
    if (!needs_preparation(dataset, config)) return OK;
    bool is_divide_of_model = config->request.is_trained && !config->request.preparation;
    if (!isnan(config->divide) && !is_divide_of_model)
        return status_new(
            STATUS_USAGE,
            "dataset.divide is for inputs that are all numbers; remove it, or scale the columns with dataset.columns");
    TRY(text_columns_open(config, dataset->tables[0].source, &dataset->texts));
    for (int i = 0; i < dataset->n_tables; i++) {
        TRY(table_check_raw(&dataset->tables[i]));
        if (i == 0) TRY(fit_preparation(dataset, config));
        TRY(table_prepare(&dataset->tables[i], &dataset->preparation, dataset->texts.tokenizer,
                          config->request.is_trained, i == 0 ? config->path : config->validation.path, dataset->arena));
    }
    dataset->preparation = preparation_copy(&dataset->preparation, dataset->arena); /* sources may be closed before */
    return OK;
}

/* Labels are copied because the source may be closed before the dataset. */
static void copy_labels(struct dataset *dataset) {
    const struct source *source = dataset->tables[0].source;
    struct string_list labels = source->labels;
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
    dataset->notes.items[dataset->notes.count++] =
        arena_printf(dataset->arena,
                     "warning: the rows (%lld, %lld, %lld) are used as %lld channels of %lld x %lld pixels; if they "
                     "are images (height, width, channels), write dataset.layout: nhwc",
                     (long long)shape[0], (long long)shape[1], (long long)shape[2], (long long)shape[0],
                     (long long)shape[1], (long long)shape[2]);
}

/* Several numbers for each image may be places in it, such as key points, which augmentation does not move. */
static void note_augment(struct dataset *dataset, const struct dataset_config *config) {
    const struct dataset_info *info = &dataset->info;
    bool are_numbers =
        info->target_kind == TARGET_VALUES && !info->is_binary && info->target_dims <= 1 && info->target_size > 1;
    if (!augment_moves(&config->augment) || !are_numbers) return;
    dataset->notes.items[dataset->notes.count++] =
        arena_printf(dataset->arena,
                     "warning: dataset.augment moves the pixels of an image, but not its %zu targets; leave it out if "
                     "they are coordinates",
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
    if (!source->columns || !source->is_small || config->request.is_trained || config->inputs.count ||
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
    info->has_ignored = count.has_ignored;
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
    info->is_binary = !wants_classes && config->request.target_range == TARGETS_ARE_PROBABILITIES;
    if (wants_classes) TRY(count_classes(dataset));
    for (int i = 0; i < dataset->n_tables && config->request.target_range && source->target_size > 0; i++)
        TRY(table_check_range(&dataset->tables[i], config->request.target_range, 0, source->target_size,
                              &info->classes));
    TRY(windowed_describe(dataset));
    return dataset_name_parts(config, dataset->tables, dataset->n_tables, dataset_preparation(dataset), info,
                              dataset->arena);
}

/* Fits the scale of the targets, or takes that of the checkpoint. */
static status scale_targets(struct dataset *dataset, const struct dataset_config *config) {
    struct table *table = &dataset->tables[0];
    const struct target_scale *trained = config->request.trained_target_scale;
    size_t targets = dataset->info.target_size;
    enum target_scale_type type = (enum target_scale_type)config->target_scale;
    if (config->request.is_trained) type = trained ? trained->type : TARGET_SCALE_NONE;
    if (type == TARGET_SCALE_NONE || table->target_size == 0 || dataset->info.target_kind == TARGET_CLASS) return OK;
    if (trained && trained->size != targets)
        return status_data("the model was trained with %zu targets per row, but a row has %zu", trained->size, targets);
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

/* Whether [bytes] of all tables are kept in memory; rows of tokens are only where the source is small. */
static bool fits(const struct dataset *dataset, const struct dataset_config *config,
                 double (*bytes_of)(const struct table *)) {
    double bytes = 0;
    bool is_small = true, has_tokens = false;
    for (int i = 0; i < dataset->n_tables; i++) {
        bytes += bytes_of(&dataset->tables[i]);
        bytes += table_file_target_bytes(&dataset->tables[i]);
        is_small = is_small && dataset->tables[i].source->is_small;
        has_tokens = has_tokens || dataset->tables[i].source->input_kind == INPUT_TOKENS;
    }
    if (has_tokens) return is_small;
    return is_small || bytes <= (double)config->cache_mb * 1048576;
}

static bool fits_in_memory(const struct dataset *dataset, const struct dataset_config *config) {
    return fits(dataset, config, table_memory_bytes);
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
    bool has_order =
        fits(dataset, config, table_bytes); /* the sums of statistics depend on it, not on what is stored */
    for (int i = 0; i < dataset->n_tables; i++) dataset->tables[i].is_in_file_order = !has_order;
    for (int i = 0; i < dataset->n_tables; i++) TRY(load_table(dataset, &dataset->tables[i], needs_fit, &digest));
    uint8_t hash[DIGEST_SIZE];
    digest_finish(&digest, hash);
    digest_hex(hash, info->fingerprint);

    if (needs_fit)
        TRY(scaler_fit(&dataset->scaler, config->path ? config->path : "synthetic dataset", &dataset->tables[0],
                       &dataset->fit, dataset->fit_rows));
    TRY(dataset_prepare_augment(dataset, config));
    for (int i = 0; i < dataset->n_tables; i++) TRY(table_finish(&dataset->tables[i]));
    return OK;
}

static status open_rows(struct dataset *dataset, const struct dataset_config *config, bool wants_classes) {
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
    if (fits_in_memory(dataset, config) && !config->draw.type) TRY(classes_warn_absent(dataset, config));
    TRY(dataset->is_metadata ? dataset_prepare_augment(dataset, config) : load(dataset, config));
    windowed_finish(dataset);
    return OK;
}

static status open_all(struct dataset *dataset, const struct dataset_config *config, bool wants_classes) {
    if (config->draw.type == DRAW_NONE) return open_rows(dataset, config, wants_classes);
    struct dataset_config of_rows = drawn_row_config(config);
    TRY(open_rows(dataset, &of_rows, true));
    TRY(drawn_open(dataset, config, wants_classes));
    return config->request.has_losses ? add_input_targets(config, &dataset->info) : OK;
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
    if (s) dataset_close(dataset);
    if (!s) *out = dataset;
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
    order_free(&dataset->order);
    buffer_free(dataset->groups);
    for (int i = 0; i < DATASET_PARTS; i++) order_free(&dataset->window_starts[i]);
    arena_destroy(dataset->arena);
    pthread_mutex_destroy(&dataset->reading);
    free(dataset);
}
