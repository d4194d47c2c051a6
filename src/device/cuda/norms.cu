/* Layer norm and RMS norm: a block for each row; a thread for each column of the parameters' gradients, which are added
 * row after row. Formulas are those of cpu/sets/norm.c. */
#include <cmath>

#include "device/cuda/gpu.cuh"

__device__ static void layer_norm_row(const float *x, const float *weight, const float *bias, float eps, float *y,
                                      float *statistics, size_t size) {
    float sum = 0, squares = 0;
    for (size_t j = threadIdx.x; j < size; j += GPU_THREADS) sum += x[j];
    float mean = gpu_reduce(sum, gpu_add()) / (float)size;
    for (size_t j = threadIdx.x; j < size; j += GPU_THREADS) squares += (x[j] - mean) * (x[j] - mean);
    float scale = 1 / sqrtf(gpu_reduce(squares, gpu_add()) / (float)size + eps);
    if (threadIdx.x == 0) statistics[0] = mean, statistics[1] = scale;
    for (size_t j = threadIdx.x; j < size; j += GPU_THREADS)
        y[j] = fmaf((x[j] - mean) * scale, weight ? weight[j] : 1, bias ? bias[j] : 0);
}

static void layer_norm_forward(struct device *device, const float *x, const float *weight, const float *bias, float eps,
                               float *y, float *statistics, size_t rows, size_t size) {
    call c(device, "layer_norm_forward");
    const float *from = c.in(x, rows * size), *w = c.in(weight, size), *b = c.in(bias, size);
    float *to = c.out(y, rows * size), *saved = c.out(statistics, 2 * rows);
    c.rows(rows, [=] __device__(size_t i) {
        layer_norm_row(from + i * size, w, b, eps, to + i * size, saved + 2 * i, size);
    });
}

/* dx = scale (g - mean(g) - xhat mean(g xhat)) with g = dy weight, xhat = (x - mean) scale */
__device__ static void layer_norm_input(const float *x, const float *weight, float mean, float scale, const float *dy,
                                        float *dx, bool adds, size_t size) {
    float sum = 0, product = 0;
    for (size_t j = threadIdx.x; j < size; j += GPU_THREADS) {
        float g = weight ? dy[j] * weight[j] : dy[j];
        sum += g;
        product += g * ((x[j] - mean) * scale);
    }
    float mean_g = gpu_reduce(sum, gpu_add()) / (float)size, mean_gx = gpu_reduce(product, gpu_add()) / (float)size;
    for (size_t j = threadIdx.x; j < size; j += GPU_THREADS) {
        float g = weight ? dy[j] * weight[j] : dy[j];
        float slope = scale * (g - mean_g - (x[j] - mean) * scale * mean_gx);
        dx[j] = adds ? dx[j] + slope : slope;
    }
}

static void layer_norm_backward(struct device *device, const float *x, const float *weight, const float *statistics,
                                const float *dy, float *dx, bool adds, float *dweight, float *dbias, size_t rows,
                                size_t size) {
    call c(device, "layer_norm_backward");
    const float *input = c.in(x, rows * size), *w = c.in(weight, size), *saved = c.in(statistics, 2 * rows);
    const float *from = c.in(dy, rows * size);
    float *to = adds ? c.inout(dx, rows * size) : c.out(dx, rows * size);
    float *dw = c.inout(dweight, size), *db = c.inout(dbias, size);
    if (dw || db)
        c.each(size, [=] __device__(size_t j) {
            for (size_t i = 0; i < rows; i++) {
                float g = from[i * size + j], xhat = (input[i * size + j] - saved[2 * i]) * saved[2 * i + 1];
                if (dw) dw[j] = fmaf(g, xhat, dw[j]);
                if (db) db[j] += g;
            }
        });
    if (to)
        c.rows(rows, [=] __device__(size_t i) {
            layer_norm_input(input + i * size, w, saved[2 * i], saved[2 * i + 1], from + i * size, to + i * size, adds,
                             size);
        });
}

__device__ static void rms_norm_row(const float *x, const float *weight, float eps, float *y, float *statistics,
                                    size_t size) {
    float squares = 0;
    for (size_t j = threadIdx.x; j < size; j += GPU_THREADS) squares += x[j] * x[j];
    float scale = 1 / sqrtf(gpu_reduce(squares, gpu_add()) / (float)size + eps);
    if (threadIdx.x == 0) *statistics = scale;
    for (size_t j = threadIdx.x; j < size; j += GPU_THREADS) y[j] = weight ? x[j] * scale * weight[j] : x[j] * scale;
}

static void rms_norm_forward(struct device *device, const float *x, const float *weight, float eps, float *y,
                             float *statistics, size_t rows, size_t size) {
    call c(device, "rms_norm_forward");
    const float *from = c.in(x, rows * size), *w = c.in(weight, size);
    float *to = c.out(y, rows * size), *saved = c.out(statistics, rows);
    c.rows(rows, [=] __device__(size_t i) { rms_norm_row(from + i * size, w, eps, to + i * size, saved + i, size); });
}

/* dx = scale (g - xhat mean(g xhat)) with g = dy weight, xhat = x scale */
__device__ static void rms_norm_input(const float *x, const float *weight, float scale, const float *dy, float *dx,
                                      bool adds, size_t size) {
    float product = 0;
    for (size_t j = threadIdx.x; j < size; j += GPU_THREADS)
        product += (weight ? dy[j] * weight[j] : dy[j]) * (x[j] * scale);
    float mean = gpu_reduce(product, gpu_add()) / (float)size;
    for (size_t j = threadIdx.x; j < size; j += GPU_THREADS) {
        float slope = scale * ((weight ? dy[j] * weight[j] : dy[j]) - x[j] * scale * mean);
        dx[j] = adds ? dx[j] + slope : slope;
    }
}

static void rms_norm_backward(struct device *device, const float *x, const float *weight, const float *statistics,
                              const float *dy, float *dx, bool adds, float *dweight, size_t rows, size_t size) {
    call c(device, "rms_norm_backward");
    const float *input = c.in(x, rows * size), *w = c.in(weight, size), *saved = c.in(statistics, rows);
    const float *from = c.in(dy, rows * size);
    float *to = adds ? c.inout(dx, rows * size) : c.out(dx, rows * size), *dw = c.inout(dweight, size);
    if (dw)
        c.each(size, [=] __device__(size_t j) {
            for (size_t i = 0; i < rows; i++) dw[j] = fmaf(from[i * size + j], input[i * size + j] * saved[i], dw[j]);
        });
    if (to)
        c.rows(rows, [=] __device__(size_t i) {
            rms_norm_input(input + i * size, w, saved[i], from + i * size, to + i * size, adds, size);
        });
}

const struct norm_ops gpu_norms = {.layer_norm_forward = layer_norm_forward,
                                   .layer_norm_backward = layer_norm_backward,
                                   .rms_norm_forward = rms_norm_forward,
                                   .rms_norm_backward = rms_norm_backward};
