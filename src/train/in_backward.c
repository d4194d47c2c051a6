/* One call of the model; the optimizer is behind it. */
#include "train/in_backward.h"

#include "train/optimizer_groups.h"
#include "train/trainer.h"

bool in_backward_applies(const struct config *config, int world_size) {
    return world_size == 1 && optimizer_is_in_backward(&config->optimizer);
}

void in_backward_start(struct trainer *t, bool wants_norm) {
    t->in_backward.squares = wants_norm ? 0 : NAN;
    t->in_backward.bad = NULL;
}

/* The norm, where it is asked for, shows as well whether all is finite. */
static bool is_good(struct trainer *t, const float *gradient, size_t count) {
    const struct device_ops *ops = device_ops(t->device);
    double *squares = &t->in_backward.squares;
    if (isnan(*squares)) return ops->is_finite(t->device, gradient, count);
    double norm = (double)ops->norm(t->device, gradient, count);
    *squares += norm * norm;
    return isfinite(norm);
}

static void take(void *trainer, size_t index, size_t first, size_t count, float *gradient) {
    struct trainer *t = trainer;
    struct params *params = &t->model->params;
    const struct param *p = &params->items[index];
    float limit = (float)t->config->train.clip_grad_value;
    size_t begin = p->offset + first;
    if (t->in_backward.bad) return;
    if (limit > 0) device_ops(t->device)->optimizers->clamp(t->device, limit, gradient, count);
    if (is_good(t, gradient, count))
        optimizer_run_part(t->optimizer, params, begin, begin + count, gradient, &t->found->norm.clip);
    else
        t->in_backward.bad = p->name;
}

void in_backward_run(struct trainer *t, const struct pass *pass, const float *inputs) {
    const struct params *buffers = &t->model->buffers;
    if (!isfinite(t->found->sums.loss)) return;
    if (!device_ops(t->device)->is_finite(t->device, buffers->values, buffers->total)) return;
    model_backward_in_parts(t->model, pass, inputs, &(struct gradient_parts){take, t});
}

status in_backward_failure(const struct trainer *t) {
    const struct counters *c = &t->state->counters;
    return status_new(
        STATUS_NOT_FINITE,
        "gradients are not finite in epoch %lld, step %lld (first the gradient of %s); nothing was saved "
        "after it. Without optimizer.in_backward the rows are named, too. Try a smaller optimizer.lr, and "
        "look for extreme values in the data",
        (long long)t->last_group.epoch + 1, (long long)c->step + 1, t->in_backward.bad);
}
