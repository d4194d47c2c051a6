/* Checks are in the order in which a user would correct the errors: device, data, model, loss, optimizer, batches,
 * memory. */
#include "train/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/buffer.h"
#include "base/scoped.h"
#include "base/system/machine.h"
#include "data/dataset/loader.h"
#include "data/sampling/sampler.h"
#include "dist/reducer.h"
#include "train/metrics/evaluation.h"
#include "train/parallel/zero.h"
#include "train/plan/feed.h"

/* ---- the memory of a device ---- */

/* The modules that allocate memory also compute its size. */

#define MIB (1024.0 * 1024.0)

static struct device_memory device_memory_of(const struct config *config, const struct model *model,
                                             const struct optimizer_plan *optimizer, const struct dataset_info *info,
                                             size_t batch, int world_size) {
    size_t values = model->params.total * sizeof(float);
    struct device_memory m = {.average = config->train.ema.decay > 0 ? values : 0,
                              .rounded = config->train.precision == TRAIN_FLOAT32 ? 0 : values / 2,
                              .batches = feed_memory(info, batch)};
    size_t whole = optimizer_memory(&config->optimizer, optimizer, &model->params);
    m.optimizer = zero_memory(&config->dist, &model->params, world_size, whole);
    model_memory(model, batch, &m.parameters, &m.activations);
    size_t shards = zero_gradient_memory(&config->dist, &model->params, world_size);
    m.parameters += shards;
    if (!model->params.value_floats) return m;
    m.parameters += shards; /* of values; products round those that are gathered */
    m.average = m.average ? shards : 0;
    m.rounded = 0;
    return m;
}

static size_t sum_of(const struct device_memory *m) {
    return m->parameters + m->optimizer + m->average + m->activations + m->rounded + m->batches;
}

static void describe(const struct device_memory *m, struct text *out) {
    text_printf(out, "%.2f MiB parameters and gradients, %.2f optimizer, %.2f activations, %.2f batches",
                (double)m->parameters / MIB, (double)m->optimizer / MIB, (double)m->activations / MIB,
                (double)m->batches / MIB);
    if (m->average) text_printf(out, ", %.2f average of the weights", (double)m->average / MIB);
    if (m->rounded) text_printf(out, ", %.2f rounded weights", (double)m->rounded / MIB);
}

static status device_memory_check(const struct device_memory *memory, struct device *device) {
    size_t free_bytes, total, sum = sum_of(memory);
    if (device_is_host(device)) return OK;
    TRY(device_memory_info(device, &free_bytes, &total));
    if (sum <= free_bytes) return OK;
    SCOPED_TEXT parts = {0};
    describe(memory, &parts);
    return status_usage("%.0f MiB of memory are needed, and %s has %.0f MiB of %.0f MiB free (%s): use a smaller "
                        "sampler.batch_size or model, or more GPUs with dist.zero_stage: 3",
                        (double)sum / MIB, device_describe(device), (double)free_bytes / MIB, (double)total / MIB,
                        text_string(&parts));
}

void device_memory_describe(const struct device_memory *memory, const struct device *device, struct text *out) {
    size_t sum = sum_of(memory), whole = memory->measured ? memory->measured : sum;
    text_printf(out, "GPU memory     %.2f MiB", (double)whole / MIB);
    if (device) text_printf(out, " of %.0f MiB free on %s", (double)memory->free / MIB, device_describe(device));
    text_add(out, memory->measured ? ": " : ", and the workspace of operators: ");
    describe(memory, out);
    if (memory->measured) text_printf(out, ", %.2f workspace of operators", (double)(whole - sum) / MIB);
    text_add(out, "\n");
    if (device && device_code(device)) text_printf(out, "GPU code       %s\n", device_code(device));
}

/* ---- passes: rows, and whether they are enough for every layer ---- */

/* Batch norm needs more than one value per channel; PyTorch raises an error in the middle of an epoch, this check
 * before the first step. Shares differ by at most one row, so only the first and the last rank are checked. */

/* The batches of an epoch. */
struct epoch {
    const struct sampler_config *sampler;
    size_t train_rows, batch; /* rows of a whole batch of a rank; with shards of all ranks */
    int world;
    bool has_last; /* the run reaches a short last batch */
};

static status too_few(const struct layer *layer, const char *where, const char *hint) {
    return status_usage("%s: %s: training needs more than one value per channel (as in PyTorch), but %s; %s",
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

static status passes_check(const struct config *config, const struct sampler_config *sampler, const struct model *model,
                           size_t train_rows, int world_size) {
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

static struct pass_rows passes_rows(const struct sampler_config *sampler, const struct dataset_info *info,
                                    const struct dist_env *env, const struct dist_env *evaluates, size_t batch) {
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

/* ---- the rows ---- */

/* Rows are read as batches are, so that what is checked is what the model gets. */

#define ROWS 256 /* at a time */

struct checked {
    const struct model *model;
    struct dataset *dataset;
    const char *validation_path, *path;
    float *inputs;
    void *targets;
    int64_t positions[ROWS];
};

static status check_part(struct checked *c, enum dataset_part part, size_t rows) {
    size_t size = dataset_info(c->dataset)->input_size;
    const char *path = part == DATASET_VALIDATION && c->validation_path ? c->validation_path : c->path;
    for (size_t first = 0, count; first < rows; first += count) {
        count = rows - first < ROWS ? rows - first : ROWS;
        for (size_t i = 0; i < count; i++) c->positions[i] = (int64_t)(first + i);
        TRY(dataset_read(c->dataset, part, c->positions, count, c->inputs, c->targets));
        for (size_t i = 0; i < count; i++) {
            status s = model_check_row(c->model, c->inputs + i * size);
            SCOPED_TEXT row = {0};
            if (s) dataset_add_rows(c->dataset, part, 0, (int64_t)(first + i), &row);
            s = status_prefix(s, "%s: row %s", path ? path : "the dataset", text_string(&row));
            TRY(s);
        }
    }
    return OK;
}

static status input_check(const struct model *model, struct dataset *dataset, const struct dataset_config *config,
                          bool reads_all) {
    const struct dataset_info *info = dataset_info(dataset);
    struct checked c = {
        .model = model, .dataset = dataset, .path = config->path, .validation_path = config->validation.path};
    if (!reads_all && !model_checks_rows(model)) return OK;
    TRY(buffer_new(ROWS * info->input_size * sizeof *c.inputs, "rows of the dataset", (void **)&c.inputs));
    status s = buffer_new(ROWS * dataset_target_bytes(info) + 1, "rows of the dataset", &c.targets);
    if (!s) s = check_part(&c, DATASET_TRAIN, info->train_rows);
    if (!s) s = check_part(&c, DATASET_VALIDATION, info->validation_rows);
    if (!s) s = check_part(&c, DATASET_TEST, info->test_rows);
    buffer_free(c.inputs);
    buffer_free(c.targets);
    return s;
}

/* The first element of a row of all inputs that [tensor] has; SIZE_MAX: it is the output of a layer that computes. */
static size_t first_of_input(const struct model *model, size_t tensor) {
    if (tensor == 0) return 0;
    for (size_t i = 0; i < model->node_count; i++) {
        if (model->nodes[i].out != tensor || !model->nodes[i].layer) continue;
        const struct layer *layer = model->nodes[i].layer;
        return layer->type->is_input ? ((const struct model_input *)layer->config)->first : SIZE_MAX;
    }
    return SIZE_MAX;
}

static status check_padding(const struct layer *layer, int32_t padding, const struct prepared_column *column) {
    if (column->type != COLUMN_TEXT || padding < 0 || padding == column->padding) return OK;
    return status_usage("%s: %s: padding_idx is %d, but the column '%.60s' has the padding %d",
                        place_text(layer->place).s, layer->path, padding, column->name, column->padding);
}

static status input_check_padding(const struct model *model, const struct preparation *preparation) {
    for (size_t i = 0; preparation && i < model->node_count; i++) {
        const struct graph_node *node = &model->nodes[i];
        if (!node->layer) continue;
        struct layer_facts facts = layer_facts_of(node->layer);
        if (!facts.reads_tokens) continue;
        size_t first = first_of_input(model, node->in[0]);
        if (first >= preparation->features) continue;
        TRY(check_padding(node->layer, facts.padding, &preparation->items[preparation_column_of(preparation, first)]));
    }
    return OK;
}

/* Scaled tokens, lengths and masks may be other ones: of a constant feature each is 0. */
static status input_check_unscaled(const struct model *model, const struct dataset *dataset) {
    const double *mean, *scale;
    size_t features, size = dataset_info(dataset)->input_size;
    dataset_scaler(dataset, &mean, &scale, &features);
    for (size_t i = 0; i < model->layer_count; i++) {
        const struct layer *layer = &model->layers[i];
        size_t index = layer_facts_of(layer).unscaled;
        const struct shape *in = index ? &layer->ins[index - 1] : NULL;
        if (!in || !in->input || in->is_tokens) continue;
        bool is_scaled = dataset_divide(dataset) != 1;
        for (size_t e = in->input - 1; features && e < in->input - 1 + shape_elements(in); e++) {
            size_t f = features == size ? e : e * features / size;
            is_scaled = is_scaled || mean[f] != 0 || scale[f] != 1;
        }
        if (is_scaled)
            return status_new(
                STATUS_USAGE,
                "%s: %s: dataset.scale or divide would change %s, which must be as in the file; scale the other inputs "
                "in the file instead, or write {mean: [...], std: [...]} with 0 and 1 for these",
                place_text(layer->place).s, layer->path,
                index == 3   ? "its mask"
                : index == 2 ? "its lengths"
                             : "its tokens");
    }
    return OK;
}

/* ---- plan ---- */

bool plan_is_elastic(const struct plan *p) { return p->config->determinism.mode == DETERMINISM_ELASTIC; }

struct dist_env plan_evaluation_env(const struct plan *p) {
    return plan_is_elastic(p) ? (struct dist_env){.rank = 0, .world_size = 1, .local_world_size = 1} : p->env;
}

/* Bytes of the rows in the memory of a rank, as float32. */
static double row_memory(const struct plan *plan) {
    const struct dataset_info *info = &plan->info;
    double rows = (double)info->train_rows + (double)info->validation_rows + (double)info->test_rows;
    double values = (double)(info->input_size + info->target_size);
    if (info->windows.steps) {
        rows = (double)info->windows.rows;
        values = (double)info->windows.features + (double)info->target_size / (double)info->windows.target_steps;
    }
    if (plan->config->dataset.draw.type) values /= (double)info->input_count; /* rows are stored once */
    double bytes = rows * values * sizeof(float);
    return info->input_kind == INPUT_TOKENS || bytes > (double)plan->config->dataset.cache_mb * 0x1p20 ? 0 : bytes;
}

double plan_host_memory(const struct plan *plan) {
    const struct device_memory *m = &plan->memory;
    return (double)(m->parameters + m->optimizer + m->activations) + row_memory(plan);
}

double plan_checkpoint_bytes(const struct plan *plan) {
    const struct params *params = &plan->model->params;
    double values = (double)params->total * sizeof(float) + (double)plan->memory.average;
    return values + (double)optimizer_memory(&plan->config->optimizer, plan->optimizer, params);
}

status plan_explain_rows(status failure) {
    SCOPED_TEXT there = {0};
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
    status_free(failure);
    return s;
}

status plan_explain_memory(const struct plan *plan, status failure) {
    if (status_code(failure) != STATUS_MEMORY) return failure;
    const struct device_memory *m = plan ? &plan->memory : NULL;
    double model = m ? (double)m->parameters + (double)m->optimizer + (double)m->activations : 0;
    if (model > 0 && row_memory(plan) > model) return plan_explain_rows(failure);
    status s = status_usage("the run does not fit in memory: %s; use a smaller sampler.batch_size, model or dataset",
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
    dataset.request.local_ranks = p->env.local_world_size;
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
    if (p->dataset) TRY(input_check_padding(p->model, dataset_preparation(p->dataset)));
    if (p->dataset && (p->purpose != PLAN_CHECK || p->reads_all))
        TRY(input_check(p->model, p->dataset, &p->config->dataset, p->reads_all));
    if (p->dataset && (p->purpose != PLAN_CHECK || p->reads_all)) TRY(input_check_unscaled(p->model, p->dataset));
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
    struct evaluation_options options = {.metrics = &c->train.metric_list,
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
            return status_usage("%s: losses: %s: compares the rows of a batch, and a batch is a single row; increase "
                                "sampler.batch_size",
                                place_text(t->place).s, t->name);
    }
    return OK;
}

/* Computes the batches and steps of an epoch. */
static status plan_batches(struct plan *p) {
    const struct config *c = p->config;
    const struct sampler_config *sampler = &p->sampler;
    int world = p->env.world_size;
    TRY(sampler_open_indices(&c->sampler, p->info.train_rows, world, &p->indices));
    p->sampler.indices = p->indices;
    TRY(sampler_batch(sampler, world, &p->batch));
    TRY(loader_check(&p->info, sampler, p->batch, world));
    TRY(check_compared_rows(p));
    TRY(passes_check(c, sampler, p->model, p->info.train_rows, world));
    struct dist_env evaluates = plan_evaluation_env(p);
    p->rows = passes_rows(sampler, &p->info, &p->env, &evaluates, p->batch);
    size_t whole = sampler->shards ? (size_t)sampler->global_batch_size : p->batch;
    size_t length = sampler_length(sampler, p->info.train_rows, sampler->shards ? 1 : world);
    size_t per_step = (size_t)c->train.accumulate;
    p->batches = sampler->drop_last_batch ? length / whole : (length + whole - 1) / whole;
    p->steps = (p->batches + per_step - 1) / per_step;
    return OK;
}

static status plan_buckets(struct plan *p) {
    const struct config *c = p->config;
    const char *why_not;
    if (c->sampler.shards || config_updates_in_backward(c, &p->env, &why_not)) return OK;
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
    const char *why_not;
    int world = p->env.world_size;
    TRY(plan_batches(p));
    if (p->loss->accepts_half) model_allow_half_output(p->model);
    if (config_updates_in_backward(c, &p->env, &why_not)) model_split_gradients(p->model);
    if (zero_shards_gradients(&c->dist, world)) TRY(zero_group_gradients(&c->dist, c->device == DEVICE_CUDA, p->model));
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
                       .sampler = config->sampler,
                       .dataset = options->dataset};
    status s = fill(p, options);
    s = config_add_place(config, plan_explain_memory(p, s));
    if (s) plan_destroy(p);
    if (!s) *out = p;
    return s;
}

void plan_destroy(struct plan *p) {
    if (!p) return;
    status_free(p->missing);
    optimizer_plan_destroy(p->optimizer);
    sampler_close_indices(p->indices);
    if (p->objective) objective_free(p->objective);
    free(p->objective);
    free(p->balanced);
    free(p->class_weights);
    model_destroy(p->model);
    dataset_close(p->dataset);
    device_destroy(p->device);
    free(p);
}
