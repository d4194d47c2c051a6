/* The columns of a CSV file: its header, which of them are inputs and targets, their labels and groups, and those of
 * the other files of a path. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/scoped.h"
#include "base/utf8.h"
#include "data/columns/columns.h"
#include "data/columns/date.h"
#include "data/columns/raw_columns.h"
#include "data/files/files.h"
#include "data/source/column_view.h"
#include "data/source/csv_source.h"
#include "data/source/first_look.h"

/* ---- header and roles ---- */

bool csv_is_utf8(const char *text) {
    size_t left = strlen(text);
    uint32_t code;
    for (size_t bytes; left > 0; text += bytes, left -= bytes)
        if ((bytes = utf8_decode(text, left, &code)) == 0) return false;
    return true;
}

const char *csv_printable(const struct csv *csv, const char *text) { return arena_copy(csv->arena, text_name(text).s); }

static const char *place_at(const struct csv *csv, const char *path, size_t line, size_t column) {
    return arena_printf(csv->arena, "%s:%s %zu: column '%s'", path, csv->input->unit, line,
                        csv_printable(csv, csv->names[column]));
}

const char *csv_place(const struct csv *csv, size_t column) {
    return place_at(csv, csv->path, csv->reader.record_line, column);
}

const char *csv_place_of(const struct csv *csv, size_t row, size_t column) {
    return place_at(csv, csv_path_of(csv, row), csv_line_of(csv, row), column);
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

/* ---- columns that are computed ---- */

static size_t count_computed(const struct dataset_config *config) {
    const struct column_rule *rules = config->rules.items;
    size_t count = 0;
    for (size_t i = 0; i < config->rules.count; i++) count += rules[i].expression != NULL;
    return count;
}

/* Names the computed columns, behind those of the file. */
static status name_computed(struct csv *csv, const struct dataset_config *config) {
    const struct column_rule *rules = config->rules.items;
    size_t at = csv->n_own;
    csv->computed = arena_alloc(csv->arena, (csv->n_columns - at + 1) * sizeof *csv->computed);
    for (size_t i = 0; i < config->rules.count; i++) {
        if (!rules[i].expression) continue;
        for (size_t k = 0; k < csv->n_own; k++)
            if (strcmp(csv->names[k], rules[i].name) == 0)
                return status_data("%s: it has a column '%s', which dataset.columns computes; rename one of them",
                                   csv->path, csv_printable(csv, rules[i].name));
        csv->computed[at - csv->n_own].text = arena_copy(csv->arena, rules[i].expression);
        csv->names[at] = arena_copy(csv->arena, rules[i].name);
        csv->roles[at++] = (struct role){.at = NOT_USED, .target_at = NOT_USED};
    }
    return OK;
}

/* The columns of an expression: those of the file, as numbers. */
static status find_operands(struct csv *csv, size_t column) {
    struct computed_column *c = &csv->computed[column - csv->n_own];
    const char *key = arena_printf(csv->arena, "dataset.columns.%s", csv->names[column]);
    size_t at;
    c->expression = arena_alloc(csv->arena, sizeof *c->expression);
    TRY(status_prefix(
        expression_parse(c->text, &(struct expression_options){.is_of_numbers = true}, c->expression, &at, NULL), "%s",
        key));
    c->operands = arena_alloc(csv->arena, (c->expression->name_count + 1) * sizeof *c->operands);
    c->values = arena_alloc(csv->arena, (c->expression->name_count + 1) * sizeof *c->values);
    for (size_t i = 0; i < c->expression->name_count; i++) {
        char name[EXPRESSION_MAX_TEXT];
        expression_name(c->expression, i, name);
        TRY(csv_find_column(csv, name, key, &c->operands[i]));
        if (c->operands[i] >= csv->n_own)
            return status_usage("%s: '%s' is an expression, too; write its formula instead", key,
                                csv_printable(csv, name));
        csv->roles[c->operands[i]].is_filtered = true;
    }
    return OK;
}

static status read_names(struct csv *csv, const struct dataset_config *config) {
    bool has_record;
    TRY(csv->input->next(csv, &has_record));
    if (!has_record) return status_data("%s: the file is empty", csv->path);
    size_t n = csv->n_own = csv->n_fields = csv->reader.count, all = csv->n_columns = n + count_computed(config);
    csv->fields = arena_alloc(csv->arena, all * sizeof *csv->fields);
    for (size_t i = 0; i < all; i++) csv->fields[i] = i;
    csv->names = arena_alloc(csv->arena, (all + 1) * sizeof *csv->names); /* ends with NULL */
    csv->roles = arena_alloc(csv->arena, all * sizeof *csv->roles);
    csv->input_columns = arena_alloc(csv->arena, all * sizeof *csv->input_columns);
    csv->target_columns = arena_alloc(csv->arena, all * sizeof *csv->target_columns);
    csv->has_no_header = config->csv.has_no_header && !csv->records;
    for (size_t i = 0; i < n; i++) {
        csv->names[i] = csv->has_no_header ? arena_printf(csv->arena, "%zu", i)
                                           : csv_name(csv->reader.fields[i].text, i, csv->arena);
        csv->roles[i] =
            (struct role){.at = NOT_USED, .target_at = NOT_USED, .has_no_name = csv->reader.fields[i].text[0] == 0};
    }
    if (n == 1 && !csv->records && strpbrk(csv->names[0], ",;\t|"))
        return status_data("%s:line 1: there is only one field, '%s'; set dataset.csv.delimiter to the character "
                           "between the fields, now '%s'",
                           csv->path, csv_printable(csv, csv->names[0]),
                           csv->reader.delimiter == '\t' ? "tab" : (char[]){csv->reader.delimiter, 0});
    return name_computed(csv, config);
}

/* Which names a header needs, where a model knows them: in the order of the training if the number of fields fits. */
static void advise_header(const struct csv *csv, const struct dataset_config *config, struct text *out) {
    const struct column_list *list = &config->request.columns;
    size_t inputs = columns_count(list, COLUMN_INPUT), targets = columns_count(list, COLUMN_TARGET);
    SCOPED_TEXT input_names = {0}, target_names = {0};
    if (list->count == 0) return;
    columns_add_names(list, COLUMN_INPUT, &input_names);
    columns_add_names(list, COLUMN_TARGET, &target_names);
    if (csv->n_columns == inputs + targets && targets > 0)
        text_printf(out, "; with the columns of the training in their order it would be: %s, %s",
                    text_string(&input_names), text_string(&target_names));
    else
        text_printf(out, "; the row has %zu field%s, and the model was trained with the inputs %s and the target %s%s",
                    csv->n_columns, text_plural(csv->n_columns, "s"), text_string(&input_names),
                    text_string(&target_names),
                    config->request.without_targets ? ", which 'predict' does not need" : "");
}

/* Rejects a file without header, whose first row would be lost, unless the config names columns. A model knows the
 * names of its columns, so that only numbers can be a row then. */
static status check_header(const struct csv *csv, const struct dataset_config *config) {
    char decimal = csv->decimal;
    double number;
    size_t numbers = 0;
    for (size_t i = 0; i < csv->n_columns; i++) numbers += csv_decimal(csv->names[i], &decimal, &number);
    bool is_named = config->inputs.count || config->targets.count || config->rules.count;
    if (is_named || (config->request.is_trained && numbers == 0) || !csv_first_is_row(csv->path, &config->csv))
        return OK;
    SCOPED_TEXT advice = {0};
    if (!config->request.is_trained)
        text_add(&advice, ", or write dataset.csv: {no_header: true}, with which the columns are named 0, 1, 2, ... "
                          "(if it is a header, name its columns in dataset.inputs or dataset.targets)");
    advise_header(csv, config, &advice);
    return status_data("%s:line 1: expected a header with column names, but this is a row of %s ('%s', ...); insert "
                       "a line with names before it%s",
                       csv->path, numbers > 0 ? "numbers" : "values like those below",
                       csv_printable(csv, csv->names[0]), text_string(&advice));
}

/* Rows to predict need no header: when the first line has as many numbers as the model has inputs, and none is a column
 * name, it is a row, and the columns have the order of the training. */
static void name_columns(struct csv *csv, const struct dataset_config *config) {
    const struct column_list *list = &config->request.columns;
    double number;
    char decimal = csv->decimal;
    bool has_computed = csv->n_columns > csv->n_own;
    if (!config->request.without_targets || has_computed || csv->n_own != columns_count(list, COLUMN_INPUT)) return;
    const char **known = arena_alloc(csv->arena, (list->count + 1) * sizeof *known);
    for (size_t i = 0; i < list->count; i++) known[i] = list->items[i].name;
    qsort(known, list->count, sizeof *known, text_compare);
    for (size_t i = 0; i < csv->n_columns; i++)
        if (!csv_decimal(csv->names[i], &decimal, &number) ||
            bsearch(&csv->names[i], known, list->count, sizeof *known, text_compare))
            return;
    csv->has_no_header = true;
    SCOPED_TEXT names = {0};
    columns_add_names(list, COLUMN_INPUT, &names);
    for (size_t i = 0; i < csv->n_columns; i++) csv->names[i] = list->items[i].name;
    csv_add_note(csv, arena_printf(csv->arena, "there is no header; the columns must have the order of training: %s",
                                   text_string(&names)));
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
            return status_data("%s:line 1: duplicate column '%s'", csv->path, csv_printable(csv, sorted[i].name));
    return OK;
}

status csv_read_header(struct csv *csv, const struct dataset_config *config, const struct csv *train) {
    TRY(read_names(csv, config));
    if (!train && !csv->has_no_header && csv_has_trained_columns(config)) name_columns(csv, config);
    if (!train && !csv->has_no_header && !csv->records) TRY(check_header(csv, config));
    return sort_names(csv);
}

static const char *why_unread(const struct csv *csv, const char *name) {
    return csv->input->why_unread ? csv->input->why_unread(csv, name) : NULL;
}

/* [known_from]: the source of the name, for the message; NULL: the config. */
status csv_find_column(const struct csv *csv, const char *name, const char *known_from, size_t *column) {
    *column = name_index_find(&csv->by_name, name);
    if (*column != SIZE_MAX) return OK;
    const char *why = why_unread(csv, name), *nearest = schema_nearest(name, csv->names);
    if (why) return status_data("%s: column '%s' cannot be read: %s", csv->path, csv_printable(csv, name), why);
    SCOPED_TEXT columns = {0};
    list_columns(csv, &columns);
    return status_data("%s: there is no column '%s'%s%s%s%s%s; the columns are: %s", csv->path, name,
                       known_from ? ", which is in " : "", known_from ? known_from : "",
                       nearest ? "; did you mean '" : "", nearest ? csv_printable(csv, nearest) : "",
                       nearest ? "'" : "", text_string(&columns));
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
        return status_data("%s: column '%s' is used twice, as %s and by dataset.weights", csv->path,
                           csv_printable(csv, csv->names[column]), is_target ? "target" : "input");
    if (role->at != NOT_USED && !role->is_group)
        return status_data("%s: column '%s' is used twice, as %s; see dataset.inputs and dataset.targets", csv->path,
                           csv_printable(csv, csv->names[column]),
                           role->is_target != is_target ? "input and as target"
                           : is_target                  ? "target"
                                                        : "input");
    if (role->at != NOT_USED && role->is_group)
        return status_data("%s: column '%s' is used twice, as %s and by %s", csv->path,
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
    if (!config->weights || config->request.without_targets) return OK;
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
        return status_data("%s: column '%s' is used twice, by dataset.weights and by %s", csv->path,
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
    SCOPED_TEXT note = {0}, ignored = {0};
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
}

/* Uses the columns of [list], found by name. */
static status use_named_columns(struct csv *csv, const struct dataset_config *config, const struct column_list *list,
                                const char *known_from) {
    for (size_t i = 0; i < list->count; i++) {
        const struct named_column *named = &list->items[i];
        size_t column;
        if (named->role == COLUMN_TARGET && config->request.without_targets) continue;
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
    TRY(columns_check_key(&config->request.columns, COLUMN_INPUT, &config->inputs));
    if (!config->request.without_targets)
        TRY(columns_check_key(&config->request.columns, COLUMN_TARGET, &config->targets));
    return use_named_columns(csv, config, &config->request.columns, "the data that the model was trained with");
}

bool csv_has_trained_columns(const struct dataset_config *config) {
    return config->request.columns.count && strcmp(config->request.columns.format, dataset_csv.name) == 0;
}

static size_t choose_target(const struct csv *csv) {
    struct target_choice choice = {0};
    for (size_t i = 0; i < csv->n_own; i++) target_choice_add(&choice, i, csv->names[i], !csv->roles[i].has_no_name);
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
    return status_usage(
        "dataset.columns: '%s' is a target, whose only rule is `category`: its values, also numbers, are "
        "the labels of classes; the others are for inputs%s",
        csv_printable(csv, rule->name),
        csv->are_targets_inputs ? ". To use it as a target only, remove the rule and name the inputs in dataset.inputs"
                                : "");
}

/* Every entry of dataset.columns must be for an input, the target, or a column that is ignored. */
static status check_rules(const struct csv *csv, const struct dataset_config *config) {
    const struct column_rule *rules = config->rules.items;
    for (size_t i = 0; i < config->rules.count; i++) {
        size_t column;
        if (rules[i].type == COLUMN_IGNORED && why_unread(csv, rules[i].name)) continue;
        TRY(status_prefix(csv_find_column(csv, rules[i].name, NULL, &column), "dataset.columns"));
        const struct role *role = &csv->roles[column];
        bool is_ignored = rules[i].type == COLUMN_IGNORED,
             is_input = role->at != NOT_USED && !role->is_target && !role->is_weight && !role->is_group;
        if (is_ignored && is_input)
            return status_usage("dataset.columns: '%s' is ignored, but dataset.inputs lists it",
                                csv_printable(csv, rules[i].name));
        if (is_input) continue;
        if (is_weights(config, rules[i].name))
            return status_usage("dataset.columns: '%s' is the column of dataset.weights, and the rules are for inputs",
                                csv_printable(csv, rules[i].name));
        if (!is_ignored && is_group(config, rules[i].name))
            return status_usage("dataset.columns: '%s' is the column of %s, and the rules are for inputs",
                                csv_printable(csv, rules[i].name), csv->group_key);
        if (is_target(csv, column) && !rules[i].expression)
            TRY(check_target_rule(csv, &rules[i]));
        else if (is_target(csv, column))
            continue;
        else if (!is_ignored)
            return status_usage("dataset.columns: '%s' is not listed by dataset.inputs, and the rules are for inputs",
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
            csv_add_note(
                csv, arena_printf(csv->arena,
                                  "column %zu has no name and is not used; dataset.columns: {\"%s\": number} uses it",
                                  i + 1, csv->names[i]));
            return;
        }
}

/* The numbers of a row that the model reads have no names: of another file, whose columns do, there must be as many, in
 * the same order. Where the rows are predicted, none may be left for the target. */
static status match_unnamed(struct csv *csv, const struct dataset_config *config) {
    size_t wanted = config->request.trained_inputs, count = 0;
    bool has_given_target = config->targets.count > 0;
    if (!config->request.is_trained || wanted == 0 || config->inputs.count || config->window.steps) return OK;
    for (size_t i = 0; i < csv->n_columns; i++) count += is_default_input(csv, config, i);
    if (config->request.without_targets && !has_given_target && count + 1 == wanted) {
        csv->default_target = NOT_USED;
        return OK;
    }
    if (count != wanted)
        return status_data("%s: the model was trained with rows of %zu numbers without names, so that this file needs "
                           "exactly %zu columns in that order and %s for the target; without it there %s %zu. List the "
                           "columns of the inputs in dataset.inputs",
                           csv->path, wanted, wanted, config->request.without_targets ? "at most one" : "one",
                           count == 1 ? "is" : "are", count);
    if (!has_given_target)
        csv_add_note(csv,
                     arena_printf(csv->arena, "the inputs are its columns in their order, without the target, '%s'",
                                  csv_printable(csv, csv->names[csv->default_target])));
    return OK;
}

/* Columns that are computed can be inputs and targets. */
static status check_computed(struct csv *csv) {
    for (size_t i = csv->n_own; i < csv->n_columns; i++) {
        if (csv->roles[i].is_weight || csv->roles[i].is_group)
            return status_new(
                STATUS_USAGE,
                "dataset.columns: '%s' is an expression, which can be an input or a target, not weights or groups",
                csv_printable(csv, csv->names[i]));
        TRY(find_operands(csv, i));
    }
    return OK;
}

static status choose_columns(struct csv *csv, const struct dataset_config *config, const struct csv *train) {
    csv->rules = column_rules_index(csv->arena, &config->rules);
    csv->config_targets = index_names(csv, config->targets.items, config->targets.count);
    csv->default_target = choose_target(csv);
    TRY(use_weights(csv, config));
    TRY(use_groups(csv, config));
    if (train) return use_same_columns(csv, config, train);
    if (csv_has_trained_columns(config)) return use_trained_columns(csv, config);
    TRY(match_unnamed(csv, config));
    if (!config->request.without_targets) {
        TRY(use_columns(csv, config, &config->targets, true));
        if (config->targets.count == 0) TRY(use_column(csv, config, csv->default_target, true));
    }
    TRY(use_columns(csv, config, &config->inputs, false));
    for (size_t i = 0; i < csv->n_columns && config->inputs.count == 0; i++)
        if (is_default_input(csv, config, i)) TRY(use_column(csv, config, i, false));
    note_unnamed(csv, config);
    if (!config->request.is_trained) TRY(check_rules(csv, config));
    if (csv->base.input_size > 0) return OK;
    return status_data("%s: there is no column for the inputs; the file has only: %s", csv->path,
                       csv_printable(csv, csv->names[0]));
}

status csv_choose_columns(struct csv *csv, const struct dataset_config *config, const struct csv *train) {
    TRY(choose_columns(csv, config, train));
    return check_computed(csv);
}

/* ---- files ---- */

/* The files of a path that is a pattern or a list: their rows follow one another, and the columns of each are found by
 * the names of the first file's. */

status csv_find_files(struct csv *csv, const struct dataset_config *config, bool is_validation) {
    struct string_list files = {&csv->path, 1};
    const struct string_list *others = dataset_others(config, is_validation);
    if (csv->base.format != &dataset_cells) TRY(file_list_expand(csv->path, others, csv->arena, &files));
    if (files.count > 1 && !csv->input->reads_many)
        return files_are_too_many(csv->path, others, files.count, csv->base.format->name);
    csv->parts = arena_alloc(csv->arena, files.count * sizeof *csv->parts);
    csv->part_count = files.count;
    for (size_t i = 0; i < files.count; i++) csv->parts[i].path = files.items[i];
    return OK;
}

const char *csv_path_of(const struct csv *csv, size_t row) {
    size_t part = csv->part; /* later parts are not open yet */
    while (part > 0 && csv->parts[part].first_row > row) part--;
    return csv->parts[part].path;
}

static status missing_column(const struct csv *csv, size_t column) {
    return status_data("%s: there is no column '%s', which '%s' has", csv->path, csv_printable(csv, csv->names[column]),
                       csv->parts[0].path);
}

/* Writes the names of the fields to [sorted] (n_fields). */
static void sort_fields(const struct csv *csv, struct sorted_name *sorted) {
    for (size_t i = 0; i < csv->n_fields; i++) {
        const char *text = csv->reader.fields[i].text;
        sorted[i] = (struct sorted_name){text[0] ? text : csv_name(text, i, csv->arena), i};
    }
    qsort(sorted, csv->n_fields, sizeof *sorted, text_compare);
}

/* The number of fields with the name of [column], and the last of them in *field. A field without a name is only that
 * of a column without one. */
static size_t find_fields(const struct csv *csv, const struct sorted_name *sorted, size_t column, size_t *field) {
    const char *name = csv->names[column];
    const struct sorted_name *end = sorted + csv->n_fields,
                             *at = bsearch(&name, sorted, csv->n_fields, sizeof *sorted, text_compare);
    size_t found = 0;
    while (at && at > sorted && strcmp(at[-1].name, name) == 0) at--;
    for (; at && at < end && strcmp(at->name, name) == 0; at++) {
        if (!csv->roles[column].has_no_name && csv->reader.fields[at->index].text[0] == 0) continue;
        *field = at->index;
        found++;
    }
    return found;
}

/* Finds the columns that are used, and those whose order is checked. */
static status match_fields(struct csv *csv, const struct sorted_name *sorted) {
    for (size_t i = 0; i < csv->n_own; i++) {
        bool is_used = csv->roles[i].at != NOT_USED || csv->roles[i].is_filtered;
        if (!is_used && !csv->roles[i].may_be_date) continue;
        size_t field = 0, found = find_fields(csv, sorted, i, &field);
        if (!is_used && found != 1) {
            csv->roles[i].may_be_date = false;
            continue;
        }
        if (found == 0) return missing_column(csv, i);
        if (found > 1)
            return status_data("%s:line 1: duplicate column '%s'", csv->path, csv_printable(csv, csv->names[i]));
        csv->fields[i] = field;
    }
    return OK;
}

static status match_columns(struct csv *csv) {
    csv->n_fields = csv->reader.count;
    SCOPED_ARENA arena = arena_create();
    struct sorted_name *sorted = arena_alloc(arena, (csv->n_fields + 1) * sizeof *sorted);
    sort_fields(csv, sorted);
    return match_fields(csv, sorted);
}

status csv_start_file(struct csv *csv, const struct dataset_config *config, bool is_validation, size_t part) {
    csv->part = part;
    csv->parts[part].first_row = csv->base.rows;
    csv->path = csv->parts[part].path;
    csv_free(&csv->reader);
    return csv->input->start(csv, config, is_validation);
}

/* Starts the next file; its first row is the current record then. */
static status start_next(struct csv *csv, const struct dataset_config *config, bool *has_record) {
    const bool is_validation = false; /* matters only to formats with one file */
    TRY(csv_start_file(csv, config, is_validation, csv->part + 1));
    TRY(csv->input->next(csv, has_record));
    if (csv->has_no_header) return OK;
    if (!*has_record) return status_data("%s: the file is empty", csv->path);
    TRY(match_columns(csv));
    return csv->input->next(csv, has_record);
}

status csv_next_file(struct csv *csv, const struct dataset_config *config, bool *has_record) {
    *has_record = false;
    while (!*has_record && csv->part + 1 < csv->part_count) TRY(start_next(csv, config, has_record));
    return OK;
}

/* ---- labels ---- */

/* Targets that are texts. The labels of a class column: texts, or with the rule `category` numbers, of which 1 and 1.0
 * are one label. Booleans of targets that are numbers. */

status csv_add_boolean(const struct csv *csv, size_t column, const char *text, double *value) {
    static const char *const names[BOOLEAN_PAIRS] = {"false or true", "no or yes"};
    size_t pair = csv->roles[column].booleans - 1;
    if (boolean_read(text, pair, value)) return OK;
    return csv_reject_value(csv, column, text, names[pair], ", as the values before");
}

static const char *place_of_label(const struct csv *csv, size_t label) {
    return csv_place_of(csv, csv->labels.items[label].first_row, csv->target_columns[0]);
}

static status check_labels(const struct csv *csv) {
    size_t wrong = 0;
    while (wrong < csv->labels.count && csv_is_utf8(csv->labels.items[wrong].text)) wrong++;
    if (wrong == csv->labels.count) return OK;
    return status_data("%s: the label is not UTF-8 text", place_of_label(csv, wrong));
}

#define EXACT_DIGITS 15 /* that a double has */

/* Whether numbers with other digits are other doubles, unlike long identifiers. */
static bool is_exact(const char *text) {
    size_t digits = 0;
    for (; *text; text++) digits += *text >= '0' && *text <= '9';
    return digits <= EXACT_DIGITS;
}

static bool are_exact(const char **texts, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!is_exact(texts[i])) return false;
    return true;
}

static void collect_classes(struct csv *csv) {
    csv->n_classes = csv->labels.count;
    csv->classes = arena_alloc(csv->arena, (csv->n_classes + 1) * sizeof *csv->classes);
    for (size_t i = 0; i < csv->n_classes; i++) csv->classes[i] = csv->labels.items[i].text;
    if (category_are_numbers(&csv->labels) && are_exact(csv->classes, csv->n_classes))
        csv->n_classes = category_sort(csv->classes, csv->n_classes, true, NULL);
    csv_note_merged(csv, csv->target_columns[0], &csv->labels, &(struct string_list){csv->classes, csv->n_classes});
    qsort(csv->classes, csv->n_classes, sizeof *csv->classes, text_compare);
}

/* Classes that are numbers are also found by their values. Of a checkpoint two may be equal: it is older than that. */
static void index_numbers(struct csv *csv) {
    for (size_t i = 0; i < csv->n_classes; i++)
        if (!category_is_number(csv->classes[i]) || !is_exact(csv->classes[i])) return;
    const char **texts = arena_alloc(csv->arena, (csv->n_classes + 1) * sizeof *texts);
    memcpy(texts, csv->classes, csv->n_classes * sizeof *texts);
    if (category_sort(texts, csv->n_classes, true, NULL) == csv->n_classes)
        csv->number_classes = (struct string_list){texts, csv->n_classes};
}

void csv_copy_classes(struct csv *csv, const struct string_list *classes) {
    csv->classes = arena_alloc(csv->arena, classes->count * sizeof *csv->classes);
    for (size_t i = 0; i < classes->count; i++) csv->classes[i] = arena_copy(csv->arena, classes->items[i]);
    csv->n_classes = classes->count;
    csv->has_given_classes = true;
    index_numbers(csv);
}

static status reject_class(const struct csv *csv, const struct csv *known, size_t label) {
    bool is_given = known->has_given_classes;
    return status_data("%s: class '%s' is not in %s%s%s", place_of_label(csv, label),
                       csv_printable(csv, csv->labels.items[label].text),
                       is_given ? "the data that the model was trained with" : "'", is_given ? "" : known->path,
                       is_given ? "" : "'");
}

/* The class of a label; SIZE_MAX: none. */
static size_t class_of(const struct csv *known, const char *label) {
    const struct string_list classes = {known->classes, known->n_classes};
    double numbers[2];
    const char **found = bsearch(&label, known->classes, known->n_classes, sizeof *known->classes, text_compare);
    if (!found && known->number_classes.count && category_is_number(label)) {
        size_t same = category_find(&known->number_classes, true, label);
        if (same == SIZE_MAX) return SIZE_MAX;
        label = known->number_classes.items[same];
        found = bsearch(&label, known->classes, known->n_classes, sizeof *known->classes, text_compare);
    }
    if (found) return (size_t)(found - known->classes);
    if (known->n_classes != 2 || (strcmp(label, "0") != 0 && strcmp(label, "1") != 0)) return SIZE_MAX;
    double number = *label == '1';
    if (!labels_as_numbers(&classes, numbers)) return SIZE_MAX;
    return numbers[0] == number ? 0 : numbers[1] == number ? 1 : SIZE_MAX;
}

/* Whether a class of new rows is one of the model. */
static bool csv_knows_label(const struct csv *csv, const char *text) {
    return class_of(csv->known_classes, text) != SIZE_MAX;
}

status csv_add_label(struct csv *csv, const char *text, double *value) {
    size_t index;
    if (csv->known_classes && !csv_knows_label(csv, text))
        return status_data("%s: class '%s' is not in the data that the model was trained with",
                           csv_place(csv, csv->target_columns[0]), csv_printable(csv, text));
    TRY(text_pool_add(&csv->labels, text, csv->base.rows, &index));
    *value = (double)index;
    return OK;
}

/* A binary loss takes two labels: the first in the order of the alphabet is 0, the second 1, as scikit-learn's
 * LabelBinarizer. */
static status check_binary(const struct csv *csv) {
    if (csv->n_classes == 2) return OK;
    SCOPED_TEXT some = {0};
    for (size_t i = 0; i < csv->n_classes && i < 3; i++)
        text_printf(&some, "%s'%s'", i ? ", " : "", csv_printable(csv, csv->classes[i]));
    return status_data("%s: the target has %zu label%s (%s%s), and the loss takes two, or numbers from 0 to 1; for "
                       "more classes write loss: cross_entropy, with an output of the model for each",
                       csv->path, csv->n_classes, text_plural(csv->n_classes, "s"), text_string(&some),
                       csv->n_classes > 3 ? ", ..." : "");
}

/* Labels become their index in the sorted labels of the training file. The pool has them in the order of the file. */
status csv_number_labels(struct csv *csv, bool is_binary, const struct csv *train) {
    if (!csv->has_labels) return OK;
    TRY(check_labels(csv));
    if (!train && !csv->has_given_classes) collect_classes(csv);
    if (!train && !csv->has_given_classes) index_numbers(csv);
    if (!train && is_binary) TRY(check_binary(csv));
    const struct csv *known = train ? train : csv;
    double *map = csv->maps[csv->base.input_size] = calloc(csv->labels.count + 1, sizeof *map);
    if (!map) return status_memory("%zu labels", csv->labels.count);
    for (size_t i = 0; i < csv->labels.count; i++) {
        size_t class = class_of(known, csv->labels.items[i].text);
        if (class == SIZE_MAX) return reject_class(csv, known, i);
        map[i] = (double)class;
    }
    csv->base.classes = (int64_t)known->n_classes;
    return OK;
}

/* ---- groups ---- */

/* The groups of dataset.split.group in a table are compared as categories: numbers if all values of the column are, so
 * that 1 and 1.0 are the same group, and else texts, as codes such as 007 are. */

void csv_note_merged(struct csv *csv, size_t column, const struct text_pool *pool, const struct string_list *sorted) {
    if (sorted->count >= pool->count) return;
    const char **first = arena_alloc(csv->arena, (sorted->count + 1) * sizeof *first);
    for (size_t i = 0; i < pool->count; i++) {
        const char *text = pool->items[i].text;
        size_t index = category_find(sorted, true, text);
        if (index == SIZE_MAX) continue;
        if (first[index]) {
            csv_add_note(csv, arena_printf(csv->arena,
                                           "column '%s': '%s' and '%s' are equal as numbers and one value%s; a letter "
                                           "before them keeps them apart",
                                           csv_printable(csv, csv->names[column]), csv_printable(csv, first[index]),
                                           csv_printable(csv, text),
                                           pool->count - sorted->count > 1 ? ", as others of the column" : ""));
            return;
        }
        first[index] = text;
    }
}

void csv_number_groups(struct csv *csv) {
    size_t count = csv->groups.count;
    bool are_numbers = category_are_numbers(&csv->groups);
    struct string_list sorted = {.items = arena_alloc(csv->arena, (count + 1) * sizeof *sorted.items)};
    csv->group_values = arena_alloc(csv->arena, (count + 1) * sizeof *csv->group_values);
    for (size_t i = 0; i < count; i++) sorted.items[i] = csv->groups.items[i].text;
    sorted.count = category_sort(sorted.items, count, are_numbers, csv->group_values);
    if (are_numbers && csv->group_column != NOT_USED) csv_note_merged(csv, csv->group_column, &csv->groups, &sorted);
}

/* ---- is the first record a header ---- */

/* The first rows are enough: a name is hardly ever a value of its column. */

#define SAMPLED_ROWS 100

/* A column of the sample: its first value, and those below. */
struct view {
    const char *first;
    double number; /* of [first] */
    bool is_missing, is_number, is_date;
    bool occurs_again;                         /* [first] is a value below, too */
    bool are_numbers, are_dates, has_non_year; /* the values below */
    size_t values;                             /* below, without the missing ones */
};

static bool means_missing(const char *text) { return csv_means_missing(text) || suggest_is_mark(text); }

static bool is_year(double number) { return number == floor(number) && number >= 1800 && number <= 2100; }

static void start_views(const struct csv_reader *reader, struct view *views, struct arena *arena) {
    double seconds;
    char decimal = csv_usual_decimal(reader);
    for (size_t i = 0; i < reader->count; i++) {
        const char *first = arena_copy(arena, reader->fields[i].text);
        views[i] = (struct view){.first = first, .are_numbers = true, .are_dates = true};
        views[i].is_missing = means_missing(first);
        views[i].is_number = !views[i].is_missing && csv_decimal(first, &decimal, &views[i].number);
        views[i].is_date = !views[i].is_missing && !views[i].is_number && date_parse(first, NULL, &seconds);
    }
}

static void add_row(const struct csv_reader *reader, struct view *views, size_t count, char *decimal) {
    double number;
    for (size_t i = 0; i < count && i < reader->count; i++) {
        struct view *view = &views[i];
        const char *text = reader->fields[i].text;
        if (means_missing(text)) continue;
        bool is_number = csv_decimal(text, decimal, &number);
        view->values++;
        view->are_numbers = view->are_numbers && is_number;
        view->are_dates = view->are_dates && !is_number && date_parse(text, NULL, &number);
        view->has_non_year = view->has_non_year || !is_number || !is_year(number);
        view->occurs_again = view->occurs_again || strcmp(text, view->first) == 0;
    }
}

/* Whether the numbers of the first record are plausible as names: they count up from 0 or 1, and are three or beside
 * another name; five or more that increase, such as wavelengths; years above other numbers. */
static bool are_names(const struct view *views, size_t columns, bool has_name) {
    const struct view *last = NULL;
    bool is_counted = columns >= 3, is_rising = true, are_years = true;
    size_t count = 0;
    for (size_t i = 0; i < columns; i++) {
        const struct view *view = &views[i];
        if (!view->is_number) continue;
        is_counted = is_counted && (last ? view->number == last->number + 1 : view->number == 0 || view->number == 1);
        is_rising = is_rising && (!last || view->number > last->number);
        are_years = are_years && is_year(view->number) && view->has_non_year;
        last = view;
        count++;
    }
    return count > 0 && ((is_counted && (count >= 3 || has_name)) || (is_rising && count >= 5) || are_years);
}

static bool seems_row(const struct view *views, size_t columns, size_t rows) {
    size_t numbers = 0, alike = 0, unlike = 0, texts_again = 0, again = 0;
    bool has_empty = false;
    for (size_t i = 0; i < columns; i++) {
        const struct view *view = &views[i];
        bool are_numbers = view->values > 0 && view->are_numbers, are_dates = view->values > 0 && view->are_dates;
        numbers += view->is_number;
        again += view->occurs_again;
        texts_again += view->occurs_again && !view->is_number;
        has_empty = has_empty || !*view->first;
        if (view->is_missing || (!are_numbers && !are_dates)) continue;
        bool is_alike = are_numbers ? view->is_number : view->is_date;
        alike += is_alike;
        unlike += !is_alike;
    }
    if (texts_again == 0 && are_names(views, columns, has_empty || unlike > 0)) return false;
    if (numbers > 0 && numbers + 1 >= columns) return true;
    if (rows == 0 || unlike > 0) return false;
    return alike > 1 || (alike == 1 && again > 0) || (again > 0 && again * 2 >= columns);
}

static status compare(struct csv_reader *reader, struct arena *arena, bool *is_row) {
    bool has_record;
    TRY(csv_next(reader, &has_record));
    if (!has_record) return OK;
    size_t columns = reader->count, rows = 0;
    char decimal = csv_usual_decimal(reader);
    struct view *views = arena_alloc(arena, (columns + 1) * sizeof *views);
    start_views(reader, views, arena);
    for (; rows < SAMPLED_ROWS; rows++) {
        TRY(csv_next(reader, &has_record));
        if (!has_record) break;
        add_row(reader, views, columns, &decimal);
    }
    *is_row = seems_row(views, columns, rows);
    return OK;
}

bool csv_first_is_row(const char *path, const struct csv_config *dialect) {
    static const struct csv_config recognised;
    struct csv_reader reader = {0};
    SCOPED_ARENA arena = arena_create();
    SCOPED_BUFFER char *text = NULL;
    bool is_row = false;
    status s = csv_open_first(path, dialect ? dialect : &recognised, &reader, &text);
    if (!s) s = compare(&reader, arena, &is_row);
    if (s) is_row = false;
    status_free(s);
    csv_free(&reader);
    return is_row;
}

/* ---- inspect ---- */

/* `inspect` for CSV files: the columns with the types that a config without `columns` would use, and their ranges. */

#define MAX_LABELS 10

struct column {
    const char *labels[MAX_LABELS]; /* the first distinct texts */
    size_t label_count, texts, missing;
    double min, max;
    bool has_fraction, has_more_labels;
    struct column_builder builder; /* of the type that a config without `columns` would use */
    bool is_mixed;                 /* texts follow numbers */
};

static void add_label(struct column *column, const char *text) {
    for (size_t i = 0; i < column->label_count; i++)
        if (strcmp(column->labels[i], text) == 0) return;
    if (column->label_count < MAX_LABELS)
        column->labels[column->label_count++] = text;
    else
        column->has_more_labels = true;
}

static status add_field(struct column *column, const char *text, char *decimal, size_t row) {
    double value, index;
    bool fits = true;
    if (csv_means_missing(text)) {
        column->missing++;
        return OK;
    }
    bool is_number = csv_decimal(text, decimal, &value);
    if (!is_number) {
        column->texts++;
        add_label(column, text);
    } else {
        column->min = fmin(column->min, value);
        column->max = fmax(column->max, value);
        column->has_fraction = column->has_fraction || value != floor(value);
    }
    if (is_number && !column_builder_wants_text(&column->builder))
        column_builder_add_number(&column->builder);
    else
        TRY(column_builder_add_text(&column->builder, text, row, &index, &fits));
    column->is_mixed = column->is_mixed || !fits;
    return OK;
}

/* "category", "date", ...; "text" for a column that needs an entry in `columns`. */
static const char *type_of(struct column *column, struct arena *arena) {
    struct raw_column raw;
    double *map = NULL;
    size_t row;
    if (column->is_mixed) return "text";
    status s = column_builder_finish(&column->builder, arena, &raw, &map, &row);
    const char *type = s ? "text" : column_types[raw.type];
    status_free(s);
    free(map);
    return type;
}

static void print_column(size_t number, const char *name, const struct column *column, const char *type, size_t rows,
                         struct text *out) {
    text_printf(out, "  %4zu  ", number);
    size_t start = out->length;
    text_add_value(out, name, TEXT_MAX_NAME);
    text_pad(out, start, 28);
    text_add(out, " ");
    if (column->missing == rows)
        text_add(out, "empty");
    else if (column->texts == 0)
        text_printf(out, "%-8s %.6g to %.6g", column->has_fraction ? "number" : "integer", column->min, column->max);
    else
        text_printf(out, "%-8s ", type);
    for (size_t i = 0; column->texts && i < column->label_count; i++) {
        text_add(out, i ? ", " : "");
        text_add_value(out, column->labels[i], TEXT_MAX_NAME);
    }
    if (column->has_more_labels) text_add(out, ", ...");
    if (column->missing && column->missing < rows) text_printf(out, "  (%zu missing)", column->missing);
    text_add(out, "\n");
}

/* The names of the header; [has_row]: the current record is a row, and they are 0, 1, 2, ... */
static const char **names_of(const struct csv_reader *reader, bool has_row, struct arena *arena) {
    const char **names = arena_alloc(arena, (reader->count + 1) * sizeof *names);
    for (size_t i = 0; i < reader->count; i++)
        names[i] = has_row ? arena_printf(arena, "%zu", i) : arena_copy(arena, reader->fields[i].text);
    return names;
}

static status count_fields(struct csv_reader *reader, struct column *columns, size_t count, bool has_row, size_t *rows,
                           char *decimal) {
    *decimal = csv_usual_decimal(reader);
    *rows = 0;
    if (!has_row) TRY(csv_next(reader, &has_row));
    while (has_row) {
        if (reader->count != count)
            return status_data("%s:line %zu: %zu values, but the first line has %zu", reader->path, reader->record_line,
                               reader->count, count);
        for (size_t i = 0; i < count; i++) TRY(add_field(&columns[i], reader->fields[i].text, decimal, *rows));
        ++*rows;
        TRY(csv_next(reader, &has_row));
    }
    return OK;
}

/* "the delimiter is ';', it is not UTF-8 ...": what a reader of the file should know. */
static void add_dialect(const struct csv_reader *reader, const char *note, struct text *out) {
    if (reader->delimiter == '\t')
        text_add(out, ", separated by tabs");
    else if (reader->delimiter == CSV_BLANKS)
        text_add(out, ", separated by blanks");
    else if (reader->delimiter != ',')
        text_printf(out, ", separated by '%c'", reader->delimiter);
    if (note) text_printf(out, "\nnote    %s", note);
}

status csv_inspect(const char *path, struct text *out) {
    SCOPED_ARENA arena = arena_create();
    struct csv_reader reader = {0};
    SCOPED_BUFFER char *text = NULL;
    const char *note;
    bool has_row = false;
    size_t rows;
    char decimal;
    status s = csv_open_file(path, NULL, &reader, &text, &note);
    if (!s) s = csv_next(&reader, &has_row);
    if (!s && !has_row) s = status_data("%s: the file is empty", path);
    size_t count = reader.count;
    struct column *columns = arena_alloc(arena, (count + 1) * sizeof *columns);
    for (size_t i = 0; i < count; i++) columns[i] = (struct column){.min = INFINITY, .max = -INFINITY};
    has_row = !s && csv_first_is_row(path, NULL);
    const char **names = s ? NULL : names_of(&reader, has_row, arena);
    bool has_header = !has_row;
    for (size_t i = 0; !s && i < count; i++) column_builder_start(&columns[i].builder, names[i], NULL, NULL, arena);
    if (!s) s = count_fields(&reader, columns, count, has_row, &rows, &decimal);
    if (!s) {
        text_printf(out, "file    %s\nformat  csv, %zu row%s, %zu column%s, %s", path, rows, text_plural(rows, "s"),
                    count, text_plural(count, "s"), has_header ? "with a header" : "without a header");
        add_dialect(&reader, note, out);
        if (csv_is_undecided(decimal))
            text_add(out, "\nnote    commas of numbers may be decimal commas or separate thousands; a config needs "
                          "dataset.csv.decimal: ',' or dataset.csv.thousands: ','");
        if (!has_header) text_add(out, "\nnote    a config needs dataset.csv: {no_header: true} for it");
        text_add(out, "\n\n");
        for (size_t i = 0; i < count; i++)
            print_column(i + 1, names[i], &columns[i], type_of(&columns[i], arena), rows, out);
    }
    for (size_t i = 0; i < count; i++) column_builder_free(&columns[i].builder);
    csv_free(&reader);
    return s;
}
