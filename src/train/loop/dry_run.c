/* The operators of a trainer, in its order. */
#include "train/loop/dry_run.h"

#include "train/loop/trainer.h"

/* Forward and loss; for training also backward. */
static void run_pass(const struct trainer *t, size_t rows, bool is_training) {
    struct pass pass = {.device = t->device,
                        .rows = rows,
                        .is_training = is_training,
                        .draws = {.pass = t->memory.pass_number, .row_stride = 1}};
    struct batch batch = feed_put(t->feed, &(struct batch){.rows = rows}); /* only its addresses */
    const void *config = t->loss_config;
    const struct tensor *output = model_forward(t->model, &pass, batch.inputs);
    if (!is_training) {
        struct row_weights weights = {
            .values = batch.weights, .is_counted = true, .target_size = t->model->target_size};
        t->loss->run(config, &(struct loss_batch){t->device, &t->model->out, output, batch.targets, &weights, rows, 1,
                                                  NULL, &t->memory.results->sums});
        return;
    }
    loss_run(t->loss, config, t->model, output, batch.targets, batch.weights, NULL, rows, 1, &t->memory.results->sums);
    if (t->model->gradient_group_count)
        model_backward_in_groups(t->model, &pass, batch.inputs, NULL, NULL, NULL);
    else
        model_backward(t->model, &pass, batch.inputs, NULL, NULL);
}

static void update(const struct trainer *t) {
    struct params *params = &t->model->params, *buffers = &t->model->buffers;
    const struct device_ops *ops = device_ops(t->device);
    struct device_results *results = t->memory.results;
    ops->check_finite(t->device, buffers->values, buffers->total, &results->nonfinite[NONFINITE_STATISTICS]);
    if (t->averaging.zero) {
        zero_add_squares(t->averaging.zero, params);
        zero_check_finite(t->averaging.zero, params, &results->nonfinite[NONFINITE_GRADIENTS]);
    } else {
        ops->clip_norm(t->device, params->gradients, t->averaging.norm_ranges, t->averaging.ranges.count, 1, 1,
                       &results->norm);
        ops->check_finite(t->device, params->gradients, params->trained, &results->nonfinite[NONFINITE_GRADIENTS]);
    }
    optimizer_step(t->optimizer, params, 1, NULL, NULL, &results->norm.clip);
    ema_update(t->ema, params, 1, &results->norm.clip);
    const float *values = params->own ? params->own : params->values;
    ops->is_finite(t->device, F32(values), params->own ? params->own_count : params->total); /* before a save */
}

status dry_run_training(struct trainer *t, const struct pass_rows *rows) {
    if (device_is_host(t->device)) return OK;
    device_dry_run_begin(t->device);
    for (int i = 0; i < 2; i++) {
        if (rows->training[i]) run_pass(t, rows->training[i], true);
        if (rows->evaluation[i]) run_pass(t, rows->evaluation[i], false);
        if (rows->test[i]) run_pass(t, rows->test[i], false);
    }
    update(t);
    return device_dry_run_end(t->device);
}

status dry_run_forward(struct model *model, struct device *device, const struct loss_type *loss,
                       const void *loss_config, const struct batch *batch) {
    struct pass pass = {.device = device, .rows = batch->rows};
    if (device_is_host(device) || batch->rows == 0) return OK;
    device_dry_run_begin(device);
    const struct tensor *output = model_forward(model, &pass, batch->inputs);
    struct loss_sums *sums = (struct loss_sums *)model->params.values; /* any address: nothing is written */
    struct row_weights weights = {.values = batch->weights, .is_counted = true, .target_size = model->target_size};
    struct loss_batch rows = {device, &model->out, output, batch->targets, &weights, batch->rows, 1, NULL, sums};
    if (loss) loss->run(loss_config, &rows);
    return device_dry_run_end(device);
}
