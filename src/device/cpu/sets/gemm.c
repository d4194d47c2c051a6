/* Matrix product (tiles.h). b is packed into panels as wide as a tile and a, if its rows are not contiguous, into
 * strips as high as a tile, so that every operand, also a transposed one, is read in order. What is packed is used for
 * as many rows as possible, because packing a transposed b for 256 rows takes an eighth of their time; for a few rows
 * it would take most, so they read a transposed b in place. Up to 64 rows are transposed instead of a transposed b, or
 * read b in place if it is not transposed. Compiled once per instruction set; as in direct.c and
 * winograd.c, the compiler may fuse a product and a sum. Each c(i, j) is summed over k in order for every tile, so
 * results do not depend on m, n or the position in the matrix. If k is more than LONG_SUM, each block of k has a sum of
 * its own, which is added to c. */
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
                load_transposed(square, b + j * bcs + i, bcs, LANES);
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
 * read once. The columns are too short for processors to foresee the next ones, so these are fetched in advance. */
static void pack_columns(float *strip, const float *a, size_t acs, size_t k, size_t m) {
    for (size_t first = 0; first < k; first += COLUMNS_AT_ONCE) {
        size_t last = k - first < COLUMNS_AT_ONCE ? k : first + COLUMNS_AT_ONCE;
        for (size_t i = 0; i < m; i += TILE_ROWS) {
            size_t rows = m - i < TILE_ROWS ? m - i : TILE_ROWS;
            float *to = strip + i * k + first * TILE_ROWS;
            for (size_t p = first; p < last; p++, to += TILE_ROWS) {
                const float *from = a + i + p * acs;
                if (i % LINE == 0) __builtin_prefetch(from + 2 * COLUMNS_AT_ONCE * acs);
                if (rows == TILE_ROWS)
                    memcpy(to, from, TILE_ROWS * sizeof *to);
                else
                    for (size_t r = 0; r < TILE_ROWS; r++) to[r] = from[r < rows ? r : rows - 1];
            }
        }
    }
}

static size_t whole_vectors(size_t columns) { return (columns + LANES - 1) / LANES * LANES; }

/* Depth of the block of k at [first] when [blocks] remain: lines of the cache, where that does not change the sums. */
static size_t depth_of(const struct cpu_product *p, size_t first, size_t blocks) {
    size_t depth = (p->k - first) / blocks;
    return blocks == 1 || is_long(p) ? depth : (depth + LINE - 1) / LINE * LINE;
}

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
        block->step = width;
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
    block->ars = order == BY_COLUMNS ? block->depth : order == COPIED ? stride : p->ars;
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

/* ---- few rows, of which b is read once, in place ---- */

#define UNROLLED _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))
#define MAX_FEW 8
#define FEW_ROWS (LANES > 4 ? MAX_FEW : 2)
#define FAR_B ((size_t)1 << 18) /* numbers of a b that is not in the second-level cache */
#define FAR_K ((size_t)1 << 13) /* up to which 2 * LANES columns stay there */

/* sums (rows, vectors) += a (rows, LANES) times columns of b, from the row [skipped] on. [rows], [vectors] and
 * [is_part] (of the one vector only some [columns] exist) are constants wherever this is called, so that the sums stay
 * in registers. */
INLINE void add_squares(size_t rows, size_t vectors, bool is_part, lanes sums[][TILE_VECTORS], const float *const *a,
                        const float *b, size_t bcs, size_t columns, size_t skipped) {
    UNROLLED for (size_t v = 0; v < vectors; v++) {
        lanes square[LANES];
        load_transposed(square, b + v * LANES * bcs, bcs, is_part ? columns : LANES);
        UNROLLED for (size_t k = 0; k < LANES; k++) {
            if (k < skipped) continue;
            UNROLLED for (size_t i = 0; i < rows; i++) sums[i][v] = plus_times(sums[i][v], square[k], a[i][k]);
        }
    }
}

/* The same for [depth] steps of k. The [next] columns are read in the order in which they are in memory, unless NULL:
 * the squares read a line of each column in turn, which processors do not foresee. */
INLINE void add_columns(size_t rows, size_t vectors, bool is_part, lanes sums[][TILE_VECTORS], const float *const *from,
                        const float *b, size_t bcs, size_t columns, size_t depth, const float *next) {
    const float *a[MAX_FEW];
    size_t k = 0, missing;
    UNROLLED for (size_t i = 0; i < rows; i++) a[i] = from[i];
    for (; k + LANES <= depth; k += LANES, b += LANES) {
        if (next) {
            UNROLLED for (size_t l = 0; l < vectors * LANES * LANES; l += LINE, next += LINE) __builtin_prefetch(next);
        }
        add_squares(rows, vectors, is_part, sums, a, b, bcs, columns, 0);
        UNROLLED for (size_t i = 0; i < rows; i++) a[i] += LANES;
    }
    if (k == depth) return;
    missing = k + LANES - depth;
    UNROLLED for (size_t i = 0; i < rows; i++) a[i] -= missing;
    add_squares(rows, vectors, is_part, sums, a, b - missing, bcs, columns, missing);
}

/* The columns of c at [j]: [vectors] of them, or with [is_part] the last ones. Where p has less than [rows], the last
 * one is repeated. */
INLINE void few_rows_columns(size_t rows, size_t vectors, bool is_part, bool is_far, const struct cpu_product *p,
                             size_t j) {
    lanes sums[MAX_FEW][TILE_VECTORS], totals[MAX_FEW][TILE_VECTORS];
    const float *a[MAX_FEW], *b = p->b + j * p->bcs, *next = is_far ? b + vectors * LANES * p->bcs : NULL;
    size_t columns = is_part ? p->n - j : vectors * LANES, blocks = is_long(p) ? blocks_of(p, 0) : 1;
    UNROLLED for (size_t i = 0; i < rows; i++) {
        size_t r = i < p->m ? i : p->m - 1;
        const float *start = p->start == PRODUCT_ROW ? p->row + j : p->c + r * p->ldc + j;
        a[i] = p->a + r * p->ars;
        UNROLLED for (size_t v = 0; v < vectors; v++) {
            totals[i][v] = (lanes){0};
            if (p->start == PRODUCT_ZERO) continue;
            totals[i][v] = is_part ? partial_load(start, columns) : *(const lanes *)(start + v * LANES);
        }
    }
    for (size_t first = 0, depth; blocks > 0; blocks--, first += depth) {
        bool is_run = is_long(p) && (first > 0 || p->start == PRODUCT_ADD);
        depth = depth_of(p, first, blocks);
        UNROLLED for (size_t i = 0; i < rows; i++) {
            UNROLLED for (size_t v = 0; v < vectors; v++) sums[i][v] = is_run ? (lanes){0} : totals[i][v];
        }
        add_columns(rows, vectors, is_part, sums, a, b, p->bcs, columns, depth, next);
        b += depth;
        if (next) next += depth * vectors * LANES;
        UNROLLED for (size_t i = 0; i < rows; i++) {
            a[i] += depth;
            UNROLLED for (size_t v = 0; v < vectors; v++) totals[i][v] =
                is_run ? sums[i][v] + totals[i][v] : sums[i][v];
        }
    }
    for (size_t i = 0; i < rows && i < p->m; i++) {
        float *c = p->c + i * p->ldc + j;
        UNROLLED for (size_t v = 0; v < vectors; v++) {
            if (is_part)
                partial_store(c, totals[i][v], columns);
            else
                *(lanes *)(c + v * LANES) = totals[i][v];
        }
    }
    if (p->has_relu) relu_rows(p->c + j, p->ldc, p->m, columns);
}

#define FEW(name, rows, vectors, is_far)                                                                               \
    static __attribute__((noinline)) void name(const struct cpu_product *p) {                                          \
        size_t j = 0;                                                                                                  \
        for (; j + (vectors)*LANES <= p->n; j += (vectors)*LANES)                                                      \
            few_rows_columns(rows, vectors, false, is_far, p, j);                                                      \
        if (j + LANES <= p->n) few_rows_columns(rows, 1, false, false, p, j), j += LANES;                              \
        if (j < p->n) few_rows_columns(rows, 1, true, false, p, j);                                                    \
    }
#define FAR_VECTORS (LANES == 16 ? 1 : 2)
FEW(near_1, 1, 2, false)
FEW(near_2, 2, 2, false)
FEW(near_4, 4, 2, false)
FEW(near_8, 8, 1, false)
FEW(far_1, 1, FAR_VECTORS, true)
FEW(far_2, 2, FAR_VECTORS, true)
FEW(far_4, 4, FAR_VECTORS, true)
FEW(far_8, 8, 1, true)

static bool has_few_rows(const struct cpu_product *p) {
    return p->m > 0 && p->m <= FEW_ROWS && p->brs == 1 && p->bcs != 1 && p->acs == 1 && p->k >= LANES && !p->is_run &&
           !p->packed;
}

static void in_place_product(const struct cpu_product *p) {
    static void (*const functions[2][4])(const struct cpu_product *) = {{near_1, near_2, near_4, near_8},
                                                                        {far_1, far_2, far_4, far_8}};
    bool is_far = p->n * p->k >= FAR_B && p->k <= FAR_K;
    functions[is_far][(p->m > 1) + (p->m > 2) + (p->m > 4)](p);
}

static void blocked_product(const struct cpu_product *p) {
    enum order order = order_of(p);
    size_t few = order == IN_PLACE && p->k > 0 && p->k < PANEL_K ? STRIP_ROWS * (PANEL_K / p->k) : STRIP_ROWS;
    if (order == BY_COLUMNS || p->packed || p->m <= few)
        few_rows_product(p, order);
    else
        many_rows_product(p, order);
}

#define NEAR_PANEL 6144 /* floats of a panel that stays in a first-level cache of 32 KiB beside rows of a */
#define SAME_SETS 1024  /* floats between rows of b that map to the same few sets of the cache */
#define SOME_ROWS 64    /* for which the depth of panels or reading b in place pays off */

/* One panel of b after the other, in blocks of k so short that a transposed panel stays in the first-level cache; else
 * b is read in place. a is not transposed. */
static __attribute__((noinline)) void some_rows_product(const struct cpu_product *p) {
    _Alignas(64) float panel[PANEL_K * PANEL_WIDTH];
    bool is_large = p->m * p->n * p->k >= LARGE;
    bool is_deep = p->bcs == 1 || p->is_run || NEAR_PANEL / PANEL_WIDTH > PANEL_K;
    size_t max = is_deep ? PANEL_K : NEAR_PANEL / PANEL_WIDTH;
    for (size_t j = 0, columns; j < p->n; j += columns) {
        columns = panel_columns(p->n - j);
        size_t width = whole_vectors(columns), next = panel_columns(p->n - j - columns), blocks = blocks_of(p, max);
        bool is_in_place = p->bcs == 1 && width == columns;
        for (size_t first = 0, depth; blocks > 0; blocks--, first += depth) {
            depth = depth_of(p, first, blocks);
            struct block block = block_of(p, first, depth);
            const float *b = p->b + first * p->brs + j * p->bcs;
            block.a = p->a + first;
            block.ars = p->ars;
            block.rows = p->m;
            block.columns = columns;
            block.row = p->row ? p->row + j : NULL;
            block.c = p->c + j;
            block.panel = is_in_place ? b : panel;
            block.step = is_in_place ? p->brs : width;
            if (!is_in_place) pack_panel(panel, width, b, p->brs, p->bcs, depth, columns);
            if (is_large && blocks > 1)
                plan_prefetch(p, &block, b + depth * p->brs, depth_of(p, first + depth, blocks - 1), columns);
            else if (is_large)
                plan_prefetch(p, &block, p->b + (j + columns) * p->bcs, depth_of(p, 0, blocks_of(p, max)), next);
            panel_product(&block, false);
        }
    }
}

/* ---- some rows of a, which are transposed instead of b ---- */

#define TURNED_FLOATS ((size_t)1 << 16) /* of the transposed a */
#define TURNED_COLUMNS 64               /* of c at a time */

/* turned (columns, width) = c (p->m, columns) at column [j] before the product */
static void turn_start(const struct cpu_product *p, size_t j, size_t columns, float *turned, size_t width) {
    for (size_t l = 0; l < columns; l++, turned += width) {
        float start = p->start == PRODUCT_ROW ? p->row[j + l] : 0;
        for (size_t i = 0; i < width; i += LANES) *(lanes *)(turned + i) = start - (lanes){0};
        for (size_t i = 0; p->start == PRODUCT_ADD && i < p->m; i++) turned[i] = p->c[i * p->ldc + j + l];
    }
}

/* c (p->m, columns) at column [j] = turned (columns, width) */
static void turn_back(const struct cpu_product *p, size_t j, size_t columns, const float *turned, size_t width) {
    float *c = p->c + j;
    for (size_t l = 0; l < columns; l += LANES)
        for (size_t i = 0; i < p->m; i += LANES) {
            lanes square[LANES];
            size_t count = columns - l < LANES ? columns - l : LANES;
            load_transposed(square, turned + l * width + i, width, count);
            for (size_t r = 0; r < LANES && i + r < p->m; r++) {
                if (count == LANES)
                    *(lanes *)(c + (i + r) * p->ldc + l) = square[r];
                else
                    partial_store(c + (i + r) * p->ldc + l, square[r], count);
            }
        }
    if (p->has_relu) relu_rows(c, p->ldc, p->m, columns);
}

/* Of the product whose result is transposed, b is the first factor, which is read in place. */
static __attribute__((noinline)) void turned_product(const struct cpu_product *p) {
    _Alignas(64) float packed[TURNED_FLOATS], turned[TURNED_COLUMNS * (SOME_ROWS + LANES)];
    size_t width = whole_vectors(p->m);
    struct cpu_product t = {
        .m = p->n, .n = p->m, .k = p->k, .a = p->b, .ars = p->bcs, .acs = 1, .b = p->a, .brs = 1, .bcs = p->ars};
    IN_SET(pack)(&t, packed);
    for (size_t j = 0, columns; j < p->n; j += columns, t.a += columns * t.ars) {
        columns = p->n - j < TURNED_COLUMNS ? p->n - j : TURNED_COLUMNS;
        size_t left = p->n - j - columns, next = left < TURNED_COLUMNS ? left : TURNED_COLUMNS;
        turn_start(p, j, columns, turned, width);
        for (size_t first = 0, depth, blocks = blocks_of(&t, PANEL_K); blocks > 0; blocks--, first += depth) {
            depth = depth_of(&t, first, blocks);
            struct block block = block_of(&t, first, depth);
            block.a = t.a + first;
            block.ars = t.ars;
            block.ldc = width;
            block.rows = columns;
            size_t panels = (width + PANEL_WIDTH - 1) / PANEL_WIDTH;
            if (blocks > 1)
                plan_prefetch_rows(&t, &block, t.a + first + depth, columns, panels);
            else
                plan_prefetch_rows(&t, &block, t.a + columns * t.ars, next, panels);
            for (size_t i = 0; i < width; i += block.columns) {
                block.columns = block.step = whole_vectors(panel_columns(p->m - i));
                block.panel = packed + first * width + i * depth;
                block.c = turned + i;
                panel_product(&block, false);
            }
        }
        turn_back(p, j, columns, turned, width);
    }
}

static bool can_turn(const struct cpu_product *p) {
    size_t width = whole_vectors(p->m);
    return p->brs == 1 && p->bcs != 1 && p->k <= LONG_SUM && !p->is_run && width * p->k <= TURNED_FLOATS &&
           8 * p->m >= 7 * width && (KERNELS_REGISTERS == 32 || width % PANEL_WIDTH == 0);
}

/* Rows of b in place must not map to few sets of the cache, unless they are read only twice. */
static bool has_some_rows(const struct cpu_product *p) {
    bool are_rows_apart = p->bcs != 1 || p->brs % SAME_SETS != 0 || p->m <= 2 * TILE_ROWS;
    return p->m <= SOME_ROWS && p->acs == 1 && !p->packed && are_rows_apart && (p->bcs == 1 || p->brs == 1);
}

void IN_SET(product)(const struct cpu_product *p) {
    if (has_few_rows(p))
        in_place_product(p);
    else if (!p->packed && IN_SET(direct_product)(p))
        return;
    else if (has_some_rows(p) && can_turn(p))
        turned_product(p);
    else if (has_some_rows(p))
        some_rows_product(p);
    else
        blocked_product(p);
}

void IN_SET(gemm)(size_t m, size_t n, size_t k, const float *a, size_t ars, size_t acs, const float *b, size_t brs,
                  size_t bcs, float *c, size_t ldc) {
    struct cpu_product p = {
        .m = m, .n = n, .k = k, .a = a, .ars = ars, .acs = acs, .b = b, .brs = brs, .bcs = bcs, .c = c, .ldc = ldc};
    IN_SET(product)(&p);
}
