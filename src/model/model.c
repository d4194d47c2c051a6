/* Runs the nodes forward and backward; build.c plans them. */
#include "model/model.h"

#include <assert.h>
#include <string.h>

#include "model/build.h"
#include "model/half.h"
#include "model/init_rules.h"

static const struct schema_row rows[] = {
    SCHEMA_ROW(
        VARIANT_LIST, struct model_config, layers, .flags = SCHEMA_REQUIRED, .variants = &layer_variants,
        .doc =
            "The layers in order; parameters are named as in torch.nn.Sequential (`0.weight`, `0.bias`, `2.weight`)."),
    SCHEMA_ROW(STRING_LIST, struct model_config, freeze, .fallback = "null", .flags = SCHEMA_INFERENCE,
               .doc = "Parameters that keep their values, as shell patterns on their names (`0.*`). Backward stops at "
                      "the first trainable parameter."),
    SCHEMA_ROW(VARIANT_LIST, struct model_config, init, .fallback = "[]", .variants = &init_variants,
               .flags = SCHEMA_INFERENCE,
               .doc = "Rules for the initial weights, applied in order after PyTorch's defaults (torch.nn.init); "
                      "`[gpt2]` is GPT-2's."),
    SCHEMA_ROW(SECTION, struct model_config, init_from, .present_offset = offsetof(struct model_config, has_init_from),
               .flags = SCHEMA_NULLABLE | SCHEMA_INFERENCE, .section = &weight_source_schema,
               .doc = "Start from the weights of a file instead of new ones: its path, or a mapping with the keys "
                      "below. A run folder gives its best checkpoint, else its newest. Unless there is a map or "
                      "`partial`, every name and shape must match."),
    {0},
};

static void check(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct model_config *c = config;
    (void)path;
    if (c->layers.count == 0) problems_add(problems, where->place, "model.layers", "must have at least one layer");
}

const struct schema model_schema = {.name = "model", .size = sizeof(struct model_config), .rows = rows, .check = check};

status model_plan(const struct model_config *config, const struct shape *input, struct model **out) {
    return model_plan_named(config, input, NULL, out);
}

size_t model_root(const struct model *model, size_t tensor) {
    while (model->tensors[tensor].alias != NO_TENSOR) tensor = model->tensors[tensor].alias;
    return tensor;
}

status model_plan_named(const struct model_config *config, const struct shape *input, const struct model_names *names,
                        struct model **out) {
    static const struct model_names none = {0};
    struct arena *arena = arena_create();
    struct model *model = arena_alloc(arena, sizeof *model);
    model->arena = arena;
    model->in = *input;
    model->init = config->init;
    status s = build_model(model, config, names ? names : &none);
    if (!s) s = init_rules_check(model, &model->init);
    if (s) {
        model_destroy(model);
        return s;
    }
    *out = model;
    return OK;
}

status model_check_used(const struct model *model) {
    struct text names = {0};
    for (size_t i = 0; i < model->node_count; i++) {
        const struct graph_node *node = &model->nodes[i];
        for (size_t p = 0; node->layer && node->dy == SIZE_MAX && p < node->layer->param_count; p++) {
            const struct param *param = &model->params.items[node->layer->first_param + p];
            if (!param->is_frozen) text_printf(&names, "%s%s", names.length ? ", " : "", param->name);
        }
    }
    if (!names.length) return OK;
    status s = status_new(STATUS_USAGE, "model: these parameters do not affect the loss, so they cannot be trained: %s",
                          text_string(&names));
    text_free(&names);
    return s;
}

bool model_checks_rows(const struct model *model) {
    for (size_t i = 0; i < model->layer_count; i++)
        if (model->layers[i].type->check_row && !model->layers[i].in.is_tokens) return true;
    return false;
}

status model_check_row(const struct model *model, const float *row) {
    for (size_t i = 0; i < model->layer_count; i++) {
        const struct layer *layer = &model->layers[i];
        if (layer->type->check_row && !layer->in.is_tokens) TRY(layer->type->check_row(layer, &model->params, row));
    }
    return OK;
}

status model_check_independent(const struct model *model, const char *why) {
    for (size_t i = 0; i < model->layer_count; i++) {
        const struct layer *layer = &model->layers[i];
        if (layer->type->sums_over_ranks && layer->type->sums_over_ranks(layer))
            return status_new(STATUS_USAGE, "%s: its statistics over all ranks (sync) cannot be combined with %s",
                              layer->path, why);
    }
    return OK;
}

void model_destroy(struct model *model) {
    if (!model) return;
    if (model->device) {
        params_free(&model->params, model->device);
        params_free(&model->buffers, model->device);
        device_free(model->device, model->block);
        device_free(model->device, model->lengths);
        for (size_t i = 0; i < model->layer_count; i++) {
            struct layer *layer = &model->layers[i];
            if (layer->runtime) layer->type->release(layer, model->device);
        }
    }
    arena_destroy(model->arena);
}

void model_memory(const struct model *model, size_t batch, size_t *parameters, size_t *activations) {
    *parameters = (model->params.total + params_gradient_floats(&model->params) + model->buffers.total) * sizeof(float);
    *activations = batch * model->row_floats * sizeof(float);
}

/* The address of a piece; NULL if its size is 0. */
static void *address(const struct model *model, const struct piece *piece) {
    return piece->size ? model->block + model->batch * piece->offset : NULL;
}

void model_allow_half_output(struct model *model) { model->allows_half_output = true; }

status model_adapt_to_device(struct model *model, const struct device *device) {
    for (size_t i = 0; i < model->layer_count; i++) {
        const struct layer *l = &model->layers[i];
        if (l->type->runs_on && !l->type->runs_on(device_ops(device)))
            return status_new(STATUS_USAGE, "%s: %s: is not supported on %s: use train.device: cpu",
                              place_text(l->place).s, l->path, device_describe(device));
        if (l->type->check_device)
            TRY(status_prefix(l->type->check_device(l, device_ops(device)), "%s: %s: on %s", place_text(l->place).s,
                              l->path, device_describe(device)));
    }
    if (half_storage_plan(model, device)) build_assign_memory(model);
    return OK;
}

status model_alloc(struct model *model, struct device *device, size_t batch) {
    TRY(model_adapt_to_device(model, device));
    model->device = device;
    model->batch = batch;
    TRY(params_alloc(&model->params, device, true));
    TRY(params_alloc(&model->buffers, device, false));
    TRY(device_alloc(device, batch * model->row_floats * sizeof(float), "the activations", (void **)&model->block));
    if (model->lengths_count) {
        size_t bytes = batch * model->lengths_count * sizeof *model->lengths;
        TRY(device_alloc(device, bytes, "the lengths of rows", (void **)&model->lengths));
    }
    for (size_t t = 0; t < model->tensor_count; t++) {
        model->tensors[t].value = address(model, &model->tensors[t].piece);
        model->tensors[t].recomputed = address(model, &model->tensors[t].recomputed_piece);
    }
    for (size_t i = 0; i < model->layer_count; i++) {
        struct layer *layer = &model->layers[i];
        layer->saved = address(model, &layer->saved_piece);
        if (layer->type->alloc) TRY(layer->type->alloc(layer, device, batch));
    }
    model->gradients = arena_alloc(model->arena, (model->slot_count + 1) * sizeof *model->gradients);
    for (size_t i = 0; i < model->slot_count; i++) model->gradients[i] = address(model, &model->slots[i]);
    for (size_t i = 0; i < model->copy_count; i++)
        model->copies[i].copy.memory = (uint16_t *)address(model, &model->copies[i].piece);
    return OK;
}

status model_prepare(struct model *model, size_t batch, bool is_training) {
    for (size_t i = 0; batch > 0 && i < model->layer_count; i++) {
        struct layer *layer = &model->layers[i];
        if (layer->type->prepare) TRY(layer->type->prepare(layer, model->device, batch, is_training));
    }
    return OK;
}

status model_map(struct model *model) {
    TRY(device_map(model->device, (void **)&model->params.values));
    return device_map(model->device, (void **)&model->buffers.values);
}

status model_unmap(struct model *model, bool has_changed) {
    TRY(device_unmap(model->device, (void **)&model->params.values, has_changed));
    return device_unmap(model->device, (void **)&model->buffers.values, has_changed);
}

void model_init(struct model *model, struct rng *rng) {
    for (size_t i = 0; i < model->layer_count; i++) {
        const struct layer *layer = &model->layers[i];
        if (layer->is_sharing) continue;
        if (layer->type->init) layer->type->init(layer, &model->params, rng);
        if (layer->type->init_buffers) layer->type->init_buffers(layer, &model->buffers);
    }
    init_rules_apply(model, &model->init, rng);
}

/* ---- operands of a pass ---- */

/* The address of a tensor's value. */
static void *value_of(const struct model *model, size_t tensor, const float *inputs) {
    const struct planned_tensor *t = &model->tensors[tensor];
    size_t root = t->alias == NO_TENSOR ? tensor : t->alias;
    return root == 0 ? (void *)(uintptr_t)inputs : model->tensors[root].value;
}

/* An operand that is read, or that is not needed (data NULL). */
static struct tensor operand(void *data, bool is_half, struct half_copy *copy) {
    return (struct tensor){.data = data, .is_half = is_half, .copy = data ? copy : NULL};
}

/* One that is written. */
static struct tensor result(void *data, bool is_half, struct half_copy *copy) {
    if (copy) copy->is_valid = false;
    return operand(data, is_half, copy);
}

static struct half_copy *copy_at(struct half_copy *const *copies, size_t i) { return copies ? copies[i] : NULL; }

/* Of a node's forward: its input [i], and its output. */
static struct tensor input_of(const struct model *model, const struct graph_node *node, size_t i, const float *inputs) {
    return operand(value_of(model, node->in[i], inputs), half_storage_of_value(model, node->in[i]),
                   copy_at(node->in_copies, i));
}

static struct tensor output_of(const struct model *model, const struct graph_node *node) {
    return result(model->tensors[node->out].value, half_storage_of_value(model, node->out), node->out_copy);
}

/* The output as forward computed it. */
static struct tensor value_of_output(const struct model *model, const struct graph_node *node) {
    return operand(model->tensors[node->out].value, half_storage_of_value(model, node->out), NULL);
}

/* A value in backward, which may have been recomputed. */
static struct tensor value_in_backward(const struct model *model, size_t tensor, const float *inputs) {
    size_t root = model->tensors[tensor].alias == NO_TENSOR ? tensor : model->tensors[tensor].alias;
    void *recomputed = model->tensors[root].recomputed;
    return operand(recomputed ? recomputed : value_of(model, root, inputs), half_storage_of_value(model, root), NULL);
}

static struct tensor gradient_read(const struct model *model, size_t slot, struct half_copy *copy) {
    return operand(model->gradients[slot], half_storage_of_gradient(model, slot), copy);
}

/* Without data for SIZE_MAX. */
static struct tensor gradient_written(const struct model *model, size_t slot, struct half_copy *copy) {
    return result(slot == SIZE_MAX ? NULL : model->gradients[slot], half_storage_of_gradient(model, slot), copy);
}

struct tensor model_output_gradient(const struct model *model) {
    return gradient_written(model, model->output_slot, model->loss_copy);
}

/* ---- forward ---- */

/* The caller's pass with the model's part filled in. */
static struct pass complete(const struct model *model, const struct pass *pass) {
    struct pass own = *pass;
    own.params = &model->params;
    own.buffers = &model->buffers;
    own.lengths = model->lengths;
    own.lengths_stride = model->batch;
    return own;
}

static void sum(const struct model *model, const struct graph_node *node, const struct pass *pass,
                const struct tensor *a, const struct tensor *b, const struct tensor *y) {
    const struct device_ops *ops = device_ops(pass->device);
    size_t count = pass->rows * model->tensors[node->out].size;
    if (node->has_relu)
        ops->image->add_relu(pass->device, a, b, y, count);
    else
        ops->add(pass->device, a, b, y, count);
}

/* One of three fused nodes; the others are the adjacent ones in model->nodes. */
static void run_part(const struct model *model, const struct graph_node *node, const struct pass *pass,
                     const float *inputs) {
    struct tensor x = input_of(model, node, 0, inputs), y = output_of(model, node);
    if (node->fusion == FUSION_BEFORE_GELU) {
        struct tensor activated = output_of(model, &node[1]);
        node->layer->type->around_gelu->forward_before(node->layer, pass, &x, &y, &activated);
    }
    if (node->fusion == FUSION_AFTER_GELU) node->layer->type->around_gelu->forward_after(node->layer, pass, &x, &y);
}

static void run_join(const struct model *model, const struct graph_node *node, const struct pass *pass,
                     const float *inputs) {
    struct tensor x[BUILD_MAX_INPUTS], y = output_of(model, node);
    for (size_t i = 0; i < node->in_count; i++) x[i] = input_of(model, node, i, inputs);
    if (node->layer)
        node->layer->type->join(node->layer, pass, x, &y);
    else
        sum(model, node, pass, &x[0], &x[1], &y);
}

static void run_node(const struct model *model, const struct graph_node *node, const struct pass *pass,
                     const float *inputs) {
    if (half_storage_is_fused(model, node)) {
        run_part(model, node, pass, inputs);
    } else if (!node->layer || node->layer->type->joins) {
        run_join(model, node, pass, inputs);
    } else {
        struct tensor x = input_of(model, node, 0, inputs), y = output_of(model, node);
        node->layer->type->forward(node->layer, pass, &x, &y);
    }
}

/* A sum and the norm after it in one operator; false: the device has none. */
static bool run_sum_and_norm(const struct model *model, const struct graph_node *node, const struct pass *pass,
                             const float *inputs) {
    if (!node->precedes_norm) return false;
    struct tensor a = input_of(model, node, 0, inputs), b = input_of(model, node, 1, inputs);
    struct tensor x = output_of(model, node), y = output_of(model, &node[1]);
    return node[1].layer->type->forward_of_sum(node[1].layer, pass, &a, &b, &x, &y);
}

/* Starts a pass; parameters must not change until it ends. */
static struct pass begin(struct model *model, const struct pass *pass) {
    const struct device_ops *ops = device_ops(pass->device);
    model->is_output_half = model->allows_half_output && pass->is_training;
    if (ops->round_parameters) ops->round_parameters(pass->device, model->params.values, model->params.total);
    half_copies_begin(model);
    return complete(model, pass);
}

/* Ends a pass. */
static const struct tensor *end(struct model *model, const float *inputs) {
    model->result = operand(value_of(model, model->output, inputs), half_storage_of_value(model, model->output), NULL);
    return &model->result;
}

const struct tensor *model_forward(struct model *model, const struct pass *pass, const float *inputs) {
    struct pass own = begin(model, pass);
    for (size_t i = 0; i < model->node_count; i++)
        if (run_sum_and_norm(model, &model->nodes[i], &own, inputs))
            i++;
        else
            run_node(model, &model->nodes[i], &own, inputs);
    return end(model, inputs);
}

const float *model_output(const struct model *model, const float *inputs) {
    return value_of(model, model->output, inputs);
}

const struct tensor *model_forward_visited(struct model *model, const struct pass *pass, const float *inputs,
                                           output_visitor *visit, void *user) {
    struct pass own = begin(model, pass);
    const struct layer *layer = model->layers;
    for (size_t i = 0; i < model->node_count; i++) {
        const struct graph_node *node = &model->nodes[i];
        run_node(model, node, &own, inputs);
        struct tensor out = value_of_output(model, node);
        if (node->layer) layer = node->layer;
        if (!visit(user, layer, &out, model->tensors[node->out].size)) return NULL;
    }
    return end(model, inputs);
}

/* ---- parameters whose gradients do not all exist at once, because each is consumed as soon as it is complete. The
 * gradients of all layers share one buffer, one layer after the other, and of a large gradient only a part exists at a
 * time. Parameters that several layers use have their own memory. ---- */

/* Offsets of gradients are assigned once, before memory is allocated. */

static bool is_shared(const struct model *model, size_t param) { return model->use_counts[param] > 1; }

/* Assigns one layer's gradients from [at] on; returns their end. */
static size_t assign_memory(struct model *model, const struct layer *layer, size_t at) {
    for (size_t i = layer->first_param; i < layer->first_param + layer->param_count; i++) {
        struct param *p = &model->params.items[i];
        if (is_shared(model, i)) continue;
        if (i == layer->first_param && layer->type->gradient_part) p->part = layer->type->gradient_part(layer);
        p->gradient = at;
        at += params_padded(p->part ? p->part : p->count);
    }
    return at;
}

void model_split_gradients(struct model *model) {
    struct params *params = &model->params;
    size_t kept = 0;
    for (size_t i = 0; i < params->count; i++) {
        if (!is_shared(model, i)) continue;
        params->items[i].gradient = kept;
        kept += params_padded(params->items[i].count);
    }
    model->kept_gradients = params->gradient_floats = kept;
    for (size_t i = 0; i < model->layer_count; i++) {
        size_t end = assign_memory(model, &model->layers[i], kept);
        if (end > params->gradient_floats) params->gradient_floats = end;
    }
}

static void gradients_start(struct model *model) {
    device_zero(model->device, model->params.gradients, model->kept_gradients * sizeof(float));
}

static void gradients_before(struct model *model, const struct layer *layer) {
    for (size_t i = layer->first_param; i < layer->first_param + layer->param_count; i++) {
        const struct param *p = &model->params.items[i];
        if (!is_shared(model, i) && !p->part)
            device_zero(model->device, params_gradient(&model->params, i), p->count * sizeof(float));
    }
}

static void gradients_after(struct model *model, size_t param, const struct gradient_receiver *receiver) {
    const struct param *p = &model->params.items[param];
    if (!p->part) receiver->receive(receiver->user, param, 0, p->count, params_gradient(&model->params, param));
}

/* Receiver of complete gradients: one of the two, or none. */
struct gradient_callbacks {
    gradient_ready *ready;
    void *user;
    const struct gradient_receiver *receiver;
};

/* Counts a contribution to the gradient of [param]; reports the gradient after the last one. */
static void count_contribution(struct model *model, size_t param, const struct gradient_callbacks *callbacks) {
    if (--model->pending_counts[param] > 0 || model->params.items[param].is_frozen) return;
    if (callbacks->receiver) gradients_after(model, param, callbacks->receiver);
    if (callbacks->ready) callbacks->ready(callbacks->user, param);
}

static void report_gradients(struct model *model, const struct layer *layer,
                             const struct gradient_callbacks *callbacks) {
    for (size_t p = layer->first_param + layer->param_count; p-- > layer->first_param;)
        count_contribution(model, p, callbacks);
    for (size_t p = layer->tied + layer->tied_count; p-- > layer->tied;) count_contribution(model, p, callbacks);
}

static void recompute(const struct model *model, const struct graph_node *node, const struct pass *pass,
                      const float *inputs) {
    struct tensor x = value_in_backward(model, node->in[0], inputs);
    struct tensor y = operand(model->tensors[node->out].recomputed, half_storage_of_value(model, node->out), NULL);
    node->layer->type->recompute(node->layer, pass, &x, &y);
}

static void run_part_backward(const struct model *model, const struct graph_node *node, const struct pass *pass,
                              const float *inputs) {
    if (node->fusion == FUSION_GELU) return;
    const struct layer_around_gelu *around = node->layer->type->around_gelu;
    struct tensor dy = gradient_read(model, node->dy, node->dy_copy);
    struct tensor x = value_in_backward(model, node->in[0], inputs);
    if (node->fusion == FUSION_AFTER_GELU) {
        struct tensor kept = value_in_backward(model, node[-1].in[0], inputs);
        size_t slot = node->dx[0] == SIZE_MAX ? SIZE_MAX : node[-1].dx[0]; /* its own gradient is not computed */
        struct tensor dkept = gradient_written(model, slot, NULL);
        around->backward_after(node->layer, pass, &x, &kept, &dy, &dkept);
    } else {
        struct tensor dx = gradient_written(model, node->dx[0], copy_at(node->dx_copies, 0));
        around->backward_before(node->layer, pass, &x, &dy, &dx);
    }
}

static void run_join_backward(const struct model *model, const struct graph_node *node, const struct pass *pass,
                              const float *inputs) {
    struct tensor x[BUILD_MAX_INPUTS], dx[BUILD_MAX_INPUTS];
    struct tensor y = value_of_output(model, node), dy = gradient_read(model, node->dy, node->dy_copy);
    for (size_t i = 0; i < node->in_count; i++) {
        x[i] = value_in_backward(model, node->in[i], inputs);
        dx[i] = gradient_written(model, node->dx[i], copy_at(node->dx_copies, i));
    }
    node->layer->type->join_backward(node->layer, pass, x, &y, &dy, dx);
}

static void run_layer_backward(const struct model *model, const struct graph_node *node, const struct pass *pass,
                               const float *inputs) {
    struct tensor x = value_in_backward(model, node->in[0], inputs), y = value_of_output(model, node);
    struct tensor dy = gradient_read(model, node->dy, node->dy_copy);
    struct tensor dx = gradient_written(model, node->dx[0], copy_at(node->dx_copies, 0));
    node->layer->type->backward(node->layer, pass, &x, &y, &dy, dx.data ? &dx : NULL);
}

/* dy of a node with a fused relu, from the gradient after the relu */
static void run_relu_backward(const struct model *model, const struct graph_node *node, const struct pass *pass) {
    struct tensor y = value_of_output(model, node), after = gradient_read(model, node->dy_after_relu, NULL);
    struct tensor dy = gradient_written(model, node->dy, node->relu_copy);
    device_ops(pass->device)
        ->image->relu_backward(pass->device, &y, &after, &dy, pass->rows * model->tensors[node->out].size);
}

static void run_add(const struct model *model, const struct slot_add *add, const struct pass *pass) {
    struct tensor a = gradient_read(model, add->a, NULL), b = gradient_read(model, add->b, NULL);
    struct tensor to = gradient_written(model, add->to, add->copy);
    device_ops(pass->device)->add(pass->device, &a, &b, &to, pass->rows * model->tensors[add->tensor].size);
}

static void run_backward(struct model *model, const struct pass *pass, const float *inputs,
                         const struct gradient_callbacks *callbacks) {
    struct pass own = complete(model, pass);
    own.receiver = callbacks->receiver;
    if (own.receiver) gradients_start(model);
    memcpy(model->pending_counts, model->use_counts, model->params.count * sizeof *model->pending_counts);
    for (size_t i = model->node_count; i-- > 0;) {
        const struct graph_node *node = &model->nodes[i];
        if (node->dy == SIZE_MAX) continue;
        for (size_t n = 0; n < node->recompute_count; n++)
            recompute(model, &model->nodes[node->recompute[n]], &own, inputs);
        if (node->dy_after_relu != SIZE_MAX) run_relu_backward(model, node, &own);
        if (node->layer && own.receiver) gradients_before(model, node->layer);
        if (half_storage_is_fused(model, node))
            run_part_backward(model, node, &own, inputs);
        else if (node->layer && node->layer->type->joins)
            run_join_backward(model, node, &own, inputs);
        else if (node->layer)
            run_layer_backward(model, node, &own, inputs);
        for (size_t a = 0; a < node->add_count; a++) run_add(model, &node->adds[a], &own);
        if (node->layer) report_gradients(model, node->layer, callbacks);
    }
}

void model_backward(struct model *model, const struct pass *pass, const float *inputs, gradient_ready *ready,
                    void *user) {
    assert(!model->params.gradient_floats); /* after model_split_gradients not all gradients have memory */
    run_backward(model, pass, inputs, &(struct gradient_callbacks){.ready = ready, .user = user});
}

void model_backward_in_parts(struct model *model, const struct pass *pass, const float *inputs,
                             const struct gradient_receiver *receiver) {
    run_backward(model, pass, inputs, &(struct gradient_callbacks){.receiver = receiver});
}
