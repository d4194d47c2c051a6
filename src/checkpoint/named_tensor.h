/* named_tensor: a tensor of float32 under its state_dict name, for writing files of weights. */
#ifndef CHECKPOINT_NAMED_TENSOR_H
#define CHECKPOINT_NAMED_TENSOR_H

#include <stddef.h>
#include <stdint.h>

struct named_tensor {
    const char *name;
    int dims; /* at most MAX_DIMS */
    const int64_t *shape;
    const float *values; /* (product of shape) */
};

static inline size_t named_tensor_elements(const struct named_tensor *tensor) {
    size_t count = 1;
    for (int d = 0; d < tensor->dims; d++) count *= (size_t)tensor->shape[d];
    return count;
}

#endif
