/* What run.c does not create: memory for the results of a step, and recordings. */
#include "train/parts.h"

#include "base/buffer.h"
#include "dist/comm/comm_gpu.h"

/* The random numbers of a pass are named by its place in the run, not drawn in order. */
struct pass parts_pass(struct trainer *t, size_t rows, bool is_training) {
    const struct counters *c = &t->state->counters;
    uint64_t number = (uint64_t)(c->epoch * (int64_t)loader_batches(t->loader) + c->batch);
    device_upload(t->device, t->memory.pass_number, &number, sizeof number);
    return (struct pass){.device = t->device,
                         .rows = rows,
                         .is_training = is_training,
                         .draws = {.seed = (uint64_t)t->config->seed,
                                   .step = t->memory.pass_number,
                                   .first_row = (uint64_t)comm_rank(t->comm),
                                   .row_stride = (uint64_t)comm_world_size(t->comm)}};
}

/* A pass that the host has no part in. NCCL wants its calls recorded on all ranks or on none, so none may be without
 * rows. */
static bool is_recordable(const struct trainer *t) {
    if (comm_gpu(t->comm) && t->config->sampler.uneven) return false;
    status apart = comm_world_size(t->comm) > 1 ? model_check_independent(t->model, "a CUDA graph") : OK;
    bool is_apart = !apart;
    status_free(apart);
    return t->config->train.cuda_graph && is_apart;
}

status parts_alloc(struct trainer *t, size_t rows, struct log *log) {
    size_t count = t->averaging.ranges.count;
    TRY(feed_create(t->device, dataset_info(t->dataset), rows, &t->feed));
    feed_expect(t->feed, t->loader);
    feed_expect(t->feed, t->validation);
    TRY(device_alloc(t->device, sizeof *t->memory.found, "the results of a step", (void **)&t->memory.found));
    TRY(device_alloc(t->device, t->model->buffers.total * sizeof *t->memory.kept, "the last running statistics",
                     (void **)&t->memory.kept));
    TRY(device_alloc(t->device, sizeof *t->memory.pass_number, "the number of a pass",
                     (void **)&t->memory.pass_number));
    TRY(buffer_new(count * sizeof *t->averaging.norm_ranges, "the ranges of the gradients",
                   (void **)&t->averaging.norm_ranges));
    for (size_t i = 0; i < count; i++) {
        const struct reducer_range *range = &t->averaging.ranges.ranges[i];
        t->averaging.norm_ranges[i] = (struct device_range){range->offset, range->offset + range->count};
    }
    TRY(recordings_create(t->device, t->comm, is_recordable(t), log, &t->recordings));
    return recordings_create(t->device, NULL, t->config->train.cuda_graph, NULL, &t->evaluations);
}

void parts_free(struct trainer *t) {
    recordings_destroy(t->recordings);
    recordings_destroy(t->evaluations);
    feed_destroy(t->feed);
    device_free(t->device, t->memory.found);
    device_free(t->device, t->memory.kept);
    device_free(t->device, t->memory.pass_number);
    buffer_free(t->averaging.norm_ranges);
}
