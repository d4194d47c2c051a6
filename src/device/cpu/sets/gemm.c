/* Matrix product (tiles.h). b is packed into panels as wide as a tile and a, if its rows are not contiguous, into
 * strips as high as a tile, so that every operand, also a transposed one, is read in order. What is packed is used for
 * as many rows as possible, because packing a transposed b for 256 rows takes an eighth of their time. Compiled once
 * per instruction set; as in direct.c and winograd.c, the compiler may fuse a product and a sum. Each c(i, j) is summed
 * over k in order for every tile, so results do not depend on m, n or the position in the matrix. If k is more than
 * LONG_SUM, each block of k has a sum of its own, which is added to c. */
#include <string.h>

#include "device/cpu/sets/set.h"
#include "device/cpu/sets/tiles.h"

/* Of a product of many rows: its columns of b, whole panels for vectors of any width, and the rows of a beside them
 * fill most of a second-level cache of 512 KiB, or half of one of 1 MiB, which processors with AVX-512 have. */
#define GROUP_ROWS (LANES == 16 ? 48 : 64)
#define GROUP_COLUMNS (LANES == 16 ? 288 : 144)
#define GROUP_STRIDE (MAX_K + LANES) /* between copied rows, as STRIP_STRIDE */
#define COLUMNS_AT_ONCE (LANES == 16 ? 8 : LINE / TILE_ROWS)

/* panel (k, width): columns of b, zeros beyond n */
static void pack_panel(float *panel, size_t width, const float *b, size_t brs, size_t bcs, size_t k, size_t n) {
    if (brs == 1 && bcs != 1) {
        size_t whole_k = k / LANES * LANES, whole_n = n / LANES * LANES;
        for (size_t j = 0; j < whole_n; j += LANES)
            for (size_t i = 0; i < whole_k; i += LANES) {
                lanes square[LANES];
                for (size_t l = 0; l < LANES; l++) square[l] = *(const lanes *)(b + (j + l) * bcs + i);
                transpose(square);
                for (size_t l = 0; l < LANES; l++) *(lanes *)(panel + (i + l) * width + j) = square[l];
            }
        for (size_t i = 0; i < k; i++)
            for (size_t j = i < whole_k ? whole_n : 0; j < width; j++)
                panel[i * width + j] = j < n ? b[i + j * bcs] : 0;
        return;
    }
    for (size_t i = 0; i < k; i++) {
        float *row = panel + i * width;
        size_t whole = bcs == 1 ? n / LANES * LANES : 0;
        for (size_t j = 0; j < whole; j += LANES) *(lanes *)(row + j) = *(const lanes *)(b + i * brs + j);
        for (size_t j = whole; j < n; j++) row[j] = b[i * brs + j * bcs];
        for (size_t j = n; j < width; j++) row[j] = 0;
    }
}

/* strip: for each tile of rows (k, TILE_ROWS); rows past the end repeat the last one. Only so many columns of a at a
 * time as fill a line of the cache for each tile (AVX-512: four lines): the lines of a column, which is contiguous, are
 * read once. */
static void pack_columns(float *strip, const float *a, size_t acs, size_t k, size_t m) {
    for (size_t first = 0; first < k; first += COLUMNS_AT_ONCE) {
        size_t last = k - first < COLUMNS_AT_ONCE ? k : first + COLUMNS_AT_ONCE;
        for (size_t i = 0; i < m; i += TILE_ROWS) {
            size_t rows = m - i < TILE_ROWS ? m - i : TILE_ROWS;
            float *to = strip + i * k + first * TILE_ROWS;
            for (size_t p = first; p < last; p++, to += TILE_ROWS) {
                const float *from = a + i + p * acs;
                if (rows == TILE_ROWS)
                    memcpy(to, from, TILE_ROWS * sizeof *to);
                else
                    for (size_t r = 0; r < TILE_ROWS; r++) to[r] = from[r < rows ? r : rows - 1];
            }
        }
    }
}

static size_t whole_vectors(size_t columns) { return (columns + LANES - 1) / LANES * LANES; }

/* Depth of the block of k at [first] when [blocks] remain. */
static size_t depth_of(const struct cpu_product *p, size_t first, size_t blocks) { return (p->k - first) / blocks; }

/* Blocks of k, of at most [max] steps; of a long sum the same for all products. */
static size_t blocks_of(const struct cpu_product *p, size_t max) {
    size_t steps = is_long(p) ? LONG_PRODUCT_RUN : max;
    return (p->k + steps - 1) / steps;
}

/* packed (n columns in whole vectors, depth): all panels of the block of b at row [first] */
static void pack_block(const struct cpu_product *p, size_t first, size_t depth, float *packed) {
    for (size_t j = 0, columns; j < p->n; j += columns, packed += whole_vectors(columns) * depth) {
        columns = panel_columns(p->n - j);
        pack_panel(packed, whole_vectors(columns), p->b + first * p->brs + j * p->bcs, p->brs, p->bcs, depth, columns);
    }
}

void IN_SET(pack)(const struct cpu_product *p, float *packed) {
    size_t blocks = blocks_of(p, PANEL_K);
    for (size_t first = 0, depth; blocks > 0; blocks--, first += depth) {
        depth = depth_of(p, first, blocks);
        pack_block(p, first, depth, packed + first * whole_vectors(p->n));
    }
}

/* Prefetches the next packed panel of [count] floats. */
static void plan_prefetch_packed(struct block *block, const float *panel, size_t count) {
    size_t intervals = intervals_of(block), lines = count / LINE;
    block->source = (struct prefetch){panel, 0, count > 0, lines, 0, intervals ? 1 + lines / intervals : 1};
}

/* Prefetches the [rows] rows of a at [from] while [panels] panels are multiplied. */
static void plan_prefetch_rows(const struct cpu_product *p, struct block *block, const float *from, size_t rows,
                               size_t panels) {
    size_t intervals = intervals_of(block) * panels, lines = block->depth / LINE + 1;
    block->source = (struct prefetch){from, p->ars, rows, lines, 0, intervals ? 1 + rows * lines / intervals : 1};
}

/* One block of k, for contiguous rows of a: all panels of b, one after the other. [packed]: those of this block, packed
 * before; NULL: they are packed into [panel]. */
static void rows_product(const struct cpu_product *p, struct block *block, const float *b, const float *packed,
                         size_t i, bool is_packed, float *panel) {
    bool is_large = p->m * p->n * p->k >= LARGE;
    for (size_t j = 0, columns; j < p->n; j += columns) {
        columns = panel_columns(p->n - j);
        size_t width = whole_vectors(columns), next = panel_columns(p->n - j - columns);
        const float *at = packed ? packed + j * block->depth : panel;
        if (!packed) pack_panel(panel, width, b + j * p->bcs, p->brs, p->bcs, block->depth, columns);
        if (is_large && p->packed)
            plan_prefetch_packed(block, at + width * block->depth, whole_vectors(next) * block->depth);
        else if (is_large && !packed)
            plan_prefetch(p, block, b + (j + columns) * p->bcs, block->depth, next);
        block->columns = columns;
        block->panel = at;
        block->row = p->start == PRODUCT_ROW ? p->row + j : NULL;
        block->c = p->c + i * p->ldc + j;
        panel_product(block, is_packed);
    }
}

/* How rows of a are passed to the tiles. */
enum order {
    IN_PLACE,
    COPIED,    /* because they would map to few sets of the cache */
    BY_COLUMNS /* a is transposed */
};

static enum order order_of(const struct cpu_product *p) {
    if (p->acs != 1) return BY_COLUMNS;
    return p->ars % 1024 == 0 && p->n > 2 * PANEL_WIDTH ? COPIED : IN_PLACE;
}

/* The rows of a block at [from], copied to [strip], [stride] apart, if they must be contiguous. */
static void order_rows(const struct cpu_product *p, struct block *block, enum order order, const float *from,
                       float *strip, size_t stride) {
    block->a = order == IN_PLACE ? from : strip;
    block->ars = order == COPIED ? stride : p->ars;
    block->a_step = TILE_ROWS * (order == BY_COLUMNS ? block->depth : block->ars);
    if (order == BY_COLUMNS) pack_columns(strip, from, p->acs, block->depth, block->rows);
    for (size_t r = 0; order == COPIED && r < block->rows; r++)
        memcpy(strip + r * stride, from + r * p->ars, block->depth * sizeof *strip);
}

/* What the tiles of [depth] steps of k from [first] have in common. */
static struct block block_of(const struct cpu_product *p, size_t first, size_t depth) {
    return (struct block){.depth = depth,
                          .ldc = p->ldc,
                          .start = first ? PRODUCT_ADD : p->start,
                          .is_long = is_long(p) || p->is_run,
                          .has_relu = p->has_relu && first + depth == p->k};
}

/* As many rows as stay in the second-level cache, with panels of b that are packed for these rows, or were packed
 * before; then the next rows. */
static __attribute__((noinline)) void few_rows_product(const struct cpu_product *p, enum order order) {
    _Alignas(64) float panel[PANEL_K * PANEL_WIDTH], strip[STRIP_STRIDE * STRIP_ROWS];
    size_t blocks = blocks_of(p, PANEL_K);
    for (size_t first = 0, depth; blocks > 0; blocks--, first += depth) {
        depth = depth_of(p, first, blocks);
        const float *packed = p->packed ? p->packed + first * whole_vectors(p->n) : NULL;
        size_t max_rows = order == IN_PLACE && depth ? STRIP_ROWS * (PANEL_K / depth) : STRIP_ROWS;
        for (size_t i = 0; i < p->m; i += max_rows) {
            struct block block = block_of(p, first, depth);
            block.rows = p->m - i < max_rows ? p->m - i : max_rows;
            order_rows(p, &block, order, p->a + i * p->ars + first * p->acs, strip, STRIP_STRIDE);
            rows_product(p, &block, p->b + first * p->brs, packed, i, order == BY_COLUMNS, panel);
        }
    }
}

/* Columns of b are packed once for all rows, as many together as stay in the second-level cache. a is not transposed.
 */
static __attribute__((noinline)) void many_rows_product(const struct cpu_product *p, enum order order) {
    _Alignas(64) float group[GROUP_COLUMNS * MAX_K], strip[GROUP_STRIDE * GROUP_ROWS];
    size_t blocks = blocks_of(p, MAX_K);
    for (size_t first = 0, depth; blocks > 0; blocks--, first += depth) {
        depth = depth_of(p, first, blocks);
        struct cpu_product part = *p;
        for (size_t j = 0; j < p->n; j += part.n, part.b += part.n * p->bcs, part.c += part.n) {
            part.n = p->n - j < GROUP_COLUMNS ? p->n - j : GROUP_COLUMNS;
            part.row = p->row ? p->row + j : NULL;
            pack_block(&part, first, depth, group);
            for (size_t i = 0; i < p->m; i += GROUP_ROWS) {
                struct block block = block_of(p, first, depth);
                block.rows = p->m - i < GROUP_ROWS ? p->m - i : GROUP_ROWS;
                size_t left = p->m - i - block.rows, panels = (part.n + PANEL_WIDTH - 1) / PANEL_WIDTH;
                plan_prefetch_rows(p, &block, p->a + (i + block.rows) * p->ars + first,
                                   left < GROUP_ROWS ? left : GROUP_ROWS, panels);
                order_rows(p, &block, order, p->a + i * p->ars + first, strip, GROUP_STRIDE);
                rows_product(&part, &block, NULL, group, i, false, NULL);
            }
        }
    }
}

static void blocked_product(const struct cpu_product *p) {
    enum order order = order_of(p);
    size_t few = order == IN_PLACE && p->k > 0 && p->k < PANEL_K ? STRIP_ROWS * (PANEL_K / p->k) : STRIP_ROWS;
    if (order == BY_COLUMNS || p->packed || p->m <= few)
        few_rows_product(p, order);
    else
        many_rows_product(p, order);
}

void IN_SET(product)(const struct cpu_product *p) {
    if (p->packed || !IN_SET(direct_product)(p)) blocked_product(p);
}

void IN_SET(gemm)(size_t m, size_t n, size_t k, const float *a, size_t ars, size_t acs, const float *b, size_t brs,
                  size_t bcs, float *c, size_t ldc) {
    struct cpu_product p = {
        .m = m, .n = n, .k = k, .a = a, .ars = ars, .acs = acs, .b = b, .brs = brs, .bcs = bcs, .c = c, .ldc = ldc};
    IN_SET(product)(&p);
}
