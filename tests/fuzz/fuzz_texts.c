/* Any bytes as the texts of a checkpoint that are parsed further: the columns of the data and their preparation, the
 * scale of the targets, the layout of the inputs, the labels, the vocabulary. Read, or rejected with a sentence; what
 * is read is used, and written so that it is read again. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/columns/preparation.h"
#include "data/text/vocabulary.h"
#include "train/state/data_entries.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static const char *current; /* the text of the "checkpoint" */

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
status __wrap_checkpoint_read_text(struct checkpoint *checkpoint, const char *path, char **out);
status __wrap_checkpoint_read_text(struct checkpoint *checkpoint, const char *path, char **out) {
    (void)checkpoint, (void)path;
    if (!(*out = strdup(current))) abort();
    return OK;
}
/* NOLINTEND(bugprone-reserved-identifier) */

static void must(bool condition) {
    if (!condition) abort();
}

static bool is_ok(status s) {
    bool is_good = s == OK;
    must(is_good || (status_code(s) == STATUS_DATA && status_message(s)[0]));
    status_free(s);
    return is_good;
}

/* A row of missing values, and one of ones and of the last category. */
static void encode(const struct preparation *preparation) {
    double *raw = malloc((preparation->count + 1) * sizeof *raw);
    double *features = malloc((preparation->features + 1) * sizeof *features);
    must(raw && features);
    for (int row = 0; row < 2; row++) {
        for (size_t i = 0; i < preparation->count; i++) {
            const struct prepared_column *column = &preparation->items[i];
            double last = column->type == COLUMN_CATEGORY ? (double)column->categories.count - 1 : 1;
            raw[i] = row == 0 ? (double)NAN : last;
        }
        preparation_encode(preparation, NULL, raw, features);
    }
    free(raw);
    free(features);
}

static void read_preparation(struct arena *arena) {
    struct preparation *preparation;
    if (!is_ok(preparation_read(arena, NULL, &preparation))) return;
    encode(preparation);
    current = preparation_write(arena, preparation);
    struct preparation *again, copy = preparation_copy(preparation, arena);
    must(is_ok(preparation_read(arena, NULL, &again)));
    must(strcmp(preparation_write(arena, again), current) == 0);
    must(is_ok(preparation_compare(NULL, &copy, "fuzz.h5", "--fresh")));
}

static void read_columns(struct arena *arena) {
    struct column_list columns, again;
    if (!is_ok(column_names_parse(arena, current, &columns))) return;
    must(is_ok(column_names_parse(arena, column_names_write(arena, &columns), &again)));
    must(is_ok(column_names_compare(&columns, &again, "fuzz.h5", "--fresh")));
}

static void read_scale(struct arena *arena) {
    struct target_scale *scale;
    if (!is_ok(target_scale_read(arena, NULL, &scale))) return;
    current = target_scale_write(arena, scale);
    must(is_ok(target_scale_read(arena, NULL, &scale)));
    must(strcmp(target_scale_write(arena, scale), current) == 0);
}

static void read_layout(struct arena *arena) {
    struct input_layout layout;
    bool has;
    if (!is_ok(input_layout_read(arena, NULL, &layout, &has)) || !has) return;
    current = input_layout_write(arena, &layout);
    must(is_ok(input_layout_read(arena, NULL, &layout, &has)) && has);
    must(strcmp(input_layout_write(arena, &layout), current) == 0);
}

static void read_labels(struct arena *arena) {
    struct string_list labels, again;
    if (!is_ok(labels_read(arena, current, &labels))) return;
    must(is_ok(labels_read(arena, labels_write(arena, &labels), &again)));
    must(is_ok(labels_compare(&labels, &again, "fuzz.h5", "--fresh")));
}

static void read_vocabulary(struct arena *arena) {
    struct vocabulary *vocabulary;
    (void)arena;
    if (is_ok(vocabulary_create(current, &vocabulary))) vocabulary_destroy(vocabulary);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    static void (*const readers[])(struct arena *) = {read_preparation, read_columns, read_scale,
                                                      read_layout,      read_labels,  read_vocabulary};
    char *text = strndup((const char *)bytes, size);
    must(text != NULL);
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        struct arena *arena = arena_create();
        current = text;
        readers[i](arena);
        arena_destroy(arena);
    }
    free(text);
    return 0;
}
