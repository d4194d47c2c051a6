/* zero: each rank has only the optimizer's state of its shard of the parameters, as PyTorch's ZeroRedundancyOptimizer
 * and stage 1 of DeepSpeed's ZeRO (dist.zero_stage: 1). Gradients are reduce-scattered bucket by bucket during
 * backward, each rank updates its shard, and the parameters are all-gathered. For a checkpoint the state is gathered on
 * rank 0, so a file does not depend on the number of ranks. With stage 2 a rank keeps the averaged gradients of its
 * shard only, and buckets share memory (FSDP's SHARD_GRAD_OP). With stage 3 the same holds for the parameters, which
 * passes gather bucket by bucket (FSDP's FULL_SHARD; model_gather_values); after the update nothing is gathered. All
 * functions accept NULL: no sharding. */
#pragma once

#include "dist/comm/comm.h"
#include "dist/dist_config.h"
#include "dist/reducer.h"
#include "model/model.h"
#include "optim/optimizer.h"
#include "train/state/state.h"

/* The ranges of the gradients that are averaged, those of parameters that are not frozen, for the reducer: ranges
 * (count) are the [count] trained parameters in order; index_of (params->count): a parameter's range, SIZE_MAX when it
 * is frozen. */
struct ranges {
    struct reducer_range *ranges;
    size_t count;
    size_t *index_of;
};
status ranges_create(const struct params *params, struct ranges *out);
void ranges_free(struct ranges *ranges);

struct zero;

/* *out is NULL without dist.zero_stage, or for a single rank. */
status zero_create(const struct dist_config *config, const struct params *params, struct device *device, int rank,
                   int world_size, struct zero **out);

/* Whether ranks keep the gradients of their shard only. */
bool zero_shards_gradients(const struct dist_config *config, int world_size);
/* With it: gives the gradients of the buckets their memory (model_group_gradients), and with stage 3 the values. */
status zero_group_gradients(const struct dist_config *config, bool is_on_gpu, struct model *model);

/* With stage 3. After model_alloc: passes gather the parameters, whose initial values this rank keeps its shard of. */
void zero_attach(struct zero *zero, struct model *model);
/* From now on values are gathered over [comm], on GPUs by NCCL. Before the first pass; a dry run may come before. All
 * ranks. */
status zero_open(struct zero *zero, struct comm *comm);
/* The failure of a gather since the last call, which passes ignore. */
status zero_take_failure(struct zero *zero);
/* The same, after the host has waited for gathers in the memory of GPUs, whose results are wrong if a rank was lost. */
status zero_wait(struct zero *zero);

/* With stage 3, and else nothing: gathers the parameters on rank 0, until zero_release, and scatters them again. All
 * ranks. */
status zero_gather_params(struct zero *zero, struct state *state, struct comm *comm);
status zero_scatter_params(struct zero *zero, struct state *state, struct comm *comm);
/* With stage 3, on rank 0 after zero_gather: until zero_hide the parameters of the model are the gathered ones, for
 * code that reads or writes all of them; no pass in between. */
void zero_expose(struct zero *zero, struct params *params);
void zero_hide(struct zero *zero, struct params *params);

/* With stage 3 and a mapped model: *hash on rank 0 is state_hash_floats of all parameters, of which rank 0 has one
 * bucket at a time. All ranks. */
status zero_hash_params(struct zero *zero, const struct params *params, struct comm *comm, uint64_t *hash);
/* *name: a parameter that is not finite on any rank, the same on all; NULL: none. All ranks. */
status zero_nonfinite_value(const struct zero *zero, const struct params *params, struct device *device,
                            struct comm *comm, const char **name);
/* Whether ranks keep the parameters of their shard only. */
bool zero_shards_values(const struct zero *zero);
/* The averaged gradients of this rank's shard (zero_shard's total), on the device; NULL: all gradients are kept. */
float *zero_own_gradients(const struct zero *zero);
/* The name of a parameter, of those in this rank's shard, whose averaged gradient is not finite; NULL: none. */
const char *zero_nonfinite_gradient(const struct zero *zero, const struct params *params, struct device *device);
void zero_destroy(struct zero *zero);

/* What this rank's optimizer updates; NULL: everything. */
const struct optimizer_shard *zero_shard(const struct zero *zero);

/* Bytes of optimizer state on rank 0, which has the maximum; [full]: bytes without sharding. */
size_t zero_memory(const struct dist_config *config, const struct params *params, int world_size, size_t full);
/* Bytes of zero_own_gradients on rank 0. */
size_t zero_gradient_memory(const struct dist_config *config, const struct params *params, int world_size);

/* After the update: all-gathers the parameters. All ranks. */
status zero_all_gather(struct zero *zero, struct params *params, struct device *device, struct comm *comm);

/* The same for values (params->trained) in the host's memory, of which each rank has its shard. All ranks. */
status zero_all_gather_array(struct zero *zero, float *values, struct comm *comm);
/* The same from the shards of the ranks, [own] (zero_shard's total), which the host can access; others than rank 0 get
 * nothing. All ranks. */
status zero_gather_array(struct zero *zero, float *own, float *values, struct comm *comm);

/* Adds the squares of this rank's gradients, for zero_squared_norm. Waits for the device. */
void zero_add_squares(struct zero *zero, const struct params *params);
/* The squared norm of the gradients from the shards of the ranks; by parameter, as PyTorch. Waits for the device. All
 * ranks. */
status zero_squared_norm(struct zero *zero, const struct params *params, struct comm *comm, double *squares);
/* Sets *bad, on the device, when this rank's shard of the gradients is not finite. */
void zero_check_finite(const struct zero *zero, const struct params *params, double *bad);

/* The following need a mapped state (state_map). */
/* Gathers the optimizer state, with stage 3 also the parameters and their average, on rank 0, into the entries of
 * [state], until zero_release. All ranks. */
status zero_gather(struct zero *zero, struct state *state, struct comm *comm);
/* Scatters the state that zero_gather gathered on rank 0, and which may have been loaded since, and releases it. All
 * ranks. */
status zero_scatter(struct zero *zero, struct state *state, struct comm *comm);
void zero_release(struct zero *zero, struct state *state);
