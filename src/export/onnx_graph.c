/* Nodes: input 1, output 2, name 3, op_type 4, attribute 5. Attributes: name 1, f 2, i 3, s 4, ints 8, type 20.
 * Tensors: dims 1, data_type 2, string_data 6, name 8, raw_data 9. Graphs: node 1, initializer 5. */
#include "export/onnx_graph.h"

#include <string.h>

#include "export/protobuf.h"

enum { ATTRIBUTE_FLOAT = 1, ATTRIBUTE_INT = 2, ATTRIBUTE_STRING = 3, ATTRIBUTE_INTS = 7, ATTRIBUTE_STRINGS = 8 };

void onnx_int(struct text *attributes, const char *name, int64_t value) {
    struct text a = {0};
    protobuf_string(&a, 1, name);
    protobuf_int(&a, 3, (uint64_t)value);
    protobuf_int(&a, 20, ATTRIBUTE_INT);
    protobuf_message(attributes, 5, &a);
}

void onnx_ints(struct text *attributes, const char *name, const int64_t *values, size_t count) {
    struct text a = {0};
    protobuf_string(&a, 1, name);
    for (size_t i = 0; i < count; i++) protobuf_int(&a, 8, (uint64_t)values[i]);
    protobuf_int(&a, 20, ATTRIBUTE_INTS);
    protobuf_message(attributes, 5, &a);
}

void onnx_float(struct text *attributes, const char *name, float value) {
    struct text a = {0};
    protobuf_string(&a, 1, name);
    protobuf_float(&a, 2, value);
    protobuf_int(&a, 20, ATTRIBUTE_FLOAT);
    protobuf_message(attributes, 5, &a);
}

void onnx_string(struct text *attributes, const char *name, const char *value) {
    struct text a = {0};
    protobuf_string(&a, 1, name);
    protobuf_string(&a, 4, value);
    protobuf_int(&a, 20, ATTRIBUTE_STRING);
    protobuf_message(attributes, 5, &a);
}

void onnx_strings(struct text *attributes, const char *name, const char *const *values, size_t count) {
    struct text a = {0};
    protobuf_string(&a, 1, name);
    for (size_t i = 0; i < count; i++) protobuf_string(&a, 9, values[i]);
    protobuf_int(&a, 20, ATTRIBUTE_STRINGS);
    protobuf_message(attributes, 5, &a);
}

bool onnx_is_taken(const struct onnx_graph *g, const char *name) {
    static const char *const own[] = {"outputs", "input_mean", "input_scale", "target_mean", "target_scale"};
    const struct params *all[] = {&g->m->model->params, &g->m->model->buffers};
    bool is_taken = *name == '/'; /* new_name; an output's name has no '/' */
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) is_taken = is_taken || strcmp(name, own[i]) == 0;
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < all[k]->count; i++) is_taken = is_taken || strcmp(all[k]->items[i].name, name) == 0;
    return is_taken;
}

const char *onnx_input_name(struct onnx_graph *g, const char *kind, const char *name) {
    return onnx_is_taken(g, name) ? arena_printf(g->arena, "%s/%s", kind, name) : name;
}

static const char *new_name(struct onnx_graph *g) { return arena_printf(g->arena, "/%zu", g->names++); }

const char *onnx_node_output(struct onnx_graph *g, const char *op, size_t output, const char *const *inputs,
                             size_t count, struct text *attributes) {
    const char *name = new_name(g);
    struct text node = {0};
    for (size_t i = 0; i < count; i++) protobuf_string(&node, 1, inputs[i]);
    for (size_t i = 0; i < output; i++) protobuf_string(&node, 2, "");
    protobuf_string(&node, 2, name);
    protobuf_string(&node, 3, arena_printf(g->arena, "%s_%s", op, name));
    protobuf_string(&node, 4, op);
    if (attributes && attributes->length) text_add_bytes(&node, attributes->data, attributes->length);
    if (attributes) text_free(attributes);
    protobuf_message(&g->nodes, 1, &node);
    return name;
}

const char *onnx_node(struct onnx_graph *g, const char *op, const char *const *inputs, size_t count,
                      struct text *attributes) {
    return onnx_node_output(g, op, 0, inputs, count, attributes);
}

const char *onnx_node1(struct onnx_graph *g, const char *op, const char *a, struct text *attributes) {
    return onnx_node(g, op, (const char *const[]){a}, 1, attributes);
}

const char *onnx_node2(struct onnx_graph *g, const char *op, const char *a, const char *b) {
    return onnx_node(g, op, (const char *const[]){a, b}, 2, NULL);
}

const char *onnx_where(struct onnx_graph *g, const char *condition, const char *a, const char *b) {
    return onnx_node(g, "Where", (const char *const[]){condition, a, b}, 3, NULL);
}

const char *onnx_tensor(struct onnx_graph *g, const char *name, enum onnx_type type, const void *values, size_t dims,
                        const int64_t *shape) {
    struct text tensor = {0};
    size_t size = type == ONNX_FLOAT ? 4 : 8;
    if (!name) name = new_name(g);
    for (size_t d = 0; d < dims; d++) {
        protobuf_int(&tensor, 1, (uint64_t)shape[d]);
        size *= (size_t)shape[d];
    }
    protobuf_int(&tensor, 2, type);
    protobuf_string(&tensor, 8, name);
    protobuf_bytes(&tensor, 9, values, size);
    protobuf_message(&g->tensors, 5, &tensor);
    return name;
}

/* string_data 6 */
const char *onnx_string_tensor(struct onnx_graph *g, const struct string_list *values) {
    struct text tensor = {0};
    const char *name = new_name(g);
    protobuf_int(&tensor, 1, 1);
    protobuf_int(&tensor, 1, values->count);
    protobuf_int(&tensor, 2, ONNX_STRING);
    for (size_t i = 0; i < values->count; i++) protobuf_string(&tensor, 6, values->items[i]);
    protobuf_string(&tensor, 8, name);
    protobuf_message(&g->tensors, 5, &tensor);
    return name;
}

const char *onnx_concat_columns(struct onnx_graph *g, const char *const *parts, size_t count) {
    struct text attributes = {0};
    if (count == 1) return parts[0];
    onnx_int(&attributes, "axis", 1);
    return onnx_node(g, "Concat", parts, count, &attributes);
}

const char *onnx_cast(struct onnx_graph *g, const char *x, enum onnx_type type) {
    struct text attributes = {0};
    onnx_int(&attributes, "to", type);
    return onnx_node1(g, "Cast", x, &attributes);
}

const char *onnx_slice(struct onnx_graph *g, const char *x, int64_t axis, int64_t start, int64_t end) {
    const char *inputs[] = {x, onnx_numbers(g, &start, 1), onnx_numbers(g, &end, 1), onnx_numbers(g, &axis, 1)};
    return onnx_node(g, "Slice", inputs, 4, NULL);
}

/* Layers may share it: one tensor in the file. */
static const char *add_once(struct onnx_graph *g, const struct param *p, const float *values, bool *is_there) {
    if (!*is_there) onnx_tensor(g, p->name, ONNX_FLOAT, values, (size_t)p->dims, p->shape);
    *is_there = true;
    return p->name;
}

const char *onnx_param(struct onnx_graph *g, size_t index) {
    return add_once(g, &g->m->model->params.items[index], g->m->params[index], &g->has_param[index]);
}

const char *onnx_buffer(struct onnx_graph *g, size_t index) {
    return add_once(g, &g->m->model->buffers.items[index], g->m->buffers[index], &g->has_buffer[index]);
}

const char *onnx_numbers(struct onnx_graph *g, const int64_t *values, size_t count) {
    return onnx_tensor(g, NULL, ONNX_INT64, values, 1, (const int64_t[]){(int64_t)count});
}

const char *onnx_scalar(struct onnx_graph *g, float value) { return onnx_tensor(g, NULL, ONNX_FLOAT, &value, 0, NULL); }

const char *onnx_reshape(struct onnx_graph *g, const char *x, const int64_t *shape, size_t dims) {
    int64_t sizes[MAX_DIMS + 2] = {0}; /* 0: the size of the input's dimension */
    memcpy(sizes + 1, shape, dims * sizeof *shape);
    return onnx_node2(g, "Reshape", x, onnx_numbers(g, sizes, dims + 1));
}

const char *onnx_transpose(struct onnx_graph *g, const char *x, const int64_t *order, size_t count) {
    struct text attributes = {0};
    onnx_ints(&attributes, "perm", order, count);
    return onnx_node1(g, "Transpose", x, &attributes);
}
