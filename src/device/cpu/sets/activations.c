/* Activations: plain loops the compiler vectorises, over the exp, tanh and erf of math.h. */
#include "device/cpu/sets/math.h"
#include "device/cpu/sets/set.h"

#define SQRT_HALF 0.70710678118654752440f
#define INV_SQRT_2PI 0.39894228040143267794f
#define SQRT_2_OVER_PI 0.79788456080286535588f
#define GELU_CUBIC 0.044715f

static inline float relu(float x) { return x > 0 ? x : (x != x ? x : 0); } /* NaN stays NaN, as in PyTorch */
static inline float sigmoid(float x) { return 1 / (1 + math_exp(-x)); }
static inline float gelu(float x) { return x * 0.5f * (1 + math_erf(x * SQRT_HALF)); }
static inline float gelu_inner(float x) { return math_tanh(SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x)); }
static inline float gelu_tanh(float x) { return 0.5f * x * (1 + gelu_inner(x)); }

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

/* d/dx [x Phi(x)] = Phi(x) + x phi(x), with Phi = y / x */
static inline float gelu_slope(float x, float y) {
    float phi = fabsf(x) > 1e-30f ? y / x : 0.5f;
    return phi + x * INV_SQRT_2PI * math_exp(-0.5f * x * x);
}

/* t = tanh(c (x + a x^3));  d/dx [x (1 + t) / 2] = (1 + t) / 2 + x (1 - t^2) c (1 + 3 a x^2) / 2 */
static inline float gelu_tanh_slope(float x) {
    float t = gelu_inner(x);
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * SQRT_2_OVER_PI * (1 + 3 * GELU_CUBIC * x * x);
}

/* d/dx [x s(x)] = s (1 + x (1 - s)) */
static inline float silu_slope(float x) {
    float s = sigmoid(x);
    return s * (1 + x * (1 - s));
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
