/* Whether the rows of a table with dataset.window are in the order of time and have equal distances, as they are taken:
 * the dates of each column that has some are compared with those of the row above in the same series, also where the
 * column is not an input. A column of other dates, such as birthdays, is no warning as long as another one ascends, or
 * ascends by equal steps. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "data/columns/date.h"
#include "data/source/csv_source.h"

#define CLOCK_CHANGE 3600.0 /* seconds by which clocks go back at the end of daylight saving time */

#define MAX_STEPS 8     /* different steps of a column that are counted one by one */
#define TOLERANCE 0.125 /* of equal steps: months have 28 to 31 days, and clocks of devices vary */

/* Steps that a calendar explains. */
enum step_kind { STEP_PLAIN, STEP_SUNDAY_NIGHT /* when clocks change */, STEP_WEEKEND /* from a Friday to a Monday */ };

/* Rows whose distance from the row above is about the same. */
struct csv_step {
    enum step_kind kind;
    double seconds; /* of the first of them */
    size_t count;
    const char *why; /* about the first of them */
};

/* The dates of a column. */
struct csv_order {
    const char *format;         /* of date_parse */
    bool has_last, is_adjacent; /* is_adjacent: the row above has a date */
    double last, group;         /* of the last row with a date, and its series */
    char above[32];             /* its text, or the start of it */
    size_t dates;
    size_t earlier, later;  /* rows before and after the row above */
    bool is_far;            /* one of them by more than CLOCK_CHANGE */
    const char *why;        /* about the first of them */
    struct csv_step *steps; /* (step_count), then one for all others (MAX_STEPS + 1) */
    size_t step_count;
};

void csv_order_start(struct csv *csv, const struct dataset_config *config) {
    if (config->window.steps == 0 || config->cells) return;
    csv->orders = arena_alloc(csv->arena, csv->n_columns * sizeof *csv->orders);
    for (size_t i = 0; i < csv->n_columns; i++) {
        struct role *role = &csv->roles[i];
        bool is_input = role->at != NOT_USED && !role->is_target && !role->is_weight && !role->is_group;
        csv->orders[i] = (struct csv_order){.format = is_input ? csv->builders[role->at].date_format : NULL};
        role->may_be_date = is_input || role->at == NOT_USED;
    }
}

/* Numbers such as 20240531 are no dates, unless the config has the format. */
static bool parse(const struct csv_order *order, const char *text, double *seconds) {
    return (order->format || strpbrk(text, "-/")) && date_parse(text, order->format, seconds);
}

static void note_earlier(struct csv *csv, size_t column, const char *text, double seconds) {
    struct csv_order *order = &csv->orders[column];
    order->is_far |= order->last - seconds > CLOCK_CHANGE;
    if (order->earlier++ > 0) return;
    order->why = arena_printf(csv->arena, "%s:%s %zu: column '%s': '%s' is before '%s' of the row above", csv->path,
                              csv->input->unit, csv->reader.record_line, csv_printable(csv, csv->names[column]),
                              csv_printable(csv, text), csv_printable(csv, order->above));
}

static enum step_kind kind_of(double before, double after) {
    double day = date_part_of(after, DATE_WEEKDAY);
    if (day == 6 && date_part_of(after, DATE_HOUR) < 4) return STEP_SUNDAY_NIGHT;
    bool is_weekend = day == 0 && date_part_of(before, DATE_WEEKDAY) == 4 && after - before < 4 * 86400.0;
    return is_weekend ? STEP_WEEKEND : STEP_PLAIN;
}

static bool are_equal(double a, double b) { return fabs(a - b) <= TOLERANCE * b; }

static const char *duration(struct arena *arena, double seconds) {
    static const struct {
        double seconds;
        const char *name;
    } units[] = {{86400, "day"}, {3600, "h"}, {60, "min"}, {0, "s"}};
    size_t i = 0;
    while (seconds < units[i].seconds) i++;
    double value = units[i].seconds > 0 ? seconds / units[i].seconds : seconds;
    bool is_plural = i == 0 && seconds > units[0].seconds;
    return arena_printf(arena, "%.4g %s%s", value, units[i].name, is_plural ? "s" : "");
}

static void add_step(struct csv *csv, size_t column, const char *text, double seconds) {
    struct csv_order *order = &csv->orders[column];
    double length = seconds - order->last;
    enum step_kind kind = kind_of(order->last, seconds);
    size_t at = 0;
    if (!order->steps) order->steps = arena_alloc(csv->arena, (MAX_STEPS + 1) * sizeof *order->steps);
    while (at < order->step_count && (order->steps[at].kind != kind || !are_equal(length, order->steps[at].seconds)))
        at++;
    struct csv_step *step = &order->steps[at];
    if (at == order->step_count && at < MAX_STEPS) order->step_count++;
    if (step->count++ > 0) return;
    step->kind = kind;
    step->seconds = length;
    step->why = arena_printf(csv->arena, "%s:%s %zu: column '%s': '%s' is %s after '%s' of the row above", csv->path,
                             csv->input->unit, csv->reader.record_line, csv_printable(csv, csv->names[column]),
                             csv_printable(csv, text), duration(csv->arena, length), csv_printable(csv, order->above));
}

void csv_order_add(struct csv *csv, size_t column, const char *text, const double *row) {
    struct csv_order *order = &csv->orders[column];
    double seconds, group = csv->group_column == NOT_USED ? 0 : row[csv_group_at(csv)];
    bool is_adjacent = order->is_adjacent;
    order->is_adjacent = !csv_is_missing(csv, text);
    if (!order->is_adjacent) return;
    csv->roles[column].may_be_date = parse(order, text, &seconds);
    if (!csv->roles[column].may_be_date) return;
    bool has_above = order->has_last && order->group == group;
    if (has_above && seconds < order->last) note_earlier(csv, column, text, seconds);
    if (has_above && seconds > order->last) order->later++;
    if (has_above && is_adjacent && seconds >= order->last) add_step(csv, column, text, seconds);
    order->has_last = true;
    order->last = seconds;
    order->group = group;
    order->dates++;
    snprintf(order->above, sizeof order->above, "%s", text);
}

/* Clocks that go back once or twice a year are no disorder. */
static bool is_disordered(const struct csv_order *order) {
    return order->is_far || (order->earlier > 1 && order->earlier > order->dates / 100);
}

/* The step that the others should have: the most frequent one if it is usual, else the first; NULL: the rows have no
 * distances that could be compared. */
static const struct csv_step *expected_step(const struct csv_order *order, size_t *total, bool *is_usual) {
    const struct csv_step *most = NULL, *first = NULL;
    size_t zeros = 0;
    *total = order->steps ? order->steps[MAX_STEPS].count : 0;
    for (size_t i = 0; i < order->step_count; i++) {
        const struct csv_step *step = &order->steps[i];
        *total += step->count;
        if (step->seconds <= 0) zeros += step->count;
        if (step->seconds > 0 && !first) first = step;
        if (step->seconds > 0 && (!most || step->count > most->count)) most = step;
    }
    if (*total < 3 || zeros * 4 >= *total) return NULL; /* several rows of a time */
    *is_usual = most && most->count * 2 > *total;
    return *is_usual ? most : first;
}

static bool is_expected(const struct csv_step *step, const struct csv_step *expected) {
    if (step->kind == STEP_WEEKEND && are_equal(expected->seconds, 86400)) return true;
    if (step->kind == STEP_SUNDAY_NIGHT && are_equal(fabs(step->seconds - expected->seconds), CLOCK_CHANGE))
        return true;
    return are_equal(step->seconds, expected->seconds);
}

/* A warning about rows of unequal distances; NULL: there are none. */
static const char *explain_steps(const struct csv *csv, const struct csv_order *order) {
    bool is_usual;
    size_t total, unequal = 0;
    const char *why = NULL;
    const struct csv_step *expected = expected_step(order, &total, &is_usual);
    for (size_t i = 0; expected && i <= MAX_STEPS; i++) {
        const struct csv_step *step = &order->steps[i];
        if (step->count == 0 || (i < MAX_STEPS && is_expected(step, expected))) continue;
        if (!why) why = step->why;
        unequal += step->count;
    }
    if (!why) return NULL;
    return arena_printf(
        csv->arena,
        "%s and the %s step is %s, so %zu of %zu steps differ; dataset.window takes rows as equal steps "
        "of time: add the missing rows, or number the parts without gaps in a column for "
        "dataset.window.group",
        why, is_usual ? "usual" : "first", duration(csv->arena, expected->seconds), unequal, total);
}

static void warn_of_order(struct csv *csv, const struct csv_order *found) {
    const char *more =
        found->earlier == 1 ? "" : arena_printf(csv->arena, ", and %zu more rows are like it", found->earlier - 1);
    csv->base.warning = arena_printf(csv->arena, "%s%s; dataset.window takes rows in the order of %s", found->why, more,
                                     csv->records                    ? "dataset.query: write one with `order by`"
                                     : csv->group_column == NOT_USED ? "the file: sort them by time"
                                                                     : "the file: sort those of each series by time");
}

void csv_order_finish(struct csv *csv) {
    const struct csv_order *found = NULL;
    const char *steps = NULL;
    bool has_order = false;
    for (size_t i = 0; csv->orders && i < csv->n_columns; i++) {
        const struct csv_order *order = &csv->orders[i];
        if (!csv->roles[i].may_be_date || order->earlier + order->later == 0) continue; /* or dates all alike */
        if (is_disordered(order)) {
            found = found ? found : order;
            continue;
        }
        const char *unequal = explain_steps(csv, order);
        if (!unequal) return;
        steps = has_order ? steps : unequal;
        has_order = true;
    }
    if (has_order)
        csv->base.warning = steps;
    else if (found)
        warn_of_order(csv, found);
}
