/* Operators whose elements do not depend on each other, with the formulas of device/activations.h and
 * cpu/sets/kernels.c, and the sums over a whole buffer. */
#include <cmath>

#include "device/activations.h"
#include "device/cuda/gpu.cuh"

static void add(struct device *device, const float *a, const float *b, float *y, size_t count) {
    call c(device, "add");
    const float *from = c.in(a, count), *other = c.in(b, count);
    float *to = c.out(y, count);
    c.each(count, [=] __device__(size_t i) { to[i] = from[i] + other[i]; });
}

static void copy(struct device *device, const float *x, float *y, size_t count) {
    call c(device, "copy");
    const float *from = c.in(x, count);
    float *to = c.out(y, count);
    c.each(count, [=] __device__(size_t i) { to[i] = from[i]; });
}

__device__ static float activate(enum activation f, float x) {
    switch (f) {
    case ACTIVATION_RELU:
        return relu(x);
    case ACTIVATION_TANH:
        return math_tanh(x);
    case ACTIVATION_SIGMOID:
        return sigmoid(x);
    case ACTIVATION_GELU:
        return gelu(x);
    case ACTIVATION_GELU_TANH:
        return gelu_tanh(x);
    case ACTIVATION_SILU:
        return x / (1 + math_exp(-x));
    }
    return x;
}

__device__ static float activate_back(enum activation f, float x, float y, float dy) {
    switch (f) {
    case ACTIVATION_RELU:
        return y > 0 ? dy : 0;
    case ACTIVATION_TANH:
        return dy * (1 - y * y);
    case ACTIVATION_SIGMOID:
        return dy * (1 - y) * y;
    case ACTIVATION_GELU:
        return dy * gelu_slope(x, y);
    case ACTIVATION_GELU_TANH:
        return dy * gelu_tanh_slope(x);
    case ACTIVATION_SILU:
        return dy * silu_slope(x);
    }
    return dy;
}

static void activation_forward(struct device *device, enum activation f, const float *x, float *y, size_t count) {
    call c(device, "activation_forward");
    const float *from = c.in(x, count);
    float *to = c.out(y, count);
    c.each(count, [=] __device__(size_t i) { to[i] = activate(f, from[i]); });
}

static void activation_backward(struct device *device, enum activation f, const float *x, const float *y,
                                const float *dy, float *dx, size_t count) {
    call c(device, "activation_backward");
    const float *input = c.in(x, count), *output = c.in(y, count), *from = c.in(dy, count);
    float *to = c.out(dx, count);
    c.each(count, [=] __device__(size_t i) { /* what f does not look at may be NULL */
                                             to[i] = activate_back(f, input ? input[i] : 0, output ? output[i] : 0,
                                                                   from[i]);
    });
}

static void leaky_relu_forward(struct device *device, float slope, const float *x, float *y, size_t count) {
    call c(device, "leaky_relu_forward");
    const float *from = c.in(x, count);
    float *to = c.out(y, count);
    c.each(count, [=] __device__(size_t i) { to[i] = from[i] > 0 ? from[i] : slope * from[i]; });
}

static void leaky_relu_backward(struct device *device, float slope, const float *x, const float *dy, float *dx,
                                size_t count) {
    call c(device, "leaky_relu_backward");
    const float *input = c.in(x, count), *from = c.in(dy, count);
    float *to = c.out(dx, count);
    c.each(count, [=] __device__(size_t i) { to[i] = input[i] > 0 ? from[i] : slope * from[i]; });
}

/* Four elements of a row from one counter, as on the CPU (cpu/sets/kernels.c). */
static void dropout(struct device *device, const struct draw_key *key, float p, const float *x, float *y, size_t rows,
                    size_t size) {
    call c(device, "dropout");
    const float *from = c.in(x, rows * size);
    float *to = c.out(y, rows * size), scale = 1 / (1 - p);
    uint32_t key0 = (uint32_t)key->seed ^ (uint32_t)(key->seed >> 32) * 0x85ebca6bu, key1 = key->stream;
    uint32_t least = p >= 1 ? 0xffffffffu : (uint32_t)((double)p * 0x1p32); /* kept when the word is >= least */
    struct draw_key k = *key;
    size_t blocks = (size + 3) / 4;
    c.each(rows * blocks, [=] __device__(size_t n) {
        size_t i = n / blocks, j = n % blocks * 4;
        uint64_t row = k.first_row + i * k.row_stride;
        uint32_t word[4] = {(uint32_t)(j / 4), (uint32_t)row, (uint32_t)k.step,
                            (uint32_t)(k.step >> 32) ^ (uint32_t)(row >> 32) << 16};
        philox(word, key0, key1);
        for (size_t l = 0; l < 4 && j + l < size; l++) {
            size_t e = i * size + j + l;
            to[e] = word[l] >= least && p < 1 ? from[e] * scale : 0;
        }
    });
}

static float norm(struct device *device, const float *x, size_t count) {
    call c(device, "norm");
    const float *from = c.in(x, count);
    return (float)sqrt(c.sum(count, [=] __device__(size_t i) { return (double)from[i] * (double)from[i]; }));
}

static bool is_finite(struct device *device, const float *x, size_t count) {
    call c(device, "is_finite");
    const float *from = c.in(x, count);
    double bad = c.sum(
        count, [=] __device__(size_t i) { return (bits_of_float(from[i]) & 0x7f800000u) == 0x7f800000u ? 1.0 : 0.0; });
    return bad == 0;
}

static void add_relu(struct device *device, const float *a, const float *b, float *y, size_t count) {
    call c(device, "add_relu");
    const float *from = c.in(a, count), *other = c.in(b, count);
    float *to = c.out(y, count);
    c.each(count, [=] __device__(size_t i) { to[i] = relu(from[i] + other[i]); });
}

static void relu_backward(struct device *device, const float *y, const float *dy, float *dx, size_t count) {
    call c(device, "relu_backward");
    const float *output = c.in(y, count), *from = c.in(dy, count);
    float *to = c.out(dx, count);
    c.each(count, [=] __device__(size_t i) { to[i] = output[i] > 0 ? from[i] : 0; });
}

static void transpose(struct device *device, const float *x, float *y, size_t rows, size_t height, size_t width) {
    call c(device, "transpose");
    size_t size = height * width;
    const float *from = c.in(x, rows * size);
    float *to = c.out(y, rows * size);
    c.each(rows * size, [=] __device__(size_t n) {
        size_t i = n / size, w = n % size / height, h = n % height;
        to[n] = from[i * size + h * width + w];
    });
}

const struct image_ops gpu_images = {.add_relu = add_relu, .relu_backward = relu_backward, .transpose = transpose};

const struct device_ops gpu_elementwise = {.add = add,
                                           .activation_forward = activation_forward,
                                           .activation_backward = activation_backward,
                                           .dropout = dropout,
                                           .norm = norm,
                                           .is_finite = is_finite,
                                           .leaky_relu_forward = leaky_relu_forward,
                                           .leaky_relu_backward = leaky_relu_backward,
                                           .copy = copy};
