/* expression: formulas of the config (base/expression/expression.h) over the rows of a batch. The CPU translates the
 * list of operations into steps over blocks of rows that stay in its first-level cache: each step is a loop over two or
 * three arrays, so the loops, and with them the instruction sets, do not depend on the formula. A block's bits depend
 * neither on threads nor on the instruction set. A GPU runs a kernel for each operation. */
#pragma once

#include "base/expression/expression.h"
#include "device/activations.h"

struct device;

struct expression_output {
    uint16_t node;  /* EXPRESSION_NONE: 0 */
    float *to;      /* (rows, size) or (rows); no variable of the call */
    bool is_vector; /* a number is then repeated */
};

/* Variables of a formula for [rows] rows, in device memory, and where results go. */
struct expression_call {
    const struct expression *expression;
    size_t rows, size; /* vectors have [size] elements in each row */
    struct {
        const float *values; /* (rows, size) or (rows); NULL: [constant] in all rows */
        float constant;
        bool is_vector;
    } variables[EXPRESSION_MAX_VARIABLES];
    struct expression_output outputs[EXPRESSION_MAX_VARIABLES];
    size_t output_count;
    /* Nodes that are one number for each row, whose sums over the rows are added to *sums[i]. */
    struct {
        uint16_t node;
        double *to;
    } sums[2];
    size_t sum_count;
    double counted, *count; /* counted is added to *count; count NULL: nothing is */
};

struct formula_ops {
    void (*run)(struct device *, const struct expression_call *);
    /* Allocates the workspace of run for a call with as many rows; less need no more. */
    status (*prepare)(struct device *, const struct expression_call *);
};

/* ---- functions that device/math.h does not have, for any argument ---- */

#define LN2_HIGH_FLOAT 0.693145752f /* 9 zero bits at its end */
#define LN2_LOW_FLOAT 1.42860677e-6f

/* x = 2^n m with sqrt(1/2) <= m < sqrt(2); log m = 2 artanh s, s = (m - 1) / (m + 1), by its series up to s^11 */
FORMULA float formula_log(float x) {
    float scaled = x < 1.17549435e-38f ? x * 8388608.0f : x;
    uint32_t bits = bits_of_float(scaled);
    int32_t power = (int32_t)(bits - 0x3f3504f3u) >> 23;
    float m = bits_to_float(bits - ((uint32_t)power << 23)), n = (float)power - (x < 1.17549435e-38f ? 23.0f : 0.0f);
    float s = (m - 1) / (m + 1), z = s * s, p = fmaf(z, 9.09090909e-2f, 1.11111111e-1f);
    p = fmaf(p, z, 1.42857143e-1f);
    p = fmaf(p, z, 0.2f);
    p = fmaf(p, z, 3.33333333e-1f);
    float log = fmaf(n, LN2_HIGH_FLOAT, fmaf(n, LN2_LOW_FLOAT, 2 * fmaf(p * z, s, s)));
    log = x > 0 ? log : x == 0 ? -INFINITY : NAN;
    return x > 3.40282347e38f ? x : log;
}

/* The error of 1 + x is added. */
FORMULA float formula_log1p(float x) {
    float u = 1 + x, rest = (x - (u - 1)) / u, log = formula_log(u);
    return u > 0 && u <= 3.40282347e38f ? log + rest : log;
}

FORMULA float formula_expm1(float x) {
    float p = fmaf(x, 1.98412698e-4f, 1.38888889e-3f);
    p = fmaf(p, x, 8.33333333e-3f);
    p = fmaf(p, x, 4.16666667e-2f);
    p = fmaf(p, x, 1.66666667e-1f);
    p = fmaf(p, x, 0.5f);
    float large = math_exp(x) - 1;
    return fabsf(x) > 0.35f || x != x ? large : fmaf(p * x, x, x);
}

FORMULA float formula_sign(float x) { return x > 0 ? 1 : x < 0 ? -1 : x; }

FORMULA float formula_round(float x) {
    float size = fabsf(x);
    return size < 8388608.0f ? math_with_sign((size + 8388608.0f) - 8388608.0f, x) : x;
}

/* In double: a quarter turn q and the rest of at most pi / 4, for |x| up to some 10^6. [quarters] more: 1 is the
 * cosine.
 */
FORMULA float formula_sine(float x, uint32_t quarters) {
    double q = (double)x * 0.63661977236758134308 + 0x1.8p52, n = q - 0x1.8p52;
    double r = ((double)x - n * 1.57079632673412561417) - n * 6.07710050650619224932e-11, z = r * r;
    double s = r + r * z * (-1.0 / 6 + z * (1.0 / 120 + z * (-1.0 / 5040 + z * (1.0 / 362880 - z * (1.0 / 39916800)))));
    double c = 1 + z * (-0.5 + z * (1.0 / 24 + z * (-1.0 / 720 + z * (1.0 / 40320 - z * (1.0 / 3628800)))));
    uint64_t bits;
    memcpy(&bits, &q, sizeof bits);
    uint32_t quarter = ((uint32_t)bits + quarters) & 3;
    double value = quarter & 1 ? c : s;
    return (float)(quarter & 2 ? -value : value);
}

/* e^(y log |x|) in double, to some 10^-11 */
FORMULA double formula_power_size(double size, double y) {
    uint64_t bits, one;
    memcpy(&bits, &size, sizeof bits);
    int32_t power = (int32_t)((uint32_t)(bits >> 32) - 0x3fe6a09eu) >> 20;
    bits -= (uint64_t)(int64_t)power << 52;
    double m, scale;
    memcpy(&m, &bits, sizeof m);
    double s = (m - 1) / (m + 1), z = s * s;
    double p = z * (1.0 / 3 + z * (1.0 / 5 + z * (1.0 / 7 + z * (1.0 / 9 + z * (1.0 / 11 + z * (1.0 / 13))))));
    double t = y * (power * 0.69314718055994530942 + (2 * s + 2 * s * p));
    t = t > 200 ? 200 : t < -200 ? -200 : t;
    double q = t * 1.44269504088896340736 + 0x1.8p52, n = q - 0x1.8p52, r = t - n * 0.69314718055994530942;
    double e = 1 + r * (1.0 / 9);
    e = 1 + r * (1.0 / 8) * e;
    e = 1 + r * (1.0 / 7) * e;
    e = 1 + r * (1.0 / 6) * e;
    e = 1 + r * (1.0 / 5) * e;
    e = 1 + r * (1.0 / 4) * e;
    e = 1 + r * (1.0 / 3) * e;
    e = 1 + r * (1.0 / 2) * e;
    e = 1 + r * e;
    memcpy(&one, &q, sizeof one);
    one = (one + 1023) << 52;
    memcpy(&scale, &one, sizeof scale);
    return e * scale;
}

/* As powf. */
FORMULA float formula_power(float x, float y) {
    float size = fabsf(x), value = (float)formula_power_size((double)size, (double)y);
    float at_zero = y > 0 ? 0 : INFINITY, at_infinity = y > 0 ? INFINITY : 0;
    value = size > 0 ? value : size == 0 ? at_zero : x;
    value = size > 3.40282347e38f ? at_infinity : value;
    int is_whole = floorf(y) == y, is_odd = is_whole && floorf(0.5f * y) != 0.5f * y;
    float negative = is_odd ? -value : is_whole || size > 3.40282347e38f ? value : NAN;
    value = x < 0 ? negative : value;
    value = y != y ? y : value;
    return y == 0 || x == 1 ? 1 : value;
}
