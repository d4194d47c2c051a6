/* shard_tree: sums one vector for each shard in a fixed binary tree over the shards, so that the result has the same
 * bits on any number of ranks. A float sum depends on the order of its additions; here it is that of the tree:
 * neighbours first, then pairs of pairs. Ranks own consecutive shards, add them as far as the tree allows, and exchange
 * only the sums of whole subtrees; a rank keeps at most about 2 log2(shards) vectors. */
#pragma once

#include "base/status.h"
#include "dist/comm/comm.h"

/* The shards of [rank]: [first, first + count). count may be 0 if there are more ranks than shards. Pure. */
void shard_tree_range(size_t shards, int rank, int world_size, size_t *first, size_t *count);

/* *kept: maximum number of vectors that a rank keeps at once; *sent: maximum number of subtrees that it sends. Pure. */
void shard_tree_cost(size_t shards, int world_size, size_t *kept, size_t *sent);

struct shard_tree;

/* For vectors of [count] floats. [comm] is not owned. All ranks. */
status shard_tree_create(size_t shards, size_t count, struct comm *comm, struct shard_tree **out);
void shard_tree_destroy(struct shard_tree *tree); /* takes NULL */

/* Begins a new sum. */
void shard_tree_start(struct shard_tree *tree);
/* The buffer (count) for the vector of this rank's next shard, in order of shards; shard_tree_push then adds it. */
float *shard_tree_leaf(struct shard_tree *tree);
void shard_tree_push(struct shard_tree *tree);
/* *sum (count): the sum over all shards, valid until shard_tree_start. Call it after all shards of this rank were
 * pushed. All ranks. */
status shard_tree_finish(struct shard_tree *tree, const float **sum);

/* Sums [width] numbers of each shard in the order of the same tree: values (shards, width); the result is in the first
 * row. Pure. */
void shard_tree_sum(double *values, size_t shards, size_t width);
