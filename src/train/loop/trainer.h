/* trainer: the parts of a run, which run.c and trainer.c create and destroy, and the state of the loop, in one struct
 * per subject, changed only by the file that its comment names. Exchanges between ranks are in rank_sync.h. The files
 * of the loop include headers of each other only in this order (dry_run.c only trainer.h):
 *
 *   recording.h  trainer.h  progress.h  rank_sync.h  averaging.h  compute_check.h  trace.h  ledger.h  save.h recovery.h
 * step.h  loop.h */
#pragma once

#include "data/dataset/loader.h"
#include "dist/comm/comm.h"
#include "dist/process/activity.h"
#include "dist/reducer.h"
#include "train/config/config.h"
#include "train/folder/run_folder.h"
#include "train/loop/recording.h"
#include "train/metrics/evaluation.h"
#include "train/metrics/metrics.h"
#include "train/metrics/report.h"
#include "train/parallel/agreement.h"
#include "train/parallel/elastic.h"
#include "train/parallel/row_gather.h"
#include "train/parallel/zero.h"
#include "train/plan/feed.h"
#include "train/state/state.h"

struct plan;

/* The position in the data where the micro-batches of a step begin. */
struct data_position {
    int64_t epoch, batch;
};

/* The results of an update on the device; the host reads all of them at once. */
struct device_results {
    struct loss_sums sums;
    struct clip_norm norm;
    double nonfinite[2]; /* gradients, running statistics */
    double found_inf;    /* not reset: all updates are skipped while it is > 0 (skip_if_nonfinite of device_ops) */
};
enum { NONFINITE_GRADIENTS, NONFINITE_STATISTICS };

/* Of the hooks for updates in backward, for the current step. */
struct in_backward {
    bool has_checked_forward, is_forward_finite; /* the loss and the running statistics */
    double squares;                              /* sum of squared norms of the gradients so far; NAN: not needed */
    const char *nonfinite;                       /* the first parameter whose gradient is not finite; NULL: none */
};

/* How gradients are averaged: the hooks and their objects. */
struct averaging_state {
    const struct averaging_hooks *hooks; /* averaging.h */
    struct ranges ranges;                /* the parameters that are averaged */
    struct device_range *norm_ranges;    /* (ranges.count) the same for clip_norm */
    struct reducer *reducer;             /* NULL: elastic, one rank, or updates in backward */
    float *host_gradients;   /* (params.total) copy for the reducer; NULL: it accesses the gradients of the device */
    struct elastic *elastic; /* NULL: not elastic */
    struct zero *zero;       /* NULL: the optimizer is not sharded */
    struct in_backward in_backward;
};

/* In device memory. */
struct step_memory {
    struct device_results *results;
    float *saved_buffers;  /* (model->buffers.total) the running statistics before a step, or the pending steps */
    uint64_t *pass_number; /* for the random numbers of the pass */
};

/* Rank 0 only: on other ranks all pointers are NULL, and report prints nothing. */
struct outputs {
    struct log *log;
    struct metrics *metrics;
    struct metrics *ledger; /* NULL: none */
    struct saver *saver;
    struct run_folder *folder;
    struct report report;
};

/* Of step.c, for the passes over micro-batches. */
struct micro_batch_state {
    struct all_sum all_sum;    /* for layers that sum over ranks */
    status pass_failure;       /* of a collective call in the current pass */
    struct row_gather *gather; /* for a loss that compares the rows of all ranks; NULL: none, or one rank */
    bool has_zero_gradients;   /* no backward since the last update */
    struct batch newest;       /* on the device, and its weight: for an optimizer that evaluates it again */
    float weight;
};

/* One update of the parameters: what is known before its first micro-batch, and what is measured in it. */
struct update {
    /* before its first micro-batch */
    struct data_position first; /* position of its first micro-batch */
    size_t batches;             /* micro-batches */
    int64_t step;               /* number of updates before it */
    float loss_scale;           /* of its gradients; 1 unless train.precision is float16 */
    double lr;                  /* for the log */
    bool decides_alone;         /* the device decides and updates before the results are read; the same on all ranks */
    bool needs_norm;            /* the norm of the averaged gradients; the same on all ranks */
    bool checks_state;          /* hashes are part of the control all-reduce */
    bool is_checked;            /* each piece is computed twice (compute_check.h) */
    bool is_traced;             /* everything of it is kept (trace.h) */

    /* measured; after the control all-reduce the same on all ranks, except has_norm and grad_norm */
    bool has_norm;
    double grad_norm; /* NAN: not measured */
    struct loss_sums sums;
    double rows;
    double stops; /* ranks that received a stop request */
    /* ranks whose loss, averaged gradient or running statistic is not finite */
    double nonfinite_losses, nonfinite_gradients, nonfinite_statistics;
    double skips; /* ranks whose device skipped the update (found_inf); 0 unless decides_alone */
    double seconds;
};

/* A step whose results the host has not read yet. */
struct pending_step {
    bool is_pending;
    int slot; /* of device_download_begin, if it is enqueued ahead; -1: its results are downloaded at once */
    struct loss_scale scale_before; /* counters.loss_scale before it */
    double start;
    struct update update;
};

/* Of step.c. */
struct step_state {
    struct pending_step pending; /* the newest step; the counters include it as if it were finite */
    double completed_at;         /* when the last step was completed */
    struct fault_flip flip;      /* for tests */
    struct data_position last;   /* position of the last step */
};

/* What compute_check.c found on a rank; fixed-size, so that it can be gathered as bytes. */
struct compute_finding {
    bool is_found;
    int agrees_with; /* the third computation: with the first or second one; 0: neither */
    char host[64], processor[64], what[256];
};

/* Of compute_check.c. */
struct compute_check {
    bool is_on; /* there are checked steps, or the fault of a test */
    bool has_block;
    int64_t first, chosen; /* with has_block: of the newest block of steps the first one, and the one that is checked */
    uint64_t *hashes;      /* (3, results) of the computations of a piece; NULL: no step is checked */
    float *buffers, *gradients; /* on the device: running statistics (buffers.total) and, if other micro-batches come
                                   before it in a step, gradients (params.trained) before the piece */
    bool is_shared;             /* passes exchange numbers with other ranks */
    bool injects;               /* for tests: the current computation has the fault */
    struct compute_finding finding;
};

/* Of recovery.c. */
struct recovery_state {
    struct data_position *skipped; /* (on_nonfinite.max) steps that are skipped after a roll-back, in no order; NULL:
                                      none, or another policy */
    size_t skipped_count;
    int64_t warnings;              /* number of non-finite steps */
    struct text reason;            /* of the roll-back that is due */
    struct data_position position; /* its micro-batches, which are skipped after it */
};

#define MAX_SAVE_STEPS 64

/* Of save.c. */
struct save_state {
    int64_t saved_step;            /* progress_attempted_steps of the last saved state; -1: none */
    struct data_position queued;   /* position of the newest state that the saver received; rank 0 */
    struct data_position written;  /* position of the newest state on disk; rank 0 */
    bool is_requested;             /* a save is due by the clock of rank 0; the same on all ranks */
    double saved_at, seconds;      /* time of the last save, and how long training waited for it */
    bool has_failed;               /* the newest save failed */
    char why[512];                 /* with has_failed: the message of the failure */
    struct data_position best;     /* position of the newest state of save_best; rank 0 */
    int64_t best_step;             /* and its step */
    double best_written_at;        /* time of the last write of best.h5; rank 0 */
    struct state hashed;           /* a copy with the counters of the state that save_hash hashes; rank 0 */
    char hashed_name[64];          /* of its checkpoint; empty: none */
    int64_t steps[MAX_SAVE_STEPS]; /* (step_count) updates after which a save is due, too */
    size_t step_count;
};

/* Of rank_sync.c: the last comparison of the rows in memory with those that were read. */
struct rows_check {
    double seconds, checked_at; /* how long one takes, 0: no rows are in memory; the time of the last one */
    int64_t step;               /* of the last one */
    bool has_saved;             /* a state, since the last one */
};

/* Of the end of an epoch. */
struct epoch_state {
    struct reducer_times times;      /* at the start of the epoch, or of this process */
    struct evaluation_result result; /* of the newest evaluation; rows 0: none yet */
    double evaluation_seconds;       /* its duration on this rank */
    double all_evaluation_seconds;   /* the duration of all evaluations of this process */
    double value;                    /* checkpoint.best's metric of the last epoch; NAN: it has none */
    bool is_best;                    /* the last epoch is the best so far */
    bool has_ended;                  /* an epoch, or a part of one at the end of the run, has ended in this process */
};

/* Of run.c: the evaluation of the test rows at the end of the run. */
struct test_state {
    struct loader *loader; /* NULL: no test rows, or a run that writes nothing */
    struct evaluation *evaluation;
    struct evaluation_result result; /* rows 0: not evaluated */
    bool is_best;                    /* of the best checkpoint, else of the newest state */
};

struct trainer {
    /* the parts of the run */
    const struct config *config;
    void (*on_epoch)(void *user, int64_t epoch, double value, bool is_last); /* run_options' */
    void *user;                                                              /* of on_epoch */
    int64_t stop_after;                                                      /* run_options' */
    struct comm *comm;
    struct activity *activity; /* reports the phase of this rank to the store; NULL: one rank */
    struct device *device;
    struct dataset *dataset;
    const struct sampler_config *sampler; /* of the plan */
    struct loader *loader, *validation;   /* validation NULL: no validation rows */
    size_t batch;                         /* rows of a micro-batch on this rank */
    struct feed *feed;                    /* of batches to the device */
    struct model *model;
    const struct loss_type *loss;
    const void *loss_config;
    struct optimizer *optimizer;
    struct ema *ema; /* NULL: none */
    struct state *state;
    struct evaluation *evaluation;  /* of the validation rows */
    struct recordings *recordings;  /* of training passes; NULL: not recorded */
    struct recordings *evaluations; /* of evaluation passes, which may differ between ranks */
    int64_t ledger_every;           /* ledger_interval */
    struct averaging_state averaging;
    struct step_memory memory;
    struct outputs outputs;

    /* the state of the loop */
    struct micro_batch_state micro_batches;
    struct step_state steps;
    struct compute_check compute_check;
    struct trace *trace; /* trace.h; NULL: none */
    struct recovery_state recovery;
    struct save_state saves;
    struct rows_check rows;
    struct epoch_state epoch;
    struct test_state test;
};

/* Creates the parts that need no other rank: memory of the model, optimizer, feed, results of a step. Device, dataset,
 * model and loss remain owned by the plan. */
status trainer_create(struct trainer *trainer, const struct plan *plan);
void trainer_destroy(struct trainer *trainer); /* after trainer_create, which may have failed */

/* Creates the recordings, after the group and the loaders; destroys them, before the group. [log]: NULL except on rank
 * 0.
 */
status trainer_open_recordings(struct trainer *trainer, struct log *log);
void trainer_close_recordings(struct trainer *trainer);

/* A pass over [rows] rows of the current micro-batch. */
struct pass trainer_pass(struct trainer *trainer, size_t rows, bool is_training);
