/* Enqueues operators on the device's stream; nothing here waits for it. */
#include "train/loop/device_update.h"

#include "dist/comm/comm_gpu.h"
#include "train/loop/trainer.h"

void device_update_check(struct trainer *t) {
    const struct device_ops *ops = device_ops(t->device);
    const struct params *buffers = &t->model->buffers;
    ops->check_finite(t->device, buffers->values, buffers->total, &t->memory.results->nonfinite[NONFINITE_STATISTICS]);
    if (comm_gpu(t->comm))
        ops->propagate_nonfinite(t->device, &t->memory.results->sums.loss,
                                 &t->memory.results->nonfinite[NONFINITE_STATISTICS], t->model->params.gradients);
}

void device_update_run(struct trainer *t, bool has_norm, float loss_scale) {
    struct params *params = &t->model->params, *buffers = &t->model->buffers;
    const struct device_ops *ops = device_ops(t->device);
    const struct train_config *c = &t->config->train;
    struct device_results *results = t->memory.results;
    float limit = (float)c->clip_grad_value * loss_scale;
    bool checks_last = !has_norm && limit <= 0; /* clamp hides infinite gradients */
    if (has_norm)
        ops->clip_norm(t->device, params->gradients, t->averaging.norm_ranges, t->averaging.ranges.count,
                       (float)c->clip_grad_norm, loss_scale, &results->norm);
    else if (!checks_last)
        ops->check_finite(t->device, params->gradients, params->trained, &results->nonfinite[NONFINITE_GRADIENTS]);
    if (limit > 0) ops->optimizers->clamp(t->device, limit, params->gradients, params->trained);
    ops->skip_if_nonfinite(t->device, params->gradients, checks_last ? params->trained : 0, &results->sums.loss,
                           &results->norm.norm, &results->nonfinite[NONFINITE_GRADIENTS], 2, &results->found_inf,
                           &results->norm.clip);
    optimizer_run_step(t->optimizer, params, &results->norm.clip);
    ema_update(t->ema, params, t->state->counters.step + 1, &results->norm.clip);
    if (buffers->total)
        ops->optimizers->save_or_restore(t->device, &results->norm.clip, buffers->values, t->memory.saved_buffers,
                                         buffers->total);
}
