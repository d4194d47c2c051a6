/* activations: the tables of element-wise functions. A new one is a row here and its two formulas: enum activation, the
 * CPU's loops for every instruction set (cpu/sets/elementwise.c), the GPU's kernels (cuda/elementwise.cu) and its layer
 * (model/layers/activations.c) follow from them. The functions of activation <name> are
 *
 *     float <name>_value(float x);                            y = f(x)
 *     float <name>_gradient(float x, float y, float dy);      dy f'(x), from x or y
 *
 * and PyTorch's. They need no loop; without branches and calls of libraries the loops are vectorised. */
#pragma once

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
    X(ACTIVATION_LOGSIGMOID, logsigmoid, LogSigmoid, 0, "log(1 / (1 + exp(-x))) (torch.nn.LogSigmoid).")               \
    X(ACTIVATION_SOFTSIGN, softsign, Softsign, 0, "x / (1 + |x|) (torch.nn.Softsign).")                                \
    X(ACTIVATION_TANHSHRINK, tanhshrink, Tanhshrink, 0, "x - tanh(x) (torch.nn.Tanhshrink).")

/* All: also the two functions of the layer gelu. */
#define ACTIVATIONS(X)                                                                                                 \
    ACTIVATION_LAYERS(X)                                                                                               \
    X(ACTIVATION_GELU, gelu, GELU, 0, NULL)                                                                            \
    X(ACTIVATION_GELU_TANH, gelu_tanh, GELU, 0, NULL)

enum activation {
#define X(id, name, module, properties, doc) id,
    ACTIVATIONS(X)
#undef X
};
#define X(id, name, module, properties, doc) +1
enum { ACTIVATION_COUNT = 0 ACTIVATIONS(X) };
#undef X

/* Those whose layers have keys, numbers a and b. X(id, name, properties). The functions of <name> are
 *
 *     float <name>_value(float a, float b, float x);               y = f(x)
 *     float <name>_gradient(float a, float b, float x, float dy);  dy f'(x)
 *
 * and its layer with the keys is a row of KEYED_LAYERS (model/layers/activations.c); affine is of no layer alone. */
#define KEYED_ACTIVATIONS(X)                                                                                           \
    X(KEYED_LEAKY_RELU, leaky_relu, ACTIVATION_IS_CHEAP)                                                               \
    X(KEYED_ELU, elu, 0)                                                                                               \
    X(KEYED_CELU, celu, 0)                                                                                             \
    X(KEYED_SOFTPLUS, softplus, 0)                                                                                     \
    X(KEYED_HARDTANH, hardtanh, ACTIVATION_IS_CHEAP)                                                                   \
    X(KEYED_THRESHOLD, threshold, ACTIVATION_IS_CHEAP)                                                                 \
    X(KEYED_SOFTSHRINK, softshrink, ACTIVATION_IS_CHEAP)                                                               \
    X(KEYED_HARDSHRINK, hardshrink, ACTIVATION_IS_CHEAP)                                                               \
    X(KEYED_AFFINE, affine, ACTIVATION_IS_CHEAP)

enum keyed_function {
#define X(id, name, properties) id,
    KEYED_ACTIVATIONS(X)
#undef X
};
#define X(id, name, properties) +1
enum { KEYED_ACTIVATION_COUNT = 0 KEYED_ACTIVATIONS(X) };
#undef X

struct keyed_activation {
    enum keyed_function f;
    float a, b;
};

static inline int activation_properties(enum activation f) {
#define X(id, name, module, properties, doc) properties,
    static const int of[] = {ACTIVATIONS(X)};
#undef X
    return of[f];
}

static inline int keyed_properties(enum keyed_function f) {
#define X(id, name, properties) properties,
    static const int of[] = {KEYED_ACTIVATIONS(X)};
#undef X
    return of[f];
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

/* min(x, 0) - log(1 + e^-|x|) */
FORMULA float logsigmoid_value(float x) { return (x > 0 ? 0 : x) - math_log1p_unit(math_exp(-fabsf(x))); }
FORMULA float logsigmoid_gradient(float x, float y, float dy) { return (void)y, dy * sigmoid_value(-x); }

FORMULA float softsign_value(float x) { return x / (1 + fabsf(x)); }
FORMULA float softsign_gradient(float x, float y, float dy) {
    float d = 1 + fabsf(x);
    return (void)y, dy / (d * d);
}

/* 1 - (1 - tanh(x)^2) */
FORMULA float tanhshrink_value(float x) { return x - math_tanh(x); }
FORMULA float tanhshrink_gradient(float x, float y, float dy) {
    float t = math_tanh(x);
    return (void)y, dy * (t * t);
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

/* ---- with keys ---- */

/* a: negative_slope */
FORMULA float leaky_relu_value(float a, float b, float x) { return (void)b, x > 0 ? x : a * x; }
FORMULA float leaky_relu_gradient(float a, float b, float x, float dy) { return (void)b, x > 0 ? dy : a * dy; }

/* 1, or below 0 a slope between low and high, drawn by a random word. */
FORMULA float rrelu_slope(float low, float high, float x, uint32_t word) {
    return x > 0 ? 1 : fmaf(high - low, (float)(word >> 8) * 0x1p-24f, low);
}

FORMULA float affine_value(float a, float b, float x) { return fmaf(a, x, b); }
FORMULA float affine_gradient(float a, float b, float x, float dy) { return (void)b, (void)x, a * dy; }

/* a: alpha */
FORMULA float elu_value(float a, float b, float x) { return (void)b, x > 0 ? x : a * math_expm1(x); }
FORMULA float elu_gradient(float a, float b, float x, float dy) { return (void)b, x > 0 ? dy : (a * dy) * math_exp(x); }

/* a: alpha; b: 1 / alpha */
FORMULA float celu_value(float a, float b, float x) { return x > 0 ? x : a * math_expm1(x * b); }
FORMULA float celu_gradient(float a, float b, float x, float dy) { return (void)a, x > 0 ? dy : dy * math_exp(x * b); }

/* a: beta; b: threshold. With z = beta x: x where z is above it, else log(1 + e^z) / beta, log(1 + e^z) = max(z, 0) +
 * log(1 + e^-|z|) */
FORMULA float softplus_value(float a, float b, float x) {
    float z = a * x, y = ((z > 0 ? z : 0) + math_log1p_unit(math_exp(-fabsf(z)))) / a;
    return z > b ? x : y;
}
FORMULA float softplus_gradient(float a, float b, float x, float dy) {
    float z = a * x, dx = dy * sigmoid_value(z);
    return z > b ? dy : dx;
}

/* a: min_val; b: max_val */
FORMULA float hardtanh_value(float a, float b, float x) { return x < a ? a : x > b ? b : x; }
FORMULA float hardtanh_gradient(float a, float b, float x, float dy) { return x <= a || x >= b ? 0 : dy; }

/* a: threshold; b: value */
FORMULA float threshold_value(float a, float b, float x) { return x <= a ? b : x; }
FORMULA float threshold_gradient(float a, float b, float x, float dy) { return (void)b, x <= a ? 0 : dy; }

/* a: lambd. NaN is not changed. */
FORMULA float softshrink_value(float a, float b, float x) { return (void)b, x > a ? x - a : x < -a ? x + a : x * 0; }
FORMULA float softshrink_gradient(float a, float b, float x, float dy) { return (void)b, x >= -a && x <= a ? 0 : dy; }

/* a: lambd */
FORMULA float hardshrink_value(float a, float b, float x) { return (void)b, x >= -a && x <= a ? 0 : x; }
FORMULA float hardshrink_gradient(float a, float b, float x, float dy) { return (void)b, x >= -a && x <= a ? 0 : dy; }
