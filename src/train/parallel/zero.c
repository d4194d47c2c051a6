/* A shard is a part of every bucket, because the gradients of a bucket are ready at the same time. The rest that cannot
 * be divided by the ranks, less than 16 floats per rank in a bucket, is updated by every rank. */
#include "train/parallel/zero.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "dist/comm/comm_gpu.h"

/* ---- the ranges of the gradients ---- */

status ranges_create(const struct params *params, struct ranges *out) {
    *out = (struct ranges){.ranges = calloc(params->count + 1, sizeof *out->ranges),
                           .index_of = calloc(params->count + 1, sizeof *out->index_of)};
    if (!out->ranges || !out->index_of) {
        ranges_free(out);
        return status_memory("the ranges of the gradients");
    }
    for (size_t i = 0; i < params->count; i++) {
        const struct param *p = &params->items[i];
        out->index_of[i] = p->is_frozen ? SIZE_MAX : out->count;
        if (!p->is_frozen) out->ranges[out->count++] = (struct reducer_range){p->name, p->offset, p->count};
    }
    return OK;
}

void ranges_free(struct ranges *ranges) {
    free(ranges->ranges);
    free(ranges->index_of);
    *ranges = (struct ranges){0};
}

/* ---- shards ---- */

struct zero {
    int rank, world;
    struct reducer_shard *shards; /* (shard_count), of each bucket, ascending */
    size_t shard_count;
    struct optimizer_shard own;         /* of this rank */
    size_t *at;                         /* (shard_count) of this rank's part of each bucket in its own buffers */
    float *full[OPTIMIZER_MAX_BUFFERS]; /* (params->trained) on rank 0 from gather to release */
    bool shards_values;                 /* stage 3 */
    float *values, *average;            /* with it, the same, of the parameters and their average (params->total) */
    float *exposed;                     /* params->values between zero_expose and zero_hide */
    const struct params *params;
    float *own_values; /* (own.total) */
    struct device *device;
    struct comm *comm; /* of zero_open */
    struct comm *gpus; /* the same for the memory of GPUs; NULL: none */
    size_t first_mark; /* of GATHER_MARKS */
    status failure;
    size_t total;    /* params->trained */
    double *squares; /* (params->count) of the gradient of each parameter */
    struct device_range
        *pieces;           /* (piece_count) of the gradients whose squares this rank adds, each of one parameter */
    size_t *piece_params;  /* (piece_count) */
    double *piece_squares; /* (piece_count) */
    size_t piece_count;
};

#define GATHER_MARKS 2 /* one bucket is gathered while the one before it is used */

static status memory_failure(void) { return status_memory("the shards of the optimizer's state"); }

static size_t shard_begin(const struct reducer_shard *c, int rank) { return c->begin + (size_t)rank * c->size; }
static size_t rest_begin(const struct reducer_shard *c, int world) { return c->begin + (size_t)world * c->size; }

/* The shards of all buckets, ascending. (shard_count) */
static status divide(const struct dist_config *config, const struct params *params, int world,
                     struct reducer_shard **shards, size_t *count) {
    struct ranges ranges;
    struct reducer_config buckets = {.bucket_cap_mb = config->bucket_cap_mb,
                                     .first_bucket_mb = config->first_bucket_mb};
    TRY(ranges_create(params, &ranges));
    *shards = calloc(ranges.count + 1, sizeof **shards);
    status s =
        *shards ? reducer_shards(ranges.ranges, ranges.count, &buckets, world, *shards, count) : memory_failure();
    ranges_free(&ranges);
    return s;
}

bool zero_shards_gradients(const struct dist_config *config, int world_size) {
    return config->zero_stage >= 2 && world_size > 1;
}

status zero_group_gradients(const struct dist_config *config, bool is_on_gpu, struct model *model) {
    struct reducer_config buckets = {.bucket_cap_mb = config->bucket_cap_mb,
                                     .first_bucket_mb = config->first_bucket_mb};
    struct params *params = &model->params;
    struct ranges ranges;
    TRY(ranges_create(params, &ranges));
    size_t *bucket_of = calloc(ranges.count + 1, sizeof *bucket_of);
    status s = bucket_of ? OK : memory_failure();
    if (!s) {
        size_t count = reducer_plan(ranges.ranges, ranges.count, &buckets, bucket_of);
        for (size_t i = 0; i < params->count; i++) /* index_of becomes the group of a parameter */
            if (ranges.index_of[i] != SIZE_MAX) ranges.index_of[i] = bucket_of[ranges.index_of[i]];
        model_group_gradients(model, ranges.index_of, count);
        if (config->zero_stage >= 3) model_gather_values(model, is_on_gpu);
    }
    free(bucket_of);
    ranges_free(&ranges);
    return s;
}

static void add_range(struct optimizer_shard *shard, size_t begin, size_t end, size_t at) {
    if (begin < end) shard->ranges[shard->count++] = (struct optimizer_shard_range){begin, end, at};
}

static status plan(const struct dist_config *config, const struct params *params, int rank, int world_size,
                   struct zero **out) {
    *out = NULL;
    if (config->zero_stage == 0 || world_size == 1) return OK;
    struct zero *z = calloc(1, sizeof *z);
    if (!z) return memory_failure();
    z->rank = rank;
    z->world = world_size;
    z->total = params->trained;
    z->shards_values = config->zero_stage >= 3;
    z->params = params;
    status s = divide(config, params, world_size, &z->shards, &z->shard_count);
    if (!s) z->own.ranges = calloc(2 * z->shard_count + 1, sizeof *z->own.ranges);
    if (!s) z->at = calloc(z->shard_count + 1, sizeof *z->at);
    if (!s && (!z->own.ranges || !z->at)) s = memory_failure();
    if (s) {
        zero_destroy(z);
        return s;
    }
    for (size_t i = 0; i < z->shard_count; i++) {
        const struct reducer_shard *c = &z->shards[i];
        z->at[i] = z->own.total;
        add_range(&z->own, shard_begin(c, rank), shard_begin(c, rank + 1), z->at[i]);
        add_range(&z->own, rest_begin(c, world_size), c->end, z->at[i] + c->size);
        z->own.total += reducer_shard_floats(c, world_size);
    }
    *out = z;
    return OK;
}

void zero_destroy(struct zero *z) {
    if (!z) return;
    for (size_t i = 0; i < OPTIMIZER_MAX_BUFFERS; i++) free(z->full[i]);
    if (z->device) {
        device_free(z->device, z->own.gradients);
        device_free(z->device, z->own_values);
    }
    free(z->shards);
    free(z->own.ranges);
    free(z->squares);
    free(z->pieces);
    free(z->piece_params);
    free(z->piece_squares);
    free(z->at);
    buffer_free(z->values);
    buffer_free(z->average);
    status_free(z->failure);
    free(z);
}

const struct optimizer_shard *zero_shard(const struct zero *z) { return z ? &z->own : NULL; }

bool zero_shards_values(const struct zero *z) { return z && z->shards_values; }

float *zero_own_gradients(const struct zero *z) { return z ? z->own.gradients : NULL; }

size_t zero_memory(const struct dist_config *config, const struct params *params, int world_size, size_t full) {
    struct zero *z;
    status s = plan(config, params, 0, world_size, &z);
    size_t bytes = !s && z && params->trained ? full / params->trained * z->own.total : full;
    status_free(s);
    zero_destroy(z);
    return bytes;
}

size_t zero_gradient_memory(const struct dist_config *config, const struct params *params, int world_size) {
    if (!zero_shards_gradients(config, world_size)) return 0;
    return zero_memory(config, params, world_size, params->trained * sizeof(float));
}

status zero_all_gather_array(struct zero *z, float *values, struct comm *comm) {
    for (size_t i = 0; z && i < z->shard_count; i++) {
        const struct reducer_shard *c = &z->shards[i];
        TRY(comm_all_gather(comm, values + shard_begin(c, z->rank), c->size, COMM_FLOAT32, values + c->begin));
    }
    return OK;
}

/* After the update on the device's stream, and before its next work. */
static status all_gather_on_gpus(struct zero *z, struct params *params, struct device *device, struct comm *gpus) {
    TRY(comm_gpu_after(gpus, device_stream(device)));
    for (size_t i = 0; i < z->shard_count; i++)
        TRY(comm_gpu_all_gather(gpus, NULL, params->values + z->shards[i].begin, z->shards[i].size));
    device_mark_written(device, params->values, params->trained * sizeof *params->values);
    return comm_gpu_before(gpus, device_stream(device));
}

status zero_all_gather(struct zero *z, struct params *params, struct device *device, struct comm *comm) {
    if (!z || z->shards_values) return OK;
    if (comm_gpu(comm)) return all_gather_on_gpus(z, params, device, comm_gpu(comm));
    TRY(device_map(device, (void **)&params->values));
    TRY(zero_all_gather_array(z, params->values, comm));
    return device_unmap(device, (void **)&params->values, true);
}

/* The averaged gradients of a range of this rank. */
static const float *gradients_of(const struct zero *z, const struct params *params,
                                 const struct optimizer_shard_range *range) {
    return z->own.gradients ? z->own.gradients + range->at : params->gradients + range->begin;
}

/* The part of a range that is in the parameter, counted from the begin of the range; empty if there is none. */
static struct device_range part_of(const struct param *p, const struct optimizer_shard_range *range) {
    size_t begin = range->begin > p->offset ? range->begin : p->offset;
    size_t end = range->end < p->offset + p->count ? range->end : p->offset + p->count;
    if (p->is_frozen || begin >= end) return (struct device_range){0, 0};
    return (struct device_range){begin - range->begin, end - range->begin};
}

/* Whether all ranks have the elements of the range. */
static bool is_rest(const struct zero *z, const struct optimizer_shard_range *range) {
    size_t i = 0;
    while (range->begin >= z->shards[i].end) i++;
    return range->begin >= rest_begin(&z->shards[i], z->world);
}

/* The pieces of this rank's gradients: of its own buffer or, if there is none, of that of all. */
static void divide_by_parameters(struct zero *z) {
    const struct params *params = z->params;
    for (size_t r = 0, p = 0; r < z->own.count; r++) {
        const struct optimizer_shard_range *range = &z->own.ranges[r];
        size_t at = z->own.gradients ? range->at : range->begin;
        if (z->rank != 0 && is_rest(z, range)) continue; /* rank 0 counts what all have */
        while (p < params->count &&
               (params->items[p].is_frozen || params->items[p].offset + params->items[p].count <= range->begin))
            p++;
        for (size_t i = p; i < params->count; i++) {
            if (!params->items[i].is_frozen && params->items[i].offset >= range->end) break;
            struct device_range part = part_of(&params->items[i], range);
            if (part.begin == part.end) continue;
            z->piece_params[z->piece_count] = i;
            z->pieces[z->piece_count++] = (struct device_range){at + part.begin, at + part.end};
        }
    }
}

static status allocate(struct zero *z, bool shards_gradients) {
    size_t bytes = z->own.total * sizeof(float), most = z->own.count + z->params->count;
    z->squares = calloc(z->params->count + 1, sizeof *z->squares);
    z->pieces = calloc(most + 1, sizeof *z->pieces);
    z->piece_params = calloc(most + 1, sizeof *z->piece_params);
    z->piece_squares = calloc(most + 1, sizeof *z->piece_squares);
    if (!z->squares || !z->pieces || !z->piece_params || !z->piece_squares) return memory_failure();
    if (shards_gradients) TRY(device_alloc(z->device, bytes, "the gradients of a shard", (void **)&z->own.gradients));
    divide_by_parameters(z);
    return z->shards_values ? device_alloc(z->device, bytes, "the parameters of a shard", (void **)&z->own_values) : OK;
}

status zero_create(const struct dist_config *config, const struct params *params, struct device *device, int rank,
                   int world_size, struct zero **out) {
    TRY(plan(config, params, rank, world_size, out));
    if (!*out) return OK;
    (*out)->device = device;
    status s = allocate(*out, zero_shards_gradients(config, world_size));
    if (s) zero_destroy(*out);
    if (s) *out = NULL;
    return s;
}

const char *zero_nonfinite_gradient(const struct zero *z, const struct params *params, struct device *device) {
    for (size_t i = params->count; i-- > 0;)
        for (size_t r = 0; r < z->own.count; r++) {
            struct device_range part = part_of(&params->items[i], &z->own.ranges[r]);
            const float *gradients = gradients_of(z, params, &z->own.ranges[r]);
            if (part.begin < part.end &&
                !device_ops(device)->is_finite(device, F32(gradients + part.begin), part.end - part.begin))
                return params->items[i].name;
        }
    return NULL;
}

void zero_add_squares(struct zero *z, const struct params *params) {
    const float *gradients = z->own.gradients ? z->own.gradients : params->gradients;
    device_ops(z->device)->squares(z->device, gradients, z->pieces, z->piece_count, z->piece_squares);
    memset(z->squares, 0, params->count * sizeof *z->squares);
    for (size_t i = 0; i < z->piece_count; i++) z->squares[z->piece_params[i]] += z->piece_squares[i];
}

/* The norm of each parameter is rounded to float, as on the device. */
status zero_squared_norm(struct zero *z, const struct params *params, struct comm *comm, double *squares) {
    zero_add_squares(z, params);
    TRY(device_status(z->device));
    TRY(comm_all_reduce(comm, z->squares, params->count, COMM_FLOAT64, COMM_SUM));
    *squares = 0;
    for (size_t i = 0; i < params->count; i++) {
        double norm = (double)(float)sqrt(z->squares[i]);
        *squares += norm * norm;
    }
    return OK;
}

void zero_check_finite(const struct zero *z, const struct params *params, double *bad) {
    const struct device_ops *ops = device_ops(z->device);
    if (z->own.gradients) ops->check_finite(z->device, z->own.gradients, z->own.total, bad);
    for (size_t i = 0; i < z->own.count && !z->own.gradients; i++) {
        const struct optimizer_shard_range *range = &z->own.ranges[i];
        ops->check_finite(z->device, params->gradients + range->begin, range->end - range->begin, bad);
    }
}

/* Copies between the buffer of each rank and the complete one of rank 0, in the order of the shards. */
static status transfer(struct zero *z, float *own, float *full, struct comm *comm, bool to_full) {
    for (size_t i = 0; i < z->shard_count; i++) {
        const struct reducer_shard *c = &z->shards[i];
        float *all = full ? full + c->begin : NULL;
        size_t rest = c->end - rest_begin(c, z->world), at = z->at[i];
        if (to_full)
            TRY(comm_gather(comm, own + at, c->size, COMM_FLOAT32, all, 0));
        else
            TRY(comm_scatter(comm, all, c->size, COMM_FLOAT32, own + at, 0));
        at += c->size;
        if (full && rest) {
            float *shared = full + rest_begin(c, z->world);
            memcpy(to_full ? shared : own + at, to_full ? own + at : shared, rest * sizeof *own);
        }
        if (!to_full) TRY(comm_broadcast(comm, own + at, rest, COMM_FLOAT32, 0));
    }
    return OK;
}

status zero_gather_array(struct zero *z, float *own, float *values, struct comm *comm) {
    return transfer(z, own, z->rank == 0 ? values : NULL, comm, true);
}

/* ---- stage 3: parameters that are gathered ---- */

/* After the work that is now in the device's stream, which uses the memory. */
static status enqueue_gather(const struct zero *z, const struct reducer_shard *c, const float *own, float *to,
                             size_t number) {
    size_t rest = rest_begin(c, z->world);
    TRY(comm_gpu_after(z->gpus, device_stream(z->device)));
    TRY(comm_gpu_all_gather(z->gpus, own, to, c->size));
    TRY(comm_gpu_copy(z->gpus, to + (rest - c->begin), own + c->size, c->end - rest));
    return comm_gpu_mark(z->gpus, z->first_mark + number % GATHER_MARKS);
}

/* Called by passes; a dry run has no group. Bucket 0 has the last parameters. */
static void gather_bucket(void *zero, size_t bucket, size_t number, float *to) {
    struct zero *z = zero;
    size_t i = z->shard_count - 1 - bucket;
    const struct reducer_shard *c = &z->shards[i];
    const float *own = z->params->own + z->at[i]; /* the average of the weights, while an evaluation uses it */
    if (z->failure || !z->comm) return;
    if (z->gpus) {
        z->failure = enqueue_gather(z, c, own, to, number);
        return;
    }
    z->failure = comm_all_gather(z->comm, own, c->size, COMM_FLOAT32, to);
    size_t rest = rest_begin(c, z->world);
    if (c->end > rest) memcpy(to + (rest - c->begin), own + c->size, (c->end - rest) * sizeof *to);
}

static void await_bucket(void *zero, size_t number) {
    struct zero *z = zero;
    if (z->gpus && !z->failure)
        z->failure = comm_gpu_before_mark(z->gpus, z->first_mark + number % GATHER_MARKS, device_stream(z->device));
}

/* Stores this rank's parts of a parameter. */
static void keep_param(void *zero, size_t index) {
    struct zero *z = zero;
    const struct param *p = &z->params->items[index];
    const float *values = params_value(z->params, index);
    for (size_t r = 0; r < z->own.count; r++) {
        const struct optimizer_shard_range *range = &z->own.ranges[r];
        struct device_range part = part_of(p, range);
        if (part.begin < part.end)
            memcpy(z->params->own + range->at + part.begin, values + (range->begin + part.begin - p->offset),
                   (part.end - part.begin) * sizeof *values);
    }
}

void zero_attach(struct zero *z, struct model *model) {
    if (!z || !z->shards_values) return;
    model->params.own = z->own_values;
    model->params.own_count = z->own.total;
    model->params.keep = keep_param;
    model->params.keeper = z;
    model->gather = gather_bucket;
    model->await_gather = await_bucket;
    model->gatherer = z;
}

status zero_open(struct zero *z, struct comm *comm) {
    if (!z) return OK;
    z->comm = comm;
    z->gpus = device_is_host(z->device) ? NULL : comm_gpu(comm);
    return z->gpus && z->shards_values ? comm_gpu_add_marks(z->gpus, GATHER_MARKS, &z->first_mark) : OK;
}

status zero_wait(struct zero *z) {
    TRY(zero_take_failure(z));
    return z && z->gpus && z->shards_values ? comm_gpu_wait(z->gpus, device_stream(z->device)) : OK;
}

status zero_take_failure(struct zero *z) {
    status failure = z ? z->failure : OK;
    if (z) z->failure = OK;
    return failure;
}

void zero_expose(struct zero *z, struct params *params) {
    if (!z || !z->shards_values || !z->values) return;
    z->exposed = params->values;
    params->values = z->values;
    params->is_exposed = true;
    for (size_t i = 0; i < params->count; i++) params->items[i].value = params->items[i].offset;
}

void zero_hide(struct zero *z, struct params *params) {
    if (!z || !z->exposed) return;
    params->values = z->exposed;
    params->is_exposed = false;
    z->exposed = NULL;
    for (size_t i = 0; i < params->count; i++) /* passes place the others */
        if (params->items[i].is_frozen) params->items[i].value = params->items[i].offset - params->trained;
}

/* Frozen parameters are whole on every rank, before the buckets. */
static size_t frozen_floats(const struct zero *z) { return z->params->total - z->params->trained; }

/* Gathers [own] in *full on rank 0, with the frozen parameters behind it. */
static status gather_values(struct zero *z, float *own, const char *what, float **full, struct comm *comm) {
    if (z->rank == 0 && !*full) TRY(buffer_new(z->params->total * sizeof **full, what, (void **)full));
    TRY(transfer(z, own, *full, comm, true));
    if (*full && frozen_floats(z)) memcpy(*full + z->total, z->params->values, frozen_floats(z) * sizeof **full);
    return OK;
}

status zero_gather_params(struct zero *z, struct state *state, struct comm *comm) {
    if (!z || !z->shards_values) return OK;
    TRY(gather_values(z, z->params->own, "all parameters, which rank 0 gathers", &z->values, comm));
    state_set_params(state, z->values);
    return OK;
}

status zero_scatter_params(struct zero *z, struct state *state, struct comm *comm) {
    if (!z || !z->shards_values) return OK;
    struct params *params = &state->model->params;
    TRY(transfer(z, params->own, z->values, comm, false));
    if (z->values && frozen_floats(z))
        memcpy(params->values, z->values + z->total, frozen_floats(z) * sizeof *params->values);
    return comm_broadcast(comm, params->values, frozen_floats(z), COMM_FLOAT32, 0);
}

status zero_hash_params(struct zero *z, const struct params *params, struct comm *comm, uint64_t *hash) {
    struct state_hasher hasher = {0};
    float *bucket = NULL;
    size_t largest = 0, done = 0;
    for (size_t i = 0; i < z->shard_count; i++)
        if (z->shards[i].end - z->shards[i].begin > largest) largest = z->shards[i].end - z->shards[i].begin;
    status s = z->rank ? OK : buffer_new(largest * sizeof *bucket, "a bucket of parameters", (void **)&bucket);
    if (!s && z->rank == 0) s = state_hasher_start(&hasher, params->total);
    for (size_t i = 0; i < z->shard_count && !s; i++) {
        const struct reducer_shard *c = &z->shards[i];
        size_t rest = rest_begin(c, z->world);
        s = comm_gather(comm, params->own + z->at[i], c->size, COMM_FLOAT32, bucket, 0);
        if (s || z->rank != 0) continue;
        state_hasher_add(&hasher, NULL, c->begin - done); /* a gap */
        state_hasher_add(&hasher, bucket, rest - c->begin);
        state_hasher_add(&hasher, params->own + z->at[i] + c->size, c->end - rest);
        done = c->end;
    }
    if (!s && z->rank == 0) {
        state_hasher_add(&hasher, NULL, params->trained - done);
        state_hasher_add(&hasher, params->values, frozen_floats(z));
        *hash = state_hasher_finish(&hasher);
    }
    if (s) buffer_free(hasher.part);
    buffer_free(bucket);
    return s;
}

/* The index of the last parameter with a part of [own] that is not finite; -1: none. */
static int64_t find_nonfinite(const struct zero *z, const struct params *params, struct device *device) {
    for (size_t i = params->count; i-- > 0;) {
        const struct param *p = &params->items[i];
        if (p->is_frozen && !device_ops(device)->is_finite(device, F32(params_value(params, i)), p->count))
            return (int64_t)i;
        for (size_t r = 0; r < z->own.count; r++) {
            struct device_range part = part_of(p, &z->own.ranges[r]);
            const float *values = params->own + z->own.ranges[r].at + part.begin;
            if (part.begin < part.end && !device_ops(device)->is_finite(device, F32(values), part.end - part.begin))
                return (int64_t)i;
        }
    }
    return -1;
}

status zero_nonfinite_value(const struct zero *z, const struct params *params, struct device *device, struct comm *comm,
                            const char **name) {
    bool is_finite = device_ops(device)->is_finite(device, F32(params->own), params->own_count);
    int64_t index = is_finite && frozen_floats(z) == 0 ? -1 : find_nonfinite(z, params, device);
    TRY(comm_all_reduce(comm, &index, 1, COMM_INT64, COMM_MAX));
    *name = index < 0 ? NULL : params->items[index].name;
    return OK;
}

/* ---- the whole state on rank 0 ---- */

status zero_gather(struct zero *z, struct state *state, struct comm *comm) {
    if (!z) return OK;
    TRY(zero_gather_params(z, state, comm));
    if (z->shards_values && state->ema) {
        TRY(gather_values(z, state->ema->values, "the average of all weights, which rank 0 gathers", &z->average,
                          comm));
        state_set_ema(state, z->average);
    }
    for (size_t i = 0; i < state->optimizer->buffer_count; i++) {
        if (z->rank == 0 && !z->full[i]) z->full[i] = calloc(z->total + 1, sizeof **z->full);
        if (z->rank == 0 && !z->full[i]) return memory_failure();
        TRY(transfer(z, state->optimizer->buffers[i], z->full[i], comm, true));
        state_set_optimizer(state, i, z->full[i]);
    }
    return OK;
}

status zero_scatter(struct zero *z, struct state *state, struct comm *comm) {
    if (!z) return OK;
    for (size_t i = 0; i < state->optimizer->buffer_count; i++)
        TRY(transfer(z, state->optimizer->buffers[i], z->full[i], comm, false));
    TRY(zero_scatter_params(z, state, comm));
    if (z->shards_values && state->ema) TRY(transfer(z, state->ema->values, z->average, comm, false));
    zero_release(z, state);
    return OK;
}

static void release_values(struct zero *z, struct state *state) {
    state_set_params(state, NULL);
    state_set_ema(state, NULL);
    buffer_free(z->values);
    buffer_free(z->average);
    z->values = z->average = NULL;
}

void zero_release(struct zero *z, struct state *state) {
    if (z && z->shards_values) release_values(z, state);
    for (size_t i = 0; z && i < state->optimizer->buffer_count; i++) {
        state_set_optimizer(state, i, NULL);
        free(z->full[i]);
        z->full[i] = NULL;
    }
}
