/* length_buckets: the rows of a batch have similar lengths, so that little of it is padding. The rows are drawn in a
 * random order and sorted by length, neighbours make a batch, and the batches come in a random order, the short one
 * last. The length of a row is the number of its inputs up to the last one that is not [padding]. */
#include "extension.h"

#include <stdlib.h>

struct config {
    double padding;
    int64_t batch;
};

static const struct schema_row keys[] = {
    SCHEMA_ROW(REAL, struct config, padding, .fallback = "0", .doc = "The input after the end of a row."),
    SCHEMA_ROW(INT, struct config, batch, .fallback = "32", .min = 1, .max = 1e9,
               .doc = "Rows of a batch of all processes together."),
    {0},
};
static const struct schema schema = {.name = "sampler.length_buckets", .size = sizeof(struct config), .rows = keys};

static status start(const void *config, const struct sampler_rows *rows, void **state) {
    float padding = (float)((const struct config *)config)->padding;
    size_t *lengths = arena_alloc(rows->arena, rows->rows * sizeof *lengths);
    float *inputs = arena_alloc(rows->arena, rows->input_size * sizeof *inputs);
    for (size_t r = 0; r < rows->rows; r++) {
        TRY(sampler_read(rows, r, 1, inputs, NULL));
        lengths[r] = rows->input_size;
        while (lengths[r] > 0 && inputs[lengths[r] - 1] == padding) lengths[r]--;
    }
    *state = lengths;
    return OK;
}

struct drawn {
    size_t length, position, row; /* position: in the random order */
};

static int by_length(const void *a, const void *b) {
    const struct drawn *x = a, *y = b;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    return x->position < y->position ? -1 : x->position > y->position;
}

static status draw(const void *config, const struct sampler_rows *rows, const void *state,
                   struct sampler_epoch *epoch) {
    const size_t *lengths = state;
    size_t batch = (size_t)((const struct config *)config)->batch, whole = rows->rows / batch;
    int64_t *order = malloc((rows->rows + 1) * sizeof *order);
    struct drawn *drawn = malloc(rows->rows * sizeof *drawn);
    if (!order || !drawn) status_exit_without_memory();
    rng_permutation(&epoch->rng, order, rows->rows);
    for (size_t i = 0; i < rows->rows; i++) drawn[i] = (struct drawn){lengths[order[i]], i, (size_t)order[i]};
    qsort(drawn, rows->rows, sizeof *drawn, by_length);
    rng_permutation(&epoch->rng, order, whole);
    for (size_t b = 0; b < whole; b++)
        for (size_t i = 0; i < batch; i++) sampler_yield(epoch, drawn[(size_t)order[b] * batch + i].row);
    for (size_t i = whole * batch; i < rows->rows; i++) sampler_yield(epoch, drawn[i].row);
    free(drawn);
    free(order);
    return OK;
}

static const struct sampler_type length_buckets = {
    .variant = {"length_buckets", &schema, "Batches of rows of similar lengths."},
    .each_row_once = true,
    .start = start,
    .draw = draw,
};

DDPTRAIN_EXTENSION(.sampler = &length_buckets);
