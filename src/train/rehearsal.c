/* What a trainer asks for, in its order, and for `check` what it allocates. */
#include "train/rehearsal.h"

#include "base/buffer.h"
#include "train/parts.h"

/* Forward and loss; of an evaluation, or of training and back. */
static void run_pass(const struct trainer *t, size_t rows, bool is_training) {
    struct pass pass = {.device = t->device,
                        .rows = rows,
                        .is_training = is_training,
                        .draws = {.step = t->memory.pass_number, .row_stride = 1}};
    struct batch batch = feed_put(t->feed, &(struct batch){.rows = rows}); /* where it will be */
    const void *config = t->config->loss.config;
    const float *output = model_forward(t->model, &pass, batch.inputs);
    if (!is_training) {
        t->loss->run(config, t->device, &t->model->out, output, batch.targets, rows, 1, NULL, &t->memory.found->sums);
        return;
    }
    loss_run(t->loss, config, t->model, output, batch.targets, rows, 1, &t->memory.found->sums);
    model_backward(t->model, &pass, batch.inputs, NULL, NULL);
}

static void update(const struct trainer *t) {
    struct params *params = &t->model->params, *buffers = &t->model->buffers;
    const struct device_ops *ops = device_ops(t->device);
    struct found *found = t->memory.found;
    ops->check_finite(t->device, buffers->values, buffers->total, &found->nonfinite[NONFINITE_STATISTICS]);
    ops->clip_norm(t->device, params->gradients, t->averaging.norm_ranges, t->averaging.ranges.count, 1, 1,
                   &found->norm);
    ops->check_finite(t->device, params->gradients, params->trained, &found->nonfinite[NONFINITE_GRADIENTS]);
    optimizer_step(t->optimizer, params, 1, NULL, NULL, 0, &found->norm.clip);
    ema_update(t->ema, params, 1, &found->norm.clip);
    ops->is_finite(t->device, params->values, params->total); /* before a save */
}

status rehearsal_reserve(struct trainer *t, const struct rehearsal_rows *rows) {
    if (device_is_host(t->device)) return OK;
    device_dry_run_begin(t->device);
    for (int i = 0; i < 2; i++) {
        if (rows->training[i]) run_pass(t, rows->training[i], true);
        if (rows->evaluation[i]) run_pass(t, rows->evaluation[i], false);
    }
    update(t);
    return device_dry_run_end(t->device);
}

status rehearsal_reserve_forward(struct model *model, struct device *device, const struct loss_type *loss,
                                 const void *loss_config, const struct batch *batch) {
    struct pass pass = {.device = device, .rows = batch->rows};
    if (device_is_host(device) || batch->rows == 0) return OK;
    device_dry_run_begin(device);
    const float *output = model_forward(model, &pass, batch->inputs);
    struct loss_sums *sums = (struct loss_sums *)model->params.values; /* any address: nothing is written */
    if (loss) loss->run(loss_config, device, &model->out, output, batch->targets, batch->rows, 1, NULL, sums);
    return device_dry_run_end(device);
}

/* ---- check ---- */

/* Of the batches and shards that a rank works on. */
struct share {
    size_t rows, shards; /* rows of a batch on the device; shards of it */
};

static struct share share_of(const struct config *config, size_t batch, const struct rehearsal_rows *rows,
                             int world_size) {
    size_t world = (size_t)world_size, shards = (config->sampler.shards + world - 1) / world, most = 0;
    for (int i = 0; i < 2; i++) {
        if (rows->training[i] > most) most = rows->training[i];
        if (rows->evaluation[i] > most) most = rows->evaluation[i];
    }
    return (struct share){shards ? shards * batch : most, shards};
}

static status allocate(struct trainer *t, const struct dataset_info *info, struct share share, int world_size,
                       void **elastic) {
    const struct config *c = t->config;
    const struct params *params = &t->model->params;
    size_t statistics = t->model->buffers.total * sizeof(float);
    TRY(model_alloc(t->model, t->device, t->batch));
    TRY(feed_create(t->device, info, share.rows, &t->feed));
    TRY(zero_create(&c->dist, params, 0, world_size, &t->averaging.zero));
    TRY(optimizer_create_shard(&c->optimizer, params, t->device, zero_shard(t->averaging.zero), &t->optimizer));
    TRY(ema_create(&c->train.ema, params, t->device, &t->ema));
    TRY(device_alloc(t->device, sizeof *t->memory.found, "the results of a step", (void **)&t->memory.found));
    TRY(device_alloc(t->device, sizeof *t->memory.pass_number, "the number of a pass",
                     (void **)&t->memory.pass_number));
    TRY(device_alloc(t->device, statistics, "the last running statistics", (void **)&t->memory.kept));
    if (share.shards)
        TRY(device_alloc(t->device, statistics + share.shards * sizeof(struct loss_sums), "what shards need", elastic));
    TRY(ranges_create(params, &t->averaging.ranges));
    TRY(buffer_new(t->averaging.ranges.count * sizeof *t->averaging.norm_ranges, "the ranges of the gradients",
                   (void **)&t->averaging.norm_ranges));
    for (size_t i = 0; i < t->averaging.ranges.count; i++) {
        const struct reducer_range *range = &t->averaging.ranges.ranges[i];
        t->averaging.norm_ranges[i] = (struct device_range){range->offset, range->offset + range->count};
    }
    return OK;
}

static status prepare(struct model *model, const struct rehearsal_rows *rows) {
    for (int i = 0; i < 2; i++) {
        TRY(model_prepare(model, rows->training[i], true));
        TRY(model_prepare(model, rows->evaluation[i], false));
    }
    return OK;
}

status rehearsal_run(const struct config *config, struct model *model, const struct dataset_info *info, size_t batch,
                     const struct rehearsal_rows *rows, int world_size, struct device *device, size_t *bytes) {
    struct trainer t = {.config = config,
                        .device = device,
                        .model = model,
                        .loss = loss_type_at((size_t)config->loss.index),
                        .batch = batch};
    void *elastic = NULL;
    status s = allocate(&t, info, share_of(config, batch, rows, world_size), world_size, &elastic);
    if (!s) s = prepare(model, rows);
    if (!s) s = rehearsal_reserve(&t, rows);
    if (!s) *bytes = device_memory_used(device);
    feed_destroy(t.feed);
    optimizer_destroy(t.optimizer);
    zero_destroy(t.averaging.zero);
    ema_destroy(t.ema);
    device_free(device, t.memory.found);
    device_free(device, t.memory.pass_number);
    device_free(device, t.memory.kept);
    device_free(device, elastic);
    ranges_free(&t.averaging.ranges);
    buffer_free(t.averaging.norm_ranges);
    return s;
}
