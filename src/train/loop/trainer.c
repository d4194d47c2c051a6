/* The parts that both a run and `check` create, and the recordings. */
#include "train/loop/trainer.h"

#include "base/buffer.h"
#include "dist/comm/comm_gpu.h"
#include "train/plan/plan.h"

/* The random numbers of a pass are a function of its position in the run. */
struct pass trainer_pass(struct trainer *t, size_t rows, bool is_training) {
    const struct counters *c = &t->state->counters;
    uint64_t number = (uint64_t)(c->epoch * (int64_t)loader_batches(t->loader) + c->batch);
    device_upload(t->device, t->memory.pass_number, &number, sizeof number);
    return (struct pass){.device = t->device,
                         .rows = rows,
                         .is_training = is_training,
                         .draws = {.seed = (uint64_t)t->config->seed,
                                   .pass = t->memory.pass_number,
                                   .first_row = (uint64_t)comm_rank(t->comm),
                                   .row_stride = (uint64_t)comm_world_size(t->comm)}};
}

/* Whether the loss gathers rows of other ranks, in evaluations always through the host. */
static bool gathers_rows(const struct trainer *t) {
    return comm_world_size(t->comm) > 1 && loss_compares_rows(t->loss, t->loss_config);
}

/* A pass without work on the host can be recorded, and shards of batches have no such passes. NCCL calls must be
 * recorded on all ranks or on none, so no rank may be without rows. */
static bool is_recordable(const struct trainer *t) {
    if (t->config->sampler.shards) return false;
    if (comm_gpu(t->comm) ? t->config->sampler.uneven : gathers_rows(t)) return false;
    status shared = comm_world_size(t->comm) > 1 ? model_check_independent(t->model, "a CUDA graph") : OK;
    bool is_independent = !shared;
    status_free(shared);
    return t->config->train.cuda_graph && is_independent;
}

/* Allocates the memory of all passes, so that the loop allocates nothing. */
static status prepare_model(struct model *model, const struct pass_rows *rows) {
    for (int i = 0; i < 2; i++) TRY(model_prepare(model, rows->training[i], true));
    for (int i = 0; i < 2; i++) TRY(model_prepare(model, rows->evaluation[i], false));
    return OK;
}

/* The norm is computed for each range of the gradients separately. */
static status create_ranges(struct averaging_state *a, const struct params *params) {
    TRY(ranges_create(params, &a->ranges));
    TRY(buffer_new(a->ranges.count * sizeof *a->norm_ranges, "the ranges of the gradients", (void **)&a->norm_ranges));
    for (size_t i = 0; i < a->ranges.count; i++) {
        const struct reducer_range *range = &a->ranges.ranges[i];
        a->norm_ranges[i] = (struct device_range){range->offset, range->offset + range->count};
    }
    return OK;
}

static status create_step_memory(struct trainer *t) {
    TRY(device_alloc(t->device, sizeof *t->memory.results, "the results of a step", (void **)&t->memory.results));
    TRY(device_alloc(t->device, t->model->buffers.total * sizeof *t->memory.saved_buffers,
                     "the saved running statistics", (void **)&t->memory.saved_buffers));
    return device_alloc(t->device, sizeof *t->memory.pass_number, "the number of a pass",
                        (void **)&t->memory.pass_number);
}

status trainer_create(struct trainer *t, const struct plan *plan) {
    const struct config *c = plan->config;
    const struct params *params = &plan->model->params;
    t->config = c;
    t->device = plan->device;
    t->dataset = plan->dataset;
    t->sampler = &plan->sampler;
    t->model = plan->model;
    t->loss = plan->loss;
    t->loss_config = plan->loss_config;
    t->batch = plan->batch;
    TRY(model_alloc(t->model, t->device, t->batch));
    if (plan->objective) TRY(objective_alloc(plan->objective, t->device, t->batch));
    TRY(prepare_model(t->model, &plan->rows));
    TRY(loss_prepare(t->loss, t->loss_config, t->device, &t->model->out, plan->info.target_size, t->batch,
                     (size_t)plan->env.world_size));
    TRY(zero_create(&c->dist, params, t->device, plan->env.rank, plan->env.world_size, &t->averaging.zero));
    zero_attach(t->averaging.zero, t->model);
    TRY(optimizer_create_shard(&c->optimizer, params, t->device, zero_shard(t->averaging.zero), &t->optimizer));
    TRY(ema_create(&c->train.ema, params, t->device, &t->ema));
    TRY(feed_create(t->device, &plan->info, plan->rows.max, &t->feed));
    TRY(create_ranges(&t->averaging, params));
    return create_step_memory(t);
}

void trainer_destroy(struct trainer *t) {
    if (!t->device) return;
    feed_destroy(t->feed);
    optimizer_destroy(t->optimizer);
    zero_destroy(t->averaging.zero);
    ema_destroy(t->ema);
    ranges_free(&t->averaging.ranges);
    buffer_free(t->averaging.norm_ranges);
    device_free(t->device, t->memory.results);
    device_free(t->device, t->memory.saved_buffers);
    device_free(t->device, t->memory.pass_number);
}

status trainer_open_recordings(struct trainer *t, struct log *log) {
    feed_pin_loader(t->feed, t->loader);
    feed_pin_loader(t->feed, t->validation);
    TRY(recordings_create(t->device, t->comm, is_recordable(t), log, &t->recordings));
    bool is_alone =
        !gathers_rows(t) && !zero_shards_values(t->averaging.zero); /* ranks have other numbers of batches */
    return recordings_create(t->device, NULL, t->config->train.cuda_graph && is_alone, NULL, &t->evaluations);
}

void trainer_close_recordings(struct trainer *t) {
    recordings_destroy(t->recordings);
    recordings_destroy(t->evaluations);
}
