/* curriculum: from easy rows to hard ones. Epoch 1 has the easiest [start] of the rows, each further epoch more of
 * them, epoch [epochs] and later ones all. An epoch has as many rows as there are training rows; while fewer are known
 * they are repeated. How hard a row is, is the sum of the squares of its inputs, which with `dataset.scale: standard`
 * is its distance from the mean row. Each process reads its share of the rows, and they gather the results. */
#include "extension.h"

#include <stdlib.h>
#include <string.h>

struct config {
    double start;
    int64_t epochs;
};

static const struct schema_row keys[] = {
    SCHEMA_ROW(REAL, struct config, start, .fallback = "0.25", .min = 0, .max = 1, .excludes_min = true,
               .doc = "The fraction of the rows in the first epoch."),
    SCHEMA_ROW(INT, struct config, epochs, .fallback = "10", .min = 1, .max = 1e9,
               .doc = "The first epoch of all rows."),
    {0},
};
static const struct schema schema = {.name = "sampler.curriculum", .size = sizeof(struct config), .rows = keys};

/* How hard the rows are: all (rows). This process reads [first, end). */
static status gather_hardness(const struct sampler_rows *rows, size_t first, size_t end, double *all) {
    size_t *sizes = arena_alloc(rows->arena, (size_t)comm_world_size(rows->ranks) * sizeof *sizes);
    float *inputs = arena_alloc(rows->arena, rows->input_size * sizeof *inputs);
    void *gathered = NULL;
    for (size_t r = first; r < end; r++) {
        TRY(sampler_read(rows, r, 1, inputs, NULL));
        for (size_t i = 0; i < rows->input_size; i++) all[r] += (double)inputs[i] * (double)inputs[i];
    }
    TRY(comm_all_gather_bytes(rows->ranks, all + first, (end - first) * sizeof *all, &gathered, sizes));
    memcpy(all, gathered, rows->rows * sizeof *all); /* the shares are in the order of the ranks */
    free(gathered);
    return OK;
}

struct ranked {
    double hardness;
    size_t row;
};

static int by_hardness(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->hardness < y->hardness || x->hardness > y->hardness) return x->hardness < y->hardness ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

/* *state: the rows (rows) from easy to hard. */
static status start(const void *config, const struct sampler_rows *rows, void **state) {
    size_t world = (size_t)comm_world_size(rows->ranks), rank = (size_t)comm_rank(rows->ranks);
    double *hardness = arena_alloc(rows->arena, rows->rows * sizeof *hardness);
    struct ranked *ranked = arena_alloc(rows->arena, rows->rows * sizeof *ranked);
    (void)config;
    TRY(gather_hardness(rows, rows->rows * rank / world, rows->rows * (rank + 1) / world, hardness));
    for (size_t r = 0; r < rows->rows; r++) ranked[r] = (struct ranked){hardness[r], r};
    qsort(ranked, rows->rows, sizeof *ranked, by_hardness);
    *state = ranked;
    return OK;
}

static status draw(const void *config, const struct sampler_rows *rows, const void *state,
                   struct sampler_epoch *epoch) {
    const struct config *c = config;
    const struct ranked *ranked = state;
    double progress = c->epochs > 1 ? (double)epoch->number / (double)(c->epochs - 1) : 1;
    size_t known = (size_t)lround((double)rows->rows * fmin(1, c->start + (1 - c->start) * progress));
    if (known == 0) known = 1;
    int64_t *order = malloc(known * sizeof *order);
    if (!order) return status_memory("the order of the rows");
    for (size_t i = 0; i < rows->rows; i++) {
        if (i % known == 0) rng_permutation(&epoch->rng, order, known);
        sampler_yield(epoch, ranked[order[i % known]].row);
    }
    free(order);
    return OK;
}

static const struct sampler_type curriculum = {
    .variant = {"curriculum", &schema, "From easy rows to hard ones."},
    .start = start,
    .draw = draw,
};

DDPTRAIN_EXTENSION(.sampler = &curriculum);
