/* The formulas are computed in double as in torch/nn/init.py, so that the bounds have the same bits. */
#include "model/init.h"

#include <math.h>

#include "base/numbers/portable_math.h"

void init_kaiming_uniform(struct rng *rng, float *values, size_t count, size_t fan_in) {
    double slope = sqrt(5.0), gain = sqrt(2.0 / (1 + slope * slope)), std = gain / sqrt((double)fan_in);
    double bound = sqrt(3.0) * std;
    rng_uniform(rng, values, count, -bound, bound);
}

void init_fan_in_uniform(struct rng *rng, float *values, size_t count, size_t fan_in) {
    double bound = 1 / sqrt((double)fan_in);
    rng_uniform(rng, values, count, -bound, bound);
}

void init_xavier_uniform(struct rng *rng, float *values, size_t count, size_t fan_in, size_t fan_out) {
    double bound = sqrt(3.0) * sqrt(2.0 / (double)(fan_in + fan_out));
    rng_uniform(rng, values, count, -bound, bound);
}

enum { DRAWN_AT_ONCE = 1024 }; /* a multiple of 16, so that chunks of normal draws equal one draw of all */

/* Replaces the numbers of (count) outside the bounds by [drawn]. Returns whether one is outside again. */
static bool replace_outside(float *values, const float *drawn, size_t count, float low, float high) {
    bool is_outside = false;
    for (size_t i = 0; i < count; i++) {
        if (!(values[i] >= low && values[i] <= high)) values[i] = drawn[i];
        is_outside |= !(values[i] >= low && values[i] <= high);
    }
    return is_outside;
}

/* The draws of one rng_normal for all numbers, of which only those outside the bounds are replaced: rng_normal draws
 * the last 16 again if the count is not a multiple of 16. */
static bool draw_outside_again(struct rng *rng, float *values, size_t count, const struct init_truncation *t) {
    float drawn[DRAWN_AT_ONCE], low = (float)t->low, high = (float)t->high;
    size_t tail = count < 16 ? count : count % 16 ? 16 : 0;
    size_t whole = count / 16 * 16, head = count - tail;
    bool is_outside = false;
    for (size_t at = 0, here; at < whole; at += here) {
        here = whole - at < DRAWN_AT_ONCE ? whole - at : DRAWN_AT_ONCE;
        rng_normal(rng, drawn, here, t->mean, t->std);
        if (at < head)
            is_outside |= replace_outside(values + at, drawn, here < head - at ? here : head - at, low, high);
    }
    if (tail == 0) return is_outside;
    if (count > 16) rng_uniform(rng, NULL, count - whole, 0, 1);
    rng_normal(rng, drawn, tail, t->mean, t->std);
    return replace_outside(values + head, drawn, tail, low, high) || is_outside;
}

/* Replaces each NAN of [values] by a uniform candidate, if the draw for its acceptance is below its density. Candidates
 * of all numbers are drawn first, then all acceptances. Returns whether one was rejected. */
static bool draw_by_density(struct rng *rng, float *values, size_t count, const struct init_truncation *t) {
    float candidates[DRAWN_AT_ONCE], acceptances[DRAWN_AT_ONCE];
    double mode = fmax(t->low, fmin(t->mean, t->high)), z = (mode - t->mean) / t->std, peak = -0.5 * z * z;
    struct rng accepting = *rng;
    bool is_rejected = false;
    rng_uniform(&accepting, NULL, count, 0, 1);
    for (size_t at = 0, here; at < count; at += here) {
        here = count - at < DRAWN_AT_ONCE ? count - at : DRAWN_AT_ONCE;
        rng_uniform(rng, candidates, here, t->low, t->high);
        rng_uniform(&accepting, acceptances, here, 0, 1);
        for (size_t i = 0; i < here; i++) {
            if (!isnan(values[at + i])) continue;
            float x = (candidates[i] - (float)t->mean) / (float)t->std, density = x * x * -0.5f - (float)peak;
            bool is_accepted = acceptances[i] == 0 || !(portable_log((double)acceptances[i]) > (double)density);
            if (is_accepted) values[at + i] = candidates[i];
            is_rejected |= !is_accepted;
        }
    }
    *rng = accepting;
    return is_rejected;
}

void init_trunc_normal(struct rng *rng, float *values, size_t count, const struct init_truncation *t) {
    double inside = portable_normal((t->high - t->mean) / t->std) - portable_normal((t->low - t->mean) / t->std);
    for (size_t i = 0; i < count; i++) values[i] = NAN;
    if (inside > 0.3)
        while (count > 0 && draw_outside_again(rng, values, count, t)) continue;
    else
        while (count > 0 && draw_by_density(rng, values, count, t)) continue;
}

/* Vectors that are orthogonalized: [count] of [length], number i of vector k at k * step + i * stride. */
struct basis {
    float *values;
    size_t count, length, step, stride;
};

enum { LANES = 16 };

/* The scalar product, summed in lanes and in double. */
static double product(const struct basis *b, size_t j, size_t k) {
    const float *x = b->values + j * b->step, *y = b->values + k * b->step;
    float lanes[LANES] = {0};
    double sum = 0;
    size_t i = 0;
    if (b->stride == 1)
        for (; i + LANES <= b->length; i += LANES)
            for (size_t l = 0; l < LANES; l++) lanes[l] += x[i + l] * y[i + l];
    for (size_t l = 0; l < LANES; l++) sum += (double)lanes[l];
    for (; i < b->length; i++) sum += (double)(x[i * b->stride] * y[i * b->stride]);
    return sum;
}

/* Subtracts from vector [k] its components along the vectors before it, with stride 1 one after another. */
static void subtract_rows(const struct basis *b, size_t k) {
    float *y = b->values + k * b->step;
    for (size_t j = 0; j < k; j++) {
        const float *x = b->values + j * b->step;
        float factor = (float)product(b, j, k);
        for (size_t i = 0; i < b->length; i++) y[i] -= factor * x[i];
    }
}

/* The same for columns, many at once, so that memory is read row by row. */
static void subtract_columns(const struct basis *b, size_t k) {
    enum { AT_ONCE = 256 };
    for (size_t first = 0, here; first < k; first += here) {
        float factors[AT_ONCE] = {0};
        here = k - first < AT_ONCE ? k - first : AT_ONCE;
        for (size_t i = 0; i < b->length; i++) {
            const float *row = b->values + i * b->stride;
            for (size_t j = 0; j < here; j++) factors[j] += row[first + j] * row[k];
        }
        for (size_t i = 0; i < b->length; i++) {
            float *row = b->values + i * b->stride, sum = 0;
            for (size_t j = 0; j < here; j++) sum += factors[j] * row[first + j];
            row[k] -= sum;
        }
    }
}

/* Gram and Schmidt, each vector twice: after the second pass the products are 0 to rounding. */
void init_orthogonal(struct rng *rng, float *values, size_t rows, size_t columns, double gain) {
    bool by_rows = rows < columns;
    struct basis b = {.values = values,
                      .count = by_rows ? rows : columns,
                      .length = by_rows ? columns : rows,
                      .step = by_rows ? columns : 1,
                      .stride = by_rows ? 1 : columns};
    rng_normal(rng, values, rows * columns, 0, 1);
    for (size_t k = 0; k < b.count; k++) {
        for (int pass = 0; pass < 2; pass++) {
            if (by_rows)
                subtract_rows(&b, k);
            else
                subtract_columns(&b, k);
            double size = sqrt(product(&b, k, k));
            for (size_t i = 0; i < b.length && size > 0; i++) {
                float *x = values + k * b.step + i * b.stride;
                *x = (float)((double)*x / size);
            }
        }
    }
    for (size_t i = 0; i < rows * columns; i++) values[i] *= (float)gain;
}
