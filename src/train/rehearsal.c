/* What a trainer allocates and asks for, in its order. */
#include "train/rehearsal.h"

#include <string.h>

#include "base/buffer.h"
#include "train/ema.h"
#include "train/feed.h"
#include "train/in_backward.h"
#include "train/ranges.h"
#include "train/trainer.h"
#include "train/zero.h"

struct rehearsal {
    const struct config *config;
    const struct dataset_info *info;
    struct device *device;
    struct model *model;
    struct feed *feed;
    struct zero *zero;
    struct optimizer *optimizer;
    struct ema *ema;
    struct found *found;
    uint64_t *number; /* of the pass */
    float *kept;
    float *inputs; /* of the host: zeros, for both */
    struct ranges ranges;
    struct device_range *norm_ranges;
};

static status allocate(struct rehearsal *r, size_t batch, size_t rows, int world_size) {
    const struct config *c = r->config;
    const struct params *params = &r->model->params;
    TRY(model_alloc(r->model, r->device, batch));
    TRY(feed_create(r->device, r->info, rows, &r->feed));
    TRY(zero_create(&c->dist, params, 0, world_size, &r->zero));
    TRY(optimizer_create_shard(&c->optimizer, params, r->device, zero_shard(r->zero), &r->optimizer));
    TRY(ema_create(&c->train.ema, params, r->device, &r->ema));
    TRY(device_alloc(r->device, sizeof *r->found, "the results of a step", (void **)&r->found));
    TRY(device_alloc(r->device, sizeof *r->number, "the number of a pass", (void **)&r->number));
    TRY(device_alloc(r->device, r->model->buffers.total * sizeof *r->kept, "the last running statistics",
                     (void **)&r->kept));
    TRY(buffer_new(feed_memory(r->info, rows), "a batch", (void **)&r->inputs));
    TRY(ranges_create(params, &r->ranges));
    TRY(buffer_new(r->ranges.count * sizeof *r->norm_ranges, "the ranges of the gradients", (void **)&r->norm_ranges));
    for (size_t i = 0; i < r->ranges.count; i++) {
        const struct reducer_range *range = &r->ranges.ranges[i];
        r->norm_ranges[i] = (struct device_range){range->offset, range->offset + range->count};
    }
    return OK;
}

/* Forward and loss; of an evaluation, or of training and back. */
static void run_pass(const struct rehearsal *r, const struct batch *batch, bool is_training) {
    const struct loss_type *loss = loss_type_at((size_t)r->config->loss.index);
    struct pass pass = {.device = r->device,
                        .rows = batch->rows,
                        .is_training = is_training,
                        .draws = {.step = r->number, .row_stride = 1}};
    const float *output = model_forward(r->model, &pass, batch->inputs);
    const void *config = r->config->loss.config;
    if (!is_training) {
        loss->run(config, r->device, &r->model->out, output, batch->targets, batch->rows, 1, NULL, &r->found->sums);
        return;
    }
    loss_run(loss, config, r->model, output, batch->targets, batch->rows, 1, &r->found->sums);
    model_backward(r->model, &pass, batch->inputs, NULL, NULL);
}

static void update(const struct rehearsal *r) {
    struct params *params = &r->model->params, *buffers = &r->model->buffers;
    const struct device_ops *ops = device_ops(r->device);
    struct found *found = r->found;
    ops->note_bad(r->device, buffers->values, buffers->total, &found->bad[BAD_STATISTICS]);
    ops->clip_norm(r->device, params->gradients, r->norm_ranges, r->ranges.count, 1, 1, &found->norm);
    ops->note_bad(r->device, params->gradients, params->trained, &found->bad[BAD_GRADIENTS]);
    optimizer_step(r->optimizer, params, 1, NULL, NULL, 0, &found->norm.clip);
    ema_update(r->ema, params, 1, &found->norm.clip);
}

/* A run would end so, too, but in its first step. */
static status told_as_too_little(status s) {
    if (!s || !strstr(status_message(s), "out of memory")) return s;
    status told = status_new(
        STATUS_USAGE, "the run does not fit on the GPU: %s; use a smaller sampler.batch_size, or a smaller model",
        status_message(s));
    status_free(s);
    return told;
}

static status rehearse(struct rehearsal *r, size_t batch, size_t rows, int world_size, size_t *bytes) {
    TRY(allocate(r, batch, rows, world_size));
    TRY(model_prepare(r->model, rows, true));
    TRY(model_prepare(r->model, rows, false));
    struct batch fed = feed_put(r->feed, &(struct batch){.rows = rows, .inputs = r->inputs, .targets = r->inputs});
    run_pass(r, &fed, true);
    update(r);
    run_pass(r, &fed, false);
    device_ops(r->device)->is_finite(r->device, r->model->params.values, r->model->params.total);
    run_pass(r, &fed, true); /* what was needed once has its place by now */
    TRY(told_as_too_little(device_wait(r->device)));
    *bytes = device_taken(r->device);
    return OK;
}

status rehearsal_run(const struct config *config, struct model *model, const struct dataset_info *info, size_t batch,
                     size_t rows, int world_size, struct device *device, size_t *bytes) {
    struct rehearsal r = {.config = config, .info = info, .device = device, .model = model};
    status s = rehearse(&r, batch, rows, world_size, bytes);
    feed_destroy(r.feed);
    optimizer_destroy(r.optimizer);
    zero_destroy(r.zero);
    ema_destroy(r.ema);
    device_free(device, r.found);
    device_free(device, r.number);
    device_free(device, r.kept);
    ranges_free(&r.ranges);
    buffer_free(r.inputs);
    buffer_free(r.norm_ranges);
    return s;
}
