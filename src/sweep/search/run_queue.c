/* Runs are handed out in the order of their numbers; the list of runs to repeat is short, so it is searched. */
#include "sweep/search/run_queue.h"

#include <math.h>
#include <stdlib.h>

#include "sweep/search/tpe.h"

/* A run that was handed out before. */
struct retry {
    int64_t run;
    int losses;      /* workers that were lost with it */
    bool is_waiting; /* to be handed out */
};

void run_queue_close(struct run_queue *q) { free(q->retries); }

/* The entry of [run], which is added if there is none. */
static struct retry *retry_of(struct run_queue *q, int64_t run) {
    for (size_t i = 0; i < q->retry_count; i++)
        if (q->retries[i].run == run) return &q->retries[i];
    if (q->retry_count == q->retry_capacity) {
        q->retry_capacity = q->retry_capacity * 2 + 8;
        q->retries = realloc(q->retries, q->retry_capacity * sizeof *q->retries);
        if (!q->retries) status_exit_without_memory();
    }
    q->retries[q->retry_count] = (struct retry){.run = run};
    return &q->retries[q->retry_count++];
}

void run_queue_repeat(struct run_queue *q, int64_t run) { retry_of(q, run)->is_waiting = true; }

int run_queue_count_loss(struct run_queue *q, int64_t run) { return ++retry_of(q, run)->losses; }

void run_queue_keep(struct run_queue *q, const int64_t *kept, int64_t count) {
    q->kept = kept;
    q->kept_count = count;
    q->retry_count = 0;
}

/* The value of a pruned run of a trial. */
static void observe_pruned(const struct run_queue *q, int64_t trial, struct observation *o) {
    for (int64_t r = 0; r < q->config->runs; r++) {
        const struct trial_run *run = trials_run(q->trials, trial * q->config->runs + r);
        if (run->state != TRIAL_PRUNED) continue;
        o->epochs = run->epochs;
        o->value = run->value;
    }
}

/* TPE's point of a trial, from the trials that have ended or run, in the order of their numbers. */
static void suggest(const struct run_queue *q, int64_t trial, struct point *out) {
    struct observation *observations = calloc((size_t)q->config->trials, sizeof *observations);
    size_t count = 0;
    struct rng rng;
    if (!observations) status_exit_without_memory();
    for (int64_t i = 0; i < q->config->trials; i++) {
        struct trial_summary summary = trials_summary(q->trials, i);
        struct observation *o = &observations[count];
        if (!trials_point(q->trials, i, &o->point)) continue;
        o->is_running = summary.state == TRIAL_PENDING;
        o->is_complete = summary.state == TRIAL_COMPLETE;
        o->value = summary.mean;
        if (summary.state == TRIAL_PRUNED) observe_pruned(q, i, o);
        if (summary.state == TRIAL_FAILED) o->value = NAN;
        if (q->config->metric.goal == SWEEP_MAXIMIZE) o->value = -o->value;
        count++;
    }
    sweep_rng(q->config, trial, &rng);
    tpe_suggest(&q->config->space, observations, count, &rng, out);
    free(observations);
}

/* The other runs of a trial are not done when one was pruned. They are when one has failed: else the table would depend
 * on which run came first. */
static bool is_due(const struct run_queue *q, int64_t run) {
    return trials_run(q->trials, run)->state == TRIAL_PENDING &&
           trials_summary(q->trials, run / q->config->runs).state != TRIAL_PRUNED;
}

static bool next_retry(struct run_queue *q, int64_t *run) {
    for (size_t i = 0; i < q->retry_count; i++) {
        if (!q->retries[i].is_waiting) continue;
        q->retries[i].is_waiting = false;
        *run = q->retries[i].run;
        if (q->kept || is_due(q, *run)) return true;
    }
    return false;
}

static bool next_pending(struct run_queue *q, int64_t *run) {
    while (q->next < q->config->trials * q->config->runs) {
        *run = q->next++;
        if (is_due(q, *run)) return true;
    }
    return false;
}

static bool next_kept(struct run_queue *q, int64_t *run) {
    int64_t runs = q->config->runs;
    if (q->checked >= q->kept_count * runs) return false;
    *run = q->kept[q->checked / runs] * runs + q->checked % runs;
    q->checked++;
    return true;
}

bool run_queue_next(struct run_queue *q, struct worker_job *job) {
    int64_t run;
    if (!next_retry(q, &run) && !(q->kept ? next_kept : next_pending)(q, &run)) return false;
    int64_t trial = run / q->config->runs;
    *job = (struct worker_job){.run = run, .is_kept = q->kept || q->config->kept == INT64_MAX};
    if (trials_point(q->trials, trial, &job->point)) return true;
    suggest(q, trial, &job->point);
    trials_set_point(q->trials, trial, &job->point);
    return true;
}
