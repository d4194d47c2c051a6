/* A linear layer is three products. Two with GELU between them have products with epilogues: cuBLASLt's GELU is the one
 * by tanh, and what lies between the layers is 16 bits, which is all that is read of it. */
#include "device/activations.h"
#include "device/cuda/columns.cuh"
#include "device/cuda/product.cuh"

namespace { /* types of kernels must not be those of another file */

/* y (rows, out) = x w^T + bias, then a relu in a pass of its own: cuBLASLt's takes a NaN for 0. [to]: where the
 * operator writes y; NULL [y]: nobody reads it in 16 bits. */
void multiply_forward(call *c, struct factor x, const float *weight, const float *row, bool has_relu, const float *y,
                      float *to, size_t rows, size_t in, size_t out) {
    bool wants_fusion = row && alignment(row) >= 16;
    struct product p = {.turn_a = CUBLAS_OP_T,
                        .turn_b = CUBLAS_OP_N,
                        .m = out,
                        .n = rows,
                        .k = in,
                        .a = gpu_weight_factor(c, weight, out, in),
                        .b = x,
                        .epilogue = CUBLASLT_EPILOGUE_BIAS,
                        .bias = row,
                        .c = to};
    bool is_fused = wants_fusion && gpu_try_multiply(c, &p);
    if (!is_fused) {
        p.epilogue = CUBLASLT_EPILOGUE_DEFAULT, p.bias = nullptr;
        gpu_multiply(c, &p);
    }
    const float *missing = is_fused ? nullptr : row;
    if (!missing && !has_relu) return;
    struct gpu_also also = gpu_also_rows(c, y, to, rows, out);
    c->each(rows * out, [=] __device__(size_t i) {
        float sum = to[i] + (missing ? missing[i % out] : 0);
        to[i] = sum = has_relu && sum < 0 ? 0 : sum;
        also.put(i, sum);
    });
}

/* dx (rows, in) = dy w */
struct product input_product(call *c, struct factor dy, const float *weight, void *to, size_t rows, size_t in,
                             size_t out) {
    return {.turn_a = CUBLAS_OP_N,
            .turn_b = CUBLAS_OP_N,
            .m = in,
            .n = rows,
            .k = out,
            .a = gpu_weight_factor(c, weight, out, in),
            .b = dy,
            .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
            .c = to};
}

/* dw (out, in) += dy^T x */
struct product weight_product(struct factor dy, struct factor x, float *dw, size_t rows, size_t in, size_t out) {
    return {.turn_a = CUBLAS_OP_N,
            .turn_b = CUBLAS_OP_T,
            .m = in,
            .n = out,
            .k = rows,
            .a = x,
            .b = dy,
            .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
            .c = dw,
            .adds = true};
}

} // namespace

void gpu_linear_forward(struct device *device, const float *x, const float *w, const float *bias, bool has_relu,
                        float *y, size_t rows, size_t in, size_t out) {
    call c(device, "linear_forward");
    const float *from = c.in(x, rows * in), *weight = c.in(w, out * in), *row = c.in(bias, out);
    float *to = c.out(y, rows * out);
    multiply_forward(&c, gpu_input_factor(&c, from, rows, in), weight, row, has_relu, y, to, rows, in, out);
}

void gpu_linear_backward_input(struct device *device, const float *dy, const float *w, float *dx, size_t rows,
                               size_t in, size_t out) {
    call c(device, "linear_backward_input");
    const float *from = c.in(dy, rows * out), *weight = c.in(w, out * in);
    struct factor gradient = gpu_gradient_factor(&c, from, from == dy, nullptr, rows, out);
    struct product p = input_product(&c, gradient, weight, c.out(dx, rows * in), rows, in, out);
    gpu_multiply(&c, &p);
}

void gpu_linear_backward_weight(struct device *device, const float *dy, const float *x, float *dw, float *dbias,
                                size_t rows, size_t in, size_t out) {
    call c(device, "linear_backward_weight");
    const float *from = c.in(dy, rows * out), *input = c.in(x, rows * in);
    struct factor gradient = gpu_gradient_factor(&c, from, from == dy, c.inout(dbias, out), rows, out);
    struct product p = weight_product(gradient, gpu_factor(&c, input, rows, in), c.inout(dw, out * in), rows, in, out);
    gpu_multiply(&c, &p);
}

/* ---- with GELU in between: struct gelu_ops; `kept`, `y` and `dkept` are (rows, hidden) of 16 bits ---- */

namespace {

/* cuBLASLt wants rows of what its epilogues read and write beside the result to be multiples of 8 numbers. */
bool applies(const struct device *device, size_t hidden) {
    return gpu_factor_size((const struct gpu_device *)device) == 2 && hidden % 8 == 0;
}

bool is_bfloat16(const call *c) { return c->gpu->precision == PRECISION_BFLOAT16; }

void forward(struct device *device, const float *x, const float *w, const float *bias, void *kept, void *y, size_t rows,
             size_t in, size_t hidden) {
    call c(device, "linear_gelu_forward");
    const float *from = c.in(x, rows * in), *weight = c.in(w, hidden * in), *row = c.in(bias, hidden);
    uint16_t *before = c.out((uint16_t *)kept, rows * hidden), *to = c.out((uint16_t *)y, rows * hidden);
    struct factor input = gpu_input_factor(&c, from, rows, in);
    struct product p = {.turn_a = CUBLAS_OP_T,
                        .turn_b = CUBLAS_OP_N,
                        .m = hidden,
                        .n = rows,
                        .k = in,
                        .a = gpu_weight_factor(&c, weight, hidden, in),
                        .b = input,
                        .epilogue = row ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX,
                        .bias = row ? gpu_weight_factor(&c, row, 1, hidden).at : nullptr,
                        .aux = before,
                        .c = to,
                        .is_narrow = true};
    if (gpu_try_multiply(&c, &p)) return;
    float *sums = c.scratch<float>(rows * hidden);
    multiply_forward(&c, input, weight, row, false, nullptr, sums, rows, in, hidden);
    bool is_bf16 = is_bfloat16(&c);
    c.each(rows * hidden, [=] __device__(size_t i) {
        before[i] = gpu_narrow(is_bf16, sums[i]);
        to[i] = gpu_narrow(is_bf16, gelu_tanh(sums[i]));
    });
}

void forward_after(struct device *device, const void *y, const float *w, const float *bias, bool has_relu, float *to,
                   size_t rows, size_t hidden, size_t out) {
    call c(device, "linear_forward_after_gelu");
    const uint16_t *from = c.in((const uint16_t *)y, rows * hidden);
    const float *weight = c.in(w, out * hidden), *row = c.in(bias, out);
    multiply_forward(&c, {from, hidden}, weight, row, has_relu, to, c.out(to, rows * out), rows, hidden, out);
}

void backward_after(struct device *device, const float *dy, const void *y, const float *w, const void *kept, float *dw,
                    float *dbias, void *dkept, size_t rows, size_t hidden, size_t out) {
    call c(device, "linear_backward_after_gelu");
    const float *from = c.in(dy, rows * out), *weight = c.in(w, out * hidden);
    const uint16_t *input = c.in((const uint16_t *)y, rows * hidden),
                   *before = c.in((const uint16_t *)kept, rows * hidden);
    uint16_t *to = c.out((uint16_t *)dkept, rows * hidden);
    struct factor gradient = gpu_gradient_factor(&c, from, false, c.inout(dbias, out), rows, out);
    struct product p = weight_product(gradient, {input, hidden}, c.inout(dw, out * hidden), rows, hidden, out);
    gpu_multiply(&c, &p);
    if (!to) return;
    struct product back = input_product(&c, gradient, weight, to, rows, hidden, out);
    back.epilogue = CUBLASLT_EPILOGUE_DGELU;
    back.aux = before;
    back.is_narrow = true;
    if (gpu_try_multiply(&c, &back)) return;
    float *sums = c.scratch<float>(rows * hidden);
    back = input_product(&c, gradient, weight, sums, rows, hidden, out);
    gpu_multiply(&c, &back);
    bool is_bf16 = is_bfloat16(&c);
    c.each(rows * hidden, [=] __device__(size_t i) {
        to[i] = gpu_narrow(is_bf16, sums[i] * gelu_tanh_slope(gpu_widen(is_bf16, before[i])));
    });
}

struct narrow_terms {
    const uint16_t *dy;
    size_t channels;
    bool is_bf16;
    __device__ void operator()(size_t row, size_t channel, float *terms) const {
        terms[0] += gpu_widen(is_bf16, dy[row * channels + channel]);
    }
};

/* dw with the gradient of the bias, in one product: the gradient is there in 16 bits, so no pass reads it otherwise. */
void add_to_weight(call *c, const uint16_t *dkept, struct factor x, float *dw, float *dbias, size_t rows, size_t in,
                   size_t hidden) {
    struct product p = weight_product({dkept, hidden}, x, dw, rows, in, hidden);
    float *sums = dbias ? c->scratch<float>(hidden) : nullptr;
    if (dbias) p.epilogue = CUBLASLT_EPILOGUE_BGRADB, p.bias = sums;
    if (gpu_try_multiply(c, &p)) {
        if (dbias) c->each(hidden, [=] __device__(size_t i) { dbias[i] += sums[i]; });
        return;
    }
    if (dbias)
        column_sums<1>(c, rows, hidden, narrow_terms{dkept, hidden, is_bfloat16(c)},
                       [=] __device__(size_t i, const double *total) { dbias[i] += (float)total[0]; });
    p = weight_product({dkept, hidden}, x, dw, rows, in, hidden);
    gpu_multiply(c, &p);
}

void backward(struct device *device, const void *dkept, const float *x, const float *w, float *dw, float *dbias,
              float *dx, size_t rows, size_t in, size_t hidden) {
    call c(device, "linear_gelu_backward");
    const uint16_t *from = c.in((const uint16_t *)dkept, rows * hidden);
    const float *input = c.in(x, rows * in), *weight = c.in(w, hidden * in);
    float *slopes = c.inout(dw, hidden * in), *db = c.inout(dbias, hidden), *to = c.out(dx, rows * in);
    add_to_weight(&c, from, gpu_factor(&c, input, rows, in), slopes, db, rows, in, hidden);
    if (!to) return;
    struct product p = input_product(&c, {from, hidden}, weight, to, rows, in, hidden);
    gpu_multiply(&c, &p);
}

} // namespace

const struct gelu_ops gpu_gelu = {.applies = applies,
                                  .forward = forward,
                                  .forward_after = forward_after,
                                  .backward_after = backward_after,
                                  .backward = backward};
