/* zero: each rank keeps the optimizer's state of its share of the parameters only, as PyTorch's ZeroRedundancyOptimizer
 * and stage 1 of DeepSpeed's ZeRO (dist.zero_stage: 1). Gradients are reduce-scattered bucket by bucket during
 * backward, each rank updates its share, and the shares of the parameters are gathered by all. For a checkpoint the
 * state is gathered on rank 0, so a file is the same whoever wrote it. All of these take NULL where nothing is shared.
 */
#ifndef TRAIN_ZERO_H
#define TRAIN_ZERO_H

#include <stdbool.h>

#include "dist/comm/comm.h"
#include "dist/dist_config.h"
#include "optim/optimizer.h"
#include "train/state.h"

struct zero;

/* *out NULL when the config does not ask for it, or for a single rank. */
status zero_create(const struct dist_config *config, const struct params *params, int rank, int world_size,
                   struct zero **out);
void zero_destroy(struct zero *zero);

/* What this rank's optimizer updates; NULL: everything. */
const struct optimizer_shard *zero_shard(const struct zero *zero);

/* Bytes of optimizer state on the rank that has most, of [whole] bytes without sharing. */
size_t zero_memory(const struct dist_config *config, const struct params *params, int world_size, size_t whole);

/* After the update: everyone's parameters from their owners. All ranks. */
status zero_share_values(struct zero *zero, struct params *params, struct device *device, struct comm *comm);

/* The squared norm of the gradients, which are lent, by parameter as PyTorch takes it, from what each rank owns. All
 * ranks. */
status zero_squared_norm(struct zero *zero, const struct params *params, struct comm *comm, double *squares);
/* *bad, on the device, is raised when this rank's share of the gradients is not finite. */
void zero_check_finite(const struct zero *zero, struct device *device, const float *gradients, double *bad);

/* Of the state that is lent (state_map): */
/* The whole optimizer state comes to rank 0 and stands in the state's entries, until zero_release. All ranks. */
status zero_gather(struct zero *zero, struct state *state, struct comm *comm);
/* Rank 0's whole state, from zero_gather and perhaps loaded over, goes back to the owners, and is released. All ranks.
 */
status zero_scatter(struct zero *zero, struct state *state, struct comm *comm);
void zero_release(struct zero *zero, struct state *state);

#endif
