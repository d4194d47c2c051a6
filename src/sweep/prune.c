/* Decides which runs are stopped early: asynchronous successive halving, alone or in the brackets of hyperband, or the
 * median rule. Reports are kept in one list for each group (of a repeat, and a bracket) and epoch: a rung is the list
 * of its epoch. A hash table finds the value of a run, and two heaps the worst value of a rung that goes on, or the
 * median, so that a report costs the same with any number of runs. */
#include "sweep/prune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct value {
    int64_t run;
    double value; /* not finite: INFINITY */
};

/* The smallest number first. */
struct heap {
    double *items;
    size_t count, capacity;
};

/* The values of the runs of a group after an epoch. */
struct level {
    int64_t group, epoch;
    struct value *values;
    size_t count, capacity;
    size_t *slots; /* (slot_count) index + 1 into values, by the hash of the run; 0: empty. A power of two */
    size_t slot_count;
    struct heap best, others; /* of a rung: the values that go on, with the other sign, and the rest; of the median
                                 rule: the same of the complete runs, the better half and the other one */
};

struct pruner {
    const struct prune_config *config;
    int64_t runs, brackets; /* of a trial; 1: not hyperband */
    struct level *levels;
    size_t count, capacity;
    uint8_t *complete; /* (complete_bytes) a bit for each run */
    size_t complete_bytes;
};

static void *grow(void *items, size_t count, size_t *capacity, size_t size) {
    if (count < *capacity) return items;
    *capacity = *capacity * 2 + 16;
    return status_need(realloc(items, *capacity * size));
}

struct pruner *pruner_create(const struct prune_config *config, int64_t runs) {
    if (config->type == PRUNE_NONE) return NULL;
    struct pruner *p = status_need(calloc(1, sizeof *p));
    p->config = config;
    p->runs = runs;
    p->brackets = config->type == PRUNE_HYPERBAND ? hyperband_brackets(config) : 1;
    return p;
}

void pruner_destroy(struct pruner *p) {
    if (!p) return;
    for (size_t i = 0; i < p->count; i++) {
        free(p->levels[i].values);
        free(p->levels[i].slots);
        free(p->levels[i].best.items);
        free(p->levels[i].others.items);
    }
    free(p->levels);
    free(p->complete);
    free(p);
}

static struct level *find_level(struct pruner *p, int64_t group, int64_t epoch) {
    for (size_t i = 0; i < p->count; i++)
        if (p->levels[i].group == group && p->levels[i].epoch == epoch) return &p->levels[i];
    p->levels = grow(p->levels, p->count, &p->capacity, sizeof *p->levels);
    p->levels[p->count] = (struct level){.group = group, .epoch = epoch};
    return &p->levels[p->count++];
}

/* ---- the value of a run ---- */

/* The slot of [run], or the empty one where it would be. */
static size_t find_slot(const struct level *level, int64_t run) {
    size_t mask = level->slot_count - 1, slot = (size_t)((uint64_t)run * 0x9e3779b97f4a7c15u >> 20) & mask;
    while (level->slots[slot] && level->values[level->slots[slot] - 1].run != run) slot = (slot + 1) & mask;
    return slot;
}

static struct value *find_value(const struct level *level, int64_t run) {
    size_t index = level->slot_count ? level->slots[find_slot(level, run)] : 0;
    return index ? &level->values[index - 1] : NULL;
}

/* At most half of the slots are used. */
static void grow_slots(struct level *level) {
    if (2 * (level->count + 1) <= level->slot_count) return;
    free(level->slots);
    level->slot_count = level->slot_count ? 2 * level->slot_count : 64;
    level->slots = status_need(calloc(level->slot_count, sizeof *level->slots));
    for (size_t i = 0; i < level->count; i++) level->slots[find_slot(level, level->values[i].run)] = i + 1;
}

enum change { CHANGE_NONE, CHANGE_ADDED, CHANGE_REPLACED };

static enum change set_value(struct level *level, int64_t run, double value) {
    struct value *old = find_value(level, run);
    if (old) {
        bool is_same = old->value == value;
        old->value = value;
        return is_same ? CHANGE_NONE : CHANGE_REPLACED;
    }
    level->values = grow(level->values, level->count, &level->capacity, sizeof *level->values);
    grow_slots(level);
    level->values[level->count++] = (struct value){run, value};
    level->slots[find_slot(level, run)] = level->count;
    return CHANGE_ADDED;
}

/* ---- the best values ---- */

static void swap(double *a, double *b) {
    double kept = *a;
    *a = *b;
    *b = kept;
}

static void heap_push(struct heap *h, double value) {
    h->items = grow(h->items, h->count, &h->capacity, sizeof *h->items);
    size_t at = h->count++;
    h->items[at] = value;
    for (; at > 0 && h->items[at] < h->items[(at - 1) / 2]; at = (at - 1) / 2)
        swap(&h->items[at], &h->items[(at - 1) / 2]);
}

static double heap_pop(struct heap *h) {
    double first = h->items[0];
    h->items[0] = h->items[--h->count];
    for (size_t at = 0, child; (child = 2 * at + 1) < h->count; at = child) {
        child += child + 1 < h->count && h->items[child + 1] < h->items[child];
        if (h->items[at] <= h->items[child]) break;
        swap(&h->items[at], &h->items[child]);
    }
    return first;
}

/* Adds a value to the heaps. The best of their n values are n / factor, at least one. */
static void rank_value(struct level *level, double value, double factor) {
    size_t best = (size_t)((double)(level->best.count + level->others.count + 1) / factor);
    if (best == 0) best = 1;
    if (level->best.count && value <= -level->best.items[0])
        heap_push(&level->best, -value);
    else
        heap_push(&level->others, value);
    while (level->best.count < best && level->others.count) heap_push(&level->best, -heap_pop(&level->others));
    while (level->best.count > best) heap_push(&level->others, -heap_pop(&level->best));
}

/* ---- asynchronous successive halving ---- */

/* A run that was begun anew may report another value. */
static void rung_sort(struct level *rung, double factor) {
    rung->best.count = rung->others.count = 0;
    for (size_t i = 0; i < rung->count; i++) rank_value(rung, rung->values[i].value, factor);
}

/* Whether [epoch] is a rung: min_epochs times the k-th power of the factor, rounded down, with first <= k < end. */
static bool is_rung(const struct prune_config *c, int64_t epoch, int64_t first, int64_t end) {
    double rung = (double)c->min_epochs;
    for (int64_t k = 0; k < end && rung < (double)epoch + 1; k++, rung *= c->reduction_factor)
        if (k >= first && (int64_t)rung == epoch) return true;
    return false;
}

static bool report_rung(struct pruner *p, int64_t group, int64_t run, int64_t epoch, double value) {
    double factor = p->config->reduction_factor;
    struct level *rung = find_level(p, group, epoch);
    enum change change = set_value(rung, run, value);
    if (change == CHANGE_ADDED) rank_value(rung, value, factor);
    if (change == CHANGE_REPLACED) rung_sort(rung, factor);
    return value == INFINITY || value > -rung->best.items[0];
}

static bool report_asha(struct pruner *p, int64_t group, int64_t run, int64_t epoch, double value) {
    return is_rung(p->config, epoch, 0, INT64_MAX) && report_rung(p, group, run, epoch, value);
}

/* ---- hyperband ---- */

int64_t hyperband_brackets(const struct prune_config *c) {
    double last = log((double)c->max_epochs / (double)c->min_epochs) / log(c->reduction_factor);
    return last > 0 ? (int64_t)(last + 1e-9) + 1 : 1;
}

#define GOLDEN_RATIO 0x9e3779b97f4a7c15u /* its part after the point, times 2^64 */

int64_t hyperband_bracket(const struct prune_config *c, int64_t trial) {
    int64_t count = hyperband_brackets(c), bracket = 0;
    double all = 0, power = 1, at = (double)((uint64_t)trial * GOLDEN_RATIO >> 11) * 0x1p-53;
    for (int64_t b = 0; b < count; b++, power /= c->reduction_factor) all += power / (double)(count - b);
    at *= all;
    for (power = 1; bracket < count - 1 && at >= power / (double)(count - bracket); power /= c->reduction_factor)
        at -= power / (double)(count - bracket++);
    return bracket;
}

static bool report_hyperband(struct pruner *p, int64_t repeat, int64_t run, int64_t epoch, double value) {
    int64_t bracket = hyperband_bracket(p->config, run / p->runs);
    return is_rung(p->config, epoch, bracket, p->brackets - 1) &&
           report_rung(p, repeat * p->brackets + bracket, run, epoch, value);
}

/* ---- the median rule ---- */

#define HALF 2.0 /* as a factor: of n values of complete runs n / 2, rounded down, are the best */

static bool is_complete(const struct pruner *p, int64_t run) {
    size_t byte = (size_t)run / 8;
    return byte < p->complete_bytes && p->complete[byte] >> run % 8 & 1;
}

static void mark_complete(struct pruner *p, int64_t run) {
    size_t byte = (size_t)run / 8, before = p->complete_bytes;
    while (byte >= p->complete_bytes) p->complete = grow(p->complete, p->complete_bytes, &p->complete_bytes, 1);
    if (p->complete_bytes > before) memset(p->complete + before, 0, p->complete_bytes - before);
    p->complete[byte] |= (uint8_t)(1 << run % 8);
}

/* A complete run that was begun anew may report another value. */
static void rank_complete(const struct pruner *p, struct level *level) {
    level->best.count = level->others.count = 0;
    for (size_t i = 0; i < level->count; i++)
        if (is_complete(p, level->values[i].run)) rank_value(level, level->values[i].value, HALF);
}

/* Of the complete runs; NAN: there are fewer than startup_trials. */
static double median(const struct pruner *p, const struct level *level) {
    size_t best = level->best.count, others = level->others.count;
    if (best == 0 || (int64_t)(best + others) < p->config->startup_trials) return NAN;
    if (others == best) return (-level->best.items[0] + level->others.items[0]) / 2;
    return others ? level->others.items[0] : -level->best.items[0];
}

/* A level has the values after the epoch; what is compared with their median is the run's best so far. */
static bool report_median(struct pruner *p, int64_t group, int64_t run, int64_t epoch, double value) {
    double best = value;
    struct level *level = find_level(p, group, epoch);
    enum change change = set_value(level, run, value);
    if (change == CHANGE_ADDED && is_complete(p, run)) rank_value(level, value, HALF);
    if (change == CHANGE_REPLACED && is_complete(p, run)) rank_complete(p, level);
    for (size_t i = 0; i < p->count; i++) {
        const struct level *l = &p->levels[i];
        const struct value *earlier = l->group == group && l->epoch < epoch ? find_value(l, run) : NULL;
        if (earlier) best = fmin(best, earlier->value);
    }
    return epoch >= p->config->min_epochs && best > median(p, level);
}

bool pruner_report(struct pruner *p, int64_t run, int64_t epoch, double value) {
    static bool (*const reports[])(struct pruner *, int64_t, int64_t, int64_t, double) = {
        [PRUNE_ASHA] = report_asha, [PRUNE_MEDIAN] = report_median, [PRUNE_HYPERBAND] = report_hyperband};
    return reports[p->config->type](p, run % p->runs, run, epoch, isfinite(value) ? value : INFINITY);
}

void pruner_complete(struct pruner *p, int64_t run) {
    if (p->config->type != PRUNE_MEDIAN || is_complete(p, run)) return;
    mark_complete(p, run);
    for (size_t i = 0; i < p->count; i++) {
        const struct value *value = find_value(&p->levels[i], run);
        if (value) rank_value(&p->levels[i], value->value, HALF);
    }
}
