/* my_name: a layer of your own. Here it is an activation with two learned numbers for each feature,
 * y = x * sigmoid(a x + b). Change the three functions; `ddptrain extension test my_name.c` compares the gradients with
 * differences. In a config:
 *
 *     extensions: [my_name.c]
 *     model: {layers: [{linear: 64}, my_name, {linear: 1}]}
 */
#include "extension.h"

/* The features: the last dimension of a row. */
static size_t features(const struct layer *layer) { return (size_t)layer->in.size[layer->in.dims - 1]; }

/* Called once: sets layer->out from layer->in and declares the parameters, whose names follow that of the layer. */
static status plan(struct layer *layer, struct planning *planning) {
    int64_t count = (int64_t)features(layer);
    layer->out = layer->in;
    params_declare(planning->params, planning->arena, arena_printf(planning->arena, "%s.a", layer->name), 1, &count);
    params_declare(planning->params, planning->arena, arena_printf(planning->arena, "%s.b", layer->name), 1, &count);
    return OK;
}

/* The initial values. */
static void init(const struct layer *layer, const struct params *params, struct rng *rng) {
    (void)rng; /* for random ones: rng_uniform_fill, rng_normal_fill (base/numbers/rng.h) */
    for (size_t i = 0; i < features(layer); i++) {
        params_value(params, layer->first_param)[i] = 1;
        params_value(params, layer->first_param + 1)[i] = 0;
    }
}

static float sigmoid(float x) { return 1 / (1 + expf(-x)); }

/* y (rows, out) from x (rows, in) */
static void forward(const struct layer *layer, const struct pass *pass, const struct tensor *x,
                    const struct tensor *y) {
    const float *a = params_value(pass->params, layer->first_param);
    const float *b = params_value(pass->params, layer->first_param + 1), *from = floats(x);
    float *to = floats(y);
    size_t count = pass->rows * layer->in_size, width = features(layer);
    for (size_t i = 0; i < count; i++) to[i] = from[i] * sigmoid(a[i % width] * from[i] + b[i % width]);
}

/* From dy (rows, out), the derivative for y: gradients of parameters are added to; dx (rows, in) is set. dx is NULL
 * where no layer before needs it. */
static void backward(const struct layer *layer, const struct pass *pass, const struct tensor *x, const struct tensor *y,
                     const struct tensor *dy, const struct tensor *dx) {
    const float *a = params_value(pass->params, layer->first_param);
    const float *b = params_value(pass->params, layer->first_param + 1), *from = floats(x), *slope = floats(dy);
    float *da = params_gradient(pass->params, layer->first_param);
    float *db = params_gradient(pass->params, layer->first_param + 1), *to = dx ? floats(dx) : NULL;
    size_t count = pass->rows * layer->in_size, width = features(layer);
    (void)y;
    for (size_t i = 0; i < count; i++) {
        size_t k = i % width;
        float s = sigmoid(a[k] * from[i] + b[k]), inner = slope[i] * from[i] * s * (1 - s);
        da[k] += inner * from[i];
        db[k] += inner;
        if (to) to[i] = slope[i] * s + inner * a[k];
    }
}

static const struct layer_type my_name = {
    .variant = {"my_name", NULL, "x * sigmoid(a x + b), with a and b learned for each feature."},
    .ignores = IGNORES_Y, /* backward does not read y, whose memory can then be used again */
    .plan = plan,
    .init = init,
    .forward = forward,
    .backward = backward,
};

DDPTRAIN_EXTENSION(.layer = &my_name);
