/* Whether the rows of a table with dataset.window are in the order of time, as they are taken: the dates of each column
 * that has some are compared with those of the row above in the same series, also where the column is not an input. A
 * column of other dates, such as birthdays, is no warning as long as another one ascends. */
#include <stdio.h>
#include <string.h>

#include "data/columns/date.h"
#include "data/tables/csv_source.h"

#define CLOCK_CHANGE 3600.0 /* seconds by which clocks go back at the end of daylight saving time */

/* The dates of a column. */
struct csv_order {
    const char *format; /* of date_parse */
    bool has_last;
    double last, group; /* of the row above, and its series */
    char above[32];     /* its text, or the start of it */
    size_t dates;
    size_t earlier, later; /* rows before and after the row above */
    bool is_far;           /* one of them by more than CLOCK_CHANGE */
    const char *why;       /* about the first of them */
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

void csv_order_add(struct csv *csv, size_t column, const char *text, const double *row) {
    struct csv_order *order = &csv->orders[column];
    double seconds, group = csv->group_column == NOT_USED ? 0 : row[csv_group_at(csv)];
    if (csv_is_missing(csv, text)) return;
    csv->roles[column].may_be_date = parse(order, text, &seconds);
    if (!csv->roles[column].may_be_date) return;
    bool has_above = order->has_last && order->group == group;
    if (has_above && seconds < order->last) note_earlier(csv, column, text, seconds);
    if (has_above && seconds > order->last) order->later++;
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

void csv_order_finish(struct csv *csv) {
    const struct csv_order *found = NULL;
    for (size_t i = 0; csv->orders && i < csv->n_columns; i++) {
        const struct csv_order *order = &csv->orders[i];
        if (!csv->roles[i].may_be_date || order->earlier + order->later == 0) continue; /* or dates all alike */
        if (!is_disordered(order)) return;
        if (!found) found = order;
    }
    if (!found) return;
    const char *more =
        found->earlier == 1 ? "" : arena_printf(csv->arena, ", and %zu more rows are like it", found->earlier - 1);
    csv->base.warning = arena_printf(csv->arena, "%s%s; dataset.window takes rows in the order of %s", found->why, more,
                                     csv->records                    ? "dataset.query: write one with `order by`"
                                     : csv->group_column == NOT_USED ? "the file: sort them by time"
                                                                     : "the file: sort those of each series by time");
}
