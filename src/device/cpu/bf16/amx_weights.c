/* Copies of the weights, by all threads. */
#include "device/cpu/bf16/amx_weights.h"

#include "device/cpu/parallel.h"
#include "device/image.h"

#define MIN_WEIGHTS ((size_t)1 << 14) /* of a thread: 20 us */

struct job {
    const struct amx_weights *weights;
    const float *w;
    float *dw;
    size_t in, positions;
};

static float *copy_at(const struct job *x, size_t o, size_t t) {
    const struct amx_weights *weights = x->weights;
    size_t place = weights->places ? weights->places[t] : t, line = place / weights->c->window.kernel[1];
    return weights->copy + o * weights->out_stride + place * weights->position_stride + line * weights->line_gap;
}

static void copy_part(void *context, size_t first, size_t last) {
    const struct job *x = context;
    for (size_t o = first; o < last; o++)
        for (size_t t = 0; t < x->positions; t++) {
            float *to = copy_at(x, o, t);
            for (size_t c = 0; c < x->in; c++) to[c] = x->w[(o * x->in + c) * x->positions + t];
        }
}

static void add_part(void *context, size_t first, size_t last) {
    const struct job *x = context;
    for (size_t o = first; o < last; o++)
        for (size_t t = 0; t < x->positions; t++) {
            const float *from = copy_at(x, o, t);
            for (size_t c = 0; c < x->in; c++) x->dw[(o * x->in + c) * x->positions + t] += from[c];
        }
}

static void for_each_output(const struct amx_weights *weights, const float *w, float *dw, parallel_part *part) {
    const struct convolution *c = weights->c;
    struct job x = {weights, w, dw, c->in.channels, c->window.kernel[0] * c->window.kernel[1]};
    parallel_for(c->out.channels, 1 + MIN_WEIGHTS / (x.positions * x.in), part, &x);
}

void amx_copy_weights(const struct amx_weights *weights, const float *w) {
    for_each_output(weights, w, NULL, copy_part);
}
void amx_add_weights(const struct amx_weights *weights, float *dw) { for_each_output(weights, NULL, dw, add_part); }
