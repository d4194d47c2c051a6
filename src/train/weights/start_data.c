/* Names are compared position by position, because weights are taken by position. */
#include "train/weights/start_data.h"

#include <string.h>
#include <strings.h>

#include "base/arena.h"
#include "data/columns/preparation.h"
#include "train/state/column_names.h"
#include "train/state/labels.h"
#include "train/state/preparation_json.h"

/* Adds "[what] [index] was ... and is ... now". */
static void add_difference(const char *what, size_t index, const char *before, const char *now, struct text *out) {
    text_printf(out, "%s%s %zu was '", out->length ? ", " : "", what, index);
    text_add_value(out, before, TEXT_MAX_NAME);
    text_add(out, "' in its training and is '");
    text_add_value(out, now, TEXT_MAX_NAME);
    text_add(out, "' now");
}

/* The first position with another text is a difference; the end of the shorter list is not. */
static void compare_texts(const char *what, const struct string_list *before, const struct string_list *now,
                          struct text *out) {
    for (size_t i = 0; i < before->count && i < now->count; i++) {
        if (strcasecmp(before->items[i], now->items[i]) == 0) continue;
        add_difference(what, i, before->items[i], now->items[i], out);
        return;
    }
}

static struct string_list names_of_inputs(struct arena *arena, const struct column_list *columns) {
    struct string_list names = {.items = arena_alloc(arena, (columns->count + 1) * sizeof *names.items)};
    for (size_t i = 0; i < columns->count; i++)
        if (columns->items[i].role == COLUMN_INPUT) names.items[names.count++] = columns->items[i].name;
    return names;
}

static void compare_categories(struct arena *arena, const struct preparation *before, const struct preparation *now,
                               struct text *out) {
    for (size_t i = 0; before && now && i < before->count && i < now->count; i++) {
        const struct prepared_column *old = &before->items[i], *new = &now->items[i];
        if (strcmp(old->name, new->name) != 0) return;
        struct text what = {0};
        text_add(&what, "category of '");
        text_add_value(&what, new->name, TEXT_MAX_NAME);
        text_add(&what, "'");
        compare_texts(arena_copy(arena, text_string(&what)), &old->categories, &new->categories, out);
        text_free(&what);
    }
}

static void compare_inputs(struct arena *arena, const struct column_list *before, const struct dataset *dataset,
                           struct text *out) {
    struct column_list now = dataset_columns(dataset);
    struct string_list inputs = names_of_inputs(arena, before), inputs_now = names_of_inputs(arena, &now);
    compare_texts("input", &inputs, &inputs_now, out);
}

static void compare_labels(const struct string_list *before, const struct dataset *dataset, struct text *out) {
    struct string_list now = dataset_labels(dataset);
    compare_texts("class", before, &now, out);
}

static status compare_all(struct arena *arena, struct checkpoint *checkpoint, const struct dataset *dataset,
                          struct text *out) {
    struct column_list columns;
    struct string_list labels;
    struct preparation *preparation;
    TRY(column_names_read(arena, checkpoint, &columns));
    TRY(preparation_read(arena, checkpoint, &preparation));
    TRY(labels_load(arena, checkpoint, &labels));
    compare_inputs(arena, &columns, dataset, out);
    compare_categories(arena, preparation, dataset_preparation(dataset), out);
    compare_labels(&labels, dataset, out);
    return OK;
}

status start_data_compare(struct checkpoint *checkpoint, const struct dataset *dataset, struct text *out) {
    struct arena *arena = arena_create();
    status s = compare_all(arena, checkpoint, dataset, out);
    arena_destroy(arena);
    return s;
}

void start_data_compare_texts(const char *columns, const char *labels, const struct dataset *dataset,
                              struct text *out) {
    struct arena *arena = arena_create();
    struct column_list before;
    struct string_list labels_before;
    status s = columns ? column_names_parse(arena, columns, &before) : OK;
    if (columns && !s) compare_inputs(arena, &before, dataset, out);
    status_free(s);
    s = labels ? labels_read(arena, labels, &labels_before) : OK;
    if (labels && !s) compare_labels(&labels_before, dataset, out);
    status_free(s);
    arena_destroy(arena);
}
