/* Calls of layers of tokens and positions: embeddings, attention, recurrent layers. */
#include "export/c_nodes.h"

#define ATTENTION_BLOCK 64 /* as in functions/attention.c */

/* ---- rows of different lengths ---- */

/* The variable of the generated code with these lengths; the code of the layer that sets them declares it. */
static const char *length_variable(const struct c_call *call, size_t lengths) {
    return arena_printf(call->c->arena, "length_%zu", lengths);
}

/* The expression for the number of real positions that the operation takes, of [positions]. */
const char *c_length(const struct c_call *call, size_t positions) {
    return call->op->lengths ? length_variable(call, call->op->lengths)
                             : arena_printf(call->c->arena, "%zu", positions);
}

static void set_length_of_tokens(const struct c_call *call) {
    size_t lengths = call->op->sets_lengths;
    bool are_tokens = call->layer->in.is_tokens;
    if (!lengths || !call->c->m->reads_lengths[lengths - 1]) return;
    text_printf(c_use(call, are_tokens ? C_length_of_tokens : C_length_of_values),
                "    const size_t %s = %s(%s, %zu, %d);\n", length_variable(call, lengths),
                are_tokens ? "length_of_tokens" : "length_of_values", call->x, call->layer->in_size,
                (int)call->op->padding);
}

static void add_sequence_lengths(const struct c_call *call) {
    const char *length = length_variable(call, call->op->sets_lengths);
    text_printf(c_use(call, C_given_length), "    const size_t %s = given_length(*(%s), %zu);\n", length,
                call->inputs[1], (size_t)call->layer->out.size[0]);
    text_printf(&call->c->body, "    if (%s == 0) return 2;\n", length);
    c_columns(call, call->x, call->layer->out_size, call->y, call->layer->out_size, 1, call->layer->out_size);
}

/* ---- tokens ---- */

static void add_embedding(const struct c_call *call) {
    const struct param *param = &call->c->m->model->params.items[call->op->weight];
    bool are_tokens = call->layer->in.is_tokens;
    text_printf(c_use(call, are_tokens ? C_embedding : C_embedding_of_values),
                "    if (%s(%s, %s, %s, %zu, %lld, %lld)) return 2;\n",
                are_tokens ? "embedding" : "embedding_of_values", call->x, c_plain(call, call->op->weight), call->y,
                call->layer->in_size, (long long)param->shape[0], (long long)param->shape[1]);
    set_length_of_tokens(call);
}

static void add_embedding_bag(const struct c_call *call) {
    const struct param *param = &call->c->m->model->params.items[call->op->weight];
    bool are_tokens = call->layer->in.is_tokens;
    text_printf(c_use(call, C_embedding_bag),
                "    if (embedding_bag(%s, %s, %s, %s, %zu, %lld, %lld, %d, %d)) return 2;\n",
                are_tokens ? call->x : "NULL", are_tokens ? "NULL" : call->x, c_plain(call, call->op->weight), call->y,
                call->layer->in_size, (long long)param->shape[0], (long long)param->shape[1], (int)call->op->padding,
                (int)call->op->bag);
}

static void add_positions(const struct c_call *call) {
    text_printf(c_use(call, C_add), "    add(%s, %s, %s, %zu);\n", call->x, c_plain(call, call->op->weight), call->y,
                call->layer->in_size);
}

static void add_class_token(const struct c_call *call) {
    size_t size = c_last(&call->layer->in);
    text_printf(&call->c->body, "    memcpy(%s, %s, %zu * sizeof(float));\n", call->y, c_plain(call, call->op->weight),
                size);
    text_printf(&call->c->body, "    memcpy(%s + %zu, %s, %zu * sizeof(float));\n", call->y, size, call->x,
                call->layer->in_size);
}

/* ---- attention ---- */

static void add_core(const struct c_call *call, const char *qkv, const char *y, const char *work) {
    size_t tokens = (size_t)call->layer->out.size[0], width = (size_t)call->layer->out.size[1];
    text_printf(c_use(call, C_self_attention), "    self_attention(%s, %s, %zu, %s, %zu, %zu, %zu, %d, %s);\n", qkv, y,
                tokens, c_length(call, tokens), call->op->heads, call->op->kv_heads, width / call->op->heads,
                call->op->is_causal, work);
}

static void add_attention_core(const struct c_call *call) { add_core(call, call->x, call->y, call->scratch[0]); }

static size_t attention_work(const struct layer *layer, const struct operation *op) {
    return ATTENTION_BLOCK * (ATTENTION_BLOCK + (size_t)layer->out.size[1] / op->heads);
}

/* scratch[1]: q, k and v, then the outputs of the heads */
static void add_attention(const struct c_call *call) {
    size_t tokens = (size_t)call->layer->out.size[0], width = (size_t)call->layer->out.size[1];
    const char *heads = arena_printf(call->c->arena, "%s + %zu", call->scratch[1], 3 * tokens * width);
    const char *in = c_table_param(call->c, call->op->weight, C_LINEAR, NULL), *in_bias = c_plain(call, call->op->bias);
    const char *out = c_table_param(call->c, call->op->out_weight, C_LINEAR, NULL);
    const char *out_bias = c_plain(call, call->op->out_bias);
    text_printf(c_use(call, C_linear), "    linear(%s, %s, %s, %s, %zu, %zu, %zu);\n", call->x, in, in_bias,
                call->scratch[1], tokens, width, 3 * width);
    add_core(call, call->scratch[1], heads, call->scratch[0]);
    text_printf(c_use(call, C_linear), "    linear(%s, %s, %s, %s, %zu, %zu, %zu);\n", heads, out, out_bias, call->y,
                tokens, width, width);
}

/* Elements of scratch[1]: queries, keys and values, the outputs of the heads. */
static size_t cross_attention_work(const struct layer *layer) {
    return 2 * layer->out_size + 2 * shape_elements(&layer->ins[1]);
}

static void add_cross_attention(const struct c_call *call) {
    struct arena *arena = call->c->arena;
    size_t tokens = (size_t)call->layer->out.size[0], width = (size_t)call->layer->out.size[1];
    size_t keys = (size_t)call->layer->ins[1].size[0];
    const char *bias = c_plain(call, call->op->bias), *q = call->scratch[1];
    const char *kv_bias = call->op->bias == OPERATION_NO_PARAM ? bias : arena_printf(arena, "%s + %zu", bias, width);
    const char *kv = arena_printf(arena, "%s + %zu", q, tokens * width);
    const char *heads = arena_printf(arena, "%s + %zu", kv, 2 * keys * width);
    text_printf(c_use(call, C_linear), "    linear(%s, %s, %s, %s, %zu, %zu, %zu);\n", call->inputs[0],
                c_table_rows(call->c, call->op->weight, 0, width), bias, q, tokens, width, width);
    text_printf(&call->c->body, "    linear(%s, %s, %s, %s, %zu, %zu, %zu);\n", call->inputs[1],
                c_table_rows(call->c, call->op->weight, width, 2 * width), kv_bias, kv, keys, width, 2 * width);
    text_printf(c_use(call, C_cross_attention), "    cross_attention(%s, %s, %s, %zu, %zu, %s, %zu, %zu, %s);\n", q, kv,
                heads, tokens, keys, c_length(call, keys), call->op->heads, width / call->op->heads, call->scratch[0]);
    text_printf(&call->c->body, "    linear(%s, %s, %s, %s, %zu, %zu, %zu);\n", heads,
                c_table_param(call->c, call->op->out_weight, C_LINEAR, NULL), c_plain(call, call->op->out_bias),
                call->y, tokens, width, width);
}

static void add_rotation(const struct c_call *call) {
    size_t tokens = (size_t)call->layer->in.size[0];
    text_printf(c_use(call, C_rotate), "    rotate(%s, %s, %s, %zu, %zu, %zu, %zu, %d);\n", call->x,
                c_table_angles(call->c, call->op, tokens), call->y, tokens, c_last(&call->layer->in),
                call->op->rotation.heads, call->op->rotation.head_size, call->op->rotation.is_interleaved);
}

/* ---- recurrent layers ---- */

/* Floats of the gates of all steps, and behind them of the bias, the state or the sums of one step. */
static size_t recurrent_work(const struct layer *layer, const struct operation *op) {
    size_t width = recurrent_gates(op->recurrent.cell) * op->recurrent.hidden;
    return ((size_t)layer->in.size[0] + 2) * width;
}

/* One direction of layer [l], from x (steps, in) to y, rows [stride] apart. scratch[0]: recurrent_work */
static void add_direction(const struct c_call *call, size_t l, size_t d, const char *x, size_t in, const char *y) {
    const struct operation *op = call->op;
    enum recurrent_cell cell = op->recurrent.cell;
    size_t hidden = op->recurrent.hidden, width = recurrent_gates(cell) * hidden,
           steps = (size_t)call->layer->in.size[0];
    size_t param = op->weight + (l * op->recurrent.directions + d) * (op->recurrent.has_bias ? 4 : 2);
    size_t stride = hidden * op->recurrent.directions;
    const char *w = c_table_param(call->c, param, C_LINEAR, NULL), *b = "0", *hidden_bias = "0";
    const char *hidden_w = c_table_param(call->c, param + 1, C_LINEAR, NULL), *gates = call->scratch[0];
    const char *bias = arena_printf(call->c->arena, "%s + %zu", gates, steps * width);
    const char *state = arena_printf(call->c->arena, "%s + %zu", gates, (steps + 1) * width);
    const char *length = c_length(call, steps);
    if (op->recurrent.has_bias) b = c_plain(call, param + 2), hidden_bias = c_plain(call, param + 3);
    if (op->recurrent.has_bias && cell != RECURRENT_GRU) {
        text_printf(c_use(call, C_add), "    add(%s, %s, %s, %zu);\n", b, hidden_bias, bias, width);
        b = bias;
    }
    text_printf(c_use(call, C_linear), "    linear(%s, %s, %s, %s, %s, %zu, %zu);\n", x, w, b, gates, length, in,
                width);
    if (cell == RECURRENT_LSTM)
        text_printf(c_use(call, C_lstm), "    lstm(%s, %s, %s, %s, %zu, %s, %zu, %zu);\n", gates, hidden_w, state, y,
                    stride, length, hidden, d);
    else if (cell == RECURRENT_GRU)
        text_printf(c_use(call, C_gru), "    gru(%s, %s, %s, %s, %s, %zu, %s, %zu, %zu);\n", gates, hidden_w,
                    hidden_bias, state, y, stride, length, hidden, d);
    else
        text_printf(c_use(call, C_recurrence), "    recurrence(%s, %s, %s, %zu, %s, %zu, %zu, %d);\n", gates, hidden_w,
                    y, stride, length, hidden, d, cell == RECURRENT_RELU);
}

/* The outputs y (steps, columns) behind the length of the row become 0. */
static void zero_padding(const struct c_call *call, size_t columns, size_t steps) {
    const char *length = c_length(call, steps);
    text_printf(&call->c->body, "    memset(%s + %s * %zu, 0, (%zu - %s) * %zu * sizeof(float));\n", call->y, length,
                columns, steps, length, columns);
}

/* scratch[1]: the outputs of two layers; those behind the length of the row are not read. */
static void add_recurrent(const struct c_call *call) {
    const struct operation *op = call->op;
    struct arena *arena = call->c->arena;
    size_t steps = (size_t)call->layer->in.size[0], hidden = op->recurrent.hidden;
    size_t columns = hidden * op->recurrent.directions, in = c_last(&call->layer->in);
    const char *x = call->x, *y = NULL;
    for (size_t l = 0; l < op->recurrent.layers; l++, x = y, in = columns) {
        bool is_output = l + 1 == op->recurrent.layers && !op->recurrent.is_last;
        y = is_output ? call->y : arena_printf(arena, "%s + %zu", call->scratch[1], l % 2 * steps * columns);
        for (size_t d = 0; d < op->recurrent.directions; d++)
            add_direction(call, l, d, x, in, arena_printf(arena, "%s + %zu", y, d * hidden));
        if (is_output && op->lengths) zero_padding(call, columns, steps);
    }
    const char *last_step = arena_printf(arena, "%s + (%s - 1) * %zu", y, c_length(call, steps), columns);
    for (size_t d = 0; d < op->recurrent.directions && op->recurrent.is_last; d++)
        c_columns(call, d == 0 ? last_step : arena_printf(arena, "%s + %zu", y, hidden), 0,
                  arena_printf(arena, "%s + %zu", call->y, d * hidden), 0, 1, hidden);
}

void c_sequences_scratch(const struct layer *layer, const struct operation *op, size_t sizes[2]) {
    bool attends = op->kind == OPERATION_ATTENTION || op->kind == OPERATION_ATTENTION_CORE ||
                   op->kind == OPERATION_CROSS_ATTENTION;
    if (attends) sizes[0] = attention_work(layer, op);
    if (op->kind == OPERATION_CROSS_ATTENTION) sizes[1] = cross_attention_work(layer);
    if (op->kind == OPERATION_ATTENTION) sizes[1] = 4 * layer->out_size;
    if (op->kind == OPERATION_RECURRENT) {
        sizes[0] = recurrent_work(layer, op);
        sizes[1] = 2 * (size_t)layer->in.size[0] * op->recurrent.hidden * op->recurrent.directions;
    }
}

c_writer *const c_sequences[OPERATION_KINDS] = {
    [OPERATION_EMBEDDING] = add_embedding,
    [OPERATION_EMBEDDING_BAG] = add_embedding_bag,
    [OPERATION_CLASS_TOKEN] = add_class_token,
    [OPERATION_ADD_POSITIONS] = add_positions,
    [OPERATION_ATTENTION] = add_attention,
    [OPERATION_ATTENTION_CORE] = add_attention_core,
    [OPERATION_CROSS_ATTENTION] = add_cross_attention,
    [OPERATION_SEQUENCE_LENGTHS] = add_sequence_lengths,
    [OPERATION_ROTATE] = add_rotation,
    [OPERATION_RECURRENT] = add_recurrent,
};
