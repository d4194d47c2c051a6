/* run_queue: which run of a sweep is handed out next, with the point of its trial: first runs whose worker was lost,
 * then the first one that has no result. */
#ifndef SWEEP_RUN_QUEUE_H
#define SWEEP_RUN_QUEUE_H

#include "sweep/trials.h"
#include "sweep/workers/worker.h"

struct run_queue {
    const struct sweep_config *config;
    struct trials *trials; /* TPE's points are set in it */
    struct retry *retries; /* runs that were handed out before */
    size_t retry_count, retry_capacity;
    int64_t next;        /* the first run that was never handed out */
    const int64_t *kept; /* trials whose runs are trained again; NULL: not yet */
    int64_t kept_count;
    int64_t checked; /* runs of kept that were handed out */
};

void run_queue_close(struct run_queue *queue);

/* The job of the next run; false: there is none now. */
bool run_queue_next(struct run_queue *queue, struct worker_job *job);

/* [run] is handed out again. */
void run_queue_repeat(struct run_queue *queue, int64_t run);

/* The worker of [run] was lost; returns how many have been. */
int run_queue_count_loss(struct run_queue *queue, int64_t run);

/* From now on only the runs of the trials [kept] (count), with run folders. The array is not copied. */
void run_queue_keep(struct run_queue *queue, const int64_t *kept, int64_t count);

#endif
