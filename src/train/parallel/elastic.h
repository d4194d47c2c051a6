/* elastic: a step with the same bits on any number of ranks (`determinism: {mode: elastic}`). The batch of all ranks is
 * split into shards. Each shard is computed separately, with random numbers that depend on its rows; gradients, running
 * statistics and losses are summed in one tree over the shards (dist/shard_tree.h). */
#pragma once

#include "data/dataset/loader.h"
#include "dist/comm/comm.h"
#include "model/model.h"

struct elastic;

/* Not owned. [batch]: rows of a batch of all ranks. */
struct elastic_options {
    size_t shards, batch, rows; /* rows: of an epoch */
    bool accumulates;           /* an update may have several batches */
    struct model *model;
    size_t input_size, target_bytes; /* of a row */
    struct comm *comm;
};
status elastic_create(const struct elastic_options *options, struct elastic **out);
/* Bytes of device memory on the rank with the maximum number of shards. */
size_t elastic_memory(const struct model *model, size_t shards, int world_size);

void elastic_destroy(struct elastic *elastic); /* takes NULL */

/* A shard of this rank's batch. */
struct elastic_shard {
    struct batch batch;
    size_t first; /* its first row in the batch of all ranks */
    float weight; /* its rows / rows of that batch */
};
size_t elastic_shard_count(const struct elastic *elastic);
struct elastic_shard elastic_shard(const struct elastic *elastic, const struct batch *batch, size_t number,
                                   size_t index);

/* Shard [index] of this rank is computed next, in order: sets the gradients to zero and the running statistics to those
 * before the batch. Returns the sums of its loss, on the device. [is_first]: in the first batch of an update. */
struct loss_sums *elastic_start(struct elastic *elastic, size_t index, bool is_first);
/* After forward and backward of shard [index] of batch [number], or without them if it is empty. After the last one of
 * this rank, or index 0 on a rank without shards, the running statistics are the mean of all shards, and the gradients
 * of the batch are added to those of the update. All ranks. */
status elastic_finish(struct elastic *elastic, size_t number, size_t index, bool is_first);
/* After the last batch of an update: the model's gradients become the weighted sum over its batches of those of the
 * mean over the rows of all ranks. */
status elastic_use_gradients(struct elastic *elastic);

/* Sums the losses of the step in the order of the tree, and [counts] (count <= ELASTIC_MAX_COUNTS) in order of rank.
 * All ranks. */
#define ELASTIC_MAX_COUNTS 16
status elastic_all_reduce_sums(struct elastic *elastic, struct loss_sums *sums, double *counts, size_t count);

/* Rows of batch [number] over all ranks. */
size_t elastic_rows(const struct elastic *elastic, size_t number);
