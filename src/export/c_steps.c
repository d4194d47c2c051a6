/* One call for each operation; a function of its kind writes it. */
#include "export/c_file.h"

#define ATTENTION_BLOCK 64 /* as in functions/attention.c */

/* What a call is written from. */
struct call {
    struct c_file *c;
    const struct layer *layer;
    const struct operation *op;
    const char *x, *y;
    const char *const *scratch;
};

static size_t last(const struct shape *shape) { return (size_t)shape->size[shape->dims - 1]; }

static struct text *use(const struct call *call, enum c_function function) {
    c_code_use(function, &call->c->used);
    return &call->c->steps;
}

static const char *plain(const struct call *call, size_t param) { return c_table_param(call->c, param, C_PLAIN, NULL); }

static void add_linear(const struct call *call) {
    const char *w = c_table_param(call->c, call->op->weight, C_LINEAR, NULL), *b = plain(call, call->op->bias);
    size_t in = last(&call->layer->in), out = last(&call->layer->out);
    text_printf(use(call, C_linear), "    linear(%s, %s, %s, %s, %zu, %zu, %zu);\n", call->x, w, b, call->y,
                call->layer->in_size / in, in, out);
}

static void add_activation(const struct call *call) {
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
    text_printf(use(call, functions[call->op->function].function), "    %s(%s, %s, %zu);\n",
                functions[call->op->function].name, call->x, call->y, call->layer->in_size);
}

static void add_leaky_relu(const struct call *call) {
    text_printf(use(call, C_leaky_relu), "    leaky_relu(%s, %af, %s, %zu);\n", call->x, (double)call->op->slope,
                call->y, call->layer->in_size);
}

static void add_elu(const struct call *call) {
    text_printf(use(call, C_elu), "    elu(%s, %s, %zu);\n", call->x, call->y, call->layer->in_size);
    if (call->op->slope != 1)
        text_printf(use(call, C_leaky_relu), "    leaky_relu(%s, %af, %s, %zu);\n", call->y, (double)call->op->slope,
                    call->y, call->layer->in_size);
}

static const char *image_of_shape(const struct call *call, const struct image_shape *image) {
    return arena_printf(call->c->arena, "(struct model_image){%zu, %zu, %zu}", image->height, image->width,
                        image->channels);
}

static const char *window_of(const struct call *call, const struct window *w) {
    return arena_printf(call->c->arena, "(struct model_window){{%zu, %zu}, {%zu, %zu}, {%zu, %zu}, {%zu, %zu}}",
                        w->kernel[0], w->kernel[1], w->stride[0], w->stride[1], w->padding[0], w->padding[1],
                        w->dilation[0], w->dilation[1]);
}

static void add_convolution(const struct call *call) {
    const struct convolution *v = &call->op->convolution;
    const char *w = c_table_param(call->c, call->op->weight, C_CONVOLUTION, call->op), *b = plain(call, call->op->bias);
    text_printf(use(call, C_convolution), "    convolution(%s, %s, %s, %s, %s,\n                %s, %s, %zu, %s);\n",
                call->x, image_of_shape(call, &v->in), w, b, call->y, image_of_shape(call, &v->out),
                window_of(call, &v->window), v->groups, call->scratch[0]);
}

static void add_max_pool(const struct call *call) {
    const struct pooling *p = &call->op->pooling;
    text_printf(use(call, C_max_pool), "    max_pool(%s, %s, %s, %s,\n             %s);\n", call->x,
                image_of_shape(call, &p->in), call->y, image_of_shape(call, &p->out), window_of(call, &p->window));
}

static void add_average_pool(const struct call *call) {
    const struct pooling *p = &call->op->pooling;
    text_printf(use(call, C_average_pool), "    average_pool(%s, %s, %s, %s,\n                 %s, %d, %d, %zu);\n",
                call->x, image_of_shape(call, &p->in), call->y, image_of_shape(call, &p->out),
                window_of(call, &p->window), p->is_adaptive, !p->is_adaptive && !p->excludes_padding, p->divisor);
}

static size_t channels_of(const struct call *call) { return (size_t)call->layer->in.size[0]; }
static size_t positions_of(const struct call *call) { return call->layer->in_size / channels_of(call); }

static void add_batch_norm(const struct call *call) {
    const char *scale = c_table_norm(call->c, call->op, channels_of(call), C_SCALE);
    const char *shift = c_table_norm(call->c, call->op, channels_of(call), C_SHIFT);
    text_printf(use(call, C_batch_norm), "    batch_norm(%s, %s, %s, %s, %zu, %zu);\n", call->x, scale, shift, call->y,
                positions_of(call), channels_of(call));
}

static void add_group_norm(const struct call *call) {
    const char *w = plain(call, call->op->weight), *b = plain(call, call->op->bias);
    text_printf(use(call, C_group_norm), "    group_norm(%s, %s, %s, %a, %s, %zu, %zu, %zu);\n", call->x, w, b,
                (double)call->op->eps, call->y, positions_of(call), channels_of(call), call->op->groups);
}

static void add_row_norm(const struct call *call) {
    size_t size = last(&call->layer->in), rows = call->layer->in_size / size;
    const char *w = plain(call, call->op->weight), *b = plain(call, call->op->bias);
    if (call->op->kind == OPERATION_LAYER_NORM)
        text_printf(use(call, C_layer_norm), "    layer_norm(%s, %s, %s, %af, %s, %zu, %zu);\n", call->x, w, b,
                    (double)call->op->eps, call->y, rows, size);
    else
        text_printf(use(call, C_rms_norm), "    rms_norm(%s, %s, %af, %s, %zu, %zu);\n", call->x, w,
                    (double)call->op->eps, call->y, rows, size);
}

static void add_softmax(const struct call *call) {
    size_t size = last(&call->layer->in);
    text_printf(use(call, C_softmax), "    softmax(%s, %s, %zu, %zu);\n", call->x, call->y, call->layer->in_size / size,
                size);
}

static void add_embedding(const struct call *call) {
    const struct param *param = &call->c->m->model->params.items[call->op->weight];
    text_printf(use(call, C_embedding), "    if (embedding(%s, %s, %s, %zu, %lld, %lld)) return 2;\n", call->x,
                plain(call, call->op->weight), call->y, call->layer->in_size, (long long)param->shape[0],
                (long long)param->shape[1]);
}

static void add_positions(const struct call *call) {
    text_printf(use(call, C_add), "    add(%s, %s, %s, %zu);\n", call->x, plain(call, call->op->weight), call->y,
                call->layer->in_size);
}

static void add_core(const struct call *call, const char *qkv, const char *y, const char *work) {
    size_t tokens = (size_t)call->layer->out.size[0], width = (size_t)call->layer->out.size[1];
    text_printf(use(call, C_attention), "    attention(%s, %s, %zu, %zu, %zu, %d, %s);\n", qkv, y, tokens,
                call->op->heads, width / call->op->heads, call->op->is_causal, work);
}

static void add_attention_core(const struct call *call) { add_core(call, call->x, call->y, call->scratch[0]); }

static size_t attention_work(const struct layer *layer, const struct operation *op) {
    return ATTENTION_BLOCK * (ATTENTION_BLOCK + (size_t)layer->out.size[1] / op->heads);
}

/* scratch[1]: q, k and v, then the outputs of the heads */
static void add_attention(const struct call *call) {
    size_t tokens = (size_t)call->layer->out.size[0], width = (size_t)call->layer->out.size[1];
    const char *heads = arena_printf(call->c->arena, "%s + %zu", call->scratch[1], 3 * tokens * width);
    const char *in = c_table_param(call->c, call->op->weight, C_LINEAR, NULL), *in_bias = plain(call, call->op->bias);
    const char *out = c_table_param(call->c, call->op->out_weight, C_LINEAR, NULL);
    const char *out_bias = plain(call, call->op->out_bias);
    text_printf(use(call, C_linear), "    linear(%s, %s, %s, %s, %zu, %zu, %zu);\n", call->x, in, in_bias,
                call->scratch[1], tokens, width, 3 * width);
    add_core(call, call->scratch[1], heads, call->scratch[0]);
    text_printf(use(call, C_linear), "    linear(%s, %s, %s, %s, %zu, %zu, %zu);\n", heads, out, out_bias, call->y,
                tokens, width, width);
}

static void add_reorder(const struct call *call) {
    size_t channels = channels_of(call), positions = positions_of(call);
    bool is_last = call->layer->in.is_channels_last;
    text_printf(use(call, C_transpose), "    transpose(%s, %s, %zu, %zu);\n", call->x, call->y,
                is_last ? positions : channels, is_last ? channels : positions);
}

static void (*const writers[OPERATION_KINDS])(const struct call *call) = {
    [OPERATION_REORDER] = add_reorder,
    [OPERATION_LINEAR] = add_linear,
    [OPERATION_ACTIVATION] = add_activation,
    [OPERATION_LEAKY_RELU] = add_leaky_relu,
    [OPERATION_ELU] = add_elu,
    [OPERATION_CONVOLUTION] = add_convolution,
    [OPERATION_MAX_POOL] = add_max_pool,
    [OPERATION_AVERAGE_POOL] = add_average_pool,
    [OPERATION_BATCH_NORM] = add_batch_norm,
    [OPERATION_GROUP_NORM] = add_group_norm,
    [OPERATION_LAYER_NORM] = add_row_norm,
    [OPERATION_RMS_NORM] = add_row_norm,
    [OPERATION_SOFTMAX] = add_softmax,
    [OPERATION_EMBEDDING] = add_embedding,
    [OPERATION_ADD_POSITIONS] = add_positions,
    [OPERATION_ATTENTION] = add_attention,
    [OPERATION_ATTENTION_CORE] = add_attention_core,
};

void c_step_add(struct c_file *c, const struct layer *layer, const struct operation *op, const char *x, const char *y,
                const char *const scratch[2]) {
    struct call call = {c, layer, op, x, y, scratch};
    writers[op->kind](&call);
    if (op->has_relu) text_printf(use(&call, C_relu), "    relu(%s, %s, %zu);\n", y, y, layer->out_size);
}

void c_step_scratch(const struct layer *layer, const struct operation *op, size_t sizes[2]) {
    const struct convolution *v = &op->convolution;
    sizes[0] = sizes[1] = 0;
    if (op->kind == OPERATION_CONVOLUTION)
        sizes[0] = v->window.kernel[0] * v->window.kernel[1] * (v->in.channels / v->groups);
    if (op->kind == OPERATION_ATTENTION || op->kind == OPERATION_ATTENTION_CORE) sizes[0] = attention_work(layer, op);
    if (op->kind == OPERATION_ATTENTION) sizes[1] = 4 * layer->out_size;
}
