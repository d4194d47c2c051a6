/* state: everything a run is besides its config: parameters, buffers, optimizer state and counters. What a checkpoint
 * holds, what a resume restores, what state_sha256 covers. */
#ifndef TRAIN_STATE_H
#define TRAIN_STATE_H

#include <stdint.h>

#include "base/arena.h"
#include "base/digest.h"
#include "checkpoint/checkpoint.h"
#include "data/dataset.h"
#include "model/model.h"
#include "optim/ema.h"
#include "optim/loss_scale.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

/* What a state that was saved before an evaluation still has to do: the evaluation, and what follows from it. */
enum pending_end {
    PENDING_NONE,
    PENDING_END_OF_RUN,  /* of a run by steps, within an epoch */
    PENDING_END_OF_EPOCH /* counters.epoch does not count it yet; counters.batch is all its batches */
};

/* Fixed-size, so that rank 0 can broadcast it as bytes. */
struct counters {
    int64_t epoch;                   /* epochs finished */
    int64_t batch;                   /* micro-batches done in the current epoch */
    int64_t step;                    /* optimizer updates done */
    int64_t samples;                 /* rows seen by all ranks */
    int64_t skipped, skipped_in_row; /* steps that were not applied because numbers were not finite */
    int64_t world_size;
    int64_t metrics_bytes; /* size of metrics.jsonl at the save */
    int64_t pending_end;   /* enum pending_end */
    /* the current epoch so far */
    double epoch_loss, epoch_count, epoch_correct, epoch_scored, epoch_samples, epoch_seconds;
    /* the run so far */
    double seconds;
    double best_value; /* of the validation accuracy or loss (training loss without validation rows); NAN: none yet */
    int64_t best_epoch;
    double early_stop_best;  /* of train.early_stop's metric; NAN: none yet */
    int64_t early_stop_wait; /* evaluations since then */
    struct plateau plateau;
    struct loss_scale loss_scale; /* train.precision: float16 */
};

struct state {
    struct counters counters;
    struct model *model;
    struct optimizer *optimizer;
    struct ema *ema;                               /* NULL: none */
    float *optimizer_whole[OPTIMIZER_MAX_BUFFERS]; /* its buffers, (params->trained) each; NULL: they are shared out */
    size_t optimizer_first[OPTIMIZER_MAX_BUFFERS]; /* their first entries, one for each trained parameter */
    size_t buffers_first, ema_first;               /* first entries; those of the parameters come first of all */
    size_t counters_first, counter_count;
    struct entry *entries; /* for checkpoint_write and checkpoint_read; they point into the objects above */
    size_t entry_count;
    void **loaded;         /* (entry_count) where state_load reads an entry to; NULL: where the entry points */
    char *loaded_texts[5]; /* what it has read (text_count) */
    size_t text_count;
    const char *fingerprint;    /* the dataset's */
    struct column_list columns; /* the dataset's, borrowed */
    struct arena *arena;
};

/* The host works on the state, and the device again (device_map): all of its arrays. Whatever reads or writes them on
 * the host, below or through the entries, does it in between. One may lie within another. */
status state_map(struct state *state);
status state_unmap(struct state *state, bool has_changed);

/* Names every part of the state; where it lies the entries know once it is lent. [config_text]: the resolved config;
 * [dataset]: its scaler, fingerprint, columns and vocabulary (of a text: "data/vocabulary", as data/vocabulary.h reads
 * it) are kept too; it must live as long. */
status state_create(struct model *model, struct optimizer *optimizer, struct ema *ema, const struct dataset *dataset,
                    const char *config_text, struct state **out);
void state_destroy(struct state *state); /* takes NULL */

/* Where the optimizer's buffer [index] stands as a whole, for a state whose ranks share it; NULL: nowhere. */
void state_set_optimizer(struct state *state, size_t index, float *whole);

/* Restores parameters, optimizer state and counters, or changes nothing: a checkpoint of another model, optimizer or
 * dataset is STATUS_DATA with every difference. [path] for messages. */
status state_load(struct state *state, struct checkpoint *checkpoint, const char *path);

/* SHA-256 (hex) of parameters, buffers, optimizer state, the moving average of the weights and the counters epoch,
 * batch, step and samples. */
void state_sha256(const struct state *state, char hex[DIGEST_HEX_SIZE]);

#endif
