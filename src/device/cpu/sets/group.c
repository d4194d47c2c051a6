/* Operators of several models (device/cpu/group.h): a vector is one number of each. */
#include "device/cpu/group.h"

#include <math.h>

#include "device/cpu/sets/lanes.h"
#include "device/cpu/sets/set.h"
#include "device/cpu/sets/sums.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 16")

typedef int group_mask __attribute__((vector_size(4 * LANES), aligned(4)));

/* ---- products ---- */

#define MAX_ROWS (KERNELS_REGISTERS == 32 ? 6 : 3) /* of a tile, whose sums stay in registers */
#define MAX_COLUMNS 4

INLINE lanes load(const float *from) { return *(const lanes *)from; }

/* max(x, 0); NaN is not changed */
INLINE lanes relu_of(lanes x) { return (lanes)((group_mask)x & ~(group_mask)(x <= 0)); }

/* [rows], [columns] and [is_shared] are constants wherever this is called. */
INLINE void tile_of(size_t rows, size_t columns, bool is_shared, const struct group_product *p, size_t i, size_t j) {
    size_t a_width = is_shared ? 1 : LANES, a_step = p->a_step * a_width, b_step = p->b_step * LANES;
    lanes sums[MAX_ROWS][MAX_COLUMNS];
    const float *a[MAX_ROWS], *b[MAX_COLUMNS];
    UNROLLED for (size_t r = 0; r < rows; r++) a[r] = p->a + (i + r) * p->a_row * a_width;
    UNROLLED for (size_t c = 0; c < columns; c++) {
        b[c] = p->b + (j + c) * p->b_column * LANES;
        lanes start = p->row ? load(p->row + (j + c) * LANES) : (lanes){0};
        UNROLLED for (size_t r = 0; r < rows; r++) sums[r][c] = start;
    }
    for (size_t n = p->k, at = 0, to = 0; n > 0; n--, at += a_step, to += b_step) {
        lanes y[MAX_COLUMNS];
        UNROLLED for (size_t c = 0; c < columns; c++) y[c] = load(b[c] + to);
        UNROLLED for (size_t r = 0; r < rows; r++) {
            lanes x = is_shared ? a[r][at] - (lanes){0} : load(a[r] + at);
            UNROLLED for (size_t c = 0; c < columns; c++) sums[r][c] = plus_product(sums[r][c], x, y[c]);
        }
    }
    UNROLLED for (size_t r = 0; r < rows; r++) {
        UNROLLED for (size_t c = 0; c < columns; c++) {
            size_t index = ((i + r) * p->c_row + (j + c) * p->c_column) * LANES;
            lanes sum = p->has_relu ? relu_of(sums[r][c]) : sums[r][c];
            if (p->mask) sum = (lanes)((group_mask)sum & (group_mask)(load(p->mask + index) > 0));
            *(lanes *)(p->c + index) = sum;
        }
    }
}

INLINE void rows_of(size_t columns, bool is_shared, const struct group_product *p, size_t i, size_t j, size_t rows) {
    switch (rows) {
#define ROWS(n)                                                                                                        \
    case n:                                                                                                            \
        tile_of(n, columns, is_shared, p, i, j);                                                                       \
        break;
        ROWS(1)
        ROWS(2)
        ROWS(3)
#if KERNELS_REGISTERS == 32
        ROWS(4)
        ROWS(5)
        ROWS(6)
#endif
#undef ROWS
    }
}

/* All rows of some columns, in tiles of nearly the same height. */
INLINE void panel_of(size_t columns, bool is_shared, const struct group_product *p, size_t j) {
    for (size_t tiles = (p->m + MAX_ROWS - 1) / MAX_ROWS, i = 0, rows; tiles > 0; tiles--, i += rows) {
        rows = (p->m - i + tiles - 1) / tiles;
        rows_of(columns, is_shared, p, i, j, rows);
    }
}

/* Separate functions, so that each has all registers. */
#define PANEL(name, columns, is_shared)                                                                                \
    static __attribute__((noinline)) void name(const struct group_product *p, size_t j) {                              \
        panel_of(columns, is_shared, p, j);                                                                            \
    }
PANEL(own_1, 1, false)
PANEL(own_2, 2, false)
PANEL(own_3, 3, false)
PANEL(own_4, 4, false)
PANEL(shared_1, 1, true)
PANEL(shared_2, 2, true)
PANEL(shared_3, 3, true)
PANEL(shared_4, 4, true)

static void product(const struct group_product *p) {
    static void (*const panels[2][MAX_COLUMNS])(const struct group_product *, size_t) = {
        {own_1, own_2, own_3, own_4}, {shared_1, shared_2, shared_3, shared_4}};
    for (size_t j = 0, columns; j < p->n; j += columns) {
        columns = p->n - j < MAX_COLUMNS ? p->n - j : MAX_COLUMNS;
        panels[p->is_shared][columns - 1](p, j);
    }
}

/* ---- losses ---- */

/* As short_total. */
INLINE lanes total_of(const lanes *x, size_t count) {
    lanes four[4] = {0};
    UNROLLED for (size_t i = 0; i < 4 && i < count; i++) {
        four[i] = i + 8 < count ? x[i] + x[i + 8] : x[i];
        if (i + 4 < count) four[i] += x[i + 4];
    }
    return (count > 2 ? four[0] + four[2] : four[0]) + (count > 3 ? four[1] + four[3] : four[1]);
}

/* Rows [first, last); the derivative is that of plain_rows (losses.c). */
INLINE void entropy_rows(const float *x, const void *targets, bool is_shared, size_t rows, size_t first, size_t last,
                         size_t classes, float factor, float *dx, const struct group_sums *sums) {
    size_t step = rows * LANES; /* between classes */
    double loss[LANES], correct[LANES];
    for (size_t l = 0; l < LANES; l++) loss[l] = sums->loss[l], correct[l] = sums->correct[l];
    for (size_t i = first; i < last; i++) {
        const float *row = x + i * LANES;
        size_t target = is_shared ? (size_t)((const int64_t *)targets)[i] : 0;
        const int32_t *own = is_shared ? NULL : (const int32_t *)targets + i * LANES;
        lanes largest = load(row), shares[SHORT_ROW];
        float shifted[LANES], sum[LANES], log_sum[LANES], e[SHORT_ROW * LANES], max[LANES];
        int best[LANES];
        UNROLLED for (size_t c = 1; c < classes; c++) largest = larger_lanes(load(row + c * step), largest);
        *(lanes *)max = largest;
        UNROLLED for (size_t c = 0; c < classes; c++) * (lanes *)(e + c * LANES) = load(row + c * step) - largest;
        *(lanes *)shifted = load(e + target * LANES);
        for (size_t l = 0; l < LANES && !is_shared; l++) shifted[l] = e[(size_t)own[l] * LANES + l];
        for (size_t j = 0; j < classes * LANES; j++) e[j] = math_exp_negative(e[j]);
        UNROLLED for (size_t c = 0; c < classes; c++) shares[c] = load(e + c * LANES);
        *(lanes *)sum = total_of(shares, classes);
        for (size_t l = 0; l < LANES; l++) log_sum[l] = log_of(sum[l]);
        for (size_t l = 0; l < LANES; l++) best[l] = (int)classes - 1;
        UNROLLED for (size_t c = classes - 1; c-- > 0;) {
            for (size_t l = 0; l < LANES; l++) best[l] = row[c * step + l] >= max[l] ? (int)c : best[l];
        }
        for (size_t l = 0; l < LANES; l++) {
            loss[l] -= (double)(shifted[l] - log_sum[l]);
            correct[l] += best[l] == (is_shared ? (int)target : own[l]) ? 1.0 : 0.0;
        }
        if (!dx) continue;
        float *to = dx + i * LANES;
        UNROLLED for (size_t c = 0; c < classes; c++) {
            lanes share = shares[c] / *(const lanes *)sum;
            if (!is_shared) { /* minus 1 or 0 */
                lanes one = (lanes){0} + 1;
                share -= (lanes)((*(const group_mask *)own == (int)c) & (group_mask)one);
            } else if (c == target)
                share -= 1;
            *(lanes *)(to + c * step) = share * factor;
        }
    }
    for (size_t l = 0; l < LANES; l++) sums->loss[l] = loss[l], sums->correct[l] = correct[l];
}

/* As losses.c: of more positions than parts each part has sums of its own. */
INLINE void entropy_of(const float *x, const void *targets, bool is_shared, size_t rows, size_t classes, float factor,
                       float *dx, const struct group_sums *sums) {
    if (rows <= CPU_LOSS_PARTS) {
        entropy_rows(x, targets, is_shared, rows, 0, rows, classes, factor, dx, sums);
        return;
    }
    for (size_t part = 0; part < CPU_LOSS_PARTS; part++) {
        double loss[LANES] = {0}, correct[LANES] = {0};
        entropy_rows(x, targets, is_shared, rows, rows * part / CPU_LOSS_PARTS, rows * (part + 1) / CPU_LOSS_PARTS,
                     classes, factor, dx, &(struct group_sums){loss, correct});
        for (size_t l = 0; l < LANES; l++) sums->loss[l] += loss[l], sums->correct[l] += correct[l];
    }
}

#define ENTROPY(name, n, is_shared)                                                                                    \
    static __attribute__((noinline)) void name##_##n(const float *x, const void *targets, size_t rows, float factor,   \
                                                     float *dx, const struct group_sums *sums) {                       \
        entropy_of(x, targets, is_shared, rows, n, factor, dx, sums);                                                  \
    }
#define EACH(X) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10)
#define SHARED(n) ENTROPY(entropy, n, true)
#define OWN(n) ENTROPY(own_entropy, n, false)
EACH(SHARED)
EACH(OWN)

static void cross_entropy(const float *x, const void *targets, bool is_shared, size_t rows, size_t classes,
                          float factor, float *dx, const struct group_sums *sums) {
#define NAME(n) entropy_##n,
#define OWN_NAME(n) own_entropy_##n,
    static void (*const functions[2][SHORT_ROW - 1])(const float *, const void *, size_t, float, float *,
                                                     const struct group_sums *) = {{EACH(OWN_NAME)}, {EACH(NAME)}};
    functions[is_shared][classes - 2](x, targets, rows, factor, dx, sums);
}

static void squared_error(const float *x, const float *targets, bool is_shared, size_t rows, size_t size, float factor,
                          float *dx, const struct group_sums *sums) {
    double loss[LANES];
    for (size_t l = 0; l < LANES; l++) loss[l] = sums->loss[l];
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < size; j++) {
            size_t index = (j * rows + i) * LANES;
            size_t at = i * size + j;
            lanes target = is_shared ? targets[at] - (lanes){0} : load(targets + at * LANES);
            lanes d = load(x + index) - target, square = d * d;
            for (size_t l = 0; l < LANES; l++) loss[l] += (double)square[l];
            if (dx) *(lanes *)(dx + index) = 2 * d * factor;
        }
    for (size_t l = 0; l < LANES; l++) sums->loss[l] = loss[l];
}

/* ---- updates ---- */

/* The constants of each lane side by side. The others, of which an update depends by conditions, are those of the
 * first lane. */
#define SGD_NUMBERS(X) X(minus_lr) X(momentum) X(one_minus_dampening) X(weight_decay)
#define ADAM_NUMBERS(X)                                                                                                \
    X(beta1)                                                                                                           \
    X(one_minus_beta1)                                                                                                 \
    X(beta2) X(one_minus_beta2) X(eps) X(minus_step_size) X(sqrt_correction2) X(weight_decay) X(decay_factor)

#define DECLARE(number) float number[LANES];
struct sgd_lanes {
    SGD_NUMBERS(DECLARE)
};
struct adam_lanes {
    ADAM_NUMBERS(DECLARE)
};
#undef DECLARE

#define GET(number) .number = s->number[l],
#define LOOP(name, NUMBERS, ...)                                                                                       \
    INLINE void name##_loop(unsigned flags, const struct name##_constants *first, const struct name##_lanes *s,        \
                            float *restrict values, const float *restrict gradients, float *restrict state0,           \
                            float *restrict state1, float *restrict state2, size_t count) {                            \
        const struct name##_constants same = *first;                                                                   \
        for (size_t i = 0; i < count * LANES; i += LANES) {                                                            \
            _Pragma("GCC unroll 1") for (size_t l = 0; l < LANES; l++) {                                               \
                const struct name##_constants one = {NUMBERS(GET) __VA_ARGS__};                                        \
                struct rule_number n = {.value = values[i + l], .gradient = gradients[i + l]};                         \
                if (RULE_USES(flags, 0)) n.state[0] = state0[i + l];                                                   \
                if (RULE_USES(flags, 1)) n.state[1] = state1[i + l];                                                   \
                if (RULE_USES(flags, 2)) n.state[2] = state2[i + l];                                                   \
                name##_rule(&one, flags, &n);                                                                          \
                values[i + l] = n.value;                                                                               \
                if (RULE_USES(flags, 0)) state0[i + l] = n.state[0];                                                   \
                if (RULE_USES(flags, 1)) state1[i + l] = n.state[1];                                                   \
                if (RULE_USES(flags, 2)) state2[i + l] = n.state[2];                                                   \
            }                                                                                                          \
        }                                                                                                              \
    }
LOOP(sgd, SGD_NUMBERS, .has_weight_decay = same.has_weight_decay, .is_nesterov = same.is_nesterov,
     .is_first = same.is_first)
LOOP(adam, ADAM_NUMBERS, .has_weight_decay = same.has_weight_decay)

#define CASE(name, flags)                                                                                              \
    case flags:                                                                                                        \
        name##_loop(flags, &constants[0]->name, &s, values, gradients, states[0], states[1], states[2], count);        \
        break;
#define SET(number) s.number[l] = from->number;

static void sgd(const union optimizer_constants *const *constants, unsigned used, float *values, const float *gradients,
                float *const *states, size_t count) {
    struct sgd_lanes s;
    for (size_t l = 0; l < LANES; l++) {
        const struct sgd_constants *from = &constants[l]->sgd;
        SGD_NUMBERS(SET)
    }
    switch (used) {
        CASE(sgd, 0u)
        CASE(sgd, 1u)
    }
}

static void adam(const union optimizer_constants *const *constants, unsigned used, float *values,
                 const float *gradients, float *const *states, size_t count) {
    struct adam_lanes s;
    for (size_t l = 0; l < LANES; l++) {
        const struct adam_constants *from = &constants[l]->adam;
        ADAM_NUMBERS(SET)
    }
    switch (used | adam_flags(&constants[0]->adam) << OPTIMIZER_STATES) {
        CASE(adam, 3u)
        CASE(adam, 7u)
        CASE(adam, 3u + 8)
        CASE(adam, 7u + 8)
        CASE(adam, 3u + 16)
        CASE(adam, 7u + 16)
        CASE(adam, 3u + 24)
        CASE(adam, 7u + 24)
    }
}

static void update(enum update_rule rule, const union optimizer_constants *const *constants, float *values,
                   const float *gradients, float *const states[OPTIMIZER_STATES], size_t count) {
    unsigned used = (unsigned)((states[0] != NULL) << 0 | (states[1] != NULL) << 1 | (states[2] != NULL) << 2);
    (rule == RULE_SGD ? sgd : adam)(constants, used, values, gradients, states, count);
}

const struct group_ops IN_SET(group) = {.lanes = LANES,
                                        .product = product,
                                        .cross_entropy = cross_entropy,
                                        .squared_error = squared_error,
                                        .update = update};
