/* Nodes: input 1, output 2, name 3, op_type 4, attribute 5. Attributes: name 1, f 2, i 3, s 4, ints 8, type 20.
 * Tensors: dims 1, data_type 2, string_data 6, name 8, raw_data 9. Graphs: node 1, initializer 5. */
#include "model/emit/onnx.h"

#include <string.h>

#include "model/layer.h"
#include "model/model.h"

/* ---- fields: a number and a kind, then the value (https://protobuf.dev/programming-guides/encoding) ---- */

enum { KIND_VARINT = 0, KIND_BYTES = 2, KIND_FLOAT = 5 };

static void add_varint(struct text *out, uint64_t value) {
    do {
        char byte = (char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        text_add_bytes(out, &byte, 1);
        value >>= 7;
    } while (value);
}

static void add_tag(struct text *out, unsigned field, unsigned kind) { add_varint(out, field << 3 | kind); }

void protobuf_int(struct text *out, unsigned field, uint64_t value) {
    add_tag(out, field, KIND_VARINT);
    add_varint(out, value);
}

static void protobuf_float(struct text *out, unsigned field, float value) {
    add_tag(out, field, KIND_FLOAT);
    text_add_bytes(out, (const char *)&value, sizeof value);
}

static void protobuf_bytes(struct text *out, unsigned field, const void *bytes, size_t size) {
    add_tag(out, field, KIND_BYTES);
    add_varint(out, size);
    if (size) text_add_bytes(out, bytes, size);
}

void protobuf_string(struct text *out, unsigned field, const char *string) {
    protobuf_bytes(out, field, string, strlen(string));
}

void protobuf_message(struct text *out, unsigned field, struct text *inner) {
    protobuf_bytes(out, field, inner->data, inner->length);
    text_free(inner);
}

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

static const char *new_name(struct onnx_graph *g) { return arena_printf(g->arena, "/%zu", g->names++); }

void onnx_node_outputs(struct onnx_graph *g, const char *op, const char *const *inputs, size_t count,
                       struct text *attributes, const char **outputs, size_t output_count) {
    struct text node = {0};
    const char *name = NULL;
    for (size_t i = 0; i < count; i++) protobuf_string(&node, 1, inputs[i]);
    for (size_t i = 0; i < output_count; i++) {
        if (outputs[i]) outputs[i] = new_name(g);
        if (outputs[i]) name = outputs[i];
        protobuf_string(&node, 2, outputs[i] ? outputs[i] : "");
    }
    protobuf_string(&node, 3, arena_printf(g->arena, "%s_%s", op, name));
    protobuf_string(&node, 4, op);
    if (attributes && attributes->length) text_add_bytes(&node, attributes->data, attributes->length);
    if (attributes) text_free(attributes);
    protobuf_message(&g->nodes, 1, &node);
}

const char *onnx_node(struct onnx_graph *g, const char *op, const char *const *inputs, size_t count,
                      struct text *attributes) {
    const char *output = "";
    onnx_node_outputs(g, op, inputs, count, attributes, &output, 1);
    return output;
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

/* ---- what layers have in common ---- */

const char *onnx_layer(const struct onnx_call *c) {
    const char *y = c->layer->type->onnx(c);
    return c->layer->has_relu ? onnx_node1(c->g, "Relu", y, NULL) : y;
}

const char *onnx_same(const struct onnx_call *c) { return c->x; }

int64_t onnx_last(const struct shape *shape) { return shape->size[shape->dims - 1]; }

static const char *constant_vector(struct onnx_graph *g, size_t size, float value) {
    float *values = arena_alloc(g->arena, size * sizeof *values);
    for (size_t i = 0; i < size; i++) values[i] = value;
    return onnx_tensor(g, NULL, ONNX_FLOAT, values, 1, (const int64_t[]){(int64_t)size});
}

const char *onnx_param_or(struct onnx_graph *g, size_t index, size_t size, float value) {
    return index == NO_PARAM ? constant_vector(g, size, value) : onnx_param(g, index);
}

const char *onnx_of_channels(const struct onnx_call *c, size_t index) {
    int64_t shape[MAX_DIMS];
    for (int d = 0; d < c->layer->in.dims; d++) shape[d] = d ? 1 : c->layer->in.size[0];
    const char *sizes = onnx_numbers(c->g, shape, (size_t)c->layer->in.dims);
    return onnx_node2(c->g, "Reshape", onnx_param(c->g, index), sizes);
}

const char *onnx_linear(struct onnx_graph *g, const char *x, size_t w, size_t b, int dims) {
    struct text attributes = {0};
    const char *weight = onnx_param(g, w), *bias = b == NO_PARAM ? NULL : onnx_param(g, b);
    if (dims == 1) {
        onnx_int(&attributes, "transB", 1);
        return onnx_node(g, "Gemm", (const char *const[]){x, weight, bias}, bias ? 3 : 2, &attributes);
    }
    onnx_ints(&attributes, "perm", (const int64_t[]){1, 0}, 2);
    const char *y = onnx_node2(g, "MatMul", x, onnx_node1(g, "Transpose", weight, &attributes));
    return bias ? onnx_node2(g, "Add", y, bias) : y;
}

const char *onnx_gather(struct onnx_graph *g, const char *x, const char *indices, int64_t axis) {
    struct text attributes = {0};
    onnx_int(&attributes, "axis", axis);
    return onnx_node(g, "Gather", (const char *const[]){x, indices}, 2, &attributes);
}

const char *onnx_reduce(struct onnx_graph *g, const char *type, const char *x) {
    struct text attributes = {0};
    onnx_int(&attributes, "keepdims", 0);
    return onnx_node(g, type, (const char *const[]){x, onnx_numbers(g, (const int64_t[]){1}, 1)}, 2, &attributes);
}

const char *onnx_mean_of_last(struct onnx_graph *g, const char *x) {
    return onnx_node2(g, "ReduceMean", x, onnx_numbers(g, (const int64_t[]){-1}, 1));
}

const char *onnx_over_root_mean_square(struct onnx_graph *g, const char *x, float eps) {
    const char *square = onnx_mean_of_last(g, onnx_node2(g, "Mul", x, x));
    return onnx_node2(g, "Div", x, onnx_node1(g, "Sqrt", onnx_node2(g, "Add", square, onnx_scalar(g, eps)), NULL));
}

const char *onnx_softmax(struct onnx_graph *g, const char *x) {
    struct text attributes = {0};
    onnx_int(&attributes, "axis", -1);
    return onnx_node1(g, "Softmax", x, &attributes);
}

/* ---- rows of different lengths ---- */

bool onnx_are_lengths_read(const struct onnx_graph *g, size_t number) {
    return number && g->m->reads_lengths[number - 1];
}

void onnx_set_lengths(struct onnx_graph *g, size_t number, const char *lengths) { g->lengths[number - 1] = lengths; }

const char *onnx_lengths(const struct onnx_graph *g, size_t number) { return g->lengths[number - 1]; }

const char *onnx_range(struct onnx_graph *g, int64_t first, int64_t count) {
    int64_t *values = arena_alloc(g->arena, (size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++) values[i] = first + i;
    return onnx_numbers(g, values, (size_t)count);
}

const char *onnx_real_positions(struct onnx_graph *g, size_t number, int64_t positions) {
    const int64_t column[] = {-1, 1};
    const char **known = &g->real_positions[number - 1];
    if (*known) return *known;
    const char *lengths = onnx_node2(g, "Reshape", onnx_lengths(g, number), onnx_numbers(g, column, 2));
    *known = onnx_node2(g, "Less", onnx_range(g, 0, positions), lengths);
    return *known;
}

/* ---- attributes of images ---- */

void onnx_sizes(struct text *attributes, const char *name, const size_t *sizes, size_t count) {
    int64_t values[3] = {0};
    for (size_t d = 0; d < count; d++) values[d] = (int64_t)sizes[d];
    onnx_ints(attributes, name, values, count);
}

void onnx_window(struct text *attributes, size_t count, const size_t *kernel, const size_t *stride,
                 const size_t *before, const size_t *after) {
    int64_t pads[6] = {0};
    for (size_t d = 0; d < count; d++) pads[d] = (int64_t)before[d], pads[count + d] = (int64_t)after[d];
    onnx_sizes(attributes, "kernel_shape", kernel, count);
    onnx_sizes(attributes, "strides", stride, count);
    onnx_ints(attributes, "pads", pads, 2 * count);
}
