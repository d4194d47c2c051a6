/* Each thread runs all steps of its rows, so that threads meet once per layer instead of once per step. The weight is
 * packed once for all steps. A result does not depend on the split. */
#include "device/recurrent.h"

#include <string.h>

#include "device/cpu/parallel.h"
#include "device/cpu/sets/set.h"

/* ---- steps of [rows] rows; formulas and arrays as in recurrent.h, [before]: the state before the constants ---- */

static void lstm_forward(size_t rows, size_t hidden, float *restrict gates, const float *restrict before,
                         float *restrict c, float *restrict h) {
    for (size_t r = 0; r < rows; r++, gates += 4 * hidden, before += hidden, c += hidden, h += hidden) {
        float *restrict i = gates, *restrict f = i + hidden, *restrict g = f + hidden, *restrict o = g + hidden;
        for (size_t j = 0; j < hidden; j++) {
            struct lstm_gates n = {i[j], f[j], g[j], o[j]};
            lstm_step(&n, before[j], &c[j], &h[j]);
            i[j] = n.i, f[j] = n.f, g[j] = n.g, o[j] = n.o;
        }
    }
}

static void lstm_backward(size_t rows, size_t hidden, float *restrict gates, const float *restrict before,
                          const float *restrict c, const float *restrict dh, float *restrict dc) {
    for (size_t r = 0; r < rows; r++, gates += 4 * hidden, before += hidden, c += hidden, dh += hidden, dc += hidden) {
        float *restrict i = gates, *restrict f = i + hidden, *restrict g = f + hidden, *restrict o = g + hidden;
        for (size_t j = 0; j < hidden; j++) {
            struct lstm_gates n = {i[j], f[j], g[j], o[j]};
            lstm_step_backward(&n, before[j], c[j], dh[j], &dc[j]);
            i[j] = n.i, f[j] = n.f, g[j] = n.g, o[j] = n.o;
        }
    }
}

static void gru_forward(size_t rows, size_t hidden, float *restrict gates, const float *restrict states,
                        const float *restrict before, float *restrict h) {
    for (size_t k = 0; k < rows; k++, gates += 3 * hidden, states += 3 * hidden, before += hidden, h += hidden) {
        float *restrict r = gates, *restrict z = r + hidden, *restrict n = z + hidden;
        const float *restrict sr = states, *restrict sz = sr + hidden, *restrict sn = sz + hidden;
        for (size_t j = 0; j < hidden; j++) {
            struct gru_gates g = {r[j], z[j], n[j]}, s = {sr[j], sz[j], sn[j]};
            h[j] = gru_step(&g, &s, before[j]);
            r[j] = g.r, z[j] = g.z, n[j] = g.n;
        }
    }
}

/* dbefore += z dh */
static void gru_backward(size_t rows, size_t hidden, float *restrict gates, float *restrict states,
                         const float *restrict before, const float *restrict dh, float *restrict dbefore) {
    for (size_t k = 0; k < rows;
         k++, gates += 3 * hidden, states += 3 * hidden, before += hidden, dh += hidden, dbefore += hidden) {
        float *restrict r = gates, *restrict z = r + hidden, *restrict n = z + hidden;
        float *restrict sr = states, *restrict sz = sr + hidden, *restrict sn = sz + hidden;
        for (size_t j = 0; j < hidden; j++) {
            struct gru_gates g = {r[j], z[j], n[j]}, s = {sr[j], sz[j], sn[j]};
            dbefore[j] += gru_step_backward(&g, &s, before[j], dh[j]);
            r[j] = g.r, z[j] = g.z, n[j] = g.n;
            sr[j] = s.r, sz[j] = s.z, sn[j] = s.n;
        }
    }
}

/* ---- all steps of a layer ---- */

#define UNIT 8                     /* rows that are not split: a tile of the products */
#define MIN_WORK ((size_t)1 << 20) /* multiply-adds of a thread: 20 us */

struct job {
    struct device *device;
    struct recurrent_shape shape;
    struct recurrent_arrays a;
    size_t width;        /* of the gates */
    const float *packed; /* NULL: products pack the weight */
    const float *zeros;  /* (rows, hidden): the state before the first step */
    float *carry;        /* (rows, hidden): of an LSTM the gradient of the cell state; of a GRU unused results */
    float *mixed;        /* (rows, hidden), with is_reverse: what before_of returns of rows that begin at other steps */
};

/* The rows [first, first + count) of a step, and of the step before it in time. */
struct part {
    size_t first, count;
    size_t at, before; /* first row of them in arrays (steps, rows, ...) */
    size_t t;          /* the step */
    bool has_before;
};

static size_t packed_floats(const struct recurrent_shape *s) {
    size_t width = recurrent_gates(s->cell) * s->hidden, most = CPU_PACK_COLUMNS;
    size_t forward = (width + most) * s->hidden, backward = (s->hidden + most) * width;
    return forward > backward ? forward : backward;
}

static size_t scratch_floats(const struct recurrent_shape *s) {
    return packed_floats(s) + (s->is_reverse ? 3 : 2) * s->rows * s->hidden;
}

static struct part part_of(const struct job *job, size_t first, size_t last, size_t step) {
    const struct recurrent_shape *s = &job->shape;
    size_t t = s->is_reverse ? s->steps - 1 - step : step, before = s->is_reverse ? t + 1 : t - 1;
    struct part p = {.first = first, .count = last - first, .at = t * s->rows + first, .t = t, .has_before = step > 0};
    p.before = p.has_before ? before * s->rows + first : 0;
    return p;
}

/* Whether the row [r] of the part begins, or ends, with its step. */
static bool begins(const struct job *job, const struct part *part, size_t r) {
    const struct recurrent_shape *s = &job->shape;
    return recurrent_begins(s->is_reverse, s->lengths, s->steps, part->first + r, part->t);
}
static bool ends(const struct job *job, const struct part *part, size_t r) {
    const struct recurrent_shape *s = &job->shape;
    return recurrent_ends(s->is_reverse, s->lengths, s->steps, part->first + r, part->t);
}

/* Whether some rows may begin with a step that others have had before them. */
static bool is_mixed(const struct job *job, const struct part *part) {
    return part->has_before && job->shape.is_reverse && job->shape.lengths;
}

/* The rows of the part of [array] (steps, rows, hidden) at the step before it; of those that begin with it of [start],
 * or 0. */
static const float *before_of(const struct job *job, const struct part *part, const float *array, const float *start) {
    size_t hidden = job->shape.hidden;
    if (!part->has_before) return (start ? start : job->zeros) + part->first * hidden;
    array += part->before * hidden;
    if (!start || !is_mixed(job, part)) return array;
    float *mixed = job->mixed + part->first * hidden;
    for (size_t r = 0; r < part->count; r++)
        memcpy(mixed + r * hidden, begins(job, part, r) ? start + (part->first + r) * hidden : array + r * hidden,
               hidden * sizeof *mixed);
    return mixed;
}

/* Whether the state before the step is not 0. */
static bool has_state(const struct job *job, const struct part *part) { return part->has_before || job->a.h_start; }

/* c (count, width) = start + h W^T */
static void add_states(const struct job *job, const struct part *part, enum product_start start, float *c) {
    size_t hidden = job->shape.hidden;
    struct cpu_product p = {.m = part->count,
                            .n = job->width,
                            .k = hidden,
                            .a = before_of(job, part, job->a.h, job->a.h_start),
                            .ars = hidden,
                            .acs = 1,
                            .b = job->a.weight,
                            .brs = 1,
                            .bcs = hidden,
                            .packed = job->packed,
                            .c = c,
                            .ldc = job->width,
                            .start = start,
                            .row = job->a.bias};
    cpu_product(job->device, &p);
}

/* The GRU's h W^T + bias of a step */
static void gru_states(const struct job *job, const struct part *part, float *states) {
    if (has_state(job, part)) {
        add_states(job, part, job->a.bias ? PRODUCT_ROW : PRODUCT_ZERO, states);
        return;
    }
    for (size_t r = 0; r < part->count; r++)
        if (job->a.bias)
            memcpy(states + r * job->width, job->a.bias, job->width * sizeof *states);
        else
            memset(states + r * job->width, 0, job->width * sizeof *states);
}

/* Sets the rows of x (count, hidden) that have ended before step t to 0. */
static void zero_ended(const struct job *job, const struct part *part, size_t t, float *x) {
    const int32_t *lengths = job->shape.lengths;
    size_t hidden = job->shape.hidden;
    for (size_t r = 0; lengths && r < part->count; r++)
        if (t >= (size_t)lengths[part->first + r]) memset(x + r * hidden, 0, hidden * sizeof *x);
}

static void compute_forward(const struct job *job, const struct part *part) {
    const struct recurrent_arrays *a = &job->a;
    size_t hidden = job->shape.hidden, at = part->at * hidden;
    float *gates = a->gates + part->at * job->width, *h = a->h + at;
    if (job->shape.cell == RECURRENT_GRU) {
        float *states = a->states + part->at * job->width;
        gru_states(job, part, states);
        gru_forward(part->count, hidden, gates, states, before_of(job, part, a->h, a->h_start), h);
        return;
    }
    if (has_state(job, part)) add_states(job, part, PRODUCT_ADD, gates);
    if (job->shape.cell == RECURRENT_LSTM)
        lstm_forward(part->count, hidden, gates, before_of(job, part, a->states, a->c_start), a->states + at, h);
    else
        IN_SET(activate)(recurrent_function(job->shape.cell), gates, h, part->count * hidden);
}

static void forward_step(const struct job *job, const struct part *part) {
    size_t at = part->at * job->shape.hidden;
    compute_forward(job, part);
    zero_ended(job, part, part->t, job->a.h + at);
    if (job->shape.cell == RECURRENT_LSTM) zero_ended(job, part, part->t, job->a.states + at);
}

/* x (count, hidden) += the gradient of the state after the last step, of the rows that end with this one; [end] NULL:
 * 0 */
static void add_end(const struct job *job, const struct part *part, const float *end, float *x) {
    size_t hidden = job->shape.hidden;
    for (size_t r = 0; end && r < part->count; r++) {
        if (!ends(job, part, r)) continue;
        for (size_t j = 0; j < hidden; j++) x[r * hidden + j] += end[(part->first + r) * hidden + j];
    }
}

/* start = x (count, hidden) of the rows that begin with the step; [start] NULL: it is not needed */
static void take_start(const struct job *job, const struct part *part, const float *x, float *start) {
    size_t hidden = job->shape.hidden;
    for (size_t r = 0; start && r < part->count; r++)
        if (begins(job, part, r)) memcpy(start + (part->first + r) * hidden, x + r * hidden, hidden * sizeof *x);
}

/* Where the gradient of the state before the step is added. */
static float *gradient_before(const struct job *job, const struct part *part) {
    size_t hidden = job->shape.hidden;
    if (part->has_before) return job->a.dh + part->before * hidden;
    return (job->a.dh_start ? job->a.dh_start : job->carry) + part->first * hidden;
}

static void backward_step(const struct job *job, const struct part *part) {
    const struct recurrent_arrays *a = &job->a;
    size_t hidden = job->shape.hidden, at = part->at * hidden;
    float *gates = a->gates + part->at * job->width, *change = gates, *carry = job->carry + part->first * hidden;
    float *dh = a->dh + at, *dbefore = gradient_before(job, part);
    const float *h = a->h + at;
    zero_ended(job, part, part->t, dh);
    zero_ended(job, part, part->t, carry);
    add_end(job, part, a->dh_end, dh);
    add_end(job, part, a->dc_end, carry);
    if (a->dh_start && is_mixed(job, part)) zero_ended(job, part, part->t + 1, dbefore);
    if (job->shape.cell == RECURRENT_LSTM) {
        lstm_backward(part->count, hidden, gates, before_of(job, part, a->states, a->c_start), a->states + at, dh,
                      carry);
    } else if (job->shape.cell == RECURRENT_GRU) {
        change = a->states + part->at * job->width;
        gru_backward(part->count, hidden, gates, change, before_of(job, part, a->h, a->h_start), dh, dbefore);
    } else {
        IN_SET(activate_backward)(recurrent_function(job->shape.cell), h, h, dh, gates, part->count * hidden);
    }
    take_start(job, part, carry, a->dc_start);
    if (!part->has_before && !a->dh_start) return;
    struct cpu_product p = {.m = part->count,
                            .n = hidden,
                            .k = job->width,
                            .a = change,
                            .ars = job->width,
                            .acs = 1,
                            .b = a->weight,
                            .brs = hidden,
                            .bcs = 1,
                            .packed = job->packed,
                            .c = dbefore,
                            .ldc = hidden,
                            .start = PRODUCT_ADD};
    cpu_product(job->device, &p);
    if (part->has_before) take_start(job, part, dbefore, a->dh_start);
}

static void forward_rows(void *context, size_t from, size_t to) {
    const struct job *job = context;
    size_t rows = job->shape.rows, last = to * UNIT < rows ? to * UNIT : rows;
    for (size_t step = 0; step < job->shape.steps; step++) {
        struct part part = part_of(job, from * UNIT, last, step);
        forward_step(job, &part);
    }
}

static void backward_rows(void *context, size_t from, size_t to) {
    const struct job *job = context;
    size_t rows = job->shape.rows, last = to * UNIT < rows ? to * UNIT : rows;
    for (size_t step = job->shape.steps; step-- > 0;) {
        struct part part = part_of(job, from * UNIT, last, step);
        backward_step(job, &part);
    }
}

/* [weight]: the factor that all steps share. */
static void run(struct device *device, const struct recurrent_shape *shape, const struct recurrent_arrays *arrays,
                struct cpu_product weight, parallel_part *rows) {
    size_t values = shape->rows * shape->hidden, units = (shape->rows + UNIT - 1) / UNIT;
    struct job job = {
        .device = device, .shape = *shape, .a = *arrays, .width = recurrent_gates(shape->cell) * shape->hidden};
    float *zeros = arrays->scratch + packed_floats(shape);
    memset(zeros, 0, 2 * values * sizeof *zeros);
    job.zeros = zeros;
    job.carry = zeros + values;
    job.mixed = zeros + 2 * values;
    if (arrays->dh_start) memset(arrays->dh_start, 0, values * sizeof *arrays->dh_start);
    if (cpu_packs_products(device)) {
        IN_SET(pack)(&weight, arrays->scratch);
        job.packed = arrays->scratch;
    }
    size_t work = UNIT * shape->steps * job.width * shape->hidden;
    if (units > 0) parallel_for(units, 1 + MIN_WORK / work, rows, &job);
}

static void forward(struct device *device, const struct recurrent_shape *shape, const struct recurrent_arrays *arrays) {
    size_t width = recurrent_gates(shape->cell) * shape->hidden;
    run(device, shape, arrays,
        (struct cpu_product){.n = width, .k = shape->hidden, .b = arrays->weight, .brs = 1, .bcs = shape->hidden},
        forward_rows);
}

static void backward(struct device *device, const struct recurrent_shape *shape,
                     const struct recurrent_arrays *arrays) {
    size_t width = recurrent_gates(shape->cell) * shape->hidden;
    run(device, shape, arrays,
        (struct cpu_product){.n = shape->hidden, .k = width, .b = arrays->weight, .brs = shape->hidden, .bcs = 1},
        backward_rows);
}

/* The outputs of a row's last step. */
static size_t last_at(const struct recurrent_shape *s, size_t row) {
    size_t length = s->lengths ? (size_t)s->lengths[row] : s->steps;
    return ((s->is_reverse ? 0 : length - 1) * s->rows + row) * s->hidden;
}

static void take_last(struct device *device, const struct recurrent_shape *s, const float *h, float *y,
                      size_t y_stride) {
    (void)device;
    for (size_t r = 0; r < s->rows; r++) memcpy(y + r * y_stride, h + last_at(s, r), s->hidden * sizeof *y);
}

static void put_last(struct device *device, const struct recurrent_shape *s, const float *dy, size_t dy_stride,
                     float *dh) {
    (void)device;
    for (size_t r = 0; r < s->rows; r++) memcpy(dh + last_at(s, r), dy + r * dy_stride, s->hidden * sizeof *dh);
}

static void share_rows(struct device *device, const struct all_sum *all, const struct row_share *s, float *state,
                       double *sums) {
    size_t count = s->rows * s->columns;
    (void)device;
    for (size_t i = 0; i < count; i++) sums[i] = row_share_is_own(s, i / s->columns) ? (double)state[i] : 0;
    all->sum(all->user, sums, count);
    for (size_t i = 0; i < count; i++) state[i] = (float)sums[i];
}

const struct recurrent_ops IN_SET(recurrent) = {.scratch_floats = scratch_floats,
                                                .forward = forward,
                                                .backward = backward,
                                                .take_last = take_last,
                                                .put_last = put_last,
                                                .share_rows = share_rows};
