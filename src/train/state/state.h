/* state: the state of a run: parameters, buffers, optimizer state, moving average and counters. A checkpoint contains
 * it, a resume restores it, state_sha256 hashes it. */
#pragma once

#include "base/arena.h"
#include "base/files/digest.h"
#include "checkpoint/checkpoint.h"
#include "data/dataset/dataset.h"
#include "model/model.h"
#include "optim/ema.h"
#include "optim/loss_scale.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

/* For a state that was saved before an evaluation: the evaluation, and the end of the epoch or run, are still due. */
enum pending_end {
    PENDING_NONE,
    PENDING_END_OF_RUN,  /* of a run by steps, within an epoch */
    PENDING_END_OF_EPOCH /* not yet counted in counters.epoch; counters.batch is the number of its batches */
};

/* Fixed-size, so that rank 0 can broadcast it as bytes. */
struct counters {
    int64_t epoch;                   /* finished epochs */
    int64_t batch;                   /* finished micro-batches of the current epoch */
    int64_t step;                    /* optimizer updates */
    int64_t samples;                 /* rows of all ranks */
    int64_t skipped, skipped_in_row; /* steps that were not applied because of non-finite numbers */
    int64_t world_size;
    int64_t metrics_bytes; /* size of metrics.jsonl at the save */
    int64_t ledger_bytes;  /* size of ledger.jsonl at the save; 0: there is none */
    int64_t pending_end;   /* enum pending_end */
    /* the current epoch so far */
    double epoch_loss, epoch_count, epoch_correct, epoch_scored, epoch_samples, epoch_seconds;
    /* the run so far */
    double seconds;
    double best_value; /* of checkpoint.best's metric, by default val_accuracy, val_loss or train_loss; NAN: none yet */
    int64_t best_epoch;
    double early_stop_best;  /* of train.early_stop's metric; NAN: none yet */
    int64_t early_stop_wait; /* evaluations since the last improvement */
    struct plateau plateau;
    struct loss_scale loss_scale; /* train.precision: float16 */
};

/* Whether a loaded state is that of a checkpoint of this run folder; else that of the file of checkpoint.resume. */
static inline bool counters_are_own(const struct counters *counters) { return counters->metrics_bytes > 0; }

struct state {
    struct counters counters;
    struct model *model;
    struct optimizer *optimizer;
    struct ema *ema;                               /* NULL: none */
    float *params_full, *ema_full;                 /* the parameters and their average (params->total); NULL: sharded */
    float *optimizer_full[OPTIMIZER_MAX_BUFFERS];  /* its buffers, (params->trained) each; NULL: sharded */
    size_t optimizer_first[OPTIMIZER_MAX_BUFFERS]; /* their first entries, one for each trained parameter */
    size_t buffers_first, ema_first;               /* indices of their first entries; parameters begin at 0 */
    size_t counters_first, counter_count;
    struct entry *entries; /* for checkpoint_write and checkpoint_read; their data points into the objects above */
    size_t entry_count, max_entries;
    bool *is_steady; /* (entry_count) their data change only in updates, or are set by the saver's thread (save_hash) */
    void **loaded;   /* (entry_count) the destinations of state_load; NULL: the data of the entry */
    char **loaded_texts; /* the texts that it has read (text_count) */
    size_t text_count;
    const char *fingerprint;               /* of the dataset */
    const char *sampler;                   /* digest of its file, sampler_indices; NULL: it has none */
    struct column_list columns;            /* of the dataset, not owned */
    struct string_list labels;             /* of its classes, not owned */
    const struct preparation *preparation; /* of the dataset, not owned; NULL: none */
    struct arena *arena;
};

/* Map and unmap all arrays of the state for access by the host (device_map). state_load, state_sha256 and
 * every access through the entries need a mapped state. Calls may be nested. */
status state_map(struct state *state);
status state_unmap(struct state *state, bool has_changed);

/* Creates the list of entries; state_map sets their data. The resolved config [config_text] and the scaler,
 * fingerprint, columns, labels and vocabulary of [dataset] are entries, too, and so is the digest [sampler] of
 * the sampler's file (NULL: it has none). [dataset] must outlive the state; NULL: none of these entries. */
status state_create(struct model *model, struct optimizer *optimizer, struct ema *ema, const struct dataset *dataset,
                    const char *config_text, const char *sampler, struct state **out);
void state_destroy(struct state *state); /* takes NULL */

/* Sets the complete buffer [index] of a sharded optimizer; NULL: none. */
void state_set_optimizer(struct state *state, size_t index, float *full);
/* The same for the parameters and, if there is one, their average. */
void state_set_params(struct state *state, float *full);
void state_set_ema(struct state *state, float *full);

/* state_hash_floats over a long array that is given in parts, from the first one on; [total]: its elements. */
struct state_hasher {
    float *part; /* (STATE_HASH_PART, or total) */
    size_t filled, total, done;
    uint64_t hash;
};
status state_hasher_start(struct state_hasher *hasher, size_t total);
/* NULL: zeros. */
void state_hasher_add(struct state_hasher *hasher, const float *values, size_t count);
/* Of exactly [total] elements. Frees the memory, also after a failure. */
uint64_t state_hasher_finish(struct state_hasher *hasher);

/* Restores parameters, optimizer state and counters, or changes nothing: STATUS_DATA with all differences for a
 * checkpoint of another model, optimizer or dataset. [path], [otherwise]: for messages, as of column_names_compare. Of
 * a state that is not mapped, tensors are compared only. */
status state_load(struct state *state, struct checkpoint *checkpoint, const char *path, const char *otherwise);

/* The counters of a checkpoint alone. */
status state_read_counters(struct checkpoint *checkpoint, struct counters *out);

/* SHA-256 (hex) of parameters, buffers, optimizer state, the moving average of the weights and the counters epoch,
 * batch, step and samples. */
void state_sha256(const struct state *state, char hex[DIGEST_HEX_SIZE]);
/* state_hash_floats over the same: as fast as the threads can read memory. */
uint64_t state_hash(const struct state *state);
/* hash_add over values (count), of more than 2^16 over the hashes of pieces of so many, which the threads compute. */
uint64_t state_hash_floats(uint64_t seed, const float *values, size_t count);
