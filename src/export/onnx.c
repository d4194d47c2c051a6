/* The model as a graph of ONNX with a symbolic batch dimension. Inputs are scaled in float64, as the dataset does it.
 */
#include <string.h>

#include "base/files/io.h"
#include "export/onnx_graph.h"
#include "export/protobuf.h"

#define OPSET 22
#define IR_VERSION 10
#define MAX_WEIGHTS ((size_t)500 << 20) /* 2 GB, the limit of a message */

/* ValueInfo: name 1, type 2 {tensor_type 1 {elem_type 1, shape 2 {dim 1 {dim_value 1, dim_param 2}}}} */
void onnx_value(struct text *graph, unsigned field, const char *name, enum onnx_type type, int count,
                const int64_t *sizes) {
    struct text info = {0}, any = {0}, tensor = {0}, dims = {0}, batch = {0};
    protobuf_string(&batch, 2, "batch");
    protobuf_message(&dims, 1, &batch);
    for (int d = 0; d < count; d++) {
        struct text dim = {0};
        protobuf_int(&dim, 1, (uint64_t)sizes[d]);
        protobuf_message(&dims, 1, &dim);
    }
    protobuf_int(&tensor, 1, type);
    protobuf_message(&tensor, 2, &dims);
    protobuf_message(&any, 1, &tensor);
    protobuf_string(&info, 1, name);
    protobuf_message(&info, 2, &any);
    protobuf_message(graph, field, &info);
}

static bool has_divisor(const struct export_model *m) { return !(m->divide >= 1 && m->divide <= 1); }

/* The values of the scaler for an input that begins at element [first] of a row: (features) of it, or of a channel
 * (channels, 1, ...); for one of several inputs all of them. */
static const char *scaler(struct onnx_graph *g, const char *name, const double *values, const struct shape *in,
                          size_t first) {
    size_t row = shape_elements(&g->m->model->in), size = shape_elements(in);
    int64_t shape[MAX_DIMS] = {(int64_t)g->m->features};
    size_t dims = g->m->features == 1 ? 1 : (size_t)in->dims;
    for (size_t d = 1; d < dims; d++) shape[d] = 1;
    if (size == row && (dims == 1 || g->m->features < row))
        return onnx_tensor(g, name, ONNX_DOUBLE, values, dims, shape);
    double *own = arena_alloc(g->arena, size * sizeof *own);
    for (size_t i = 0; i < size; i++) own[i] = values[(first + i) / (row / g->m->features)];
    return onnx_tensor(g, NULL, ONNX_DOUBLE, own, (size_t)in->dims, in->size);
}

static const char *add_preparation(struct onnx_graph *g, const char *x, const struct shape *in, size_t first) {
    const struct export_model *m = g->m;
    if (!m->features && !has_divisor(m)) return m->preparation ? onnx_cast(g, x, ONNX_FLOAT) : x;
    if (!m->preparation) x = onnx_cast(g, x, ONNX_DOUBLE);
    if (has_divisor(m)) x = onnx_node2(g, "Div", x, onnx_tensor(g, NULL, ONNX_DOUBLE, &m->divide, 0, NULL));
    if (m->features) x = onnx_node2(g, "Sub", x, scaler(g, "input_mean", m->mean, in, first));
    if (m->features) x = onnx_node2(g, "Div", x, scaler(g, "input_scale", m->scale, in, first));
    return onnx_cast(g, x, ONNX_FLOAT);
}

/* Whether its memory is in the order of its dimensions: not that of channels last. */
static bool is_row_major(const struct shape *shape) {
    size_t elements = shape_elements(shape);
    return !shape->is_channels_last || shape->dims < 2 || shape->size[0] == 1 || (size_t)shape->size[0] == elements;
}

/* The first dimension becomes the last, or with [is_back] the last the first. */
static const char *rotate_dims(struct onnx_graph *g, const char *x, int dims, bool is_back) {
    int64_t order[MAX_DIMS + 1] = {0};
    for (int d = 0; d < dims; d++) order[d + 1] = (is_back ? d + dims - 1 : d + 1) % dims + 1;
    return onnx_transpose(g, x, order, (size_t)dims + 1);
}

/* The values of [from], in the order of its memory, as [to]. */
static const char *in_memory_of(struct onnx_graph *g, const char *x, const struct shape *from, const struct shape *to) {
    int64_t size[MAX_DIMS];
    bool is_rotated = !is_row_major(to);
    if (!is_row_major(from)) x = rotate_dims(g, x, from->dims, false);
    for (int d = 0; d < to->dims; d++) size[d] = to->size[is_rotated ? (d + 1) % to->dims : d];
    x = onnx_reshape(g, x, size, (size_t)to->dims);
    return is_rotated ? rotate_dims(g, x, to->dims, true) : x;
}

/* The value of a tensor; a view of another shape is reshaped. */
static const char *value_of(struct onnx_graph *g, const char **values, size_t tensor) {
    const struct tensor *t = &g->m->model->tensors[tensor];
    if (values[tensor] || t->alias == NO_TENSOR) return values[tensor];
    const struct shape *root = &g->m->model->tensors[t->alias].shape;
    const char *value = values[t->alias];
    if (!is_row_major(root) || !is_row_major(&t->shape))
        value = in_memory_of(g, value, root, &t->shape);
    else if (!shape_is_equal(root, &t->shape))
        value = onnx_reshape(g, value, t->shape.size, (size_t)t->shape.dims);
    return values[tensor] = value;
}

/* The name of the only input; NULL: there are several, which operations of the model read. */
static const char *only_input(struct onnx_graph *g) {
    const struct string_groups *groups = &g->m->config->dataset.input_groups;
    if (groups->count > 1) return NULL;
    return groups->count ? onnx_input_name(g, "input", groups->items[0].name) : "inputs";
}

/* The value of each tensor. */
static const char **add_steps(struct onnx_graph *g, struct text *columns) {
    const struct model *model = g->m->model;
    const char **values = arena_alloc(g->arena, model->tensor_count * sizeof *values);
    if (g->m->preparation)
        values[0] = add_preparation(g, onnx_preparation(g, columns), &model->in, 0);
    else if (only_input(g))
        values[0] = add_preparation(g, only_input(g), &model->in, 0);
    for (size_t i = 0; i < model->node_count; i++) {
        const struct graph_node *node = &model->nodes[i];
        const char **inputs = arena_alloc(g->arena, node->in_count * sizeof *inputs);
        for (size_t n = 0; n < node->in_count; n++) inputs[n] = value_of(g, values, node->in[n]);
        if (node->layer) {
            struct operation op = operation_of(node->layer);
            if (op.kind == OPERATION_INPUT && g->m->preparation)
                values[node->out] = onnx_slice(g, values[0], 1, (int64_t)op.start, (int64_t)op.end);
            else if (op.kind == OPERATION_INPUT)
                values[node->out] =
                    add_preparation(g, onnx_input_name(g, "input", op.name), &node->layer->out, op.start);
            else if (op.kind != OPERATION_OUTPUTS)
                values[node->out] = onnx_operation(g, node->layer, &op, inputs);
            continue;
        }
        const char *sum = onnx_node2(g, "Add", inputs[0], inputs[1]);
        values[node->out] = node->has_relu ? onnx_node1(g, "Relu", sum, NULL) : sum;
    }
    return values;
}

/* metadata_props 14: key 1, value 2 */
static void add_texts(struct text *out, const char *key, const struct string_list *list) {
    struct text entry = {0}, json = {0};
    if (!list->count) return;
    for (size_t i = 0; i < list->count; i++) {
        text_add(&json, i ? ", " : "[");
        text_add_json(&json, list->items[i]);
    }
    text_add(&json, "]");
    protobuf_string(&entry, 1, key);
    protobuf_string(&entry, 2, text_string(&json));
    protobuf_message(out, 14, &entry);
    text_free(&json);
}

/* In the unit of the targets. */
static const char *add_target_scale(struct onnx_graph *g, const char *y) {
    const struct target_scale *scale = g->m->target_scale;
    const struct shape *out = &g->m->model->tensors[g->m->model->output].shape;
    const double one = 1;
    if (!scale) return y;
    y = onnx_cast(g, y, ONNX_DOUBLE);
    if (scale->type == TARGET_SCALE_LOG1P) {
        y = onnx_node2(g, "Sub", onnx_node1(g, "Exp", y, NULL), onnx_tensor(g, NULL, ONNX_DOUBLE, &one, 0, NULL));
    } else {
        y = onnx_node2(g, "Mul", y,
                       onnx_tensor(g, "target_scale", ONNX_DOUBLE, scale->scale, (size_t)out->dims, out->size));
        y = onnx_node2(g, "Add", y,
                       onnx_tensor(g, "target_mean", ONNX_DOUBLE, scale->mean, (size_t)out->dims, out->size));
    }
    return onnx_cast(g, y, ONNX_FLOAT);
}

/* An output of the graph with a name of its own. */
static void add_output(struct onnx_graph *g, const char *value, const char *name, const struct shape *shape,
                       struct text *outputs) {
    struct text node = {0};
    protobuf_string(&node, 1, value);
    protobuf_string(&node, 2, name);
    protobuf_string(&node, 4, "Identity");
    protobuf_message(&g->nodes, 1, &node);
    onnx_value(outputs, 12, name, ONNX_FLOAT, shape->dims, shape->size);
}

static bool is_input(const struct export_model *m, const char *name) {
    const struct string_groups *groups = &m->config->dataset.input_groups;
    const struct preparation *p = m->preparation;
    bool found = false;
    for (size_t i = 0; p && i < p->count; i++) found = found || strcmp(p->items[i].name, name) == 0;
    for (size_t i = 0; !p && i < groups->count; i++) found = found || strcmp(groups->items[i].name, name) == 0;
    return found;
}

static bool is_earlier_output(const char *const *names, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

static void add_outputs(struct onnx_graph *g, const char **values, struct text *outputs) {
    const struct model *model = g->m->model;
    const char **names = arena_alloc(g->arena, (model->output_count + 1) * sizeof *names);
    if (model->output_count == 0)
        add_output(g, add_target_scale(g, value_of(g, values, model->output)), "outputs",
                   &model->tensors[model->output].shape, outputs);
    for (size_t i = 0; i < model->output_count; i++) {
        const char *name = g->m->outputs.items[i];
        while ((strcmp(name, "outputs") != 0 && onnx_is_taken(g, name)) || is_input(g->m, name) ||
               is_earlier_output(names, i, name))
            name = arena_printf(g->arena, "%s_output", name);
        names[i] = name;
        add_output(g, value_of(g, values, model->outputs[i].tensor), name, &model->outputs[i].shape, outputs);
    }
}

static void add_inputs(struct onnx_graph *g, struct text *graph) {
    const struct model *model = g->m->model;
    const struct shape *in = &model->in;
    if (g->m->preparation) return;
    if (only_input(g))
        onnx_value(graph, 11, only_input(g), in->is_tokens ? ONNX_INT64 : ONNX_FLOAT, in->dims, in->size);
    for (size_t i = 0; i < model->node_count; i++) {
        const struct layer *layer = model->nodes[i].layer;
        if (!layer) continue;
        struct operation op = operation_of(layer);
        if (op.kind == OPERATION_INPUT)
            onnx_value(graph, 11, onnx_input_name(g, "input", op.name), ONNX_FLOAT, layer->out.dims, layer->out.size);
    }
}

/* Model: ir_version 1, producer_name 2, graph 7, opset_import 8 {version 2}. Graph: name 2, input 11, output 12. */
static void add_model(struct onnx_graph *g, struct text *out) {
    struct text graph = {0}, opset = {0}, outputs = {0}, columns = {0};
    add_outputs(g, add_steps(g, &columns), &outputs);
    text_add_bytes(&graph, g->nodes.data, g->nodes.length);
    protobuf_string(&graph, 2, g->m->name);
    if (g->tensors.length) text_add_bytes(&graph, g->tensors.data, g->tensors.length);
    add_inputs(g, &graph);
    if (columns.length) text_add_bytes(&graph, columns.data, columns.length);
    text_free(&columns);
    text_add_bytes(&graph, outputs.data, outputs.length);
    text_free(&outputs);
    protobuf_int(out, 1, IR_VERSION);
    protobuf_string(out, 2, "ddptrain");
    protobuf_message(out, 7, &graph);
    protobuf_int(&opset, 2, OPSET);
    protobuf_message(out, 8, &opset);
    add_texts(out, "labels", &g->m->labels);
    add_texts(out, "columns", &g->m->columns);
}

static status write_model(const struct export_source *source, const struct export_model *m, const char *path) {
    if (m->model->params.elements > MAX_WEIGHTS)
        return status_new(STATUS_USAGE, "%s: the model has %zu weights; an ONNX file has at most %zu", source->path,
                          m->model->params.elements, MAX_WEIGHTS);
    struct onnx_graph g = {.m = m, .arena = source->arena};
    g.has_param = arena_alloc(source->arena, (m->model->params.count + 1) * sizeof *g.has_param);
    g.has_buffer = arena_alloc(source->arena, (m->model->buffers.count + 1) * sizeof *g.has_buffer);
    g.lengths = arena_alloc(source->arena, (m->model->lengths_count + 1) * sizeof *g.lengths);
    g.real_positions = arena_alloc(source->arena, (m->model->lengths_count + 1) * sizeof *g.real_positions);
    struct text out = {0};
    add_model(&g, &out);
    struct io_part part = {out.data, out.length};
    status s = io_replace(path, &part, 1);
    text_free(&out);
    text_free(&g.nodes);
    text_free(&g.tensors);
    return s;
}

static status write_file(const struct export_source *source, const char *path) {
    struct export_model model;
    status s = export_model_open(source, &model);
    if (!s) s = write_model(source, &model, path);
    export_model_close(&model);
    return s;
}

const struct export_format export_onnx = {.name = "onnx", .extension = ".onnx", .write = write_file};
