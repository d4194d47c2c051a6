/* tiles: code shared by the matrix products of float32 (gemm.c) and bfloat16 (../bf16/avx512.c). Tiles of results (8
 * rows x 3 vectors with 32 registers, 4 x 3 with 16) stay in registers while k runs over a packed panel of b. A step
 * of k is a word of 32 bits: one float or two bfloat16. */
#ifndef DEVICE_CPU_SETS_TILES_H
#define DEVICE_CPU_SETS_TILES_H

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
    size_t a_step, ars; /* a_step: between tiles of rows; ars: between rows of an a that is not packed */
    const float *panel;
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

/* c (TILE_ROWS, vectors; [ldc]) = from ([stride] between rows) + a panel; [from] NULL: c += a panel, which is summed
 * first */
static inline __attribute__((always_inline)) void tile(size_t vectors, bool is_packed, const float *a, size_t ars,
                                                       const float *panel, size_t k, const float *from, size_t stride,
                                                       float *c, size_t ldc, struct prefetch *source) {
    static const float zeros[PANEL_WIDTH];
    bool adds = from == NULL;
    lanes sum[TILE_ROWS][TILE_VECTORS];
    const float *row[TILE_ROWS];
    UNROLL
    for (size_t i = 0; i < TILE_ROWS; i++) {
        row[i] = a + i * ars;
        UNROLL
        for (size_t v = 0; v < vectors; v++)
            sum[i][v] = *(const lanes *)((adds ? zeros : from + i * stride) + LANES * v);
    }
    for (size_t p = 0, end; p < k; p = end) {
        float *next = c + (TILE_ROWS + p / PREFETCH_STEPS * PREFETCH_ROWS % TILE_ROWS) * ldc;
        for (size_t r = 0; r < PREFETCH_ROWS; r++, next += ldc)
            for (size_t v = 0; v <= vectors; v += LINE / LANES) __builtin_prefetch(next + v * LANES, 1);
        prefetch(source);
        end = k - p < PREFETCH_STEPS ? k : p + PREFETCH_STEPS;
        for (; p < end; p++) {
            lanes b[TILE_VECTORS];
            UNROLL
            for (size_t v = 0; v < vectors; v++) b[v] = *(const lanes *)(panel + (p * vectors + v) * LANES);
            UNROLL
            for (size_t i = 0; i < TILE_ROWS; i++) {
                float x = is_packed ? a[p * TILE_ROWS + i] : row[i][p];
                UNROLL
                for (size_t v = 0; v < vectors; v++) sum[i][v] = MULTIPLY_ADD(sum[i][v], b[v], x);
            }
        }
    }
    if (adds) {
        UNROLL
        for (size_t i = 0; i < TILE_ROWS; i++) {
            UNROLL
            for (size_t v = 0; v < vectors; v++) sum[i][v] += *(const lanes *)(c + i * ldc + LANES * v);
        }
    }
    UNROLL
    for (size_t i = 0; i < TILE_ROWS; i++) {
        UNROLL
        for (size_t v = 0; v < vectors; v++) *(lanes *)(c + i * ldc + LANES * v) = sum[i][v];
    }
}

typedef void tile_function(const float *a, size_t ars, const float *panel, size_t k, const float *from, size_t stride,
                           float *c, size_t ldc, struct prefetch *source);

/* Separate functions, so that each has all registers. */
#define TILE(name, vectors, is_packed)                                                                                 \
    static __attribute__((noinline)) void name(const float *a, size_t ars, const float *panel, size_t k,               \
                                               const float *from, size_t stride, float *c, size_t ldc,                 \
                                               struct prefetch *source) {                                              \
        tile(vectors, is_packed, a, ars, panel, k, from, stride, c, ldc, source);                                      \
    }
TILE(tile_1, 1, false)
TILE(tile_2, 2, false)
TILE(tile_3, 3, false)
TILE(packed_tile_1, 1, true)
TILE(packed_tile_2, 2, true)
TILE(packed_tile_3, 3, true)

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
    run(a, ars, block->panel, block->depth, adds ? NULL : edge, PANEL_WIDTH, edge, PANEL_WIDTH, &block->source);
    for (size_t i = 0; i < rows; i++) memcpy(c + i * block->ldc, edge + i * PANEL_WIDTH, columns * sizeof *c);
}

static void panel_product(struct block *block, bool is_packed) {
    static tile_function *const functions[2][TILE_VECTORS] = {{tile_1, tile_2, tile_3},
                                                              {packed_tile_1, packed_tile_2, packed_tile_3}};
    static const float zeros[PANEL_WIDTH];
    size_t vectors = (block->columns + LANES - 1) / LANES, stride = block->start == PRODUCT_ADD ? block->ldc : 0;
    if (vectors < 1 || vectors > TILE_VECTORS) return; /* a panel has columns, and at most PANEL_WIDTH */
    tile_function *run = functions[is_packed][vectors - 1];
    const float *a = block->a;
    for (size_t i = 0; i < block->rows; i += TILE_ROWS, a += block->a_step) {
        size_t rows = block->rows - i < TILE_ROWS ? block->rows - i : TILE_ROWS;
        float *c = block->c + i * block->ldc;
        const float *from = block->start == PRODUCT_ROW ? block->row : zeros;
        if (block->start == PRODUCT_ADD) from = block->is_long ? NULL : c;
        if (rows == TILE_ROWS && block->columns == vectors * LANES)
            run(a, block->ars, block->panel, block->depth, from, stride, c, block->ldc, &block->source);
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

#endif
