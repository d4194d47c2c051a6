/* Updates during backward (optimizer.in_backward), on one rank. A gradient is checked, added to the norm and applied
 * while it is in the cache, and is not kept. The loss and running statistics are therefore checked before backward. A
 * gradient that is not finite ends the run after a part of the step was applied; that state is not saved. */
#include <math.h>

#include "train/loop/averaging/averaging.h"
#include "train/loop/micro_batch.h"
#include "train/loop/progress.h"
#include "train/loop/trainer.h"

static void start(struct trainer *t, const struct update *update) {
    t->averaging.in_backward = (struct in_backward){.squares = update->needs_norm ? 0 : NAN};
    optimizer_plan_step(t->optimizer, update->step + 1, progress_rate, t, update->momentum);
}

/* The norm, if needed, is also finite exactly if the gradient is. */
static bool check_gradient(struct trainer *t, const float *gradient, size_t count) {
    const struct device_ops *ops = device_ops(t->device);
    double *squares = &t->averaging.in_backward.squares;
    if (isnan(*squares)) return ops->is_finite(t->device, gradient, count);
    double norm = (double)ops->norm(t->device, gradient, count);
    *squares += norm * norm;
    return isfinite(norm);
}

static void apply_gradient(void *trainer, size_t index, size_t first, size_t count, float *gradient) {
    struct trainer *t = trainer;
    struct params *params = &t->model->params;
    const struct param *p = &params->items[index];
    float limit = (float)t->config->train.clip_grad_value;
    size_t begin = p->offset + first;
    if (t->averaging.in_backward.nonfinite) return;
    if (!check_gradient(t, gradient, count)) {
        t->averaging.in_backward.nonfinite = p->name;
        return;
    }
    if (limit > 0) device_ops(t->device)->optimizers->clamp(t->device, limit, gradient, count);
    optimizer_run_part(t->optimizer, params, begin, begin + count, gradient, &t->memory.results->norm.clip);
}

/* Parameters are not updated if the loss or a running statistic is not finite, or after a gradient that is not. */
static void backward(struct trainer *t, const struct pass *pass, const float *inputs, bool is_last) {
    (void)is_last;
    const struct params *buffers = &t->model->buffers;
    if (!isfinite(t->memory.results->sums.loss)) return;
    if (!device_ops(t->device)->is_finite(t->device, buffers->values, buffers->total)) return;
    model_backward_in_parts(t->model, pass, inputs, &(struct gradient_receiver){apply_gradient, t});
}

static status measure(struct trainer *t, struct update *update) {
    const struct in_backward *in_backward = &t->averaging.in_backward;
    update->grad_norm = sqrt(in_backward->squares);
    if (!in_backward->nonfinite) return OK;
    return status_new(
        STATUS_NOT_FINITE,
        "gradients are not finite in epoch %lld, step %lld (first the gradient of %s); nothing was saved "
        "after it. Without optimizer.in_backward the message names the rows, too. Try a smaller optimizer.lr, and "
        "look for extreme values in the data",
        (long long)update->first.epoch + 1, (long long)update->step + 1, in_backward->nonfinite);
}

const struct averaging averaging_in_backward = {.name = "in_backward",
                                                .keeps_gradients = false,
                                                .start = start,
                                                .run = micro_batches_run,
                                                .backward = backward,
                                                .measure = measure,
                                                .wait = averaging_wait,
                                                .all_reduce_sums = averaging_all_reduce_sums};
