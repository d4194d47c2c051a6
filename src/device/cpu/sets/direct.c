/* Products of small matrices, without copies of a, and of b only where it is transposed or has no whole vectors. Each
 * c(i, j) is summed over k in order, as by gemm.c, so that both give the same bits. Compiled once per instruction set;
 * as in gemm.c the compiler may fuse a product and a sum. */
#include "device/cpu/sets/lanes.h"
#include "device/cpu/sets/set.h"

#define MAX_K 128                  /* of a panel that is a copy */
#define MAX_WORK ((size_t)1 << 18) /* multiply-adds: all operands stay in the cache */
#define MAX_ROWS 8                 /* of a tile */
#define MANY_ROWS(vectors) ((KERNELS_REGISTERS == 32 || (vectors) == 1) ? 8 : 4)

/* c (rows, columns) = start (rows, columns) + a (rows, k) b (k, columns), of a panel of columns */
struct panel {
    const float *a, *b, *start;
    bool is_run; /* start is added last */
    float *c;
    size_t a_row, a_step, b_step, start_row, c_row; /* between rows; a_step: between columns of a */
    size_t rows, columns, k;
    bool has_relu;
};

#define INLINE static inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 8")

INLINE lanes load(const float *from, bool is_part, size_t count) {
    return is_part ? partial_load(from, count) : *(const lanes *)from;
}

/* max(x, 0); NaN is not changed */
INLINE lanes relu_of(lanes x) { return (lanes)((lane_mask)x & ~(x <= 0)); }

/* The first [rows] of a panel. [rows], [vectors] and [is_part] (the last vector of c is not whole) are constants
 * wherever this is called, so that the sums stay in registers. */
INLINE void tile_of(size_t rows, size_t vectors, bool is_part, struct panel *p) {
    size_t last = vectors - 1, whole = vectors - is_part, count = p->columns - last * LANES, a_step = p->a_step,
           b_step = p->b_step;
    lanes sum[MAX_ROWS][TILE_VECTORS];
    const float *a[MAX_ROWS], *b = p->b, *start = p->start;
    float *c = p->c;
    UNROLLED for (size_t i = 0; i < rows; i++) {
        UNROLLED for (size_t v = 0; v < vectors; v++) sum[i][v] =
            p->is_run ? (lanes){0} : load(start + v * LANES, is_part && v == last, count);
        start += p->start_row;
        a[i] = i ? a[i - 1] + p->a_row : p->a;
    }
    for (size_t n = p->k, at = 0; n > 0; n--, at += a_step, b += b_step) {
        lanes factor[TILE_VECTORS];
        UNROLLED for (size_t v = 0; v < vectors; v++) factor[v] = *(const lanes *)(b + v * LANES);
        UNROLLED for (size_t i = 0; i < rows; i++) {
            float x = a[i][at];
            UNROLLED for (size_t v = 0; v < vectors; v++) sum[i][v] = plus_times(sum[i][v], factor[v], x);
        }
    }
    if (p->is_run) {
        start = p->start;
        UNROLLED for (size_t i = 0; i < rows; i++, start += p->start_row) {
            UNROLLED for (size_t v = 0; v < vectors; v++) sum[i][v] =
                load(start + v * LANES, is_part && v == last, count) + sum[i][v];
        }
    }
    if (p->has_relu) {
        UNROLLED for (size_t i = 0; i < rows; i++) {
            UNROLLED for (size_t v = 0; v < vectors; v++) { sum[i][v] = relu_of(sum[i][v]); }
        }
    }
    UNROLLED for (size_t i = 0; i < rows; i++) {
        UNROLLED for (size_t v = 0; v < whole; v++) { *(lanes *)(c + v * LANES) = sum[i][v]; }
        if (is_part) partial_store(c + last * LANES, sum[i][last], count);
        c += p->c_row;
    }
    p->rows -= rows;
    p->a += rows * p->a_row;
    p->start += rows * p->start_row;
    p->c = c;
}

/* All rows of a panel. */
INLINE void panel_of(size_t vectors, bool is_part, struct panel *p) {
    while (p->rows >= MANY_ROWS(vectors)) tile_of(MANY_ROWS(vectors), vectors, is_part, p);
    if (MANY_ROWS(vectors) > 4 && p->rows >= 4) tile_of(4, vectors, is_part, p);
    if (p->rows == 3) tile_of(3, vectors, is_part, p);
    if (p->rows == 2) tile_of(2, vectors, is_part, p);
    if (p->rows == 1) tile_of(1, vectors, is_part, p);
}

typedef void panel_kind(struct panel *panel);

/* Separate functions, so that each has all registers. */
#define PANEL(name, vectors, is_part)                                                                                  \
    static __attribute__((noinline)) void name(struct panel *panel) { panel_of(vectors, is_part, panel); }
PANEL(whole_1, 1, false)
PANEL(whole_2, 2, false)
PANEL(whole_3, 3, false)
PANEL(part_1, 1, true)
PANEL(part_2, 2, true)
PANEL(part_3, 3, true)

static panel_kind *const panels[TILE_VECTORS][2] = {{whole_1, part_1}, {whole_2, part_2}, {whole_3, part_3}};

/* A square at [from] of a transposed matrix, [stride] between its rows, of which [rows] are used: the columns from
 * [first] to [end], as rows of a panel. */
INLINE void transpose_square(float *to, size_t width, const float *from, size_t stride, size_t rows, size_t first,
                             size_t end) {
    lanes square[LANES];
    load_transposed(square, from, stride, rows);
    UNROLLED for (size_t l = 0; l < LANES; l++) {
        if (l >= first && l < end) *(lanes *)(to + (l - first) * width) = square[l];
    }
}

/* panel (k, whole vectors) = columns of b, which is transposed: [bcs] between its columns, of which [all] follow b. A
 * vector at the end of a column is read on into the next column where there is one, else from before its beginning.
 * Columns past the end repeat the last one: they are not used. */
static void transpose_panel(float *panel, const float *b, size_t bcs, size_t k, size_t columns, size_t all) {
    size_t width = (columns + LANES - 1) / LANES * LANES, whole = k / LANES * LANES, end = bcs == k ? all * k : 0;
    size_t tail = k - whole, missing = LANES - tail;
    for (size_t j = 0; j < width; j += LANES, b += LANES * bcs) {
        size_t rows = columns - j < LANES ? columns - j : LANES;
        float *to = panel + j;
        if (rows == LANES)
            for (size_t i = 0; i < whole; i += LANES, to += LANES * width)
                transpose_square(to, width, b + i, bcs, LANES, 0, LANES);
        else
            for (size_t i = 0; i < whole; i += LANES, to += LANES * width)
                transpose_square(to, width, b + i, bcs, rows, 0, LANES);
        if (tail == 0) continue;
        if (rows == LANES && (j + LANES - 1) * bcs + whole + LANES <= end)
            transpose_square(to, width, b + whole, bcs, LANES, 0, tail);
        else if (whole > 0 || j > 0)
            transpose_square(to, width, b + whole - missing, bcs, rows, missing, LANES);
        else
            for (size_t i = 0; i < k; i++, to += width)
                for (size_t l = 0; l < LANES; l++) to[l] = b[(l < rows ? l : rows - 1) * bcs + i];
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

#define FEW_COLUMNS 4 /* columns of c that are computed as vectors of rows */

static bool has_few_columns(const struct cpu_product *p) {
    return LANES >= 8 && p->n <= FEW_COLUMNS && p->m >= LANES / 2 && p->k >= LANES && p->acs == 1 && !p->is_run &&
           p->start != PRODUCT_ADD;
}

/* sums (p->n, vectors of rows) += a (rows, LANES), of which the first [skipped] columns are not used, b */
INLINE void add_square(const struct cpu_product *p, const float *a, const float *b, size_t rows, size_t skipped,
                       lanes *sums) {
    lanes square[LANES];
    load_transposed(square, a, p->ars, rows);
    for (size_t j = 0; j < p->n; j++, b += p->bcs)
        for (size_t k = skipped; k < LANES; k++) sums[j] = plus_times(sums[j], square[k], b[k * p->brs]);
}

/* [rows] of c, at most LANES */
INLINE void few_columns_rows(const struct cpu_product *p, const float *a, float *c, size_t rows) {
    size_t whole = p->k / LANES * LANES, end = p->k - LANES;
    lanes sums[FEW_COLUMNS];
    for (size_t j = 0; j < p->n; j++) sums[j] = (p->start == PRODUCT_ROW ? p->row[j] : 0) - (lanes){0};
    for (size_t k = 0; k < whole; k += LANES) add_square(p, a + k, p->b + k * p->brs, rows, 0, sums);
    if (whole < p->k) add_square(p, a + end, p->b + end * p->brs, rows, whole - end, sums);
    for (size_t j = 0; j < p->n; j++) {
        lanes column = p->has_relu ? relu_of(sums[j]) : sums[j];
        for (size_t r = 0; r < rows; r++) c[r * p->ldc + j] = column[r];
    }
}

/* c of few columns: a vector is some rows of a column, since one of columns would be nearly empty. */
static __attribute__((noinline)) void few_columns_product(const struct cpu_product *p) {
    size_t i = 0;
    for (; i + LANES <= p->m; i += LANES) few_columns_rows(p, p->a + i * p->ars, p->c + i * p->ldc, LANES);
    if (i < p->m) few_columns_rows(p, p->a + i * p->ars, p->c + i * p->ldc, p->m - i);
}

bool IN_SET(direct_product)(const struct cpu_product *p) {
    static const float zeros[PANEL_WIDTH];
    float copy[MAX_K * PANEL_WIDTH];
    bool is_transposed = p->brs == 1 && p->bcs != 1;
    if (p->k > MAX_K || p->m * p->n * p->k > MAX_WORK) return false;
    if (has_few_columns(p)) {
        few_columns_product(p);
        return true;
    }
#if LANES == 16
    if (p->n <= LANES / 2) return direct_product_avx2(p); /* the other half of a vector would be of no use */
#endif
    if (!is_transposed && p->bcs != 1) return false;
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
                              .is_run = p->is_run,
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
        panels[vectors - 1][is_part](&panel);
    }
    return true;
}
