/* PyTorch's generator and its distributions. Arrays go through the loops of rng.h, in chunks that fit a cache. */
#include "base/numbers/rng.h"

#include <math.h>

#include "base/instructions.h"

#define CHUNK 2048 /* numbers; a multiple of 16 */

const struct draws *draws_at(size_t index) {
    const struct draws *sets[4] = {0};
    size_t count = 0;
#ifdef DDPTRAIN_X86_DRAWS
    if (processor_has(INSTRUCTIONS_AVX512)) sets[count++] = &draws_avx512;
    if (processor_has(INSTRUCTIONS_AVX2)) sets[count++] = &draws_avx2;
#endif
    sets[count++] = &draws_baseline;
    return index < count ? sets[index] : NULL;
}

static const struct draws *fastest_set(void) { return draws_at(0); }

static uint32_t next_seed(uint32_t word, uint32_t index) { return 1812433253u * (word ^ (word >> 30)) + index; }

static void start(struct rng *rng, uint64_t seed) {
    rng->state[0] = (uint32_t)seed;
    rng->next = DRAWS_WORDS;
    rng->has_normal = false;
    rng->normal = 0;
}

void rng_seed(struct rng *rng, uint64_t seed) {
    start(rng, seed);
    for (uint32_t j = 1; j < DRAWS_WORDS; j++) rng->state[j] = next_seed(rng->state[j - 1], j);
}

void rng_seed_together(struct rng rngs[RNG_TOGETHER], uint64_t seed) {
    for (uint64_t i = 0; i < RNG_TOGETHER; i++) start(&rngs[i], seed + i);
    for (uint32_t j = 1; j < DRAWS_WORDS; j++)
        for (size_t i = 0; i < RNG_TOGETHER; i++) rngs[i].state[j] = next_seed(rngs[i].state[j - 1], j);
}

static void refill(struct rng *rng) {
    fastest_set()->refill(rng->state);
    rng->next = 0;
}

uint32_t rng_u32(struct rng *rng) {
    if (rng->next == DRAWS_WORDS) refill(rng);
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

/* values (count) = u * width + low; NULL: only advances the generator. */
static void draw(struct rng *rng, float *values, size_t count, float width, float low) {
    const struct draws *set = fastest_set();
    for (size_t here; count > 0; count -= here) {
        if (rng->next == DRAWS_WORDS) refill(rng);
        here = (size_t)(DRAWS_WORDS - rng->next);
        if (here > count) here = count;
        if (values) {
            set->uniform(rng->state + rng->next, values, here, width, low);
            values += here;
        }
        rng->next += (int)here;
    }
}

void rng_uniform(struct rng *rng, float *values, size_t count, double from, double to) {
    float low = (float)from, width = (float)to - low;
    draw(rng, values, count, width, low);
}

/* Fewer than 16 values are drawn one by one in double; the second value of a pair is stored for the next call. */
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
    const struct draws *set = fastest_set();
    if (count < 16) {
        for (size_t i = 0; i < count; i++) {
            float value = (float)(normal_single(rng) * std + mean);
            if (values) values[i] = value;
        }
        return;
    }
    for (size_t at = 0, here; at < count && values; at += here) {
        here = count - at < CHUNK ? count - at : CHUNK;
        draw(rng, values + at, here, 1, 0);
        set->normal(values + at, here / 16 * 16, (float)mean, (float)std);
    }
    if (!values) draw(rng, NULL, count, 1, 0);
    if (count % 16 == 0) return;
    float *tail = values ? values + count - 16 : NULL; /* 16 new uniforms replace some finished values, as in PyTorch */
    draw(rng, tail, 16, 1, 0);
    if (tail) set->normal(tail, 16, (float)mean, (float)std);
}

static void swap(int64_t *a, int64_t *b) {
    int64_t t = *a;
    *a = *b;
    *b = t;
}

#define INSIDE_OUT (0x100000000ull / 20) /* from it on PyTorch shuffles inside out, with 64-bit draws */

void rng_permutation(struct rng *rng, int64_t *permutation, size_t count) {
    for (size_t i = 0; i < count; i++) permutation[i] = (int64_t)i;
    if (count < INSIDE_OUT) {
        for (size_t i = 0; i + 1 < count; i++) swap(&permutation[i], &permutation[i + rng_u32(rng) % (count - i)]);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        size_t j = (size_t)(rng_u64(rng) % (i + 1));
        permutation[i] = permutation[j];
        permutation[j] = (int64_t)i;
    }
}

void rng_permutation32(struct rng *rng, uint32_t *permutation, size_t count) {
    for (size_t i = 0; i < count; i++) permutation[i] = (uint32_t)i;
    for (size_t i = 0; i < count; i++) {
        bool is_inside_out = count >= INSIDE_OUT;
        size_t j = is_inside_out ? (size_t)(rng_u64(rng) % (i + 1)) : i;
        if (!is_inside_out && i + 1 < count) j = i + rng_u32(rng) % (uint32_t)(count - i);
        uint32_t moved = permutation[i];
        permutation[i] = permutation[j];
        permutation[j] = is_inside_out ? (uint32_t)i : moved;
    }
}

/* The end of splitmix64: each bit of the result depends on each of [x]. */
static inline uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* A Feistel network of six rounds permutes the numbers of the fewest bits, twice [half], that [count] needs, less than
 * 4 * count. What is not below count is permuted again: so all that are below it are permuted among themselves. */
uint64_t rng_permuted(uint64_t key, uint64_t count, uint64_t index) {
    unsigned half = 1;
    while (half < 32 && (uint64_t)1 << 2 * half < count) half++;
    uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = index >> half, right = index & mask;
        for (uint64_t round = 1; round <= 6; round++) {
            uint64_t mixed = (left ^ mix((key ^ right) + round * 0x9e3779b97f4a7c15u)) & mask;
            left = right;
            right = mixed;
        }
        index = left << half | right;
    } while (index >= count);
    return index;
}

/* NumPy's legacy random_interval: masked draws until one is <= max */
static uint64_t interval(struct rng *rng, uint64_t max) {
    uint64_t mask = max, value;
    for (int shift = 1; shift < 64; shift *= 2) mask |= mask >> shift;
    do {
        value = (max > 0xffffffffu ? rng_u64(rng) : rng_u32(rng)) & mask;
    } while (value > max);
    return value;
}

void rng_numpy_permutation(struct rng *rng, int64_t *permutation, size_t count) {
    for (size_t i = 0; i < count; i++) permutation[i] = (int64_t)i;
    for (size_t i = count; i-- > 1;) swap(&permutation[i], &permutation[interval(rng, i)]);
}
