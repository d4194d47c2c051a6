/* Recurrent layers: the nodes LSTM, GRU and RNN of ONNX take (length, batch, features), and their gates in another
 * order. */
#include <string.h>

#include "export/onnx_operations.h"

static size_t gates_of(const struct operation *op) { return recurrent_gates(op->recurrent.cell); }

static size_t param_of(const struct operation *op, size_t l, size_t d, size_t which) {
    return op->weight + (l * op->recurrent.directions + d) * (op->recurrent.has_bias ? 4 : 2) + which;
}

/* PyTorch's gate that ONNX has at [position]: i o f c of i f g o; z r n of r z n. */
static size_t gate_at(const struct operation *op, size_t position) {
    static const size_t lstm[] = {0, 3, 1, 2}, gru[] = {1, 0, 2};
    return op->recurrent.cell == RECURRENT_LSTM  ? lstm[position]
           : op->recurrent.cell == RECURRENT_GRU ? gru[position]
                                                 : position;
}

/* The parameters [first, first + count) of each direction of layer [l], one after the other, gates in ONNX's order:
 * (directions, count * gates * hidden, columns); columns 0: vectors. */
static const char *parameters(struct onnx_graph *g, const struct operation *op, size_t l, size_t first, size_t count,
                              int64_t columns) {
    size_t directions = op->recurrent.directions, part = op->recurrent.hidden * (columns ? (size_t)columns : 1);
    float *values = arena_alloc(g->arena, directions * count * gates_of(op) * part * sizeof *values), *to = values;
    for (size_t d = 0; d < directions; d++)
        for (size_t i = 0; i < count; i++)
            for (size_t k = 0; k < gates_of(op); k++, to += part)
                memcpy(to, g->m->params[param_of(op, l, d, first + i)] + gate_at(op, k) * part, part * sizeof *to);
    const int64_t shape[] = {(int64_t)directions, (int64_t)(count * gates_of(op) * op->recurrent.hidden), columns};
    return onnx_tensor(g, NULL, ONNX_FLOAT, values, columns ? 3 : 2, shape);
}

static struct text attributes_of(const struct operation *op) {
    struct text attributes = {0};
    const char *function = op->recurrent.cell == RECURRENT_RELU ? "Relu" : "Tanh";
    onnx_int(&attributes, "hidden_size", (int64_t)op->recurrent.hidden);
    onnx_string(&attributes, "direction", op->recurrent.directions == 2 ? "bidirectional" : "forward");
    if (op->recurrent.cell == RECURRENT_GRU) onnx_int(&attributes, "linear_before_reset", 1);
    if (gates_of(op) == 1)
        onnx_strings(&attributes, "activations", (const char *const[]){function, function}, op->recurrent.directions);
    return attributes;
}

/* [lengths]: int32 (batch), the steps of each row; NULL: all */
static const char *add_layer(struct onnx_graph *g, const struct operation *op, size_t l, const char *x, int64_t in,
                             bool is_last, const char *lengths) {
    static const char *const names[] = {
        [RECURRENT_LSTM] = "LSTM", [RECURRENT_GRU] = "GRU", [RECURRENT_TANH] = "RNN", [RECURRENT_RELU] = "RNN"};
    struct text attributes = attributes_of(op);
    const char *inputs[] = {x, parameters(g, op, l, 0, 1, in),
                            parameters(g, op, l, 1, 1, (int64_t)op->recurrent.hidden), "", lengths};
    if (op->recurrent.has_bias) inputs[3] = parameters(g, op, l, 2, 2, 0);
    size_t count = lengths ? 5 : op->recurrent.has_bias ? 4 : 3;
    return onnx_node_output(g, names[op->recurrent.cell], is_last ? 1 : 0, inputs, count, &attributes);
}

const char *onnx_recurrent(const struct onnx_call *c) {
    struct onnx_graph *g = c->g;
    const struct operation *op = c->op;
    static const int64_t swap[] = {1, 0, 2}, joined[] = {0, 0, -1}, flat[] = {0, -1};
    int64_t columns = (int64_t)(op->recurrent.directions * op->recurrent.hidden);
    const char *x = onnx_transpose(g, c->x, swap, 3), *lengths = NULL;
    if (op->lengths) lengths = onnx_cast(g, onnx_lengths(g, op->lengths), ONNX_INT32);
    for (size_t l = 0; l < op->recurrent.layers; l++) {
        bool is_last = op->recurrent.is_last && l + 1 == op->recurrent.layers;
        x = add_layer(g, op, l, x, l ? columns : c->layer->in.size[1], is_last, lengths);
        if (is_last) /* (directions, batch, hidden) */
            return onnx_node2(g, "Reshape", onnx_transpose(g, x, swap, 3), onnx_numbers(g, flat, 2));
        x = onnx_transpose(g, x, (const int64_t[]){0, 2, 1, 3}, 4); /* from (length, directions, batch, hidden) */
        x = onnx_node2(g, "Reshape", x, onnx_numbers(g, joined, 3));
    }
    return onnx_transpose(g, x, swap, 3);
}
