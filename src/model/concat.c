/* A value is a part of the output of the last concat that reads it, if all its readers can read it there; its gradient
 * is then the same part of the gradient of that output, if nothing else contributes to either behind the first of them
 * in backward. Pieces of memory are joined after the plan (build.c) has found their times. */
#include "model/concat.h"

static bool is_join(const struct graph_node *node) {
    return node->layer && node->layer->type->joins_channels && node->layer->type->joins_channels(node->layer);
}

static bool takes_strides(const struct graph_node *node) { return node->layer && node->layer->type->takes_strides; }

/* The last concat that reads [tensor], if only concats of channels and batch norms do; *input: which of its inputs it
 * is. */
static struct graph_node *find_host(const struct model *m, size_t tensor, size_t *input) {
    struct graph_node *host = NULL;
    size_t count = 0; /* in the host */
    if (model_root(m, m->output) == tensor) return NULL;
    for (size_t n = 0; n < m->node_count; n++) {
        struct graph_node *node = &m->nodes[n];
        for (size_t i = 0; i < node->in_count; i++) {
            if (model_root(m, node->in[i]) != tensor) continue;
            if (node->in[i] != tensor || (!is_join(node) && !takes_strides(node))) return NULL;
            if (!is_join(node)) continue;
            count = host == node ? count + 1 : 1;
            host = node;
            *input = i;
        }
    }
    return count == 1 ? host : NULL;
}

static void include(struct piece *piece, size_t first, size_t last) {
    if (piece->first > first) piece->first = first;
    if (piece->last < last) piece->last = last;
}

/* [whole] has memory also when [part] is needed. False if it would then be kept for backward, or until it is computed
 * again, only for [part]. */
static bool join_pieces(const struct model *m, struct piece *whole, struct piece *part) {
    if (whole->last_again && whole->first_again != part->first_again) return false;
    if (whole->last < m->node_count && part->last >= m->node_count) return false;
    include(whole, part->first, part->last);
    if (whole->last_again && whole->last_again < part->last_again) whole->last_again = part->last_again;
    if (!whole->last_again) include(whole, part->first, part->last_again);
    part->size = 0;
    return true;
}

/* Of [of], or of what that is a part of. */
static struct tensor_part part_of(const struct tensor_part *parts, size_t of, size_t at, size_t stride) {
    const struct tensor_part *outer = &parts[of];
    return outer->stride ? (struct tensor_part){outer->of, outer->at + at, outer->stride}
                         : (struct tensor_part){of, at, stride};
}

/* How often the backward of a node writes or reads a gradient slot. */
static size_t uses(const struct graph_node *node, size_t slot) {
    size_t count = (node->dy == slot) + (node->dy_after_relu == slot);
    for (size_t i = 0; i < node->in_count; i++) count += node->dx[i] == slot;
    for (size_t a = 0; a < node->add_count; a++)
        count += (node->adds[a].to == slot) + (node->adds[a].a == slot) + (node->adds[a].b == slot);
    return count;
}

/* Whether the gradient [slot] of input [input] of [host] is set by it, and then only added to by batch norms and read
 * by [producer], while no node uses the gradient of the host's output. */
static bool can_be_inside(const struct model *m, const struct graph_node *producer, const struct graph_node *host,
                          size_t slot) {
    for (const struct graph_node *node = m->nodes; node < m->nodes + m->node_count; node++) {
        bool is_expected = node == producer || node == host || (takes_strides(node) && node->dx[0] == slot);
        if (uses(node, slot) != (is_expected ? 1 : 0) || (node < host && uses(node, host->dy))) return false;
    }
    return producer->dy == slot;
}

static void plan_join(struct model *m, const struct graph_node *producer) {
    size_t input = 0, at = 0;
    const struct graph_node *host = find_host(m, producer->out, &input);
    if (!host) return;
    for (size_t i = 0; i < input; i++) at += (size_t)host->layer->ins[i].size[0];
    size_t stride = (size_t)host->layer->out.size[0], slot = host->dx[input];
    struct tensor_part value = part_of(m->tensor_parts, host->out, at, stride);
    if (join_pieces(m, &m->tensors[value.of].piece, &m->tensors[producer->out].piece))
        m->tensor_parts[producer->out] = value;
    if (slot == SIZE_MAX || !can_be_inside(m, producer, host, slot)) return;
    struct tensor_part gradient = part_of(m->slot_parts, host->dy, at, stride);
    if (join_pieces(m, &m->slots[gradient.of], &m->slots[slot])) m->slot_parts[slot] = gradient;
}

/* A batch norm adds to the gradient of its input instead of a sum after it. */
static void plan_addition(struct model *m, struct graph_node *node) {
    const struct slot_add *add = node->adds;
    if (node->add_count != 1 || add->to != add->a || add->b != node->dx[0] || add->to == node->dy) return;
    m->slots[node->dx[0]].size = 0;
    node->dx[0] = add->to;
    node->add_count = 0;
    node->layer->adds_to_dx = true;
}

bool concat_plan(struct model *m, const struct device *device) {
    const struct device_ops *ops = device_ops(device);
    if (m->slot_parts || !ops->image->takes_strides || ops->can_be_half) return false;
    m->tensor_parts = arena_alloc(m->arena, m->tensor_count * sizeof *m->tensor_parts);
    m->slot_parts = arena_alloc(m->arena, (m->slot_count + 1) * sizeof *m->slot_parts);
    for (size_t n = 0; n < m->node_count; n++)
        if (takes_strides(&m->nodes[n])) plan_addition(m, &m->nodes[n]);
    for (size_t n = m->node_count; n-- > 0;) /* what it may be a part of has been decided */
        if (is_join(&m->nodes[n])) plan_join(m, &m->nodes[n]);
    return true;
}

void concat_set_addresses(struct model *m) {
    for (size_t t = 0; m->tensor_parts && t < m->tensor_count; t++) {
        const struct tensor_part *part = &m->tensor_parts[t];
        if (part->stride) m->tensors[t].value = (float *)m->tensors[part->of].value + part->at;
    }
    for (size_t s = 0; m->slot_parts && s < m->slot_count; s++) {
        const struct tensor_part *part = &m->slot_parts[s];
        if (part->stride) m->gradients[s] = (float *)m->gradients[part->of] + part->at;
    }
}
