/* A linear layer is three products. Two linear layers with GELU between them use products with epilogues: cuBLASLt's
 * GELU is the one by tanh, and tensors between the layers are 16 bits, because they are only read as such. */
#include "device/activations.h"
#include "device/cuda/columns.cuh"
#include "device/cuda/elements.cuh"
#include "device/cuda/product.cuh"

namespace { /* in each file, so that kernels of different files have different types */

/* to (rows, out) = x w^T + bias, then a relu in its own pass: cuBLASLt's maps a NaN to 0. */
void multiply_forward(operator_call *c, struct factor x, const float *weight, const float *row, bool has_relu,
                      struct gpu_result to, size_t rows, size_t in, size_t out) {
    bool wants_fusion = row && alignment(row) >= 16, is_half = to.is_half();
    float *sums = to.to;
    struct gpu_product p = {.transpose_a = CUBLAS_OP_T,
                            .transpose_b = CUBLAS_OP_N,
                            .m = out,
                            .n = rows,
                            .k = in,
                            .a = gpu_weight_factor(c, weight, out, in),
                            .b = x,
                            .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                            .c = is_half ? (void *)to.half_output.to : sums,
                            .is_half = is_half};
    if (wants_fusion) {
        p.epilogue = CUBLASLT_EPILOGUE_BIAS;
        p.bias = is_half ? gpu_weight_factor(c, row, 1, out).at : row;
    }
    bool is_fused = (wants_fusion || (is_half && !row)) && gpu_try_multiply(c, &p);
    if (is_fused && !has_relu) return;
    struct gpu_numbers made = {to.half_output.to, gpu_half_format(c->gpu), nullptr};
    if (!is_fused && is_half) p.c = sums = c->scratch<float>(rows * out), p.is_half = false;
    if (!is_fused) {
        p.epilogue = CUBLASLT_EPILOGUE_DEFAULT, p.bias = nullptr;
        gpu_multiply(c, &p);
        if (!is_half && !row && !has_relu) return;
    }
    if (!is_fused || !is_half) made = {sums, GPU_FLOAT32, nullptr};
    gpu_add_half_output(c, &to);
    if (is_fused || !row) {
        elements(
            c, rows * out, to, [=] __device__(float v) { return has_relu && v < 0 ? 0 : v; }, made);
        return;
    }
    c->each(rows * out, [=] __device__(size_t i) {
        float sum = sums[i] + row[i % out];
        to.put(i, has_relu && sum < 0 ? 0 : sum);
    });
}

/* dy (rows, columns) as a factor; sums (columns), unless NULL, += its columns. */
struct factor gradient_of(operator_call *c, struct gpu_numbers dy, float *sums, size_t rows, size_t columns) {
    if (!dy.is_half()) return gpu_gradient_factor(c, dy, sums, rows, columns);
    return {dy.at, columns};
}

/* The product's result: float32, or 16 bits. */
void set_result(struct gpu_product *p, struct gpu_result to) {
    p->c = to.is_half() ? (void *)to.half_output.to : to.to;
    p->is_half = to.is_half();
}

/* dx (rows, in) = dy w */
struct gpu_product input_product(operator_call *c, struct factor dy, const float *weight, void *to, size_t rows,
                                 size_t in, size_t out) {
    return {.transpose_a = CUBLAS_OP_N,
            .transpose_b = CUBLAS_OP_N,
            .m = in,
            .n = rows,
            .k = out,
            .a = gpu_weight_factor(c, weight, out, in),
            .b = dy,
            .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
            .c = to};
}

/* dw (out, in) += dy^T x */
struct gpu_product weight_product(struct factor dy, struct factor x, float *dw, size_t rows, size_t in, size_t out) {
    return {.transpose_a = CUBLAS_OP_N,
            .transpose_b = CUBLAS_OP_T,
            .m = in,
            .n = out,
            .k = rows,
            .a = x,
            .b = dy,
            .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
            .c = dw,
            .adds = true};
}

/* dw (out, in) += dy^T x and dbias (out), unless NULL, += dy's columns. cuBLASLt's BGRADB is not used for them: it is a
 * separate pass over dy, too, and on an H200 a slower one. */
void add_to_weight(operator_call *c, struct gpu_numbers dy, struct factor x, float *dw, float *dbias, size_t rows,
                   size_t in, size_t out) {
    struct gpu_product p = weight_product({dy.at, out}, x, dw, rows, in, out);
    if (dbias) column_add_to(c, dy, dbias, rows, out);
    gpu_multiply(c, &p);
}

} // namespace

void gpu_linear_forward(struct device *device, const struct tensor *x, const float *w, const float *bias, bool has_relu,
                        const struct tensor *y, size_t rows, size_t in, size_t out) {
    operator_call c(device, "linear_forward");
    struct gpu_numbers from = c.in(x, rows * in);
    const float *weight = c.in(w, out * in), *row = c.in(bias, out);
    struct gpu_result to = c.out(y, rows * out);
    multiply_forward(&c, gpu_factor(&c, from, rows, in), weight, row, has_relu, to, rows, in, out);
}

void gpu_linear_backward_input(struct device *device, const struct tensor *dy, const float *w, const struct tensor *dx,
                               size_t rows, size_t in, size_t out) {
    operator_call c(device, "linear_backward_input");
    struct gpu_numbers from = c.in(dy, rows * out);
    const float *weight = c.in(w, out * in);
    struct gpu_product p = input_product(&c, gradient_of(&c, from, nullptr, rows, out), weight, nullptr, rows, in, out);
    set_result(&p, c.out(dx, rows * in));
    gpu_multiply(&c, &p);
}

void gpu_linear_backward_weight(struct device *device, const struct tensor *dy, const struct tensor *x, float *dw,
                                float *dbias, size_t rows, size_t in, size_t out) {
    operator_call c(device, "linear_backward_weight");
    struct gpu_numbers from = c.in(dy, rows * out), input = c.in(x, rows * in);
    from = gpu_gradient_half(&c, from, out);
    float *slopes = c.inout(dw, out * in), *db = c.inout(dbias, out);
    if (from.is_half()) {
        add_to_weight(&c, from, gpu_factor(&c, input, rows, in), slopes, db, rows, in, out);
        return;
    }
    struct factor gradient = gradient_of(&c, from, db, rows, out);
    struct gpu_product p = weight_product(gradient, gpu_factor(&c, input, rows, in), slopes, rows, in, out);
    gpu_multiply(&c, &p);
}

/* ---- with GELU in between: struct gelu_ops; rows of 16 bits are multiples of 8, as cuBLASLt's epilogues require ----
 */

namespace {

bool is_bfloat16(const operator_call *c) { return c->gpu->precision == PRECISION_BFLOAT16; }

void forward_before(struct device *device, const struct tensor *x, const float *w, const float *bias,
                    const struct tensor *kept, const struct tensor *y, size_t rows, size_t in, size_t hidden) {
    operator_call c(device, "linear_gelu_forward");
    struct gpu_numbers from = c.in(x, rows * in);
    const float *weight = c.in(w, hidden * in), *row = c.in(bias, hidden);
    uint16_t *before = c.out(kept, rows * hidden).half_output.to, *to = c.out(y, rows * hidden).half_output.to;
    struct factor input = gpu_factor(&c, from, rows, in);
    struct gpu_product p = {.transpose_a = CUBLAS_OP_T,
                            .transpose_b = CUBLAS_OP_N,
                            .m = hidden,
                            .n = rows,
                            .k = in,
                            .a = gpu_weight_factor(&c, weight, hidden, in),
                            .b = input,
                            .epilogue = row ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX,
                            .bias = row ? gpu_weight_factor(&c, row, 1, hidden).at : nullptr,
                            .aux = before,
                            .c = to,
                            .is_half = true};
    if (gpu_try_multiply(&c, &p)) return;
    float *sums = c.scratch<float>(rows * hidden);
    multiply_forward(&c, input, weight, row, false, {sums, {}}, rows, in, hidden);
    bool is_bf16 = is_bfloat16(&c);
    c.each(rows * hidden, [=] __device__(size_t i) {
        before[i] = gpu_to_half(is_bf16, sums[i]);
        to[i] = gpu_to_half(is_bf16, gelu_tanh_value(sums[i]));
    });
}

void forward_after(struct device *device, const struct tensor *y, const float *w, const float *bias, bool has_relu,
                   const struct tensor *to, size_t rows, size_t hidden, size_t out) {
    operator_call c(device, "linear_forward_after_gelu");
    struct gpu_numbers from = c.in(y, rows * hidden);
    const float *weight = c.in(w, out * hidden), *row = c.in(bias, out);
    struct gpu_result result = c.out(to, rows * out);
    multiply_forward(&c, {from.at, hidden}, weight, row, has_relu, result, rows, hidden, out);
}

void backward_after(struct device *device, const struct tensor *dy, const struct tensor *y, const float *w,
                    const struct tensor *kept, float *dw, float *dbias, const struct tensor *dkept, size_t rows,
                    size_t hidden, size_t out) {
    operator_call c(device, "linear_backward_after_gelu");
    struct gpu_numbers from = c.in(dy, rows * out);
    from = gpu_gradient_half(&c, from, out);
    const float *weight = c.in(w, out * hidden);
    const void *input = c.in(y, rows * hidden).at;
    const uint16_t *before = (const uint16_t *)c.in(kept, rows * hidden).at;
    uint16_t *to = c.out(dkept, rows * hidden).half_output.to;
    float *slopes = c.inout(dw, out * hidden), *db = c.inout(dbias, out);
    struct factor gradient = gradient_of(&c, from, db, rows, out);
    if (from.is_half()) {
        add_to_weight(&c, from, {input, hidden}, slopes, db, rows, hidden, out);
    } else {
        struct gpu_product p = weight_product(gradient, {input, hidden}, slopes, rows, hidden, out);
        gpu_multiply(&c, &p);
    }
    if (!to) return;
    struct gpu_product back = input_product(&c, gradient, weight, to, rows, hidden, out);
    back.epilogue = CUBLASLT_EPILOGUE_DGELU;
    back.aux = before;
    back.is_half = true;
    if (gpu_try_multiply(&c, &back)) return;
    float *sums = c.scratch<float>(rows * hidden);
    back = input_product(&c, gradient, weight, sums, rows, hidden, out);
    gpu_multiply(&c, &back);
    bool is_bf16 = is_bfloat16(&c);
    c.each(rows * hidden, [=] __device__(size_t i) {
        to[i] = gpu_to_half(is_bf16, gelu_tanh_gradient(gpu_from_half(is_bf16, before[i]), 0, sums[i]));
    });
}

void backward_before(struct device *device, const struct tensor *dkept, const struct tensor *x, const float *w,
                     float *dw, float *dbias, const struct tensor *dx, size_t rows, size_t in, size_t hidden) {
    operator_call c(device, "linear_gelu_backward");
    struct gpu_numbers from = c.in(dkept, rows * hidden);
    struct gpu_numbers input = c.in(x, rows * in);
    const float *weight = c.in(w, hidden * in);
    float *slopes = c.inout(dw, hidden * in), *db = c.inout(dbias, hidden);
    add_to_weight(&c, from, gpu_factor(&c, input, rows, in), slopes, db, rows, in, hidden);
    struct gpu_result to = c.out(dx, rows * in);
    if (!to.is_wanted()) return;
    struct gpu_product p = input_product(&c, {from.at, hidden}, weight, nullptr, rows, in, hidden);
    set_result(&p, to);
    gpu_multiply(&c, &p);
}

} // namespace

const struct gelu_ops gpu_gelu = {.forward_before = forward_before,
                                  .forward_after = forward_after,
                                  .backward_after = backward_after,
                                  .backward_before = backward_before};
