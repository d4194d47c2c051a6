/* Shares differ by at most one row, so only the first and the last rank are checked. */
#include "train/plan/passes.h"

#include <stdio.h>

#include "data/sampling/sampler.h"

/* The batches of an epoch. */
struct epoch {
    const struct sampler_config *sampler;
    size_t train_rows, batch; /* rows of a whole batch of a rank; with shards of all ranks */
    int world;
    bool has_last; /* the run reaches a short last batch */
};

static status too_few(const struct layer *layer, const char *where, const char *hint) {
    return status_new(STATUS_USAGE,
                      "%s: %s: training needs more than one value per channel (as in PyTorch), but %s; %s",
                      place_text(layer->place).s, layer->path, where, hint);
}

/* Checks a batch of [rows] rows of a rank. */
static status check_batch(const struct epoch *e, const struct layer *layer, size_t rows, bool is_last) {
    bool is_shared = layer->type->sums_over_ranks && layer->type->sums_over_ranks(layer);
    size_t seen = is_shared ? rows * (size_t)e->world : rows;
    char where[160];
    if (rows == 0 || seen >= layer->type->min_rows(layer)) return OK;
    if (is_last) {
        snprintf(where, sizeof where, "the last batch of an epoch has a single row%s (%zu training rows)",
                 e->world > 1 ? " on a process" : "", e->train_rows);
        return too_few(layer, where, "set sampler.drop_last_batch: true, or choose another batch size");
    }
    return too_few(layer, e->world > 1 ? "a batch of a process is a single row" : "a batch is a single row",
                   e->world > 1 ? "increase sampler.batch_size, or set sync: true on the layer"
                                : "increase sampler.batch_size");
}

static status check_rank(const struct epoch *e, const struct layer *layer, int rank) {
    size_t rows = sampler_own_length(e->sampler, e->train_rows, rank, e->world), last = rows % e->batch;
    if (rows >= e->batch) TRY(check_batch(e, layer, e->batch, false));
    return e->has_last ? check_batch(e, layer, last, true) : OK;
}

/* Empty shards are not computed. */
static bool has_shard_of_one(const struct epoch *e, size_t rows) {
    size_t shards = e->sampler->shards;
    for (size_t i = 0; i < shards; i++)
        if (sampler_shard(rows, shards, i + 1) - sampler_shard(rows, shards, i) == 1) return true;
    return false;
}

static status check_shards(const struct epoch *e, const struct layer *layer) {
    size_t rows = sampler_length(e->sampler, e->train_rows, 1), last = rows % e->batch;
    char where[160];
    if (layer->type->min_rows(layer) <= 1) return OK;
    if (rows >= e->batch && has_shard_of_one(e, e->batch)) {
        snprintf(where, sizeof where, "%zu shards of a batch of %zu rows have a single row", e->sampler->shards,
                 e->batch);
        return too_few(layer, where, "use fewer determinism.shards or a larger sampler.global_batch_size");
    }
    if (!e->has_last || !has_shard_of_one(e, last)) return OK;
    snprintf(where, sizeof where, "in the last batch of an epoch, of %zu rows, a shard has a single row", last);
    return too_few(layer, where, "set sampler.drop_last_batch: true, or choose another number of shards or batch size");
}

static bool reaches_last(const struct config *config, size_t rows, size_t batch) {
    int64_t batches = (int64_t)(rows / batch), per_step = config->train.accumulate;
    if (config->sampler.drop_last_batch) return false;
    return config->train.steps == SCHEMA_NO_INT || config->train.steps > batches / per_step;
}

status passes_check(const struct config *config, const struct model *model, size_t train_rows, int world_size) {
    const struct sampler_config *sampler = &config->sampler;
    struct epoch e = {.sampler = sampler, .train_rows = train_rows, .world = world_size};
    TRY(sampler_batch(sampler, world_size, &e.batch));
    if (sampler->shards) e.batch = (size_t)sampler->global_batch_size;
    e.has_last = reaches_last(config, sampler_length(sampler, train_rows, sampler->shards ? 1 : world_size), e.batch);
    for (size_t i = 0; i < model->layer_count; i++) {
        const struct layer *layer = &model->layers[i];
        if (!layer->type->min_rows) continue;
        if (sampler->shards) {
            TRY(check_shards(&e, layer));
        } else {
            TRY(check_rank(&e, layer, 0));
            TRY(check_rank(&e, layer, world_size - 1));
        }
    }
    return OK;
}

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

static size_t largest(const struct pass_rows *rows) {
    size_t largest = 0;
    for (int i = 0; i < 2; i++) {
        if (rows->training[i] > largest) largest = rows->training[i];
        if (rows->evaluation[i] > largest) largest = rows->evaluation[i];
        if (rows->test[i] > largest) largest = rows->test[i];
    }
    return largest;
}

struct pass_rows passes_rows(const struct config *config, const struct dataset_info *info, const struct dist_env *env,
                             const struct dist_env *evaluates, size_t batch) {
    const struct sampler_config *sampler = &config->sampler;
    size_t world = (size_t)env->world_size, shards = sampler->shards, first, own, test;
    size_t length = sampler_own_length(sampler, info->train_rows, env->rank, env->world_size);
    sampler_evaluation_range(info->validation_rows, evaluates->rank, evaluates->world_size, &first, &own);
    sampler_evaluation_range(info->test_rows, evaluates->rank, evaluates->world_size, &first, &test);
    struct pass_rows rows = {{min_size(batch, length), sampler->drop_last_batch ? 0 : length % batch},
                             {min_size(batch, own), own % batch},
                             {min_size(batch, test), test % batch},
                             0};
    if (shards) {
        rows.training[0] = batch;
        rows.training[1] = (size_t)sampler->global_batch_size / shards;
    }
    rows.max = shards ? (shards + world - 1) / world * batch : largest(&rows);
    if (rows.evaluation[0] > rows.max) rows.max = rows.evaluation[0];
    if (rows.test[0] > rows.max) rows.max = rows.test[0];
    return rows;
}
