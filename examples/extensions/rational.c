/* rational: a learned activation (Molina et al., "Padé activation units", 2020): (a0 + a1 x + a2 x^2 + a3 x^3) /
 * (1 + |b1 x + b2 x^2|), the same for all features. It begins near a relu. */
#include "extension.h"

#include <string.h>

#define POWERS 4 /* of the numerator */
#define BELOW 2  /* of the denominator */

static const float start_a[POWERS] = {0.03f, 0.5f, 0.55f, 0.1f}, start_b[BELOW] = {0, 0.9f};

static status plan(struct layer *layer, struct planning *planning) {
    static const int64_t above = POWERS, below = BELOW;
    layer->out = layer->in;
    layer_declare(layer, planning, "a", 1, &above);
    layer_declare(layer, planning, "b", 1, &below);
    return OK;
}

static void init(const struct layer *layer, const struct params *params, struct rng *rng) {
    (void)rng;
    memcpy(params_value(params, layer->first_param), start_a, sizeof start_a);
    memcpy(params_value(params, layer->first_param + 1), start_b, sizeof start_b);
}

/* The numerator, the part of the denominator before its absolute value. */
struct fraction {
    float above, inner, below;
};

static struct fraction fraction_of(const float *a, const float *b, float x) {
    struct fraction f = {a[0] + x * (a[1] + x * (a[2] + x * a[3])), x * (b[0] + x * b[1]), 0};
    f.below = 1 + fabsf(f.inner);
    return f;
}

static void forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    const float *a = params_value(pass->params, layer->first_param);
    const float *b = params_value(pass->params, layer->first_param + 1);
    for (size_t i = 0; i < pass->rows * layer->in_size; i++) {
        struct fraction f = fraction_of(a, b, floats(o.x)[i]);
        floats(o.y)[i] = f.above / f.below;
    }
}

static void backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    const float *a = params_value(pass->params, layer->first_param);
    const float *b = params_value(pass->params, layer->first_param + 1);
    double da[POWERS] = {0}, db[BELOW] = {0}; /* sums of many numbers */
    for (size_t i = 0; i < pass->rows * layer->in_size; i++) {
        float v = floats(o.x)[i], slope = floats(o.dy)[i];
        struct fraction f = fraction_of(a, b, v);
        float to_above = slope / f.below, to_inner = -slope * f.above / (f.below * f.below) * (f.inner < 0 ? -1 : 1);
        float power = 1;
        for (int k = 0; k < POWERS; k++, power *= v) da[k] += (double)(to_above * power);
        db[0] += (double)(to_inner * v);
        db[1] += (double)(to_inner * v * v);
        if (o.dx)
            floats(o.dx)[i] = to_above * (a[1] + v * (2 * a[2] + v * 3 * a[3])) + to_inner * (b[0] + 2 * b[1] * v);
    }
    for (int k = 0; k < POWERS; k++) params_gradient(pass->params, layer->first_param)[k] += (float)da[k];
    for (int k = 0; k < BELOW; k++) params_gradient(pass->params, layer->first_param + 1)[k] += (float)db[k];
}

static const struct layer_type rational = {
    .variant = {"rational", NULL, "A learned fraction of polynomials of degree 3 and 2."},
    .ignores = IGNORES_Y,
    .plan = plan,
    .init = init,
    .forward = forward,
    .backward = backward,
};

DDPTRAIN_EXTENSION(.layer = &rational);
