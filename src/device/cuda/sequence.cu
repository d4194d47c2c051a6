/* Embedding and softmax. Attention is in attention.cu. */
#include <cmath>

#include "device/cuda/gpu.cuh"

static void embedding_forward(struct device *device, const int32_t *tokens, const float *weight, float *y, size_t count,
                              size_t vocabulary, size_t size) {
    call c(device, "embedding_forward");
    const int32_t *ids = c.in(tokens, count);
    const float *table = c.in(weight, vocabulary * size);
    float *to = c.out(y, count * size);
    c.each(count * size, [=] __device__(size_t i) { to[i] = table[(size_t)ids[i / size] * size + i % size]; });
}

/* A thread for each column, token after token, as on the CPU. */
static void embedding_backward(struct device *device, const int32_t *tokens, const float *dy, float *dweight,
                               size_t count, size_t vocabulary, size_t size) {
    call c(device, "embedding_backward");
    const int32_t *ids = c.in(tokens, count);
    const float *from = c.in(dy, count * size);
    float *table = c.inout(dweight, vocabulary * size);
    c.each(size, [=] __device__(size_t j) {
        for (size_t i = 0; i < count; i++) table[(size_t)ids[i] * size + j] += from[i * size + j];
    });
}

static void add_row(struct device *device, const float *x, const float *row, float *y, size_t rows, size_t size) {
    call c(device, "add_row");
    const float *from = c.in(x, rows * size), *other = c.in(row, size);
    float *to = c.out(y, rows * size);
    c.each(rows * size, [=] __device__(size_t i) { to[i] = from[i] + other[i % size]; });
}

static void sum_rows(struct device *device, const float *x, float *sum, size_t rows, size_t size) {
    call c(device, "sum_rows");
    const float *from = c.in(x, rows * size);
    float *to = c.inout(sum, size);
    c.each(size, [=] __device__(size_t j) {
        for (size_t i = 0; i < rows; i++) to[j] += from[i * size + j];
    });
}

__device__ static void softmax_row(const float *x, float *y, size_t size) {
    float most = x[0], sum = 0;
    for (size_t j = threadIdx.x; j < size; j += GPU_THREADS) most = x[j] > most ? x[j] : most;
    most = gpu_reduce(most, gpu_max());
    for (size_t j = threadIdx.x; j < size; j += GPU_THREADS) sum += math_exp(x[j] - most);
    float scale = 1 / gpu_reduce(sum, gpu_add());
    for (size_t j = threadIdx.x; j < size; j += GPU_THREADS) y[j] = math_exp(x[j] - most) * scale;
}

static void softmax_forward(struct device *device, const float *x, float *y, size_t rows, size_t size) {
    call c(device, "softmax_forward");
    const float *from = c.in(x, rows * size);
    float *to = c.out(y, rows * size);
    c.rows(rows, [=] __device__(size_t i) { softmax_row(from + i * size, to + i * size, size); });
}

/* dx = y (dy - sum(y dy)) */
__device__ static void softmax_row_back(const float *y, const float *dy, float *dx, size_t size) {
    float sum = 0;
    for (size_t j = threadIdx.x; j < size; j += GPU_THREADS) sum += y[j] * dy[j];
    float total = gpu_reduce(sum, gpu_add());
    for (size_t j = threadIdx.x; j < size; j += GPU_THREADS) dx[j] = y[j] * (dy[j] - total);
}

static void softmax_backward(struct device *device, const float *y, const float *dy, float *dx, size_t rows,
                             size_t size) {
    call c(device, "softmax_backward");
    const float *output = c.in(y, rows * size), *from = c.in(dy, rows * size);
    float *to = c.out(dx, rows * size);
    c.rows(rows,
           [=] __device__(size_t i) { softmax_row_back(output + i * size, from + i * size, to + i * size, size); });
}

const struct sequence_ops gpu_sequences = {.embedding_forward = embedding_forward,
                                           .embedding_backward = embedding_backward,
                                           .add_row = add_row,
                                           .sum_rows = sum_rows,
                                           .softmax_forward = softmax_forward,
                                           .softmax_backward = softmax_backward,
                                           .attention_forward = gpu_attention_forward,
                                           .attention_backward = gpu_attention_backward};
