/* draws: the inner loops of rng.c, compiled once per instruction set (cmake/CpuKernels.cmake). All sets give the same
 * bits. */
#pragma once

#include <stddef.h>
#include <stdint.h>

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
