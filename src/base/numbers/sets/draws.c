/* Gives the bits of PyTorch's AVX2 kernels: every multiply-add that they fuse is an explicit fmaf here, and the build
 * disables contraction elsewhere. The mt19937 recurrence is Matsumoto and Nishimura's; the polynomials of the block
 * normal are Cephes' single-precision ones (see NOTICE). */
#include "base/numbers/rng.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/bits.h"

#define HALF 8   /* of a block: values[j] and values[j + 8] are a pair */
#define PAIRS 64 /* per chunk */

static inline uint32_t twist(uint32_t high, uint32_t low) {
    uint32_t y = (high & 0x80000000u) | (low & 0x7fffffffu);
    return (y >> 1) ^ (-(low & 1u) & 0x9908b0dfu);
}

static void refill(uint32_t *s) {
#pragma omp simd safelen(64)
    for (int j = 0; j < 227; j++) s[j] = s[j + 397] ^ twist(s[j], s[j + 1]);
#pragma omp simd safelen(64)
    for (int j = 227; j < 623; j++) s[j] = s[j - 227] ^ twist(s[j], s[j + 1]);
    s[623] = s[396] ^ twist(s[623], s[0]);
}

static inline uint32_t temper(uint32_t y) {
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

static void uniform(const uint32_t *words, float *values, size_t count, float width, float low) {
#pragma omp simd
    for (size_t i = 0; i < count; i++)
        values[i] = fmaf((float)(int32_t)(temper(words[i]) & 0xffffffu) * 0x1p-24f, width, low);
}

/* Cephes' logf for x > 0, rounded as PyTorch's AVX2 build rounds it. */
static inline float block_log(float x) {
    x = x < 1.17549435e-38f ? 1.17549435e-38f : x;
    uint32_t bits = bits_of_float(x);
    float e = (float)((int)(bits >> 23) - 126), m = bits_to_float((bits & 0x007fffffu) | 0x3f000000u);
    bool is_doubled = m < 0.707106781186547524f; /* x = m * 2^e with m in [sqrt(1/2), sqrt(2)) */
    e -= is_doubled ? 1 : 0;
    m = (m - 1) + (is_doubled ? m : 0);
    float z = m * m;
    float y = 7.0376836292e-2f;
    y = fmaf(y, m, -1.1514610310e-1f);
    y = fmaf(y, m, 1.1676998740e-1f);
    y = fmaf(y, m, -1.2420140846e-1f);
    y = fmaf(y, m, 1.4249322787e-1f);
    y = fmaf(y, m, -1.6668057665e-1f);
    y = fmaf(y, m, 2.0000714765e-1f);
    y = fmaf(y, m, -2.4999993993e-1f);
    y = fmaf(y, m, 3.3333331174e-1f);
    y = y * m;
    y = fmaf(y, z, e * -2.12194440e-4f);
    y = fmaf(-z, 0.5f, y);
    return fmaf(e, 0.693359375f, m + y);
}

static inline float with_sign(float x, uint32_t sign) { return bits_to_float(bits_of_float(x) ^ sign); }

/* Cephes' sinf and cosf for x >= 0, rounded as PyTorch's AVX2 build rounds them. */
static inline void block_sincos(float x, float *sine, float *cosine) {
    int j = (int)(x * 1.27323954473516f);
    j = (j + 1) & ~1;
    float y = (float)j;
    x = fmaf(y, -0.78515625f, x);
    x = fmaf(y, -2.4187564849853515625e-4f, x);
    x = fmaf(y, -3.77489497744594108e-8f, x);
    float z = x * x;
    float c = 2.443315711809948e-5f;
    c = fmaf(c, z, -1.388731625493765e-3f);
    c = fmaf(c, z, 4.166664568298827e-2f);
    c = c * z;
    c = fmaf(c, z, -(z * 0.5f));
    c = c + 1;
    float s = -1.9515295891e-4f;
    s = fmaf(s, z, 8.3321608736e-3f);
    s = fmaf(s, z, -1.6666654611e-1f);
    s = s * z;
    s = fmaf(s, x, x);
    *sine = with_sign((j & 2) ? c : s, ((uint32_t)j & 4) << 29);
    *cosine = with_sign((j & 2) ? s : c, (~((uint32_t)j - 2) & 4) << 29);
}

/* a, b (PAIRS): uniforms in, normals out. */
static void transform_pairs(float *a, float *b, float mean, float std) {
#pragma omp simd
    for (int i = 0; i < PAIRS; i++) {
        float radius = sqrtf(-2 * block_log(1 - a[i])), sine, cosine;
        block_sincos(6.283185307179586f * b[i], &sine, &cosine);
        a[i] = fmaf(radius * cosine, std, mean);
        b[i] = fmaf(radius * sine, std, mean);
    }
}

static void normal(float *values, size_t count, float mean, float std) {
    float a[PAIRS] = {0}, b[PAIRS] = {0};
    for (size_t at = 0; at < count; at += (size_t)2 * PAIRS) {
        size_t here = count - at < (size_t)2 * PAIRS ? count - at : (size_t)2 * PAIRS;
        float *v = values + at;
        for (size_t i = 0; i < here; i += (size_t)2 * HALF) {
            memcpy(a + i / 2, v + i, HALF * sizeof *a);
            memcpy(b + i / 2, v + i + HALF, HALF * sizeof *b);
        }
        transform_pairs(a, b, mean, std);
        for (size_t i = 0; i < here; i += (size_t)2 * HALF) {
            memcpy(v + i, a + i / 2, HALF * sizeof *a);
            memcpy(v + i + HALF, b + i / 2, HALF * sizeof *b);
        }
    }
}

const struct draws DRAWS_SET = {.refill = refill, .uniform = uniform, .normal = normal};
