/* One call for each operation; a function of its kind writes it. */
#include <math.h>

#include "export/c_nodes.h"
#include "model/layers/joins.h"

size_t c_last(const struct shape *shape) { return (size_t)shape->size[shape->dims - 1]; }

struct text *c_use(const struct c_call *call, enum c_function function) {
    c_code_use(function, &call->c->used);
    return &call->c->body;
}

const char *c_plain(const struct c_call *call, size_t param) { return c_table_param(call->c, param, C_PLAIN, NULL); }

static void add_linear(const struct c_call *call) {
    const char *w = c_table_param(call->c, call->op->weight, C_LINEAR, NULL), *b = c_plain(call, call->op->bias);
    size_t in = c_last(&call->layer->in), out = c_last(&call->layer->out);
    text_printf(c_use(call, C_linear), "    linear(%s, %s, %s, %s, %zu, %zu, %zu);\n", call->x, w, b, call->y,
                call->layer->in_size / in, in, out);
}

static void add_activation(const struct c_call *call) {
    static const struct {
        enum c_function function;
        const char *name;
    } functions[] = {[ACTIVATION_RELU] = {C_relu, "relu"},
                     [ACTIVATION_TANH] = {C_hyperbolic_tangent, "hyperbolic_tangent"},
                     [ACTIVATION_SIGMOID] = {C_sigmoid, "sigmoid"},
                     [ACTIVATION_GELU] = {C_gelu, "gelu"},
                     [ACTIVATION_GELU_TANH] = {C_gelu_tanh, "gelu_tanh"},
                     [ACTIVATION_SILU] = {C_silu, "silu"},
                     [ACTIVATION_RELU6] = {C_relu6, "relu6"},
                     [ACTIVATION_SELU] = {C_selu, "selu"},
                     [ACTIVATION_HARDSWISH] = {C_hardswish, "hardswish"},
                     [ACTIVATION_HARDSIGMOID] = {C_hardsigmoid, "hardsigmoid"},
                     [ACTIVATION_MISH] = {C_mish, "mish"},
                     [ACTIVATION_SOFTPLUS] = {C_softplus, "softplus"},
                     [ACTIVATION_ELU] = {C_elu, "elu"}};
    text_printf(c_use(call, functions[call->op->function].function), "    %s(%s, %s, %zu);\n",
                functions[call->op->function].name, call->x, call->y, call->layer->in_size);
}

static void add_leaky_relu(const struct c_call *call) {
    text_printf(c_use(call, C_leaky_relu), "    leaky_relu(%s, %af, %s, %zu);\n", call->x, (double)call->op->slope,
                call->y, call->layer->in_size);
}

static void add_elu(const struct c_call *call) {
    text_printf(c_use(call, C_elu), "    elu(%s, %s, %zu);\n", call->x, call->y, call->layer->in_size);
    if (call->op->slope != 1)
        text_printf(c_use(call, C_leaky_relu), "    leaky_relu(%s, %af, %s, %zu);\n", call->y, (double)call->op->slope,
                    call->y, call->layer->in_size);
}

static const char *image_of_shape(const struct c_call *call, const struct image_shape *image) {
    return arena_printf(call->c->arena, "(struct model_image){%zu, %zu, %zu}", image->height, image->width,
                        image->channels);
}

static const char *window_of(const struct c_call *call, const struct window *w) {
    return arena_printf(call->c->arena, "(struct model_window){{%zu, %zu}, {%zu, %zu}, {%zu, %zu}, {%zu, %zu}}",
                        w->kernel[0], w->kernel[1], w->stride[0], w->stride[1], w->padding[0], w->padding[1],
                        w->dilation[0], w->dilation[1]);
}

/* The next call computes image [n] of [count], one after another in x and y, with image_at. */
static void begin_images(const struct c_call *call, size_t count) {
    if (count > 1)
        text_printf(&call->c->body, "    {\n        size_t n;\n        for (n = 0; n < %zu; n++)\n        ", count);
}

static void end_images(const struct c_call *call, size_t count) {
    if (count > 1) text_add(&call->c->body, "    }\n");
}

static const char *image_at(const struct c_call *call, const char *array, size_t count, size_t size) {
    return count > 1 ? arena_printf(call->c->arena, "%s + n * %zu", array, size) : array;
}

static size_t elements(const struct image_shape *image) { return image->height * image->width * image->channels; }

static void add_convolution(const struct c_call *call) {
    const struct convolution *v = &call->op->convolution;
    const char *w = c_table_param(call->c, call->op->weight, C_CONVOLUTION, call->op),
               *b = c_plain(call, call->op->bias);
    size_t images = call->op->images;
    begin_images(call, images);
    text_printf(c_use(call, C_convolution), "    convolution(%s, %s, %s, %s, %s,\n                %s, %s, %zu, %s);\n",
                image_at(call, call->x, images, elements(&v->in)), image_of_shape(call, &v->in), w, b,
                image_at(call, call->y, images, elements(&v->out)), image_of_shape(call, &v->out),
                window_of(call, &v->window), v->groups, call->scratch[0]);
    end_images(call, images);
}

static void add_convolution_transpose(const struct c_call *call) {
    const struct convolution *v = &call->op->convolution;
    const char *w = c_table_param(call->c, call->op->weight, C_CONVOLUTION, call->op),
               *b = c_plain(call, call->op->bias);
    text_printf(c_use(call, C_convolution_transpose),
                "    convolution_transpose(%s, %s, %s, %s, %s,\n                %s, %s, %zu);\n", call->x,
                image_of_shape(call, &v->out), w, b, call->y, image_of_shape(call, &v->in), window_of(call, &v->window),
                v->groups);
}

static void pool_maxima(const struct c_call *call, const struct pooling *p, size_t images) {
    begin_images(call, images);
    text_printf(c_use(call, C_max_pool), "    max_pool(%s, %s, %s, %s,\n             %s, %d);\n",
                image_at(call, call->x, images, elements(&p->in)), image_of_shape(call, &p->in),
                image_at(call, call->y, images, elements(&p->out)), image_of_shape(call, &p->out),
                window_of(call, &p->window), p->is_adaptive);
    end_images(call, images);
}

static void pool_averages(const struct c_call *call, const struct pooling *p, size_t images) {
    begin_images(call, images);
    text_printf(c_use(call, C_average_pool), "    average_pool(%s, %s, %s, %s,\n                 %s, %d, %d, %zu);\n",
                image_at(call, call->x, images, elements(&p->in)), image_of_shape(call, &p->in),
                image_at(call, call->y, images, elements(&p->out)), image_of_shape(call, &p->out),
                window_of(call, &p->window), p->is_adaptive, !p->is_adaptive && !p->excludes_padding, p->divisor);
    end_images(call, images);
}

static void add_max_pool(const struct c_call *call) { pool_maxima(call, &call->op->pooling, call->op->images); }
static void add_average_pool(const struct c_call *call) { pool_averages(call, &call->op->pooling, call->op->images); }

/* A dimension as the window of a pooling. */
static struct pooling pooling_along(const struct c_call *call, size_t *outer) {
    size_t inner, count = (size_t)call->layer->in.size[call->op->dimension];
    join_blocks(&call->layer->in, call->op->dimension, outer, &inner);
    return (struct pooling){.in = {count, 1, inner},
                            .out = {1, 1, inner},
                            .window = {.kernel = {count, 1}, .stride = {count, 1}, .dilation = {1, 1}}};
}

static void add_maximum(const struct c_call *call) {
    size_t outer;
    struct pooling p = pooling_along(call, &outer);
    if (!call->op->lengths) {
        pool_maxima(call, &p, outer);
        return;
    }
    text_printf(c_use(call, C_max_pool),
                "    max_pool(%s, (struct model_image){%s, 1, %zu}, %s, %s,\n             %s, 0);\n", call->x,
                c_length(call, p.in.height), p.in.channels, call->y, image_of_shape(call, &p.out),
                window_of(call, &p.window));
}

static size_t channels_of(const struct c_call *call) { return (size_t)call->layer->in.size[0]; }
static size_t positions_of(const struct c_call *call) { return call->layer->in_size / channels_of(call); }

static void add_batch_norm(const struct c_call *call) {
    const char *scale = c_table_norm(call->c, call->op, channels_of(call), C_SCALE);
    const char *shift = c_table_norm(call->c, call->op, channels_of(call), C_SHIFT);
    text_printf(c_use(call, C_batch_norm), "    batch_norm(%s, %s, %s, %s, %zu, %zu);\n", call->x, scale, shift,
                call->y, positions_of(call), channels_of(call));
}

static void add_group_norm(const struct c_call *call) {
    const char *w = c_plain(call, call->op->weight), *b = c_plain(call, call->op->bias);
    text_printf(c_use(call, C_group_norm), "    group_norm(%s, %s, %s, %a, %s, %zu, %zu, %zu);\n", call->x, w, b,
                (double)call->op->eps, call->y, positions_of(call), channels_of(call), call->op->groups);
}

static void add_row_norm(const struct c_call *call) {
    size_t size = c_last(&call->layer->in), rows = call->layer->in_size / size;
    const char *w = c_plain(call, call->op->weight), *b = c_plain(call, call->op->bias);
    if (call->op->kind == OPERATION_LAYER_NORM)
        text_printf(c_use(call, C_layer_norm), "    layer_norm(%s, %s, %s, %af, %s, %zu, %zu);\n", call->x, w, b,
                    (double)call->op->eps, call->y, rows, size);
    else
        text_printf(c_use(call, C_rms_norm), "    rms_norm(%s, %s, %af, %s, %zu, %zu);\n", call->x, w,
                    (double)call->op->eps, call->y, rows, size);
}

static void add_prelu(const struct c_call *call) {
    size_t slopes = call->c->m->model->params.items[call->op->weight].count;
    text_printf(c_use(call, C_prelu), "    prelu(%s, %s, %s, %zu, %zu);\n", call->x, c_plain(call, call->op->weight),
                call->y, call->layer->in_size, slopes);
}

static void add_scale(const struct c_call *call) {
    size_t count = call->c->m->model->params.items[call->op->weight].count;
    text_printf(c_use(call, C_scale), "    scale(%s, %s, %s, %zu, %zu);\n", call->x, c_plain(call, call->op->weight),
                call->y, call->layer->in_size, count);
}

static void add_log_softmax(const struct c_call *call) {
    size_t size = c_last(&call->layer->in);
    text_printf(c_use(call, C_log_softmax), "    log_softmax(%s, %s, %zu, %zu);\n", call->x, call->y,
                call->layer->in_size / size, size);
}

static void add_softmax(const struct c_call *call) {
    size_t size = c_last(&call->layer->in);
    text_printf(c_use(call, C_softmax), "    softmax(%s, %s, %zu, %zu);\n", call->x, call->y,
                call->layer->in_size / size, size);
}

static void add_reorder(const struct c_call *call) {
    size_t channels = channels_of(call), positions = positions_of(call);
    bool is_last = call->layer->in.is_channels_last;
    text_printf(c_use(call, C_transpose), "    transpose(%s, %s, %zu, %zu);\n", call->x, call->y,
                is_last ? positions : channels, is_last ? channels : positions);
}

/* ---- joins ---- */

static size_t size_along(const struct shape *shape, int dimension) { return (size_t)shape->size[dimension]; }

void c_columns(const struct c_call *call, const char *x, size_t x_stride, const char *y, size_t y_stride, size_t rows,
               size_t width) {
    text_printf(c_use(call, C_columns), "    columns(%s, %zu, %s, %zu, %zu, %zu);\n", x, x_stride, y, y_stride, rows,
                width);
}

static void add_concat(const struct c_call *call) {
    const struct layer *layer = call->layer;
    int dimension = call->op->dimension;
    size_t outer, inner, at = 0;
    join_blocks(&layer->out, dimension, &outer, &inner);
    for (size_t i = 0; i < layer->in_count; i++) {
        size_t width = size_along(&layer->ins[i], dimension) * inner;
        c_columns(call, call->inputs[i], width, arena_printf(call->c->arena, "%s + %zu", call->y, at),
                  size_along(&layer->out, dimension) * inner, outer, width);
        at += width;
    }
}

static void add_slice(const struct c_call *call) {
    const struct layer *layer = call->layer;
    size_t outer, inner, count = call->op->end - call->op->start;
    join_blocks(&layer->in, call->op->dimension, &outer, &inner);
    c_columns(call, arena_printf(call->c->arena, "%s + %zu", call->x, call->op->start * inner),
              size_along(&layer->in, call->op->dimension) * inner, call->y, count * inner, outer, count * inner);
}

static void add_mean(const struct c_call *call) {
    size_t outer, inner;
    join_blocks(&call->layer->in, call->op->dimension, &outer, &inner);
    text_printf(c_use(call, C_mean), "    mean(%s, %s, %zu, %s, %zu);\n", call->x, call->y, outer,
                c_length(call, size_along(&call->layer->in, call->op->dimension)), inner);
}

static void add_input(const struct c_call *call) {
    size_t size = call->op->end - call->op->start;
    c_columns(call, arena_printf(call->c->arena, "%s + %zu", call->x, call->op->start), size, call->y, size, 1, size);
}

static void add_outputs(const struct c_call *call) {
    size_t at = 0;
    for (size_t i = 0; i < call->layer->in_count; i++) {
        size_t size = shape_elements(&call->layer->ins[i]);
        c_columns(call, call->inputs[i], size, arena_printf(call->c->arena, "%s + %zu", call->y, at), size, 1, size);
        at += size;
    }
}

static void add_product(const struct c_call *call) {
    text_printf(c_use(call, C_multiply), "    multiply(%s, %s, %s, %zu);\n", call->inputs[0], call->inputs[1], call->y,
                call->layer->out_size);
}

static void add_upsample(const struct c_call *call) {
    const struct resize *r = &call->op->resize;
    struct image_shape in = {r->side[0].in, r->side[1].in, r->channels};
    struct image_shape out = {r->side[0].out, r->side[1].out, r->channels};
    text_printf(c_use(call, C_upsample), "    upsample(%s, %s, %s, %s,\n             %af, %af, %d, %d);\n", call->x,
                image_of_shape(call, &in), call->y, image_of_shape(call, &out), (double)r->side[0].scale,
                (double)r->side[1].scale, r->is_nearest, r->align_corners);
}

static const char *list_of(const struct c_call *call, const size_t *values, size_t count) {
    struct text list = {0};
    for (size_t i = 0; i < count; i++) text_printf(&list, "%s%zu", i ? ", " : "", values[i]);
    const char *out = arena_printf(call->c->arena, "(const size_t[]){%s}", text_string(&list));
    text_free(&list);
    return out;
}

static void add_permutation(const struct c_call *call) {
    const struct permutation *p = &call->op->permutation;
    text_printf(c_use(call, C_permute), "    permute(%s, %s, %d, %s, %s);\n", call->x, call->y, p->dims,
                list_of(call, p->size, (size_t)p->dims), list_of(call, p->stride, (size_t)p->dims));
}

static void add_pad(const struct c_call *call) {
    static const char modes[] = {
        [PAD_CONSTANT] = 'c', [PAD_REFLECT] = 'r', [PAD_REPLICATE] = 'e', [PAD_CIRCULAR] = 'w'};
    const struct pad *p = &call->op->pad;
    const size_t out[2] = {pad_size(p, 0), pad_size(p, 1)};
    text_printf(c_use(call, C_pad), "    pad(%s, %s, %zu, %s, %s, %s, %zu, '%c', ", call->x, call->y, call->op->images,
                list_of(call, p->in, 2), list_of(call, p->before, 2), list_of(call, out, 2), p->inner, modes[p->mode]);
    if (isinf(p->value))
        text_printf(&call->c->body, "%sINFINITY);\n", p->value > 0 ? "" : "-");
    else
        text_printf(&call->c->body, "%af);\n", (double)p->value);
}

static void add_unfolded_depth(const struct c_call *call) {
    const struct depth_window *w = &call->op->depth;
    text_printf(c_use(call, C_unfold_depth), "    unfold_depth(%s, %s, %zu, %zu, %zu, %zu, %zu, %zu, %zu);\n", call->x,
                call->y, w->in, w->out, w->positions * w->channels, w->kernel, w->stride, w->padding, w->dilation);
}

/* The second factor is (in, out), as linear takes it. */
static void add_matrix_product(const struct c_call *call) {
    const struct shape *a = &call->layer->in, *y = &call->layer->out;
    size_t m = (size_t)a->size[a->dims - 2], k = c_last(a), n = c_last(y), count = call->layer->in_size / (m * k);
    begin_images(call, count);
    text_printf(c_use(call, C_linear), "    linear(%s, %s, 0, %s, %zu, %zu, %zu);\n",
                image_at(call, call->inputs[0], count, m * k), image_at(call, call->inputs[1], count, k * n),
                image_at(call, call->y, count, m * n), m, k, n);
    end_images(call, count);
}

static c_writer *const writers[OPERATION_KINDS] = {
    [OPERATION_REORDER] = add_reorder,
    [OPERATION_LINEAR] = add_linear,
    [OPERATION_ACTIVATION] = add_activation,
    [OPERATION_LEAKY_RELU] = add_leaky_relu,
    [OPERATION_ELU] = add_elu,
    [OPERATION_CONVOLUTION] = add_convolution,
    [OPERATION_CONV_TRANSPOSE] = add_convolution_transpose,
    [OPERATION_MAX_POOL] = add_max_pool,
    [OPERATION_AVERAGE_POOL] = add_average_pool,
    [OPERATION_BATCH_NORM] = add_batch_norm,
    [OPERATION_GROUP_NORM] = add_group_norm,
    [OPERATION_LAYER_NORM] = add_row_norm,
    [OPERATION_RMS_NORM] = add_row_norm,
    [OPERATION_SOFTMAX] = add_softmax,
    [OPERATION_LOG_SOFTMAX] = add_log_softmax,
    [OPERATION_SCALE] = add_scale,
    [OPERATION_PRELU] = add_prelu,
    [OPERATION_CONCAT] = add_concat,
    [OPERATION_SLICE] = add_slice,
    [OPERATION_MEAN] = add_mean,
    [OPERATION_MULTIPLY] = add_product,
    [OPERATION_UPSAMPLE] = add_upsample,
    [OPERATION_PERMUTE] = add_permutation,
    [OPERATION_PAD] = add_pad,
    [OPERATION_MAXIMUM] = add_maximum,
    [OPERATION_MATMUL] = add_matrix_product,
    [OPERATION_UNFOLD_DEPTH] = add_unfolded_depth,
    [OPERATION_INPUT] = add_input,
    [OPERATION_OUTPUTS] = add_outputs,
};

void c_node_add(struct c_file *c, const struct layer *layer, const struct operation *op, const char *const *inputs,
                const char *y, const char *const scratch[2]) {
    const struct c_call call = {c, layer, op, inputs[0], y, inputs, scratch};
    c_writer *writer = c_sequences[op->kind] ? c_sequences[op->kind] : writers[op->kind];
    writer(&call);
    if (op->has_relu) text_printf(c_use(&call, C_relu), "    relu(%s, %s, %zu);\n", y, y, layer->out_size);
}

void c_node_scratch(const struct layer *layer, const struct operation *op, size_t sizes[2]) {
    const struct convolution *v = &op->convolution;
    sizes[0] = sizes[1] = 0;
    if (op->kind == OPERATION_CONVOLUTION)
        sizes[0] = v->window.kernel[0] * v->window.kernel[1] * (v->in.channels / v->groups);
    else
        c_sequences_scratch(layer, op, sizes);
}
