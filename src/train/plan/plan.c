/* Checks are in the order in which a user would correct the errors: device, data, model, loss, optimizer, batches,
 * memory. */
#include "train/plan/plan.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/system/machine.h"
#include "data/dataset/loader.h"
#include "dist/reducer.h"
#include "train/metrics/evaluation.h"
#include "train/parallel/ranges.h"
#include "train/plan/input_check.h"

bool plan_is_elastic(const struct plan *p) { return p->config->determinism.mode == DETERMINISM_ELASTIC; }

struct dist_env plan_evaluation_env(const struct plan *p) {
    return plan_is_elastic(p) ? (struct dist_env){.rank = 0, .world_size = 1, .local_world_size = 1} : p->env;
}

double plan_row_memory(const struct plan *plan) {
    const struct dataset_info *info = &plan->info;
    double rows = (double)info->train_rows + (double)info->validation_rows + (double)info->test_rows;
    double values = (double)(info->input_size + info->target_size);
    if (info->windows.steps) {
        rows = (double)info->windows.rows;
        values = (double)info->windows.features + (double)info->target_size / (double)info->windows.target_steps;
    }
    double bytes = rows * values * sizeof(float);
    return info->input_kind == INPUT_TOKENS || bytes > (double)plan->config->dataset.cache_mb * 0x1p20 ? 0 : bytes;
}

status plan_explain_rows(status failure) {
    struct text there = {0};
    struct rlimit limit;
    if (status_code(failure) != STATUS_MEMORY) return failure;
    if (memory_available() != UINT64_MAX)
        text_printf(&there, "; %.0f MiB of memory are free here", (double)memory_available() / 0x1p20);
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        text_printf(&there, ", ulimit -v allows a process %.0f MiB", (double)limit.rlim_cur / 0x1p20);
    status s = status_new(STATUS_IO,
                          "the rows of the dataset do not fit in memory: %s%s; use a smaller dataset.cache_mb, fewer "
                          "processes on a host or fewer rows",
                          status_message(failure), text_string(&there));
    text_free(&there);
    status_free(failure);
    return s;
}

status plan_explain_memory(const struct plan *plan, status failure) {
    if (status_code(failure) != STATUS_MEMORY) return failure;
    const struct device_memory *m = plan ? &plan->memory : NULL;
    double model = m ? (double)m->parameters + (double)m->optimizer + (double)m->activations : 0;
    if (model > 0 && plan_row_memory(plan) > model) return plan_explain_rows(failure);
    status s = status_new(STATUS_USAGE,
                          "the run does not fit in memory: %s; use a smaller sampler.batch_size, model or dataset",
                          status_message(failure));
    status_free(failure);
    return s;
}

/* `check` is also for runs on other machines: it continues without a device that this machine lacks. */
static status open_device(struct plan *p) {
    bool is_check = p->purpose == PLAN_CHECK;
    status s = config_create_device(p->config, is_check ? NULL : &p->env, p->purpose == PLAN_TRAINING, &p->device);
    if (!is_check || status_code(s) != STATUS_USAGE) return s;
    p->missing = s;
    device_destroy(p->device);
    p->device = NULL;
    return OK;
}

static status open_data(struct plan *p, const struct plan_options *options) {
    if (options->info) {
        p->info = *options->info;
        return OK;
    }
    struct dataset_config dataset = p->config->dataset;
    dataset.local_ranks = p->env.local_world_size;
    bool reads_rows = p->purpose != PLAN_CHECK || p->reads_all;
    if (!p->dataset) TRY(plan_explain_rows(dataset_open(&dataset, p->loss->wants_classes, !reads_rows, &p->dataset)));
    p->info = *dataset_info(p->dataset);
    return OK;
}

static status plan_objective(struct plan *p) {
    p->objective = calloc(1, sizeof *p->objective);
    if (!p->objective) return status_memory("the losses");
    p->loss_config = p->objective;
    return config_plan_objective(p->config, p->model, &p->info, p->objective);
}

/* Sets the weights of `balanced` in a copy of the config. Outputs without a class of the data have the weight 1. */
static status balance_loss(struct plan *p) {
    const struct real_list *weights = &p->info.class_weights;
    const struct shape *output = &p->model->out;
    if (!weights->count) return OK;
    size_t outputs = output->dims ? (size_t)output->size[output->dims - 1] : 0, size = p->loss->variant.schema->size;
    p->balanced = malloc(size);
    p->class_weights = calloc(outputs + 1, sizeof *p->class_weights);
    if (!p->balanced || !p->class_weights) return status_memory("the weights of %zu classes", outputs);
    memcpy(p->balanced, p->loss_config, size);
    for (size_t i = 0; i < outputs; i++) p->class_weights[i] = i < weights->count ? weights->items[i] : 1;
    *p->loss->class_weight(p->balanced) = (struct real_list){.items = p->class_weights, .count = outputs};
    p->loss_config = p->balanced;
    return OK;
}

static status plan_layers(struct plan *p, size_t cached_positions) {
    TRY(config_plan_model(p->config, &p->info, cached_positions, true, &p->model));
    TRY(model_check_used(p->model));
    if (p->dataset) TRY(input_check_padding(p->model, dataset_preparation(p->dataset)));
    if (p->dataset && (p->purpose != PLAN_CHECK || p->reads_all))
        TRY(input_check(p->model, p->dataset, &p->config->dataset, p->reads_all));
    p->model->target_size = p->info.target_size;
    p->loss_config = p->config->loss.config;
    if (p->config->losses.count) TRY(plan_objective(p));
    TRY(balance_loss(p));
    return config_check_model(p->config, p->model);
}

/* Not for rows without targets, as in predict. */
static status check_loss_and_metrics(const struct plan *p) {
    const struct config *c = p->config;
    if (p->info.target_size == 0) return OK;
    TRY(config_check_loss(c, p->model, &p->info));
    struct evaluation_options options = {.metrics = &c->train.metrics,
                                         .loss = p->loss,
                                         .loss_config = p->loss_config,
                                         .info = &p->info,
                                         .output = &p->model->out};
    return evaluation_check_size(&options);
}

/* A single row has nothing to be compared with: its loss is always 0. */
static status check_compared_rows(const struct plan *p) {
    if (p->batch * (size_t)p->env.world_size > 1 || !p->objective) return OK;
    for (size_t i = 0; i < p->objective->count; i++) {
        const struct objective_term *t = &p->objective->terms[i];
        if (t->loss->compares_rows)
            return status_new(STATUS_USAGE,
                              "%s: losses: %s: compares the rows of a batch, and a batch is a single row; increase "
                              "sampler.batch_size",
                              place_text(t->place).s, t->name);
    }
    return OK;
}

/* Computes the batches and steps of an epoch. */
static status plan_batches(struct plan *p) {
    const struct config *c = p->config;
    const struct sampler_config *sampler = &c->sampler;
    int world = p->env.world_size;
    TRY(sampler_batch(sampler, world, &p->batch));
    TRY(loader_check(&p->info, sampler, p->batch, world));
    TRY(check_compared_rows(p));
    TRY(passes_check(c, p->model, p->info.train_rows, world));
    struct dist_env evaluates = plan_evaluation_env(p);
    p->rows = passes_rows(c, &p->info, &p->env, &evaluates, p->batch);
    size_t whole = sampler->shards ? (size_t)sampler->global_batch_size : p->batch;
    size_t length = sampler_length(sampler, p->info.train_rows, sampler->shards ? 1 : world);
    size_t per_step = (size_t)c->train.accumulate;
    p->batches = sampler->drop_last_batch ? length / whole : (length + whole - 1) / whole;
    p->steps = (p->batches + per_step - 1) / per_step;
    return OK;
}

static status plan_buckets(struct plan *p) {
    const struct config *c = p->config;
    if (c->sampler.shards || config_updates_in_backward(c, p->env.world_size)) return OK;
    struct ranges ranges;
    TRY(ranges_create(&p->model->params, &ranges));
    struct reducer_config config = {.bucket_cap_mb = c->dist.bucket_cap_mb, .first_bucket_mb = c->dist.first_bucket_mb};
    size_t *bucket_of = calloc(ranges.count + 1, sizeof *bucket_of);
    if (bucket_of) p->buckets = reducer_plan(ranges.ranges, ranges.count, &config, bucket_of);
    status s = bucket_of ? OK : status_memory("the buckets of the gradients");
    ranges_free(&ranges);
    free(bucket_of);
    return s;
}

static status plan_training(struct plan *p) {
    const struct config *c = p->config;
    int world = p->env.world_size;
    TRY(plan_batches(p));
    if (p->loss->accepts_half) model_allow_half_output(p->model);
    if (config_updates_in_backward(c, world)) model_split_gradients(p->model);
    TRY(plan_buckets(p));
    if (p->device) TRY(model_adapt_to_device(p->model, p->device));
    p->memory = device_memory_of(c, p->model, p->optimizer, &p->info, p->batch, world);
    if (p->objective) p->memory.activations += objective_memory(p->objective, p->batch);
    return p->device ? device_memory_check(&p->memory, p->device) : OK;
}

static status fill(struct plan *p, const struct plan_options *options) {
    TRY(open_device(p));
    TRY(open_data(p, options));
    TRY(plan_layers(p, options->cached_positions));
    TRY(check_loss_and_metrics(p));
    TRY(optimizer_plan_create(&p->config->optimizer, &p->model->params, &p->optimizer));
    if (p->purpose != PLAN_INFERENCE) return plan_training(p);
    p->batch = sampler_evaluation_batch(&p->config->sampler, p->env.world_size);
    return OK;
}

status plan_create(const struct config *config, const struct plan_options *options, struct plan **out) {
    *out = NULL;
    struct plan *p = calloc(1, sizeof *p);
    if (!p) {
        dataset_close(options->dataset);
        return plan_explain_memory(NULL, status_memory("the plan of a run"));
    }
    *p = (struct plan){.config = config,
                       .env = *options->env,
                       .purpose = options->purpose,
                       .reads_all = options->reads_all,
                       .loss = config_loss(config),
                       .dataset = options->dataset};
    status s = fill(p, options);
    s = plan_explain_memory(p, s);
    if (s)
        plan_destroy(p);
    else
        *out = p;
    return s;
}

void plan_destroy(struct plan *p) {
    if (!p) return;
    status_free(p->missing);
    optimizer_plan_destroy(p->optimizer);
    if (p->objective) objective_free(p->objective);
    free(p->objective);
    free(p->balanced);
    free(p->class_weights);
    model_destroy(p->model);
    dataset_close(p->dataset);
    device_destroy(p->device);
    free(p);
}
