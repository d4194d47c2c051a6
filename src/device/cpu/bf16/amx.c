/* Matrix product in bfloat16 with AMX: tiles of 16 x 16 sums, to each of which an instruction adds 32 steps of k. Both
 * factors are packed as tiles by all threads: columns of b for all threads, as many of which stay in the second-level
 * cache as a thread multiplies at a time, and rows of a for about the threads that multiply them; where there are few
 * rows, the other way round. Where all rows of a stay in the second-level cache, each thread has its own columns of b,
 * and packs the next ones while it multiplies: vector and tile instructions run in parallel. */
#include "device/cpu/bf16/amx.h"

#include <assert.h>
#include <string.h>

#include "device/cpu/bf16/round.h"
#include "device/cpu/parallel.h"
#include "device/cpu/sets/set.h"

#define SIZE AMX_SIZE
#define STEP AMX_STEP
#define TILE_FLOATS AMX_TILE_FLOATS
_Static_assert(PART_STRIDE == TILE_FLOATS, "the tile of a part follows that of the one before");
#define TILE_STRIDE (SIZE * sizeof(float))
#define SIDE (2 * SIZE) /* rows and columns of c that are computed together: four tiles */
/* Columns that a thread packs while it multiplies those before: many, because their rows may be far apart in memory. */
#define PANEL (2 * SIDE)
#define KIB_FLOATS ((size_t)256)

/* What is packed: at least SIDE x max_depth numbers, half a word for each part. */
#define ROWS_FLOATS (768 * KIB_FLOATS)       /* of a thread: with CACHED_FLOATS most of a second-level cache of 2 MiB */
#define COLUMNS_FLOATS (4096 * KIB_FLOATS)   /* of all rows */
#define CACHED_FLOATS (512 * KIB_FLOATS)     /* columns that a thread multiplies with its rows at a time */
#define SMALL_ROWS_FLOATS (256 * KIB_FLOATS) /* of a product on one thread: on its stack */
#define SMALL_COLUMNS_FLOATS (128 * KIB_FLOATS)

#define MIN_PANELS 2 /* of a thread that packs while it multiplies */

/* Steps of k that are packed together. */
static size_t max_depth(size_t parts) { return parts == 1 ? 1024 : 512; }
#define MAX_WORDS (3 * 512 / 2) /* of all parts of them, for a row or a column */

/* Of all tiles: 16 rows of 64 bytes. */
void amx_configure(void) {
    static const struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } all = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&all);
}

/* ---- packing ---- */

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* to: a tile of the first [count] of 16 i and [depth] of 32 k, zeros for the others. The words of a tile of a are (i,
 * pair of k), of one of b (pair of k, i). */
ALWAYS_INLINE void pack_tile(float *to, const struct amx_factor *f, const float *from, size_t count, size_t depth,
                             bool is_b) {
    lanes square[SIZE];
    for (size_t l = 0; l < SIZE; l++)
        if (f->k_step == 1)
            square[l] = l < count ? neighbours(from + l * f->i_step, depth) : (lanes){0};
        else if (2 * l < depth)
            square[l] = pairs_of(load(from + 2 * l * f->k_step, count),
                                 2 * l + 1 < depth ? load(from + (2 * l + 1) * f->k_step, count) : _mm512_setzero_ps());
        else
            square[l] = (lanes){0};
    if ((f->k_step == 1) == is_b) transpose(square);
    for (size_t l = 0; l < SIZE; l++) *(lanes *)(to + l * SIZE) = square[l];
}

/* As pack_tile, a tile for each part. A pair of k are steps l and 16 + l. */
ALWAYS_INLINE void pack_tile_parts(float *to, const struct amx_factor *f, const float *from, size_t count, size_t depth,
                                   size_t parts, bool is_b) {
    lanes first[SIZE], second[SIZE];
    for (size_t l = 0; l < SIZE; l++) {
        bool by_k = f->k_step == 1;
        const float *at = from + l * (by_k ? f->i_step : f->k_step), *other = at + (by_k ? SIZE : SIZE * f->k_step);
        size_t lines = by_k ? count : depth, size = by_k ? depth : count;
        bool has_other = by_k ? l < count && depth > SIZE : l + SIZE < depth;
        first[l] = l < lines ? (lanes)load(at, size) : (lanes){0};
        second[l] = has_other ? (lanes)load(other, by_k ? depth - SIZE : count) : (lanes){0};
    }
    if ((f->k_step == 1) == is_b) {
        transpose(first);
        transpose(second);
    }
    for (size_t l = 0; l < SIZE; l++) store_parts(to + l * SIZE, (__m512)first[l], (__m512)second[l], parts);
}

/* The tile (i, k) of a block of [count] x [depth] numbers, of each part. */
ALWAYS_INLINE void pack_tiles(float *to, const struct amx_factor *f, const float *from, size_t count, size_t depth,
                              size_t i, size_t k, size_t parts, bool is_b) {
    bool is_whole = count - i >= SIZE && depth - k >= STEP;
    to += (i / SIZE * divide_up(depth, STEP) + k / STEP) * parts * TILE_FLOATS;
    from += i * f->i_step + k * f->k_step;
    count = at_most(count - i, SIZE);
    depth = at_most(depth - k, STEP);
    if (parts == 1 && is_whole)
        pack_tile(to, f, from, SIZE, STEP, is_b);
    else if (parts == 1)
        pack_tile(to, f, from, count, depth, is_b);
    else if (is_whole)
        pack_tile_parts(to, f, from, SIZE, STEP, parts, is_b);
    else
        pack_tile_parts(to, f, from, count, depth, parts, is_b);
}

/* A row of tiles of a whose steps of k are contiguous. */
ALWAYS_INLINE void pack_row(float *to, const float *from, size_t depth, size_t parts) {
    for (size_t k = 0; k < depth; k += STEP, to += parts * TILE_FLOATS) store_row(to, from + k, depth - k, parts);
}

/* As amx_factor.pack. Numbers are read in the order of their addresses. */
ALWAYS_INLINE void pack(float *to, const struct amx_factor *f, size_t first_i, size_t count, size_t first_k,
                        size_t depth, size_t parts, bool is_b) {
    const float *from = f->from + first_i * f->i_step + first_k * f->k_step;
    if (f->k_step == 1 && !is_b) {
        size_t row = divide_up(depth, STEP) * parts * TILE_FLOATS;
        for (size_t i = 0; i < count; i++)
            pack_row(to + i / SIZE * row + i % SIZE * SIZE, from + i * f->i_step, depth, parts);
    } else if (f->k_step == 1) {
        for (size_t i = 0; i < count; i += SIZE)
            for (size_t k = 0; k < depth; k += STEP) pack_tiles(to, f, from, count, depth, i, k, parts, is_b);
    } else {
        for (size_t k = 0; k < depth; k += STEP)
            for (size_t i = 0; i < count; i += SIZE) pack_tiles(to, f, from, count, depth, i, k, parts, is_b);
    }
}

#define PACK(name, parts, is_b)                                                                                        \
    static void name(float *to, const struct amx_factor *f, size_t i, size_t count, size_t k, size_t depth) {          \
        pack(to, f, i, count, k, depth, parts, is_b);                                                                  \
    }
PACK(pack_a, 1, false)
PACK(pack_b, 1, true)
PACK(pack_a_2, 2, false)
PACK(pack_b_2, 2, true)
PACK(pack_a_3, 3, false)
PACK(pack_b_3, 3, true)

struct amx_factor amx_rows(const float *from, size_t i_step, size_t k_step, size_t parts) {
    assert(i_step == 1 || k_step == 1);
    return (struct amx_factor){parts == 1 ? pack_a : parts == 2 ? pack_a_2 : pack_a_3, from, i_step, k_step, NULL};
}

struct amx_factor amx_columns(const float *from, size_t i_step, size_t k_step, size_t parts) {
    assert(i_step == 1 || k_step == 1);
    return (struct amx_factor){parts == 1 ? pack_b : parts == 2 ? pack_b_2 : pack_b_3, from, i_step, k_step, NULL};
}

/* ---- tiles ---- */

struct packing;
static void pack_next(struct packing *packing);

/* Up to SIDE x SIDE elements of c. */
struct amx_block {
    const float *a, *b; /* [steps] tiles of 16 rows or columns (of each part), then those of the next 16 */
    size_t steps, parts;
    const float *from; /* what the product is added to; NULL: 0 */
    size_t from_stride;
    float *c;
    size_t ldc, rows, columns;
    struct packing *packing; /* what is packed between its steps, or NULL */
};

/* Adds a step of k, of tiles that are loaded, or are those of the step before. */
ALWAYS_INLINE void add_step(const float *a, bool loads_a, const float *b, bool loads_b, size_t next, bool has_low,
                            bool has_right) {
    if (loads_a) _tile_loadd(4, a, TILE_STRIDE);
    if (loads_b) _tile_loadd(6, b, TILE_STRIDE);
    _tile_dpbf16ps(0, 4, 6);
    if (has_right) {
        if (loads_b) _tile_loadd(7, b + next, TILE_STRIDE);
        _tile_dpbf16ps(1, 4, 7);
    }
    if (has_low) {
        if (loads_a) _tile_loadd(5, a + next, TILE_STRIDE);
        _tile_dpbf16ps(2, 5, 6);
        if (has_right) _tile_dpbf16ps(3, 5, 7);
    }
}

/* The products of a step of k whose parts are not both small, in an order that uses loaded tiles again. */
ALWAYS_INLINE void add_products(const float *a, const float *b, size_t parts, size_t next, bool has_low,
                                bool has_right) {
    const float *a1 = a + TILE_FLOATS, *b1 = b + TILE_FLOATS, *a2 = a1 + TILE_FLOATS, *b2 = b1 + TILE_FLOATS;
    if (parts == 3) {
        add_step(a, true, b2, true, next, has_low, has_right);
        add_step(a, false, b1, true, next, has_low, has_right);
        add_step(a1, true, b1, false, next, has_low, has_right);
        add_step(a1, false, b, true, next, has_low, has_right);
        add_step(a2, true, b, false, next, has_low, has_right);
        add_step(a, true, b, false, next, has_low, has_right);
    } else if (parts == 2) {
        add_step(a, true, b1, true, next, has_low, has_right);
        add_step(a, false, b, true, next, has_low, has_right);
        add_step(a1, true, b, false, next, has_low, has_right);
    } else {
        add_step(a, true, b, true, next, has_low, has_right);
    }
}

ALWAYS_INLINE void multiply(const struct amx_block *x, size_t parts, bool has_low, bool has_right) {
    const float *a = x->a, *b = x->b;
    AMX_READS_MEMORY;
    size_t step = parts * TILE_FLOATS, next = x->steps * step;
    size_t stride = x->from_stride * sizeof(float), ldc = x->ldc * sizeof(float);
    if (x->from) {
        const float *low_from = x->from + SIZE * x->from_stride;
        _tile_loadd(0, x->from, stride);
        if (has_right) _tile_loadd(1, x->from + SIZE, stride);
        if (has_low) _tile_loadd(2, low_from, stride);
        if (has_low && has_right) _tile_loadd(3, low_from + SIZE, stride);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (size_t s = 0; s < x->steps; s++, a += step, b += step) {
        add_products(a, b, parts, next, has_low, has_right);
        if (x->packing) pack_next(x->packing);
    }
    float *low = x->c + SIZE * x->ldc;
    _tile_stored(0, x->c, ldc);
    if (has_right) _tile_stored(1, x->c + SIZE, ldc);
    if (has_low) _tile_stored(2, low, ldc);
    if (has_low && has_right) _tile_stored(3, low + SIZE, ldc);
}

ALWAYS_INLINE void multiply_parts(const struct amx_block *x, size_t parts) {
    bool has_low = x->rows > SIZE, has_right = x->columns > SIZE;
    if (has_low && has_right)
        multiply(x, parts, true, true);
    else if (has_low)
        multiply(x, parts, true, false);
    else if (has_right)
        multiply(x, parts, false, true);
    else
        multiply(x, parts, false, false);
}

static void multiply_tiles(const struct amx_block *x) {
    if (x->parts == 1)
        multiply_parts(x, 1);
    else if (x->parts == 2)
        multiply_parts(x, 2);
    else
        multiply_parts(x, 3);
}

/* With parts of tiles: through a copy. */
static void multiply_edge(struct amx_block x) {
    _Alignas(64) float edge[SIDE * SIDE] = {0};
    size_t ldc = x.ldc, row = x.columns * sizeof(float);
    float *c = x.c;
    for (size_t i = 0; i < x.rows && x.from; i++) memcpy(edge + i * SIDE, x.from + i * x.from_stride, row);
    if (x.from) x.from = edge;
    x.from_stride = x.ldc = SIDE;
    x.c = edge;
    multiply_tiles(&x);
    for (size_t i = 0; i < x.rows; i++) memcpy(c + i * ldc, edge + i * SIDE, row);
}

/* ---- blocks ---- */

/* The block that is computed: rows [i, i + rows) and columns [j, j + columns) of c, steps [k, k + depth). */
struct job {
    const struct cpu_product *p;
    struct amx_factor a, b;
    float *packed_a, *packed_b;
    size_t i, rows, j, columns, k, depth, parts;
};

static size_t tile_floats(const struct job *x) { return divide_up(x->depth, STEP) * x->parts * TILE_FLOATS; }

#define ZERO_SUBNORMALS 0x8040u /* of MXCSR: they are slow, and AMX takes them as 0 */

static unsigned zero_subnormals(void) {
    unsigned state = _mm_getcsr();
    _mm_setcsr(state | ZERO_SUBNORMALS);
    return state;
}

/* Packs rows or columns [i, i + count) of a block. */
static void pack_numbers(const struct job *x, const struct amx_factor *f, float *to, size_t i, size_t count) {
    unsigned state = zero_subnormals();
    f->pack(to, f, i, count, x->k, x->depth);
    _mm_setcsr(state);
}

/* Parts are in units of SIDE rows or columns. */
static void pack_rows(void *context, size_t first, size_t last) {
    const struct job *x = context;
    size_t from = first * SIDE, to = at_most(last * SIDE, x->rows);
    pack_numbers(x, &x->a, x->packed_a + from / SIZE * tile_floats(x), x->i + from, to - from);
}

static void pack_columns(void *context, size_t first, size_t last) {
    const struct job *x = context;
    size_t from = first * SIDE, to = at_most(last * SIDE, x->columns);
    pack_numbers(x, &x->b, x->packed_b + from / SIZE * tile_floats(x), x->j + from, to - from);
}

/* A panel that is packed tile by tile, between the steps of k of [blocks] blocks. */
struct packing {
    const struct job *job;
    float *to;
    size_t column, columns; /* of the job's */
    size_t tiles, tile;     /* all, and the next one */
    size_t steps;           /* of k */
    size_t blocks, credit;  /* a step adds PANEL / SIZE to the credit, a tile takes [blocks] */
};

static void start_packing(struct packing *p, const struct job *x, float *to, size_t column, size_t end) {
    size_t columns = column < end ? at_most(end - column, PANEL) : 0, tiles = divide_up(columns, SIZE);
    size_t steps = divide_up(x->depth, STEP), blocks = divide_up(x->rows, SIDE) * (PANEL / SIDE);
    *p = (struct packing){x, to, column, columns, tiles * steps, 0, steps, blocks, 0};
}

/* The source of a tile at column [i] and step [k] of the panel: of k_step == 1 its own, else its share of the rows of
 * all tiles at [k], so that each row is fetched in the order of its addresses. */
static void prefetch_tile(const struct packing *p, size_t i, size_t k) {
    const struct amx_factor *f = &p->job->b;
    const float *from = f->from + (p->job->j + p->column) * f->i_step + (p->job->k + k) * f->k_step;
    size_t depth = at_most(p->job->depth - k, STEP);
    if (f->k_step == 1) {
        for (size_t l = i; l < at_most(i + SIZE, p->columns); l++)
            for (size_t at = 0; at < depth; at += SIZE) __builtin_prefetch(from + l * f->i_step + at);
        return;
    }
    size_t tiles = divide_up(p->columns, SIZE), tile = i / SIZE;
    for (size_t l = tile * depth / tiles; l < (tile + 1) * depth / tiles; l++)
        for (size_t at = 0; at < p->columns; at += SIZE) __builtin_prefetch(from + l * f->k_step + at, 0, 2);
}

/* Numbers are read in the order of their addresses. */
static void pack_tile_of_panel(struct packing *p) {
    const struct job *x = p->job;
    size_t tiles = p->tiles / p->steps, tile = p->tile++;
    bool by_k = x->b.k_step == 1;
    size_t i = (by_k ? tile / p->steps : tile % tiles) * SIZE, k = (by_k ? tile % p->steps : tile / tiles) * STEP;
    x->b.pack(p->to + i / SIZE * tile_floats(x) + k / STEP * x->parts * TILE_FLOATS, &x->b, x->j + p->column + i,
              at_most(p->columns - i, SIZE), x->k + k, at_most(x->depth - k, STEP));
    if (k + STEP < x->depth) prefetch_tile(p, i, k + STEP);
}

/* After a step of k of a block: as many tiles as it takes to have packed all after the last block. */
static void pack_next(struct packing *p) {
    for (p->credit += PANEL / SIZE; p->credit >= p->blocks && p->tile < p->tiles; p->credit -= p->blocks)
        pack_tile_of_panel(p);
}

static void pack_all(struct packing *p) {
    while (p->tile < p->tiles) pack_tile_of_panel(p);
}

static bool is_finite(const float *c, size_t ldc, size_t rows, size_t columns) {
    lanes sums = {0}; /* of zeros, or NaN */
    for (size_t i = 0; i < rows; i++, c += ldc)
        for (size_t j = 0; j < columns; j += LANES)
            sums += (columns - j >= LANES ? *(const lanes *)(c + j) : (lanes)load(c + j, columns - j)) * 0;
    return !_mm512_cmp_ps_mask((__m512)sums, (__m512)sums, _CMP_UNORD_Q);
}

/* The block [c] of the result, whose rows and columns in it are [row] and [column]: rows that are not finite, in
 * float32. The others keep their bits, so that they do not depend on these. */
static void compute_nonfinite_again(const struct job *x, const struct amx_block *block, float *c, size_t row,
                                    size_t column) {
    float again[SIDE * SIDE];
    struct cpu_product p = *x->p;
    p.m = block->rows, p.n = block->columns;
    p.a += row * p.ars, p.b += column * p.bcs;
    p.c = again, p.ldc = SIDE;
    if (p.row) p.row += column;
    p.has_relu = false;
    unsigned state = _mm_getcsr();
    _mm_setcsr(state & ~ZERO_SUBNORMALS);
    cpu_kernels_avx512.product(&p);
    _mm_setcsr(state);
    for (size_t i = 0; i < block->rows; i++, c += block->ldc)
        if (!is_finite(c, 0, 1, block->columns)) memcpy(c, again + i * SIDE, block->columns * sizeof *c);
}

/* c += the block's product, which is summed first: a run of a long sum */
static void add_run(struct amx_block block) {
    _Alignas(64) float run[SIDE * SIDE];
    struct amx_block first = block;
    first.c = run, first.ldc = SIDE;
    if (block.rows % SIZE || block.columns % SIZE)
        multiply_edge(first);
    else
        multiply_tiles(&first);
    for (size_t i = 0; i < block.rows; i++)
        for (size_t j = 0; j < block.columns; j++) block.c[i * block.ldc + j] += run[i * SIDE + j];
}

/* [packed]: the columns of b; they and the rows are at [row] and [column] of the job's. */
static void multiply_block(const struct job *x, size_t row, size_t column, const float *packed,
                           struct packing *packing) {
    const struct cpu_product *p = x->p;
    enum product_start start = x->k > 0 ? PRODUCT_ADD : p->start;
    float *c = p->c + (x->i + row) * p->ldc + x->j + column;
    bool sums_first = p->k > LONG_SUM && start == PRODUCT_ADD;
    struct amx_block block = {.a = x->packed_a + row / SIZE * tile_floats(x),
                              .b = packed,
                              .steps = divide_up(x->depth, STEP),
                              .parts = x->parts,
                              .from = start == PRODUCT_ADD && !sums_first ? c : NULL,
                              .from_stride = p->ldc,
                              .c = c,
                              .ldc = p->ldc,
                              .rows = at_most(x->rows - row, SIDE),
                              .columns = at_most(x->columns - column, SIDE),
                              .packing = packing};
    if (start == PRODUCT_ROW) block.from = p->row + x->j + column, block.from_stride = 0;
    if (sums_first)
        add_run(block);
    else if (block.rows % SIZE || block.columns % SIZE)
        multiply_edge(block);
    else
        multiply_tiles(&block);
    if (x->k + x->depth < p->k) return;
    if (x->parts == 3 && x->a.from && x->b.from && p->start != PRODUCT_ADD &&
        !is_finite(c, p->ldc, block.rows, block.columns))
        compute_nonfinite_again(x, &block, c, x->i + row, x->j + column);
    if (p->has_relu) relu_rows(c, p->ldc, block.rows, block.columns);
}

static void multiply_packed(const struct job *x, size_t row, size_t column) {
    multiply_block(x, row, column, x->packed_b + column / SIZE * tile_floats(x), NULL);
}

static void multiply_rows(void *context, size_t first, size_t last) {
    const struct job *x = context;
    size_t cached = CACHED_FLOATS / tile_floats(x) / 2 * SIDE;
    amx_configure();
    for (size_t j = 0; j < x->columns; j += cached)
        for (size_t i = first; i < last; i++)
            for (size_t column = j; column < j + cached && column < x->columns; column += SIDE)
                multiply_packed(x, i * SIDE, column);
    _tile_release();
}

static void multiply_columns(void *context, size_t first, size_t last) {
    const struct job *x = context;
    amx_configure();
    for (size_t row = 0; row < x->rows; row += SIDE)
        for (size_t j = first; j < last; j++) multiply_packed(x, row, j * SIDE);
    _tile_release();
}

static void multiply_and_pack(void *context, size_t first, size_t last) {
    const struct job *x = context;
    _Alignas(64) float panels[2][PANEL * MAX_WORDS], *now = panels[0], *next = panels[1];
    size_t end = at_most(last * SIDE, x->columns);
    struct packing packing;
    unsigned state = zero_subnormals();
    amx_configure();
    start_packing(&packing, x, now, first * SIDE, end);
    pack_all(&packing);
    for (size_t column = first * SIDE; column < end; column += PANEL) {
        start_packing(&packing, x, next, column + PANEL, end);
        for (size_t row = 0; row < x->rows; row += SIDE)
            for (size_t j = 0; j < PANEL && column + j < end; j += SIDE)
                multiply_block(x, row, column + j, now + j / SIZE * tile_floats(x), &packing);
        pack_all(&packing);
        float *multiplied = now;
        now = next, next = multiplied;
    }
    _tile_release();
    _mm_setcsr(state);
}

/* The number of rows or columns of a block of at most [floats] words, of [count] that are divided evenly. */
static size_t block_size(const struct job *x, size_t count, size_t floats) {
    size_t max = floats / tile_floats(x) / 2 * SIDE, blocks = divide_up(count, max);
    return blocks ? divide_up(divide_up(count, blocks), SIDE) * SIDE : max;
}

static void share(const struct amx_space *space, size_t units, size_t work, size_t min_work, parallel_part *part,
                  struct job *x) {
    if (space->is_shared)
        parallel_for(units, 1 + min_work / work, part, x);
    else
        part(x, 0, units);
}

/* All rows are packed at once, and threads have about the same number of columns. With more rows, or fewer steps of k,
 * packing takes a small share of the time, and c is better read and written by whole rows. */
static bool packs_while_multiplying(const struct job *x, const struct amx_space *space) {
    const struct cpu_product *p = x->p;
    size_t threads = parallel_threads();
    return x->b.from && space->is_shared && 2 * p->m <= p->k &&
           divide_up(p->m, SIZE) * tile_floats(x) <= at_most(space->rows_floats, ROWS_FLOATS) &&
           divide_up(p->n, PANEL) >= MIN_PANELS * threads;
}

/* The steps of k from x->k on. */
static void add_steps(struct job *x, const struct amx_space *space) {
    const struct cpu_product *p = x->p;
    size_t max_rows = block_size(x, p->m, space->rows_floats), unit = SIDE * x->depth;
    size_t max_columns = block_size(x, p->n, space->columns_floats);
    if (packs_while_multiplying(x, space)) {
        x->i = x->j = 0, x->rows = p->m, x->columns = p->n;
        share(space, divide_up(p->m, SIDE), unit, AMX_MIN_NUMBERS, pack_rows, x);
        share(space, divide_up(p->n, SIDE), unit * p->m, AMX_MIN_WORK, multiply_and_pack, x);
        return;
    }
    for (x->j = 0; x->j < p->n; x->j += x->columns) {
        x->columns = at_most(p->n - x->j, max_columns);
        share(space, divide_up(x->columns, SIDE), unit, AMX_MIN_NUMBERS, pack_columns, x);
        for (x->i = 0; x->i < p->m; x->i += x->rows) {
            x->rows = at_most(p->m - x->i, max_rows);
            if (x->j == 0 || x->rows < p->m)
                share(space, divide_up(x->rows, SIDE), unit, AMX_MIN_NUMBERS, pack_rows, x);
            if (space->by_columns)
                share(space, divide_up(x->columns, SIDE), unit * x->rows, AMX_MIN_WORK, multiply_columns, x);
            else
                share(space, divide_up(x->rows, SIDE), unit * x->columns, AMX_MIN_WORK, multiply_rows, x);
        }
    }
}

/* The blocks of k are the same for every product of this k. */
void amx_product(const struct cpu_product *p, struct amx_factor a, struct amx_factor b, const struct amx_space *space) {
    struct job x = {.p = p, .a = a, .b = b, .packed_a = space->rows, .packed_b = space->columns, .parts = space->parts};
    for (size_t blocks = divide_up(p->k, max_depth(x.parts)); blocks > 0; blocks--, x.k += x.depth) {
        x.depth = divide_up((p->k - x.k) / blocks, STEP) * STEP;
        if (blocks == 1) x.depth = p->k - x.k;
        add_steps(&x, space);
    }
}

/* Both factors are matrices. */
static void matrix_product(const struct cpu_product *p, const struct amx_space *space) {
    amx_product(p, amx_rows(p->a, p->ars, p->acs, space->parts), amx_columns(p->b, p->bcs, p->brs, space->parts),
                space);
}

static __attribute__((noinline)) void small_product(const struct cpu_product *p, size_t parts) {
    _Alignas(64) float rows[SMALL_ROWS_FLOATS], columns[SMALL_COLUMNS_FLOATS];
    struct amx_space space = {rows, columns, SMALL_ROWS_FLOATS, SMALL_COLUMNS_FLOATS, false, false, parts};
    matrix_product(p, &space);
}

void IN_SET(product)(const struct cpu_product *p) { small_product(p, 1); }
static void product_of_two(const struct cpu_product *p) { small_product(p, 2); }

/* The words of [count] rows or columns of a block of [k] steps, packed; at most [max] are used at a time. */
static size_t packed_floats(size_t count, size_t k, size_t parts, size_t max) {
    size_t depth = at_most(k, max_depth(parts));
    return at_most(divide_up(count, SIDE) * 2 * divide_up(depth, STEP) * parts * TILE_FLOATS, max);
}

struct amx_space amx_space(float *at, size_t m, size_t n, size_t k, size_t parts) {
    size_t threads = parallel_threads();
    bool by_columns = divide_up(m, SIDE) < threads;
    size_t rows = packed_floats(m, k, parts, ROWS_FLOATS * (by_columns ? 1 : threads));
    size_t cached = by_columns ? CACHED_FLOATS * threads : 0;
    size_t columns = packed_floats(n, k, parts, cached > COLUMNS_FLOATS ? cached : COLUMNS_FLOATS);
    return (struct amx_space){at, at ? at + rows : NULL, rows, columns, true, by_columns, parts};
}

static void large_product(struct device *device, const struct cpu_product *p, size_t parts) {
    struct amx_space space = amx_space(NULL, p->m, p->n, p->k, parts);
    size_t bytes = (space.rows_floats + space.columns_floats) * sizeof(float);
    status s = workspace_reserve(device, bytes, "the factors of a product");
    bool is_missing = s != OK;
    status_free(s);
    if (is_missing) {
        small_product(p, parts);
        return;
    }
    space = amx_space(workspace_of(device), p->m, p->n, p->k, parts);
    matrix_product(p, &space);
}

static void shared_product(struct device *device, const struct cpu_product *p) { large_product(device, p, 1); }
static void shared_product_of_two(struct device *device, const struct cpu_product *p) { large_product(device, p, 2); }
static void shared_product_of_three(struct device *device, const struct cpu_product *p) { large_product(device, p, 3); }

/* Packing the factors of smaller ones takes longer than AMX saves. */
static bool shares_three(const struct cpu_product *p) { return p->m >= 64 && p->n >= 64 && p->k >= 64; }

const struct bf16_kernels bf16_kernels_amx = {.description = "cpu (amx, bfloat16)",
                                              .product = IN_SET(product),
                                              .shared_product = shared_product,
                                              .attention = &IN_SET(attention),
                                              .rounds_convolutions = true,
                                              .convolution_of = amx_convolution_of_one};

const struct bf16_kernels bf16_kernels_amx_two = {.description = "cpu (avx512, factors of two bfloat16 with amx)",
                                                  .product = product_of_two,
                                                  .shared_product = shared_product_of_two};

const struct bf16_kernels bf16_kernels_amx_three = {.description = "cpu (avx512, amx)",
                                                    .shared_product = shared_product_of_three,
                                                    .shares = shares_three,
                                                    .convolution_of = amx_convolution_of_three};
