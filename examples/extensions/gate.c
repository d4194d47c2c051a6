/* gate: the first half of the features times the sigmoid of the second half (nn.GLU), in one pass over memory and on
 * all threads: a kernel of one's own. */
#include "extension.h"

#include "device/cpu/parallel.h"

static status plan(struct layer *layer, struct planning *planning) {
    int64_t width = layer->in.size[layer->in.dims - 1];
    (void)planning;
    if (width % 2) return status_new(STATUS_USAGE, "gate needs an even number of features, got %lld", (long long)width);
    layer->out = layer->in;
    layer->out.size[layer->out.dims - 1] = width / 2;
    return OK;
}

/* One pass, forward where [dy] is NULL. */
struct work {
    const float *x, *dy;
    float *out;
    size_t half;
};

static void forward_rows(void *context, size_t first, size_t end) {
    const struct work *w = context;
    for (size_t r = first; r < end; r++) {
        const float *a = w->x + r * 2 * w->half, *b = a + w->half;
        for (size_t i = 0; i < w->half; i++) w->out[r * w->half + i] = a[i] / (1 + expf(-b[i]));
    }
}

static void backward_rows(void *context, size_t first, size_t end) {
    const struct work *w = context;
    for (size_t r = first; r < end; r++) {
        const float *a = w->x + r * 2 * w->half, *b = a + w->half, *dy = w->dy + r * w->half;
        float *da = w->out + r * 2 * w->half, *db = da + w->half;
        for (size_t i = 0; i < w->half; i++) {
            float s = 1 / (1 + expf(-b[i]));
            da[i] = dy[i] * s;
            db[i] = dy[i] * a[i] * s * (1 - s);
        }
    }
}

static void forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    size_t half = (size_t)layer->out.size[layer->out.dims - 1];
    struct work work = {floats(o.x), NULL, floats(o.y), half};
    parallel_for(pass->rows * layer->out_size / half, parallel_items(half), forward_rows, &work);
}

static void backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    size_t half = (size_t)layer->out.size[layer->out.dims - 1];
    if (!o.dx) return;
    struct work work = {floats(o.x), floats(o.dy), floats(o.dx), half};
    parallel_for(pass->rows * layer->out_size / half, parallel_items(half), backward_rows, &work);
}

static const struct layer_type gate = {
    .variant = {"gate", NULL, "The first half of the features times the sigmoid of the second half."},
    .ignores = IGNORES_Y,
    .uses_last_dimension = true,
    .plan = plan,
    .forward = forward,
    .backward = backward,
};

DDPTRAIN_EXTENSION(.layer = &gate);
