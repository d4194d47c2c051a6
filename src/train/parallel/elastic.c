/* The leaf of a shard is a vector: its gradients, then its running statistics times its weight. The leaf of an empty
 * shard (of a short last batch) is zero, so that the tree is the same in every step. */
#include "train/parallel/elastic.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "data/sampling/sampler.h"
#include "dist/shard_tree.h"

#define SUMS (sizeof(struct loss_sums) / sizeof(double))

struct elastic {
    struct elastic_options o;
    size_t first, own, max_shards; /* this rank's shards; maximum of a rank */
    struct shard_tree *tree;
    float *before;            /* (buffers->total) the running statistics before the step; on the device */
    struct loss_sums *sums;   /* (own) of the shards; on the device */
    double *own_record, *all; /* (record_size); the same of all ranks */
    double *leaves;           /* (shards, SUMS) */
    float *total;             /* (params->trained) the gradients of an update's batches; NULL: it has one */
    const float *sum;         /* (params->trained) the gradients of the update so far */
};

static size_t record_size(const struct elastic *e) { return e->max_shards * SUMS + ELASTIC_MAX_COUNTS; }

size_t elastic_memory(const struct model *model, size_t shards, int world_size) {
    size_t world = (size_t)world_size;
    return model->buffers.total * sizeof(float) + (shards + world - 1) / world * sizeof(struct loss_sums);
}

status elastic_create(const struct elastic_options *options, struct elastic **out) {
    size_t world = (size_t)comm_world_size(options->comm);
    const struct params *params = &options->model->params, *buffers = &options->model->buffers;
    *out = NULL;
    struct elastic *e = calloc(1, sizeof *e);
    if (!e) return status_memory("the shards of a batch");
    e->o = *options;
    shard_tree_range(options->shards, comm_rank(options->comm), (int)world, &e->first, &e->own);
    e->max_shards = (options->shards + world - 1) / world;
    e->own_record = calloc(record_size(e), sizeof *e->own_record);
    e->all = calloc(world * record_size(e), sizeof *e->all);
    e->leaves = calloc(options->shards * SUMS, sizeof *e->leaves);
    status s = e->own_record && e->all && e->leaves ? OK : status_memory("the shards of a batch");
    if (!s && options->accumulates)
        s = buffer_new(params->trained * sizeof *e->total, "the gradients of an update", (void **)&e->total);
    struct device *device = options->model->device;
    if (!s)
        s = device_alloc(device, buffers->total * sizeof *e->before, "the running statistics before a step",
                         (void **)&e->before);
    if (!s) s = device_alloc(device, e->own * sizeof *e->sums, "the sums of a loss", (void **)&e->sums);
    if (!s) s = shard_tree_create(options->shards, params->trained + buffers->total, options->comm, &e->tree);
    if (s) elastic_destroy(e);
    if (!s) *out = e;
    return s;
}

void elastic_destroy(struct elastic *e) {
    if (!e) return;
    shard_tree_destroy(e->tree);
    device_free(e->o.model->device, e->before);
    device_free(e->o.model->device, e->sums);
    free(e->own_record);
    free(e->all);
    free(e->leaves);
    buffer_free(e->total);
    free(e);
}

size_t elastic_rows(const struct elastic *e, size_t number) {
    size_t left = e->o.rows - number * e->o.batch;
    return left < e->o.batch ? left : e->o.batch;
}

size_t elastic_shard_count(const struct elastic *e) { return e->own; }

/* Of shard [n] of all ranks in batch [number]: its rows / the rows of the batch. */
static float shard_weight(const struct elastic *e, size_t number, size_t n) {
    size_t rows = elastic_rows(e, number);
    size_t begin = sampler_shard(rows, e->o.shards, n), end = sampler_shard(rows, e->o.shards, n + 1);
    return (float)((double)(end - begin) / (double)rows);
}

struct elastic_shard elastic_shard(const struct elastic *e, const struct batch *batch, size_t number, size_t index) {
    size_t rows = elastic_rows(e, number), n = e->first + index;
    size_t start = sampler_shard(rows, e->o.shards, e->first);
    size_t begin = sampler_shard(rows, e->o.shards, n), end = sampler_shard(rows, e->o.shards, n + 1);
    struct elastic_shard shard = {.first = begin, .weight = shard_weight(e, number, n)};
    if (begin == end) return shard;
    shard.batch = (struct batch){.rows = end - begin,
                                 .inputs = batch->inputs + (begin - start) * e->o.input_size,
                                 .targets = (const char *)batch->targets + (begin - start) * e->o.target_bytes,
                                 .positions = batch->positions + (begin - start),
                                 .weights = batch->weights ? batch->weights + (begin - start) : NULL};
    return shard;
}

/* The gradients, then the running statistics times the weight of the shard. */
static status fill_leaf(const struct elastic *e, float weight, float *leaf) {
    struct device *device = e->o.model->device;
    const struct params *params = &e->o.model->params, *buffers = &e->o.model->buffers;
    float *statistics = leaf + params->trained;
    TRY(device_download(device, leaf, params->gradients, params->trained * sizeof *leaf));
    TRY(device_download(device, statistics, buffers->values, buffers->total * sizeof *leaf));
    for (size_t b = 0; b < buffers->total; b++) statistics[b] *= weight;
    return OK;
}

/* The gradients of the update so far; each rank adds the same numbers. */
static const float *add_batch(struct elastic *e, const float *sum, bool is_first) {
    size_t count = e->o.model->params.trained;
    if (!e->total) return sum;
    for (size_t i = 0; i < count; i++) e->total[i] = is_first ? sum[i] : e->total[i] + sum[i];
    return e->total;
}

struct loss_sums *elastic_start(struct elastic *e, size_t index, bool is_first) {
    struct params *buffers = &e->o.model->buffers;
    struct device *device = e->o.model->device;
    const struct device_ops *ops = device_ops(device);
    if (index == 0) ops->copy(device, F32(buffers->values), F32(e->before), buffers->total);
    if (index == 0 && is_first) device_zero(device, e->sums, e->own * sizeof *e->sums);
    if (index == 0) shard_tree_start(e->tree);
    params_zero_gradients(&e->o.model->params, device);
    ops->copy(device, F32(e->before), F32(buffers->values), buffers->total);
    return &e->sums[index];
}

/* Sums the leaves of all ranks. */
static status sum_batch(struct elastic *e, bool is_first) {
    const struct params *params = &e->o.model->params, *buffers = &e->o.model->buffers;
    TRY(shard_tree_finish(e->tree, &e->sum));
    device_upload(e->o.model->device, buffers->values, e->sum + params->trained, buffers->total * sizeof *e->sum);
    e->sum = add_batch(e, e->sum, is_first);
    return OK;
}

status elastic_finish(struct elastic *e, size_t number, size_t index, bool is_first) {
    if (e->own == 0) shard_tree_start(e->tree);
    if (index < e->own) {
        TRY(fill_leaf(e, shard_weight(e, number, e->first + index), shard_tree_leaf(e->tree)));
        shard_tree_push(e->tree);
    }
    return index + 1 < e->own ? OK : sum_batch(e, is_first);
}

status elastic_use_gradients(struct elastic *e) {
    const struct params *params = &e->o.model->params;
    struct device *device = e->o.model->device;
    device_upload(device, params->gradients, e->sum, params->trained * sizeof *e->sum);
    return device_download(device, e->own_record, e->sums, e->own * sizeof *e->sums);
}

status elastic_all_reduce_sums(struct elastic *e, struct loss_sums *sums, double *counts, size_t count) {
    size_t world = (size_t)comm_world_size(e->o.comm), sums_size = e->max_shards * SUMS;
    memcpy(e->own_record + sums_size, counts, count * sizeof *counts);
    TRY(comm_all_gather(e->o.comm, e->own_record, record_size(e), COMM_FLOAT64, e->all));
    memset(counts, 0, count * sizeof *counts);
    for (size_t r = 0; r < world; r++) {
        const double *record = e->all + r * record_size(e);
        size_t first, own;
        shard_tree_range(e->o.shards, (int)r, (int)world, &first, &own);
        memcpy(e->leaves + first * SUMS, record, own * SUMS * sizeof *e->leaves);
        for (size_t i = 0; i < count; i++) counts[i] += record[sums_size + i];
    }
    shard_tree_sum(e->leaves, e->o.shards, SUMS);
    memcpy(sums, e->leaves, sizeof *sums);
    return OK;
}
