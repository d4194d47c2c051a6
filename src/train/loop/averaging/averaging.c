/* Chooses the method; functions that several methods share. */
#include "train/loop/averaging/averaging.h"

#include <string.h>

#include "train/loop/progress.h"
#include "train/loop/trainer.h"
#include "train/loop/update.h"

const struct averaging *averaging_choose(const struct trainer *t) {
    const struct averaging_state *a = &t->averaging;
    if (config_updates_in_backward(t->config, comm_world_size(t->comm))) return &averaging_in_backward;
    if (a->elastic) return &averaging_elastic;
    if (a->zero) return a->host_gradients ? &averaging_sharded_on_host : &averaging_sharded;
    return a->host_gradients ? &averaging_on_host : &averaging_on_device;
}

void averaging_backward_alone(struct trainer *t, const struct pass *pass, const float *inputs, bool is_last) {
    (void)is_last;
    model_backward(t->model, pass, inputs, NULL, NULL);
}

/* Checks this rank's shard of the averaged gradients. */
static void check_shard(struct trainer *t) {
    const struct params *params = &t->model->params;
    size_t world = (size_t)comm_world_size(t->comm), rank = (size_t)comm_rank(t->comm);
    size_t begin = params->trained * rank / world, end = params->trained * (rank + 1) / world;
    device_ops(t->device)->check_finite(t->device, params->gradients + begin, end - begin,
                                        &t->memory.results->nonfinite[NONFINITE_GRADIENTS]);
}

/* clip_grad_norm_: the coefficient is min(1, max / (norm + 1e-6)). Without clipping the norm is computed only for the
 * log, on rank 0. It is finite exactly if the gradients are, so they need no other check. The gradients are multiplied
 * by the loss scale. */
status averaging_measure(struct trainer *t, struct update *update) {
    float max = (float)t->config->train.clip_grad_norm;
    if (!update->needs_norm) {
        check_shard(t);
        return OK;
    }
    update->has_norm = max > 0 || t->outputs.metrics;
    if (update->has_norm)
        device_ops(t->device)->clip_norm(t->device, t->model->params.gradients, t->averaging.norm_ranges,
                                         t->averaging.ranges.count, max, update->loss_scale, &t->memory.results->norm);
    return OK;
}

status averaging_wait(struct trainer *t, void *stream) { return reducer_wait(t->averaging.reducer, stream); }

status averaging_all_reduce_sums(struct trainer *t, struct loss_sums *sums, double *counts, size_t count) {
    enum { SUMS = sizeof *sums / sizeof(double) };
    double values[SUMS + ELASTIC_MAX_COUNTS];
    memcpy(values, sums, sizeof *sums);
    memcpy(values + SUMS, counts, count * sizeof *counts);
    TRY(comm_all_reduce(t->comm, values, SUMS + count, COMM_FLOAT64, COMM_SUM));
    memcpy(sums, values, sizeof *sums);
    memcpy(counts, values + SUMS, count * sizeof *counts);
    return OK;
}

status averaging_update(struct trainer *t, const struct update *update) {
    optimizer_step(t->optimizer, &t->model->params, update->step + 1, progress_rate, t, update->momentum,
                   &t->memory.results->norm.clip);
    return OK;
}
