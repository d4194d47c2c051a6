/* sampler: decides which rows a rank gets in which order. A pure function of (config, rows, epoch, rank, world), so it
 * has no state to save. `distributed` is PyTorch's DistributedSampler bit for bit (tests/vectors/sampler.json);
 * `indices` takes the rows from a file. */
#pragma once

#include "base/arena.h"
#include "base/files/digest.h"
#include "base/numbers/rng.h"
#include "base/schema/schema.h"
#include "base/status.h"
#include "data/files/order.h"

enum sampler_kind {
    SAMPLER_DISTRIBUTED, /* DistributedSampler */
    SAMPLER_DATALOADER,  /* DataLoader(shuffle=True) with PyTorch's default generator, on one rank */
    SAMPLER_WEIGHTED,    /* WeightedRandomSampler: all classes equally often, with replacement */
    SAMPLER_INDICES,     /* the rows of a file: any sampler, written down */
    SAMPLER_BATCHIFY,    /* row r of each batch follows row r of the batch before in the data */
    SAMPLER_EXTENSION    /* struct sampler_type of an extension */
};

/* The rows of each epoch of SAMPLER_INDICES, from its file; of SAMPLER_EXTENSION the length alone. */
struct sampler_indices {
    size_t epochs, length; /* length: rows of an epoch, of all ranks */
    struct row_order
        order;            /* (epochs, length); per_rank: row [i] of rank r is at r + i * ranks, as sampler_row reads */
    size_t unused;        /* training rows that are in no epoch */
    size_t uneven_epochs; /* epochs that repeat or leave out training rows */
    size_t first_uneven, repeated, left_out; /* of the first of these: its number, and how many rows */
    char digest[DIGEST_HEX_SIZE];            /* SHA-256 of [epochs], [length] and the numbers of the rows */
};

struct sampler_config {
    int type;                  /* enum sampler_kind */
    int64_t batch_size;        /* rows per rank and (micro-)batch; SCHEMA_NO_INT when global_batch_size is given; 32
                                  when neither is */
    int64_t global_batch_size; /* rows of all ranks together; SCHEMA_NO_INT when batch_size is given */
    bool shuffle;
    bool drop_last;       /* DistributedSampler's: drop the tail instead of padding it */
    bool uneven;          /* no padding: each row once, the last ranks have one row less */
    bool drop_last_batch; /* DataLoader's drop_last: omit the short last batch of an epoch */
    int64_t seed;
    const char *path;     /* SAMPLER_INDICES: the file */
    bool per_rank;        /* its orders are those of the ranks; else one is distributed over them */
    struct variant order; /* SAMPLER_EXTENSION: of sampler_variants */
    bool has_order;
    /* Not a key: of sampler_open_indices, for SAMPLER_INDICES and SAMPLER_EXTENSION; NULL: lengths are those of all
     * training rows. */
    const struct sampler_indices *indices;
    /* Not a key: PyTorch's default generator in its state after the model was built, for SAMPLER_DATALOADER. */
    const struct rng *generator;
    /* Not a key: determinism.shards. Not 0: each rank gets its shards of the batches of one process, see sampler_shard.
     */
    size_t shards;
    const double *cumulative; /* (rows) of sampler_weigh, for SAMPLER_WEIGHTED; set by the loader */
};
extern const struct schema sampler_schema;

/* Reads the file of SAMPLER_INDICES for [rows] training rows and checks every number, or asks SAMPLER_EXTENSION for its
 * length; NULL for another type. For sampler_close_indices. STATUS_DATA with the file, and the index of the first
 * number that is no training row; STATUS_USAGE for orders of another number of ranks. */
status sampler_open_indices(const struct sampler_config *config, size_t rows, int world_size,
                            struct sampler_indices **out);
void sampler_close_indices(struct sampler_indices *indices); /* takes NULL */

/* Adds "order.npy: 3 epochs of 142 rows, ..." with the rows that are repeated or left out, or "by_class: 142 rows in an
 * epoch". */
void sampler_describe_indices(const struct sampler_config *config, struct text *out);

/* The rows of an epoch of all ranks, before they are padded: [rows] training rows, or as many as the file has. */
size_t sampler_epoch_rows(const struct sampler_config *config, size_t rows);

/* The number of rows that a rank draws in an epoch of [rows] training rows; with uneven the maximum over all ranks. */
size_t sampler_length(const struct sampler_config *config, size_t rows, int world_size);
/* Rows that [rank] draws. */
size_t sampler_own_length(const struct sampler_config *config, size_t rows, int rank, int world_size);

/* cumulative (rows): torch.multinomial's cumulative distribution of the weights 1 / (rows of the same class), for
 * classes (rows) below [n_classes]; rows of other classes, which the loss ignores, have the weight 0. STATUS_DATA if
 * all have; STATUS_MEMORY without memory. */
status sampler_weigh(const int64_t *classes, size_t rows, int64_t n_classes, double *cumulative);

/* The rows of a batch of one rank: batch_size, or global_batch_size / world_size (STATUS_USAGE when it is not an
 * integer), or the rows of a shard. */
status sampler_batch(const struct sampler_config *config, int world_size, size_t *batch);

/* The same rounded up, for evaluation without training, with any type and number of ranks. */
size_t sampler_evaluation_batch(const struct sampler_config *config, int world_size);

/* The first row of shard [shard] when [rows] rows are split into [shards] consecutive shards of nearly equal size. */
size_t sampler_shard(size_t rows, size_t shards, size_t shard);

/* STATUS_USAGE when [rows] training rows are less than one batch of [batch] rows for each rank. */
status sampler_check_rows(const struct sampler_config *config, size_t rows, int world_size, size_t batch);

/* Memory for the order of an epoch, for order_free. From 2^32 rows on there is none, unless rows are weighted: their
 * order is computed, and no longer PyTorch's. */
status sampler_alloc(const struct sampler_config *config, size_t rows, struct row_order *out);

/* Draws the order of the rows in [epoch] (set_epoch is this argument), for all ranks, to [order] of sampler_alloc;
 * without sampler_draws it is not used. */
void sampler_draw(const struct sampler_config *config, size_t rows, int64_t epoch, struct row_order *order);

/* Draws the orders of [epoch] and the following RNG_TOGETHER - 1 of SAMPLER_DISTRIBUTED with shuffle: (RNG_TOGETHER,
 * rows), each as by sampler_draw, in the time of one where rows are few. */
void sampler_draw_together(const struct sampler_config *config, size_t rows, int64_t epoch, uint32_t *orders);

/* Row [index], below sampler_own_length, of [rank] in the epoch of [order], which is not given without
 * sampler_draws; [rows]: sampler_epoch_rows. */
static inline size_t sampler_row(const struct row_order *order, size_t rows, int rank, int world_size, size_t index) {
    return order_at(order, ((size_t)rank + index * (size_t)world_size) % rows); /* padding: the first rows again */
}

/* The same for [count] successive indices: out (count), without a division for each. */
static inline void sampler_rows_of(const struct row_order *order, size_t rows, int rank, int world_size, size_t index,
                                   size_t count, int64_t *out) {
    const struct row_order own = *order; /* which [out] cannot be */
    size_t at = (size_t)rank + index * (size_t)world_size;
    for (size_t i = 0; i < count; i++, at += (size_t)world_size) {
        if (at >= rows) at %= rows;
        out[i] = (int64_t)order_at(&own, at);
    }
}

/* Evaluation: each row exactly once over all ranks, in order, without padding: rows [first, first + count) of [rank].
 */
void sampler_evaluation_range(size_t rows, int rank, int world_size, size_t *first, size_t *count);

/* The order of the rows of an evaluation. */
enum evaluation_order {
    EVALUATION_IN_ORDER,
    EVALUATION_INTERLEAVED, /* rank r of W has the rows r, r + W, ... */
    EVALUATION_BATCHIFY     /* in order over the ranks; each divides its rows as SAMPLER_BATCHIFY, all of them */
};
/* Of a loss that [compares_rows]. */
enum evaluation_order sampler_evaluation_order(const struct sampler_config *config, bool compares_rows);
/* Row [index] of [rank] in batches of [batch] rows; [first], [count]: sampler_evaluation_range. */
size_t sampler_evaluation_row(enum evaluation_order order, size_t first, size_t count, int rank, int world_size,
                              size_t batch, size_t index);

/* ---- samplers of extensions ---- */

/* A class like torch.utils.data.Sampler, with functions for __init__, __len__ and set_epoch with __iter__. All ranks
 * draw the order of all, which is distributed over them as by DistributedSampler; a draw depends on its arguments
 * alone, so that a run can resume in the middle of any epoch, on any number of ranks. The program verifies each draw:
 * rows in range, the length, each row once where the type says so, and the same order on all ranks. */

struct comm;

/* The training rows, as a sampler sees them. */
struct sampler_rows {
    size_t rows, input_size, target_size; /* training rows; values of one */
    int64_t seed;                         /* sampler.seed */
    const int64_t *classes;               /* (rows); NULL: a row has no class */
    struct comm *ranks;                   /* a group of all ranks, of the sampler alone: dist/comm/comm.h */
    struct arena *arena;                  /* memory until the end of the run */
    struct dataset *dataset;              /* of sampler_read */
};

/* Training rows [first, first + count) as the model gets them, before augmentation: inputs (count, input_size), tokens
 * and classes as numbers, too; targets (count, target_size). Either may be NULL. */
status sampler_read(const struct sampler_rows *rows, size_t first, size_t count, float *inputs, float *targets);

/* The epoch that is drawn. */
struct sampler_epoch {
    int64_t number; /* from 0, as set_epoch's argument */
    struct rng rng; /* seeded with sampler.seed + number */
    /* the program's: */
    struct row_order *order; /* (length) */
    size_t rows, length, count, bad_index, bad_row;
};

/* The next row of the epoch, a number below the training rows. */
void sampler_yield(struct sampler_epoch *epoch, size_t row);

struct sampler_type {
    struct schema_variant variant;
    bool each_row_once; /* an epoch has each training row, once */
    /* Rows of an epoch of all ranks, from 1. NULL: as many as there are training rows. */
    size_t (*length)(const void *config, size_t rows);
    /* Before the first draw. *state: for draw, in rows->arena. NULL: there is none. All ranks. */
    status (*start)(const void *config, const struct sampler_rows *rows, void **state);
    /* Yields the rows of the epoch in their order. All ranks. */
    status (*draw)(const void *config, const struct sampler_rows *rows, const void *state, struct sampler_epoch *epoch);
};

extern const struct schema_variants sampler_variants;
const struct sampler_type *sampler_type_at(size_t index);
/* Adds the type of an extension. False: there is one of its name. */
bool sampler_type_add(const struct sampler_type *type);

/* A sampler of an extension that has started. */
struct own_sampler {
    const struct sampler_type *type;
    const void *config;
    struct sampler_rows rows;
    void *state;
    uint8_t *is_used; /* (rows) workspace */
};
/* Starts the type of [config] with [rows], and draws an epoch twice: STATUS_DATA if its order is another one the second
 * time. [order]: of sampler_alloc. *out is in rows->arena. All ranks. */
status sampler_start(const struct sampler_config *config, const struct sampler_rows *rows, struct row_order *order,
                     struct own_sampler **out);
/* Draws [epoch] into [order] and verifies it: STATUS_DATA with the epoch and the index. All ranks. */
status sampler_draw_own(const struct own_sampler *sampler, size_t length, int64_t epoch, struct row_order *order);

/* ---- orders that were drawn ---- */

/* The orders of rows that were drawn for epochs, so that many runs over the same rows draw each one once. */

/* Zero-initialise. */
struct orders {
    size_t slots, rows; /* slots 0: nothing is stored */
    uint64_t *seeds;    /* (slots) of the generator */
    bool *is_set;       /* (slots) */
    uint32_t *items;    /* (slots, rows) */
};

/* Copies the order that the generator with [seed] gives to [out] (rows); false: it is not stored. */
bool orders_get(const struct orders *orders, uint64_t seed, size_t rows, struct row_order *out);
/* Stores it, in place of another one if need be. At most 1 MiB is used; without memory nothing is stored. */
void orders_put(struct orders *orders, uint64_t seed, size_t rows, const struct row_order *order);
void orders_free(struct orders *orders);
