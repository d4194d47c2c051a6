/* elastic: a step with the same bits on any number of ranks (`determinism: {mode: elastic}`). The batch of all ranks is
 * split into shards. Each shard is computed separately, with random numbers that depend on its rows; gradients, running
 * statistics and losses are summed in one tree over the shards (dist/shard_tree.h). */
#ifndef TRAIN_ELASTIC_H
#define TRAIN_ELASTIC_H

#include <stddef.h>
#include <stdint.h>

#include "data/dataset/loader.h"
#include "dist/comm/comm.h"
#include "model/model.h"

struct elastic;

/* Not owned. [batch]: rows of a batch of all ranks. */
struct elastic_options {
    size_t shards, batch, rows; /* rows: of an epoch */
    bool accumulates;           /* an update may have several batches */
    struct model *model;
    const struct loss_type *loss;
    const void *loss_config;
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

/* A batch of an update. */
struct elastic_batch {
    const struct batch *rows; /* of this rank */
    size_t number;            /* of the epoch */
    float weight;             /* in the update */
    bool is_first, is_last;   /* of the update */
};

/* Forward and backward of this rank's shards. After the last batch of an update the model's gradients are the weighted
 * sum over the batches of those of each mean over the rows of all ranks; running statistics become the mean of the
 * shards after each batch. [pass]: the random numbers of row 0. All ranks. */
status elastic_run(struct elastic *elastic, const struct elastic_batch *batch, const struct pass *pass);

/* Sums the losses of the step in the order of the tree, and [counts] (count <= ELASTIC_MAX_COUNTS) in order of rank.
 * All ranks. */
#define ELASTIC_MAX_COUNTS 16
status elastic_all_reduce_sums(struct elastic *elastic, struct loss_sums *sums, double *counts, size_t count);

/* Rows of batch [number] over all ranks. */
size_t elastic_rows(const struct elastic *elastic, size_t number);

#endif
