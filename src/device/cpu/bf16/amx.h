/* amx: a matrix product in bfloat16 with AMX whose factors may be more than matrices in memory: each packs itself. A
 * product of several parts is more exact: each number is the sum of two or three bfloat16, which together have 16 or 24
 * bits, and only the smallest products of parts are left out. */
#pragma once

#include <math.h>

#include "device/cpu/cpu.h"

#define AMX_SIZE 16                           /* rows of a tile, its columns of sums, its pairs of k */
#define AMX_STEP (2 * AMX_SIZE)               /* steps of k of a tile */
#define AMX_TILE_FLOATS (AMX_SIZE * AMX_SIZE) /* words of 32 bits: sums, or pairs of k */

static inline size_t at_most(size_t count, size_t max) { return count < max ? count : max; }
static inline size_t divide_up(size_t count, size_t size) { return (count + size - 1) / size; }

/* A factor of numbers (i, k), where i is a row of a or a column of b. pack: to = numbers [i, i + count) x [k, k +
 * depth) as tiles of 16 i and 32 k, those with the same i one after the other; k is a multiple of 32, i of 16 for a
 * matrix, else of 32. The words of a tile of a are (i, pair of k), of one of b (pair of k, i); steps of k past the end
 * are 0. Of several parts, each tile is followed by those of the next ones. */
struct amx_factor {
    void (*pack)(float *to, const struct amx_factor *factor, size_t i, size_t count, size_t k, size_t depth);
    const float *from; /* amx_rows, amx_columns: number (i, k) is at from[i * i_step + k * k_step] */
    size_t i_step, k_step;
    const void *context; /* of others */
};

/* Matrices, one of whose steps is 1. */
struct amx_factor amx_rows(const float *from, size_t i_step, size_t k_step, size_t parts);    /* as a */
struct amx_factor amx_columns(const float *from, size_t i_step, size_t k_step, size_t parts); /* as b */

/* Memory for what is packed, of floats. */
struct amx_space {
    float *rows, *columns;
    size_t rows_floats, columns_floats;
    bool is_shared, by_columns; /* among threads: of rows or, where there are few, of columns */
    size_t parts;               /* of each number: 1, 2 or 3 */
};

/* For a product (m, n) of k steps and of [parts] on all threads, m and n > 0. at == NULL: only the sizes. It may need
 * more for a smaller m, and depends on the number of threads. */
struct amx_space amx_space(float *at, size_t m, size_t n, size_t k, size_t parts);

/* p without its factors: c (m, n) = start + a b, with k > 0. The order of the sums depends on k alone. */
void amx_product(const struct cpu_product *p, struct amx_factor a, struct amx_factor b, const struct amx_space *space);

/* Prepares this thread for tiles of AMX_SIZE rows; _tile_release ends it. */
void amx_configure(void);

/* Before tiles are loaded: what was written is in memory. gcc does not know that the instruction reads it. */
#define AMX_READS_MEMORY __asm__ volatile("" ::: "memory")

/* Minimum work of a thread, about 20 us. */
#define AMX_MIN_NUMBERS ((size_t)1 << 15) /* to pack */
#define AMX_MIN_WORK ((size_t)1 << 23)    /* multiply-adds */

/* Out of memory: the run ends because its numbers are not finite. */
static inline void amx_fail(float *numbers, size_t count) {
    for (size_t i = 0; i < count; i++) numbers[i] = NAN;
}

/* How a convolution is computed with numbers of one part or of three; NULL: not with AMX. The caller computes the
 * gradient of the bias. */
const struct convolution_kernels *amx_convolution_of_one(const struct convolution *c);
const struct convolution_kernels *amx_convolution_of_three(const struct convolution *c);

/* ---- copies of weights in which the channels of a position of the kernel are adjacent, as in the image ---- */

/* The weight of channel o of the outputs, c of the inputs and position t of the kernel is at copy[o * out_stride +
 * p * position_stride + p / (kernel width) * line_gap + c], where p is places[t], or t if places is NULL. */
struct amx_weights {
    const struct convolution *c;
    float *copy;
    size_t out_stride, position_stride, line_gap;
    const size_t *places;
};

/* copy = w (out, in, kernel height, kernel width) */
void amx_copy_weights(const struct amx_weights *weights, const float *w);
/* dw (out, in, kernel height, kernel width) += copy */
void amx_add_weights(const struct amx_weights *weights, float *dw);

/* For stride 1, numbers of one part: whether they compute this convolution, and are faster than products of the image.
 */
extern const struct convolution_kernels amx_unit_stride_ops;
bool amx_unit_stride_suits(const struct convolution *c);
bool amx_unit_stride_is_faster(const struct convolution *c);
