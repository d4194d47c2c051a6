/* The table of a set, and the sums of rows that several of its files need. The files of this folder are all
 * time-critical loops, in plain C that the compiler vectorises; each is compiled once per instruction set (set.h). */
#include "device/cpu/sets/lanes.h"
#include "device/cpu/sets/set.h"

/* Adds four rows at a time, in order, so that the sum is read and written less often. */
static void add_run(float *restrict sum, const float *restrict x, size_t rows, size_t size, size_t stride) {
    size_t i = 0;
    for (; i + 4 <= rows; i += 4, x += 4 * stride)
        for (size_t j = 0; j < size; j++)
            sum[j] = sum[j] + x[j] + x[stride + j] + x[2 * stride + j] + x[3 * stride + j];
    for (; i < rows; i++, x += stride)
        for (size_t j = 0; j < size; j++) sum[j] += x[j];
}

#define SHORT_SUM 4096 /* numbers that are read from the first-level cache in any order */

/* The same of columns whose sums stay in registers: [vectors] of them, a constant, or [part] < LANES. */
static inline __attribute__((always_inline)) void add_columns(float *sum, const float *x, size_t rows, size_t vectors,
                                                              size_t part, size_t stride) {
    lanes sums[4];
    UNROLL
    for (size_t v = 0; v < vectors; v++) sums[v] = part ? partial_load(sum, part) : *(const lanes *)(sum + v * LANES);
    for (size_t i = 0; i < rows; i++, x += stride) {
        UNROLL
        for (size_t v = 0; v < vectors; v++) sums[v] += part ? partial_load(x, part) : *(const lanes *)(x + v * LANES);
    }
    UNROLL
    for (size_t v = 0; v < vectors; v++) {
        if (part)
            partial_store(sum, sums[v], part);
        else
            *(lanes *)(sum + v * LANES) = sums[v];
    }
}

static void add_short_rows(float *sum, const float *x, size_t rows, size_t size, size_t stride) {
    size_t j = 0;
    for (; j + 4 * LANES <= size; j += 4 * LANES) add_columns(sum + j, x + j, rows, 4, 0, stride);
    if (j + 2 * LANES <= size) add_columns(sum + j, x + j, rows, 2, 0, stride), j += 2 * LANES;
    if (j + LANES <= size) add_columns(sum + j, x + j, rows, 1, 0, stride), j += LANES;
    if (j < size) add_columns(sum + j, x + j, rows, 1, size - j, stride);
}

#define SUM_COLUMNS 64 /* whose sums in double stay in the first-level cache */

static void add_long_rows(float *restrict sum, const float *restrict x, size_t rows, size_t size, size_t stride) {
    double totals[SUM_COLUMNS] = {0};
    for (size_t i = 0; i < rows; i += LONG_SUM_RUN) {
        float run[SUM_COLUMNS] = {0};
        add_run(run, x + i * stride, rows - i < LONG_SUM_RUN ? rows - i : LONG_SUM_RUN, size, stride);
        for (size_t j = 0; j < size; j++) totals[j] += (double)run[j];
    }
    for (size_t j = 0; j < size; j++) sum[j] = (float)((double)sum[j] + totals[j]);
}

void IN_SET(add_rows)(float *sum, const float *x, size_t rows, size_t size, size_t stride) {
    if (rows * size <= SHORT_SUM && rows <= LONG_SUM) {
        add_short_rows(sum, x, rows, size, stride);
        return;
    }
    if (rows <= LONG_SUM) {
        add_run(sum, x, rows, size, stride);
        return;
    }
    for (size_t j = 0; j < size; j += SUM_COLUMNS)
        add_long_rows(sum + j, x + j, rows, size - j < SUM_COLUMNS ? size - j : SUM_COLUMNS, stride);
}

#define CHAINS 12 /* as many registers; more than the latency of a multiply-add times those that start at once */

/* Each result is a factor of the next one, so none can be computed before. */
float IN_SET(multiply_adds)(size_t rounds, float x, double *operations) {
    lanes sums[CHAINS], half = 0.5f - (lanes){0}, more = x - (lanes){0};
    float sum = 0;
    UNROLL
    for (size_t i = 0; i < CHAINS; i++) sums[i] = more + (float)i;
    for (size_t r = 0; r < rounds; r++) {
        UNROLL
        for (size_t i = 0; i < CHAINS; i++) sums[i] = plus_product(more, sums[i], half);
    }
    UNROLL
    for (size_t i = 0; i < CHAINS; i++) sum += sums[i][0];
    *operations = 2.0 * LANES * CHAINS * (double)rounds;
    return sum;
}

#define LOOP(result, name, arguments) .name = IN_SET(name),
#define TABLE(type, name) .name = &IN_SET(name),
const struct cpu_kernels IN_SET(cpu_kernels) = {CPU_LOOPS(LOOP) CPU_TABLES(TABLE).is_avx512 = KERNELS_LANES == 16};
