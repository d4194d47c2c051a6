/* emit: what the writers of a model in other formats read of it. Each layer writes itself: struct layer_type's [onnx]
 * and [c]. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model;

#define NO_PARAM SIZE_MAX /* as the index of a parameter or a buffer: there is none */

struct emitted_model {
    const struct model *model;                   /* planned; it has no memory */
    const float *const *params, *const *buffers; /* (model->params.count), (model->buffers.count) their values */
    const bool *reads_lengths; /* (model->lengths_count) an operation leaves out what is behind these lengths */
};
