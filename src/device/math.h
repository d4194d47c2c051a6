/* math: what devices share to compute the same bits: functions and the order of long sums. exp, expm1, log, log1p,
 * tanh and erf that compilers can vectorise: no branches, no calls, every fused multiply-add written out, so all
 * instruction sets give the same bits. Error within 2 ulp; infinities and NaN as in libm. */
#pragma once

#include <math.h>

#include "base/bits.h"

/* |x| with the sign of [sign] */
HOST_DEVICE static inline float math_with_sign(float x, float sign) {
    return bits_to_float((bits_of_float(x) & 0x7fffffffu) | (bits_of_float(sign) & 0x80000000u));
}

/* e^r for |r| <= ln(2) / 2 */
HOST_DEVICE static inline float math_exp_part(float r) {
    float p = 1.37805939e-3f;
    p = fmaf(p, r, 8.37312452e-3f);
    p = fmaf(p, r, 4.16695364e-2f);
    p = fmaf(p, r, 1.66664720e-1f);
    p = fmaf(p, r, 4.99999851e-1f);
    p = fmaf(p, r, 1);
    return fmaf(p, r, 1);
}

#define MATH_LOG2_E 1.44269504f
#define MATH_ROUNDED 0x1.8p23f /* a small number added to it is rounded to an integer, in the lowest bits */

/* x - n ln(2) */
HOST_DEVICE static inline float math_exp_rest(float x, float n) {
    return fmaf(n, -1.42860677e-6f, fmaf(n, -0.693145752f, x));
}

/* e^x = 2^n e^r with |r| <= ln(2) / 2, for |x| <= 176. The bits of x / ln(2) + 254 + 1.5 * 2^23 end in those of
 * n + 254, whose halves, rounded down and up, are the exponents of two powers of two: their product is 2^n, and with
 * both of them the smallest and the largest results are correct. */
HOST_DEVICE static inline float math_exp_within(float x) {
    float shifted = fmaf(x, MATH_LOG2_E, MATH_ROUNDED + 254);
    uint32_t power = bits_of_float(shifted), half = power >> 1;
    float p = math_exp_part(math_exp_rest(x, shifted - (MATH_ROUNDED + 254)));
    return p * bits_to_float(half << 23) * bits_to_float((power - half) << 23);
}

/* e^x, which is 0 or infinity long before the limit of |x|. One condition is the minimum of a vector, two would not be.
 */
HOST_DEVICE static inline float math_exp(float x) {
    float size = fabsf(x);
    size = size > 176 ? 176 : size;
    return math_exp_within(bits_to_float(bits_of_float(size) | (bits_of_float(x) & 0x80000000u)));
}

/* e^x for x <= 0 */
HOST_DEVICE static inline float math_exp_negative(float x) { return math_exp_within(x < -176 ? -176 : x); }

/* e^x for |x| < 87: 2^n has an exponent of its own */
HOST_DEVICE static inline float math_exp_normal(float x) {
    float shifted = fmaf(x, MATH_LOG2_E, MATH_ROUNDED + 127);
    return math_exp_part(math_exp_rest(x, shifted - (MATH_ROUNDED + 127))) *
           bits_to_float(bits_of_float(shifted) << 23);
}

/* e^x - 1 for x <= 0: its series above -0.35, where the subtraction would lose digits */
HOST_DEVICE static inline float math_expm1(float x) {
    float p = fmaf(x, 1.98412698e-4f, 1.38888889e-3f);
    p = fmaf(p, x, 8.33333333e-3f);
    p = fmaf(p, x, 4.16666667e-2f);
    p = fmaf(p, x, 1.66666667e-1f);
    p = fmaf(p, x, 0.5f);
    float large = math_exp(x) - 1;
    return x < -0.35f ? large : fmaf(p * x, x, x);
}

/* log(1 + u) for u in [0, 1] = 2 artanh(s), s = u / (2 + u): its series up to s^17 */
HOST_DEVICE static inline float math_log1p_unit(float u) {
    float s = u / (2 + u), z = s * s, p = fmaf(z, 5.88235294e-2f, 6.66666667e-2f);
    p = fmaf(p, z, 7.69230769e-2f);
    p = fmaf(p, z, 9.09090909e-2f);
    p = fmaf(p, z, 1.11111111e-1f);
    p = fmaf(p, z, 1.42857143e-1f);
    p = fmaf(p, z, 0.2f);
    p = fmaf(p, z, 3.33333333e-1f);
    return 2 * fmaf(p * z, s, s);
}

/* log(u) for a normal u > 0: u = m 2^e with sqrt(1/2) <= m < sqrt(2), log(m) = 2 artanh((m - 1) / (m + 1)), its series
 * up to s^11 */
HOST_DEVICE static inline float math_log(float u) {
    uint32_t bits = bits_of_float(u), exponent = (bits - 0x3f3504f3u) & 0xff800000u;
    float e = (float)(int32_t)exponent * 0x1p-23f, m = bits_to_float(bits - exponent);
    float s = (m - 1) / (m + 1), z = s * s, p = fmaf(z, 9.09090909e-2f, 1.11111111e-1f);
    p = fmaf(p, z, 1.42857143e-1f);
    p = fmaf(p, z, 0.2f);
    p = fmaf(p, z, 3.33333333e-1f);
    float rest = 2 * fmaf(p * z, s, s);
    return fmaf(e, 0.693145752f, fmaf(e, 1.42860677e-6f, rest));
}

/* Two standard normal numbers from two random words (Box and Muller, 1958): of sqrt(-2 log(u)), u in (0, 1], and an
 * angle of a quadrant, the upper two bits of [b], and of [-pi/4, pi/4) in it, whose sine and cosine are Cephes'
 * polynomials. */
HOST_DEVICE static inline void math_normal_pair(uint32_t a, uint32_t b, float to[2]) {
    float u = fmaf((float)a, 0x1p-32f, 0x1p-33f), squared = -2 * math_log(u);
    float x = fmaf((float)(b & 0x3fffffffu), 0x1p-30f, -0.5f) * 1.57079637f, z = x * x;
    float radius = sqrtf(squared > 0 ? squared : 0), s = -1.9515295891e-4f, c = 2.443315711809948e-5f;
    s = fmaf(s, z, 8.3321608736e-3f);
    s = fmaf(s, z, -1.6666654611e-1f);
    c = fmaf(c, z, -1.388731625493765e-3f);
    c = fmaf(c, z, 4.166664568298827e-2f);
    float sine = fmaf(s * z, x, x), cosine = fmaf(c * z, z, fmaf(-0.5f, z, 1));
    uint32_t quadrant = b >> 30;
    float first = quadrant & 1 ? sine : cosine, second = quadrant & 1 ? cosine : sine;
    to[0] = radius * (quadrant == 1 || quadrant == 2 ? -first : first);
    to[1] = radius * (quadrant >= 2 ? -second : second);
}

/* Cephes' tanhf: a polynomial below 0.625, 1 - 2 / (e^2x + 1) above, which is 1 long before the limit of 2x */
HOST_DEVICE static inline float math_tanh(float x) {
    float z = x * x, size = fabsf(x), twice = 2 * size, p = -5.70498872745e-3f;
    p = fmaf(p, z, 2.06390887954e-2f);
    p = fmaf(p, z, -5.37397155531e-2f);
    p = fmaf(p, z, 1.33314422036e-1f);
    p = fmaf(p, z, -3.33332819422e-1f);
    twice = twice > 64 ? 64 : twice;
    float small = fmaf(p * z, x, x), large = 1 - 2 / (math_exp_normal(twice) + 1);
    return size < 0.625f ? small : math_with_sign(large, x);
}

/* A polynomial below 0.93; above, 1 - e^-q(|x|) with a polynomial q (both minimax fits), which is 1 long before the
 * limit of q */
HOST_DEVICE static inline float math_erf(float x) {
    float t = fabsf(x), s = x * x;
    float r = fmaf(-1.72853470e-5f, t, 3.83197126e-4f), u = fmaf(-3.88396438e-3f, t, 2.42546219e-2f);
    r = fmaf(r, s, u);
    r = fmaf(r, t, -1.06777877e-1f);
    r = fmaf(r, t, -6.34846687e-1f);
    r = fmaf(r, t, -1.28717512e-1f);
    r = fmaf(r, t, -t);
    r = r < -64 ? -64 : r;
    float large = math_with_sign(1 - math_exp_normal(r), x), p = -5.96761703e-4f;
    p = fmaf(p, s, 4.99119423e-3f);
    p = fmaf(p, s, -2.67681349e-2f);
    p = fmaf(p, s, 1.12819925e-1f);
    p = fmaf(p, s, -3.76125336e-1f);
    p = fmaf(p, s, 1.28379166e-1f);
    return t > 0.927734375f ? large : fmaf(p, x, x);
}

/* ---- long sums ----
 *
 * When a sum of float32 numbers gets a new accumulator. The error of one chain of additions grows with the
 * number of terms. A sum of more than LONG_SUM terms is therefore divided into runs: each has a float32 sum, and the
 * sums of the runs are added in double where they are few numbers, else in float32. The order of the terms depends only
 * on their number: neither on threads nor on the instruction set. */

#define LONG_SUM 4096
#define LONG_SUM_RUN 512     /* terms of a run */
#define LONG_PRODUCT_RUN 384 /* maximum terms of a run of the sums of a matrix product */
