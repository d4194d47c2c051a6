/* amx_weights: copies of the weights of a convolution in which the channels of a position of the kernel are adjacent,
 * as in the image. */
#ifndef DEVICE_CPU_BF16_AMX_WEIGHTS_H
#define DEVICE_CPU_BF16_AMX_WEIGHTS_H

#include <stddef.h>

struct convolution;

/* The weight of channel o of the outputs, c of the inputs and position t of the kernel is at copy[o * out_stride +
 * p * position_stride + p / (kernel width) * line_gap + c], where p is places[t], or t if places is NULL. */
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
