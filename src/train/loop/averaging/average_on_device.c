/* Gradients are averaged in place, in host memory or by NCCL in that of GPUs. In the last micro-batch of an update each
 * gradient is passed to the reducer as soon as it is complete. */
#include "dist/comm/comm_gpu.h"
#include "train/loop/averaging/averaging.h"
#include "train/loop/micro_batch.h"
#include "train/loop/trainer.h"

static bool has_device_failed(const struct trainer *t) {
    status failure = device_status(t->device);
    bool has_failed = failure != OK;
    status_free(failure);
    return has_failed;
}

/* After a failed operator gradients are not sent, because they are incomplete. */
static void gradient_is_ready(void *trainer, size_t param) {
    struct trainer *t = trainer;
    if (!has_device_failed(t)) reducer_ready(t->averaging.reducer, t->averaging.ranges.index_of[param]);
}

void averaging_backward(struct trainer *t, const struct pass *pass, const float *inputs, bool is_last) {
    if (is_last) reducer_start(t->averaging.reducer);
    model_backward(t->model, pass, inputs, is_last ? gradient_is_ready : NULL, t);
}

status averaging_finish_backward(struct trainer *t) {
    TRY(device_status(t->device));
    return reducer_finish(t->averaging.reducer);
}

status averaging_reduce_all(struct trainer *t) {
    reducer_start(t->averaging.reducer);
    for (size_t i = t->averaging.ranges.count; i-- > 0;) reducer_ready(t->averaging.reducer, i);
    return reducer_finish(t->averaging.reducer);
}

static bool can_update_on_device(const struct trainer *t) { return comm_world_size(t->comm) == 1 || comm_gpu(t->comm); }

const struct averaging averaging_on_device = {.name = "on_device",
                                              .keeps_gradients = true,
                                              .run = micro_batches_run,
                                              .backward = averaging_backward,
                                              .finish_backward = averaging_finish_backward,
                                              .contribute_zeros = averaging_reduce_all,
                                              .measure = averaging_measure,
                                              .wait = averaging_wait,
                                              .all_reduce_sums = averaging_all_reduce_sums,
                                              .update = averaging_update,
                                              .can_update_on_device = can_update_on_device};
