/* Activations: plain loops the compiler vectorises, over the exp, tanh and erf of math.h. */
#include "device/activations.h"
#include "device/cpu/sets/set.h"

void IN_SET(activation_forward)(enum activation f, const float *restrict x, float *restrict y, size_t count) {
    switch (f) {
    case ACTIVATION_RELU:
        for (size_t i = 0; i < count; i++) y[i] = relu(x[i]);
        break;
    case ACTIVATION_TANH:
        for (size_t i = 0; i < count; i++) y[i] = math_tanh(x[i]);
        break;
    case ACTIVATION_SIGMOID:
        for (size_t i = 0; i < count; i++) y[i] = sigmoid(x[i]);
        break;
    case ACTIVATION_GELU:
        for (size_t i = 0; i < count; i++) y[i] = gelu(x[i]);
        break;
    case ACTIVATION_GELU_TANH:
        for (size_t i = 0; i < count; i++) y[i] = gelu_tanh(x[i]);
        break;
    case ACTIVATION_SILU:
        for (size_t i = 0; i < count; i++) y[i] = x[i] / (1 + math_exp(-x[i]));
        break;
    }
}

void IN_SET(activation_backward)(enum activation f, const float *restrict x, const float *restrict y,
                                 const float *restrict dy, float *restrict dx, size_t count) {
    switch (f) {
    case ACTIVATION_RELU:
        for (size_t i = 0; i < count; i++) dx[i] = y[i] > 0 ? dy[i] : 0;
        break;
    case ACTIVATION_TANH:
        for (size_t i = 0; i < count; i++) dx[i] = dy[i] * (1 - y[i] * y[i]);
        break;
    case ACTIVATION_SIGMOID:
        for (size_t i = 0; i < count; i++) dx[i] = dy[i] * (1 - y[i]) * y[i];
        break;
    case ACTIVATION_GELU:
        for (size_t i = 0; i < count; i++) dx[i] = dy[i] * gelu_slope(x[i], y[i]);
        break;
    case ACTIVATION_GELU_TANH:
        for (size_t i = 0; i < count; i++) dx[i] = dy[i] * gelu_tanh_slope(x[i]);
        break;
    case ACTIVATION_SILU:
        for (size_t i = 0; i < count; i++) dx[i] = dy[i] * silu_slope(x[i]);
        break;
    }
}

void IN_SET(leaky_relu_forward)(float slope, const float *restrict x, float *restrict y, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] = x[i] > 0 ? x[i] : slope * x[i];
}

void IN_SET(leaky_relu_backward)(float slope, const float *restrict x, const float *restrict dy, float *restrict dx,
                                 size_t count) {
    for (size_t i = 0; i < count; i++) dx[i] = x[i] > 0 ? dy[i] : slope * dy[i];
}
