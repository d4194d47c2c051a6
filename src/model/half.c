/* A tensor is stored in 16 bits if PyTorch's autocast stores it so, or if every reader rounds it, and if the node
 * that writes it and all nodes that read it support 16 bits. The same holds for gradients. */
#include "model/half.h"

#include <string.h>

/* Operators work on rows of so many contiguous elements: the last dimension, or the channels. */
static size_t features_of(const struct shape *shape) {
    if (shape->dims == 0) return 1;
    return (size_t)shape->size[shape->is_channels_last ? 0 : shape->dims - 1];
}

/* The operands of a node that support 16 bits (HALF_X, ...); for a sum all. */
static int operands_of(const struct graph_node *node) {
    if (!node->layer) return HALF_ALL;
    const struct layer_type *type = node->layer->type;
    return !type->can_be_half || type->can_be_half(node->layer) ? type->half : 0;
}

struct half_planning {
    struct model *model;
    const struct device *device;
    bool *is_16;           /* (tensors) under autocast */
    bool *rounds;          /* (tensors) every reader rounds it */
    bool *tensors, *slots; /* candidates for 16 bits */
};

/* Nodes are in execution order. */
static void follow_autocast(const struct half_planning *p) {
    const struct model *m = p->model;
    memset(p->rounds, true, m->tensor_count);
    for (size_t i = 0; i < m->node_count; i++) {
        const struct graph_node *node = &m->nodes[i];
        size_t out = model_root(m, node->out);
        enum autocast autocast = node->layer ? node->layer->type->autocast : AUTOCAST_AS_INPUT;
        bool is_16 = true;
        for (size_t n = 0; n < node->in_count; n++) is_16 &= p->is_16[model_root(m, node->in[n])];
        p->is_16[out] = autocast == AUTOCAST_PRODUCT || (is_16 && autocast == AUTOCAST_AS_INPUT);
        for (size_t n = 0; n < node->in_count; n++)
            p->rounds[model_root(m, node->in[n])] &= autocast == AUTOCAST_PRODUCT;
    }
    p->rounds[model_root(m, m->output)] = false;
}

/* Whether the device can use [tensor], or its gradient, in 16 bits; [supported]: the operands that the node supports.
 */
static bool applies(const struct half_planning *p, size_t tensor, int supported) {
    const struct planned_tensor *t = &p->model->tensors[tensor];
    size_t contiguous = supported & HALF_BY_ELEMENT ? t->size : features_of(&t->shape);
    return device_ops(p->device)->can_be_half(p->device, contiguous);
}

static void require(const struct half_planning *p, size_t tensor, int supported, int operand) {
    p->tensors[model_root(p->model, tensor)] &= (supported & operand) && applies(p, tensor, supported);
}

/* [slot] is the gradient of [tensor]. */
static void require_slot(const struct half_planning *p, size_t slot, size_t tensor, int supported, int operand) {
    size_t root = model_root(p->model, tensor);
    if (slot != SIZE_MAX)
        p->slots[slot] &= (supported & operand) && applies(p, tensor, supported) && (p->is_16[root] || p->rounds[root]);
}

/* Three fused nodes: everything between them is 16 bits, except the gradient of the GELU output, which is never
 * computed. */
static void restrict_fused(const struct half_planning *p, const struct graph_node *before) {
    const struct graph_node *after = before + 2;
    int supported = operands_of(before), supported_after = operands_of(after);
    require(p, before->in[0], supported, HALF_X);
    require(p, after->out, supported_after, HALF_Y);
    require_slot(p, before->dx[0], before->in[0], supported, HALF_DX);
    require_slot(p, after->dy, after->out, supported_after, HALF_DY);
    if (after->dx[0] != SIZE_MAX) p->model->slots[after->dx[0]].size = 0;
}

static void restrict_node(const struct half_planning *p, const struct graph_node *node) {
    int supported = operands_of(node);
    for (size_t n = 0; n < node->in_count; n++) {
        require(p, node->in[n], supported, HALF_X);
        require_slot(p, node->dx[n], node->in[n], supported, HALF_DX);
    }
    require(p, node->out, supported, HALF_Y);
    require_slot(p, node->dy, node->out, supported, HALF_DY);
    if (node->dy_after_relu != SIZE_MAX) require_slot(p, node->dy_after_relu, node->out, HALF_ALL, HALF_ALL);
    for (size_t a = 0; a < node->add_count; a++) {
        const struct slot_add *add = &node->adds[a];
        size_t side = node->layer ? add->tensor : node->out;
        /* in float32 otherwise: the terms were rounded, but the sum must not be */
        int added = p->is_16[model_root(p->model, side)] ? HALF_ALL : 0;
        require_slot(p, add->to, side, added, HALF_ALL);
        require_slot(p, add->a, side, added, HALF_ALL);
        require_slot(p, add->b, side, added, HALF_ALL);
    }
}

/* 16 bits take the memory of half as many floats; the output is float32 in some passes. */
static void halve(struct piece *piece) { piece->size = (piece->size + 1) / 2; }

bool half_storage_plan(struct model *model, const struct device *device) {
    if (!device_ops(device)->can_be_half || model->half_tensors) return false;
    struct arena *arena = model->arena;
    size_t output = model_root(model, model->output), tensors = model->tensor_count;
    struct half_planning p = {model,
                              device,
                              arena_alloc(arena, tensors),
                              arena_alloc(arena, tensors),
                              arena_alloc(arena, tensors),
                              arena_alloc(arena, model->slot_count + 1)};
    follow_autocast(&p);
    for (size_t t = 1; t < tensors; t++) p.tensors[t] = p.is_16[t] || p.rounds[t]; /* 0: the inputs */
    memset(p.slots, true, model->slot_count);
    for (size_t i = 0; i < model->node_count; i++) {
        const struct graph_node *node = &model->nodes[i];
        if (node->fusion == FUSION_BEFORE_GELU && applies(&p, node->out, HALF_ALL))
            restrict_fused(&p, node), i += 2;
        else
            restrict_node(&p, node);
    }
    int output_operands = model->allows_half_output ? HALF_ALL : 0; /* for the loss */
    require(&p, model->output, output_operands, HALF_X);
    require_slot(&p, model->output_slot, model->output, output_operands, HALF_DX);
    for (size_t t = 0; t < model->tensor_count; t++) {
        if (!p.tensors[t] || t == output) continue;
        halve(&model->tensors[t].piece);
        halve(&model->tensors[t].recomputed_piece);
    }
    for (size_t i = 0; i < model->slot_count; i++)
        if (p.slots[i]) halve(&model->slots[i]);
    model->half_tensors = p.tensors;
    model->half_slots = p.slots;
    if (device_ops(device)->can_be_half(device, 8)) half_copies_plan(model);
    return true;
}

bool half_storage_of_value(const struct model *model, size_t tensor) {
    if (tensor == NO_TENSOR || !model->half_tensors) return false;
    size_t root = model_root(model, tensor);
    return model->half_tensors[root] && (root != model_root(model, model->output) || model->is_output_half);
}

bool half_storage_of_gradient(const struct model *model, size_t slot) {
    return slot != SIZE_MAX && model->half_slots && model->half_slots[slot];
}

bool half_storage_is_fused(const struct model *model, const struct graph_node *node) {
    return node->fusion != FUSION_NONE &&
           half_storage_of_value(model, node->fusion == FUSION_BEFORE_GELU ? node->out : node->in[0]);
}

/* ---- 16-bit copies ---- */

/* Walks over the nodes in the order of a pass for values, and from its end for gradients: a gradient slot is written
 * several times, and its copy is needed only between a write and the products that read it before the next write. */

struct copy_planning {
    struct model *model;
    struct planned_copy **tensors, **slots; /* (tensor_count), (slot_count) NULL: no product reads it */
    bool *is_needed;                        /* (slot_count) a product reads the slot before it is written again */
};

static size_t times_8(size_t count) { return (count + 7) / 8 * 8; }

/* Adds a copy of a matrix of [size] elements in rows of [columns]; columns 0: without gaps. */
static struct planned_copy *add(struct model *m, size_t size, size_t columns, struct piece times) {
    struct planned_copy *planned = &m->copies[m->copy_count++];
    size_t gaps = columns % 8 ? columns : 0;
    *planned =
        (struct planned_copy){.piece = times, .tensor = SIZE_MAX, .slot = SIZE_MAX, .size = size, .copy.columns = gaps};
    planned->piece.size = ((gaps ? size / columns * times_8(columns) : size) + 1) / 2;
    return planned;
}

/* The columns of a copy of [tensor] that a product of the layer reads. */
static size_t columns_for(const struct layer *layer, const struct planned_tensor *tensor) {
    return layer->type->copies == COPY_ROWS ? features_of(&tensor->shape) : 0;
}

static bool has_layout(const struct planned_copy *planned, size_t columns) {
    return planned->copy.columns == (columns % 8 ? columns : 0);
}

static bool reads_copies(const struct graph_node *node) { return node->layer && node->layer->type->copies; }

/* A later product in the same pass that reads the matrix in other rows rounds it itself. */
static void read_value(const struct copy_planning *p, struct graph_node *node, size_t at, size_t input) {
    struct model *m = p->model;
    const struct planned_tensor *tensor = &m->tensors[node->in[input]];
    size_t root = model_root(m, node->in[input]), columns = columns_for(node->layer, tensor);
    struct planned_copy **planned = &p->tensors[root];
    if (m->half_tensors[root] || tensor->shape.is_tokens) return;
    if (!*planned) {
        *planned = add(m, tensor->size, columns, (struct piece){.first = m->tensors[root].piece.first});
        (*planned)->tensor = root;
    }
    if (!has_layout(*planned, columns)) return;
    node->in_copies[input] = &(*planned)->copy;
    (*planned)->piece.last = node->fusion == FUSION_BEFORE_GELU ? at + 1 : at; /* which writes the next node's output */
}

static void plan_values(const struct copy_planning *p) {
    struct model *m = p->model;
    for (size_t i = 0; i < m->node_count; i++)
        for (size_t n = 0; reads_copies(&m->nodes[i]) && n < m->nodes[i].in_count; n++)
            read_value(p, &m->nodes[i], i, n);
    for (size_t i = 0; i < m->node_count; i++) {
        struct graph_node *node = &m->nodes[i];
        if (p->tensors[node->out]) node->out_copy = &p->tensors[node->out]->copy;
    }
}

/* [slot] is written at [time]; *copy: the one that the operator may write. */
static void write_slot(const struct copy_planning *p, size_t slot, size_t time, struct half_copy **copy) {
    if (slot == SIZE_MAX || !p->is_needed[slot]) return;
    p->is_needed[slot] = false;
    p->slots[slot]->piece.first = time;
    *copy = &p->slots[slot]->copy;
}

static void read_slot(const struct copy_planning *p, struct graph_node *node, size_t time) {
    struct model *m = p->model;
    const struct planned_tensor *tensor = &m->tensors[node->out];
    size_t columns = columns_for(node->layer, tensor);
    struct planned_copy **planned = &p->slots[node->dy];
    if (m->half_slots[node->dy]) return;
    if (!*planned) {
        *planned = add(m, tensor->size, columns, (struct piece){.first = time, .last = time});
        (*planned)->slot = node->dy;
    }
    if (!has_layout(*planned, columns)) return;
    (*planned)->piece.first = time;
    p->is_needed[node->dy] = true;
    node->dy_copy = &(*planned)->copy;
}

/* From the last node of backward to the first, and within a node from its last operator to its first. */
static void plan_gradients(const struct copy_planning *p) {
    struct model *m = p->model;
    for (size_t i = 0; i < m->node_count; i++) {
        struct graph_node *node = &m->nodes[i];
        size_t time = 2 * m->node_count - i;
        if (node->dy == SIZE_MAX) continue;
        for (size_t a = node->add_count; a-- > 0;) write_slot(p, node->adds[a].to, time, &node->adds[a].copy);
        for (size_t n = 0; node->layer && n < node->in_count; n++)
            write_slot(p, node->dx[n], time, &node->dx_copies[n]);
        if (reads_copies(node)) read_slot(p, node, time);
        if (node->dy_after_relu != SIZE_MAX) write_slot(p, node->dy, time, &node->relu_copy);
    }
    write_slot(p, m->output_slot, m->node_count, &m->loss_copy);
}

/* Matrices inside layers. */
static void plan_inner(struct model *m) {
    for (size_t i = 0; i < m->node_count; i++) {
        struct graph_node *node = &m->nodes[i];
        struct inner_matrix inner[LAYER_MAX_INNER];
        size_t count = node->layer && node->layer->type->inner_matrices
                           ? node->layer->type->inner_matrices(node->layer, inner)
                           : 0;
        for (size_t k = 0; k < count; k++) {
            size_t time = inner[k].is_backward ? 2 * m->node_count - i : i;
            if (inner[k].is_backward && node->dy == SIZE_MAX) continue;
            struct planned_copy *planned =
                add(m, inner[k].size, inner[k].columns, (struct piece){.first = time, .last = time});
            planned->layer = node->layer;
            if (node->block && !inner[k].is_backward)
                planned->piece.first_again = planned->piece.last_again = m->blocks[node->block - 1].time;
            node->layer->inner[k] = &planned->copy;
        }
    }
}

void half_copies_plan(struct model *model) {
    struct arena *arena = model->arena;
    size_t tensors = model->tensor_count, slots = model->slot_count;
    struct copy_planning p = {model, arena_alloc(arena, tensors * sizeof(struct planned_copy *)),
                              arena_alloc(arena, (slots + 1) * sizeof(struct planned_copy *)),
                              arena_alloc(arena, slots + 1)};
    size_t limit = tensors + slots + model->node_count * LAYER_MAX_INNER;
    model->copies = arena_alloc(arena, limit * sizeof *model->copies);
    for (size_t i = 0; i < model->node_count; i++) {
        struct graph_node *node = &model->nodes[i];
        node->in_copies = arena_alloc(arena, node->in_count * sizeof(struct half_copy *));
        node->dx_copies = arena_alloc(arena, node->in_count * sizeof(struct half_copy *));
    }
    plan_values(&p);
    plan_gradients(&p);
    plan_inner(model);
}

void half_copies_begin(struct model *model) {
    for (size_t i = 0; i < model->copy_count; i++) model->copies[i].copy.is_valid = false;
}
