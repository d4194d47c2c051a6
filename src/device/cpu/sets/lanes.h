/* lanes: the registers and a vector of the instruction set, and the panels of a few vectors into which products divide
 * their columns. */
#pragma once

#include <stddef.h>

/* KERNELS_REGISTERS: vector registers of the instruction set (32 or 16), from cmake/CpuKernels.cmake */
#ifndef KERNELS_REGISTERS
#define KERNELS_REGISTERS 16 /* for editors that read only the header */
#endif

/* Before each loop over the rows and the vectors of a tile. Without it gcc finds out late that the sums can be in
 * registers. For x86 it then copies them to memory and back before and after the loop over k, and for ARM in each step:
 * then 12 of 35 instructions are multiply-adds instead of 24 of 38. */
#if defined __GNUC__ && !defined __clang__
#define UNROLL _Pragma("GCC unroll 16")
#else
#define UNROLL
#endif

#ifndef KERNELS_LANES
#define KERNELS_LANES 4
#endif

/* KERNELS_LANES: floats of one vector of the instruction set (16, 8 or 4) */
#define LANES KERNELS_LANES
#define TILE_VECTORS 3
#define PANEL_WIDTH (TILE_VECTORS * LANES)

#if LANES > 4
#include <immintrin.h>
#elif defined __ARM_NEON
#include <arm_neon.h>
#endif

typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4)));

/* sum + a b, rounded once where the processor has an instruction for it, so in every set except the baseline of x86.
 * Written out instead of left to the compiler, whose choices differ where two products are added. */
static inline __attribute__((always_inline)) lanes plus_product(lanes sum, lanes a, lanes b) {
#if LANES == 16
    return (lanes)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)sum);
#elif LANES == 8
    return (lanes)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)sum);
#elif defined __ARM_NEON
    return (lanes)vfmaq_f32((float32x4_t)sum, (float32x4_t)a, (float32x4_t)b);
#else
    return sum + a * b;
#endif
}
static inline __attribute__((always_inline)) lanes plus_times(lanes sum, lanes a, float b) {
    return plus_product(sum, a, b - (lanes){0});
}
static inline float plus_number(float sum, float a, float b) {
#if defined __FMA__ || defined __ARM_NEON
    return __builtin_fmaf(a, b, sum);
#else
    return sum + a * b;
#endif
}

/* Swapping blocks of w off the diagonal for w = 1, 2, 4, ... transposes a square of LANES x LANES. */
#define LOW(i, w) ((i) & (w) ? LANES + (i) - (w) : (i))
#define HIGH(i, w) ((i) & (w) ? LANES + (i) : (i) + (w))
#define FOUR(f, i, w) f(i, w), f(i + 1, w), f(i + 2, w), f(i + 3, w)
#if LANES == 16
#define EACH_LANE(f, w) FOUR(f, 0, w), FOUR(f, 4, w), FOUR(f, 8, w), FOUR(f, 12, w)
#elif LANES == 8
#define EACH_LANE(f, w) FOUR(f, 0, w), FOUR(f, 4, w)
#else
#define EACH_LANE(f, w) FOUR(f, 0, w)
#endif
#define SWAP_BLOCKS(rows, w)                                                                                           \
    for (size_t i_ = 0; i_ < LANES; i_++)                                                                              \
        if (!(i_ & (w))) {                                                                                             \
            lanes one_ = (rows)[i_], other_ = (rows)[i_ + (w)];                                                        \
            (rows)[i_] = __builtin_shufflevector(one_, other_, EACH_LANE(LOW, w));                                     \
            (rows)[i_ + (w)] = __builtin_shufflevector(one_, other_, EACH_LANE(HIGH, w));                              \
        }

/* square (LANES vectors) becomes its transpose */
static inline void transpose(lanes square[LANES]) {
    SWAP_BLOCKS(square, 1)
    SWAP_BLOCKS(square, 2)
#if LANES > 4
    SWAP_BLOCKS(square, 4)
#endif
#if LANES > 8
    SWAP_BLOCKS(square, 8)
#endif
}

#if LANES == 16
/* columns = 4 columns of [rows] rows at [from], [stride] apart; past them the last one is repeated */
static inline __attribute__((always_inline)) void load_columns(lanes columns[4], const float *from, size_t stride,
                                                               size_t rows) {
    __m512 x[4], low[2], high[2]; /* in x[r] rows r, r + 4, r + 8 and r + 12: joined as they are loaded */
    UNROLL
    for (size_t r = 0; r < LANES; r++) {
        __m128 part = _mm_loadu_ps(from);
        x[r % 4] = r < 4 ? _mm512_castps128_ps512(part)
                         : _mm512_mask_broadcast_f32x4(x[r % 4], (__mmask16)(15 << r / 4 * 4), part);
        if (r + 1 < rows) from += stride;
        __asm__("" : "+r"(from)); /* one pointer instead of one for each row, which are too many registers */
    }
    UNROLL
    for (size_t r = 0; r < 2; r++) {
        low[r] = _mm512_unpacklo_ps(x[2 * r], x[2 * r + 1]);
        high[r] = _mm512_unpackhi_ps(x[2 * r], x[2 * r + 1]);
    }
    columns[0] = (lanes)_mm512_shuffle_ps(low[0], low[1], 0x44);
    columns[1] = (lanes)_mm512_shuffle_ps(low[0], low[1], 0xee);
    columns[2] = (lanes)_mm512_shuffle_ps(high[0], high[1], 0x44);
    columns[3] = (lanes)_mm512_shuffle_ps(high[0], high[1], 0xee);
}
#endif

/* square = the transpose of [rows] rows at [from], [stride] apart; past them the last one is repeated */
static inline __attribute__((always_inline)) void load_transposed(lanes square[LANES], const float *from, size_t stride,
                                                                  size_t rows) {
#if LANES == 16     /* quarters of rows are joined as they are loaded, which leaves half of the shuffles */
    __m512 x[4][4]; /* of columns 4 c to 4 c + 3: in [c][r] rows r, r + 4, r + 8 and r + 12 */
    UNROLL
    for (size_t r = 0; r < LANES; r++) {
        UNROLL
        for (size_t c = 0; c < 4; c++) {
            __m128 part = _mm_loadu_ps(from + 4 * c);
            x[c][r % 4] = r < 4 ? _mm512_castps128_ps512(part)
                                : _mm512_mask_broadcast_f32x4(x[c][r % 4], (__mmask16)(15 << r / 4 * 4), part);
        }
        if (r + 1 < rows) from += stride;
        __asm__("" : "+r"(from)); /* one pointer instead of one for each row, which are too many registers */
    }
    UNROLL
    for (size_t c = 0; c < 4; c++) {
        __m512 low[2], high[2];
        UNROLL
        for (size_t r = 0; r < 2; r++) {
            low[r] = _mm512_unpacklo_ps(x[c][2 * r], x[c][2 * r + 1]);
            high[r] = _mm512_unpackhi_ps(x[c][2 * r], x[c][2 * r + 1]);
        }
        square[4 * c] = (lanes)_mm512_shuffle_ps(low[0], low[1], 0x44);
        square[4 * c + 1] = (lanes)_mm512_shuffle_ps(low[0], low[1], 0xee);
        square[4 * c + 2] = (lanes)_mm512_shuffle_ps(high[0], high[1], 0x44);
        square[4 * c + 3] = (lanes)_mm512_shuffle_ps(high[0], high[1], 0xee);
    }
#else
    const float *row[LANES];
    for (size_t r = 0; r < LANES; r++) row[r] = from + (r < rows ? r : rows - 1) * stride;
#if LANES == 8 /* halves of rows are joined as they are loaded, which leaves half of the shuffles */
    __m256 x[LANES], pairs[LANES];
    for (size_t r = 0; r < LANES; r++)
        x[r] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(row[r % 4] + r / 4 * 4)),
                                    _mm_loadu_ps(row[r % 4 + 4] + r / 4 * 4), 1);
    for (size_t r = 0; r < LANES; r += 2) {
        pairs[r] = _mm256_unpacklo_ps(x[r], x[r + 1]);
        pairs[r + 1] = _mm256_unpackhi_ps(x[r], x[r + 1]);
    }
    for (size_t r = 0; r < LANES; r += 4) {
        square[r] = (lanes)_mm256_shuffle_ps(pairs[r], pairs[r + 2], 0x44);
        square[r + 1] = (lanes)_mm256_shuffle_ps(pairs[r], pairs[r + 2], 0xee);
        square[r + 2] = (lanes)_mm256_shuffle_ps(pairs[r + 1], pairs[r + 3], 0x44);
        square[r + 3] = (lanes)_mm256_shuffle_ps(pairs[r + 1], pairs[r + 3], 0xee);
    }
#else
    for (size_t r = 0; r < LANES; r++) square[r] = *(const lanes *)row[r];
    transpose(square);
#endif
#endif
}

/* ---- the first [count] < LANES numbers of a vector, where the others must not be touched ---- */

typedef int lane_mask __attribute__((vector_size(4 * LANES), aligned(4)));

#if LANES == 8
/* The first [count] lanes are set. */
static inline __attribute__((always_inline)) lane_mask partial_mask(size_t count) {
    static const int words[2 * LANES] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return *(const lane_mask *)(words + LANES - count);
}
#endif

/* Zeros after the first [count] numbers. */
static inline __attribute__((always_inline)) lanes partial_load(const float *from, size_t count) {
#if LANES == 16
    return (lanes)_mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), from);
#elif LANES == 8
    return (lanes)_mm256_maskload_ps(from, (__m256i)partial_mask(count));
#else
    lanes x = {0};
    if (count > 0) x[0] = from[0];
    if (count > 1) x[1] = from[1];
    if (count > 2) x[2] = from[2];
    return x;
#endif
}

static inline __attribute__((always_inline)) void partial_store(float *to, lanes x, size_t count) {
#if LANES == 16
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << count) - 1), (__m512)x);
#elif LANES == 8 /* not _mm256_maskstore_ps, which takes some processors 20 cycles */
    __m128 part = _mm256_castps256_ps128((__m256)x);
    if (count & 4) {
        _mm_storeu_ps(to, part);
        part = _mm256_extractf128_ps((__m256)x, 1);
        to += 4;
    }
    if (count & 2) {
        _mm_storel_pi((__m64 *)(void *)to, part);
        part = _mm_movehl_ps(part, part);
        to += 2;
    }
    if (count & 1) _mm_store_ss(to, part);
#else
    if (count > 0) to[0] = x[0];
    if (count > 1) to[1] = x[1];
    if (count > 2) to[2] = x[2];
#endif
}

/* c (rows, columns; row stride ldc) = max(c, 0); NaN is not changed */
static inline void relu_rows(float *c, size_t ldc, size_t rows, size_t columns) {
    for (size_t i = 0; i < rows; i++, c += ldc)
        for (size_t j = 0; j < columns; j++) c[j] = c[j] > 0 ? c[j] : c[j] != c[j] ? c[j] : 0;
}

/* ---- panels ---- */

/* Columns of the next panel when [left] remain. Less than two panels are halved: a tile of few columns has too few sums
 * to hide the latency of its multiply-adds. */
static inline size_t panel_columns(size_t left) {
    if (left <= PANEL_WIDTH || left >= 2 * PANEL_WIDTH) return left < PANEL_WIDTH ? left : PANEL_WIDTH;
    return (left + 2 * LANES - 1) / (2 * LANES) * LANES;
}
