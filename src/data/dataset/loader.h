/* loader: batches of one rank's rows in the sampler's order. A thread reads them ahead, unless the rows are in memory.
 * Nothing is allocated after loader_create. It can start at any batch of an epoch, for resume. */
#pragma once

#include "base/status.h"
#include "data/dataset/dataset.h"
#include "data/sampling/sampler.h"

struct batch {
    size_t rows;              /* of this batch; the last of an epoch may be short */
    const float *inputs;      /* (rows, input_size); INPUT_TOKENS: int32_t, cast */
    const void *targets;      /* (rows, target_size): int64_t classes or float values */
    const int64_t *positions; /* (rows) of the part: see dataset_row */
    const float *weights;     /* (rows) of dataset_read_weights; NULL: the dataset has none */
};

struct loader;

/* STATUS_USAGE where the rows do not go with the sampler, or an epoch has no batch. */
status loader_check(const struct dataset_info *info, const struct sampler_config *sampler, size_t batch,
                    int world_size);

/* [batch]: rows per batch (sampler_batch); with sampler->shards a batch has the rows of this rank's shards.
 * [prefetch]: batches that a thread reads ahead; 0: loader_next reads; -1: automatic. */
status loader_create(struct dataset *dataset, const struct sampler_config *sampler, size_t batch, int rank,
                     int world_size, int64_t prefetch, struct loader **out);
void loader_destroy(struct loader *loader); /* takes NULL */

/* With a sampler of an extension: starts it, before the first loader_seek; else does nothing. [ranks]: a group for it
 * alone. All ranks. */
status loader_start_sampler(struct loader *loader, struct comm *ranks);

/* With a sampler of an extension: the order of the epoch that was drawn; else NULL. */
const struct row_order *loader_own_order(const struct loader *loader);
/* Its group; NULL without such a sampler. */
struct comm *loader_own_ranks(const struct loader *loader);

/* Batches of an epoch, the same on every rank. */
size_t loader_batches(const struct loader *loader);

/* sampler.seed and the generator of the sampler, from the next loader_seek on. Not for a sampler of an extension. */
void loader_set_seed(struct loader *loader, int64_t seed, const struct rng *generator);

/* Sets the position to batch [first] of [epoch]. */
status loader_seek(struct loader *loader, int64_t epoch, size_t first);

/* The next batch of the epoch, valid until the next call. rows == 0: the epoch has ended, or only other ranks have rows
 * of this batch (uneven, shards); loader_batches has the number of batches. */
status loader_next(struct loader *loader, struct batch *out);

/* hash_add over the numbers (int64) of the rows of all ranks in batches [first, first + count) of the current epoch, in
 * the order of the epoch: with batches of the same rows in all, the same for any number of ranks. Training rows only.
 */
uint64_t loader_hash_rows(const struct loader *loader, size_t first, size_t count);

/* The parts of a batch of up to [rows] rows are in one block, inputs first; bytes from its start. */
struct batch_layout {
    size_t targets, weights, bytes; /* bytes: of the block */
};
struct batch_layout loader_layout(const struct dataset_info *info, size_t rows);

/* Calls [visit] with each block of memory that batches are in; the blocks stay valid until loader_destroy. */
typedef void loader_visitor(void *user, void *memory, size_t bytes);
void loader_visit(const struct loader *loader, loader_visitor *visit, void *user);

/* For an evaluation of [part]: each row once over all ranks, in [order]. Call loader_seek(l, 0, 0) before each pass. */
status loader_create_evaluation(struct dataset *dataset, enum dataset_part part, size_t batch, int rank, int world_size,
                                enum evaluation_order order, struct loader **out);
