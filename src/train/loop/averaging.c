/* The rows, each with its hooks; what several rows share is in front. */
#include "train/loop/averaging.h"

#include <math.h>

#include "dist/comm/comm_gpu.h"

/* Checks this rank's part of the averaged gradients. */
static void check_part(struct trainer *t) {
    const struct params *params = &t->model->params;
    size_t world = (size_t)comm_world_size(t->comm), rank = (size_t)comm_rank(t->comm);
    size_t begin = params->trained * rank / world, end = params->trained * (rank + 1) / world;
    device_ops(t->device)->check_finite(t->device, params->gradients + begin, end - begin,
                                        &t->memory.results->nonfinite[NONFINITE_GRADIENTS]);
}

/* clip_grad_norm_: the coefficient is min(1, max / (norm + 1e-6)). Without clipping the norm is computed only for the
 * log, where there is one. It is finite exactly if the gradients are; without it each rank checks its part of them. The
 * gradients are multiplied by the loss scale. */
static status measure(struct trainer *t, struct update *update) {
    float max = (float)t->config->train.clip_grad_norm;
    update->has_norm = update->needs_norm && (max > 0 || t->outputs.metrics);
    if (update->has_norm)
        device_ops(t->device)->clip_norm(t->device, t->model->params.gradients, t->averaging.norm_ranges,
                                         t->averaging.ranges.count, max, update->loss_scale, &t->memory.results->norm);
    else
        check_part(t);
    return OK;
}

/* ---- one rank: its gradients are the average ---- */

static status check_device(struct trainer *t, const struct batch_piece *piece) {
    (void)piece;
    return device_status(t->device);
}

static bool always(const struct trainer *t) {
    (void)t;
    return true;
}

static const struct averaging_hooks alone = {
    .keeps_gradients = true, .piece_done = check_device, .measure = measure, .decides_alone = always};

/* ---- on the device: in place, in host memory or by NCCL in that of GPUs ---- */

static void start_reducer(struct trainer *t, const struct update *update, const struct batch_piece *piece) {
    (void)update, (void)piece;
    reducer_start(t->averaging.reducer);
}

static bool has_device_failed(const struct trainer *t) {
    status failure = device_status(t->device);
    bool has_failed = failure != OK;
    status_free(failure);
    return has_failed;
}

/* After a failed operator gradients are not sent, because they are incomplete. */
static void send_gradient(struct trainer *t, size_t index, size_t first, size_t count, float *gradient) {
    (void)first, (void)count, (void)gradient; /* always a whole parameter */
    if (!has_device_failed(t)) reducer_ready(t->averaging.reducer, t->averaging.ranges.index_of[index]);
}

static status finish_reducer(struct trainer *t, const struct batch_piece *piece) {
    if (!piece->is_last) return OK;
    TRY(device_status(t->device));
    return reducer_finish(t->averaging.reducer);
}

static bool is_on_gpus(const struct trainer *t) { return comm_gpu(t->comm); }

static const struct averaging_hooks on_device = {.keeps_gradients = true,
                                                 .begin = start_reducer,
                                                 .ready = send_gradient,
                                                 .piece_done = finish_reducer,
                                                 .measure = measure,
                                                 .decides_alone = is_on_gpus};

/* ---- through the host: for a device whose memory the reducer cannot access ---- */

/* Copies all gradients to the host, averages them, and copies them back. */
static status average_on_host(struct trainer *t) {
    const struct params *params = &t->model->params;
    struct reducer *reducer = t->averaging.reducer;
    float *host_gradients = t->averaging.host_gradients;
    size_t bytes = params->trained * sizeof *host_gradients;
    TRY(device_download(t->device, host_gradients, params->gradients, bytes));
    reducer_start(reducer);
    for (size_t i = t->averaging.ranges.count; i-- > 0;) reducer_ready(reducer, i);
    TRY(reducer_finish(reducer));
    device_upload(t->device, params->gradients, host_gradients, bytes);
    return OK;
}

static const struct averaging_hooks on_host = {.keeps_gradients = true, .finish = average_on_host, .measure = measure};

/* ---- ZeRO: a rank has, checks and applies only its shard of the averaged gradients ---- */

/* The norm of all gradients, from the shards of the ranks, and the clipping factor, computed as device_ops' clip_norm.
 */
static status measure_norm_of_shards(struct trainer *t, const struct update *update) {
    float max = (float)t->config->train.clip_grad_norm, scale = update->loss_scale;
    double squares;
    TRY(zero_squared_norm(t->averaging.zero, &t->model->params, t->comm, &squares));
    struct clip_norm norm = {.norm = (float)(sqrt(squares) / (double)scale), .clip = 1 / scale};
    float coefficient = max / (norm.norm + 1e-6f);
    if (max > 0 && coefficient < 1) norm.clip *= coefficient;
    device_upload(t->device, &t->memory.results->norm, &norm, sizeof norm);
    return OK;
}

static status measure_shards(struct trainer *t, struct update *update) {
    update->has_norm = update->needs_norm;
    if (update->has_norm) return measure_norm_of_shards(t, update);
    zero_check_finite(t->averaging.zero, &t->model->params, &t->memory.results->nonfinite[NONFINITE_GRADIENTS]);
    return OK;
}

static const struct averaging_hooks sharded = {.keeps_gradients = true,
                                               .begin = start_reducer,
                                               .ready = send_gradient,
                                               .piece_done = finish_reducer,
                                               .measure = measure_shards};

static const struct averaging_hooks sharded_on_host = {
    .keeps_gradients = true, .finish = average_on_host, .measure = measure_shards};

/* ---- stage 2 of ZeRO: the shard of the averages is kept, of each micro-batch, because the gradients of the next one
 * use the same memory ---- */

static void start_batch(struct trainer *t, const struct update *update, const struct batch_piece *piece) {
    (void)update;
    (piece->is_first ? reducer_start : reducer_start_next)(t->averaging.reducer);
}

static void claim_bucket(struct trainer *t, size_t bucket) { reducer_claim(t->averaging.reducer, bucket); }

static status finish_batch(struct trainer *t, const struct batch_piece *piece) {
    (void)piece;
    TRY(device_status(t->device));
    return reducer_finish(t->averaging.reducer);
}

static const struct averaging_hooks grouped = {.keeps_gradients = true,
                                               .averages_each = true,
                                               .begin = start_batch,
                                               .begin_group = claim_bucket,
                                               .ready = send_gradient,
                                               .piece_done = finish_batch,
                                               .measure = measure_shards};

/* ---- elastic: batch shards. The batches of an update are those of all ranks, so their weights and the order of their
 * sum do not depend on the number of ranks ---- */

/* The weight of batch [number] in its update, as without shards. */
static float elastic_weight(const struct trainer *t, const struct update *update, size_t number) {
    const struct train_config *c = &t->config->train;
    const struct elastic *elastic = t->averaging.elastic;
    size_t rows = 0;
    if (c->accumulate_weighting != WEIGHTING_SAMPLES) return 1.0f / (float)c->accumulate;
    for (size_t i = 0; i < update->batches; i++) rows += elastic_rows(elastic, (size_t)update->first.batch + i);
    return (float)((double)elastic_rows(elastic, number) / (double)rows);
}

/* A rank without shards has one empty piece, so that it takes part in the sum. */
static size_t elastic_pieces(struct trainer *t, const struct update *update, struct batch_piece *piece) {
    struct elastic *elastic = t->averaging.elastic;
    size_t shards = elastic_shard_count(elastic);
    if (shards == 0) {
        piece->batch.rows = 0;
        return 1;
    }
    struct elastic_shard shard = elastic_shard(elastic, &piece->batch, piece->number, piece->index);
    piece->batch = shard.batch;
    piece->first_row = shard.first;
    piece->row_stride = 1;
    piece->weight = shard.weight * elastic_weight(t, update, piece->number);
    piece->sums = elastic_start(elastic, piece->index, piece->is_first);
    return shards;
}

static status finish_shard(struct trainer *t, const struct batch_piece *piece) {
    return elastic_finish(t->averaging.elastic, piece->number, piece->index, piece->is_first);
}

static status use_elastic_gradients(struct trainer *t) { return elastic_use_gradients(t->averaging.elastic); }

static status sum_in_tree(struct trainer *t, struct loss_sums *sums, double *counts, size_t count) {
    return elastic_all_reduce_sums(t->averaging.elastic, sums, counts, count);
}

static const struct averaging_hooks elastic = {.keeps_gradients = true,
                                               .pieces = elastic_pieces,
                                               .piece_done = finish_shard,
                                               .finish = use_elastic_gradients,
                                               .measure = measure,
                                               .sum = sum_in_tree};

/* ---- in backward (optimizer.in_backward): a gradient is averaged, checked, added to the norm and applied while it is
 * in the cache, and is not kept. A gradient that is not finite ends the run after a part of the step was applied; that
 * state is not saved ---- */

static void begin_in_backward(struct trainer *t, const struct update *update, const struct batch_piece *piece) {
    (void)piece;
    t->averaging.in_backward = (struct in_backward){.squares = update->needs_norm ? 0 : NAN};
}

/* The norm, if needed, is also finite exactly if the gradient is. */
static bool check_gradient(struct trainer *t, const float *gradient, size_t count) {
    const struct device_ops *ops = device_ops(t->device);
    double *squares = &t->averaging.in_backward.squares;
    if (isnan(*squares)) return ops->is_finite(t->device, F32(gradient), count);
    double norm = (double)ops->norm(t->device, gradient, count);
    *squares += norm * norm;
    return isfinite(norm);
}

/* Parameters are not updated if the loss or a running statistic of a rank is not finite, which is known before
 * backward. */
static bool is_forward_finite(struct trainer *t) {
    const struct params *buffers = &t->model->buffers;
    struct in_backward *b = &t->averaging.in_backward;
    if (b->has_checked_forward) return b->is_forward_finite;
    uint8_t is_finite = isfinite(t->memory.results->sums.loss) &&
                        device_ops(t->device)->is_finite(t->device, F32(buffers->values), buffers->total);
    status *failure = &t->micro_batches.pass_failure;
    *failure = comm_all_reduce(t->comm, &is_finite, 1, COMM_UINT8, COMM_MIN);
    b->is_forward_finite = is_finite && !*failure;
    b->has_checked_forward = true;
    return b->is_forward_finite;
}

/* false: this failed, now or before. The other ranks then wait for this one until it ends. */
static bool average_gradient(struct trainer *t, float *gradient, size_t count) {
    status *failure = &t->micro_batches.pass_failure;
    if (*failure || has_device_failed(t)) return false;
    *failure = comm_average(t->comm, gradient, count);
    return !*failure;
}

static void apply_gradient(struct trainer *t, size_t index, size_t first, size_t count, float *gradient) {
    struct params *params = &t->model->params;
    const struct param *p = &params->items[index];
    float limit = (float)t->config->train.clip_grad_value;
    size_t begin = p->offset + first;
    if (!average_gradient(t, gradient, count)) return;
    if (t->averaging.in_backward.nonfinite || !is_forward_finite(t)) return;
    if (!check_gradient(t, gradient, count)) {
        t->averaging.in_backward.nonfinite = p->name;
        return;
    }
    if (limit > 0) device_ops(t->device)->optimizers->clamp(t->device, limit, gradient, count);
    optimizer_run_part(t->optimizer, params, begin, begin + count, gradient, &t->memory.results->norm.clip);
}

static status report_gradient(struct trainer *t, struct update *update) {
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

static const struct averaging_hooks in_backward = {
    .begin = begin_in_backward, .ready = apply_gradient, .piece_done = check_device, .measure = report_gradient};

/* ---- the choice ---- */

const struct averaging_hooks *averaging_choose(const struct trainer *t, bool is_in_backward) {
    const struct averaging_state *a = &t->averaging;
    if (is_in_backward) return &in_backward;
    if (a->elastic) return &elastic;
    if (zero_own_gradients(a->zero)) return &grouped;
    if (comm_world_size(t->comm) == 1) return &alone;
    if (a->zero) return a->host_gradients ? &sharded_on_host : &sharded;
    return a->host_gradients ? &on_host : &on_device;
}
