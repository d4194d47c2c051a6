/* rng: PyTorch's CPU generator (at::mt19937) and its distributions, bit for bit; and NumPy's legacy shuffle, which
 * scikit-learn's splits use. See docs/determinism.md and tests/vectors/{rng,randperm,split}.json. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bits.h"

struct rng {
    uint32_t state[624];
    int next; /* index of the next word; 624: refill first */
    bool has_normal;
    double normal; /* the second value of the last pair drawn one by one */
};

/* torch.manual_seed: uses the low 32 bits of [seed]. */
void rng_seed(struct rng *rng, uint64_t seed);

#define RNG_TOGETHER 4
/* rngs[i] is seeded with seed + i. Takes as long as one: each word of a state waits for the one before. */
void rng_seed_together(struct rng rngs[RNG_TOGETHER], uint64_t seed);

uint32_t rng_u32(struct rng *rng); /* one tempered output */
uint64_t rng_u64(struct rng *rng); /* the first draw is the high half */

/* torch.empty((), dtype=int64).random_(): 0 .. 2^63-1 */
int64_t rng_int64(struct rng *rng);

/* torch.rand(1, dtype=float64): 53 bits */
double rng_uniform53(struct rng *rng);

/* tensor.uniform_(from, to) in float32: values (count); NULL: only advances the generator, which is much faster */
void rng_uniform(struct rng *rng, float *values, size_t count, double from, double to);

/* tensor.normal_(mean, std) in float32: values (count); NULL: likewise */
void rng_normal(struct rng *rng, float *values, size_t count, double mean, double std);

/* torch.randperm(count): permutation (count) of 0 .. count-1; the second: the same of a count below 2^32 */
void rng_permutation(struct rng *rng, int64_t *permutation, size_t count);
void rng_permutation32(struct rng *rng, uint32_t *permutation, size_t count);

/* Number [index] of a permutation of 0 .. count-1, one for each [key], that needs no memory; not PyTorch's. */
uint64_t rng_permuted(uint64_t key, uint64_t count, uint64_t index);

/* numpy.random.RandomState(seed).permutation(count), the generator seeded by rng_seed(seed) */
void rng_numpy_permutation(struct rng *rng, int64_t *permutation, size_t count);

/* ---- the inner loops of rng.c, compiled once per instruction set (cmake/CpuKernels.cmake). All sets give the same
 * bits. ---- */

#define DRAWS_WORDS 624 /* of the generator's state */

struct draws {
    /* replaces state (DRAWS_WORDS) with the next words, untempered */
    void (*refill)(uint32_t *state);
    /* values[i] = u * width + low, rounded once, with u in [0, 1) of 24 bits of words[i]; (count) both */
    void (*uniform)(const uint32_t *words, float *values, size_t count, float width, float low);
    /* values (count, a multiple of 16): uniforms in, normals out (Box-Muller transform of each 16) */
    void (*normal)(float *values, size_t count, float mean, float std);
};

extern const struct draws draws_baseline, draws_avx2, draws_avx512;

/* The instruction sets that this processor supports, fastest first; NULL after the last one. */
const struct draws *draws_at(size_t index);

/* ---- Philox 4x32-10 (Salmon et al., SC 2011), a counter-based generator: a number depends only on the counter and the
 * key, not on earlier draws. Inline, so that loops over it can be vectorised, and for GPU kernels. ---- */

/* Replaces counter (4) with four random words. */
HOST_DEVICE static inline void philox(uint32_t counter[4], uint32_t key0, uint32_t key1) {
    for (int round = 0; round < 10; round++) {
        uint64_t a = 0xd2511f53ull * counter[0], b = 0xcd9e8d57ull * counter[2];
        uint32_t c0 = (uint32_t)(b >> 32) ^ counter[1] ^ key0, c2 = (uint32_t)(a >> 32) ^ counter[3] ^ key1;
        counter[1] = (uint32_t)b;
        counter[3] = (uint32_t)a;
        counter[0] = c0;
        counter[2] = c2;
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
}
