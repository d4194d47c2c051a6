/* src/device/cuda/tensor_core.cuh for the emulated GPU: each instruction is a loop over what the lanes of a warp hand
 * in, with the layouts that the PTX ISA states, so a kernel's indices are tested. */
#pragma once

#include <cmath>
#include <cstdint>

extern "C" {
#include "base/bits.h"
}

#define UNROLL

/* A lane's factors of a product. */
struct emulated_factors {
    uint32_t a[4], b[2];
};

/* Rows g and g + 8 of a, columns 2t and 2t + 1 of b: 16 products each, the factors from the lanes that hold them. */
template <float of(uint16_t)>
void emulated_multiply(float *sums[4], const uint32_t a[4], uint32_t b0, uint32_t b1, const char *file, int line) {
    struct emulated_factors own = {{a[0], a[1], a[2], a[3]}, {b0, b1}}, all[32];
    unsigned lane = emulated_lane();
    const unsigned char *given = emulated_exchange(0xffffffffu, &own, sizeof own, file, line);
    for (unsigned l = 0; l < 32; l++) all[l] = emulated_value<struct emulated_factors>(given, l);
    for (unsigned i = 0; i < 4; i++) {
        unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        for (unsigned k = 0; k < 16; k++) {
            unsigned holds_a = row % 8 * 4 + k % 8 / 2, holds_b = column * 4 + k % 8 / 2, shift = k % 2 * 16;
            uint32_t left = all[holds_a].a[row / 8 + k / 8 * 2] >> shift, right = all[holds_b].b[k / 8] >> shift;
            *sums[i] = fmaf(of((uint16_t)left), of((uint16_t)right), *sums[i]);
        }
    }
}

struct bfloat16_factors {
    static uint32_t pair(float first, float second) {
        return bits_to_bfloat16(first) | (uint32_t)bits_to_bfloat16(second) << 16;
    }
    static void multiply(float *sum0, float *sum1, float *sum2, float *sum3, const uint32_t a[4], uint32_t b0,
                         uint32_t b1, EMULATED_LOCATION) {
        float *sums[4] = {sum0, sum1, sum2, sum3};
        emulated_multiply<bits_from_bfloat16>(sums, a, b0, b1, file, line);
    }
};

struct float16_factors {
    static uint32_t pair(float first, float second) {
        return bits_to_float16(first) | (uint32_t)bits_to_float16(second) << 16;
    }
    static float widen(uint16_t bits) { return bits_from_float16(bits); }
    static void multiply(float *sum0, float *sum1, float *sum2, float *sum3, const uint32_t a[4], uint32_t b0,
                         uint32_t b1, EMULATED_LOCATION) {
        float *sums[4] = {sum0, sum1, sum2, sum3};
        emulated_multiply<bits_from_float16>(sums, a, b0, b1, file, line);
    }
};

/* Element [column] of the row whose address lane [from] passed; rows start at multiples of 16 bytes. */
static inline uint32_t emulated_element(const unsigned char *given, unsigned from, unsigned column) {
    const uint16_t *row = emulated_value<const uint16_t *>(given, from);
    assert((uintptr_t)row % 16 == 0);
    return row[column];
}

static inline void load_matrices(uint32_t r[4], const uint16_t *row, EMULATED_LOCATION) {
    unsigned lane = emulated_lane(), first = lane % 4 * 2;
    const unsigned char *given = emulated_exchange(0xffffffffu, &row, sizeof row, file, line);
    for (unsigned i = 0; i < 4; i++)
        r[i] = emulated_element(given, i * 8 + lane / 4, first) | emulated_element(given, i * 8 + lane / 4, first + 1)
                                                                      << 16;
}

static inline void load_transposed(uint32_t r[4], const uint16_t *row, EMULATED_LOCATION) {
    unsigned lane = emulated_lane(), first = lane % 4 * 2;
    const unsigned char *given = emulated_exchange(0xffffffffu, &row, sizeof row, file, line);
    for (unsigned i = 0; i < 4; i++)
        r[i] = emulated_element(given, i * 8 + first, lane / 4) | emulated_element(given, i * 8 + first + 1, lane / 4)
                                                                      << 16;
}

static inline void copy_start(void *to, const void *from, bool is_valid, EMULATED_LOCATION) {
    emulated_copy(to, from, 16, is_valid, file, line);
}

static inline void copy_commit() { emulated_copy_commit(); }

template <unsigned GROUPS> inline void copy_wait() { emulated_copy_wait(GROUPS); }

static inline float exp2_fast(float x) { return x < -126 ? 0 : exp2f(x); }
