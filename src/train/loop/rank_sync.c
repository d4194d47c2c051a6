/* The host accesses the state, so these functions map it, except where the caller has done so. */
#include "train/loop/rank_sync.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/stop.h"

#define MAX_ROWS_FRACTION 0.01 /* of the time, for comparing rows in memory */

status rank_sync_verify(struct trainer *t, bool with_buffers) {
    if (comm_world_size(t->comm) == 1) return OK;
    TRY(state_map(t->state));
    status s = agreement_check(t->state, with_buffers, t->comm);
    return status_first(s, state_unmap(t->state, false));
}

static status broadcast_weights(struct trainer *t) {
    struct params *params = &t->model->params;
    TRY(comm_broadcast(t->comm, &t->state->counters, sizeof t->state->counters, COMM_UINT8, 0));
    if (!params->own) TRY(comm_broadcast(t->comm, params->values, params->total, COMM_FLOAT32, 0));
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
    if (t->ema && !params->own) TRY(comm_broadcast(t->comm, t->ema->values, params->total, COMM_FLOAT32, 0));
    if (t->averaging.zero) return zero_scatter(t->averaging.zero, t->state, t->comm);
    for (size_t i = 0; i < t->optimizer->buffer_count; i++)
        TRY(comm_broadcast(t->comm, t->optimizer->buffers[i], t->optimizer->buffer_floats[i], COMM_FLOAT32, 0));
    const struct lbfgs *lbfgs = t->optimizer->lbfgs;
    for (size_t i = 0; i < LBFGS_VECTORS && lbfgs; i++) {
        struct lbfgs_vectors v = lbfgs_vectors(lbfgs, i);
        TRY(comm_broadcast(t->comm, v.values, v.count * lbfgs->size, COMM_FLOAT32, 0));
    }
    return lbfgs ? comm_broadcast(t->comm, lbfgs->numbers, lbfgs->number_count, COMM_FLOAT64, 0) : OK;
}

status rank_sync_buffers(struct trainer *t) {
    struct params *buffers = &t->model->buffers;
    if (!buffers->total || comm_world_size(t->comm) == 1) return OK;
    TRY(device_map(t->device, (void **)&buffers->values));
    TRY(comm_broadcast(t->comm, buffers->values, buffers->total, COMM_FLOAT32, 0));
    return device_unmap(t->device, (void **)&buffers->values, true);
}

status rank_sync_stop_request(struct trainer *t, bool *must_stop) {
    uint8_t has_request = stop_is_requested();
    TRY(comm_all_reduce(t->comm, &has_request, 1, COMM_UINT8, COMM_MAX));
    *must_stop = *must_stop || has_request;
    return OK;
}

/* ---- the rows in memory ---- */

void rank_sync_open_rows(struct trainer *t) {
    t->rows = (struct rows_check){.seconds = dataset_hash_rows(t->dataset), .step = t->state->counters.step};
    t->rows.checked_at = clock_seconds();
}

struct rank_rows {
    bool has_changed, has_saved; /* has_saved: since the last comparison before */
    struct changed_rows rows;
    int64_t checked; /* the step of the last comparison before */
    char host[64];
};

static status rows_have_changed(const struct trainer *t, const struct rank_rows *r, int rank) {
    const struct dataset_config *d = &t->config->dataset;
    const char *path = r->rows.is_validation_file ? d->validation.path : d->path;
    bool is_list = (r->rows.is_validation_file ? d->validation.others : d->others).count > 0;
    bool has_files = is_list || (path && strpbrk(path, "*?[{"));
    struct text advice = {0};
    if (r->has_saved) text_printf(&advice, "remove the checkpoints after step %lld, then ", (long long)r->checked);
    status s =
        status_new(STATUS_DIVERGED,
                   "rank %d (host %s): rows %zu to %zu of %s%s (counted from 0%s) have changed in memory between "
                   "step %lld and step %lld. Memory or the program failed; nothing is saved now; %sthe same command "
                   "continues from the newest checkpoint",
                   rank, r->host, r->rows.first, r->rows.last, path ? path : "the dataset",
                   is_list ? " and the files after it" : "", has_files ? " through all files" : "",
                   (long long)r->checked, (long long)t->state->counters.step, text_string(&advice));
    text_free(&advice);
    return s;
}

/* Each rank decides by its own clock. */
static void compare_rows(struct trainer *t, struct rank_rows *out) {
    double start = clock_seconds(), passed = (start - t->rows.checked_at) * fault_clock();
    bool is_due = t->rows.seconds <= MAX_ROWS_FRACTION * passed;
    if (!is_due) t->rows.has_saved = true;
    if (!is_due || t->rows.seconds == 0) return;
    out->has_saved = t->rows.has_saved;
    out->has_changed = dataset_find_changed(t->dataset, &out->rows);
    out->checked = t->rows.step;
    t->rows.checked_at = clock_seconds();
    t->rows.seconds = t->rows.checked_at - start;
    t->rows.step = t->state->counters.step;
    t->rows.has_saved = false;
}

status rank_sync_verify_rows(struct trainer *t) {
    size_t world = (size_t)comm_world_size(t->comm);
    struct rank_rows own = {0}, *all = calloc(world, sizeof *all);
    if (!all) return status_memory("the hashes of the rows");
    compare_rows(t, &own);
    gethostname(own.host, sizeof own.host - 1);
    status s = world > 1 ? comm_all_gather(t->comm, &own, sizeof own, COMM_UINT8, all) : OK;
    if (world == 1) *all = own;
    for (size_t r = 0; !s && r < world; r++)
        if (all[r].has_changed) s = rows_have_changed(t, &all[r], (int)r);
    free(all);
    return s;
}
