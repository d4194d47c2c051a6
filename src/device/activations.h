/* activations: the formulas of enum activation and of their derivatives for one element, shared by the CPU loops and
 * the GPU kernels. They are PyTorch's: GELU by erf, or by tanh (approximate='tanh'). */
#ifndef DEVICE_ACTIVATIONS_H
#define DEVICE_ACTIVATIONS_H

#include "device/math.h"

#define SQRT_HALF 0.70710678118654752440f
#define INV_SQRT_2PI 0.39894228040143267794f
#define SQRT_2_OVER_PI 0.79788456080286535588f
#define GELU_CUBIC 0.044715f

/* NaN is not changed, as in PyTorch. */
HOST_DEVICE static inline float relu(float x) { return x > 0 ? x : (x != x ? x : 0); }
HOST_DEVICE static inline float sigmoid(float x) { return 1 / (1 + math_exp(-x)); }
HOST_DEVICE static inline float gelu(float x) { return x * 0.5f * (1 + math_erf(x * SQRT_HALF)); }
HOST_DEVICE static inline float gelu_inner(float x) { return math_tanh(SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x)); }
HOST_DEVICE static inline float gelu_tanh(float x) { return 0.5f * x * (1 + gelu_inner(x)); }

/* d/dx [x Phi(x)] = Phi(x) + x phi(x), with Phi = y / x */
HOST_DEVICE static inline float gelu_slope(float x, float y) {
    float phi = fabsf(x) > 1e-30f ? y / x : 0.5f;
    return phi + x * INV_SQRT_2PI * math_exp(-0.5f * x * x);
}

/* t = tanh(c (x + a x^3));  d/dx [x (1 + t) / 2] = (1 + t) / 2 + x (1 - t^2) c (1 + 3 a x^2) / 2 */
HOST_DEVICE static inline float gelu_tanh_slope(float x) {
    float t = gelu_inner(x);
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * SQRT_2_OVER_PI * (1 + 3 * GELU_CUBIC * x * x);
}

/* d/dx [x s(x)] = s (1 + x (1 - s)) */
HOST_DEVICE static inline float silu_slope(float x) {
    float s = sigmoid(x);
    return s * (1 + x * (1 - s));
}

#endif
