/* Targets that are texts. The labels of a class column: texts, or with the rule `category` numbers, of which 1 and 1.0
 * are one label. Booleans of targets that are numbers. */
#include <stdlib.h>
#include <string.h>

#include "data/source/csv_source.h"

status csv_add_boolean(const struct csv *csv, size_t column, const char *text, double *value) {
    static const char *const names[BOOLEAN_PAIRS] = {"false or true", "no or yes"};
    size_t pair = csv->roles[column].booleans - 1;
    if (boolean_read(text, pair, value)) return OK;
    return csv_reject_value(csv, column, text, names[pair], ", as the values before");
}

/* "<place>: column 'a': " of a label. */
static void describe_label(const struct csv *csv, size_t label, struct text *out) {
    size_t row = csv->labels.items[label].first_row;
    text_printf(out, "%s:%s %zu: column '%s'", csv_path_of(csv, row), csv->input->unit, csv_line_of(csv, row),
                csv_printable(csv, csv->names[csv->target_columns[0]]));
}

static status check_labels(const struct csv *csv) {
    struct text place = {0};
    size_t wrong = 0;
    while (wrong < csv->labels.count && csv_is_utf8(csv->labels.items[wrong].text)) wrong++;
    if (wrong == csv->labels.count) return OK;
    describe_label(csv, wrong, &place);
    status s = status_new(STATUS_DATA, "%s: the label is not UTF-8 text", text_string(&place));
    text_free(&place);
    return s;
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
        csv->n_classes = category_sort(csv->classes, csv->n_classes, true);
    csv_note_merged(csv, csv->target_columns[0], &csv->labels, &(struct string_list){csv->classes, csv->n_classes});
    qsort(csv->classes, csv->n_classes, sizeof *csv->classes, csv_compare_names);
}

/* Classes that are numbers are also found by their values. Of a checkpoint two may be equal: it is older than that. */
static void index_numbers(struct csv *csv) {
    for (size_t i = 0; i < csv->n_classes; i++)
        if (!category_is_number(csv->classes[i]) || !is_exact(csv->classes[i])) return;
    const char **texts = arena_alloc(csv->arena, (csv->n_classes + 1) * sizeof *texts);
    memcpy(texts, csv->classes, csv->n_classes * sizeof *texts);
    if (category_sort(texts, csv->n_classes, true) == csv->n_classes)
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
    struct text place = {0};
    bool is_given = known->has_given_classes;
    describe_label(csv, label, &place);
    status s = status_new(STATUS_DATA, "%s: class '%s' is not in %s%s%s", text_string(&place),
                          csv_printable(csv, csv->labels.items[label].text),
                          is_given ? "the data that the model was trained with" : "'", is_given ? "" : known->path,
                          is_given ? "" : "'");
    text_free(&place);
    return s;
}

/* The class of a label; SIZE_MAX: none. */
static size_t class_of(const struct csv *known, const char *label) {
    const struct string_list classes = {known->classes, known->n_classes};
    double numbers[2];
    const char **found = bsearch(&label, known->classes, known->n_classes, sizeof *known->classes, csv_compare_names);
    if (!found && known->number_classes.count && category_is_number(label)) {
        size_t same = category_find(&known->number_classes, true, label);
        if (same == SIZE_MAX) return SIZE_MAX;
        label = known->number_classes.items[same];
        found = bsearch(&label, known->classes, known->n_classes, sizeof *known->classes, csv_compare_names);
    }
    if (found) return (size_t)(found - known->classes);
    if (known->n_classes != 2 || (strcmp(label, "0") != 0 && strcmp(label, "1") != 0)) return SIZE_MAX;
    double number = *label == '1';
    if (!labels_as_numbers(&classes, numbers)) return SIZE_MAX;
    return numbers[0] == number ? 0 : numbers[1] == number ? 1 : SIZE_MAX;
}

bool csv_knows_label(const struct csv *csv, const char *text) { return class_of(csv->known_classes, text) != SIZE_MAX; }

status csv_add_label(struct csv *csv, const char *text, double *value) {
    size_t index;
    if (csv->known_classes && !csv_knows_label(csv, text))
        return status_new(STATUS_DATA,
                          "%s:%s %zu: column '%s': class '%s' is not in the data that the model was trained with",
                          csv->path, csv->input->unit, csv->reader.record_line,
                          csv_printable(csv, csv->names[csv->target_columns[0]]), csv_printable(csv, text));
    TRY(text_pool_add(&csv->labels, text, csv->base.rows, &index));
    *value = (double)index;
    return OK;
}

/* A binary loss takes two labels: the first in the order of the alphabet is 0, the second 1, as scikit-learn's
 * LabelBinarizer. */
static status check_binary(const struct csv *csv) {
    if (csv->n_classes == 2) return OK;
    struct text some = {0};
    for (size_t i = 0; i < csv->n_classes && i < 3; i++)
        text_printf(&some, "%s'%s'", i ? ", " : "", csv_printable(csv, csv->classes[i]));
    status s = status_new(STATUS_DATA,
                          "%s: the target has %zu label%s (%s%s), and the loss takes two, or numbers from 0 to 1; for "
                          "more classes write loss: cross_entropy, with an output of the model for each",
                          csv->path, csv->n_classes, text_plural(csv->n_classes, "s"), text_string(&some),
                          csv->n_classes > 3 ? ", ..." : "");
    text_free(&some);
    return s;
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
