/* A linear layer is three products. */
#include "device/cuda/product.cuh"

void gpu_linear_forward(struct device *device, const float *x, const float *w, const float *bias, bool has_relu,
                        float *y, size_t rows, size_t in, size_t out) {
    call c(device, "linear_forward");
    const float *from = c.in(x, rows * in), *weight = c.in(w, out * in), *row = c.in(bias, out);
    float *to = c.out(y, rows * out);
    bool is_fused = row && alignment(row) >= 16; /* else in a pass of its own */
    struct product p = {.turn_a = CUBLAS_OP_T,
                        .turn_b = CUBLAS_OP_N,
                        .m = out,
                        .n = rows,
                        .k = in,
                        .a = gpu_weight_factor(&c, weight, out, in),
                        .b = gpu_input_factor(&c, from, rows, in),
                        .bias = is_fused ? row : nullptr,
                        .has_relu = has_relu,
                        .c = to,
                        .adds = false};
    gpu_multiply(&c, &p);
    if (is_fused || (!row && !has_relu)) return;
    c.each(rows * out, [=] __device__(size_t i) {
        float sum = to[i] + (row ? row[i % out] : 0);
        to[i] = has_relu && sum < 0 ? 0 : sum;
    });
}

void gpu_linear_backward_input(struct device *device, const float *dy, const float *w, float *dx, size_t rows,
                               size_t in, size_t out) {
    call c(device, "linear_backward_input");
    const float *from = c.in(dy, rows * out), *weight = c.in(w, out * in);
    struct product p = {.turn_a = CUBLAS_OP_N,
                        .turn_b = CUBLAS_OP_N,
                        .m = in,
                        .n = rows,
                        .k = out,
                        .a = gpu_weight_factor(&c, weight, out, in),
                        .b = gpu_gradient_factor(&c, from, from == dy, nullptr, rows, out),
                        .bias = nullptr,
                        .has_relu = false,
                        .c = c.out(dx, rows * in),
                        .adds = false};
    gpu_multiply(&c, &p);
}

void gpu_linear_backward_weight(struct device *device, const float *dy, const float *x, float *dw, float *dbias,
                                size_t rows, size_t in, size_t out) {
    call c(device, "linear_backward_weight");
    const float *from = c.in(dy, rows * out), *input = c.in(x, rows * in);
    struct product p = {.turn_a = CUBLAS_OP_N,
                        .turn_b = CUBLAS_OP_T,
                        .m = in,
                        .n = out,
                        .k = rows,
                        .a = gpu_factor(&c, input, rows, in),
                        .b = gpu_gradient_factor(&c, from, from == dy, c.inout(dbias, out), rows, out),
                        .bias = nullptr,
                        .has_relu = false,
                        .c = c.inout(dw, out * in),
                        .adds = true};
    gpu_multiply(&c, &p);
}
