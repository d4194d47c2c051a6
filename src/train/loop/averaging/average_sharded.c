/* The optimizer is sharded over the ranks (ZeRO): a rank has only its shard of the averaged gradients, checks and
 * applies it, and gets the other parameters from the other ranks. */
#include <math.h>

#include "train/loop/averaging/averaging.h"
#include "train/loop/micro_batch.h"
#include "train/loop/trainer.h"
#include "train/loop/update.h"

/* The norm of all gradients, from the shards of the ranks, and the clipping factor, computed as device_ops' clip_norm.
 */
static status measure_norm(struct trainer *t, const struct update *update) {
    struct params *params = &t->model->params;
    float max = (float)t->config->train.clip_grad_norm, scale = update->loss_scale;
    double squares;
    TRY(device_map(t->device, (void **)&params->gradients));
    TRY(zero_squared_norm(t->averaging.zero, params, t->comm, &squares));
    TRY(device_unmap(t->device, (void **)&params->gradients, false));
    struct clip_norm norm = {.norm = (float)(sqrt(squares) / (double)scale), .clip = 1 / scale};
    float coefficient = max / (norm.norm + 1e-6f);
    if (max > 0 && coefficient < 1) norm.clip *= coefficient;
    device_upload(t->device, &t->memory.results->norm, &norm, sizeof norm);
    return OK;
}

static status measure(struct trainer *t, struct update *update) {
    update->has_norm = update->needs_norm;
    if (update->has_norm) return measure_norm(t, update);
    zero_check_finite(t->averaging.zero, t->device, t->model->params.gradients,
                      &t->memory.results->nonfinite[NONFINITE_GRADIENTS]);
    return OK;
}

status averaging_update_shards(struct trainer *t, const struct update *update) {
    TRY(averaging_update(t, update));
    return zero_all_gather(t->averaging.zero, &t->model->params, t->device, t->comm);
}

const struct averaging averaging_sharded = {.name = "sharded",
                                            .keeps_gradients = true,
                                            .run = micro_batches_run,
                                            .backward = averaging_backward,
                                            .finish_backward = averaging_finish_backward,
                                            .contribute_zeros = averaging_reduce_all,
                                            .measure = measure,
                                            .wait = averaging_wait,
                                            .all_reduce_sums = averaging_all_reduce_sums,
                                            .update = averaging_update_shards};

const struct averaging averaging_sharded_on_host = {.name = "sharded_on_host",
                                                    .keeps_gradients = true,
                                                    .run = averaging_run_on_host,
                                                    .backward = averaging_backward_alone,
                                                    .measure = measure,
                                                    .wait = averaging_wait,
                                                    .all_reduce_sums = averaging_all_reduce_sums,
                                                    .update = averaging_update_shards};
