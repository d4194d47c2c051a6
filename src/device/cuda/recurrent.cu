/* Recurrent layers: per step one product (linear.cu) and one kernel, which applies the formulas of device/recurrent.h.
 */
extern "C" {
#include "device/recurrent.h"
}
#include "device/cuda/gpu.cuh"

namespace { /* in each file, so that kernels of different files have different types */

/* A step at index [at] of the arrays; [other]: the step whose state it takes, or in backward gives a gradient to. */
struct moment {
    size_t at, other;
    bool has_other, is_last; /* is_last: no later step has given it a gradient */
};

struct passage {
    const struct recurrent_shape *shape;
    const struct recurrent_arrays *arrays;
    size_t values, width; /* of one step: rows * hidden; columns of the gates */
    float *product, *carry, *mixed;
};

struct passage passage_of(const struct recurrent_shape *s, const struct recurrent_arrays *a) {
    size_t values = s->rows * s->hidden, gates = recurrent_gates(s->cell);
    float *carry = a->scratch + gates * values;
    return {s, a, values, gates * s->hidden, a->scratch, carry, carry + values};
}

struct moment moment_of(const struct recurrent_shape *s, size_t step) {
    size_t t = s->is_reverse ? s->steps - 1 - step : step;
    return {t, step == 0 ? t : s->is_reverse ? t + 1 : t - 1, step > 0, step + 1 == s->steps};
}

size_t scratch_floats(const struct recurrent_shape *s) {
    return (recurrent_gates(s->cell) + (s->is_reverse ? 2 : 1)) * s->rows * s->hidden;
}

/* Which rows have ended before a step, end with it or begin with it, of element [i] of (rows, hidden). */
struct row_ends {
    const int32_t *lengths; /* NULL: all have all steps */
    size_t step, steps, hidden;
    bool is_reverse;

    row_ends(operator_call *c, const struct recurrent_shape *s, size_t step)
        : lengths(c->in(s->lengths, s->rows)), step(step), steps(s->steps), hidden(s->hidden),
          is_reverse(s->is_reverse) {}
    __device__ bool are_before(size_t i) const { return lengths && step >= (size_t)lengths[i / hidden]; }
    __device__ bool are_at(size_t i) const { return recurrent_ends(is_reverse, lengths, steps, i / hidden, step); }
    __device__ bool have_begin_at(size_t i) const {
        return recurrent_begins(is_reverse, lengths, steps, i / hidden, step);
    }
};

__device__ inline float or_zero(const float *from, size_t i) { return from ? from[i] : 0; }

/* Whether some rows may begin with a step that others have had before them. */
bool is_mixed(const struct passage *w, const struct moment *p) {
    return p->has_other && w->shape->is_reverse && w->shape->lengths;
}

/* The states (rows, hidden) before a step, of [array] (steps, rows, hidden); of rows that begin with it of [start].
 * NULL: 0 */
const float *before_of(struct device *device, const struct passage *w, const struct moment *p, const float *array,
                       const float *start) {
    size_t n = w->values;
    if (!p->has_other) return start;
    if (!start || !is_mixed(w, p)) return array + p->other * n;
    operator_call c(device, "before_of");
    const float *earlier = c.in(array + p->other * n, n), *first = c.in(start, n);
    float *mixed = c.out(w->mixed, n);
    struct row_ends ends(&c, w->shape, p->at);
    c.each(n, [=] __device__(size_t i) { mixed[i] = ends.have_begin_at(i) ? first[i] : earlier[i]; });
    return w->mixed;
}

/* ---- forward ---- */

/* [has_product]: the state before the step is not 0. */
void lstm_forward(struct device *device, const struct passage *w, const struct moment *p, bool has_product) {
    const float *from = before_of(device, w, p, w->arrays->states, w->arrays->c_start);
    operator_call c(device, "lstm_forward");
    size_t hidden = w->shape->hidden, n = w->values;
    float *gates = c.inout(w->arrays->gates + p->at * 4 * n, 4 * n);
    const float *product = c.in(has_product ? w->product : NULL, 4 * n), *before = c.in(from, n);
    float *state = c.out(w->arrays->states + p->at * n, n), *h = c.out(w->arrays->h + p->at * n, n);
    struct row_ends ends(&c, w->shape, p->at);
    c.each(n, [=] __device__(size_t i) {
        size_t k = i / hidden * 4 * hidden + i % hidden;
        struct lstm_gates g = {gates[k] + or_zero(product, k), gates[k + hidden] + or_zero(product, k + hidden),
                               gates[k + 2 * hidden] + or_zero(product, k + 2 * hidden),
                               gates[k + 3 * hidden] + or_zero(product, k + 3 * hidden)};
        float now, output;
        lstm_step(&g, or_zero(before, i), &now, &output);
        bool has_ended = ends.are_before(i);
        state[i] = has_ended ? 0 : now;
        h[i] = has_ended ? 0 : output;
        gates[k] = g.i, gates[k + hidden] = g.f, gates[k + 2 * hidden] = g.g, gates[k + 3 * hidden] = g.o;
    });
}

/* [from]: the state before the step; NULL: 0, and the states are the bias. */
void gru_forward(struct device *device, const struct passage *w, const struct moment *p, const float *from) {
    operator_call c(device, "gru_forward");
    size_t hidden = w->shape->hidden, n = w->values;
    bool has_before = from != NULL;
    float *gates = c.inout(w->arrays->gates + p->at * 3 * n, 3 * n);
    float *states = c.inout(w->arrays->states + p->at * 3 * n, 3 * n);
    const float *bias = c.in(w->arrays->bias, 3 * hidden);
    const float *before = c.in(from, n);
    float *h = c.out(w->arrays->h + p->at * n, n);
    struct row_ends ends(&c, w->shape, p->at);
    c.each(n, [=] __device__(size_t i) {
        size_t j = i % hidden, k = i / hidden * 3 * hidden + j;
        struct gru_gates g = {gates[k], gates[k + hidden], gates[k + 2 * hidden]};
        struct gru_gates s = {or_zero(bias, j), or_zero(bias, j + hidden), or_zero(bias, j + 2 * hidden)};
        if (has_before)
            s = {states[k], states[k + hidden], states[k + 2 * hidden]};
        else
            states[k] = s.r, states[k + hidden] = s.z, states[k + 2 * hidden] = s.n;
        float output = gru_step(&g, &s, or_zero(before, i));
        h[i] = ends.are_before(i) ? 0 : output;
        gates[k] = g.r, gates[k + hidden] = g.z, gates[k + 2 * hidden] = g.n;
    });
}

void rnn_forward(struct device *device, const struct passage *w, const struct moment *p, bool has_product) {
    operator_call c(device, "rnn_forward");
    size_t n = w->values;
    bool is_relu = w->shape->cell == RECURRENT_RELU;
    const float *gates = c.in(w->arrays->gates + p->at * n, n);
    const float *product = c.in(has_product ? w->product : NULL, n);
    float *h = c.out(w->arrays->h + p->at * n, n);
    struct row_ends ends(&c, w->shape, p->at);
    c.each(n, [=] __device__(size_t i) {
        float x = gates[i] + or_zero(product, i);
        h[i] = ends.are_before(i) ? 0 : is_relu ? relu_value(x) : tanh_value(x);
    });
}

void forward(struct device *device, const struct recurrent_shape *s, const struct recurrent_arrays *a) {
    struct passage w = passage_of(s, a);
    for (size_t step = 0; step < s->steps; step++) {
        struct moment p = moment_of(s, step);
        float *to = s->cell == RECURRENT_GRU ? a->states + p.at * 3 * w.values : w.product;
        const float *from = before_of(device, &w, &p, a->h, a->h_start);
        struct tensor before = {(void *)from, false, nullptr, 0}, product = {to, false, nullptr, 0};
        if (from) gpu_linear_forward(device, &before, a->weight, a->bias, false, &product, s->rows, s->hidden, w.width);
        if (s->cell == RECURRENT_LSTM)
            lstm_forward(device, &w, &p, from != NULL);
        else if (s->cell == RECURRENT_GRU)
            gru_forward(device, &w, &p, from);
        else
            rnn_forward(device, &w, &p, from != NULL);
    }
}

/* ---- backward ---- */

void lstm_backward(struct device *device, const struct passage *w, const struct moment *p) {
    const float *from = before_of(device, w, p, w->arrays->states, w->arrays->c_start);
    operator_call c(device, "lstm_backward");
    size_t hidden = w->shape->hidden, n = w->values;
    bool is_last = p->is_last;
    float *gates = c.inout(w->arrays->gates + p->at * 4 * n, 4 * n), *carry = c.inout(w->carry, n);
    const float *dh = c.in(w->arrays->dh + p->at * n, n), *product = c.in(is_last ? NULL : w->product, n);
    const float *state = c.in(w->arrays->states + p->at * n, n);
    const float *before = c.in(from, n), *dh_end = c.in(w->arrays->dh_end, n), *dc_end = c.in(w->arrays->dc_end, n);
    struct row_ends ends(&c, w->shape, p->at);
    c.each(n, [=] __device__(size_t i) {
        size_t k = i / hidden * 4 * hidden + i % hidden;
        bool has_ended = ends.are_before(i);
        float dc = is_last || has_ended ? 0 : carry[i], slope = has_ended ? 0 : dh[i] + or_zero(product, i);
        if (ends.are_at(i)) slope += or_zero(dh_end, i), dc += or_zero(dc_end, i);
        struct lstm_gates g = {gates[k], gates[k + hidden], gates[k + 2 * hidden], gates[k + 3 * hidden]};
        lstm_step_backward(&g, or_zero(before, i), state[i], slope, &dc);
        carry[i] = dc;
        gates[k] = g.i, gates[k + hidden] = g.f, gates[k + 2 * hidden] = g.g, gates[k + 3 * hidden] = g.o;
    });
}

void gru_backward(struct device *device, const struct passage *w, const struct moment *p) {
    const float *from = before_of(device, w, p, w->arrays->h, w->arrays->h_start);
    operator_call c(device, "gru_backward");
    size_t hidden = w->shape->hidden, n = w->values;
    bool is_last = p->is_last;
    float *gates = c.inout(w->arrays->gates + p->at * 3 * n, 3 * n), *carry = c.inout(w->carry, n);
    float *states = c.inout(w->arrays->states + p->at * 3 * n, 3 * n);
    const float *dh = c.in(w->arrays->dh + p->at * n, n), *product = c.in(is_last ? NULL : w->product, n);
    const float *before = c.in(from, n), *dh_end = c.in(w->arrays->dh_end, n);
    struct row_ends ends(&c, w->shape, p->at);
    c.each(n, [=] __device__(size_t i) {
        size_t k = i / hidden * 3 * hidden + i % hidden;
        float slope = ends.are_before(i) ? 0 : dh[i] + (is_last ? 0 : carry[i]) + or_zero(product, i);
        if (ends.are_at(i)) slope += or_zero(dh_end, i);
        struct gru_gates g = {gates[k], gates[k + hidden], gates[k + 2 * hidden]};
        struct gru_gates s = {states[k], states[k + hidden], states[k + 2 * hidden]};
        carry[i] = gru_step_backward(&g, &s, or_zero(before, i), slope);
        gates[k] = g.r, gates[k + hidden] = g.z, gates[k + 2 * hidden] = g.n;
        states[k] = s.r, states[k + hidden] = s.z, states[k + 2 * hidden] = s.n;
    });
}

void rnn_backward(struct device *device, const struct passage *w, const struct moment *p) {
    operator_call c(device, "rnn_backward");
    size_t n = w->values;
    bool is_relu = w->shape->cell == RECURRENT_RELU;
    const float *dh = c.in(w->arrays->dh + p->at * n, n), *product = c.in(p->is_last ? NULL : w->product, n);
    const float *h = c.in(w->arrays->h + p->at * n, n), *dh_end = c.in(w->arrays->dh_end, n);
    float *gates = c.out(w->arrays->gates + p->at * n, n);
    struct row_ends ends(&c, w->shape, p->at);
    c.each(n, [=] __device__(size_t i) {
        float slope = ends.are_before(i) ? 0 : dh[i] + or_zero(product, i);
        if (ends.are_at(i)) slope += or_zero(dh_end, i);
        gates[i] = is_relu ? relu_gradient(0, h[i], slope) : tanh_gradient(0, h[i], slope);
    });
}

/* The gradient of the states before the first step, of the rows that begin with this one. */
void take_start(struct device *device, const struct passage *w, const struct moment *p) {
    operator_call c(device, "take_start");
    size_t n = w->values;
    bool is_gru = w->shape->cell == RECURRENT_GRU, has_cells = w->arrays->dc_start != NULL;
    const float *product = c.in(w->product, n), *carry = c.in(is_gru || has_cells ? w->carry : NULL, n);
    float *dh = c.inout(w->arrays->dh_start, n), *dc = c.inout(w->arrays->dc_start, n);
    struct row_ends ends(&c, w->shape, p->at);
    c.each(n, [=] __device__(size_t i) {
        if (!ends.have_begin_at(i)) return;
        dh[i] = product[i] + (is_gru ? carry[i] : 0);
        if (dc) dc[i] = carry[i];
    });
}

void backward(struct device *device, const struct recurrent_shape *s, const struct recurrent_arrays *a) {
    struct passage w = passage_of(s, a);
    for (size_t step = s->steps; step-- > 0;) {
        struct moment p = moment_of(s, step);
        const float *change = (s->cell == RECURRENT_GRU ? a->states : a->gates) + p.at * s->rows * w.width;
        struct tensor dy = {(void *)change, false, nullptr, 0}, dx = {w.product, false, nullptr, 0};
        if (s->cell == RECURRENT_LSTM)
            lstm_backward(device, &w, &p);
        else if (s->cell == RECURRENT_GRU)
            gru_backward(device, &w, &p);
        else
            rnn_backward(device, &w, &p);
        if (p.has_other || a->dh_start)
            gpu_linear_backward_input(device, &dy, a->weight, &dx, s->rows, s->hidden, w.width);
        if (a->dh_start && (!p.has_other || is_mixed(&w, &p))) take_start(device, &w, &p);
    }
}

/* ---- the last step of each row ---- */

/* The index in h of element [i] of (rows, hidden) of the last steps. */
__device__ inline size_t last_at(const struct recurrent_shape &s, const int32_t *lengths, size_t i) {
    size_t row = i / s.hidden, length = lengths ? (size_t)lengths[row] : s.steps;
    return (s.is_reverse ? 0 : length - 1) * s.rows * s.hidden + i;
}

void take_last(struct device *device, const struct recurrent_shape *shape, const float *h, float *y, size_t y_stride) {
    operator_call c(device, "take_last");
    struct recurrent_shape s = *shape;
    if (s.rows == 0) return;
    const float *from = c.in(h, s.steps * s.rows * s.hidden);
    const int32_t *lengths = c.in(s.lengths, s.rows);
    float *to = c.inout(y, (s.rows - 1) * y_stride + s.hidden);
    c.each(s.rows * s.hidden,
           [=] __device__(size_t i) { to[i / s.hidden * y_stride + i % s.hidden] = from[last_at(s, lengths, i)]; });
}

void put_last(struct device *device, const struct recurrent_shape *shape, const float *dy, size_t dy_stride,
              float *dh) {
    operator_call c(device, "put_last");
    struct recurrent_shape s = *shape;
    if (s.rows == 0) return;
    const float *from = c.in(dy, (s.rows - 1) * dy_stride + s.hidden);
    const int32_t *lengths = c.in(s.lengths, s.rows);
    float *to = c.inout(dh, s.steps * s.rows * s.hidden);
    c.each(s.rows * s.hidden,
           [=] __device__(size_t i) { to[last_at(s, lengths, i)] = from[i / s.hidden * dy_stride + i % s.hidden]; });
}

void share_rows(struct device *device, const struct all_sum *all, const struct row_share *share, float *state,
                double *sums) {
    operator_call c(device, "share_rows");
    struct row_share s = *share;
    size_t count = s.rows * s.columns;
    float *values = c.inout(state, count);
    double *terms = c.out(sums, count);
    c.each(count, [=] __device__(size_t i) { terms[i] = row_share_is_own(&s, i / s.columns) ? (double)values[i] : 0; });
    gpu_sum_over_ranks(&c, all, terms, count);
    c.each(count, [=] __device__(size_t i) { values[i] = (float)terms[i]; });
}

} // namespace

const struct recurrent_ops gpu_recurrent = {.scratch_floats = scratch_floats,
                                            .forward = forward,
                                            .backward = backward,
                                            .take_last = take_last,
                                            .put_last = put_last,
                                            .share_rows = share_rows};
