/* Random numbers of dropout, as on the CPU (cpu/sets/kernels.c): they depend only on the key, the row and the number of
 * the element. */
#pragma once

#include "device/cuda/gpu.cuh"

struct mask_draws {
    struct draw_key key;
    const uint64_t *number;
    float p, scale;
    uint32_t threshold; /* an element is kept if its random number is not below it */

    /* Random numbers of elements 4 [block] to 4 [block] + 3 of local row i. */
    __device__ void of(size_t i, size_t block, uint32_t word[4]) const {
        uint64_t row = key.first_row + i * key.row_stride, pass = *number;
        word[0] = (uint32_t)block;
        word[1] = (uint32_t)row;
        word[2] = (uint32_t)pass;
        word[3] = (uint32_t)(pass >> 32) ^ (uint32_t)(row >> 32) << 16 ^ (uint32_t)(block >> 32);
        philox(word, (uint32_t)key.seed ^ (uint32_t)(key.seed >> 32) * 0x85ebca6bu, key.stream);
    }
    __device__ bool keeps(uint32_t word) const { return word >= threshold && p < 1; }
    __device__ float drop(uint32_t word, float v) const { return keeps(word) ? v * scale : 0; }
};

static inline struct mask_draws mask_draws_of(operator_call *c, const struct draw_key *key, float p) {
    return {*key, c->in(key->pass, 1), p, 1 / (1 - p), p >= 1 ? 0xffffffffu : (uint32_t)((double)p * 0x1p32)};
}
