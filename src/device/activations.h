/* activations: the table of element-wise functions. A new one is a row here and its two formulas: enum activation, the
 * CPU's loops for every instruction set (cpu/sets/elementwise.c), the GPU's kernels (cuda/elementwise.cu) and its layer
 * (model/layers/activations.c) follow from them. The functions of activation <name> are
 *
 *     float <name>_value(float x);                            y = f(x)
 *     float <name>_gradient(float x, float y, float dy);      dy f'(x), from x or y
 *
 * and PyTorch's. They need no loop; without branches and calls of libraries the loops are vectorised. */
#ifndef DEVICE_ACTIVATIONS_H
#define DEVICE_ACTIVATIONS_H

#include "device/math.h"

/* Properties, a sum of: */
enum {
    ACTIVATION_IS_CHEAP = 1,       /* costs about as much as reading x: a thread gets more elements */
    ACTIVATION_IS_PROBABILITY = 2, /* y is a probability */
    ACTIVATION_IS_RELU = 4         /* max(x, 0), which other layers can apply themselves */
};

/* Those with a layer of the same name without keys. X(id, name, PyTorch's module, properties, documentation of the
 * layer) */
#define ACTIVATION_LAYERS(X)                                                                                           \
    X(ACTIVATION_RELU, relu, ReLU, ACTIVATION_IS_CHEAP | ACTIVATION_IS_RELU, "max(x, 0) (torch.nn.ReLU).")             \
    X(ACTIVATION_TANH, tanh, Tanh, 0, "Hyperbolic tangent (torch.nn.Tanh).")                                           \
    X(ACTIVATION_SIGMOID, sigmoid, Sigmoid, ACTIVATION_IS_PROBABILITY, "1 / (1 + exp(-x)) (torch.nn.Sigmoid).")        \
    X(ACTIVATION_SILU, silu, SiLU, 0, "x sigmoid(x), also called swish (torch.nn.SiLU).")                              \
    X(ACTIVATION_RELU6, relu6, ReLU6, ACTIVATION_IS_CHEAP, "min(max(x, 0), 6) (torch.nn.ReLU6).")                      \
    X(ACTIVATION_SELU, selu, SELU, 0, "ELU with the two constants that normalize outputs (torch.nn.SELU).")            \
    X(ACTIVATION_HARDSWISH, hardswish, Hardswish, ACTIVATION_IS_CHEAP, "x relu6(x + 3) / 6 (torch.nn.Hardswish).")     \
    X(ACTIVATION_HARDSIGMOID, hardsigmoid, Hardsigmoid, ACTIVATION_IS_CHEAP | ACTIVATION_IS_PROBABILITY,               \
      "relu6(x + 3) / 6 (torch.nn.Hardsigmoid).")                                                                      \
    X(ACTIVATION_MISH, mish, Mish, 0, "x tanh(softplus(x)) (torch.nn.Mish).")                                          \
    X(ACTIVATION_SOFTPLUS, softplus, Softplus, 0, "log(1 + exp(x)) (torch.nn.Softplus).")

/* All: also the two functions of the layer gelu, and that of elu with alpha 1. */
#define ACTIVATIONS(X)                                                                                                 \
    ACTIVATION_LAYERS(X)                                                                                               \
    X(ACTIVATION_GELU, gelu, GELU, 0, NULL)                                                                            \
    X(ACTIVATION_GELU_TANH, gelu_tanh, GELU, 0, NULL)                                                                  \
    X(ACTIVATION_ELU, elu, ELU, 0, NULL)

enum activation {
#define X(id, name, module, properties, doc) id,
    ACTIVATIONS(X)
#undef X
};
#define X(id, name, module, properties, doc) +1
enum { ACTIVATION_COUNT = 0 ACTIVATIONS(X) };
#undef X

/* Whether f has the [property]. */
static inline int activation_has(enum activation f, int property) {
#define X(id, name, module, properties, doc) properties,
    static const int of[] = {ACTIVATIONS(X)};
#undef X
    return (of[f] & property) != 0;
}

#define FORMULA HOST_DEVICE static inline __attribute__((always_inline))
#define SQRT_HALF 0.70710678118654752440f
#define INV_SQRT_2PI 0.39894228040143267794f
#define SQRT_2_OVER_PI 0.79788456080286535588f
#define GELU_CUBIC 0.044715f

/* NaN is not changed, as in PyTorch. */
FORMULA float relu_value(float x) { return x > 0 ? x : (x != x ? x : 0); }
FORMULA float relu_gradient(float x, float y, float dy) { return (void)x, y > 0 ? dy : 0; }

FORMULA float tanh_value(float x) { return math_tanh(x); }
FORMULA float tanh_gradient(float x, float y, float dy) { return (void)x, dy * (1 - y * y); }

FORMULA float sigmoid_value(float x) { return 1 / (1 + math_exp(-x)); }
FORMULA float sigmoid_gradient(float x, float y, float dy) { return (void)x, dy * (1 - y) * y; }

/* d/dx [x s(x)] = s (1 + x (1 - s)) */
FORMULA float silu_value(float x) { return x / (1 + math_exp(-x)); }
FORMULA float silu_gradient(float x, float y, float dy) {
    float s = sigmoid_value(x);
    return (void)y, dy * (s * (1 + x * (1 - s)));
}

FORMULA float relu6_value(float x) { return x > 6 ? 6 : relu_value(x); }
FORMULA float relu6_gradient(float x, float y, float dy) { return (void)y, x > 0 && x < 6 ? dy : 0; }

FORMULA float elu_value(float x) { return x > 0 ? x : math_expm1(x); }
FORMULA float elu_gradient(float x, float y, float dy) { return (void)y, dy * (x > 0 ? 1 : math_exp(x)); }

#define SELU_SCALE 1.0507009873554804934f
#define SELU_ALPHA_SCALE 1.7580993408473768600f
FORMULA float selu_value(float x) { return x > 0 ? x * SELU_SCALE : math_expm1(x) * SELU_ALPHA_SCALE; }
FORMULA float selu_gradient(float x, float y, float dy) {
    return (void)y, dy * (x > 0 ? SELU_SCALE : SELU_ALPHA_SCALE * math_exp(x));
}

FORMULA float hardsigmoid_value(float x) { return relu6_value(x + 3) / 6; }
FORMULA float hardsigmoid_gradient(float x, float y, float dy) { return (void)y, x > -3 && x < 3 ? dy / 6 : 0; }

FORMULA float hardswish_value(float x) { return x * relu6_value(x + 3) / 6; }
FORMULA float hardswish_gradient(float x, float y, float dy) {
    return (void)y, x <= -3 ? 0 : x < 3 ? dy * (x / 3 + 0.5f) : dy;
}

/* log(1 + e^x) = max(x, 0) + log(1 + e^-|x|) */
FORMULA float softplus_value(float x) { return (x > 0 ? x : 0) + math_log1p_unit(math_exp(-fabsf(x))); }
FORMULA float softplus_gradient(float x, float y, float dy) { return (void)y, dy * sigmoid_value(x); }

/* t = tanh(log(1 + e)) = w / (w + 2), with e = e^x and w = e (e + 2); above 20 it is 1.
 * d/dx [x t] = t + x (1 - t^2) s(x), with 1 - t^2 = 4 (w + 1) / (w + 2)^2 */
FORMULA float mish_value(float x) {
    float e = math_exp(x < 20 ? x : 20), w = e * (e + 2);
    return x * (w / (w + 2));
}
FORMULA float mish_gradient(float x, float y, float dy) {
    float e = math_exp(x < 20 ? x : 20), w = e * (e + 2), slope = 4 * (w + 1) / ((w + 2) * (w + 2));
    return (void)y, dy * (w / (w + 2) + x * slope * sigmoid_value(x));
}

/* d/dx [x Phi(x)] = Phi(x) + x phi(x), with Phi = y / x */
FORMULA float gelu_value(float x) { return x * 0.5f * (1 + math_erf(x * SQRT_HALF)); }
FORMULA float gelu_gradient(float x, float y, float dy) {
    float phi = fabsf(x) > 1e-30f ? y / x : 0.5f;
    return dy * (phi + x * INV_SQRT_2PI * math_exp_negative(-0.5f * x * x));
}

/* t = tanh(c (x + a x^3));  d/dx [x (1 + t) / 2] = (1 + t) / 2 + x (1 - t^2) c (1 + 3 a x^2) / 2 */
FORMULA float gelu_tanh_inner(float x) { return math_tanh(SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x)); }
FORMULA float gelu_tanh_value(float x) { return 0.5f * x * (1 + gelu_tanh_inner(x)); }
FORMULA float gelu_tanh_gradient(float x, float y, float dy) {
    float t = gelu_tanh_inner(x);
    return (void)y, dy * (0.5f * (1 + t) + 0.5f * x * (1 - t * t) * SQRT_2_OVER_PI * (1 + 3 * GELU_CUBIC * x * x));
}

#endif
