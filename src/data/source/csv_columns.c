/* The header of a CSV file, and which of its columns are inputs and targets. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "data/columns/columns.h"
#include "data/source/csv_header.h"
#include "data/source/csv_source.h"

bool csv_is_utf8(const char *text) {
    size_t left = strlen(text);
    uint32_t code;
    for (size_t bytes; left > 0; text += bytes, left -= bytes)
        if ((bytes = utf8_decode(text, left, &code)) == 0) return false;
    return true;
}

const char *csv_printable(const struct csv *csv, const char *text) {
    struct text out = {0};
    text_add_value(&out, text, TEXT_MAX_NAME);
    const char *copy = arena_copy(csv->arena, text_string(&out));
    text_free(&out);
    return copy;
}

void csv_add_note(struct csv *csv, const char *clause) {
    if (csv->base.note && strstr(csv->base.note, clause)) return; /* of an earlier file */
    csv->base.note = csv->base.note ? arena_printf(csv->arena, "%s; %s", csv->base.note, clause)
                                    : arena_printf(csv->arena, "%s: %s", csv->path, clause);
}

static void list_columns(const struct csv *csv, struct text *out) {
    for (size_t i = 0; i < csv->n_columns && out->length < 200; i++) {
        text_add(out, i ? ", " : "");
        text_add_value(out, csv->names[i], TEXT_MAX_NAME);
    }
    if (out->length >= 200) text_add(out, ", ...");
}

const char *csv_name(const char *text, size_t index, struct arena *arena) {
    return text[0] ? arena_copy(arena, text) : arena_printf(arena, "Unnamed: %zu", index);
}

static status read_names(struct csv *csv, const struct dataset_config *config) {
    bool has_record;
    TRY(csv->input->next(csv, &has_record));
    if (!has_record) return status_new(STATUS_DATA, "%s: the file is empty", csv->path);
    size_t n = csv->n_columns = csv->n_fields = csv->reader.count;
    csv->fields = arena_alloc(csv->arena, n * sizeof *csv->fields);
    for (size_t i = 0; i < n; i++) csv->fields[i] = i;
    csv->names = arena_alloc(csv->arena, (n + 1) * sizeof *csv->names); /* ends with NULL */
    csv->roles = arena_alloc(csv->arena, n * sizeof *csv->roles);
    csv->input_columns = arena_alloc(csv->arena, n * sizeof *csv->input_columns);
    csv->target_columns = arena_alloc(csv->arena, n * sizeof *csv->target_columns);
    csv->has_no_header = config->csv.has_no_header && !csv->records;
    for (size_t i = 0; i < n; i++) {
        csv->names[i] = csv->has_no_header ? arena_printf(csv->arena, "%zu", i)
                                           : csv_name(csv->reader.fields[i].text, i, csv->arena);
        csv->roles[i] =
            (struct role){.at = NOT_USED, .target_at = NOT_USED, .has_no_name = csv->reader.fields[i].text[0] == 0};
    }
    if (n == 1 && !csv->records && strpbrk(csv->names[0], ",;\t|"))
        return status_new(
            STATUS_DATA,
            "%s:line 1: there is only one field, '%s'; set dataset.csv.delimiter to the character between "
            "the fields, now '%s'",
            csv->path, csv_printable(csv, csv->names[0]),
            csv->reader.delimiter == '\t' ? "tab" : (char[]){csv->reader.delimiter, 0});
    return OK;
}

/* Which names a header needs, where a model knows them: in the order of the training if the number of fields fits. */
static void advise_header(const struct csv *csv, const struct dataset_config *config, struct text *out) {
    const struct column_list *list = &config->columns;
    size_t inputs = columns_count(list, COLUMN_INPUT), targets = columns_count(list, COLUMN_TARGET);
    struct text input_names = {0}, target_names = {0};
    if (list->count == 0) return;
    columns_add_names(list, COLUMN_INPUT, &input_names);
    columns_add_names(list, COLUMN_TARGET, &target_names);
    if (csv->n_columns == inputs + targets && targets > 0)
        text_printf(out, "; with the columns of the training in their order it would be: %s, %s",
                    text_string(&input_names), text_string(&target_names));
    else
        text_printf(out, "; the row has %zu field%s, and the model was trained with the inputs %s and the target %s%s",
                    csv->n_columns, text_plural(csv->n_columns, "s"), text_string(&input_names),
                    text_string(&target_names), config->without_targets ? ", which 'predict' does not need" : "");
    text_free(&input_names);
    text_free(&target_names);
}

/* Rejects a file without header, whose first row would be lost, unless the config names columns. A model knows the
 * names of its columns, so that only numbers can be a row then. */
static status check_header(const struct csv *csv, const struct dataset_config *config) {
    char decimal = csv->decimal;
    double number;
    size_t numbers = 0;
    for (size_t i = 0; i < csv->n_columns; i++) numbers += csv_decimal(csv->names[i], &decimal, &number);
    bool is_named = config->inputs.count || config->targets.count || config->rules.count;
    if (is_named || (config->is_trained && numbers == 0) || !csv_first_is_row(csv->path, &config->csv)) return OK;
    struct text advice = {0};
    if (!config->is_trained)
        text_add(&advice,
                 ", or write dataset.csv: {no_header: true}, with which the columns are named 0, 1, 2, ... (if "
                 "it is a header, name its columns in dataset.inputs or dataset.targets)");
    advise_header(csv, config, &advice);
    status s = status_new(STATUS_DATA,
                          "%s:line 1: expected a header with column names, but this is a row of %s ('%s', ...); insert "
                          "a line with names before it%s",
                          csv->path, numbers > 0 ? "numbers" : "values like those below",
                          csv_printable(csv, csv->names[0]), text_string(&advice));
    text_free(&advice);
    return s;
}

/* Rows to predict need no header: when the first line has as many numbers as the model has inputs, and none is a column
 * name, it is a row, and the columns have the order of the training. */
static void name_columns(struct csv *csv, const struct dataset_config *config) {
    const struct column_list *list = &config->columns;
    double number;
    char decimal = csv->decimal;
    if (!config->without_targets || csv->n_columns != columns_count(list, COLUMN_INPUT)) return;
    const char **known = arena_alloc(csv->arena, (list->count + 1) * sizeof *known);
    for (size_t i = 0; i < list->count; i++) known[i] = list->items[i].name;
    qsort(known, list->count, sizeof *known, csv_compare_names);
    for (size_t i = 0; i < csv->n_columns; i++)
        if (!csv_decimal(csv->names[i], &decimal, &number) ||
            bsearch(&csv->names[i], known, list->count, sizeof *known, csv_compare_names))
            return;
    csv->has_no_header = true;
    struct text names = {0};
    columns_add_names(list, COLUMN_INPUT, &names);
    for (size_t i = 0; i < csv->n_columns; i++) csv->names[i] = list->items[i].name;
    csv_add_note(csv, arena_printf(csv->arena, "there is no header; the columns must have the order of training: %s",
                                   text_string(&names)));
    text_free(&names);
}

int csv_compare_names(const void *left, const void *right) {
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static struct name_index index_names(const struct csv *csv, const char *const *names, size_t count) {
    struct name_index index = name_index_create(csv->arena, count);
    for (size_t i = 0; i < count; i++) name_index_add(&index, names[i], i);
    name_index_sort(&index);
    return index;
}

static status sort_names(struct csv *csv) {
    csv->by_name = index_names(csv, csv->names, csv->n_columns);
    const struct sorted_name *sorted = csv->by_name.items;
    for (size_t i = 1; i < csv->n_columns; i++)
        if (strcmp(sorted[i].name, sorted[i - 1].name) == 0)
            return status_new(STATUS_DATA, "%s:line 1: duplicate column '%s'", csv->path,
                              csv_printable(csv, sorted[i].name));
    return OK;
}

status csv_read_header(struct csv *csv, const struct dataset_config *config, const struct csv *train) {
    TRY(read_names(csv, config));
    if (!train && !csv->has_no_header && csv_has_trained_columns(config)) name_columns(csv, config);
    if (!train && !csv->has_no_header && !csv->records) TRY(check_header(csv, config));
    return sort_names(csv);
}

/* [known_from]: the source of the name, for the message; NULL: the config. */
status csv_find_column(const struct csv *csv, const char *name, const char *known_from, size_t *column) {
    *column = name_index_find(&csv->by_name, name);
    if (*column != SIZE_MAX) return OK;
    const char *nearest = schema_nearest(name, csv->names);
    struct text columns = {0};
    list_columns(csv, &columns);
    status s =
        status_new(STATUS_DATA, "%s: there is no column '%s'%s%s%s%s%s; the columns are: %s", csv->path, name,
                   known_from ? ", which is in " : "", known_from ? known_from : "", nearest ? "; did you mean '" : "",
                   nearest ? csv_printable(csv, nearest) : "", nearest ? "'" : "", text_string(&columns));
    text_free(&columns);
    return s;
}

/* Makes a column that is used as one both input and target, which windows of a series may have. */
static void use_twice(struct csv *csv, size_t column, bool is_target) {
    struct role *role = &csv->roles[column];
    size_t input = is_target ? role->at : csv->base.input_size++;
    size_t target = is_target ? csv->base.target_size++ : role->at;
    csv->input_columns[input] = csv->target_columns[target] = column;
    role->is_target = false;
    role->at = input;
    role->target_at = target;
}

static status use_column(struct csv *csv, const struct dataset_config *config, size_t column, bool is_target) {
    struct role *role = &csv->roles[column];
    bool is_other = role->is_target != is_target && role->target_at == NOT_USED;
    if (role->at != NOT_USED && config->window.steps > 0 && !role->is_weight && !role->is_group && is_other) {
        use_twice(csv, column, is_target);
        return OK;
    }
    if (role->at != NOT_USED && role->is_weight)
        return status_new(STATUS_DATA, "%s: column '%s' is used twice, as %s and by dataset.weights", csv->path,
                          csv_printable(csv, csv->names[column]), is_target ? "target" : "input");
    if (role->at != NOT_USED && !role->is_group)
        return status_new(STATUS_DATA, "%s: column '%s' is used twice, as %s; see dataset.inputs and dataset.targets",
                          csv->path, csv_printable(csv, csv->names[column]),
                          role->is_target != is_target ? "input and as target"
                          : is_target                  ? "target"
                                                       : "input");
    if (role->at != NOT_USED && role->is_group)
        return status_new(STATUS_DATA, "%s: column '%s' is used twice, as %s and by %s", csv->path,
                          csv_printable(csv, csv->names[column]), is_target ? "target" : "input", csv->group_key);
    size_t *count = is_target ? &csv->base.target_size : &csv->base.input_size;
    (is_target ? csv->target_columns : csv->input_columns)[*count] = column;
    role->is_target = is_target;
    role->at = (*count)++;
    return OK;
}

static status use_columns(struct csv *csv, const struct dataset_config *config, const struct string_list *names,
                          bool is_target) {
    for (size_t i = 0; i < names->count; i++) {
        size_t column;
        TRY(csv_find_column(csv, names->items[i], NULL, &column));
        TRY(use_column(csv, config, column, is_target));
    }
    return OK;
}

/* The column of dataset.weights, which is not read for predictions. */
static status use_weights(struct csv *csv, const struct dataset_config *config) {
    if (!config->weights || config->without_targets) return OK;
    TRY(status_prefix(csv_find_column(csv, config->weights, NULL, &csv->weight_column), "dataset.weights"));
    csv->roles[csv->weight_column].is_weight = true;
    csv->roles[csv->weight_column].at = 0;
    return OK;
}

/* The column of dataset_group. */
static status use_groups(struct csv *csv, const struct dataset_config *config) {
    csv->group_key = dataset_group_key(config);
    if (!dataset_group(config)) return OK;
    TRY(status_prefix(csv_find_column(csv, dataset_group(config), NULL, &csv->group_column), "%s", csv->group_key));
    struct role *role = &csv->roles[csv->group_column];
    if (role->at != NOT_USED)
        return status_new(STATUS_DATA, "%s: column '%s' is used twice, by dataset.weights and by %s", csv->path,
                          csv_printable(csv, csv->names[csv->group_column]), csv->group_key);
    role->is_group = true;
    role->at = 0;
    return OK;
}

static bool is_group(const struct dataset_config *config, const char *name) {
    const char *groups[] = {config->split.group, config->window.group};
    for (size_t i = 0; i < 2; i++)
        if (groups[i] && strcmp(groups[i], name) == 0) return true;
    return false;
}

static bool is_weights(const struct dataset_config *config, const char *name) {
    return config->weights && strcmp(config->weights, name) == 0;
}

struct column_list csv_columns_of(const struct csv *csv, struct arena *arena) {
    size_t count = csv->base.input_size + csv->base.target_size;
    struct column_list list = {dataset_csv.name, arena_alloc(arena, (count + 1) * sizeof *list.items), count};
    for (size_t i = 0; i < csv->base.input_size; i++)
        list.items[i] = (struct named_column){csv->names[csv->input_columns[i]], COLUMN_INPUT};
    for (size_t i = 0; i < csv->base.target_size; i++)
        list.items[csv->base.input_size + i] = (struct named_column){csv->names[csv->target_columns[i]], COLUMN_TARGET};
    return list;
}

/* ---- roles ---- */

/* Whether the config says not to use the column. */
static bool is_ignored(const struct csv *csv, const char *name) {
    const struct column_rule *rule = column_rule_find(&csv->rules, name);
    return rule && rule->type == COLUMN_IGNORED;
}

static bool is_in_order(const struct csv *csv) {
    for (size_t i = 1; i < csv->base.input_size; i++)
        if (csv->input_columns[i] < csv->input_columns[i - 1]) return false;
    for (size_t i = 1; i < csv->base.target_size; i++)
        if (csv->target_columns[i] < csv->target_columns[i - 1]) return false;
    return true;
}

/* Makes a note about columns that are not in [list], and about a different order. */
static void note_columns(struct csv *csv, const struct dataset_config *config, const struct column_list *list) {
    struct text note = {0}, ignored = {0};
    struct column_index trained = columns_index(csv->arena, list);
    for (size_t i = 0; i < csv->n_columns && ignored.length < 200; i++)
        if (csv->roles[i].at == NOT_USED && !columns_have_name(&trained, csv->names[i]) &&
            !is_ignored(csv, csv->names[i]) && !is_weights(config, csv->names[i]) && !is_group(config, csv->names[i]))
            text_printf(&ignored, "%s%s", ignored.length ? ", " : "", csv_printable(csv, csv->names[i]));
    bool was_chosen = config->inputs.count > 0; /* then other columns and another order are expected */
    if (!was_chosen && !is_in_order(csv))
        text_add(&note, "the columns have another order than in training and are read by name");
    if (!was_chosen && ignored.length)
        text_printf(&note, "%scolumns that were not used in training are ignored: %s%s", note.length ? "; " : "",
                    text_string(&ignored), ignored.length >= 200 ? ", ..." : "");
    if (note.length) csv_add_note(csv, text_string(&note));
    text_free(&note);
    text_free(&ignored);
}

/* Uses the columns of [list], found by name. */
static status use_named_columns(struct csv *csv, const struct dataset_config *config, const struct column_list *list,
                                const char *known_from) {
    for (size_t i = 0; i < list->count; i++) {
        const struct named_column *named = &list->items[i];
        size_t column;
        if (named->role == COLUMN_TARGET && config->without_targets) continue;
        TRY(csv_find_column(csv, named->name, known_from, &column));
        TRY(use_column(csv, config, column, named->role == COLUMN_TARGET));
    }
    note_columns(csv, config, list);
    return OK;
}

static status use_same_columns(struct csv *csv, const struct dataset_config *config, const struct csv *train) {
    struct column_list list = csv_columns_of(train, csv->arena);
    return use_named_columns(csv, config, &list, arena_printf(csv->arena, "'%s'", train->path));
}

static status use_trained_columns(struct csv *csv, const struct dataset_config *config) {
    TRY(columns_check_key(&config->columns, COLUMN_INPUT, &config->inputs));
    if (!config->without_targets) TRY(columns_check_key(&config->columns, COLUMN_TARGET, &config->targets));
    return use_named_columns(csv, config, &config->columns, "the data that the model was trained with");
}

bool csv_has_trained_columns(const struct dataset_config *config) {
    return config->columns.count && strcmp(config->columns.format, dataset_csv.name) == 0;
}

static size_t choose_target(const struct csv *csv) {
    struct target_choice choice = {0};
    for (size_t i = 0; i < csv->n_columns; i++)
        target_choice_add(&choice, i, csv->names[i], !csv->roles[i].has_no_name);
    return choice.column;
}

/* Whether [column] is a target by the config. */
static bool is_target(const struct csv *csv, size_t column) {
    if (csv->config_targets.count == 0) return column == csv->default_target;
    return name_index_find(&csv->config_targets, csv->names[column]) != SIZE_MAX;
}

/* `y: category` of the target: its numbers are labels. */
static status check_target_rule(const struct csv *csv, const struct column_rule *rule) {
    bool has_more = rule->is_given.missing || rule->is_given.fill || rule->is_given.indicator ||
                    rule->is_given.encoding || rule->is_given.unknown || rule->is_given.scale;
    if (rule->type == COLUMN_CATEGORY && !has_more) return OK;
    return status_new(STATUS_USAGE,
                      "dataset.columns: '%s' is a target, whose only rule is `category`: its values, also numbers, are "
                      "the labels of classes; the others are for inputs%s",
                      csv_printable(csv, rule->name),
                      csv->are_targets_inputs ? ". To use it as a target only, remove the rule and name the inputs in "
                                                "dataset.inputs"
                                              : "");
}

/* Every entry of dataset.columns must be for an input, the target, or a column that is ignored. */
static status check_rules(const struct csv *csv, const struct dataset_config *config) {
    const struct column_rule *rules = config->rules.items;
    for (size_t i = 0; i < config->rules.count; i++) {
        size_t column;
        TRY(status_prefix(csv_find_column(csv, rules[i].name, NULL, &column), "dataset.columns"));
        const struct role *role = &csv->roles[column];
        bool is_ignored = rules[i].type == COLUMN_IGNORED,
             is_input = role->at != NOT_USED && !role->is_target && !role->is_weight && !role->is_group;
        if (is_ignored && is_input)
            return status_new(STATUS_USAGE, "dataset.columns: '%s' is ignored, but dataset.inputs lists it",
                              csv_printable(csv, rules[i].name));
        if (is_input) continue;
        if (is_weights(config, rules[i].name))
            return status_new(STATUS_USAGE,
                              "dataset.columns: '%s' is the column of dataset.weights, and the rules are "
                              "for inputs",
                              csv_printable(csv, rules[i].name));
        if (!is_ignored && is_group(config, rules[i].name))
            return status_new(STATUS_USAGE, "dataset.columns: '%s' is the column of %s, and the rules are for inputs",
                              csv_printable(csv, rules[i].name), csv->group_key);
        if (is_target(csv, column))
            TRY(check_target_rule(csv, &rules[i]));
        else if (!is_ignored)
            return status_new(STATUS_USAGE,
                              "dataset.columns: '%s' is not listed by dataset.inputs, and the rules are for inputs",
                              csv_printable(csv, rules[i].name));
    }
    return OK;
}

static bool is_default_input(const struct csv *csv, const struct dataset_config *config, size_t column) {
    bool may_be_input = csv->are_targets_inputs || (csv->roles[column].at == NOT_USED && !is_target(csv, column));
    return may_be_input && !is_ignored(csv, csv->names[column]) && !is_weights(config, csv->names[column]) &&
           !is_group(config, csv->names[column]) &&
           (!csv->roles[column].has_no_name || column_rule_find(&csv->rules, csv->names[column]));
}

static void note_unnamed(struct csv *csv, const struct dataset_config *config) {
    for (size_t i = 0; i < csv->n_columns && config->inputs.count == 0; i++)
        if (csv->roles[i].has_no_name && csv->roles[i].at == NOT_USED && !is_ignored(csv, csv->names[i])) {
            csv_add_note(csv, arena_printf(csv->arena,
                                           "column %zu has no name and is not used; dataset.columns: "
                                           "{\"%s\": number} uses it",
                                           i + 1, csv->names[i]));
            return;
        }
}

/* The numbers of a row that the model reads have no names: of another file, whose columns do, there must be as many, in
 * the same order. Where the rows are predicted, none may be left for the target. */
static status match_unnamed(struct csv *csv, const struct dataset_config *config) {
    size_t wanted = config->trained_inputs, count = 0;
    bool has_given_target = config->targets.count > 0;
    if (!config->is_trained || wanted == 0 || config->inputs.count || config->window.steps) return OK;
    for (size_t i = 0; i < csv->n_columns; i++) count += is_default_input(csv, config, i);
    if (config->without_targets && !has_given_target && count + 1 == wanted) {
        csv->default_target = NOT_USED;
        return OK;
    }
    if (count != wanted)
        return status_new(STATUS_DATA,
                          "%s: the model was trained with rows of %zu numbers without names, so that this file needs "
                          "exactly %zu columns in that order and %s for the target; without it there %s %zu. List the "
                          "columns of the inputs in dataset.inputs",
                          csv->path, wanted, wanted, config->without_targets ? "at most one" : "one",
                          count == 1 ? "is" : "are", count);
    if (!has_given_target)
        csv_add_note(csv,
                     arena_printf(csv->arena, "the inputs are its columns in their order, without the target, '%s'",
                                  csv_printable(csv, csv->names[csv->default_target])));
    return OK;
}

status csv_choose_columns(struct csv *csv, const struct dataset_config *config, const struct csv *train) {
    csv->rules = column_rules_index(csv->arena, &config->rules);
    csv->config_targets = index_names(csv, config->targets.items, config->targets.count);
    csv->default_target = choose_target(csv);
    TRY(use_weights(csv, config));
    TRY(use_groups(csv, config));
    if (train) return use_same_columns(csv, config, train);
    if (csv_has_trained_columns(config)) return use_trained_columns(csv, config);
    TRY(match_unnamed(csv, config));
    if (!config->without_targets) {
        TRY(use_columns(csv, config, &config->targets, true));
        if (config->targets.count == 0) TRY(use_column(csv, config, csv->default_target, true));
    }
    TRY(use_columns(csv, config, &config->inputs, false));
    for (size_t i = 0; i < csv->n_columns && config->inputs.count == 0; i++)
        if (is_default_input(csv, config, i)) TRY(use_column(csv, config, i, false));
    note_unnamed(csv, config);
    if (!config->is_trained) TRY(check_rules(csv, config));
    if (csv->base.input_size > 0) return OK;
    return status_new(STATUS_DATA, "%s: there is no column for the inputs; the file has only: %s", csv->path,
                      csv_printable(csv, csv->names[0]));
}
