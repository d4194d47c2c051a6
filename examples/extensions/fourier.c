/* fourier: random Fourier features (Rahimi and Recht, 2007): y = sqrt(2 / n) cos(w x + b), with w and b drawn once and
 * not trained, so that a linear layer after it is a kernel machine. They are buffers, which checkpoints hold. */
#include "extension.h"

#include "base/numbers/rng.h"

struct fourier_config {
    int64_t features;
    double scale;
};

static const struct schema_row keys[] = {
    SCHEMA_ROW(INT, struct fourier_config, features, .flags = SCHEMA_REQUIRED, .min = 1, .max = 1 << 20,
               .doc = "Number of outputs."),
    SCHEMA_ROW(REAL, struct fourier_config, scale, .fallback = "1", .min = 0, .max = INFINITY, .excludes_min = true,
               .doc = "Width of the kernel: w is drawn from a normal distribution with deviation 1 / scale."),
    {0},
};
static const struct schema schema = {
    .name = "model.layers.fourier", .size = sizeof(struct fourier_config), .rows = keys, .shorthand = "features"};

static size_t width(const struct layer *layer) { return (size_t)layer->in.size[layer->in.dims - 1]; }
static size_t features(const struct layer *layer) { return (size_t)layer->out.size[layer->out.dims - 1]; }

static status plan(struct layer *layer, struct planning *planning) {
    const struct fourier_config *c = layer->config;
    int64_t shape[] = {c->features, (int64_t)width(layer)};
    layer->out = layer->in;
    layer->out.size[layer->out.dims - 1] = c->features;
    params_declare(planning->buffers, planning->arena, arena_printf(planning->arena, "%s.w", layer->name), 2, shape);
    params_declare(planning->buffers, planning->arena, arena_printf(planning->arena, "%s.b", layer->name), 1, shape);
    return OK;
}

static void init_buffers(const struct layer *layer, const struct params *buffers) {
    const struct fourier_config *c = layer->config;
    struct rng rng;
    rng_seed(&rng, 1 + (uint64_t)layer->stream);
    rng_normal(&rng, params_value(buffers, layer->first_buffer), features(layer) * width(layer), 0, 1 / c->scale);
    rng_uniform(&rng, params_value(buffers, layer->first_buffer + 1), features(layer), 0, 6.28318530718);
}

/* w x + b of feature [k] */
static float phase(const float *w, const float *b, const float *x, size_t size, size_t k) {
    float sum = b[k];
    for (size_t i = 0; i < size; i++) sum += w[k * size + i] * x[i];
    return sum;
}

static void forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    const float *w = params_value(pass->buffers, layer->first_buffer);
    const float *b = params_value(pass->buffers, layer->first_buffer + 1), *from = floats(o.x);
    size_t size = width(layer), count = features(layer), rows = pass->rows * layer->in_size / size;
    float *to = floats(o.y), scale = sqrtf(2 / (float)count);
    for (size_t r = 0; r < rows; r++)
        for (size_t k = 0; k < count; k++) to[r * count + k] = scale * cosf(phase(w, b, from + r * size, size, k));
}

static void backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    const float *w = params_value(pass->buffers, layer->first_buffer);
    const float *b = params_value(pass->buffers, layer->first_buffer + 1), *from = floats(o.x), *slope = floats(o.dy);
    size_t size = width(layer), count = features(layer), rows = pass->rows * layer->in_size / size;
    float *to = o.dx ? floats(o.dx) : NULL, scale = sqrtf(2 / (float)count);
    for (size_t r = 0; to && r < rows; r++) {
        for (size_t i = 0; i < size; i++) to[r * size + i] = 0;
        for (size_t k = 0; k < count; k++) {
            float d = -slope[r * count + k] * scale * sinf(phase(w, b, from + r * size, size, k));
            for (size_t i = 0; i < size; i++) to[r * size + i] += d * w[k * size + i];
        }
    }
}

static const struct layer_type fourier = {
    .variant = {"fourier", &schema, "Random Fourier features of the last dimension."},
    .ignores = IGNORES_Y,
    .uses_last_dimension = true,
    .plan = plan,
    .init_buffers = init_buffers,
    .forward = forward,
    .backward = backward,
};

DDPTRAIN_EXTENSION(.layer = &fourier);
