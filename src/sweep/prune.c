/* Decides which runs are stopped early: asynchronous successive halving or the median rule. Reports are kept in one
 * list for each group and epoch: an asha rung is the list of its epoch. A hash table finds the value of a run, and two
 * heaps of a rung the worst value that goes on, so that a report costs the same with any number of runs. */
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
    struct heap best, others; /* of a rung: those that go on, with the other sign, and the rest */
};

struct pruner {
    const struct prune_config *config;
    struct level *levels;
    size_t count, capacity;
    int64_t *complete; /* sorted */
    size_t complete_count, complete_capacity;
};

static void *grow(void *items, size_t count, size_t *capacity, size_t size) {
    if (count < *capacity) return items;
    *capacity = *capacity * 2 + 16;
    void *grown = realloc(items, *capacity * size);
    if (!grown) status_exit_without_memory();
    return grown;
}

struct pruner *pruner_create(const struct prune_config *config) {
    if (config->type == PRUNE_NONE) return NULL;
    struct pruner *p = calloc(1, sizeof *p);
    if (!p) status_exit_without_memory();
    p->config = config;
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
    level->slots = calloc(level->slot_count, sizeof *level->slots);
    if (!level->slots) status_exit_without_memory();
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

/* ---- asynchronous successive halving ---- */

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

/* Of the values of a rung the best 1 / factor go on; of fewer than that only the best. */
static void rung_add(struct level *rung, double value, size_t count, double factor) {
    size_t promoted = (size_t)((double)count / factor);
    if (promoted == 0) promoted = 1;
    if (rung->best.count && value <= -rung->best.items[0])
        heap_push(&rung->best, -value);
    else
        heap_push(&rung->others, value);
    while (rung->best.count < promoted && rung->others.count) heap_push(&rung->best, -heap_pop(&rung->others));
    while (rung->best.count > promoted) heap_push(&rung->others, -heap_pop(&rung->best));
}

/* A run that was begun anew may report another value. */
static void rung_sort(struct level *rung, double factor) {
    rung->best.count = rung->others.count = 0;
    for (size_t i = 0; i < rung->count; i++) rung_add(rung, rung->values[i].value, i + 1, factor);
}

/* Whether [epoch] is a rung: min_epochs times a power of the factor, rounded down. */
static bool is_rung(const struct prune_config *c, int64_t epoch) {
    double rung = (double)c->min_epochs;
    while (rung < (double)epoch) rung *= c->reduction_factor;
    return (int64_t)rung == epoch;
}

static bool report_asha(struct pruner *p, int64_t group, int64_t run, int64_t epoch, double value) {
    double factor = p->config->reduction_factor;
    if (!is_rung(p->config, epoch)) return false;
    struct level *rung = find_level(p, group, epoch);
    enum change change = set_value(rung, run, value);
    if (change == CHANGE_ADDED) rung_add(rung, value, rung->count, factor);
    if (change == CHANGE_REPLACED) rung_sort(rung, factor);
    return value == INFINITY || value > -rung->best.items[0];
}

/* ---- the median rule ---- */

static int compare_runs(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool is_complete(const struct pruner *p, int64_t run) {
    return p->complete && bsearch(&run, p->complete, p->complete_count, sizeof run, compare_runs);
}

static int compare_values(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of the complete runs; NAN: there are fewer than startup_trials. */
static double median(const struct pruner *p, const struct level *level) {
    double *values = calloc(level->count + 1, sizeof *values), result = NAN;
    size_t n = 0;
    if (!values) status_exit_without_memory();
    for (size_t i = 0; i < level->count; i++)
        if (is_complete(p, level->values[i].run)) values[n++] = level->values[i].value;
    qsort(values, n, sizeof *values, compare_values);
    if (n > 0 && (int64_t)n >= p->config->startup_trials)
        result = n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
    free(values);
    return result;
}

/* A level has the values after the epoch; what is compared with their median is the run's best so far. */
static bool report_median(struct pruner *p, int64_t group, int64_t run, int64_t epoch, double value) {
    double best = value;
    struct level *level = find_level(p, group, epoch);
    set_value(level, run, value);
    for (size_t i = 0; i < p->count; i++) {
        const struct level *l = &p->levels[i];
        const struct value *earlier = l->group == group && l->epoch < epoch ? find_value(l, run) : NULL;
        if (earlier) best = fmin(best, earlier->value);
    }
    return epoch >= p->config->min_epochs && best > median(p, level);
}

bool pruner_report(struct pruner *p, int64_t group, int64_t run, int64_t epoch, double value) {
    if (!isfinite(value)) value = INFINITY;
    return (p->config->type == PRUNE_ASHA ? report_asha : report_median)(p, group, run, epoch, value);
}

void pruner_complete(struct pruner *p, int64_t run) {
    if (p->config->type != PRUNE_MEDIAN || is_complete(p, run)) return;
    p->complete = grow(p->complete, p->complete_count, &p->complete_capacity, sizeof *p->complete);
    size_t at = p->complete_count++;
    for (; at > 0 && p->complete[at - 1] > run; at--) p->complete[at] = p->complete[at - 1];
    p->complete[at] = run;
}
