/* tiles: code shared by the matrix products of float32 (gemm.c) and bfloat16 (../bf16/avx512.c). Tiles of results (8
 * rows x 3 vectors with 32 registers, 4 x 3 with 16) stay in registers while k runs over a packed panel of b. A step
 * of k is a word of 32 bits: one float or two bfloat16. */
#pragma once

#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/sets/lanes.h"

/* sum (lanes) + b (lanes of words) times x (a word, as a float): float32, unless the including file defines another
 * one */
#ifndef MULTIPLY_ADD
#define MULTIPLY_ADD plus_times
#endif
#define TILE_ROWS (KERNELS_REGISTERS == 32 ? 8 : 4)
#define PANEL_K 384
#define MAX_K (LANES == 16 ? 384 : 512) /* of a panel that is packed once for many rows */
#define STRIP_ROWS 256                  /* rows of a that are packed together: half of the second-level cache */
#define STRIP_STRIDE                                                                                                   \
    (PANEL_K + LANES) /* between packed rows: not a power of two, which would use few sets of the cache */

#define LINE 16 /* floats of a line of the cache */
/* Steps of k between two prefetches: a loop that ends so often costs the fewer cycles of AVX-512 a tenth of them. */
#define PREFETCH_STEPS (LANES == 16 ? 32 : 16)
#define PREFETCH_ROWS (PREFETCH_STEPS / 16) /* of the next tile of c, then */

/* A matrix that is prefetched a few lines at a time while tiles are computed, because fetching all at once would
 * stall. */
struct prefetch {
    const float *at;
    size_t stride, rows, lines, line, rate; /* pace: lines per pulse */
};

static inline __attribute__((always_inline)) void prefetch(struct prefetch *f) {
    for (size_t i = 0; i < f->rate && f->rows; i++) {
        __builtin_prefetch(f->at + f->line * LINE);
        if (++f->line < f->lines) continue;
        f->line = 0, f->at += f->stride, f->rows--;
    }
}

/* Arguments shared by the tiles of one panel. */
struct block {
    const float *a;
    size_t ars; /* between rows; of a packed a: of tiles, by their rows */
    const float *panel;
    size_t step; /* between rows of the panel */
    size_t depth;
    float *c;
    size_t ldc, rows, columns;
    enum product_start start;
    bool is_long;     /* what is added to c is summed first */
    const float *row; /* of PRODUCT_ROW, at the first column */
    bool has_relu;
    struct prefetch source; /* source of the next panel */
};

static bool is_long(const struct cpu_product *p) { return p->k > LONG_SUM; }

/* c (rows, vectors; [ldc]) = from ([stride] between rows) + a panel; [from] NULL: c += a panel, which is summed first
 */
static inline __attribute__((always_inline)) void tile(size_t vectors, size_t rows, bool is_packed, bool is_in_place,
                                                       const float *a, size_t ars, const float *panel, size_t step,
                                                       size_t k, const float *from, size_t stride, float *c, size_t ldc,
                                                       struct prefetch *source) {
    static const float zeros[PANEL_WIDTH];
    bool adds = from == NULL;
    lanes sum[TILE_ROWS][TILE_VECTORS];
    const float *row[TILE_ROWS];
    UNROLL
    for (size_t i = 0; i < rows; i++) {
        row[i] = a + i * ars;
        UNROLL
        for (size_t v = 0; v < vectors; v++)
            sum[i][v] = *(const lanes *)((adds ? zeros : from + i * stride) + LANES * v);
    }
    for (size_t p = 0, end; p < k; p = end) {
        float *next = c + (rows + p / PREFETCH_STEPS * PREFETCH_ROWS % rows) * ldc;
        for (size_t r = 0; r < PREFETCH_ROWS; r++, next += ldc)
            for (size_t v = 0; v <= vectors; v += LINE / LANES) __builtin_prefetch(next + v * LANES, 1);
        prefetch(source);
        end = k - p < PREFETCH_STEPS ? k : p + PREFETCH_STEPS;
        for (; p < end; p++, panel += is_in_place ? step : vectors * LANES) {
            lanes b[TILE_VECTORS];
            UNROLL
            for (size_t v = 0; v < vectors; v++) b[v] = *(const lanes *)(panel + v * LANES);
            UNROLL
            for (size_t i = 0; i < rows; i++) {
                float x = is_packed ? a[p * TILE_ROWS + i] : row[i][p];
                UNROLL
                for (size_t v = 0; v < vectors; v++) sum[i][v] = MULTIPLY_ADD(sum[i][v], b[v], x);
            }
        }
    }
    if (adds) {
        UNROLL
        for (size_t i = 0; i < rows; i++) {
            UNROLL
            for (size_t v = 0; v < vectors; v++) sum[i][v] += *(const lanes *)(c + i * ldc + LANES * v);
        }
    }
    UNROLL
    for (size_t i = 0; i < rows; i++) {
        UNROLL
        for (size_t v = 0; v < vectors; v++) *(lanes *)(c + i * ldc + LANES * v) = sum[i][v];
    }
}

typedef void tile_function(const float *a, size_t ars, const float *panel, size_t step, size_t k, const float *from,
                           size_t stride, float *c, size_t ldc, struct prefetch *source);

/* Separate functions, so that each has all registers. */
#define TILE(name, vectors, rows, is_packed, is_in_place)                                                              \
    static __attribute__((noinline)) void name(const float *a, size_t ars, const float *panel, size_t step, size_t k,  \
                                               const float *from, size_t stride, float *c, size_t ldc,                 \
                                               struct prefetch *source) {                                              \
        tile(vectors, rows, is_packed, is_in_place, a, ars, panel, step, k, from, stride, c, ldc, source);             \
    }
#define TILES(rows)                                                                                                    \
    TILE(tile_##rows##_1, 1, rows, false, false)                                                                       \
    TILE(tile_##rows##_2, 2, rows, false, false)                                                                       \
    TILE(tile_##rows##_3, 3, rows, false, false)                                                                       \
    TILE(in_place_##rows##_1, 1, rows, false, true)                                                                    \
    TILE(in_place_##rows##_2, 2, rows, false, true)                                                                    \
    TILE(in_place_##rows##_3, 3, rows, false, true)
TILE(packed_tile_1, 1, TILE_ROWS, true, false)
TILE(packed_tile_2, 2, TILE_ROWS, true, false)
TILE(packed_tile_3, 3, TILE_ROWS, true, false)
#if KERNELS_REGISTERS == 32
TILES(4)
TILES(5)
TILES(6)
TILES(7)
TILES(8)
#else
TILES(2)
TILES(3)
TILES(4)
#endif

#define LOW_ROWS (TILE_ROWS / 2) /* of the lowest tile */

static tile_function *const packed_tiles[TILE_VECTORS] = {packed_tile_1, packed_tile_2, packed_tile_3};
/* By rows, from LOW_ROWS on; whether b is read in place; vectors. */
static tile_function *const plain_tiles[][2][TILE_VECTORS] = {
#define TILES_OF(rows)                                                                                                 \
    {                                                                                                                  \
        {tile_##rows##_1, tile_##rows##_2, tile_##rows##_3}, {                                                         \
            in_place_##rows##_1, in_place_##rows##_2, in_place_##rows##_3                                              \
        }                                                                                                              \
    }
#if KERNELS_REGISTERS == 32
    TILES_OF(4), TILES_OF(5), TILES_OF(6), TILES_OF(7), TILES_OF(8)};
#else
    TILES_OF(2), TILES_OF(3), TILES_OF(4)};
#endif

/* The tile of [rows] for a panel of [vectors]. */
static tile_function *tile_of(const struct block *block, bool is_packed, size_t rows, size_t vectors) {
    return is_packed ? packed_tiles[vectors - 1]
                     : plain_tiles[rows - LOW_ROWS][block->step != vectors * LANES][vectors - 1];
}

/* A tile at the edge: computed in a copy; missing rows repeat the last one. */
static void edge_tile(struct block *block, tile_function *run, bool is_packed, const float *a, float *c, size_t rows) {
    float edge[TILE_ROWS * PANEL_WIDTH] = {0}, strip[TILE_ROWS * MAX_K];
    size_t columns = block->columns, ars = block->ars;
    for (size_t i = 0; i < rows && block->start != PRODUCT_ZERO; i++)
        memcpy(edge + i * PANEL_WIDTH, block->start == PRODUCT_ROW ? block->row : c + i * block->ldc,
               columns * sizeof *c);
    if (!is_packed && rows < TILE_ROWS) {
        for (size_t i = 0; i < TILE_ROWS; i++)
            memcpy(strip + i * MAX_K, a + (i < rows ? i : rows - 1) * ars, block->depth * sizeof *a);
        a = strip;
        ars = MAX_K;
    }
    bool adds = block->is_long && block->start == PRODUCT_ADD;
    run(a, ars, block->panel, block->step, block->depth, adds ? NULL : edge, PANEL_WIDTH, edge, PANEL_WIDTH,
        &block->source);
    for (size_t i = 0; i < rows; i++) memcpy(c + i * block->ldc, edge + i * PANEL_WIDTH, columns * sizeof *c);
}

/* Rows of the next tile when [left] remain. [is_even]: of less than two tiles half, so that none is low. */
static size_t tile_rows(size_t left, bool is_even) {
    if (left <= TILE_ROWS || left >= 2 * TILE_ROWS || !is_even) return left < TILE_ROWS ? left : TILE_ROWS;
    return (left + 1) / 2;
}

static void panel_product(struct block *block, bool is_packed) {
    static const float zeros[PANEL_WIDTH];
    size_t vectors = (block->columns + LANES - 1) / LANES, stride = block->start == PRODUCT_ADD ? block->ldc : 0;
    if (vectors < 1 || vectors > TILE_VECTORS) return; /* a panel has columns, and at most PANEL_WIDTH */
    bool is_whole = block->columns == vectors * LANES, is_even = is_whole && !is_packed;
    size_t low = is_even ? LOW_ROWS : TILE_ROWS;
    tile_function *highest = tile_of(block, is_packed, TILE_ROWS, vectors);
    const float *a = block->a;
    for (size_t i = 0, rows; i < block->rows; i += rows, a += rows * block->ars) {
        size_t left = block->rows - i;
        float *c = block->c + i * block->ldc;
        const float *from = block->start == PRODUCT_ROW ? block->row : zeros;
        if (block->start == PRODUCT_ADD) from = block->is_long ? NULL : c;
        rows = tile_rows(left, is_even);
        tile_function *run = rows == TILE_ROWS || rows < low ? highest : tile_of(block, is_packed, rows, vectors);
        if (is_whole && rows >= low)
            run(a, block->ars, block->panel, block->step, block->depth, from, stride, c, block->ldc, &block->source);
        else
            edge_tile(block, run, is_packed, a, c, rows);
        if (block->has_relu) relu_rows(c, block->ldc, rows, block->columns);
    }
}

#define LARGE ((size_t)1 << 20) /* multiply-adds from which prefetching pays off */

static size_t intervals_of(const struct block *block) {
    return ((block->rows + TILE_ROWS - 1) / TILE_ROWS) * ((block->depth + PREFETCH_STEPS - 1) / PREFETCH_STEPS);
}

/* Sets the next matrix to prefetch: [next] columns of b, of which [depth] rows are needed. */
static void plan_prefetch(const struct cpu_product *p, struct block *block, const float *b, size_t depth, size_t next) {
    bool is_transposed = p->brs == 1 && p->bcs != 1;
    size_t rows = is_transposed ? next : next ? depth : 0, width = is_transposed ? depth : next;
    size_t intervals = intervals_of(block), lines = width / LINE + 1;
    block->source = (struct prefetch){
        b, is_transposed ? p->bcs : p->brs, rows, lines, 0, intervals ? 1 + rows * lines / intervals : 1};
}
