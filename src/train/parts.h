/* parts: what a trainer is made of: the parts of a run, which run.c and parts.c create and destroy, and the state of
 * its loop, in one struct for each subject, which only the file named with it changes. Functions that only share state
 * between ranks are in parallel/share.h. Of src/train's loop each file includes only those before it:
 *
 *   parts.h  progress.h  parallel/share.h  parallel/averaging.h  save.h  parallel/control.h  nonfinite/recovery.h
 *   micro_batch.h  step_log.h  step.h  epoch.h  trainer.h */
#ifndef TRAIN_PARTS_H
#define TRAIN_PARTS_H

#include <signal.h>
#include <stdbool.h>

#include "data/loader.h"
#include "dist/comm/comm.h"
#include "dist/process/pulse.h"
#include "dist/reducer.h"
#include "train/config.h"
#include "train/feed.h"
#include "train/metrics/evaluation.h"
#include "train/metrics/metrics.h"
#include "train/metrics/report.h"
#include "train/nonfinite/guard.h"
#include "train/parallel/agreement.h"
#include "train/parallel/elastic.h"
#include "train/parallel/ranges.h"
#include "train/parallel/zero.h"
#include "train/recording.h"
#include "train/run_folder.h"
#include "train/state.h"
#include "train/update.h"

struct plan;

/* What the device measures during an update; the host reads all of it at once. */
struct found {
    struct loss_sums sums;
    struct clip_norm norm;
    double nonfinite[2]; /* gradients, running statistics */
    double found_inf;    /* not of one update: all are skipped while it is above 0 (skip_if_nonfinite of device_ops) */
};
enum { NONFINITE_GRADIENTS, NONFINITE_STATISTICS };

/* Of parallel/average_in_backward.c, in the current step. */
struct in_backward {
    double squares;  /* of the norms of the gradients so far; NAN: not measured */
    const char *bad; /* the first parameter whose gradient is not finite; NULL: none */
};

/* What averages gradients: one way of the table, and what the ways work with. */
struct averaging_parts {
    const struct averaging *way;      /* parallel/averaging.h */
    struct ranges ranges;             /* the parameters that are averaged */
    struct device_range *norm_ranges; /* (ranges.count) of the gradients that have a norm of their own */
    struct reducer *reducer;          /* NULL: elastic shards */
    float *host_gradients;   /* (params.total) what the reducer works on, where it does not see the device's; NULL */
    struct elastic *elastic; /* NULL: the reducer averages */
    struct zero *zero;       /* NULL: every rank has the whole optimizer */
    struct in_backward in_backward;
};

/* In the device's memory. */
struct step_memory {
    struct found *found;
    float *kept;           /* (model->buffers.total) the running statistics of the last good step */
    uint64_t *pass_number; /* of the pass, for its random numbers */
};

/* What only rank 0 has; elsewhere NULL, and the report is silent. */
struct outputs {
    struct log *log;
    struct metrics *metrics;
    struct saver *saver;
    struct run_folder *folder;
    struct report report;
};

/* Of micro_batch.c. */
struct micro_batch_state {
    struct all_sum all_sum;  /* over all ranks, for layers */
    status all_sum_failure;  /* in this pass */
    bool has_zero_gradients; /* nothing was added to the gradients since an update */
};

/* A step that was enqueued and whose results the host has not read. */
struct pending_step {
    bool is_pending;
    int slot;                       /* of device_download_begin */
    struct loss_scale scale_before; /* counters.loss_scale before it */
    double start;
    struct update update;
};

/* Of step.c. */
struct step_state {
    bool runs_ahead;             /* the next step is enqueued before the last one's results are read */
    struct pending_step pending; /* the newest step; the counters are behind it as if it were finite */
    double completed_at;         /* when the last step was completed */
    struct fault_flip flip;      /* of a test */
    struct guard_place last;     /* where the micro-batches of the last step began */
};

/* Of nonfinite/recovery.c. */
struct recovery_state {
    struct guard *guard;      /* from recovery_open to recovery_close */
    int64_t warnings;         /* of steps that are not finite */
    struct text reason;       /* of the roll-back that is due */
    struct guard_place place; /* the micro-batches that it leaves out */
};

/* Of save.c. */
struct save_state {
    int64_t saved_step;             /* progress_moves of the last state that was saved; -1: none */
    struct guard_place handed_over; /* place of the newest state that the saver was given; rank 0 */
    struct guard_place written;     /* place of the newest state that is on disk; rank 0 */
    bool is_wanted;                 /* a save is due by rank 0's clock; the same on all ranks */
    double saved_at, seconds;       /* when the last save was, and how long training waited for it */
    bool has_failed;                /* the newest save did not reach the disk */
};

/* Of epoch.c. */
struct epoch_state {
    struct reducer_times times;      /* at the start of the epoch, or of this process */
    struct evaluation_result result; /* of the newest evaluation; rows 0: none yet */
    double evaluation_seconds;       /* how long it took here */
    bool is_best;                    /* the last epoch is the best so far */
};

struct trainer {
    /* the parts of the run */
    const struct config *config;
    const volatile sig_atomic_t *stop; /* set by a signal: stop after this step, or batch of evaluation; NULL: never */
    struct comm *comm;
    struct pulse *pulse; /* sends the others what this rank does; NULL: one rank */
    struct device *device;
    struct dataset *dataset;
    struct loader *loader, *validation; /* validation NULL: no validation rows */
    size_t batch;                       /* rows of a micro-batch on this rank */
    struct feed *feed;                  /* of batches to the device */
    struct model *model;
    const struct loss_type *loss;
    struct optimizer *optimizer;
    struct ema *ema; /* NULL: none */
    struct state *state;
    struct evaluation *evaluation;  /* of the validation rows */
    struct recordings *recordings;  /* of passes; NULL: none are recorded */
    struct recordings *evaluations; /* of those of an evaluation, where ranks may differ */
    struct averaging_parts averaging;
    struct step_memory memory;
    struct outputs outputs;

    /* the state of the loop */
    struct micro_batch_state micro_batches;
    struct step_state steps;
    struct recovery_state recovery;
    struct save_state saves;
    struct epoch_state epoch;
};

/* All that the loop works with on the device and that needs no other rank: the model's memory, the optimizer, the feed
 * of batches, the results of a step. What the trainer has of the plan is borrowed. */
status parts_create(struct trainer *trainer, const struct plan *plan);
void parts_destroy(struct trainer *trainer); /* after parts_create, which may have failed */

/* Recordings of passes, when the group and the loaders are there; [log]: rank 0's. They end before the group. */
status parts_open_recordings(struct trainer *trainer, struct log *log);
void parts_close_recordings(struct trainer *trainer);

/* A pass over [rows] rows of the current micro-batch; its random numbers are named by the place in the run. */
struct pass parts_pass(struct trainer *trainer, size_t rows, bool is_training);

#endif
