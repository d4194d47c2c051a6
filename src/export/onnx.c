/* The model as a graph of ONNX with a symbolic batch dimension. Inputs are scaled in float64, as the dataset does it.
 */
#include <string.h>

#include "base/files/io.h"
#include "base/scoped.h"
#include "data/csv/csv.h"
#include "export/model.h"
#include "model/emit/onnx.h"
#include "model/layers/layers.h"

#define OPSET 22
#define IR_VERSION 10
#define MAX_WEIGHTS ((size_t)500 << 20) /* 2 GB, the limit of a message */

/* ValueInfo: name 1, type 2 {tensor_type 1 {elem_type 1, shape 2 {dim 1 {dim_value 1, dim_param 2}}}} */
static void add_value(struct text *graph, unsigned field, const char *name, enum onnx_type type, int count,
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

/* A graph and what it is written from. */
struct onnx_file {
    struct onnx_graph *g;
    const struct export_model *m;
};

static bool is_taken_name(const struct onnx_graph *g, const char *name) {
    static const char *const own[] = {"outputs", "input_mean", "input_scale", "target_mean", "target_scale"};
    const struct params *all[] = {&g->m->model->params, &g->m->model->buffers};
    bool is_taken = *name == '/'; /* new_name; an output's name has no '/' */
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) is_taken = is_taken || strcmp(name, own[i]) == 0;
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < all[k]->count; i++) is_taken = is_taken || strcmp(all[k]->items[i].name, name) == 0;
    return is_taken;
}

static const char *input_name(struct onnx_graph *g, const char *kind, const char *name) {
    return is_taken_name(g, name) ? arena_printf(g->arena, "%s/%s", kind, name) : name;
}

/* ---- the columns of a table: an input for each, text for categories, double for the others; dates are given as their
 * parts, because ONNX cannot read texts ---- */

static const char *doubles(struct onnx_graph *g, const double *values, size_t count) {
    return onnx_tensor(g, NULL, ONNX_DOUBLE, values, 2, (const int64_t[]){1, (int64_t)count});
}

/* Numbers and the parts of a date. */
static const char *numbers(struct onnx_graph *g, const struct prepared_column *column, const char *x,
                           const char *is_missing, size_t count) {
    return column->missing == MISSING_ERROR ? x : onnx_where(g, is_missing, doubles(g, column->fill, count), x);
}

/* (batch, categories) */
static const char *is_category(struct onnx_graph *g, const struct prepared_column *column, const char *x) {
    size_t count = column->categories.count;
    if (!column->are_numbers) return onnx_node2(g, "Equal", x, onnx_string_tensor(g, &column->categories));
    double *values = arena_alloc(g->arena, (count + 1) * sizeof *values);
    for (size_t i = 0; i < count; i++) csv_number(column->categories.items[i], &values[i]);
    return onnx_node2(g, "Equal", x, doubles(g, values, count));
}

static const char *category(struct onnx_graph *g, const struct prepared_column *column, const char *x,
                            const char *is_missing) {
    size_t count = column->categories.count;
    double *values = arena_alloc(g->arena, (count + 1) * sizeof *values);
    const double one = 1;
    const char *y = onnx_cast(g, is_category(g, column, x), ONNX_DOUBLE);
    for (size_t i = 0; i < count; i++) values[i] = column->fill[0] == (double)i ? 1 : 0;
    if (column->missing != MISSING_ERROR && column->fill[0] >= 0)
        y = onnx_where(g, is_missing, doubles(g, values, count), y);
    if (column->encoding == ENCODING_ONE_HOT) return y;
    for (size_t i = 0; i < count; i++) values[i] = (double)i + 1;
    y = onnx_node2(g, "Mul", y, doubles(g, values, count));
    y = onnx_node2(g, "ReduceSum", y, onnx_numbers(g, (const int64_t[]){1}, 1));
    if (column->encoding == ENCODING_EMBEDDING) return y;
    return onnx_node2(g, "Sub", y, onnx_tensor(g, NULL, ONNX_DOUBLE, &one, 0, NULL));
}

static const char *column_features(struct onnx_graph *g, const struct prepared_column *column, struct text *inputs) {
    static const char *nothing[] = {""};
    bool is_text = column->type == COLUMN_CATEGORY && !column->are_numbers;
    size_t width = column->type == COLUMN_DATE ? column->part_count : 1;
    const int64_t size = (int64_t)width;
    const char *x = input_name(g, "column", column->name);
    add_value(inputs, 11, x, is_text ? ONNX_STRING : ONNX_DOUBLE, 1, &size);
    const char *is_missing = is_text
                                 ? onnx_node2(g, "Equal", x, onnx_string_tensor(g, &(struct string_list){nothing, 1}))
                                 : onnx_node1(g, "IsNaN", x, NULL);
    const char *parts[2] = {column->type == COLUMN_CATEGORY ? category(g, column, x, is_missing)
                                                            : numbers(g, column, x, is_missing, width)};
    if (!column->has_indicator) return parts[0];
    parts[1] = onnx_cast(g, width > 1 ? onnx_slice(g, is_missing, 1, 0, 1) : is_missing, ONNX_DOUBLE);
    return onnx_concat_columns(g, parts, 2);
}

static const char *prepared_columns(const struct onnx_file *f, struct text *inputs) {
    struct onnx_graph *g = f->g;
    const struct preparation *p = f->m->preparation;
    const char **parts = arena_alloc(g->arena, (p->count + 1) * sizeof *parts);
    for (size_t i = 0; i < p->count; i++) parts[i] = column_features(g, &p->items[i], inputs);
    return onnx_concat_columns(g, parts, p->count);
}

/* ---- inputs ---- */

static bool has_divisor(const struct export_model *m) { return !(m->divide >= 1 && m->divide <= 1); }

/* The values of the scaler for an input that begins at element [first] of a row: (features) of it, or of a channel
 * (channels, 1, ...); for one of several inputs all of them. */
static const char *scaler(const struct onnx_file *f, const char *name, const double *values, const struct shape *in,
                          size_t first) {
    struct onnx_graph *g = f->g;
    size_t row = shape_elements(&f->m->model->in), size = shape_elements(in);
    int64_t shape[MAX_DIMS] = {(int64_t)f->m->features};
    size_t dims = f->m->features == 1 ? 1 : (size_t)in->dims;
    for (size_t d = 1; d < dims; d++) shape[d] = 1;
    if (size == row && (dims == 1 || f->m->features < row))
        return onnx_tensor(g, name, ONNX_DOUBLE, values, dims, shape);
    double *own = arena_alloc(g->arena, size * sizeof *own);
    for (size_t i = 0; i < size; i++) own[i] = values[(first + i) / (row / f->m->features)];
    return onnx_tensor(g, NULL, ONNX_DOUBLE, own, (size_t)in->dims, in->size);
}

static const char *add_preparation(const struct onnx_file *f, const char *x, const struct shape *in, size_t first) {
    struct onnx_graph *g = f->g;
    const struct export_model *m = f->m;
    if (!m->features && !has_divisor(m)) return m->preparation ? onnx_cast(g, x, ONNX_FLOAT) : x;
    if (!m->preparation) x = onnx_cast(g, x, ONNX_DOUBLE);
    if (has_divisor(m)) x = onnx_node2(g, "Div", x, onnx_tensor(g, NULL, ONNX_DOUBLE, &m->divide, 0, NULL));
    if (m->features) x = onnx_node2(g, "Sub", x, scaler(f, "input_mean", m->mean, in, first));
    if (m->features) x = onnx_node2(g, "Div", x, scaler(f, "input_scale", m->scale, in, first));
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
    const struct planned_tensor *t = &g->m->model->tensors[tensor];
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
static const char *only_input(const struct onnx_file *f) {
    const struct string_groups *groups = dataset_input_groups(&f->m->config->dataset);
    if (groups->count > 1) return NULL;
    return groups->count ? input_name(f->g, "input", groups->items[0].name) : "inputs";
}

/* The value of each tensor. */
static const char **add_steps(const struct onnx_file *f, struct text *columns) {
    const struct model *model = f->m->model;
    struct onnx_graph *g = f->g;
    const char **values = arena_alloc(g->arena, model->tensor_count * sizeof *values);
    if (f->m->preparation)
        values[0] = add_preparation(f, prepared_columns(f, columns), &model->in, 0);
    else if (only_input(f))
        values[0] = add_preparation(f, only_input(f), &model->in, 0);
    for (size_t i = 0; i < model->node_count; i++) {
        const struct graph_node *node = &model->nodes[i];
        const char **inputs = arena_alloc(g->arena, node->in_count * sizeof *inputs);
        for (size_t n = 0; n < node->in_count; n++) inputs[n] = value_of(g, values, node->in[n]);
        if (!node->layer) {
            const char *sum = onnx_node2(g, "Add", inputs[0], inputs[1]);
            values[node->out] = node->has_relu ? onnx_node1(g, "Relu", sum, NULL) : sum;
        } else if (node->layer->type->is_input) {
            const struct model_input *input = node->layer->config;
            int64_t first = (int64_t)input->first;
            values[node->out] =
                f->m->preparation
                    ? onnx_slice(g, values[0], 1, first, first + (int64_t)node->layer->out_size)
                    : add_preparation(f, input_name(g, "input", input->name), &node->layer->out, input->first);
        } else if (layer_is_identity(node->layer)) {
            values[node->out] = inputs[0];
        } else {
            values[node->out] = onnx_layer(&(struct onnx_call){g, node->layer, inputs[0], inputs});
        }
    }
    return values;
}

/* metadata_props 14: key 1, value 2 */
static void add_texts(struct text *out, const char *key, const struct string_list *list) {
    SCOPED_TEXT entry = {0}, json = {0};
    if (!list->count) return;
    text_add_json_list(&json, list->items, list->count);
    protobuf_string(&entry, 1, key);
    protobuf_string(&entry, 2, text_string(&json));
    protobuf_message(out, 14, &entry);
}

/* In the unit of the targets. */
static const char *add_target_scale(const struct onnx_file *f, const char *y) {
    struct onnx_graph *g = f->g;
    const struct target_scale *scale = f->m->target_scale;
    const struct shape *out = &f->m->model->tensors[f->m->model->output].shape;
    const double one = 1;
    if (!scale) return y;
    y = onnx_cast(g, y, ONNX_DOUBLE);
    if (scale->type == TARGET_SCALE_LOG1P) {
        const char *subtrahend = onnx_tensor(g, NULL, ONNX_DOUBLE, &one, 0, NULL);
        y = onnx_node2(g, "Sub", onnx_node1(g, "Exp", y, NULL), subtrahend);
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
    add_value(outputs, 12, name, ONNX_FLOAT, shape->dims, shape->size);
}

static bool is_input(const struct export_model *m, const char *name) {
    const struct string_groups *groups = dataset_input_groups(&m->config->dataset);
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

static void add_outputs(const struct onnx_file *f, const char **values, struct text *outputs) {
    struct onnx_graph *g = f->g;
    const struct model *model = f->m->model;
    const char **names = arena_alloc(g->arena, (model->output_count + 1) * sizeof *names);
    if (model->output_count == 0)
        add_output(g, add_target_scale(f, value_of(g, values, model->output)), "outputs",
                   &model->tensors[model->output].shape, outputs);
    for (size_t i = 0; i < model->output_count; i++) {
        const char *name = f->m->outputs.items[i];
        while ((strcmp(name, "outputs") != 0 && is_taken_name(g, name)) || is_input(f->m, name) ||
               is_earlier_output(names, i, name))
            name = arena_printf(g->arena, "%s_output", name);
        names[i] = name;
        add_output(g, value_of(g, values, model->outputs[i].tensor), name, &model->outputs[i].shape, outputs);
    }
}

static void add_inputs(const struct onnx_file *f, struct text *graph) {
    const struct model *model = f->m->model;
    const struct shape *in = &model->in;
    if (f->m->preparation) return;
    if (only_input(f)) add_value(graph, 11, only_input(f), in->is_tokens ? ONNX_INT64 : ONNX_FLOAT, in->dims, in->size);
    for (size_t i = 0; i < model->node_count; i++) {
        const struct layer *layer = model->nodes[i].layer;
        if (!layer || !layer->type->is_input) continue;
        const struct model_input *input = layer->config;
        add_value(graph, 11, input_name(f->g, "input", input->name), ONNX_FLOAT, layer->out.dims, layer->out.size);
    }
}

/* Model: ir_version 1, producer_name 2, graph 7, opset_import 8 {version 2}. Graph: name 2, input 11, output 12. */
static void add_model(const struct onnx_file *f, struct text *out) {
    struct onnx_graph *g = f->g;
    SCOPED_TEXT graph = {0}, opset = {0}, outputs = {0}, columns = {0};
    add_outputs(f, add_steps(f, &columns), &outputs);
    text_add_bytes(&graph, g->nodes.data, g->nodes.length);
    protobuf_string(&graph, 2, f->m->name);
    if (g->tensors.length) text_add_bytes(&graph, g->tensors.data, g->tensors.length);
    add_inputs(f, &graph);
    if (columns.length) text_add_bytes(&graph, columns.data, columns.length);
    text_add_bytes(&graph, outputs.data, outputs.length);
    protobuf_int(out, 1, IR_VERSION);
    protobuf_string(out, 2, "ddptrain");
    protobuf_message(out, 7, &graph);
    protobuf_int(&opset, 2, OPSET);
    protobuf_message(out, 8, &opset);
    add_texts(out, "labels", &f->m->labels);
    add_texts(out, "columns", &f->m->columns);
}

static status write_model(const struct export_source *source, const struct export_model *m, const char *path) {
    if (m->model->params.elements > MAX_WEIGHTS)
        return status_usage("%s: the model has %zu weights; an ONNX file has at most %zu", source->path,
                            m->model->params.elements, MAX_WEIGHTS);
    const struct emitted_model emitted = {m->model, m->params, m->buffers, m->reads_lengths};
    struct onnx_graph g = {.m = &emitted, .arena = source->arena};
    const struct onnx_file file = {&g, m};
    g.has_param = arena_alloc(source->arena, (m->model->params.count + 1) * sizeof *g.has_param);
    g.has_buffer = arena_alloc(source->arena, (m->model->buffers.count + 1) * sizeof *g.has_buffer);
    g.lengths = arena_alloc(source->arena, (m->model->lengths_count + 1) * sizeof *g.lengths);
    g.real_positions = arena_alloc(source->arena, (m->model->lengths_count + 1) * sizeof *g.real_positions);
    SCOPED_TEXT out = {0};
    add_model(&file, &out);
    struct io_part part = {out.data, out.length};
    status s = io_replace(path, &part, 1);
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
