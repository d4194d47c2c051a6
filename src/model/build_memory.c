/* Plans the memory of a built model: the gradient slots, by walking backward over the nodes, and the lifetimes of
 * values, gradients and what layers save. */
#include <string.h>

#include "model/build.h"
#include "model/layers/layers.h"

/* Gradient slots. In backward order, a slot is allocated for the first node that contributes to a tensor's gradient
 * and released after the backward of the node that produced the tensor. Several tensors may share a slot while they
 * only read it (reference counting). */
struct pool {
    struct arena *arena;
    struct piece *slots;
    size_t *references; /* (count) tensors in use whose gradient is in the slot */
    size_t count, slot_capacity, reference_capacity;
    size_t now, end; /* times */
};

static size_t allocate_slot(struct pool *pool, size_t size) {
    pool->slots = build_grow(pool->arena, pool->slots, pool->count, &pool->slot_capacity, sizeof *pool->slots);
    pool->references =
        build_grow(pool->arena, pool->references, pool->count, &pool->reference_capacity, sizeof *pool->references);
    pool->slots[pool->count] = (struct piece){.size = size, .first = pool->now, .last = pool->end};
    pool->references[pool->count] = 1;
    return pool->count++;
}

static void release_slot(struct pool *pool, size_t slot) {
    if (--pool->references[slot] == 0) pool->slots[slot].last = pool->now;
}

/* The tensor that owns the memory: for a view, the one it is a view of. */
static struct tensor *owner(struct model *m, size_t tensor) {
    return &m->tensors[m->tensors[tensor].alias == NO_TENSOR ? tensor : m->tensors[tensor].alias];
}

static void plan_add(struct graph_node *node, size_t tensor, size_t to, size_t a, size_t b) {
    node->adds[node->add_count++] = (struct slot_add){.to = to, .a = a, .b = b, .tensor = tensor};
}

/* Whether only [tensor] (and the node's output, which is no longer needed) uses its slot, so that it may be
 * overwritten. */
static bool is_exclusive(const struct pool *pool, const struct tensor *tensor, size_t dy) {
    return pool->references[tensor->slot] - (tensor->slot == dy) == 1;
}

/* The backward of out = a + b for one side: a side without a gradient shares the slot of out's, else it is added. A
 * side that shares it already must not be added in place while another side is still to read it. */
static void plan_sum_side(struct pool *pool, struct model *m, struct graph_node *node, size_t input) {
    struct tensor *side = owner(m, node->in[input]);
    if (!side->needs_gradient) return;
    if (side->slot == SIZE_MAX) {
        side->slot = node->dy;
        pool->references[node->dy]++;
    } else if (is_exclusive(pool, side, node->dy) && (side->slot != node->dy || input + 1 == node->in_count)) {
        plan_add(node, node->in[input], side->slot, side->slot, node->dy);
    } else {
        size_t own = allocate_slot(pool, side->size);
        plan_add(node, node->in[input], own, side->slot, node->dy);
        release_slot(pool, side->slot);
        side->slot = own;
    }
}

/* The derivative of a fused relu is applied to the gradient in place, or to a new slot if others read it. */
static void plan_relu(struct pool *pool, struct graph_node *node, size_t size) {
    if (!(node->layer ? node->layer->has_relu && node->layer->type->relu == RELU_AFTER : node->has_relu)) return;
    node->dy_after_relu = node->dy;
    if (pool->references[node->dy_after_relu] == 1) return;
    node->dy = allocate_slot(pool, size);
    release_slot(pool, node->dy_after_relu);
}

/* The first gradient of a layer's input is written to a new slot. A further one is added to the existing gradient by
 * the layer itself or through a temporary slot; if others read that gradient, to a new slot to which it is added. */
static void plan_layer(struct pool *pool, struct model *m, struct graph_node *node, size_t input) {
    struct tensor *in = owner(m, node->in[input]);
    size_t *dx = &node->dx[input];
    if (!in->needs_gradient) return;
    if (in->slot == SIZE_MAX) {
        *dx = in->slot = allocate_slot(pool, in->size);
    } else if (is_exclusive(pool, in, node->dy)) {
        bool can_add = node->layer->type->can_add_to_dx && node->in_count == 1 && in->slot != node->dy;
        node->layer->adds_to_dx = can_add;
        *dx = can_add ? in->slot : allocate_slot(pool, in->size);
        if (*dx == in->slot) return;
        plan_add(node, node->in[input], in->slot, in->slot, *dx);
        release_slot(pool, *dx);
    } else {
        *dx = allocate_slot(pool, in->size);
        plan_add(node, node->in[input], *dx, *dx, in->slot);
        release_slot(pool, in->slot);
        in->slot = *dx;
    }
}

static void plan_gradients(struct model *m) {
    struct pool pool = {.arena = m->arena, .now = m->node_count, .end = 2 * m->node_count};
    m->output_slot = owner(m, m->output)->slot = allocate_slot(&pool, owner(m, m->output)->size);
    for (size_t i = m->node_count; i-- > 0;) {
        struct graph_node *node = &m->nodes[i];
        pool.now = 2 * m->node_count - i;
        node->dy = owner(m, node->out)->slot;
        if (node->dy == SIZE_MAX || !m->tensors[node->out].needs_gradient) continue;
        plan_relu(&pool, node, m->tensors[node->out].size);
        node->adds = arena_alloc(m->arena, node->in_count * sizeof *node->adds);
        for (size_t input = 0; input < node->in_count; input++)
            (node->layer ? plan_layer : plan_sum_side)(&pool, m, node, input);
        release_slot(&pool, node->dy);
    }
    m->slots = pool.slots;
    m->slot_count = pool.count;
}

/* Number of nodes that read a tensor's values; the output counts once more. */
static size_t readers(struct model *m, size_t tensor) {
    const struct tensor *own = owner(m, tensor);
    size_t count = owner(m, m->output) == own;
    for (size_t i = 0; i < m->node_count; i++)
        for (size_t input = 0; input < m->nodes[i].in_count; input++) count += owner(m, m->nodes[i].in[input]) == own;
    return count;
}

/* Whether nodes i to i + 2 are a linear layer, a GELU and a linear layer whose intermediate tensors have no other
 * reader. */
static bool is_around_gelu(struct model *m, size_t i) {
    const struct graph_node *nodes = &m->nodes[i];
    for (int k = 0; k < 3; k++)
        if (!nodes[k].layer) return false;
    return layer_is_gelu_tanh(nodes[1].layer) && nodes[0].layer->type->around_gelu &&
           nodes[2].layer->type->around_gelu && !nodes[0].layer->has_relu && nodes[1].in[0] == nodes[0].out &&
           nodes[2].in[0] == nodes[1].out && readers(m, nodes[0].out) == 1 && readers(m, nodes[1].out) == 1;
}

/* Marks the nodes that may be fused. The last of the three then computes the gradient before the GELU. */
static void plan_gelus(struct model *m) {
    for (size_t i = 0; i + 2 < m->node_count; i++) {
        if (m->nodes[i].fusion != FUSION_NONE || !is_around_gelu(m, i)) continue;
        for (size_t k = 0; k < 3; k++) m->nodes[i + k].fusion = (enum gelu_fusion)(FUSION_BEFORE_GELU + k);
        if (m->nodes[i + 1].dx[0] != SIZE_MAX) m->slots[m->nodes[i + 1].dx[0]].first = 2 * m->node_count - (i + 2);
    }
}

/* Marks sums that a device may compute together with the next node. */
static void plan_sums(struct model *m) {
    for (size_t i = 0; i + 1 < m->node_count; i++) {
        struct graph_node *node = &m->nodes[i];
        node->precedes_norm = !node->layer && !node->has_relu && node[1].layer && node[1].layer->type->forward_of_sum &&
                              node[1].in[0] == node->out;
    }
}

static void extend_lifetime(struct tensor *tensor, size_t time) {
    if (tensor->piece.last < time) tensor->piece.last = time;
}

/* The node that produced the tensor, if it can recompute it; else NULL. */
static const struct graph_node *recomputing_node(const struct model *m, const struct tensor *tensor) {
    const struct graph_node *node = tensor->piece.size ? &m->nodes[tensor->piece.first] : NULL;
    return node && node->dy != SIZE_MAX && node->layer && node->layer->type->recompute ? node : NULL;
}

/* The backward of node [i] reads [tensor]: keeps it until then, or recomputes it from a tensor that is kept. */
static void keep_for_backward(struct model *m, struct tensor *tensor, size_t i) {
    size_t end = 2 * m->node_count;
    const struct graph_node *producer = recomputing_node(m, tensor);
    if (!producer || recomputing_node(m, owner(m, producer->in[0])) || tensor == owner(m, m->output)) {
        extend_lifetime(tensor, end - i);
        return;
    }
    if (!tensor->recomputed_piece.size)
        tensor->recomputed_piece = (struct piece){.size = tensor->size, .last = end - i};
    tensor->recomputed_piece.first = end - i;
    tensor->reader = i;
}

/* Nodes recompute what they read first in backward, each at most all of its inputs. */
static void plan_recomputations(struct model *m) {
    for (size_t t = 0; t < m->tensor_count; t++) {
        const struct tensor *tensor = &m->tensors[t];
        if (!tensor->recomputed_piece.size) continue;
        struct graph_node *node = &m->nodes[tensor->reader];
        if (!node->recompute) node->recompute = arena_alloc(m->arena, node->in_count * sizeof *node->recompute);
        node->recompute[node->recompute_count++] = tensor->piece.first;
    }
}

/* Sets the lifetime of each value. The output is kept until the end of the pass. */
static void plan_values(struct model *m) {
    size_t end = 2 * m->node_count;
    for (size_t i = 0; i < m->node_count; i++) {
        struct graph_node *node = &m->nodes[i];
        struct tensor *out = &m->tensors[node->out];
        bool has_backward = node->dy != SIZE_MAX;
        out->piece = (struct piece){.size = out->size, .first = i, .last = i};
        /* of the inputs: one operator may run the next node, too, or write its output */
        size_t last = node->precedes_norm || node->fusion == FUSION_BEFORE_GELU ? i + 1 : i;
        for (size_t input = 0; input < node->in_count; input++) extend_lifetime(owner(m, node->in[input]), last);
        if (has_backward && node->dy_after_relu != SIZE_MAX) extend_lifetime(out, end - i);
        if (!node->layer) continue;
        bool reads_x = has_backward && !(node->layer->type->ignores & IGNORES_X);
        for (size_t input = 0; reads_x && input < node->in_count; input++)
            keep_for_backward(m, owner(m, node->in[input]), i);
        if (has_backward && !(node->layer->type->ignores & IGNORES_Y)) extend_lifetime(out, end - i);
        node->layer->saved_piece =
            (struct piece){.size = node->layer->saved_size, .first = i, .last = has_backward ? end - i : i};
    }
    extend_lifetime(owner(m, m->output), end);
    plan_recomputations(m);
}

void build_assign_memory(struct model *m) {
    size_t count = 0;
    struct piece **pieces = arena_alloc(
        m->arena, (2 * m->tensor_count + m->layer_count + m->slot_count + m->copy_count + 1) * sizeof(struct piece *));
    for (size_t i = 1; i < m->tensor_count; i++) {
        pieces[count++] = &m->tensors[i].piece;
        pieces[count++] = &m->tensors[i].recomputed_piece;
    }
    for (size_t i = 0; i < m->layer_count; i++) pieces[count++] = &m->layers[i].saved_piece;
    for (size_t i = 0; i < m->slot_count; i++) pieces[count++] = &m->slots[i];
    for (size_t i = 0; i < m->copy_count; i++) pieces[count++] = &m->copies[i].piece;
    m->row_floats = placement_find(m->arena, pieces, count);
}

void build_memory(struct model *model) {
    plan_gradients(model);
    plan_gelus(model);
    plan_sums(model);
    plan_values(model);
    build_assign_memory(model);
}
