/* The first rows are enough: a name is hardly ever a value of its column. */
#include "data/source/csv_header.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "data/columns/date.h"
#include "data/source/csv_source.h"
#include "data/source/suggest_numbers.h"

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
    struct arena *arena = arena_create();
    char *text = NULL;
    bool is_row = false;
    status s = csv_open_first(path, dialect ? dialect : &recognised, &reader, &text);
    if (!s) s = compare(&reader, arena, &is_row);
    if (s) is_row = false;
    status_free(s);
    csv_free(&reader);
    buffer_free(text);
    arena_destroy(arena);
    return is_row;
}
