/* Matrix products, and their factors in the precision of the device. A float32 matrix is converted to 16 bits, with
 * rows of a multiple of 16 bytes, in one pass, which also computes column sums if needed. */
#pragma once

#include "device/cuda/gpu.cuh"

/* A row-major matrix in the type of the device's factors: float, or 16 bits. */
struct factor {
    const void *at;
    size_t stride; /* elements from row to row */
};

/* cuBLASLt is column-major: a row-major (rows, columns) matrix is its (columns, rows). So c (n, m; row-major) is a b
 * [+ c] with m, n and k as cuBLASLt defines them. */
struct gpu_product {
    cublasOperation_t transpose_a, transpose_b;
    size_t m, n, k;
    struct factor a, b;
    cublasLtEpilogue_t epilogue;
    const void *bias; /* NULL, or (m) in the type of c, aligned to 16 bytes */
    const void *aux;  /* of GELU's epilogues: (n, m) in the type of c; m is a multiple of 8 */
    void *c;
    bool is_half; /* c is of the factors' type, else float */
    bool adds;
    bool is_float32; /* the factors are float32 in any precision, and not rounded */
};

void gpu_multiply(operator_call *c, const struct gpu_product *p);
/* The same, but returns false and does nothing if cuBLASLt has no algorithm for it. */
bool gpu_try_multiply(operator_call *c, const struct gpu_product *p);
/* Memory of [copy] for [bytes], which outlives the call; growing moves it. */
uint16_t *gpu_reserve(operator_call *c, struct gpu_copy *copy, size_t bytes);
void gpu_products_close(struct gpu_device *gpu);

/* The functions below use the 16-bit copy of an operand (struct half_copy), and write it if it is not valid; an operand
 * without one is rounded to scratch memory. */

/* x (rows, columns) as a factor until the call ends. */
struct factor gpu_factor(operator_call *c, struct gpu_numbers x, size_t rows, size_t columns);
/* The same for a weight, which may be rounded already (gpu_round_parameters). */
struct factor gpu_weight_factor(operator_call *c, const float *w, size_t out, size_t in);

/* The same for a gradient; [sums] (columns), unless NULL, += its columns, in the pass that rounds it. */
struct factor gpu_gradient_factor(operator_call *c, struct gpu_numbers dy, float *sums, size_t rows, size_t columns);
/* dy (rows, columns) in 16 bits if it has a valid copy without gaps; else unchanged. */
struct gpu_numbers gpu_gradient_half(operator_call *c, struct gpu_numbers dy, size_t columns);

/* x (count) in 16 bits, without gaps, until the call ends; 16-bit precisions only. */
const uint16_t *gpu_half_copy(operator_call *c, struct gpu_numbers x, size_t count);

/* Where an update of [values] (count), before it writes them, writes the 16-bit copy of the parameters, if they are
 * part of it and it is current. */
struct gpu_half_output gpu_half_output_parameters(const operator_call *c, const float *values, size_t count);
/* An operator that writes all of y also writes its 16-bit copy, if it has one without gaps; it is valid from then on.
 */
void gpu_add_half_output(operator_call *c, struct gpu_result *y);
/* The same for rows of [size] that are written in fours: only if size is a multiple of 8. */
static inline void gpu_add_half_output_rows(operator_call *c, struct gpu_result *y, size_t size) {
    if (size % 8 == 0) gpu_add_half_output(c, y);
}
