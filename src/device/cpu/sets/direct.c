/* Products of small matrices, without copies of a, and of b only where it is transposed or has no whole vectors. Each
 * c(i, j) is summed over k in order, as by gemm.c, so that both give the same bits. Compiled once per instruction set;
 * as in gemm.c the compiler may fuse a product and a sum. */
#include "device/cpu/sets/lanes.h"
#include "device/cpu/sets/set.h"

#define MAX_K 128                  /* of a panel that is a copy */
#define MAX_WORK ((size_t)1 << 18) /* multiply-adds: all operands stay in the cache */
#define MAX_ROWS 8
#define FEW_ROWS 4
#define MANY_ROWS(vectors) ((KERNELS_REGISTERS == 32 || (vectors) == 1) ? 8 : 4)

/* c (rows, columns) = start (rows, columns) + a (rows, k) b (k, columns), of a panel of columns */
struct panel {
    const float *a, *b, *start;
    float *c;
    size_t a_row, a_step, b_step, start_row, c_row; /* between rows; a_step: between columns of a */
    size_t rows, columns, k;
    bool has_relu;
};

static inline __attribute__((always_inline)) lanes load(const float *from, bool is_part, size_t count) {
    return is_part ? partial_load(from, count) : *(const lanes *)from;
}

/* max(x, 0); NaN is not changed */
static inline __attribute__((always_inline)) lanes relu_of(lanes x) { return (lanes)((mask)x & ((x > 0) | (x != x))); }

/* The first [rows] of a panel, which may have fewer: then the last one is computed again. [rows], [vectors] and
 * [is_part] (the last vector of c is not whole) are constants wherever this is called. */
static inline __attribute__((always_inline)) void tile_of(size_t rows, size_t vectors, bool is_part,
                                                          const struct panel *panel) {
    const struct panel p = *panel;
    size_t last = vectors - 1, whole = vectors - is_part, count = p.columns - last * LANES;
    lanes sum[MAX_ROWS][TILE_VECTORS];
    const float *a[MAX_ROWS], *b = p.b, *start = p.start;
    a[0] = p.a;
    UNROLL
    for (size_t i = 0; i < rows; i++) {
        bool has_next = rows > FEW_ROWS || i + 1 < p.rows;
        UNROLL
        for (size_t v = 0; v < vectors; v++) sum[i][v] = load(start + v * LANES, is_part && v == last, count);
        start += has_next ? p.start_row : 0;
        if (i + 1 < rows) a[i + 1] = a[i] + (has_next ? p.a_row : 0);
    }
    for (size_t n = 0, at = 0; n < p.k; n++, at += p.a_step, b += p.b_step) {
        lanes factor[TILE_VECTORS];
        UNROLL
        for (size_t v = 0; v < vectors; v++) factor[v] = *(const lanes *)(b + v * LANES);
        UNROLL
        for (size_t i = 0; i < rows; i++) {
            float x = a[i][at];
            UNROLL
            for (size_t v = 0; v < vectors; v++) sum[i][v] += factor[v] * x;
        }
    }
    if (p.has_relu) {
        UNROLL
        for (size_t i = 0; i < rows; i++) {
            UNROLL
            for (size_t v = 0; v < vectors; v++) sum[i][v] = relu_of(sum[i][v]);
        }
    }
    float *c = p.c;
    UNROLL
    for (size_t i = 0; i < rows; i++) {
        UNROLL
        for (size_t v = 0; v < whole; v++) *(lanes *)(c + v * LANES) = sum[i][v];
        if (is_part) partial_store(c + last * LANES, sum[i][last], count);
        c += rows > FEW_ROWS || i + 1 < p.rows ? p.c_row : 0;
    }
}

typedef void tile_kind(const struct panel *panel);

/* Separate functions, so that each has all registers. */
#define ONE(name, rows, vectors, is_part)                                                                              \
    static __attribute__((noinline)) void name(const struct panel *panel) { tile_of(rows, vectors, is_part, panel); }
#define TILES(name, rows, vectors)                                                                                     \
    ONE(name##_whole, rows, vectors, false)                                                                            \
    ONE(name##_part, rows, vectors, true)
TILES(few_1, FEW_ROWS, 1)
TILES(few_2, FEW_ROWS, 2)
TILES(few_3, FEW_ROWS, 3)
TILES(many_1, MANY_ROWS(1), 1)
TILES(many_2, MANY_ROWS(2), 2)
TILES(many_3, MANY_ROWS(3), 3)

#define BOTH(name)                                                                                                     \
    { name##_whole, name##_part }
static tile_kind *const tiles[2][TILE_VECTORS][2] = {{BOTH(few_1), BOTH(few_2), BOTH(few_3)},
                                                     {BOTH(many_1), BOTH(many_2), BOTH(many_3)}};

/* panel (k, whole vectors) = columns of b, which is transposed: [bcs] between its columns, of which [all] follow b. A
 * vector at the end of a column is read on into the next column where there is one: a partial load that crosses a line
 * of the cache takes ten times as long. */
static void transpose_panel(float *panel, const float *b, size_t bcs, size_t k, size_t columns, size_t all) {
    size_t width = (columns + LANES - 1) / LANES * LANES, end = bcs == k ? all * k : 0;
    for (size_t j = 0; j < width; j += LANES)
        for (size_t i = 0; i < k; i += LANES) {
            lanes square[LANES];
            for (size_t l = 0; l < LANES; l++) {
                size_t at = (j + l) * bcs + i;
                bool is_part = k - i < LANES && at + LANES > end;
                square[l] = j + l < columns ? load(b + at, is_part, k - i) : (lanes){0};
            }
            transpose(square);
            for (size_t l = 0; l < LANES && i + l < k; l++) *(lanes *)(panel + (i + l) * width + j) = square[l];
        }
}

static void all_rows(struct panel *panel, size_t vectors, bool is_part) {
    size_t many = MANY_ROWS(vectors), rows;
    for (; panel->rows > 0; panel->rows -= rows) {
        bool is_many = panel->rows >= many;
        tiles[is_many][vectors - 1][is_part](panel);
        rows = is_many ? many : panel->rows < FEW_ROWS ? panel->rows : FEW_ROWS;
        panel->a += rows * panel->a_row;
        panel->start += rows * panel->start_row;
        panel->c += rows * panel->c_row;
    }
}

/* panel (k, whole vectors) = columns of b, in rows [brs] apart */
static void copy_panel(float *panel, const float *b, size_t brs, size_t k, size_t columns) {
    size_t whole = columns / LANES * LANES;
    for (size_t i = 0; i < k; i++, b += brs) {
        for (size_t j = 0; j < whole; j += LANES, panel += LANES) *(lanes *)panel = *(const lanes *)(b + j);
        if (whole == columns) continue;
        *(lanes *)panel = partial_load(b + whole, columns - whole);
        panel += LANES;
    }
}

bool IN_SET(direct_product)(const struct cpu_product *p) {
    static const float zeros[PANEL_WIDTH];
    float copy[MAX_K * PANEL_WIDTH];
    bool is_transposed = p->brs == 1 && p->bcs != 1;
#if LANES == 16
    if (p->n <= LANES / 2) return direct_product_avx2(p); /* the other half of a vector would be of no use */
#endif
    if ((!is_transposed && p->bcs != 1) || p->k > MAX_K || p->m * p->n * p->k > MAX_WORK) return false;
    for (size_t j = 0, columns; j < p->n; j += columns) {
        columns = panel_columns(p->n - j);
        size_t vectors = (columns + LANES - 1) / LANES;
        bool is_part = columns % LANES != 0, is_copy = is_part || is_transposed;
        struct panel panel = {.a = p->a,
                              .a_row = p->ars,
                              .a_step = p->acs,
                              .b = is_copy ? copy : p->b + j,
                              .b_step = is_copy ? vectors * LANES : p->brs,
                              .start = p->start == PRODUCT_ADD   ? p->c + j
                                       : p->start == PRODUCT_ROW ? p->row + j
                                                                 : zeros,
                              .start_row = p->start == PRODUCT_ADD ? p->ldc : 0,
                              .c = p->c + j,
                              .c_row = p->ldc,
                              .rows = p->m,
                              .columns = columns,
                              .k = p->k,
                              .has_relu = p->has_relu};
        if (is_transposed)
            transpose_panel(copy, p->b + j * p->bcs, p->bcs, p->k, columns, p->n - j);
        else if (is_part)
            copy_panel(copy, p->b + j, p->brs, p->k, columns);
        all_rows(&panel, vectors, is_part);
    }
    return true;
}
