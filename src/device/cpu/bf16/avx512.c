/* Matrix product in bfloat16 with AVX-512 BF16 (../sets/tiles.h): two steps of k are a word. Each c(i, j) is summed
 * over pairs of k in order. */
#include <assert.h>
#include <immintrin.h>
#include <string.h>

#include "device/cpu/bf16/round.h"
#include "device/cpu/cpu.h"
#include "device/cpu/sets/set.h"

#define MULTIPLY_ADD(sum, b, x) ((lanes)_mm512_dpbf16_ps((__m512)(sum), (__m512bh)(b), (__m512bh)_mm512_set1_ps(x)))
#include "device/cpu/sets/tiles.h"

#define BLOCK_K (2 * PANEL_K) /* steps of k of a panel */

/* to ((k + 1) / 2 words, and up to 15 zeros) = one row of k floats */
static void pack_row(float *to, const float *from, size_t k) {
    for (size_t i = 0; i < k; i += 2 * LANES, to += LANES) *(lanes *)to = neighbours(from + i, k - i);
}

/* strip: for each tile of rows ((k + 1) / 2, TILE_ROWS) from columns of a; zeros past the end */
static void pack_columns(float *strip, const float *a, size_t acs, size_t k, size_t m) {
    size_t pairs = (k + 1) / 2;
    for (size_t i = 0; i < m; i += 2 * TILE_ROWS, strip += 2 * pairs * TILE_ROWS)
        for (size_t p = 0; p < pairs; p++) {
            const float *from = a + i + 2 * p * acs;
            __m512 odd = 2 * p + 1 < k ? load(from + acs, m - i) : _mm512_setzero_ps();
            lanes words = pairs_of(load(from, m - i), odd);
            memcpy(strip + p * TILE_ROWS, &words, TILE_ROWS * sizeof *strip);
            memcpy(strip + (pairs + p) * TILE_ROWS, (const float *)&words + TILE_ROWS, TILE_ROWS * sizeof *strip);
        }
}

/* panel ((k + 1) / 2, LANES * vectors): columns of b, zeros beyond n; rows of b are contiguous */
static void pack_panel(float *panel, size_t vectors, const float *b, size_t brs, size_t k, size_t n) {
    for (size_t p = 0; p < (k + 1) / 2; p++)
        for (size_t v = 0; v < vectors; v++) {
            const float *from = b + 2 * p * brs + v * LANES;
            __m512 odd = 2 * p + 1 < k ? load(from + brs, n - v * LANES) : _mm512_setzero_ps();
            *(lanes *)(panel + (p * vectors + v) * LANES) = pairs_of(load(from, n - v * LANES), odd);
        }
}

/* The same where columns of b are contiguous. */
static void pack_transposed(float *panel, size_t vectors, const float *b, size_t bcs, size_t k, size_t n) {
    size_t pairs = (k + 1) / 2;
    for (size_t v = 0; v < vectors; v++)
        for (size_t p = 0; p < pairs; p += LANES) {
            lanes square[LANES] = {0};
            for (size_t l = 0; l < LANES && v * LANES + l < n; l++)
                square[l] = neighbours(b + (v * LANES + l) * bcs + 2 * p, k - 2 * p);
            transpose(square);
            for (size_t l = 0; l < LANES && p + l < pairs; l++)
                *(lanes *)(panel + ((p + l) * vectors + v) * LANES) = square[l];
        }
}

/* Number of rows of a that are packed together. */
#define GROUP (2 * TILE_ROWS)

/* The rows of a of one block. */
struct rows {
    const float *from;
    size_t ars, acs, depth;
    float *strip; /* packed rows */
};

static void pack_group(const struct rows *a, size_t first, size_t count) {
    size_t pairs = (a->depth + 1) / 2;
    const float *from = a->from + first * a->ars;
    if (a->acs != 1)
        pack_columns(a->strip + first * pairs, from, a->acs, a->depth, count);
    else
        for (size_t i = 0; i < count; i++) pack_row(a->strip + (first + i) * STRIP_STRIDE, from + i * a->ars, a->depth);
}

/* The [count] rows from [first] on, while [tiles] tiles run. */
static struct prefetch prefetch_group(const struct rows *a, size_t first, size_t count, size_t tiles) {
    bool is_transposed = a->acs != 1;
    size_t lines = (is_transposed ? count : a->depth) / LINE + 1, rows = is_transposed && count ? a->depth : count;
    size_t intervals = tiles * ((a->depth / 2 + PREFETCH_STEPS - 1) / PREFETCH_STEPS);
    return (struct prefetch){a->from + first * a->ars,          is_transposed ? a->acs : a->ars, rows, lines, 0,
                             1 + rows * lines / (intervals + 1)};
}

/* The first panel packs the rows and prefetches the next ones. */
static void first_panel(const struct block *whole, const struct rows *a, bool is_large) {
    for (size_t first = 0; first < whole->rows; first += GROUP) {
        struct block part = *whole;
        size_t left = whole->rows - first, next = left > GROUP ? left - GROUP : 0;
        part.rows = left < GROUP ? left : GROUP;
        part.a += first * whole->ars;
        part.c += first * whole->ldc;
        pack_group(a, first, part.rows);
        if (is_large) part.source = prefetch_group(a, first + GROUP, next < GROUP ? next : GROUP, GROUP / TILE_ROWS);
        panel_product(&part, a->acs != 1);
    }
}

/* One block of [depth] steps of k, for the rows of a after [i]: all panels of b, one after the other. */
static void rows_product(const struct cpu_product *p, struct block *block, const float *b, size_t i,
                         const struct rows *a, float *panel) {
    bool is_large = p->m * p->n * p->k >= LARGE;
    for (size_t j = 0, columns; j < p->n; j += columns) {
        columns = panel_columns(p->n - j);
        size_t vectors = (columns + LANES - 1) / LANES;
        if (p->bcs == 1)
            pack_panel(panel, vectors, b + j, p->brs, a->depth, columns);
        else
            pack_transposed(panel, vectors, b + j * p->bcs, p->bcs, a->depth, columns);
        block->columns = columns;
        block->panel = panel;
        block->step = vectors * LANES;
        block->row = p->start == PRODUCT_ROW ? p->row + j : NULL;
        block->c = p->c + i * p->ldc + j;
        if (j == 0) {
            first_panel(block, a, is_large);
            continue;
        }
        if (is_large) plan_prefetch(p, block, b + (j + columns) * p->bcs, a->depth, panel_columns(p->n - j - columns));
        panel_product(block, p->acs != 1);
    }
}

void IN_SET(product)(const struct cpu_product *p) {
    _Alignas(64) float panel[PANEL_K * PANEL_WIDTH], strip[STRIP_STRIDE * STRIP_ROWS];
    size_t blocks = (p->k + BLOCK_K - 1) / BLOCK_K, strips = (p->m + STRIP_ROWS - 1) / STRIP_ROWS;
    size_t strip_rows = strips ? ((p->m + strips - 1) / strips + GROUP - 1) / GROUP * GROUP : 0;
    assert((p->acs == 1 || p->ars == 1) && (p->bcs == 1 || p->brs == 1));
    for (size_t first = 0, n = 0; n < blocks; n++) {
        size_t left = p->k - first, even = (left / (blocks - n) + 1) / 2 * 2, depth = n + 1 < blocks ? even : left;
        size_t pairs = (depth + 1) / 2;
        for (size_t i = 0; i < p->m; i += strip_rows) {
            struct rows a = {p->a + i * p->ars + first * p->acs, p->ars, p->acs, depth, strip};
            struct block block = {.a = strip,
                                  .ars = p->acs == 1 ? STRIP_STRIDE : pairs,
                                  .depth = pairs,
                                  .ldc = p->ldc,
                                  .rows = p->m - i < strip_rows ? p->m - i : strip_rows,
                                  .start = first ? PRODUCT_ADD : p->start,
                                  .is_long = is_long(p),
                                  .has_relu = p->has_relu && n + 1 == blocks};
            rows_product(p, &block, p->b + first * p->brs, i, &a, panel);
        }
        first += depth;
    }
}

const struct bf16_kernels bf16_kernels_avx512 = {
    .description = "cpu (avx512, bfloat16)", .product = IN_SET(product), .attention = &IN_SET(attention)};
