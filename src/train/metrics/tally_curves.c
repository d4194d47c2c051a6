/* The areas under the ROC and the precision-recall curve. One column at a time is gathered from all ranks, to need less
 * memory. */
#include <math.h>
#include <stdlib.h>

#include "train/metrics/tally.h"

struct scored {
    float score, label, weight;
};

/* The largest score first. */
static int by_score(const void *a, const void *b) {
    float x = ((const struct scored *)a)->score, y = ((const struct scored *)b)->score;
    return (x < y) - (x > y);
}

#define SCORED_FLOATS (sizeof(struct scored) / sizeof(float))

/* Equal scores that are next to each other, from *[i] on, which is moved after them. */
struct ties {
    double positive, negative; /* sums of weights */
};

static struct ties next_ties(const struct scored *sorted, size_t count, size_t *i) {
    struct ties ties = {0};
    for (float score = sorted[*i].score; *i < count && sorted[*i].score == score; ++*i)
        *(sorted[*i].label > 0 ? &ties.positive : &ties.negative) += (double)sorted[*i].weight;
    return ties;
}

/* U = for each negative the positives above it, and half of those equal to it;  area = U / (positives * negatives), all
 * of them sums of weights */
static double roc_area(const struct scored *sorted, size_t count) {
    double positives = 0, negatives = 0, u = 0;
    for (size_t i = 0; i < count;) {
        struct ties ties = next_ties(sorted, count, &i);
        u += ties.negative * (positives + ties.positive / 2);
        positives += ties.positive;
        negatives += ties.negative;
    }
    return positives > 0 && negatives > 0 ? u / (positives * negatives) : NAN;
}

/* AP = sum over different scores of precision times increase of recall;  precision = positives / (positives +
 * negatives) of the scores that are not smaller;  recall = their positives / all positives */
static double precision_area(const struct scored *sorted, size_t count) {
    double positives = 0, negatives = 0, sum = 0;
    for (size_t i = 0; i < count;) {
        struct ties ties = next_ties(sorted, count, &i);
        positives += ties.positive;
        negatives += ties.negative;
        if (ties.positive > 0) sum += ties.positive * (positives / (positives + negatives));
    }
    return positives > 0 ? sum / positives : NAN;
}

/* Buffers to gather a column: at most [max] scores from each of [world] ranks. */
struct gathering {
    struct scored *own, *all; /* (max), (world, max) */
    int64_t *counts;          /* (world) */
    size_t max, world;
};

static status gather(struct tally *t, size_t column, struct gathering *g, size_t *count) {
    for (size_t i = 0; i < t->collected; i++)
        g->own[i] = (struct scored){t->scores[i * t->columns + column], t->labels[i * t->columns + column],
                                    t->score_weights ? t->score_weights[i] : 1};
    TRY(comm_all_gather(t->options.comm, g->own, SCORED_FLOATS * g->max, COMM_FLOAT32, g->all));
    *count = 0;
    for (size_t rank = 0; rank < g->world; rank++)
        for (size_t i = 0; i < (size_t)g->counts[rank]; i++) g->all[(*count)++] = g->all[rank * g->max + i];
    return OK;
}

/* The area under a curve of [count] scores, the largest first; NAN: not defined. */
typedef double area_fn(const struct scored *sorted, size_t count);

static status mean_area(struct tally *t, area_fn *area, struct gathering *g, double *out) {
    double sum = 0, defined = 0;
    for (size_t column = 0; column < t->columns; column++) {
        size_t count = 0;
        bool has_nan = false;
        TRY(gather(t, column, g, &count));
        for (size_t i = 0; i < count; i++) has_nan |= isnan(g->all[i].score);
        if (has_nan) continue;
        qsort(g->all, count, sizeof *g->all, by_score);
        double value = area(g->all, count);
        if (isnan(value)) continue;
        sum += value;
        defined++;
    }
    *out = defined > 0 ? sum / defined : NAN;
    return OK;
}

static status gather_area(struct tally *tally, area_fn *area, double *out) {
    struct gathering g = {.world = (size_t)comm_world_size(tally->options.comm)};
    int64_t own = (int64_t)tally->collected;
    g.counts = calloc(g.world, sizeof *g.counts);
    if (!g.counts) return status_memory("the metrics");
    status s = comm_all_gather(tally->options.comm, &own, 1, COMM_INT64, g.counts);
    for (size_t i = 0; i < g.world; i++)
        if ((size_t)g.counts[i] > g.max) g.max = (size_t)g.counts[i];
    g.own = calloc(g.max + 1, sizeof *g.own);
    g.all = calloc(g.world * g.max + 1, sizeof *g.all);
    if (!s && (!g.own || !g.all)) s = status_memory("the metrics");
    if (!s) s = mean_area(tally, area, &g, out);
    free(g.own);
    free(g.all);
    free(g.counts);
    return s;
}

status tally_auc(struct tally *tally, double *out) { return gather_area(tally, roc_area, out); }

status tally_average_precision(struct tally *tally, double *out) { return gather_area(tally, precision_area, out); }
