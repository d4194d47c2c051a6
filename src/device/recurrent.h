/* recurrent: one direction of one layer of an LSTM, a GRU or an Elman RNN (torch.nn.RNN) over all time steps, and the
 * formulas of a step, from which the CPU's loops (cpu/sets/recurrent.c) and the GPU's kernels (cuda/recurrent.cu) are
 * made. Arrays are in the order of time: (steps, rows, ...), so that the products of a step work on whole matrices. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "device/activations.h"

struct all_sum; /* device/image.h */
struct device;

enum recurrent_cell {
    RECURRENT_LSTM, /* gates i, f, g, o */
    RECURRENT_GRU,  /* gates r, z, n */
    RECURRENT_TANH, /* one gate: h = tanh(...) */
    RECURRENT_RELU
};

struct recurrent_shape {
    enum recurrent_cell cell;
    size_t rows, steps, hidden;
    bool is_reverse;        /* from the last step to the first */
    const int32_t *lengths; /* (rows), each 1 to steps: a row ends there (pack_padded_sequence): its later states and
                               outputs are 0, as are their gradients; NULL: all have all steps */
};

static inline size_t recurrent_gates(enum recurrent_cell cell) {
    return cell == RECURRENT_LSTM ? 4 : cell == RECURRENT_GRU ? 3 : 1;
}

/* Columns of [states], a multiple of hidden: the cell states of an LSTM, h W^T + bias of a GRU. */
static inline size_t recurrent_states(enum recurrent_cell cell) {
    return cell == RECURRENT_LSTM ? 1 : cell == RECURRENT_GRU ? 3 : 0;
}

static inline enum activation recurrent_function(enum recurrent_cell cell) {
    return cell == RECURRENT_RELU ? ACTIVATION_RELU : ACTIVATION_TANH;
}

/* G = gates * hidden */
struct recurrent_arrays {
    const float *weight; /* (G, hidden): PyTorch's weight_hh */
    const float *bias;   /* (G): bias_hh of a GRU; NULL: none, or another cell */
    /* (steps, rows, G). Before forward x W_ih^T and the biases (of a GRU only bias_ih); after it what backward needs;
     * after backward their gradient. */
    float *gates;
    float *states;  /* (steps, rows, recurrent_states * hidden); after backward of a GRU the gradient of h W^T + bias */
    float *h;       /* (steps, rows, hidden): outputs */
    float *dh;      /* (steps, rows, hidden): before backward the gradient of the outputs; its content is lost */
    float *scratch; /* (scratch_floats) */
    /* (rows, hidden): outputs and, of an LSTM, cell states before the first step of each row; NULL: 0. */
    const float *h_start, *c_start;
    float *dh_start, *dc_start;   /* (rows, hidden): backward sets their gradients; NULL: they are not needed */
    const float *dh_end, *dc_end; /* (rows, hidden): of backward, the gradients of the outputs, beyond dh, and of the
                                     cell states after the last step of each row; NULL: 0 */
};

/* The rows of all ranks, (rows, columns), of which this rank has [own]: first, first + stride, ... */
struct row_share {
    size_t rows, columns, own, first, stride;
};

FORMULA bool row_share_is_own(const struct row_share *s, size_t row) {
    return row >= s->first && (row - s->first) % s->stride == 0 && (row - s->first) / s->stride < s->own;
}

struct recurrent_ops {
    size_t (*scratch_floats)(const struct recurrent_shape *);
    void (*forward)(struct device *, const struct recurrent_shape *, const struct recurrent_arrays *);
    void (*backward)(struct device *, const struct recurrent_shape *, const struct recurrent_arrays *);
    /* y (rows, y_stride), the first hidden columns: the outputs of each row's last step, of h (steps, rows, hidden). */
    void (*take_last)(struct device *, const struct recurrent_shape *, const float *h, float *y, size_t y_stride);
    /* The inverse, into zeros. */
    void (*put_last)(struct device *, const struct recurrent_shape *, const float *dy, size_t dy_stride, float *dh);
    /* Each rank has set its own rows of state (rows, columns): all of them get all rows, by way of sums (as large),
     * which the host adds up. */
    void (*share_rows)(struct device *, const struct all_sum *, const struct row_share *, float *state, double *sums);
};

/* ---- formulas of one element ---- */

/* Whether a row begins, or ends, with step t. [lengths] as in the shape, in the memory of the caller. */
FORMULA bool recurrent_begins(bool is_reverse, const int32_t *lengths, size_t steps, size_t row, size_t t) {
    return t == (!is_reverse ? 0 : lengths ? (size_t)lengths[row] - 1 : steps - 1);
}
FORMULA bool recurrent_ends(bool is_reverse, const int32_t *lengths, size_t steps, size_t row, size_t t) {
    return recurrent_begins(!is_reverse, lengths, steps, row, t);
}

struct lstm_gates {
    float i, f, g, o;
};

/* c = f c' + i g, h = o tanh(c); [g] becomes the values of the gates */
FORMULA void lstm_step(struct lstm_gates *g, float before, float *c, float *h) {
    *g = (struct lstm_gates){sigmoid_value(g->i), sigmoid_value(g->f), tanh_value(g->g), sigmoid_value(g->o)};
    *c = fmaf(g->f, before, g->i * g->g);
    *h = g->o * tanh_value(*c);
}

/* [g] becomes the gradient before the activations, *dc that of the cell state before the step. */
FORMULA void lstm_step_backward(struct lstm_gates *g, float before, float c, float dh, float *dc) {
    float t = tanh_value(c), slope = fmaf(dh * g->o, 1 - t * t, *dc);
    *dc = slope * g->f;
    *g = (struct lstm_gates){sigmoid_gradient(0, g->i, slope * g->g), sigmoid_gradient(0, g->f, slope * before),
                             tanh_gradient(0, g->g, slope * g->i), sigmoid_gradient(0, g->o, dh * t)};
}

struct gru_gates {
    float r, z, n;
};

/* n = tanh(x_n + r h_n), h = (1 - z) n + z h'; [g]: x W^T + bias, [states]: h' W^T + bias */
FORMULA float gru_step(struct gru_gates *g, const struct gru_gates *states, float before) {
    g->r = sigmoid_value(g->r + states->r);
    g->z = sigmoid_value(g->z + states->z);
    g->n = tanh_value(fmaf(g->r, states->n, g->n));
    return fmaf(g->z, before - g->n, g->n);
}

/* [g] becomes the gradient of x W^T + bias, [states] that of h' W^T + bias; returns that of h' by the term z h'. */
FORMULA float gru_step_backward(struct gru_gates *g, struct gru_gates *states, float before, float dh) {
    float dn = tanh_gradient(0, g->n, dh * (1 - g->z)), dz = sigmoid_gradient(0, g->z, dh * (before - g->n));
    float dr = sigmoid_gradient(0, g->r, dn * states->n), z = g->z;
    *states = (struct gru_gates){dr, dz, dn * g->r};
    *g = (struct gru_gates){dr, dz, dn};
    return dh * z;
}
