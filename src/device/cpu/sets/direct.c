/* Products of small matrices, without copies of a, and of b only where it is transposed or has no whole vectors. Each
 * c(i, j) is summed over k in order, as by gemm.c, so that both give the same bits. Compiled once per instruction set;
 * as in gemm.c the compiler may fuse a product and a sum. */
#include "device/cpu/sets/lanes.h"
#include "device/cpu/sets/set.h"

#define MAX_K 128                  /* of a panel that is a copy */
#define MAX_WORK ((size_t)1 << 18) /* multiply-adds: all operands stay in the cache */
#define MAX_ROWS 16                /* of a tile */
#define MANY_ROWS(vectors) ((KERNELS_REGISTERS == 32 && (vectors) < 4) || (vectors) == 1 ? 8 : 4)
#define MAX_VECTORS (KERNELS_REGISTERS == 32 ? 4 : TILE_VECTORS)

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
#define UNROLLED _Pragma("GCC unroll 16")

#define LOADS_PART (LANES == 16) /* parts of vectors are loaded as fast as vectors: a panel of them is not a copy */

INLINE lanes load(const float *from, bool is_part, size_t count) {
    return is_part ? partial_load(from, count) : *(const lanes *)from;
}

/* max(x, 0); NaN is not changed */
INLINE lanes relu_of(lanes x) { return (lanes)((lane_mask)x & ~(x <= 0)); }

/* The first [rows] of a panel. [rows], [vectors] and [is_part] (the last vector of c is not whole) are constants
 * wherever this is called, so that the sums stay in registers. */
INLINE void tile_of(size_t rows, size_t vectors, bool is_part, bool is_transposed, struct panel *p) {
    size_t last = vectors - 1, whole = vectors - is_part, count = p->columns - last * LANES, a_step = p->a_step,
           b_step = p->b_step;
    lanes sum[MAX_ROWS][MAX_VECTORS];
    const float *a[MAX_ROWS], *b = p->b, *start = p->start;
    float *c = p->c;
    UNROLLED for (size_t i = 0; i < rows; i++) {
        UNROLLED for (size_t v = 0; v < vectors; v++) sum[i][v] =
            p->is_run ? (lanes){0} : load(start + v * LANES, is_part && v == last, count);
        start += p->start_row;
        a[i] = i ? a[i - 1] + p->a_row : p->a;
    }
    for (size_t n = p->k, at = 0; n > 0; n--, at += a_step, b += b_step) {
        const float *transposed = p->a + at;
        if (is_transposed) __asm__("" : "+r"(transposed)); /* one pointer instead of one for each row */
        lanes factor[MAX_VECTORS];
        UNROLLED for (size_t v = 0; v < vectors; v++) factor[v] =
            load(b + v * LANES, LOADS_PART && is_part && v == last, count);
        UNROLLED for (size_t i = 0; i < rows; i++) {
            float x = is_transposed ? transposed[i] : a[i][at];
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

/* All rows of a panel. A tile of one vector has 16 rows if there are registers for them: the sums of 8 wait for each
 * other. Their addresses are constants if a is transposed: there are not enough registers for 16 pointers. */
INLINE void panel_of(size_t vectors, bool is_part, bool is_transposed, struct panel *p) {
    while (is_transposed && p->rows >= MAX_ROWS) tile_of(MAX_ROWS, vectors, is_part, true, p);
    while (p->rows >= MANY_ROWS(vectors)) tile_of(MANY_ROWS(vectors), vectors, is_part, false, p);
    if (MANY_ROWS(vectors) > 4 && p->rows >= 4) tile_of(4, vectors, is_part, false, p);
    if (p->rows == 3) tile_of(3, vectors, is_part, false, p);
    if (p->rows == 2) tile_of(2, vectors, is_part, false, p);
    if (p->rows == 1) tile_of(1, vectors, is_part, false, p);
}

typedef void panel_kind(struct panel *panel);

/* Separate functions, so that each has all registers. */
#define PANEL(name, vectors, is_part, is_transposed)                                                                   \
    static __attribute__((noinline)) void name(struct panel *panel) {                                                  \
        panel_of(vectors, is_part, is_transposed, panel);                                                              \
    }
PANEL(whole_1, 1, false, false)
PANEL(whole_2, 2, false, false)
PANEL(whole_3, 3, false, false)
PANEL(part_1, 1, true, false)
PANEL(part_2, 2, true, false)
PANEL(part_3, 3, true, false)
#if KERNELS_REGISTERS == 32
PANEL(whole_4, 4, false, false)
PANEL(part_4, 4, true, false)
PANEL(transposed_whole_1, 1, false, true)
PANEL(transposed_part_1, 1, true, true)
#endif

static panel_kind *const panels[MAX_VECTORS][2] = {{whole_1, part_1},
                                                   {whole_2, part_2},
                                                   {whole_3, part_3},
#if KERNELS_REGISTERS == 32
                                                   {whole_4, part_4}
#endif
};

/* Rows of a panel, [width] apart = a square at [from] of a transposed matrix, [stride] between its rows, of which
 * [rows] are used. */
static __attribute__((noinline)) void transpose_square(float *to, size_t width, const float *from, size_t stride,
                                                       size_t rows) {
    lanes square[LANES];
    if (rows == LANES)
        load_transposed(square, from, stride, LANES);
    else
        load_transposed(square, from, stride, rows);
    UNROLLED for (size_t l = 0; l < LANES; l++, to += width) * (lanes *)to = square[l];
}

/* panel (k, whole vectors) = columns of b, which is transposed: [bcs] between its columns, of which [all] follow b. A
 * vector at the end of a column is read on into the next column where there is one, else from before its beginning: up
 * to LANES rows before the panel and after it are written, too. Columns past the end repeat the last one: they are not
 * used. */
static void transpose_panel(float *panel, const float *b, size_t bcs, size_t k, size_t columns, size_t all) {
    size_t width = (columns + LANES - 1) / LANES * LANES, whole = k / LANES * LANES, end = bcs == k ? all * k : 0;
    ptrdiff_t before = (ptrdiff_t)k - LANES;
    for (size_t j = 0; j < width; j += LANES, b += LANES * bcs) {
        size_t rows = columns - j < LANES ? columns - j : LANES;
        float *to = panel + j;
        for (size_t i = 0; i < whole; i += LANES) transpose_square(to + i * width, width, b + i, bcs, rows);
        if (whole == k) continue;
        if (rows == LANES && (j + LANES - 1) * bcs + whole + LANES <= end)
            transpose_square(to + whole * width, width, b + whole, bcs, LANES);
        else if (whole > 0 || j > 0)
            transpose_square(to + before * (ptrdiff_t)width, width, b + before, bcs, rows);
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

/* b (k, n) by columns */
struct factors {
    const float *b;
    size_t stride;
};

#if LANES == 16
#define FEW 4 /* columns of a that are transposed at a time: with those of two blocks the sums stay in registers */
#else
#define FEW LANES
#define load_columns load_transposed
#endif

/* sums (blocks, n, vectors of rows) += a (blocks, rows, LANES), of which the first [skipped] columns are not used, b */
INLINE void add_squares(const float *a, size_t step, size_t stride, struct factors f, size_t n, size_t blocks,
                        size_t rows, size_t skipped, lanes sums[2][FEW_COLUMNS]) {
    UNROLL
    for (size_t first = 0; first < LANES; first += FEW) {
        lanes columns[2][FEW];
        UNROLLED for (size_t i = 0; i < blocks; i++) load_columns(columns[i], a + i * step + first, stride, rows);
        UNROLL
        for (size_t k = 0; k < FEW; k++) {
            const float *b = f.b + first + k;
            if (first + k < skipped) continue;
            UNROLLED for (size_t j = 0; j < n; j++, b += f.stride) {
                UNROLLED for (size_t i = 0; i < blocks; i++) sums[i][j] = plus_times(sums[i][j], columns[i][k], *b);
            }
        }
    }
}

/* Of vector v of (LANES, n) numbers, v + 4 n: the column and the row of its number [i], and where they are in a pair of
 * columns and in two such pairs, selected from. */
#define COLUMN_OF(i, vector) ((LANES * ((vector) % 4) + (i)) % ((vector) / 4))
#define ROW_OF(i, vector) ((LANES * ((vector) % 4) + (i)) / ((vector) / 4) % LANES)
#define IN_PAIR(i, vector) (COLUMN_OF(i, vector) % 2 * LANES + ROW_OF(i, vector))
#define IN_PAIRS(i, vector) (COLUMN_OF(i, vector) / 2 * LANES + (i))

/* Vector [v] of c (LANES, n) = columns (n, LANES) */
#define STORE_VECTOR(n, v)                                                                                             \
    if ((v) < (n)) {                                                                                                   \
        lanes one_ = __builtin_shufflevector(columns[0], columns[1], EACH_LANE(IN_PAIR, (v) + 4 * (n)));               \
        lanes other_ = __builtin_shufflevector(columns[2], columns[3], EACH_LANE(IN_PAIR, (v) + 4 * (n)));             \
        *(lanes *)(c + (v)*LANES) = __builtin_shufflevector(one_, other_, EACH_LANE(IN_PAIRS, (v) + 4 * (n)));         \
    }
#define STORE_COLUMNS(n) STORE_VECTOR(n, 0) STORE_VECTOR(n, 1) STORE_VECTOR(n, 2) STORE_VECTOR(n, 3)

/* c (rows, n) = columns (FEW_COLUMNS, LANES), of which n are used */
INLINE void store_columns(size_t n, const lanes *columns, float *c, size_t ldc, size_t rows) {
    if (ldc != n || rows != LANES) {
        for (size_t j = 0; j < n; j++)
            for (size_t r = 0; r < rows; r++) c[r * ldc + j] = columns[j][r];
    } else if (n == 1) {
        *(lanes *)c = columns[0];
    } else if (n == 2) {
        STORE_COLUMNS(2)
    } else if (n == 3) {
        STORE_COLUMNS(3)
    } else {
        STORE_COLUMNS(4)
    }
}

/* [rows] of c, at most LANES of each of the [blocks], a constant: their sums do not wait for each other */
INLINE void few_columns_rows(const struct cpu_product *p, struct factors f, size_t n, const float *a, float *c,
                             size_t blocks, size_t rows) {
    size_t k = p->k, step = LANES * p->ars;
    lanes sums[2][FEW_COLUMNS] = {{{0}}};
    UNROLLED for (size_t j = 0; j < n; j++) {
        UNROLLED for (size_t i = 0; i < blocks; i++) sums[i][j] =
            (p->start == PRODUCT_ROW ? p->row[j] : 0) - (lanes){0};
    }
    for (; k >= LANES; k -= LANES, a += LANES, f.b += LANES) add_squares(a, step, p->ars, f, n, blocks, rows, 0, sums);
    if (k > 0) {
        size_t skipped = LANES - k;
        f.b -= skipped;
        add_squares(a - skipped, step, p->ars, f, n, blocks, rows, skipped, sums);
    }
    UNROLLED for (size_t i = 0; i < blocks; i++) {
        UNROLLED for (size_t j = 0; j < n; j++) sums[i][j] = p->has_relu ? relu_of(sums[i][j]) : sums[i][j];
        store_columns(n, sums[i], c + i * LANES * p->ldc, p->ldc, rows);
    }
}

/* c of few columns: a vector is some rows of a column, since one of columns would be nearly empty. */
INLINE void few_columns(const struct cpu_product *p, size_t n) {
    float copy[FEW_COLUMNS * MAX_K];
    struct factors f = {p->b, p->bcs};
    size_t i = 0;
    if (p->brs != 1) {
        f = (struct factors){copy, MAX_K};
        for (size_t k = 0; k < p->k; k++)
            for (size_t j = 0; j < n; j++) copy[j * MAX_K + k] = p->b[k * p->brs + j * p->bcs];
    }
    for (; i + 2 * LANES <= p->m; i += 2 * LANES)
        few_columns_rows(p, f, n, p->a + i * p->ars, p->c + i * p->ldc, 2, LANES);
    for (size_t rows; i < p->m; i += rows) {
        rows = p->m - i < LANES ? p->m - i : LANES;
        few_columns_rows(p, f, n, p->a + i * p->ars, p->c + i * p->ldc, 1, rows);
    }
}

/* Separate loops, so that each has its sums in registers. */
static __attribute__((noinline)) void few_columns_product(const struct cpu_product *p) {
    switch (p->n) {
#define COLUMNS(n)                                                                                                     \
    case n:                                                                                                            \
        few_columns(p, n);                                                                                             \
        break;
        COLUMNS(1)
        COLUMNS(2)
        COLUMNS(3)
        COLUMNS(4)
#undef COLUMNS
    }
}

/* Columns of the next panel when [left] remain: see panel_columns. */
static size_t columns_of(size_t left) {
    size_t max = MAX_VECTORS * LANES;
    if (left <= max) return left;
    return left <= 2 * max ? (left + 2 * LANES - 1) / (2 * LANES) * LANES : PANEL_WIDTH;
}

/* Whether no panel is a copy. For many rows the copies of gemm.c pay off. */
static bool is_in_place(const struct cpu_product *p) {
    return p->bcs == 1 && p->n % LANES == 0 && p->m <= MAX_ROWS / 2 && p->k <= LONG_SUM && !p->is_run;
}

bool IN_SET(direct_product)(const struct cpu_product *p) {
    static const float zeros[MAX_VECTORS * LANES];
    float memory[(MAX_K + 2 * LANES) * MAX_VECTORS * LANES], *copy = memory + LANES * MAX_VECTORS * LANES;
    bool is_transposed = p->brs == 1 && p->bcs != 1;
    if ((p->k > MAX_K && !is_in_place(p)) || p->m * p->n * p->k > MAX_WORK) return false;
    if (has_few_columns(p)) {
        few_columns_product(p);
        return true;
    }
#if LANES == 16
    if (p->n <= LANES / 2) return direct_product_avx2(p); /* the other half of a vector would be of no use */
#endif
    if (!is_transposed && p->bcs != 1) return false;
    for (size_t j = 0, columns; j < p->n; j += columns) {
        columns = columns_of(p->n - j);
        size_t vectors = (columns + LANES - 1) / LANES;
        bool is_part = columns % LANES != 0, is_copy = (is_part && !LOADS_PART) || is_transposed;
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
        else if (is_copy)
            copy_panel(copy, p->b + j, p->brs, p->k, columns);
        panel_kind *kind = panels[vectors - 1][is_part];
#if KERNELS_REGISTERS == 32
        if (vectors == 1 && p->ars == 1) kind = is_part ? transposed_part_1 : transposed_whole_1;
#endif
        kind(&panel);
    }
    return true;
}
