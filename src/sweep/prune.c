/* Decides which runs are stopped early: asynchronous successive halving or the median rule. Reports are kept in one
 * list for each group and epoch: an asha rung is the list of its epoch. */
#include "sweep/prune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct value {
    int64_t run;
    double value; /* not finite: INFINITY */
};

/* The values of the runs of a group after an epoch. */
struct level {
    int64_t group, epoch;
    struct value *values;
    size_t count, capacity;
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
    for (size_t i = 0; i < p->count; i++) free(p->levels[i].values);
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

static const struct value *find_value(const struct level *level, int64_t run) {
    for (size_t i = level->count; i-- > 0;)
        if (level->values[i].run == run) return &level->values[i];
    return NULL;
}

static void set_value(struct level *level, int64_t run, double value) {
    const struct value *old = find_value(level, run);
    if (old) {
        level->values[old - level->values].value = value;
        return;
    }
    level->values = grow(level->values, level->count, &level->capacity, sizeof *level->values);
    level->values[level->count++] = (struct value){run, value};
}

/* Whether [epoch] is a rung: min_epochs times a power of the factor, rounded down. */
static bool is_rung(const struct prune_config *c, int64_t epoch) {
    double rung = (double)c->min_epochs;
    while (rung < (double)epoch) rung *= c->reduction_factor;
    return (int64_t)rung == epoch;
}

/* Of the values of a rung the best 1 / factor go on; of fewer than that only the best. */
static bool is_promoted(const struct level *rung, double value, double factor) {
    size_t better = 0, promoted = (size_t)((double)rung->count / factor);
    for (size_t i = 0; i < rung->count; i++) better += rung->values[i].value < value;
    return better < (promoted > 0 ? promoted : 1);
}

static bool report_asha(struct pruner *p, int64_t group, int64_t run, int64_t epoch, double value) {
    if (!is_rung(p->config, epoch)) return false;
    struct level *rung = find_level(p, group, epoch);
    set_value(rung, run, value);
    return value == INFINITY || !is_promoted(rung, value, p->config->reduction_factor);
}

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
    if (is_complete(p, run)) return;
    p->complete = grow(p->complete, p->complete_count, &p->complete_capacity, sizeof *p->complete);
    size_t at = p->complete_count++;
    for (; at > 0 && p->complete[at - 1] > run; at--) p->complete[at] = p->complete[at - 1];
    p->complete[at] = run;
}
