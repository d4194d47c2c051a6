/* The host accesses the state, so these functions map it, except where the caller has done so. */
#include "train/loop/rank_sync.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/files/digest.h"
#include "base/scoped.h"
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

/* ---- the rows of an epoch ---- */

#define PIECE 1024 /* rows that are compared at a time */

/* The first difference of a rank from rank 0. */
struct other_row {
    int64_t index, row, first; /* index: INT64_MAX: none; row: of this rank; first: of rank 0 */
};

/* The rows of rank 0 are compared piece by piece. */
static status find_other_row(struct comm *ranks, const struct row_order *order, size_t length, struct other_row *out) {
    int64_t rows[PIECE];
    for (size_t at = 0; at < length; at += PIECE) {
        size_t count = length - at < PIECE ? length - at : PIECE;
        for (size_t i = 0; i < count; i++) rows[i] = (int64_t)order_at(order, at + i);
        TRY(comm_broadcast(ranks, rows, count, COMM_INT64, 0));
        for (size_t i = 0; i < count && out->index == INT64_MAX; i++)
            if (rows[i] != (int64_t)order_at(order, at + i))
                *out = (struct other_row){(int64_t)(at + i), (int64_t)order_at(order, at + i), rows[i]};
    }
    return OK;
}

static status name_other_row(const struct trainer *t, const struct row_order *order, size_t length, int64_t epoch) {
    struct other_row own = {.index = INT64_MAX};
    struct comm *ranks = loader_own_ranks(t->loader);
    int world = comm_world_size(ranks), other = 0;
    struct other_row *all = calloc((size_t)world, sizeof *all);
    status s = all ? find_other_row(ranks, order, length, &own) : status_memory("the rows of an epoch");
    if (!s) s = comm_all_gather(ranks, &own, sizeof own, COMM_UINT8, all);
    for (int r = 0; r < world && !s; r++)
        if (all[r].index < all[other].index) other = r;
    if (!s)
        s = status_data("sampler.order %s: epoch %lld: index %lld is row %lld on rank %d, but row %lld on rank 0; all "
                        "ranks must draw the same order",
                        t->sampler->order.name, (long long)epoch + 1, (long long)all[other].index,
                        (long long)all[other].row, other, (long long)all[other].first);
    free(all);
    return s;
}

status rank_sync_seek(struct trainer *t, int64_t epoch, size_t batch) {
    const struct row_order *order = loader_own_order(t->loader);
    struct comm *ranks = loader_own_ranks(t->loader);
    TRY(loader_seek(t->loader, epoch, batch));
    if (!order || comm_world_size(ranks) == 1) return OK;
    size_t length = t->sampler->indices->length;
    uint64_t hash = 0;
    for (size_t i = 0; i < length; i++) {
        int64_t row = (int64_t)order_at(order, i);
        hash = hash_add(hash, &row, sizeof row);
    }
    int64_t hashes[2] = {(int64_t)(hash >> 1), -(int64_t)(hash >> 1)}; /* the largest, minus the smallest */
    TRY(status_prefix(comm_all_reduce(ranks, hashes, 2, COMM_INT64, COMM_MAX), "sampler.order %s",
                      t->sampler->order.name)); /* in its group: another rank may still be in a call of the sampler */
    return hashes[0] == -hashes[1] ? OK : name_other_row(t, order, length, epoch);
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
    SCOPED_TEXT advice = {0};
    if (r->has_saved) text_printf(&advice, "remove the checkpoints after step %lld, then ", (long long)r->checked);
    return status_new(STATUS_DIVERGED,
                      "rank %d (host %s): rows %zu to %zu of %s%s (counted from 0%s) have changed in memory between "
                      "step %lld and step %lld. Memory or the program failed; nothing is saved now; %sthe same command "
                      "continues from the newest checkpoint",
                      rank, r->host, r->rows.first, r->rows.last, path ? path : "the dataset",
                      is_list ? " and the files after it" : "", has_files ? " through all files" : "",
                      (long long)r->checked, (long long)t->state->counters.step, text_string(&advice));
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
    if (world > 1 || own.has_changed) gethostname(own.host, sizeof own.host - 1);
    status s = world > 1 ? comm_all_gather(t->comm, &own, sizeof own, COMM_UINT8, all) : OK;
    if (world == 1) *all = own;
    for (size_t r = 0; !s && r < world; r++)
        if (all[r].has_changed) s = rows_have_changed(t, &all[r], (int)r);
    free(all);
    return s;
}
