/* Walks over the nodes in the order of a pass for values, and from its end for gradients: a gradient slot is written
 * several times, and its copy is needed only between a write and the products that read it before the next write. */
#include "model/half_copies.h"

#include "model/half_storage.h"

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
static size_t columns_for(const struct layer *layer, const struct tensor *tensor) {
    return layer->type->copies == COPY_ROWS ? half_storage_features(&tensor->shape) : 0;
}

static bool has_layout(const struct planned_copy *planned, size_t columns) {
    return planned->copy.columns == (columns % 8 ? columns : 0);
}

static void append(struct model *m, struct half_copies *list, struct planned_copy *planned) {
    if (!planned) return;
    struct half_copy **items = arena_alloc(m->arena, (list->count + 1) * sizeof(struct half_copy *));
    for (size_t i = 0; i < list->count; i++) items[i] = list->items[i];
    items[list->count] = &planned->copy;
    *list = (struct half_copies){items, list->count + 1};
}

static bool reads_copies(const struct graph_node *node) { return node->layer && node->layer->type->copies; }

/* A later product in the same pass that reads the matrix in other rows rounds it itself. */
static void read_value(const struct copy_planning *p, struct graph_node *node, size_t at, size_t input) {
    struct model *m = p->model;
    const struct tensor *tensor = &m->tensors[node->in[input]];
    size_t root = model_root(m, node->in[input]), columns = columns_for(node->layer, tensor);
    struct planned_copy **planned = &p->tensors[root];
    if (m->half_tensors[root] || tensor->shape.is_tokens) return;
    if (!*planned) {
        *planned = add(m, tensor->size, columns, (struct piece){.first = m->tensors[root].piece.first});
        (*planned)->tensor = root;
    }
    if (!has_layout(*planned, columns)) return;
    append(m, &node->copies, *planned);
    (*planned)->piece.last = node->fusion == FUSION_BEFORE_GELU ? at + 1 : at; /* which writes the next node's output */
}

static void plan_values(const struct copy_planning *p) {
    struct model *m = p->model;
    for (size_t i = 0; i < m->node_count; i++)
        for (size_t n = 0; reads_copies(&m->nodes[i]) && n < m->nodes[i].in_count; n++)
            read_value(p, &m->nodes[i], i, n);
    for (size_t i = 0; i < m->node_count; i++) {
        struct graph_node *node = &m->nodes[i];
        append(m, &node->copies, p->tensors[node->out]);
        if (node->precedes_norm) append(m, &node->copies, p->tensors[node[1].out]);
    }
}

/* [slot] is written at [time]; [list]: of the operator. */
static void write_slot(const struct copy_planning *p, size_t slot, size_t time, struct half_copies *list) {
    if (slot == SIZE_MAX || !p->is_needed[slot]) return;
    p->is_needed[slot] = false;
    p->slots[slot]->piece.first = time;
    append(p->model, list, p->slots[slot]);
}

static void read_slot(const struct copy_planning *p, struct graph_node *node, size_t time) {
    struct model *m = p->model;
    const struct tensor *tensor = &m->tensors[node->out];
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
    append(m, &node->backward_copies, *planned);
}

/* From the last node of backward to the first, and within a node from its last operator to its first. */
static void plan_gradients(const struct copy_planning *p) {
    struct model *m = p->model;
    for (size_t i = 0; i < m->node_count; i++) {
        struct graph_node *node = &m->nodes[i];
        size_t time = 2 * m->node_count - i;
        if (node->dy == SIZE_MAX) continue;
        for (size_t a = node->add_count; a-- > 0;) write_slot(p, node->adds[a].to, time, &node->adds[a].copies);
        for (size_t n = 0; node->layer && n < node->in_count; n++)
            write_slot(p, node->dx[n], time, &node->backward_copies);
        if (reads_copies(node)) read_slot(p, node, time);
        if (node->dy_after_relu != SIZE_MAX) write_slot(p, node->dy, time, &node->relu_copies);
    }
    write_slot(p, m->output_slot, m->node_count, &m->loss_copies);
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
            planned->first = inner[k].first;
            append(m, inner[k].is_backward ? &node->backward_copies : &node->copies, planned);
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
    plan_values(&p);
    plan_gradients(&p);
    plan_inner(model);
}

void half_copies_begin(struct model *model, size_t rows, const float *inputs) {
    for (size_t i = 0; i < model->copy_count; i++) {
        struct planned_copy *planned = &model->copies[i];
        struct half_copy *copy = &planned->copy;
        if (planned->layer)
            copy->of = planned->layer->saved + rows * planned->first;
        else if (planned->slot != SIZE_MAX)
            copy->of = model->gradients[planned->slot];
        else
            copy->of = planned->tensor == 0 ? inputs : model->tensors[planned->tensor].value;
        copy->count = rows * planned->size;
        copy->is_valid = false;
    }
}
