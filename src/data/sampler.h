/* sampler: which rows a rank sees in which order. A pure function of (config, rows, epoch, rank, world): nothing to
 * save, any epoch can be computed again. `distributed` is PyTorch's DistributedSampler bit for bit
 * (tests/vectors/sampler.json). */
#ifndef DATA_SAMPLER_H
#define DATA_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "base/schema.h"
#include "base/status.h"

enum sampler_type {
    SAMPLER_DISTRIBUTED, /* DistributedSampler */
    SAMPLER_DATALOADER,  /* DataLoader(shuffle=True) with PyTorch's default generator, on one rank */
    SAMPLER_WEIGHTED     /* WeightedRandomSampler: each class as often as any other, with replacement */
};

struct sampler_config {
    int type;                  /* enum sampler_type */
    int64_t batch_size;        /* rows per rank and (micro-)batch; SCHEMA_NO_INT when global_batch_size is given; 32
                                  when neither is */
    int64_t global_batch_size; /* rows of all ranks together; SCHEMA_NO_INT when batch_size is given */
    bool shuffle;
    bool drop_last;       /* DistributedSampler's: drop the tail instead of padding it */
    bool uneven;          /* each row once: the last ranks have a row less, where DistributedSampler pads */
    bool drop_last_batch; /* DataLoader's drop_last: leave out the short last batch of an epoch */
    int64_t seed;
    /* No key: PyTorch's default generator as building the model left it, for SAMPLER_DATALOADER; set by who built it.
     */
    const struct rng *generator;
    /* No key: determinism.shards. Not 0: ranks share the batches of one process, each its shards; see sampler_shard. */
    size_t shards;
    const double *cumulative; /* (rows) of sampler_weigh, for SAMPLER_WEIGHTED; set by the loader */
};
extern const struct schema sampler_schema;

/* Rows that each rank draws in an epoch of [rows] rows, or the most of any rank where they differ (uneven). The
 * same on every rank. */
size_t sampler_length(const struct sampler_config *config, size_t rows, int world_size);
/* Rows that [rank] draws. */
size_t sampler_own_length(const struct sampler_config *config, size_t rows, int rank, int world_size);

/* cumulative (rows): torch.multinomial's cumulative distribution of the weights 1 / (rows of the same class), for
 * classes (rows) below [n_classes]. STATUS_MEMORY without memory. */
status sampler_weigh(const int64_t *classes, size_t rows, int64_t n_classes, double *cumulative);

/* Most rows that go through the model at once: batch_size, or global_batch_size / world_size (STATUS_USAGE when it does
 * not divide), or the rows of a shard. */
status sampler_batch(const struct sampler_config *config, int world_size, size_t *batch);

/* The same rounded up, for evaluating alone, where any type and number of ranks will do. */
size_t sampler_evaluation_batch(const struct sampler_config *config, int world_size);

/* Of a batch of [rows] rows that is cut into [shards], consecutive and as equal as can be: where shard [shard] begins;
 * the next one begins where it ends. Pure. */
size_t sampler_shard(size_t rows, size_t shards, size_t shard);

/* STATUS_USAGE when an epoch of [rows] rows has no batch of [batch] rows for each rank. */
status sampler_check_rows(const struct sampler_config *config, size_t rows, int world_size, size_t batch);

/* indices (sampler_own_length): positions 0 .. rows-1 for [rank] in [epoch] (set_epoch is this argument). [scratch]
 * (rows).
 */
void sampler_indices(const struct sampler_config *config, size_t rows, int64_t epoch, int rank, int world_size,
                     int64_t *scratch, int64_t *indices);

/* Evaluation: each row exactly once over all ranks, in order: rank takes rows [first, first + count). No padding. */
void sampler_evaluation_range(size_t rows, int rank, int world_size, size_t *first, size_t *count);

#endif
