/* `check`: creates what a run creates, except the group of ranks, the loaders and the run folder, and describes or
 * draws it. Also a warning about the schedule of a run. */
#include "train/run/run.h"

#include <math.h>
#include <string.h>

#include "base/files/json_lines.h"
#include "base/scoped.h"
#include "base/system/machine.h"
#include "checkpoint/checkpoint.h"
#include "data/columns/columns.h"
#include "dist/shard_tree.h"
#include "train/loop/dry_run.h"
#include "train/loop/progress.h"
#include "train/loop/save.h"
#include "train/loop/trainer.h"
#include "train/metrics/metrics.h"
#include "train/parallel/zero.h"
#include "train/plan/plan.h"
#include "train/weights/weights.h"

/* ---- the lines of `check` ---- */

#define MIB (1024.0 * 1024.0)
#define MAX_LABELS 10 /* that are printed */
#define MAX_SCALES 8  /* targets whose scale is printed */

enum layer_column { LAYER_NAME, LAYER_TYPE, LAYER_INPUT, LAYER_OUTPUT, LAYER_COLUMNS };

/* The cells of a layer, in [cells]. */
static void describe_layer(const struct layer *layer, struct text cells[LAYER_COLUMNS]) {
    text_add(&cells[LAYER_NAME], layer->name);
    text_add(&cells[LAYER_TYPE], layer->type->variant.name);
    for (size_t i = 0; i < layer->in_count; i++) {
        text_add(&cells[LAYER_INPUT], i ? ", " : "");
        text_add(&cells[LAYER_INPUT], shape_text(&layer->ins[i]).s);
    }
    text_add(&cells[LAYER_OUTPUT], shape_text(&layer->out).s);
}

static size_t parameters_of(const struct model *model, const struct layer *layer) {
    size_t elements = 0;
    for (size_t p = 0; p < layer->param_count; p++) elements += model->params.items[layer->first_param + p].count;
    return elements;
}

/* A line per layer; with a column for `from:` if a layer has it. */
static void describe_layers(const struct model *model, struct text *out) {
    static const char *const titles[LAYER_COLUMNS] = {"layer", "type", "input", "output"};
    int widths[LAYER_COLUMNS] = {5, 12, 18, 18};
    bool has_sources = false;
    for (size_t i = 0; i < model->layer_count; i++) {
        struct text cells[LAYER_COLUMNS] = {0};
        describe_layer(&model->layers[i], cells);
        has_sources |= model->layers[i].from.count > 0;
        for (int c = 0; c < LAYER_COLUMNS; c++) {
            if ((size_t)widths[c] < cells[c].length) widths[c] = (int)cells[c].length;
            text_free(&cells[c]);
        }
    }
    text_add(out, "\n");
    for (int c = 0; c < LAYER_COLUMNS; c++) text_printf(out, "%-*s ", widths[c], titles[c]);
    text_printf(out, "%12s%s\n", "parameters", has_sources ? "  from" : "");
    for (size_t i = 0; i < model->layer_count; i++) {
        const struct layer *layer = &model->layers[i];
        struct text cells[LAYER_COLUMNS] = {0};
        describe_layer(layer, cells);
        for (int c = 0; c < LAYER_COLUMNS; c++) {
            text_printf(out, "%-*s ", widths[c], text_string(&cells[c]));
            text_free(&cells[c]);
        }
        text_printf(out, "%12zu", layer->is_sharing ? 0 : parameters_of(model, layer));
        for (size_t n = 0; n < layer->from.count; n++) text_printf(out, "%s%s", n ? ", " : "  ", layer->from.items[n]);
        text_add(out, "\n");
    }
    text_printf(out, "%zu parameter%s in %zu tensor%s\n", model->params.elements,
                text_plural(model->params.elements, "s"), model->params.count, text_plural(model->params.count, "s"));
}

/* A line per pair of learning rate and weight decay, and one for what is frozen. */
static void describe_optimizer(const struct plan *p, struct text *out) {
    const struct params *params = &p->model->params;
    size_t frozen = 0, elements = 0;
    for (size_t i = 0; i < p->optimizer->setting_count; i++) {
        const struct optimizer_setting *s = &p->optimizer->settings[i];
        bool has_own_keys = s->config != p->config->optimizer.config;
        text_printf(out, "%-14s %s: lr %g, weight_decay %g%s for %zu parameter%s in %zu tensor%s\n",
                    i ? "" : "optimizer", p->config->optimizer.name, s->lr, s->weight_decay,
                    has_own_keys ? " and other keys of their group" : "", s->elements, text_plural(s->elements, "s"),
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
}

static void describe_buckets(const struct plan *p, struct text *out) {
    const struct params *params = &p->model->params;
    int world_size = p->env.world_size;
    size_t elements = 0;
    for (size_t i = 0; i < params->count; i++)
        if (!params->items[i].is_frozen) elements += params->items[i].count;
    double bytes = (double)elements * sizeof(float);
    bool is_compressed = p->config->dist.gradient_compression == COMPRESSION_BFLOAT16;
    double sent = 2 * bytes * (world_size - 1) / world_size / (is_compressed ? 2 : 1);
    text_printf(out, "gradients      %.2f MiB in %zu bucket%s", bytes / MIB, p->buckets, text_plural(p->buckets, "s"));
    if (world_size > 1)
        text_printf(out, ", about %.2f MiB sent by each of %d processes in a step%s", sent / MIB, world_size,
                    is_compressed ? ", as bfloat16" : "");
    text_add(out, "\n");
}

/* With elastic shards, instead of buckets. */
static void describe_shards(const struct config *config, const struct model *model, int world_size, struct text *out) {
    size_t kept, sent, floats = model->params.trained + model->buffers.total, shards = config->sampler.shards;
    double vector = (double)floats * sizeof(float) / MIB;
    shard_tree_cost(shards, world_size, &kept, &sent);
    text_printf(out, "gradients      %.2f MiB for each of %zu shard%s, up to %zu of a batch on a process\n", vector,
                shards, text_plural(shards, "s"), (shards + (size_t)world_size - 1) / (size_t)world_size);
    if (config->train.accumulate > 1) kept++;
    text_printf(out, "sums           %.2f MiB on each process", (double)kept * vector);
    if (world_size > 1)
        text_printf(out, ", about %.2f MiB sent by each of %d processes in a step",
                    (double)sent * vector * (double)config->train.accumulate, world_size);
    text_add(out, "\n");
}

static void warn_of_activation(const struct plan *plan, struct text *out) {
    SCOPED_TEXT warning = {0};
    if (plan->objective)
        objective_warn_of_activation(plan->objective, plan->model, &warning);
    else
        loss_warn_of_activation(plan->loss, plan->model, &warning);
    if (warning.length) text_printf(out, "\nwarning        %s", text_string(&warning));
}

/* Compares [bytes] of one rank with the free memory of the machine or of its control group. */
static void warn_of_memory(double bytes, int local_size, struct text *out) {
    uint64_t left = memory_available();
    if (left == UINT64_MAX || bytes * local_size <= (double)left) return;
    text_printf(out, "warning        %d process%s of at least %.0f MiB each, but %.0f MiB of memory are free here\n",
                local_size, text_plural((uint64_t)local_size, "es"), bytes / MIB, (double)left / MIB);
}

/* Adds nothing for plain float32. */
static void describe_precision(const struct config *config, struct text *out) {
    const char *const lines[] = {
        [PRECISION_TF32] = config->device == DEVICE_CUDA ? "float32, matrix products in TF32"
                                                         : "float32, factors of products as two bfloat16",
        [PRECISION_FLOAT32_PORTABLE] = "float32, without AMX and oneDNN",
        [PRECISION_BFLOAT16] = "products in bfloat16; weights, gradients and sums in float32",
        [PRECISION_FLOAT16] = "products in float16; weights, gradients and sums in float32; the loss scaled by"};
    enum precision precision = config_precision(config);
    if (precision == PRECISION_FLOAT32) return;
    if (precision == PRECISION_TF32 && !device_has_tf32(config_device_name(config))) return;
    text_printf(out, "\nprecision      %s", lines[precision]);
    if (precision == PRECISION_FLOAT16) text_printf(out, " %g at first", config->train.grad_scaler.init_scale);
}

/* With updates in backward, instead of buckets. */
static void describe_in_backward(const struct params *params, struct text *out) {
    text_printf(out, "gradients      %.2f MiB at a time; each is applied during backward (optimizer.in_backward)\n",
                (double)params_gradient_floats(params) * sizeof(float) / MIB);
}

/* The length of the run, with [steps] per epoch. */
static void describe_length(const struct config *config, size_t steps, struct text *out) {
    uint64_t epochs = (uint64_t)config->train.epochs;
    text_add(out, "run            ");
    if (config->train.epochs != SCHEMA_NO_INT)
        text_printf(out, "%llu epoch%s, ", (unsigned long long)epochs, text_plural(epochs, "s"));
    uint64_t all = steps && epochs > INT64_MAX / steps ? INT64_MAX : steps * epochs; /* as in the run */
    if (config->train.epochs == SCHEMA_NO_INT) all = (uint64_t)config->train.steps;
    text_printf(out, "%llu step%s\n", (unsigned long long)all, text_plural(all, "s"));
}

static void describe_rows(const struct plan *p, struct text *out) {
    const struct dataset_info *info = &p->info;
    const char *sample = info->windows.steps ? "window" : "row";
    text_printf(out, "%s: %zu training %s%s, %zu validation %s%s, ", p->config->name, info->train_rows, sample,
                text_plural(info->train_rows, "s"), info->validation_rows, sample,
                text_plural(info->validation_rows, "s"));
    if (info->test_rows)
        text_printf(out, "%zu test %s%s, ", info->test_rows, sample, text_plural(info->test_rows, "s"));
    if (info->target_kind == TARGET_CLASS)
        text_printf(out, "%lld class%s", (long long)info->classes, text_plural((uint64_t)info->classes, "es"));
    else
        text_printf(out, "%zu target value%s a %s", info->target_size, text_plural(info->target_size, "s"), sample);
    for (int i = 0; i < info->target_dims && info->target_dims > 1; i++)
        text_printf(out, "%s%lld", i ? ", " : ", targets (", (long long)info->target_shape[i]);
    text_add(out, info->target_dims > 1 ? ")\n" : "\n");
}

void plan_describe_target(const struct dataset *dataset, const struct dataset_config *config, struct text *out) {
    const struct column_list columns = dataset_columns(dataset);
    bool is_chosen = config->targets.count == 0 && columns.count && strcmp(columns.format, "hdf5") != 0;
    columns_add_names(&columns, COLUMN_TARGET, out);
    if (out->length && is_chosen)
        text_printf(out, ", %s; dataset.targets names another", target_why(columns.items[columns.count - 1].name));
    const char *array = dataset_target_name(dataset);
    if (out->length || !array) return;
    text_add_value(out, array, TEXT_MAX_LINE);
    if (config->targets.count == 0) text_add(out, ", the default; dataset.targets names another");
}

static void describe_target(const struct plan *p, struct text *out) {
    SCOPED_TEXT target = {0};
    if (p->dataset) plan_describe_target(p->dataset, &p->config->dataset, &target);
    if (target.length) text_printf(out, "\ntarget         %s\n", text_string(&target));
    const struct string_list labels = p->dataset ? dataset_labels(p->dataset) : (struct string_list){0};
    for (size_t i = 0; i < labels.count && i < MAX_LABELS; i++) {
        text_printf(out, "%s%zu: ", i ? ", " : target.length ? "classes        " : "\nclasses        ", i);
        text_add_value(out, labels.items[i], TEXT_MAX_NAME);
    }
    if (labels.count > MAX_LABELS) text_printf(out, ", and %zu more", labels.count - MAX_LABELS);
    if (labels.count) text_add(out, "\n");
}

void plan_describe_class_weights(const struct dataset_info *info, struct text *out) {
    const struct real_list *weights = &info->class_weights;
    for (size_t i = 0; i < weights->count && i < MAX_SCALES; i++)
        text_printf(out, "%s%g", i ? ", " : "", weights->items[i]);
    if (weights->count > MAX_SCALES) text_printf(out, ", and %zu more", weights->count - MAX_SCALES);
}

static void describe_classes(const struct plan *p, struct text *out) {
    if (!p->info.class_weights.count) return;
    text_add(out, "\nclass weights  ");
    plan_describe_class_weights(&p->info, out);
    text_add(out, " (balanced)\n");
}

static void describe_groups(const struct plan *p, struct text *out) {
    const struct dataset_info *info = &p->info;
    if (!info->groups) return;
    text_add(out, "\ngroups         ");
    text_add_value(out, p->config->dataset.split.group, TEXT_MAX_NAME);
    text_printf(out, ": %zu for training, %zu for validation\n", info->groups - info->validation_groups,
                info->validation_groups);
}

/* What a sample of dataset.window is. */
static void describe_windows(const struct plan *p, struct text *out) {
    const struct dataset_windows *windows = &p->info.windows;
    size_t first = windows->first_target + 1 - windows->steps, last = first + windows->target_steps - 1;
    if (!windows->steps) return;
    text_printf(out, "\nwindows        inputs: (%zu, %zu), adjacent rows and their features; ", windows->steps,
                windows->features);
    if (first == last)
        text_printf(out, "targets: of row %zu after the last; ", first);
    else
        text_printf(out, "targets: of rows %zu to %zu after the last; ", first, last);
    text_printf(out, "in %zu rows", windows->rows);
    if (windows->series) text_printf(out, " of %zu series", windows->series);
    text_add(out, "\n");
}

/* How targets are scaled and rows weighted, fitted to the training rows. */
static void describe_targets(const struct plan *p, struct text *out) {
    const struct target_scale *scale = p->info.target_scale;
    const struct dataset_weights *weights = &p->info.weights;
    if (scale) text_printf(out, "\ntarget_scale   %s", target_scale_names[scale->type]);
    for (size_t i = 0; scale && scale->type != TARGET_SCALE_LOG1P && i < scale->size && i < MAX_SCALES; i++)
        text_printf(out, "%s(y - %g) / %g", i ? ", " : ": ", scale->mean[i], scale->scale[i]);
    if (scale && scale->type != TARGET_SCALE_LOG1P && scale->size > MAX_SCALES)
        text_printf(out, ", and %zu more", scale->size - MAX_SCALES);
    if (p->info.has_weights)
        text_printf(out, "\nweights        '%s', %g to %g, divided by their mean %g", p->config->dataset.weights,
                    weights->min, weights->max, weights->mean);
    if (scale || p->info.has_weights) text_add(out, "\n");
}

/* What a run prints about the data at its start. */
static void describe_notes(const struct plan *p, struct text *out) {
    static const char warning[] = "warning: ";
    const struct string_list notes = p->dataset ? dataset_notes(p->dataset) : (struct string_list){0};
    for (size_t i = 0; i < notes.count; i++) {
        bool is_warning = strncmp(notes.items[i], warning, strlen(warning)) == 0;
        text_printf(out, "\n%-14s %s", is_warning ? "warning" : "note",
                    notes.items[i] + (is_warning ? strlen(warning) : 0));
    }
}

static void describe_columns(const struct plan *p, struct text *out) {
    SCOPED_TEXT columns = {0};
    if (p->dataset) dataset_describe_columns(p->dataset, &p->config->dataset, &columns);
    if (columns.length) text_printf(out, "\n%s", text_string(&columns));
}

static void describe_ignored(const struct config *config, struct text *out) {
    SCOPED_TEXT key = {0};
    for (size_t i = 0; config_ignored(config, i, &key); i++, text_clear(&key))
        text_printf(out, "\nignored        %s", text_string(&key));
}

static void describe_unused(const struct model *model, struct text *out) {
    SCOPED_TEXT unused = {0};
    model_add_unused(model, &unused);
    if (unused.length) text_printf(out, "\nunused         %s keep their values", text_string(&unused));
}

static void describe_processes(const struct plan *p, struct text *out) {
    const struct config *c = p->config;
    text_printf(out, "\nprocesses      %d, %zu row%s per %s", p->env.world_size, p->batch, text_plural(p->batch, "s"),
                c->sampler.shards ? "shard" : "batch and process");
    if (c->train.accumulate > 1) text_printf(out, ", %lld batches per step", (long long)c->train.accumulate);
    if (p->indices) {
        text_add(out, "\nsampler        ");
        sampler_describe_indices(&p->sampler, out);
    }
    if (c->train.device == DEVICE_AUTO && c->device == DEVICE_CUDA)
        text_add(out, "\ndevice         train.device: auto is the GPU");
    if (c->device_reason) text_printf(out, "\ndevice         train.device: auto is the CPU: %s", c->device_reason);
    describe_precision(c, out);
    describe_unused(p->model, out);
    describe_ignored(c, out);
    warn_of_activation(p, out);
}

static void describe_run(const struct plan *p, struct text *out) {
    text_printf(out, "\nepoch          %zu batch%s, %zu step%s\n", p->batches, text_plural(p->batches, "es"), p->steps,
                text_plural(p->steps, "s"));
    describe_length(p->config, p->steps, out);
    text_add(out, "checkpoints    ");
    save_describe(p->config, out);
    text_add(out, "\n");
}

/* What a rank keeps of gradients and parameters, and the memory of the buckets that are computed. */
static void describe_shards_of_buckets(const struct plan *p, struct text *out) {
    const struct params *params = &p->model->params;
    double whole = (double)params->trained * sizeof(float) / MIB;
    double shard = (double)zero_gradient_memory(&p->config->dist, params, p->env.world_size) / MIB;
    text_printf(out, "shared         %.2f MiB of gradients over %d processes: %.2f MiB on each, and %.2f MiB for %s\n",
                whole, p->env.world_size, shard, (double)params_gradient_floats(params) * sizeof(float) / MIB,
                p->buckets > 2 ? "two buckets" : "buckets");
    if (params->value_floats)
        text_printf(out,
                    "shared         %.2f MiB of parameters over %d processes: %.2f MiB on each, and %.2f MiB for those "
                    "that passes gather\n",
                    whole, p->env.world_size, shard, (double)params->value_floats * sizeof(float) / MIB);
}

static void describe_memory(const struct plan *p, struct text *out) {
    const struct device_memory *m = &p->memory;
    size_t whole = optimizer_memory(&p->config->optimizer, p->optimizer, &p->model->params);
    text_printf(out, "memory         %.2f MiB parameters and gradients, %.2f MiB optimizer, %.2f MiB activations\n",
                (double)m->parameters / MIB, (double)m->optimizer / MIB, (double)m->activations / MIB);
    if (p->config->dist.zero_stage > 0)
        text_printf(out, "shared         %.2f MiB of optimizer state over %d processes: %.2f MiB less on each\n",
                    (double)whole / MIB, p->env.world_size, (double)(whole - m->optimizer) / MIB);
    if (zero_shards_gradients(&p->config->dist, p->env.world_size)) describe_shards_of_buckets(p, out);
    if (p->config->device == DEVICE_CUDA)
        device_memory_describe(m, p->device, out);
    else
        warn_of_memory(plan_host_memory(p), p->env.local_world_size, out);
}

static void describe_work(const struct plan *p, struct text *out) {
    const struct sampler_config *sampler = &p->config->sampler;
    size_t own = sampler->shards ? (size_t)sampler->global_batch_size / (size_t)p->env.world_size : p->batch;
    text_printf(out, "step           %.3f GFLOP per process (forward and backward)\n",
                2e-9 * 3 * (double)p->model->multiply_adds * (double)own * (double)p->config->train.accumulate);
}

static void describe_gradients(const struct plan *p, struct text *out) {
    const struct config *c = p->config;
    int world_size = p->env.world_size;
    if (c->sampler.shards) {
        describe_shards(c, p->model, world_size, out);
        return;
    }
    const char *why_not;
    if (config_updates_in_backward(c, &p->env, &why_not)) {
        describe_in_backward(&p->model->params, out);
        return;
    }
    if (why_not) text_printf(out, "in_backward    no effect: %s\n", why_not);
    describe_buckets(p, out);
}

/* [p]: for training or check. On the CPU its memory is compared with the free memory of this machine. */
static void describe(const struct plan *p, struct text *out) {
    describe_rows(p, out);
    describe_target(p, out);
    describe_columns(p, out);
    describe_notes(p, out);
    describe_groups(p, out);
    describe_windows(p, out);
    describe_classes(p, out);
    if (p->dataset) describe_targets(p, out);
    describe_layers(p->model, out);
    describe_processes(p, out);
    describe_run(p, out);
    describe_memory(p, out);
    describe_work(p, out);
    describe_optimizer(p, out);
    describe_gradients(p, out);
    if (p->reads_all) text_add(out, "data           all rows were read, their values are valid\n");
    if (p->missing) text_printf(out, "not here       %s\n", status_message(p->missing));
}

/* ---- the model as a drawing ---- */

/* A node is named after the tensor that it computes. Views and changes of the order in memory are not drawn. */

/* For each tensor: the one of the node that computes its values. */
static size_t *nodes_of(const struct model *m, struct arena *arena) {
    size_t *nodes = arena_alloc(arena, m->tensor_count * sizeof *nodes);
    for (size_t t = 0; t < m->tensor_count; t++) nodes[t] = t;
    for (size_t s = 0; s < m->node_count; s++) {
        const struct graph_node *node = &m->nodes[s];
        bool is_reorder = node->layer && node->layer->type->is_reorder;
        if (is_reorder) nodes[node->out] = nodes[model_root(m, node->in[0])];
    }
    for (size_t t = 0; t < m->tensor_count; t++) nodes[t] = nodes[model_root(m, t)];
    return nodes;
}

/* A text within quotes of DOT. */
static void add_quoted(const char *value, struct text *out) {
    for (; *value; value++) text_printf(out, "%s%c", *value == '"' || *value == '\\' ? "\\" : "", *value);
}

static void add_node(const struct model *m, const struct graph_node *node, struct text *out) {
    const struct layer *layer = node->layer;
    size_t parameters = 0;
    text_printf(out, "    t%zu [label=\"", node->out);
    if (layer) {
        add_quoted(layer->name, out);
        text_printf(out, "%s%s", *layer->name ? "\\n" : "", layer->type->variant.name);
        for (size_t p = 0; p < layer->param_count; p++) parameters += m->params.items[layer->first_param + p].count;
    }
    text_printf(out, "%s%s\\n", layer ? "" : "+", (layer ? layer->has_relu : node->has_relu) ? ", relu" : "");
    text_add(out, shape_text(&m->tensors[node->out].shape).s);
    if (parameters && !layer->is_sharing)
        text_printf(out, "\\n%zu parameter%s", parameters, text_plural(parameters, "s"));
    text_add(out, "\"];\n");
}

/* Adds a directed graph in the DOT language: a node for each input, layer that computes something, and sum, with name,
 * type, shape of a row and parameters; an edge for each tensor that one passes to another. */
static void draw(const struct model *model, const char *name, struct text *out) {
    SCOPED_ARENA arena = arena_create();
    const size_t *nodes = nodes_of(model, arena);
    text_add(out, "digraph \"");
    add_quoted(name, out);
    text_add(out, "\" {\n    node [shape=box];\n    t0 [label=\"inputs\\n");
    text_add(out, shape_text(&model->in).s);
    text_add(out, "\", shape=oval];\n");
    for (size_t s = 0; s < model->node_count; s++) {
        const struct graph_node *node = &model->nodes[s];
        if (nodes[node->out] != node->out) continue;
        add_node(model, node, out);
        for (size_t i = 0; i < node->in_count; i++)
            text_printf(out, "    t%zu -> t%zu;\n", nodes[node->in[i]], node->out);
    }
    text_printf(out, "    output [shape=oval];\n    t%zu -> output;\n}\n", nodes[model->output]);
}

/* ---- a schedule whose length has changed ---- */

/* The rates are computed from the lengths of the config in the run folder and of the new one, at the step where the run
 * ended. */

/* A smaller change of the rate needs no warning. */
#define SMALL_CHANGE 0.1

/* Where the run in a folder has ended. */
struct position {
    int64_t epoch, step; /* finished ones; step 0: none is known */
};

static int64_t steps_per_epoch(const struct plan *plan) { return plan->steps > 0 ? (int64_t)plan->steps : 1; }

static double rate_at(const struct plan *plan, const struct config *config, int64_t epoch, int64_t step) {
    struct schedule_progress progress = progress_at(&config->train, steps_per_epoch(plan), epoch, step);
    return schedule_lr(&config->schedule, optimizer_settings(&config->optimizer).lr, &progress);
}

static bool read_event(const char *line, struct position *out) {
    struct json_line event;
    struct position found;
    if (!line || !json_line_read(line, strcspn(line, "\n"), &event)) return false;
    if (!json_field_int(json_line_find(&event, "epoch"), 0, INT64_MAX, &found.epoch)) return false;
    if (!json_field_int(json_line_find(&event, "step"), 1, INT64_MAX, &found.step)) return false;
    *out = found;
    return true;
}

/* By the event `end` or `stopped`, or of a run that was killed by the newest step. */
static status read_position(const char *folder, struct position *out) {
    SCOPED_STRING path = text_path(folder, "metrics.jsonl");
    SCOPED_LINES lines = {0};
    *out = (struct position){0};
    TRY(metrics_read(path, &lines));
    bool is_end = metrics_line_is(lines.other, METRICS_END) || metrics_line_is(lines.other, METRICS_STOPPED);
    if (!is_end || !lines.is_other_last || !read_event(lines.other, out)) read_event(lines.step, out);
    return OK;
}

static status load_old(const char *folder, struct config_file **out) {
    SCOPED_STRING path = text_path(folder, "config.yaml");
    return config_load(path, NULL, 0, out);
}

static void compare(const struct plan *plan, const struct config *old, const struct position *at, struct text *out) {
    const struct config *config = plan->config;
    if (old->train.epochs == config->train.epochs && old->train.steps == config->train.steps) return;
    bool is_after_epoch = at->epoch > 0 && at->step == at->epoch * steps_per_epoch(plan);
    double last = rate_at(plan, old, at->epoch - is_after_epoch, at->step - 1);
    double next = rate_at(plan, config, at->epoch, at->step);
    if (fabs(next - last) <= SMALL_CHANGE * fmax(next, last)) return;
    text_printf(out,
                "the schedule takes its length from the run, which is now longer or shorter: after step %lld the "
                "learning rate changes from %.3g to %.3g; give the schedule a length of its own, %s, to avoid it",
                (long long)at->step, last, next, schedule_length_key(&config->schedule));
}

static void warn_of_extension(const struct plan *plan, const char *folder, struct text *out) {
    SCOPED_CONFIG old = NULL;
    struct position at;
    status s = read_position(folder, &at);
    if (!s && at.step > 0) s = load_old(folder, &old);
    if (!s && old) compare(plan, config_of(old), &at, out);
    status_free(s);
}

void schedule_warn(const struct plan *plan, const char *folder, struct text *out) {
    const struct config *config = plan->config;
    struct schedule_progress progress = progress_at(&config->train, steps_per_epoch(plan), 0, 0);
    double rate = rate_at(plan, config, 0, 0);
    if (schedule_has_no_rise(&config->schedule, &progress))
        text_printf(out,
                    "schedule: one_cycle has a single interval, which is its end, so the learning rate is %.3g; give "
                    "it more intervals: more train.epochs, or schedule.interval: step",
                    rate);
    else if (schedule_length_key(&config->schedule))
        warn_of_extension(plan, folder, out);
}

/* ---- `check` ---- */

/* Reads and verifies the file of checkpoint.resume. *out NULL: there is none, or it is a script's snapshot. */
static status open_resume(const struct config *config, struct checkpoint **out) {
    const char *resume = config->checkpoint.resume;
    *out = NULL;
    if (strcmp(resume, "auto") == 0 || strcmp(resume, "never") == 0) return OK;
    int64_t epochs;
    if (snapshot_is(resume)) return status_prefix(snapshot_epochs(resume, &epochs), "checkpoint.resume");
    return status_prefix(checkpoint_open(resume, out), "checkpoint.resume");
}

/* Whether the config of a run folder can be read. */
static status check_written(const struct config *config) {
    SCOPED_TEXT written = {0};
    schema_write_yaml(&config_schema, config, &written);
    return config_check_written(text_string(&written));
}

/* The GPU memory of the rank that needs the maximum, by a dry run. */
static status measure_memory(struct trainer *t, struct plan *plan) {
    const struct sampler_config *sampler = &plan->config->sampler;
    struct device_memory *m = &plan->memory;
    void *shards = NULL;
    if (device_is_host(t->device)) return OK;
    if (sampler->shards)
        TRY(device_alloc(t->device, elastic_memory(t->model, sampler->shards, plan->env.world_size),
                         "the shards of a batch", &shards));
    status s = dry_run_training(t, &plan->rows);
    if (!s) m->measured = device_memory_used(t->device);
    device_free(t->device, shards);
    return s;
}

/* Whether the snapshot of a script that the run continues fits. */
static status try_snapshot(struct trainer *t, const struct config *config, struct text *warning) {
    int64_t updates;
    if (!snapshot_is(config->checkpoint.resume) || t->averaging.zero) return OK;
    TRY(state_map(t->state));
    status s = snapshot_load(config->checkpoint.resume, config, t->state, &updates, warning);
    return status_first(s, state_unmap(t->state, false));
}

/* Whether what the run continues fits: [resume], or a snapshot. The rows have a fingerprint once they were read. */
static status try_resume(struct trainer *t, const struct plan *plan, struct checkpoint *resume, struct text *warning) {
    const struct dataset *dataset = plan->reads_all ? plan->dataset : NULL;
    const char *sampler = plan->indices && *plan->indices->digest ? plan->indices->digest : NULL;
    TRY(state_create(t->model, t->optimizer, t->ema, dataset, "", sampler, &t->state));
    status s = resume ? run_load_named(plan, t->state, resume, warning) : try_snapshot(t, plan->config, warning);
    state_destroy(t->state);
    return s;
}

static status try_parts(struct plan *plan, struct checkpoint *resume, struct text *report, struct text *warning) {
    struct trainer t = {0};
    struct device_memory *m = &plan->memory;
    if (!device_is_host(plan->device)) {
        TRY(device_memory_info(plan->device, &m->free, &m->total));
        m->free += device_memory_used(plan->device); /* as before the device was opened */
    }
    status s = trainer_create(&t, plan);
    if (!s) s = measure_memory(&t, plan);
    if (!s) s = init_from(plan->model, &plan->config->model.init_from, plan->dataset, report);
    if (!s) s = try_resume(&t, plan, resume, warning);
    trainer_destroy(&t);
    return s;
}

/* A lack of memory is no error: another machine may have it. Consumes [failure]. */
static status record_missing(struct plan *plan, status failure) {
    if (status_code(failure) != STATUS_MEMORY) return failure;
    plan->missing = plan_explain_memory(plan, failure);
    return OK;
}

static void warn_of_schedule(const struct plan *plan, const char *run_dir, struct text *out) {
    SCOPED_STRING folder = text_format("%s%s", run_dir ? "" : "runs/", run_dir ? run_dir : plan->config->name);
    SCOPED_TEXT warning = {0};
    schedule_warn(plan, folder, &warning);
    if (warning.length) text_printf(out, "warning        %s\n", text_string(&warning));
}

status check_run(const struct config *config, const struct dist_env *env, const struct check_options *options,
                 struct text *out, status *missing) {
    struct plan_options plan_options = {.purpose = PLAN_CHECK, .reads_all = options->reads_all, .env = env};
    struct plan *plan;
    SCOPED_TEXT report = {0};
    SCOPED_TEXT warning = {0};
    *missing = OK;
    TRY(plan_create(config, &plan_options, &plan));
    status s = check_written(config);
    SCOPED_CHECKPOINT resume = NULL;
    if (!s) s = open_resume(config, &resume);
    if (!s && !plan->missing) s = record_missing(plan, try_parts(plan, resume, &report, &warning));
    if (!s) {
        if (options->prints_dot)
            draw(plan->model, config->name, out);
        else
            describe(plan, out);
        if (!options->prints_dot) warn_of_schedule(plan, options->run_dir, out);
        if (report.length && !options->prints_dot) text_printf(out, "\nmodel.init_from: %s\n", text_string(&report));
        if (warning.length && !options->prints_dot)
            text_printf(out, "\ncheckpoint.resume: warning: %s: %s\n", config->checkpoint.resume,
                        text_string(&warning));
        *missing = plan->missing;
        plan->missing = OK;
    }
    plan_destroy(plan);
    return config_add_place(config, s);
}
