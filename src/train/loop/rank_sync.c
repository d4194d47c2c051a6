/* The host accesses the state, so these functions map it, except where the caller has done so. */
#include "train/loop/rank_sync.h"

status rank_sync_verify(struct trainer *t, bool with_buffers) {
    if (comm_world_size(t->comm) == 1) return OK;
    TRY(state_map(t->state));
    status s = agreement_check(t->state, with_buffers, t->comm);
    return status_first(s, state_unmap(t->state, false));
}

static status broadcast_weights(struct trainer *t) {
    struct params *params = &t->model->params;
    TRY(comm_broadcast(t->comm, &t->state->counters, sizeof t->state->counters, COMM_UINT8, 0));
    TRY(comm_broadcast(t->comm, params->values, params->total, COMM_FLOAT32, 0));
    return rank_sync_buffers(t);
}

status rank_sync_start(struct trainer *t) {
    if (comm_world_size(t->comm) == 1) return OK;
    TRY(model_map(t->model));
    status s = broadcast_weights(t);
    return status_first(s, model_unmap(t->model, true));
}

status rank_sync_state(struct trainer *t) {
    const struct params *params = &t->model->params;
    TRY(broadcast_weights(t));
    if (t->ema) TRY(comm_broadcast(t->comm, t->ema->values, params->total, COMM_FLOAT32, 0));
    if (t->averaging.zero) return zero_scatter(t->averaging.zero, t->state, t->comm);
    for (size_t i = 0; i < t->optimizer->buffer_count; i++)
        TRY(comm_broadcast(t->comm, t->optimizer->buffers[i], params->trained, COMM_FLOAT32, 0));
    return OK;
}

status rank_sync_buffers(struct trainer *t) {
    struct params *buffers = &t->model->buffers;
    if (!buffers->total || comm_world_size(t->comm) == 1) return OK;
    TRY(device_map(t->device, (void **)&buffers->values));
    TRY(comm_broadcast(t->comm, buffers->values, buffers->total, COMM_FLOAT32, 0));
    return device_unmap(t->device, (void **)&buffers->values, true);
}

status rank_sync_stop_request(struct trainer *t, bool *must_stop) {
    uint8_t has_request = t->stop && *t->stop;
    TRY(comm_all_reduce(t->comm, &has_request, 1, COMM_UINT8, COMM_MAX));
    *must_stop = *must_stop || has_request;
    return OK;
}
