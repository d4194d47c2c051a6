/* Tables (CSV, SQLite) are read here, because one with identifiers or missing values cannot be opened without rules;
 * other formats are opened with the defaults. */
#include "data/dataset/suggest.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/files/io.h"
#include "base/scoped.h"
#include "data/columns/columns.h"
#include "data/columns/preparation.h"
#include "data/csv/csv.h"
#include "data/dataset/identifiers.h"
#include "data/files/files.h"
#include "data/images/image.h"
#include "data/source/column_view.h"
#include "data/source/csv_source.h"
#include "data/source/first_look.h"
#include "data/source/frame.h"
#include "data/source/source.h"

#define SUGGESTED_NUMBER_CLASSES 20 /* different whole numbers that are taken for classes */

/* ---- columns ---- */

/* From the views of all columns: the target, and the rule of each input. */

#define MAX_CATEGORIES 100 /* of a column whose type is inferred, see raw_columns.c */
#define MAX_COMPARED 10000 /* names; a run finds duplicates among more */
#define MAX_NUMBER_CLASSES SUGGESTED_NUMBER_CLASSES

static bool holds_texts(const struct column_view *c) { return c->numbers < c->values; }

static bool are_categories(const struct column_view *c) {
    return c->pool.count <= MAX_CATEGORIES && c->pool.count * 2 <= c->values;
}

#define MANY_MISSING 0.05 /* the least share from which that a value is missing is a feature */

/* What replaces missing values: few of them another value, many a feature or category of their own. */
static const char *missing_rule_of(const struct column_view *c, bool is_category) {
    if ((double)c->missing >= MANY_MISSING * (double)(c->values + c->missing)) return "indicator";
    return is_category ? "most_frequent" : "median";
}

/* The format of dates; where days and months could be either, a person must say. */
static void choose_format(const struct column_view *c, struct arena *arena, struct column_suggestion *out) {
    out->texts = 0;
    if (c->form_count == 1) {
        out->rule = arena_printf(arena, "{type: date, format: \"%s\"%s%s}", c->forms[0].format,
                                 c->missing ? ", missing: " : "", c->missing ? missing_rule_of(c, false) : "");
        out->reason = c->missing ? arena_printf(arena, "dates; %zu missing", c->missing) : "dates";
        return;
    }
    out->rule = "ignore";
    out->reason = arena_printf(arena, "dates, either {type: date, format: \"%s\"}", c->forms[0].format);
    for (size_t i = 1; i < c->form_count; i++)
        out->reason = arena_printf(arena, "%s or {type: date, format: \"%s\"}", out->reason, c->forms[i].format);
}

/* "numbers with percent signs, such as '5 %' in line 2; ..." */
static const char *explain_styles(const struct column_view *c, const char *unit, struct arena *arena) {
    SCOPED_TEXT out = {0};
    text_add(&out, "numbers with ");
    suggest_add_styles(c->styles, &out);
    text_add(&out, ", such as '");
    text_add_value(&out, c->styled_text, TEXT_MAX_NAME);
    const char *advice = "only plain numbers are read as numbers, see dataset.csv.strip";
    if (c->styles == NUMBER_INFINITE) advice = "remove these rows, or list the text in dataset.missing";
    if (c->styles & NUMBER_COMMA && !(c->styles & ~(unsigned)(NUMBER_COMMA | NUMBER_SEPARATORS)))
        advice = "if decimals have a comma, set dataset.csv.decimal: ','";
    text_printf(&out, "' in %s %zu; %s", unit, c->styled_line, advice);
    return arena_copy(arena, text_string(&out));
}

static const char *explain_text(const struct column_view *c, const char *unit, struct arena *arena) {
    return arena_printf(arena, "'%s' in %s %zu", text_name(c->text).s, unit, c->text_line);
}

static bool are_styled(const struct column_view *c) { return c->styled > 0 && c->styled + c->numbers == c->values; }

/* Words that begin with a letter. */
static size_t count_words(const char *text) {
    size_t count = 0;
    for (char before = ' '; *text; before = *text++)
        count += before == ' ' && (isalpha((unsigned char)*text) || (unsigned char)*text >= 0x80);
    return count;
}

/* Whether most texts have at least so many words. */
static bool have_words(const struct column_view *c, size_t words) {
    size_t count = 0;
    for (size_t i = 0; i < c->pool.count; i++) count += count_words(c->pool.items[i].text) >= words;
    return count * 2 > c->pool.count;
}

/* The rule of a column of texts that are neither dates nor few. */
static void ignore_texts(const struct column_view *c, const char *unit, struct arena *arena,
                         struct column_suggestion *out) {
    size_t min, max;
    out->rule = "ignore";
    if (are_styled(c))
        out->reason = explain_styles(c, unit, arena);
    else if (text_pool_lists(&c->pool, &min, &max))
        out->reason = arena_printf(arena, "lists of %s%zu numbers; as the rows of an array (docs/arrays.md)",
                                   min < max ? arena_printf(arena, "%zu to ", min) : "", max);
    else if (c->numbers * 2 > c->values)
        out->reason = arena_printf(
            arena, "%zu numbers and %zu text%s, such as %s; list texts that mean missing values in dataset.missing",
            c->numbers, c->values - c->numbers, text_plural(c->values - c->numbers, "s"), explain_text(c, unit, arena));
    else
        out->reason =
            arena_printf(arena, "%s%zu different texts in %zu rows%s", c->pool.count > MAX_POOLED ? "more than " : "",
                         c->pool.count > MAX_POOLED ? MAX_POOLED : c->pool.count, c->values,
                         have_words(c, 4) ? "; as tokens: {type: text}, an input of its own (docs/text.md)" : "");
}

static const char *category_rule(const struct column_view *c, struct arena *arena) {
    return c->missing ? arena_printf(arena, "{type: category, missing: %s}", missing_rule_of(c, true)) : "category";
}

/* Of numbers of which some have leading zeros. */
static void choose_code(const struct column_view *c, struct arena *arena, struct column_suggestion *out) {
    if (are_categories(c)) {
        out->rule = category_rule(c, arena);
        out->texts = c->pool.count;
        out->reason =
            arena_printf(arena, "codes with leading zeros, such as '%.40s'; number if they are numbers", c->code);
    } else {
        out->rule =
            c->missing ? arena_printf(arena, "{type: number, missing: %s}", missing_rule_of(c, false)) : "number";
        out->reason = arena_printf(
            arena, "some have leading zeros, such as '%.40s'; ignore or category if they are codes", c->code);
    }
}

/* Of whole numbers that lose their last digits as numbers: what has so many is an identifier. */
static void choose_large(const struct column_view *c, struct arena *arena, struct column_suggestion *out) {
    bool is_category = are_categories(c);
    out->rule = is_category ? category_rule(c, arena) : "ignore";
    if (is_category) out->texts = c->pool.count;
    out->reason = arena_printf(arena, "%s, such as %.40s: whole numbers from 2^53 on lose their last digits",
                               is_category ? "codes" : "looks like an identifier", c->inexact);
}

/* ---- numbers that mean a missing value ---- */

#define MIN_SENTINELS 0.1 /* the share of rows with -1 */
#define MIN_VALUES 10     /* different values of a column with it */

/* 99, -999, 9999.9 */
static bool has_nines(const char *text) {
    size_t nines = strspn(text + (*text == '-'), "9."), length = strlen(text + (*text == '-'));
    const char *point = strchr(text, '.');
    size_t zeros = point ? strspn(point + 1, "0") : 0;
    return (nines == length || (point && point[1 + zeros] == 0)) && strspn(text + (*text == '-'), "9") >= 2;
}

/* Whether the smallest (or the largest) number, written as [text], is probably none: it occurs several times, far from
 * the others, or as the only negative one. */
static bool is_sentinel(const struct column_view *c, int which, const char *text) {
    const struct number_end *end = &c->ends[which];
    double value = which ? c->max : c->min, other = which ? c->min : c->max;
    bool is_only_negative = which == 0 && value < 0 && end->next >= 0;
    if (end->count < 2 || end->count == c->values || !isfinite(end->next)) return false;
    if (has_nines(text)) return is_only_negative || fabs(value - end->next) > fabs(end->next - other);
    return is_only_negative && value == -1 && c->pool.count > MIN_VALUES &&
           (double)end->count >= MIN_SENTINELS * (double)c->values;
}

/* Adds a comment about such a number to the rule of a column of numbers. */
static void note_sentinel(const struct column_view *c, struct arena *arena, struct column_suggestion *out) {
    if (c->values == 0 || holds_texts(c) || (out->rule && strcmp(out->rule, "ignore") == 0)) return;
    for (int which = 0; which < 2; which++) {
        const char *text = NULL;
        double number;
        for (size_t i = 0; i < c->pool.count && !text; i++)
            if (csv_number(c->pool.items[i].text, &number) && number == (which ? c->max : c->min))
                text = c->pool.items[i].text;
        if (!text || !is_sentinel(c, which, text)) continue;
        out->reason =
            arena_printf(arena,
                         "%s%s%s in %zu rows may mean a missing value; then list it, dataset.missing: [\"\", NA, "
                         "\"%s\"], and write {missing: median}",
                         out->reason ? out->reason : "", out->reason ? "; " : "", text, c->ends[which].count, text);
        out->rule = out->rule ? out->rule : "number";
    }
}

/* ---- identifiers ---- */

/* Whether the column says which row it is; *repeats: which rows belong together. */
static bool is_identifier(struct column_view *c, bool *repeats) {
    struct identifier_values v = {.name = c->name,
                                  .count = c->values,
                                  .missing = c->missing,
                                  .are_numbers = !holds_texts(c),
                                  .are_whole = c->whole == c->values,
                                  .is_complete = column_view_is_permutation(c) || column_view_is_regular(c)};
    enum identifier_name name = identifier_name(c->name);
    *repeats = false;
    if (c->has_dates || c->blobs) return false;
    if (name != NO_IDENTIFIER && name != NAME_OF_TIME) v.distinct = column_view_distinct(c);
    return identifier_is(&v, repeats);
}

static void ignore_identifier(struct column_view *c, bool repeats, struct arena *arena, struct column_suggestion *out) {
    out->rule = "ignore";
    out->texts = 0;
    if (column_view_is_counted(c))
        out->reason = "it counts the rows";
    else if (!repeats && column_view_is_regular(c) && fabs(c->step) != 1)
        out->reason = arena_printf(arena, "looks like an identifier: the numbers from %.17g to %.17g in steps of %.17g",
                                   c->first, c->last, fabs(c->step));
    else if (!repeats && column_view_is_permutation(c))
        out->reason =
            arena_printf(arena, "looks like an identifier: each number from %.17g to %.17g once", c->min, c->max);
    else
        out->reason =
            arena_printf(arena, "looks like an identifier: %zu different values in %zu rows%s", column_view_distinct(c),
                         c->values, repeats ? "; a split by rows would have some of each in both parts" : "");
}

/* Whether a split may leave the training rows without a value. */
static bool is_nearly_empty(const struct column_view *c) { return c->values < 5 && c->missing > 4 * c->values; }

/* What `columns:` needs for an input. [may_count]: a column of numbers that count the rows is used. */
static void choose_rule(struct column_view *c, const char *unit, bool may_count, struct arena *arena,
                        struct column_suggestion *out) {
    bool has_texts = holds_texts(c), is_date = has_texts && c->has_dates && c->starts_with_text;
    bool repeats;
    *out = (struct column_suggestion){
        .name = c->name, .missing = c->missing, .texts = has_texts && !is_date ? c->pool.count : 0};
    if (c->blobs > 0) {
        out->rule = "ignore";
        out->reason = "it has blobs";
    } else if (c->values == 0) {
        out->rule = "ignore";
        out->reason = "it is empty";
    } else if (is_nearly_empty(c)) {
        out->rule = "ignore";
        out->reason = arena_printf(arena, "%zu value%s in %zu rows", c->values, text_plural(c->values, "s"),
                                   c->values + c->missing);
    } else if (column_view_is_counted(c) && c->values > 2 && !may_count) {
        out->rule = "ignore";
        out->reason = "it counts the rows";
    } else if (is_identifier(c, &repeats) && (has_texts || repeats || !may_count)) {
        ignore_identifier(c, repeats, arena, out);
        out->repeats = repeats;
    } else if (!has_texts && c->inexact) {
        choose_large(c, arena, out);
    } else if (!has_texts && c->code) {
        choose_code(c, arena, out);
    } else if (has_texts && !is_date && c->form_count) {
        choose_format(c, arena, out);
    } else if (has_texts && !is_date && !are_categories(c)) {
        ignore_texts(c, unit, arena, out);
    } else if (has_texts && are_styled(c)) {
        out->rule = category_rule(c, arena);
        out->reason = explain_styles(c, unit, arena);
    } else if (has_texts && !c->starts_with_text) {
        out->rule = category_rule(c, arena);
        out->reason = arena_printf(arena, "%zu text%s among numbers, such as %s", c->values - c->numbers,
                                   text_plural(c->values - c->numbers, "s"), explain_text(c, unit, arena));
    } else if (c->missing) {
        out->rule = arena_printf(arena, "{missing: %s}", missing_rule_of(c, has_texts && !is_date));
        out->reason = arena_printf(arena, "%zu value%s missing", c->missing, c->missing == 1 ? " is" : "s are");
    }
}

/* ---- the target ---- */

static size_t default_target(const struct column_view *columns, size_t count) {
    struct target_choice choice = {0};
    for (size_t i = 0; i < count; i++) target_choice_add(&choice, i, columns[i].name, !columns[i].has_no_name);
    return choice.column;
}

static status find_target(const char *path, const char *target, const struct column_view *columns, size_t count,
                          size_t *out) {
    SCOPED_ARENA arena = arena_create();
    const char **names = arena_alloc(arena, (count + 1) * sizeof *names);
    for (size_t i = 0; i < count; i++) names[i] = columns[i].name;
    *out = target ? 0 : default_target(columns, count);
    while (target && *out < count && strcmp(names[*out], target) != 0) ++*out;
    const char *nearest = *out == count ? schema_nearest(target, names) : NULL;
    if (*out < count) return OK;
    return status_usage("--target: %s has no column '%s'%s%s%s", path, target, nearest ? "; did you mean '" : "",
                        nearest ? nearest : "", nearest ? "'" : "");
}

static void count_classes(const struct column_view *c, bool are_labels, struct arena *arena, struct suggestion *out) {
    out->target_kind = TARGET_CLASS;
    out->classes = are_labels ? (int64_t)c->pool.count : (int64_t)c->max + 1;
    out->smallest_class = c->values;
    out->names.items = arena_alloc(arena, (c->pool.count + 1) * sizeof *out->names.items);
    for (size_t i = 0; i < c->pool.count; i++) {
        if (c->pool.items[i].count < out->smallest_class) out->smallest_class = c->pool.items[i].count;
        if (are_labels) out->names.items[out->names.count++] = arena_copy(arena, c->pool.items[i].text);
    }
    if (are_labels) out->names.count = category_sort(out->names.items, out->names.count, false, NULL);
}

/* Whether the numbers of the target are not 0, 1, 2, ...: as classes they need the rule `category`. */
static bool are_number_labels(const struct column_view *c) {
    SCOPED_ARENA arena = arena_create();
    const char **texts = arena_alloc(arena, (c->pool.count + 1) * sizeof *texts);
    for (size_t i = 0; i < c->pool.count; i++) texts[i] = c->pool.items[i].text;
    bool is_each_once = category_sort(texts, c->pool.count, true, NULL) == c->pool.count; /* not also 1.0 for 1 */
    return is_each_once && (c->min != 0 || c->max + 1 != (double)c->pool.count);
}

static status choose_target(const char *path, const struct column_view *c, const char *unit, struct arena *arena,
                            struct suggestion *out) {
    const char *shown = arena_copy(arena, text_name(c->name).s);
    out->target = c->name;
    if (c->blobs)
        return status_usage("%s: the target '%s' has blobs; name another column by --target COLUMN", path, shown);
    if (c->values == 0)
        return status_usage("%s: the target '%s' has no values; name another column by --target COLUMN", path, shown);
    out->missing_targets = c->missing;
    if (holds_texts(c) && !are_categories(c) && are_styled(c))
        return status_usage(
            "%s: the target '%s' has %s; write plain numbers, or name another column by --target COLUMN", path, shown,
            explain_styles(c, unit, arena));
    if (holds_texts(c) && !are_categories(c) && c->numbers == 0)
        return status_usage("%s: the target '%s' has too many different texts (%zu or more in %zu rows) for classes; "
                            "name another column by --target COLUMN",
                            path, shown, c->pool.count, c->values);
    if (holds_texts(c) && (!c->starts_with_text || !are_categories(c)))
        return status_usage(
            "%s: the target '%s' has numbers and texts, such as %s; remove these rows, write texts only, "
            "or name another column by --target COLUMN",
            path, shown, explain_text(c, unit, arena));
    bool are_numbers = !holds_texts(c) && c->whole == c->values && c->min > -2 * MAX_NUMBER_CLASSES &&
                       c->max < 2 * MAX_NUMBER_CLASSES && c->pool.count > 1 && c->pool.count <= MAX_NUMBER_CLASSES &&
                       c->pool.count * 3 <= c->values;
    out->target_size = 1;
    out->target_kind = TARGET_VALUES;
    out->has_one_target = c->pool.count == 1 || (!holds_texts(c) && c->min == c->max);
    if (are_numbers && !are_number_labels(c) && c->min < 0) are_numbers = false;
    out->has_number_labels = are_numbers && are_number_labels(c);
    if (holds_texts(c) || are_numbers) count_classes(c, holds_texts(c) || out->has_number_labels, arena, out);
    return OK;
}

/* ---- rows ---- */

/* The names of the columns, from the first record; without a header 0, 1, 2, .... */
static status read_names(struct csv *csv, struct column_view **columns, size_t *count, struct arena *arena) {
    bool has_record;
    TRY(csv->input->next(csv, &has_record));
    if (!has_record) return status_data("%s: the file is empty", csv->path);
    *count = csv->reader.count;
    *columns = arena_alloc(arena, *count * sizeof **columns);
    for (size_t i = 0; i < *count; i++) {
        const char *text = csv->has_no_header ? arena_printf(arena, "%zu", i) : csv->reader.fields[i].text;
        (*columns)[i].pool.arena = (*columns)[i].marks.arena = arena;
        (*columns)[i].has_no_name = text[0] == 0;
        (*columns)[i].name = csv_name(text, i, arena);
        (*columns)[i].keeps_hashes = identifier_name((*columns)[i].name) != NO_IDENTIFIER;
        for (size_t k = 0; k < i && *count <= MAX_COMPARED; k++)
            if (strcmp((*columns)[k].name, (*columns)[i].name) == 0)
                return status_data("%s:%s: duplicate column '%s'", csv->path, csv->input->header, (*columns)[i].name);
    }
    return OK;
}

static status add_field(struct csv *csv, struct column_view *column, const char *text) {
    char stripped[CSV_UNGROUPED], ungrouped[CSV_UNGROUPED];
    bool was_undecided = csv_is_undecided(csv->decimal);
    const char *number = text;
    if (text != suggest_blob) number = csv_ungroup(csv_strip(text, csv->strip, stripped), csv->thousands, ungrouped);
    TRY(column_view_add(column, number, &csv->decimal, csv->reader.record_line));
    if (!was_undecided && csv_is_undecided(csv->decimal)) {
        csv->unclear = arena_copy(csv->arena, text);
        csv->unclear_line = csv->reader.record_line;
    }
    return OK;
}

/* Without a header the current record is the first row. */
static status read_rows(struct csv *csv, struct column_view *columns, size_t count) {
    for (bool has_record = csv->has_no_header;; has_record = false, csv->base.rows++) {
        const struct csv_reader *record = &csv->reader;
        if (!has_record) TRY(csv->input->next(csv, &has_record));
        if (!has_record && csv->base.rows == 0) return status_data("%s: there are no rows", csv->path);
        if (!has_record && csv_is_undecided(csv->decimal))
            return csv_ask_decimal(csv->path, csv->unclear_line, csv->unclear);
        if (!has_record) return OK;
        if (record->count != count)
            return status_data("%s:line %zu: there are %zu fields, but the header has %zu", csv->path,
                               record->record_line, record->count, count);
        for (size_t i = 0; i < count; i++) TRY(add_field(csv, &columns[i], record->fields[i].text));
    }
}

/* Adds the inputs: all columns but [target]. */
static void add_inputs(struct column_view *columns, size_t count, size_t target, const char *unit, bool may_count,
                       struct arena *arena, struct suggestion *out) {
    out->column_count = 0;
    out->group = NULL;
    for (size_t i = 0; i < count; i++) {
        struct column_suggestion *column = &out->columns[out->column_count];
        if (i == target || columns[i].has_no_name) continue;
        choose_rule(&columns[i], unit, may_count, arena, column);
        note_sentinel(&columns[i], arena, column);
        bool is_inferred = !column->rule || *column->rule == '{';
        if (out->missing_targets && column->texts && is_inferred) { /* its type would be that of fewer rows */
            column->rule = category_rule(&columns[i], arena);
            column->reason = column->reason ? column->reason : "texts of a few kinds";
        }
        bool is_ignored = column->rule && strcmp(column->rule, "ignore") == 0;
        if (!is_ignored) out->features += column->texts ? column->texts : 1;
        if (!is_ignored && column->rule && strstr(column->rule, "indicator")) out->features++;
        if (!out->group && column->repeats) out->group = column->name;
        if (!out->time && column_view_dates_rise(&columns[i])) out->time = columns[i].name;
        out->column_count++;
    }
}

/* ---- sentences ---- */

#define MAX_TOKENS 256 /* of a row */

static double mean_bytes(const struct column_view *c) {
    double sum = 0;
    for (size_t i = 0; i < c->pool.count; i++) sum += (double)strlen(c->pool.items[i].text);
    return sum / (double)c->pool.count;
}

/* Where no column is left: the column of the longest texts, if they have several words, becomes the input. */
static status add_sentences(const struct column_view *columns, size_t count, struct arena *arena,
                            struct suggestion *out) {
    const struct column_view *best = NULL;
    struct column_suggestion *column = NULL;
    for (size_t i = 0, k = 0; i < count && k < out->column_count; i++) {
        const struct column_view *c = &columns[i];
        if (c->name != out->columns[k].name) continue;
        struct column_suggestion *suggested = &out->columns[k++];
        bool may_be = c->numbers * 2 <= c->values && c->values > 0 && !c->blobs && !c->form_count && have_words(c, 2);
        if (!may_be || is_nearly_empty(c) || (best && mean_bytes(best) >= mean_bytes(c))) continue;
        best = c;
        column = suggested;
    }
    if (!best) return OK;
    size_t length;
    TRY(text_usual_length(&best->pool, &length));
    length = (length + 7) / 8 * 8;
    out->text_length = length < MAX_TOKENS ? length : MAX_TOKENS;
    out->text = column->name;
    out->features = out->text_length;
    column->rule = arena_printf(arena, "{type: text, length: %zu%s}", out->text_length,
                                best->missing ? ", missing: constant, fill: \" \"" : "");
    column->reason = "its first words are tokens; see docs/text.md";
    return OK;
}

/* ---- a series ---- */

#define MIN_SERIES 30 /* rows */

/* Whether the column says when a row was measured. */
static bool is_clock(struct column_view *c) {
    bool is_named = identifier_name(c->name) == NAME_OF_TIME;
    if (c->has_no_name || c->values < MIN_SERIES || c->missing) return false;
    if (column_view_dates_rise(c)) return true;
    if (!is_named) return false;
    return column_view_numbers_rise(c) || (holds_texts(c) && column_view_distinct(c) == c->values);
}

/* Whether the column counts the rows, or is an identifier that rises. */
static bool is_counter(const struct column_view *c) {
    if (c->has_no_name) return true;
    return c->missing == 0 && (column_view_is_counted(c) || (column_view_numbers_rise(c) && identifier_name(c->name)));
}

/* The only column that is neither clock nor counter, if there are clocks or no other name and it has numbers; else
 * [count]. */
static size_t find_series(struct column_view *columns, size_t count) {
    size_t value = count, clocks = 0, names = 0;
    for (size_t i = 0; i < count; i++) {
        bool is_a_clock = is_clock(&columns[i]);
        clocks += is_a_clock;
        names += !columns[i].has_no_name;
        if (is_a_clock || is_counter(&columns[i])) continue;
        if (value < count) return count;
        value = i;
    }
    bool is_series = (clocks > 0 || names == 1) && value < count && columns[value].numbers == columns[value].values &&
                     columns[value].values >= MIN_SERIES && columns[value].missing == 0 && columns[value].blobs == 0;
    return is_series ? value : count;
}

/* The target is forecast from its own past; a fifth of the rows must have several windows. */
static void add_series(struct column_view *columns, size_t count, size_t target, struct suggestion *out) {
    size_t rows = columns[target].values;
    out->window = rows >= 500 ? 24 : rows >= 100 ? 12 : 4;
    out->features = 1;
    for (size_t i = 0; i < count; i++) {
        struct column_suggestion *column = &out->columns[out->column_count];
        if (i == target || columns[i].has_no_name) continue;
        bool is_a_clock = is_clock(&columns[i]);
        if (is_a_clock) out->time = columns[i].name;
        *column = (struct column_suggestion){.name = columns[i].name, .rule = "ignore"};
        column->reason = is_a_clock ? "it gives the order of the rows" : "it counts the rows";
        out->column_count++;
    }
}

/* Gets the marks that mean missing values in an input, and decides about those of all columns. */
static status find_marks(struct column_view *columns, size_t count, size_t target, struct text_pool *missing) {
    size_t index;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; i != target && !columns[i].has_no_name && column_view_marks_missing(&columns[i]) &&
                           k < columns[i].marks.count;
             k++)
            TRY(text_pool_add(missing, columns[i].marks.items[k].text, i, &index));
    for (size_t i = 0; i < count; i++) {
        static const struct text_pool none;
        TRY(column_view_decide_marks(&columns[i], i == target ? &none : missing));
    }
    return OK;
}

/* The value of `missing:`, which replaces pandas' texts: the most usual ones, those of the file, and the marks. */
static void list_missing(const struct column_view *columns, size_t count, const struct text_pool *marks,
                         struct arena *arena, struct suggestion *out) {
    static const char *const usual[] = {"", "NA", "N/A", "NaN", "null", "None"};
    unsigned found = 0;
    size_t texts = 0;
    if (marks->count == 0) return;
    for (size_t i = 0; i < count; i++) found |= columns[i].missing_texts;
    while (csv_missing_text(texts)) texts++;
    out->missing.items = arena_alloc(arena, (texts + marks->count) * sizeof *out->missing.items);
    for (size_t i = 0; i < texts; i++) {
        bool is_usual = found >> i & 1;
        for (size_t k = 0; k < sizeof usual / sizeof *usual; k++)
            is_usual = is_usual || strcmp(usual[k], csv_missing_text(i)) == 0;
        if (is_usual) out->missing.items[out->missing.count++] = csv_missing_text(i);
    }
    for (size_t i = 0; i < marks->count; i++) out->missing.items[out->missing.count++] = marks->items[i].text;
    out->missing_mark = marks->items[0].text;
    out->missing_column = columns[marks->items[0].first_row].name;
}

/* "'a': it is empty; 'b': ..." */
static status reject_inputs(const char *path, const struct suggestion *s) {
    SCOPED_TEXT why = {0};
    for (size_t i = 0; i < s->column_count && i < 3; i++) {
        text_add(&why, i ? "; '" : ": '");
        text_add_value(&why, s->columns[i].name, TEXT_MAX_NAME);
        text_printf(&why, "': %s", s->columns[i].reason);
    }
    text_add(&why, "; see ddptrain inspect ");
    text_add_shell(&why, path);
    return status_usage("%s: no column is left for the inputs%s", path, text_string(&why));
}

/* Where the chosen column has sentences, only its place speaks for it: the last other one that can be a target. */
static size_t skip_sentences(const struct column_view *columns, size_t count, size_t at) {
    const struct column_view *chosen = &columns[at];
    if (target_is_usual(chosen->name) || !holds_texts(chosen) || are_categories(chosen) || !have_words(chosen, 4))
        return at;
    for (size_t i = count; i-- > 0;) {
        const struct column_view *c = &columns[i];
        bool may_be = !c->has_no_name && c->values > 0 && !c->blobs && !column_view_is_counted(c);
        if (may_be && (!holds_texts(c) || (are_categories(c) && c->starts_with_text))) return i;
    }
    return at;
}

static status view_columns(const struct csv *csv, const char *target, struct column_view *columns, size_t count,
                           struct arena *arena, struct suggestion *out) {
    size_t at = 0;
    const char *path = csv->path, *unit = csv->input->unit;
    struct text_pool marks = {.arena = arena};
    TRY(find_target(path, target, columns, count, &at));
    size_t series = find_series(columns, count);
    if (!target && series < count) at = series;
    bool is_series = at == series;
    size_t last = at;
    if (!target && !is_series) at = skip_sentences(columns, count, at);
    out->target_why = target      ? "by --target"
                      : count < 2 ? "the only column"
                      : is_series ? "the only column besides those that count or date the rows"
                      : at < last ? "the last column without sentences"
                                  : target_why(columns[at].name);
    status s = find_marks(columns, count, at, &marks);
    if (!s) list_missing(columns, count, &marks, arena, out);
    text_pool_free(&marks);
    if (!s) s = choose_target(path, &columns[at], unit, arena, out);
    if (s) return s;
    out->columns = arena_alloc(arena, count * sizeof *out->columns);
    if (is_series && out->target_kind == TARGET_VALUES) {
        add_series(columns, count, at, out);
        return OK;
    }
    add_inputs(columns, count, at, unit, false, arena, out);
    if (out->features == 0) TRY(add_sentences(columns, count, arena, out));
    if (out->features == 0) add_inputs(columns, count, at, unit, true, arena, out);
    return out->features > 0 ? OK : reject_inputs(path, out);
}

/* Whether numbers are written by people, in the lines of a text. */
static bool is_text(const struct csv *csv) { return csv->base.format == &dataset_csv; }

/* The characters around the numbers of the columns all of whose numbers have them; NULL: there are none. Where another
 * column has numbers with and without them, they are needed to tell those apart. */
static const char *find_strip(const struct csv *csv, const struct column_view *columns, size_t count,
                              struct arena *arena, struct suggestion *out) {
    const unsigned marks = NUMBER_PERCENT | NUMBER_CURRENCY;
    unsigned mixed = 0;
    SCOPED_TEXT found = {0};
    if (!is_text(csv) || csv->strip) return NULL;
    for (size_t i = 0; i < count; i++)
        if (are_styled(&columns[i]) && columns[i].numbers > 0) mixed |= columns[i].styles;
    for (size_t i = 0; i < count; i++) {
        const struct column_view *c = &columns[i];
        bool may_count = c->numbers == 0 && c->styles == NUMBER_PARENTHESES; /* (1), (2), ... */
        if (!are_styled(c) || may_count || (c->styles & marks & mixed)) continue;
        unsigned styles = csv->decimal == '.' ? c->styles : c->styles & ~(unsigned)NUMBER_COMMA;
        if (suggest_strip(styles, &found) && !out->strip_text) out->strip_text = c->styled_text;
    }
    return found.length ? arena_copy(arena, text_string(&found)) : NULL;
}

/* The separator of thousands of the columns whose numbers have one and nothing else; 0: there is none, or several. */
static char find_thousands(const struct csv *csv, const struct column_view *columns, size_t count,
                           struct suggestion *out) {
    char found = 0;
    if (!is_text(csv) || csv->thousands) return 0;
    for (size_t i = 0; i < count; i++) {
        const struct column_view *c = &columns[i];
        if (c->styles & NUMBER_COMMA) return 0;
        if (!are_styled(c) || c->styles != NUMBER_SEPARATORS) continue;
        char separator = c->styled_text[strcspn(c->styled_text, ".,' \xc2\xe2")];
        if (separator == '\xc2') separator = ' ';
        if (separator == '\xe2') separator = strstr(c->styled_text, "\u2019") ? '\'' : ' ';
        bool is_decimal = separator == '.' ? csv->decimal == '.' : separator == ',' && csv->decimal != '.';
        if (separator == 0 || (found && separator != found) || is_decimal) return 0;
        found = separator;
        out->thousands_text = c->styled_text;
    }
    return found;
}

/* Reads all rows. [target] and the failures: as for suggest. Of a text without strip, or thousands, the numbers of a
 * column may show that there are some: then only out->strip and strip_text, or out->thousands and
 * thousands_text, are set, and the rows must be read again. */
static status suggest_columns(struct csv *csv, const char *target, struct arena *arena, struct suggestion *out) {
    struct column_view *columns = NULL;
    size_t count = 0;
    status s = read_names(csv, &columns, &count, arena);
    if (!s) s = read_rows(csv, columns, count);
    out->rows = csv->base.rows;
    if (columns && count < 2 && (s || find_series(columns, count) == count))
        s = status_first(status_data("%s:%s: expected two columns or more%s", csv->path, csv->input->header,
                                     is_text(csv) ? ", separated by , ; | tabs or blanks" : ""),
                         s);
    const char *strip = s ? NULL : find_strip(csv, columns, count, arena, out);
    char thousands = s || strip ? 0 : find_thousands(csv, columns, count, out);
    if (strip) out->strip = strip;
    if (thousands) out->thousands = thousands;
    if (!s && !strip && !thousands) s = view_columns(csv, target, columns, count, arena, out);
    for (size_t i = 0; columns && i < count; i++) column_view_free(&columns[i]);
    out->input_dims = out->window ? 2 : 1;
    out->input_shape[0] = (int64_t)(out->window ? out->window : out->features);
    out->input_shape[1] = (int64_t)out->features;
    return s;
}

/* ---- tables ---- */

/* Reads the first file of the config as a table of [format]; it is typical. */
static status read_table(const struct dataset_format *format, const struct dataset_config *config, const char *target,
                         struct arena *arena, struct suggestion *out) {
    struct csv *csv;
    TRY(csv_open_records(format, config, false, &csv));
    csv->is_whole = true;
    csv->has_no_header = config->csv.has_no_header;
    status s = csv_start_file(csv, config, false, 0);
    if (!s) s = suggest_columns(csv, target, arena, out);
    out->rows *= csv->part_count;
    csv_close(&csv->base);
    return s;
}

/* The table is read again with each key that its numbers need. */
static status suggest_csv(const char *path, const char *target, const struct csv_choice *csv, struct arena *arena,
                          struct suggestion *out) {
    uint64_t bytes;
    struct dataset_config config = {.path = path};
    struct csv_config *dialect = &config.csv;
    if (csv->dialect) *dialect = *csv->dialect;
    TRY(file_check(path, &bytes));
    out->has_no_header = !csv->has_header_key && csv_first_is_row(path, csv->dialect);
    if (!csv->has_header_key) dialect->has_no_header = out->has_no_header;
    for (bool is_complete = false; !is_complete;) {
        TRY(read_table(&dataset_csv, &config, target, arena, out));
        bool needs_strip = out->strip && !dialect->strip, needs_thousands = out->thousands && !dialect->thousands;
        is_complete = !needs_strip && !needs_thousands;
        if (needs_strip) dialect->strip = out->strip;
        if (needs_thousands) dialect->thousands = arena_printf(arena, "%c", out->thousands);
    }
    return OK;
}

/* ---- SQLite ---- */

static void name_tables(const struct string_list *tables, const char *table, struct arena *arena,
                        struct suggestion *out) {
    SCOPED_TEXT others = {0};
    out->table = table;
    for (size_t i = 0; i < tables->count && others.length < TEXT_MAX_NAME; i++) {
        if (tables->items[i] == table) continue;
        text_add(&others, others.length ? ", " : "");
        text_add_value(&others, tables->items[i], TEXT_MAX_NAME);
    }
    out->other_tables = arena_copy(arena, text_string(&others));
}

static status suggest_sqlite(const char *path, const char *target, struct arena *arena, struct suggestion *out) {
    struct dataset_config config = {.path = path};
    struct string_list tables;
    TRY(sqlite_choose_table(path, target, arena, &tables, &config.table));
    TRY(read_table(&dataset_sqlite, &config, target, arena, out));
    if (tables.count > 1) name_tables(&tables, config.table, arena, out);
    return OK;
}

/* ---- other formats ---- */

static status count_smallest(struct dataset *dataset, struct suggestion *out) {
    const struct dataset_info *info = dataset_info(dataset);
    SCOPED_BUFFER int64_t *classes = NULL;
    SCOPED_BUFFER size_t *counts = NULL;
    status s = rows_alloc(info->train_rows, sizeof *classes, "the classes", &classes);
    if (!s) s = rows_alloc((size_t)info->classes, sizeof *counts, "the classes", &counts);
    if (!s) s = dataset_train_classes(dataset, classes);
    for (size_t i = 0; !s && i < info->train_rows; i++) counts[classes[i]]++;
    out->smallest_class = info->train_rows;
    for (int64_t c = 0; !s && c < info->classes; c++)
        if (counts[c] > 0 && counts[c] < out->smallest_class) out->smallest_class = counts[c];
    out->has_one_target = !s && out->smallest_class == info->train_rows;
    return s;
}

static void keep_warnings(const struct dataset *dataset, struct arena *arena, struct suggestion *out) {
    static const char start[] = "warning: ";
    struct string_list notes = dataset_notes(dataset);
    out->warnings = (struct string_list){.items = arena_alloc(arena, (notes.count + 1) * sizeof *notes.items)};
    for (size_t i = 0; i < notes.count; i++)
        if (strncmp(notes.items[i], start, strlen(start)) == 0)
            out->warnings.items[out->warnings.count++] = arena_copy(arena, notes.items[i] + strlen(start));
}

/* Many classes with few rows each are probably whole numbers of a regression. */
static bool are_values(const struct suggestion *s) {
    return s->input_kind == INPUT_VALUES && s->names.count == 0 && s->classes > SUGGESTED_NUMBER_CLASSES &&
           (size_t)s->classes * 10 > s->rows;
}

static status describe(struct dataset *dataset, struct arena *arena, struct suggestion *out) {
    const struct dataset_info *info = dataset_info(dataset);
    struct string_list labels = dataset_labels(dataset);
    out->rows = info->train_rows;
    out->input_kind = info->input_kind;
    out->input_dims = info->input_dims;
    memcpy(out->input_shape, info->input_shape, sizeof out->input_shape);
    out->features = info->input_size;
    out->target_kind = info->target_kind;
    out->classes = info->classes;
    out->target_size = info->target_size;
    out->names = (struct string_list){arena_alloc(arena, (labels.count + 1) * sizeof *labels.items), labels.count};
    for (size_t i = 0; i < labels.count; i++) out->names.items[i] = arena_copy(arena, labels.items[i]);
    keep_warnings(dataset, arena, out);
    bool has_classes = info->target_kind == TARGET_CLASS && info->input_kind == INPUT_VALUES &&
                       info->target_size == 1 && !are_values(out);
    return has_classes ? count_smallest(dataset, out) : OK;
}

static status open_once(const struct dataset_config *config, bool wants_classes, struct arena *arena,
                        struct suggestion *out) {
    struct dataset *dataset;
    TRY(dataset_open(config, wants_classes, true, &dataset));
    status s = describe(dataset, arena, out);
    dataset_close(dataset);
    return s;
}

/* Opens images (height, width, channels) again, with this layout. */
static status open_as(const struct dataset_config *config, bool wants_classes, struct arena *arena,
                      struct suggestion *out) {
    struct dataset_config turned = *config;
    const struct dataset_format *format = dataset_format_of(config, config->path);
    TRY(open_once(config, wants_classes, arena, out));
    out->is_channels_last = format->has_layout && source_seems_channels_last(out->input_dims, out->input_shape);
    if (!out->is_channels_last) return OK;
    turned.layout = LAYOUT_NHWC;
    return open_once(&turned, wants_classes, arena, out);
}

#define MAX_HEADERS 100    /* images whose sizes are read */
#define MAX_IMAGE_SIZE 256 /* pixels that need no resize */

struct image_sizes {
    int64_t items[2][MAX_HEADERS]; /* heights, widths */
    size_t count, grey;
};

static int compare_sizes(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* *names: of all images, and "file" before them. */
static status list_images(const struct dataset_config *config, struct arena *arena, struct string_list *names) {
    struct csv *csv;
    size_t capacity = 0;
    bool has_record = false;
    TRY(csv_open_records(&dataset_images, config, false, &csv));
    status s = csv_start_file(csv, config, false, 0);
    if (!s) s = csv->input->next(csv, &has_record);
    while (!s && has_record) {
        s = array_grow(&names->items, &capacity, names->count + 1, sizeof *names->items, "the images");
        if (s) break;
        names->items[names->count++] = arena_copy(arena, csv->reader.fields[0].text);
        s = csv->input->next(csv, &has_record);
    }
    csv_close(&csv->base);
    return s;
}

/* [names]: as of list_images. */
static void read_sizes(const struct archive *archive, const struct string_list *names, struct image_sizes *out) {
    size_t step = names->count / MAX_HEADERS + 1;
    for (size_t i = step == 1 ? 1 : step - 1; i < names->count && out->count < MAX_HEADERS; i += step) {
        struct image_header header;
        bool found;
        status s = image_header_read(&(struct image_place){archive, names->items[i]}, &header, &found);
        if (s || !found) {
            status_free(s);
            continue;
        }
        out->items[0][out->count] = (int64_t)header.height;
        out->items[1][out->count++] = (int64_t)header.width;
        out->grey += header.is_grey;
    }
}

/* The size of all images, if it is the same and not large; else the median, if it is small. */
static void choose_image_size(const struct dataset_config *config, struct suggestion *out) {
    struct image_sizes sizes = {0};
    SCOPED_ARENA arena = arena_create();
    struct string_list names = {0};
    struct archive *archive = NULL;
    status s = list_images(config, arena, &names);
    if (!s) s = archive_open(config->path, &archive);
    if (!s) read_sizes(archive, &names, &sizes);
    free(names.items);
    archive_close(archive);
    status_free(s); /* reported when the dataset is opened */
    out->image_channels = sizes.count > 0 && sizes.grey == sizes.count ? 1 : 3;
    out->are_images_resized = sizes.count == 0;
    for (int i = 0; i < 2; i++) {
        qsort(sizes.items[i], sizes.count, sizeof **sizes.items, compare_sizes);
        int64_t first = sizes.items[i][0], median = sizes.items[i][sizes.count / 2];
        bool is_same = sizes.count > 0 && first == sizes.items[i][sizes.count - 1] && first <= MAX_IMAGE_SIZE;
        out->are_images_resized = out->are_images_resized || !is_same;
        bool is_small = sizes.count > 0 && median < SUGGESTED_IMAGE_SIZE;
        int64_t rounded = median < 12 ? 8 : (median + 4) / 8 * 8;
        out->image_size[i] = is_same ? median : is_small ? rounded : SUGGESTED_IMAGE_SIZE;
    }
}

static status suggest_rows(const char *path, const char *target, struct arena *arena, struct suggestion *out) {
    struct dataset_config config;
    struct problems problems = {0};
    bool is_hdf5 = strcmp(out->format, dataset_hdf5.name) == 0;
    schema_bind(&dataset_schema, NULL, "dataset", &dataset_schema, &config, arena, &problems); /* the defaults */
    problems_free(&problems);
    config.path = path;
    config.text.block_size = SUGGEST_TEXT_BLOCK;
    config.text.stride = SUGGEST_TEXT_STRIDE;
    if (is_hdf5) TRY(hdf5_names_find(path, target, arena, &out->inputs, &out->target, &out->unused));
    const char *targets = out->target ? out->target : target;
    if (out->inputs) config.inputs = (struct string_list){&out->inputs, 1};
    if (targets) config.targets = (struct string_list){&targets, 1};
    config.image.labels = out->labels;
    if (out->is_image_folder) {
        choose_image_size(&config, out);
        config.image.size = (struct int_list){.items = out->image_size, .count = 2};
        config.image.channels = out->image_channels;
    }
    status failure = open_as(&config, true, arena, out);
    if (!failure && !are_values(out)) return OK;
    status s = open_as(&config, false, arena, out);
    if (s && failure) {
        status_free(s);
        return failure;
    }
    status_free(failure);
    return s;
}

/* A folder of images; without a part for the validation that for tests is taken. */
static status suggest_folder(const char *path, const char *target, struct arena *arena, struct suggestion *out) {
    const char *parts[IMAGE_PARTS];
    TRY(image_parts_find(path, arena, parts));
    out->format = dataset_images.name;
    out->is_image_folder = true;
    out->validation = parts[IMAGE_PART_VALIDATION] ? parts[IMAGE_PART_VALIDATION] : parts[IMAGE_PART_TEST];
    if (parts[IMAGE_PART_VALIDATION]) out->test = parts[IMAGE_PART_TEST];
    if (parts[IMAGE_PART_TRAIN]) out->path = parts[IMAGE_PART_TRAIN];
    return suggest_rows(out->path, target, arena, out);
}

/* Of the columns after that of the images. */
static const char *usual_target(const struct string_list *columns) {
    struct target_choice choice = {0};
    for (size_t i = 1; i < columns->count; i++)
        target_choice_add(&choice, i, columns->items[i], *columns->items[i] != 0);
    return columns->items[choice.column];
}

/* A CSV file of labels: the images that its first column names are the inputs. Its target: as that of a table. */
static status suggest_labels(const char *path, const struct image_names *images, const char *target,
                             struct arena *arena, struct suggestion *out) {
    const struct string_list *columns = &images->columns;
    out->format = dataset_images.name;
    out->is_image_folder = true;
    out->path = images->folder;
    out->labels = path;
    out->image_column = columns->items[0];
    out->target = target ? target : usual_target(columns);
    out->target_why = target ? "by --target" : target_why(out->target);
    return suggest_rows(out->path, out->target, arena, out);
}

status suggest(const char *path, const char *target, const struct csv_choice *csv, struct arena *arena,
               struct suggestion *out) {
    static const struct dataset_config automatic;
    struct io_info info;
    *out = (struct suggestion){.path = path};
    TRY(io_stat(path, &info));
    if (info.is_folder || archive_in_path(path)) return suggest_folder(path, target, arena, out);
    const struct dataset_format *format = dataset_format_of(&automatic, path);
    if (!format) {
        uint64_t bytes;
        SCOPED_TEXT names = {0};
        TRY(file_check(path, &bytes));
        dataset_format_names(&names);
        return status_usage("'%s': unknown file extension%s; the formats are: %s", path, dataset_format_advice(path),
                            text_string(&names));
    }
    out->format = format->name;
    if (format == &dataset_sqlite) return suggest_sqlite(path, target, arena, out);
    if (frame_is_format(format))
        return read_table(format, &(struct dataset_config){.path = path, .targets = {&target, target != NULL}}, target,
                          arena, out);
    if (format != &dataset_csv) return suggest_rows(path, target, arena, out);
    struct string_list files;
    TRY(file_pattern_expand(path, arena, &files)); /* the first file is typical */
    struct image_names images;
    image_names_find(files.items[0], arena, &images);
    if (images.folder && files.count == 1) return suggest_labels(path, &images, target, arena, out);
    TRY(suggest_csv(files.items[0], target, csv, arena, out));
    out->rows *= files.count;
    return OK;
}

/* ---- inspect ---- */

/* `inspect` for data files that are not HDF5: what a format says about a file (a CSV file's columns), or the shape of
 * its rows. */

static status inspect_rows(const char *path, const char *format, struct arena *arena, struct text *out) {
    struct dataset_config config;
    struct problems problems = {0};
    struct dataset *dataset;
    schema_bind(&dataset_schema, NULL, "dataset", &dataset_schema, &config, arena, &problems); /* the defaults */
    problems_free(&problems);
    config.path = path;
    config.request.without_targets = true;
    TRY(dataset_open(&config, true, true, &dataset));
    const struct dataset_info *info = dataset_info(dataset);
    text_printf(out, "file    %s\nformat  %s, %zu row%s of (", path, format, info->train_rows,
                text_plural(info->train_rows, "s"));
    for (int i = 0; i < info->input_dims; i++)
        text_printf(out, "%s%lld", i ? ", " : "", (long long)info->input_shape[i]);
    text_add(out, info->input_kind == INPUT_TOKENS ? ") tokens" : ")");
    if (info->vocabulary) text_printf(out, ", vocabulary %lld", (long long)info->vocabulary);
    text_add(out, "\n");
    dataset_close(dataset);
    return OK;
}

bool dataset_is_inspected(const char *path) {
    static const struct dataset_config by_extension;
    const struct dataset_format *format = dataset_format_of(&by_extension, path);
    return image_is_named(path) || (format && strcmp(format->name, "hdf5") != 0);
}

static status inspect_image(const char *path, struct text *out) {
    struct image_config config = {.channels = 3};
    struct image_decoder *decoder;
    text_printf(out, "file    %s\nformat  ", path);
    status s = image_decoder_create(&config, &decoder);
    if (!s) s = image_describe_file(decoder, &(struct image_place){NULL, path}, out);
    image_decoder_destroy(decoder);
    text_add(out, "\n");
    return s;
}

status dataset_inspect(const char *path, struct text *out) {
    static const struct dataset_config by_extension;
    const struct dataset_format *format = dataset_format_of(&by_extension, path);
    uint64_t bytes;
    struct io_info info = {0};
    if (!format && image_is_named(path)) TRY(io_stat(path, &info));
    if (info.is_file) return inspect_image(path, out);
    SCOPED_ARENA arena = arena_create();
    status s = format ? OK : io_stat(path, &info);
    if (!s && !format && (info.is_folder || archive_in_path(path))) format = &dataset_images;
    if (!s && format != &dataset_images) s = file_check(path, &bytes);
    if (!s) s = format->inspect ? format->inspect(path, out) : inspect_rows(path, format->name, arena, out);
    return s;
}
