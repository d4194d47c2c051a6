/* Written from the published facts of PyTorch's generator: every multiply-add that its AVX2 kernels fuse is an
 * explicit fmaf here, every other rounding stands alone (the build forbids contraction). The mt19937 recurrence is
 * Matsumoto and Nishimura's; the polynomials of the block normal are Cephes' single-precision ones (see NOTICE). */
#include "base/rng.h"

#include <math.h>

#include "base/bits.h"

void rng_seed(struct rng *rng, uint64_t seed) {
    rng->state[0] = (uint32_t)seed;
    for (uint32_t j = 1; j < 624; j++)
        rng->state[j] = 1812433253u * (rng->state[j - 1] ^ (rng->state[j - 1] >> 30)) + j;
    rng->next = 624;
    rng->has_normal = false;
    rng->normal = 0;
}

static uint32_t twist(uint32_t high, uint32_t low) {
    uint32_t y = (high & 0x80000000u) | (low & 0x7fffffffu);
    return (y >> 1) ^ ((low & 1u) ? 0x9908b0dfu : 0u);
}

static void refill(struct rng *rng) {
    uint32_t *s = rng->state;
    for (int j = 0; j < 227; j++) s[j] = s[j + 397] ^ twist(s[j], s[j + 1]);
    for (int j = 227; j < 623; j++) s[j] = s[j - 227] ^ twist(s[j], s[j + 1]);
    s[623] = s[396] ^ twist(s[623], s[0]);
    rng->next = 0;
}

uint32_t rng_u32(struct rng *rng) {
    if (rng->next == 624) refill(rng);
    uint32_t y = rng->state[rng->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

uint64_t rng_u64(struct rng *rng) {
    uint64_t high = rng_u32(rng);
    return high << 32 | rng_u32(rng);
}

int64_t rng_int64(struct rng *rng) { return (int64_t)(rng_u64(rng) & 0x7fffffffffffffffu); }

double rng_uniform53(struct rng *rng) { return (double)(rng_u64(rng) & ((1ull << 53) - 1)) * 0x1p-53; }

static float uniform24(struct rng *rng) { return (float)(rng_u32(rng) & 0xffffffu) * 0x1p-24f; }

void rng_uniform(struct rng *rng, float *values, size_t count, double from, double to) {
    float low = (float)from, width = (float)to - low;
    for (size_t i = 0; i < count; i++) values[i] = fmaf(uniform24(rng), width, low);
}

/* Cephes' logf for x > 0, rounded as PyTorch's AVX2 build rounds it. */
static float block_log(float x) {
    if (x < 1.17549435e-38f) x = 1.17549435e-38f;
    uint32_t bits = bits_of_float(x);
    float e = (float)((int)(bits >> 23) - 126), m = bits_to_float((bits & 0x007fffffu) | 0x3f000000u);
    if (m < 0.707106781186547524f) {
        e -= 1;
        m = (m - 1) + m;
    } else {
        m = m - 1;
    }
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

/* Cephes' sinf and cosf for x >= 0, rounded likewise. */
static void block_sincos(float x, float *sine, float *cosine) {
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
    *sine = (j & 2) ? c : s;
    *cosine = (j & 2) ? s : c;
    if (j & 4) *sine = -*sine;
    if (((j - 2) & 4) == 0) *cosine = -*cosine;
}

/* d (16): uniforms in, normals out (Box-Muller on the pairs d[j], d[j + 8]). */
static void normal_block(float *d, float mean, float std) {
    for (int j = 0; j < 8; j++) {
        float u1 = 1 - d[j], u2 = d[j + 8];
        float radius = sqrtf(-2 * block_log(u1)), sine, cosine;
        block_sincos(6.283185307179586f * u2, &sine, &cosine);
        d[j] = fmaf(radius * cosine, std, mean);
        d[j + 8] = fmaf(radius * sine, std, mean);
    }
}

/* Fewer than 16 values are drawn one by one in double, the second of each pair kept for the next call. */
static double normal_single(struct rng *rng) {
    if (rng->has_normal) {
        rng->has_normal = false;
        return rng->normal;
    }
    double u1 = rng_uniform53(rng), u2 = rng_uniform53(rng);
    double radius = sqrt(-2 * log1p(-u2)), angle = 2 * 3.14159265358979323846 * u1;
    rng->normal = radius * sin(angle);
    rng->has_normal = true;
    return radius * cos(angle);
}

void rng_normal(struct rng *rng, float *values, size_t count, double mean, double std) {
    if (count < 16) {
        for (size_t i = 0; i < count; i++) values[i] = (float)(normal_single(rng) * std + mean);
        return;
    }
    for (size_t i = 0; i < count; i++) values[i] = uniform24(rng);
    for (size_t i = 0; i + 16 <= count; i += 16) normal_block(values + i, (float)mean, (float)std);
    if (count % 16) {
        float *tail = values + count - 16; /* 16 new uniforms replace some finished values, as in PyTorch */
        for (int j = 0; j < 16; j++) tail[j] = uniform24(rng);
        normal_block(tail, (float)mean, (float)std);
    }
}

static void swap(int64_t *a, int64_t *b) {
    int64_t t = *a;
    *a = *b;
    *b = t;
}

void rng_permutation(struct rng *rng, int64_t *permutation, size_t count) {
    for (size_t i = 0; i < count; i++) permutation[i] = (int64_t)i;
    if (count < 0x100000000ull / 20) {
        for (size_t i = 0; i + 1 < count; i++) swap(&permutation[i], &permutation[i + rng_u32(rng) % (count - i)]);
        return;
    }
    /* above 2^32 / 20 PyTorch shuffles inside out with 64-bit draws */
    for (size_t i = 0; i < count; i++) {
        size_t j = (size_t)(rng_u64(rng) % (i + 1));
        permutation[i] = permutation[j];
        permutation[j] = (int64_t)i;
    }
}

/* numpy's legacy random_interval: a masked draw, rejected until it is <= most */
static uint64_t interval(struct rng *rng, uint64_t most) {
    uint64_t mask = most, value;
    for (int shift = 1; shift < 64; shift *= 2) mask |= mask >> shift;
    do {
        value = (most > 0xffffffffu ? rng_u64(rng) : rng_u32(rng)) & mask;
    } while (value > most);
    return value;
}

void rng_numpy_permutation(struct rng *rng, int64_t *permutation, size_t count) {
    for (size_t i = 0; i < count; i++) permutation[i] = (int64_t)i;
    for (size_t i = count; i-- > 1;) swap(&permutation[i], &permutation[interval(rng, i)]);
}
