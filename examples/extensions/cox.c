/* cox: the partial likelihood of Cox's proportional hazards (Breslow's treatment of ties), for survival data. The
 * output is the logarithm of a row's hazard; a row has two targets, its time and 1 for an event, 0 where it was
 * censored. The loss compares the rows of a batch with each other, over all processes. */
#include "extension.h"

#include <stdlib.h>
#include <string.h>

/* A row of the batch of all processes. */
struct subject {
    float time, event, output;
    size_t at; /* row of this process; SIZE_MAX: of another one */
    double slope;
};

static int by_falling_time(const void *a, const void *b) {
    const struct subject *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? 1 : -1;
    return x->output < y->output ? -1 : x->output > y->output;
}

static status check(const void *config, const struct shape *output, size_t target_size, int64_t classes) {
    (void)config, (void)classes;
    if (shape_elements(output) == 1 && target_size == 2) return OK;
    return status_new(STATUS_USAGE,
                      "cox needs one output and two targets, the time and the event (dataset.targets: "
                      "[time, event]); the model has %zu outputs, a row %zu targets",
                      shape_elements(output), target_size);
}

/* The rows of all processes; *count of them. */
static struct subject *gather(const struct row_weights *weights, const float *output, const float *targets, size_t rows,
                              size_t *count) {
    const struct all_rows *all = weights->all;
    size_t ranks = all ? all->world_size : 1, own = all ? all->rank : 0, max = all ? all->max : rows;
    float *values = calloc(ranks * max * 3 + 1, sizeof *values);
    struct subject *subjects = calloc(ranks * max + 1, sizeof *subjects);
    if (!values || !subjects) status_exit_without_memory();
    for (size_t r = 0; r < rows; r++) {
        float *to = values + (own * max + r) * 3;
        to[0] = targets[2 * r], to[1] = targets[2 * r + 1], to[2] = output[r];
    }
    if (all) all->gather(all->user, values, max * 3 * sizeof *values);
    *count = 0;
    for (size_t k = 0; k < ranks; k++)
        for (size_t r = 0; r < (all ? all->rows[k] : rows); r++) {
            const float *from = values + (k * max + r) * 3;
            subjects[(*count)++] = (struct subject){from[0], from[1], from[2], k == own ? r : SIZE_MAX, 0};
        }
    free(values);
    return subjects;
}

/* The rows at risk at a time are those with this time or a later one. */
static double likelihood(struct subject *s, size_t count, double *events) {
    double at_risk = 0, loss = 0;
    size_t first = 0;
    *events = 0;
    qsort(s, count, sizeof *s, by_falling_time);
    for (size_t i = 0; i < count; i++) {
        size_t end = i;
        double tied = 0;
        for (; end < count && s[end].time == s[i].time; end++) at_risk += exp((double)s[end].output);
        for (size_t k = i; k < end; k++) {
            if (s[k].event == 0) continue;
            loss += log(at_risk) - (double)s[k].output;
            s[k].slope -= 1;
            tied += 1;
        }
        for (size_t k = first; tied > 0 && k < end; k++) s[k].slope += tied * exp((double)s[k].output) / at_risk;
        *events += tied;
        i = end - 1;
    }
    return loss;
}

static void run(const void *config, const struct loss_batch *b) {
    size_t count = 0;
    double events;
    struct subject *subjects = gather(b->weights, floats(b->output), b->targets, b->rows, &count);
    double loss = likelihood(subjects, count, &events), divisor = events > 0 ? events : 1;
    (void)config;
    for (size_t i = 0; b->gradient && i < count; i++)
        if (subjects[i].at != SIZE_MAX)
            floats(b->gradient)[subjects[i].at] =
                (float)(subjects[i].slope / divisor * (double)count / (double)(b->rows ? b->rows : 1)) * b->scale;
    /* The mean over the rows of the batch is the mean over its events. */
    b->sums->loss += loss / divisor * (double)b->rows;
    b->sums->count += (double)b->rows;
    free(subjects);
}

static const struct loss_type cox = {
    .variant = {"cox", NULL, "Cox's partial likelihood, of the logarithm of the hazard; targets are time and event."},
    .targets = "a time and 1 for an event, 0 for a censored row",
    .check = check,
    .run = run,
    .compares_rows = true,
    .without_lengths = "it is of one value for each row",
};

DDPTRAIN_EXTENSION(.loss = &cox);
