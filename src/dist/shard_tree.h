/* shard_tree: sums one vector per shard in a fixed binary tree over the shards, whatever the number of ranks. A float
 * sum depends on the order of its additions; here the order is that of the tree: neighbours first, then pairs of pairs.
 * Ranks own consecutive shards, add those up as far as the tree allows, and exchange only the sums of whole subtrees;
 * so the result has the same bits on any number of ranks, and a rank keeps at most about 2 log2(shards) vectors. */
#ifndef DIST_SHARD_TREE_H
#define DIST_SHARD_TREE_H

#include <stddef.h>

#include "base/status.h"
#include "dist/comm/comm.h"

/* The shards of [rank]: [first, first + count). None when there are more ranks than shards. Pure. */
void shard_tree_share(size_t shards, int rank, int world_size, size_t *first, size_t *count);

/* Vectors that a rank keeps at once, and subtrees that it sends: the most of any rank. Pure. */
void shard_tree_cost(size_t shards, int world_size, size_t *kept, size_t *sent);

struct shard_tree;

/* For vectors of [count] floats. */
status shard_tree_create(size_t shards, size_t count, struct comm *comm, struct shard_tree **out);
void shard_tree_destroy(struct shard_tree *tree); /* takes NULL */

void shard_tree_start(struct shard_tree *tree);
/* Where the vector (count) of this rank's next shard is to be written; then shard_tree_push. In order of shards. */
float *shard_tree_leaf(struct shard_tree *tree);
void shard_tree_push(struct shard_tree *tree);
/* *sum (count): the sum over all shards, until shard_tree_start. After all of this rank's were pushed. All ranks. */
status shard_tree_finish(struct shard_tree *tree, const float **sum);

/* The same tree over a few numbers of each shard: words (shards, width), the sum ends in the first row. Pure. */
void shard_tree_sum(double *words, size_t shards, size_t width);

#endif
