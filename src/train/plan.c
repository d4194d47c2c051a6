/* Everything here is asked of the same functions that training uses. */
#include "train/plan.h"
#include "train/save.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "data/loader.h"
#include "dist/shard_tree.h"
#include "optim/optimizer_groups.h"
#include "train/device_memory.h"
#include "train/parallel/averaging.h"
#include "train/parallel/ranges.h"
#include "train/parallel/zero.h"
#include "train/parts.h"
#include "train/passes.h"
#include "train/rehearsal.h"

#define MIB (1024.0 * 1024.0)

static void describe_layers(const struct model *model, struct text *out) {
    text_printf(out, "\n%-5s %-12s %-18s %-18s %12s\n", "layer", "type", "input", "output", "parameters");
    for (size_t i = 0; i < model->layer_count; i++) {
        const struct layer *layer = &model->layers[i];
        struct text in = {0}, shape = {0};
        size_t elements = 0;
        for (size_t p = 0; p < layer->param_count; p++) elements += model->params.items[layer->first_param + p].count;
        shape_print(&layer->in, &in);
        shape_print(&layer->out, &shape);
        text_printf(out, "%-5s %-12s %-18s %-18s %12zu\n", layer->name, layer->type->variant.name, text_string(&in),
                    text_string(&shape), elements);
        text_free(&in);
        text_free(&shape);
    }
    text_printf(out, "%zu parameter%s in %zu tensor%s\n", model->params.elements,
                text_plural(model->params.elements, "s"), model->params.count, text_plural(model->params.count, "s"));
}

/* A line per pair of learning rate and weight decay, and one for what is frozen. */
static status describe_optimizer(const struct config *config, const struct params *params, struct text *out) {
    struct optimizer_plan *plan;
    size_t frozen = 0, elements = 0;
    TRY(optimizer_plan_create(&config->optimizer, params, &plan));
    for (size_t i = 0; i < plan->setting_count; i++) {
        const struct optimizer_setting *s = &plan->settings[i];
        text_printf(out, "%-14s %s: lr %g, weight_decay %g for %zu parameter%s in %zu tensor%s\n", i ? "" : "optimizer",
                    config->optimizer.name, s->lr, s->weight_decay, s->elements, text_plural(s->elements, "s"),
                    s->tensors, text_plural(s->tensors, "s"));
    }
    for (size_t i = 0; i < params->count; i++) {
        if (!params->items[i].is_frozen) continue;
        frozen++;
        elements += params->items[i].count;
    }
    if (frozen)
        text_printf(out, "frozen         %zu parameter%s in %zu tensor%s\n", elements, text_plural(elements, "s"),
                    frozen, text_plural(frozen, "s"));
    optimizer_plan_destroy(plan);
    return OK;
}

static status describe_buckets(const struct config *config, const struct params *params, int world_size,
                               struct text *out) {
    struct ranges ranges;
    TRY(ranges_create(params, &ranges));
    size_t *bucket_of = calloc(ranges.count + 1, sizeof *bucket_of), elements = 0;
    if (!bucket_of) {
        ranges_free(&ranges);
        return status_memory("the buckets of the gradients");
    }
    for (size_t i = 0; i < ranges.count; i++) elements += ranges.ranges[i].count;
    struct reducer_config buckets = {.bucket_cap_mb = config->dist.bucket_cap_mb,
                                     .first_bucket_mb = config->dist.first_bucket_mb};
    size_t count = reducer_plan(ranges.ranges, ranges.count, &buckets, bucket_of);
    double bytes = (double)elements * sizeof(float);
    bool is_compressed = config->dist.gradient_compression == COMPRESSION_BFLOAT16;
    double sent = 2 * bytes * (world_size - 1) / world_size / (is_compressed ? 2 : 1);
    text_printf(out, "gradients      %.2f MiB in %zu bucket%s", bytes / MIB, count, text_plural(count, "s"));
    if (world_size > 1)
        text_printf(out, ", about %.2f MiB sent by each of %d processes in a step%s", sent / MIB, world_size,
                    is_compressed ? ", as bfloat16" : "");
    text_add(out, "\n");
    ranges_free(&ranges);
    free(bucket_of);
    return OK;
}

/* Instead of buckets. */
static void describe_shards(const struct config *config, const struct model *model, int world_size, struct text *out) {
    size_t kept, sent, floats = model->params.trained + model->buffers.total, shards = config->sampler.shards;
    double vector = (double)floats * sizeof(float) / MIB;
    shard_tree_cost(shards, world_size, &kept, &sent);
    text_printf(out, "gradients      %.2f MiB for each of %zu shard%s, up to %zu of a batch on a process\n", vector,
                shards, text_plural(shards, "s"), (shards + (size_t)world_size - 1) / (size_t)world_size);
    text_printf(out, "sums           %.2f MiB on each process", (double)kept * vector);
    if (world_size > 1)
        text_printf(out, ", about %.2f MiB sent by each of %d processes in a step", (double)sent * vector, world_size);
    text_add(out, "\n");
}

static void warn_of_activation(const struct config *config, const struct model *model, struct text *out) {
    struct text warning = {0};
    loss_warn_of_activation(loss_type_at((size_t)config->loss.index), model, &warning);
    if (warning.length) text_printf(out, "\nwarning        %s", text_string(&warning));
    text_free(&warning);
}

/* Bytes of the rows that a rank keeps in memory, as float32. */
static double row_memory(const struct config *config, const struct dataset_info *info) {
    double rows = (double)info->train_rows + (double)info->validation_rows;
    double bytes = rows * (double)(info->input_size + info->target_size) * sizeof(float);
    return info->input_kind == INPUT_TOKENS || bytes > (double)config->dataset.cache_mb * MIB ? 0 : bytes;
}

/* [bytes] of one rank against what the machine, or the control group, has left. */
static void warn_of_memory(double bytes, int local_size, struct text *out) {
    uint64_t left = memory_available();
    if (left == UINT64_MAX || bytes * local_size <= (double)left) return;
    text_printf(out, "warning        %d process%s of at least %.0f MiB each, but %.0f MiB of memory are free here\n",
                local_size, text_plural((uint64_t)local_size, "es"), bytes / MIB, (double)left / MIB);
}

/* Nothing for float32 as it is. */
static void describe_precision(const struct config *config, struct text *out) {
    static const char *const lines[] = {
        [PRECISION_TF32] = "float32, its products in TF32",
        [PRECISION_BFLOAT16] = "products in bfloat16; weights, gradients and sums in float32",
        [PRECISION_FLOAT16] = "products in float16; weights, gradients and sums in float32; the loss scaled by"};
    enum precision precision = config_precision(config);
    if (precision == PRECISION_FLOAT32 || (precision == PRECISION_TF32 && config->device != DEVICE_CUDA)) return;
    text_printf(out, "\nprecision      %s", lines[precision]);
    if (precision == PRECISION_FLOAT16) text_printf(out, " %g at first", config->train.grad_scaler.init_scale);
}

/* Instead of buckets, where nothing is averaged. */
static void describe_in_backward(const struct params *params, struct text *out) {
    text_printf(out, "gradients      %.2f MiB at a time; each is applied during backward (optimizer.in_backward)\n",
                (double)params_gradient_floats(params) * sizeof(float) / MIB);
}

/* Whole and short last batches; shards. */
static struct rehearsal_rows rows_of_passes(const struct config *config, int world_size,
                                            const struct dataset_info *info, size_t batch) {
    size_t world = (size_t)world_size, length = sampler_length(&config->sampler, info->train_rows, world_size);
    size_t own = config->sampler.shards ? info->validation_rows : (info->validation_rows + world - 1) / world;
    struct rehearsal_rows rows = {{batch, length % batch}, {own < batch ? own : batch, own % batch}};
    if (config->sampler.shards)
        rows.training[1] = (size_t)config->sampler.global_batch_size / config->sampler.shards;
    else if (length < batch)
        rows.training[0] = length;
    if (config->sampler.drop_last_batch && !config->sampler.shards) rows.training[1] = 0;
    return rows;
}

/* Of a GPU, which [device] is, or would be where it is NULL. */
static status describe_gpu(const struct config *config, int world_size, const struct dataset_info *info,
                           struct model *model, size_t batch, struct device *device, struct text *out) {
    struct device_memory memory = device_memory_of(config, model, info, batch, world_size);
    struct rehearsal_rows rows = rows_of_passes(config, world_size, info, batch);
    if (device) {
        TRY(device_memory_check(&memory, device));
        TRY(device_memory_info(device, &memory.left, &memory.all));
        memory.left += device_memory_used(device); /* before the device was opened */
    }
    if (device) TRY(rehearsal_run(config, model, info, batch, &rows, world_size, device, &memory.whole));
    device_memory_describe(&memory, device, out);
    return OK;
}

/* How long the run is, with epochs of [steps]. */
static void describe_length(const struct config *config, size_t steps, struct text *out) {
    uint64_t epochs = (uint64_t)config->train.epochs;
    text_add(out, "run            ");
    if (config->train.epochs != SCHEMA_NO_INT)
        text_printf(out, "%llu epoch%s, ", (unsigned long long)epochs, text_plural(epochs, "s"));
    steps = config->train.epochs == SCHEMA_NO_INT ? (size_t)config->train.steps : steps * epochs;
    text_printf(out, "%zu step%s\n", steps, text_plural(steps, "s"));
}

static status describe(const struct config *config, int world_size, int local_size, const struct dataset *dataset,
                       struct model *model, size_t batch, struct device *device, struct text *out) {
    const struct dataset_info *info = dataset_info(dataset);
    size_t shards = config->sampler.shards, whole = shards ? (size_t)config->sampler.global_batch_size : batch;
    size_t parameters, activations,
        length = sampler_length(&config->sampler, info->train_rows, shards ? 1 : world_size);
    size_t batches = config->sampler.drop_last_batch ? length / whole : (length + whole - 1) / whole;
    size_t group = (size_t)config->train.accumulate, steps = (batches + group - 1) / group;
    size_t whole_state = optimizer_memory(&config->optimizer, &model->params);
    double state = (double)zero_memory(&config->dist, &model->params, world_size, whole_state);
    model_memory(model, batch, &parameters, &activations);
    text_printf(out, "%s: %zu training row%s, %zu validation row%s, ", config->name, info->train_rows,
                text_plural(info->train_rows, "s"), info->validation_rows, text_plural(info->validation_rows, "s"));
    if (info->target_kind == TARGET_CLASS)
        text_printf(out, "%lld class%s\n", (long long)info->classes, text_plural((uint64_t)info->classes, "es"));
    else
        text_printf(out, "%zu target value%s a row\n", info->target_size, text_plural(info->target_size, "s"));
    describe_layers(model, out);
    text_printf(out, "\nprocesses      %d, %zu row%s per %s", world_size, batch, text_plural(batch, "s"),
                shards ? "shard" : "batch and process");
    if (group > 1) text_printf(out, ", %zu batches per step", group);
    if (config->train.device == DEVICE_AUTO && config->device == DEVICE_CUDA)
        text_add(out, "\ndevice         train.device: auto takes the GPU");
    if (config->device_why)
        text_printf(out, "\ndevice         train.device: auto takes the CPU: %s", config->device_why);
    describe_precision(config, out);
    for (size_t i = 0; config_ignored(config, i); i++)
        text_printf(out, "\nignored        %s", config_ignored(config, i));
    warn_of_activation(config, model, out);
    text_printf(out, "\nepoch          %zu batch%s, %zu step%s\n", batches, text_plural(batches, "es"), steps,
                text_plural(steps, "s"));
    describe_length(config, steps, out);
    text_add(out, "checkpoints    ");
    save_describe(config, out);
    text_add(out, "\n");
    text_printf(out, "memory         %.2f MiB parameters and gradients, %.2f MiB optimizer, %.2f MiB activations\n",
                (double)parameters / MIB, state / MIB, (double)activations / MIB);
    if (config->dist.zero_stage > 0)
        text_printf(out, "shared         %.2f MiB of optimizer state over %d processes: %.2f MiB less on each\n",
                    (double)whole_state / MIB, world_size, ((double)whole_state - state) / MIB);
    bool is_on_gpu = config->device == DEVICE_CUDA;
    if (is_on_gpu)
        TRY(describe_gpu(config, world_size, info, model, batch, device, out));
    else
        warn_of_memory((double)parameters + state + (double)activations + row_memory(config, info), local_size, out);
    text_printf(out, "step           %.3f GFLOP per process (forward and backward)\n",
                2e-9 * 3 * (double)model->multiply_adds * (double)(shards ? whole / (size_t)world_size : batch) *
                    (double)group);
    TRY(describe_optimizer(config, &model->params, out));
    if (shards) {
        describe_shards(config, model, world_size, out);
        return OK;
    }
    if (averaging_is_in_backward(config, world_size)) {
        describe_in_backward(&model->params, out);
        return OK;
    }
    if (optimizer_is_in_backward(&config->optimizer))
        text_printf(out, "in_backward    not with %d processes, which average gradients: they are kept\n", world_size);
    return describe_buckets(config, &model->params, world_size, out);
}

/* A file to resume from is read and verified, as the run would. */
static status check_resume(const char *resume) {
    struct checkpoint *checkpoint;
    if (strcmp(resume, "auto") == 0 || strcmp(resume, "never") == 0) return OK;
    TRY(status_prefix(checkpoint_open(resume, &checkpoint), "checkpoint.resume"));
    checkpoint_close(checkpoint);
    return OK;
}

/* Where this machine must be asked whether it can do that; *out NULL: plain float32 on the CPU. */
static status open_device(const struct config *config, struct device **out) {
    *out = NULL;
    if (config->train.precision == TRAIN_FLOAT32 && config->device != DEVICE_CUDA) return OK;
    return config_create_device(config, NULL, out);
}

/* *missing: what this machine has not, so that a run would be refused here. */
static status find_device(const struct config *config, struct device **out, status *missing) {
    *out = NULL;
    *missing = device_check(config_device_name(config));
    if (!*missing) *missing = open_device(config, out);
    if (!*missing || status_code(*missing) == STATUS_USAGE) return OK;
    status s = *missing;
    *missing = OK;
    return s;
}

status plan_explain_memory(status failure) {
    if (status_code(failure) != STATUS_MEMORY) return failure;
    status s = status_new(STATUS_USAGE,
                          "the run does not fit in memory: %s; use a smaller sampler.batch_size, model or dataset",
                          status_message(failure));
    status_free(failure);
    return s;
}

status plan_describe(const struct config *config, int world_size, int local_size, struct text *out, status *missing) {
    const struct loss_type *loss = loss_type_at((size_t)config->loss.index);
    struct dataset *dataset = NULL;
    struct model *model = NULL;
    struct device *device = NULL;
    size_t batch;
    status s = find_device(config, &device, missing);
    if (!s) s = check_resume(config->checkpoint.resume);
    if (!s) s = dataset_open(&config->dataset, loss->wants_classes, true, &dataset);
    if (!s) {
        const struct dataset_info *info = dataset_info(dataset);
        struct shape input = dataset_shape(info);
        s = model_plan(&config->model, &input, &model);
        if (!s) s = model_check_used(model);
        if (!s) s = config_check_model(config, model);
        if (!s && averaging_is_in_backward(config, world_size)) model_split_gradients(model);
    }
    if (!s) s = config_check_loss(config, model, dataset_info(dataset));
    if (!s) s = sampler_batch(&config->sampler, world_size, &batch);
    if (!s) s = sampler_check_rows(&config->sampler, dataset_info(dataset)->train_rows, world_size, batch);
    if (!s) s = passes_check(config, model, dataset_info(dataset)->train_rows, world_size);
    if (!s && loss->accepts_half) model_allow_half_output(model);
    if (!s && device) s = model_adapt_to_device(model, device);
    if (!s) s = describe(config, world_size, local_size, dataset, model, batch, device, out);
    if (!s && *missing) text_printf(out, "not here       %s\n", status_message(*missing));
    s = plan_explain_memory(s);
    if (s) {
        status_free(*missing);
        *missing = OK;
    }
    model_destroy(model);
    dataset_close(dataset);
    device_destroy(device);
    return s;
}
