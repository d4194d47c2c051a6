/* trainer: the loop. run.c puts its parts together; here they move. All ranks do the same calls in the same order; what
 * is only rank 0's (metrics, saver, report) is NULL or silent elsewhere. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include <signal.h>
#include <stdbool.h>

#include "data/loader.h"
#include "dist/comm.h"
#include "dist/pulse.h"
#include "dist/reducer.h"
#include "train/agreement.h"
#include "train/config.h"
#include "train/elastic.h"
#include "train/evaluation.h"
#include "train/feed.h"
#include "train/guard.h"
#include "train/in_backward.h"
#include "train/metrics.h"
#include "train/ranges.h"
#include "train/recording.h"
#include "train/report.h"
#include "train/run_folder.h"
#include "train/state.h"
#include "train/zero.h"

/* What the device finds out during an update; the host reads all of it at once. */
struct found {
    struct loss_sums sums;
    struct clip_norm norm;
    double bad[2]; /* gradients, running statistics */
    double held;   /* not of one update: what holds back all of them, see device_ops' hold */
};
enum { BAD_GRADIENTS, BAD_STATISTICS };

/* A step that the device was asked for, and the host has not seen the results of. */
struct flight {
    bool is_up;
    int slot;                 /* of device_download_later */
    struct guard_place first; /* of its micro-batches */
    int64_t step;             /* those before it */
    struct loss_scale scale;  /* before it */
    float loss_scale;         /* of this step */
    size_t batches;
    double rows, lr, start;
    bool has_norm;
};

struct trainer {
    const struct config *config;
    const volatile sig_atomic_t *stop; /* set by a signal: stop after this step; NULL: never */
    struct comm *comm;
    struct pulse *pulse; /* tells the others what this rank does; NULL: a world of one */
    struct device *device;
    struct dataset *dataset;
    struct loader *loader, *validation; /* validation NULL: no validation rows */
    struct feed *feed;                  /* of batches to the device */
    struct recordings *recordings;      /* of passes; NULL: none are recorded */
    struct recordings *evaluations;     /* of those of an evaluation, where ranks may differ */
    struct evaluation *evaluation;      /* of the validation rows */
    struct ema *ema;                    /* NULL: none */
    struct model *model;
    const struct loss_type *loss;
    struct optimizer *optimizer;
    struct zero *zero; /* NULL: every rank has the whole optimizer */
    struct reducer *reducer;
    float *host_gradients;   /* (params.total) what the reducer works on, where it does not see the device's; NULL */
    struct elastic *elastic; /* NULL: the reducer averages */
    bool is_in_backward;     /* parameters are updated during backward */
    struct ranges ranges;    /* what the reducer was made for */
    struct all_sum all_sum;  /* over all ranks, for layers */
    status all_sum_failure;  /* of all_sum in this step */
    struct state *state;
    size_t batch;                     /* rows of a micro-batch on this rank */
    struct found *found;              /* on the device */
    float *kept;                      /* (model->buffers.total) the running statistics of the last good step; there */
    uint64_t *pass_number;            /* of the pass, for its random numbers; on the device */
    struct device_range *norm_ranges; /* (ranges.count) of the gradients that have a norm of their own */

    /* rank 0; NULL elsewhere */
    struct log *log;
    struct metrics *metrics;
    struct saver *saver;
    struct run_folder *folder;
    struct report report;

    /* of the loop */
    struct guard *guard;             /* while trainer_run runs */
    struct in_backward in_backward;  /* with is_in_backward */
    bool is_ahead;                   /* the host asks for the next step before it has seen the last one's results */
    struct flight flight;            /* the newest step; the counters stand behind it as if it were good */
    double landed;                   /* when the last results were seen */
    struct fault_flip flip;          /* of a test */
    struct guard_place last_group;   /* where the micro-batches of the last step began */
    int64_t saved_step;              /* trainer_moves of the last state that was saved; -1: none */
    struct guard_place handed_over;  /* where the newest state stands that the saver was given; rank 0 */
    struct guard_place written;      /* where the newest state stands that is on disk; rank 0 */
    int64_t warnings;                /* of steps that are not finite */
    bool save_failed;                /* the newest save did not reach the disk */
    bool has_zero_gradients;         /* nothing was added to the gradients since an update */
    float loss_scale;                /* of this step; 1 unless train.precision is float16 */
    double grad_norm;                /* NAN when it was not needed */
    double last_epoch_loss;          /* NAN: none */
    struct reducer_times averaging;  /* at the start of the epoch, or of this process */
    struct evaluation_result result; /* of the newest evaluation; rows 0: none yet */
};

/* What the loop works with on the device, for a batch of up to [rows] rows. After ranges and loader; [log]: rank 0's.
 */
status trainer_alloc(struct trainer *trainer, size_t rows, struct log *log);
void trainer_free(struct trainer *trainer);

/* Trains from where the state stands to the end of the run and saves the last state. STATUS_STOPPED after a stop
 * request, saved; STATUS_NOT_FINITE, on all ranks in the same step, when the loss or a gradient is not finite and
 * train.on_nonfinite does not let the run go on; STATUS_DIVERGED when the states of the ranks differ; then nothing is
 * saved after the last good checkpoint. All ranks. */
status trainer_run(struct trainer *trainer);

/* Rank 0's running statistics become everyone's, as DistributedDataParallel's broadcast_buffers: before evaluation (a
 * training pass does not read them, and rank 0 is the one that saves). All ranks. */
status trainer_share_buffers(struct trainer *trainer);

/* Compares the states of the ranks (agreement_check). All ranks. */
status trainer_check_agreement(struct trainer *trainer, bool with_buffers);

/* Rank 0's counters, and its state, lent, become everyone's: parameters, running statistics, optimizer, average. All
 * ranks. */
status trainer_share_state(struct trainer *trainer);
/* The same where optimizer and average are as every rank makes them. */
status trainer_share_start(struct trainer *trainer);

/* Steps that were applied or skipped: tells apart the states of one run. */
int64_t trainer_moves(const struct counters *counters);

/* A pass over [rows] rows of the current micro-batch; its random numbers are named by the place in the run. */
struct pass trainer_pass(struct trainer *trainer, size_t rows, bool is_training);

/* Whether the state is that of a finished run. */
bool trainer_is_complete(const struct config *config, const struct counters *counters);

#endif
