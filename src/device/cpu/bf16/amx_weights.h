/* amx_weights: copies of the weights of a convolution in which the channels of a position of the kernel are adjacent,
 * as in the image. */
#ifndef DEVICE_CPU_BF16_AMX_WEIGHTS_H
#define DEVICE_CPU_BF16_AMX_WEIGHTS_H

#include <stddef.h>

struct convolution;

/* Numbers of a copy: o * out_stride + t * position_stride + (t / kernel width) * line_gap + c, where o are channels of
 * the outputs, c of the inputs, and t is a position of the kernel, or places[position] unless places is NULL. */
struct amx_weights {
    const struct convolution *c;
    float *copy;
    size_t out_stride, position_stride, line_gap;
    const size_t *places;
};

/* copy = w (out, in, kernel height, kernel width) */
void amx_copy_weights(const struct amx_weights *weights, const float *w);
/* dw (out, in, kernel height, kernel width) += copy */
void amx_add_weights(const struct amx_weights *weights, float *dw);

#endif
