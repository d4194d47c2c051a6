/* build: turns the layers of a config into steps over tensors. Composites (layers/composites.c) use it to build the
 * layers inside them. */
#ifndef MODEL_BUILD_H
#define MODEL_BUILD_H

#include "model/model.h"

#define BUILD_MAX_LAYERS 10000
#define BUILD_MAX_LISTS 40000 /* expanded composites, also empty ones */

struct builder {
    size_t lists; /* expanded so far */
    struct model *model;
    size_t layer_capacity, tensor_capacity, step_capacity;
    const struct string_list *freeze;
    bool merges_relu;      /* the next layer is a relu that is fused into its neighbour */
    bool has_relu;         /* the layer includes the relu before it */
    struct layer **layers; /* while building; the array of struct layer is made at the end */
};

/* Builds [list] with the input tensor [in]; *out is its last tensor ([in] for an empty list). [path]: "model.layers";
 * [prefix] of parameter names: "" or "h.0." */
status build_list(struct builder *builder, const struct variant_list *list, const char *path, const char *prefix,
                  size_t in, size_t *out);

/* *out = a + b; both must have the same shape, else STATUS_USAGE with both shapes. */
status build_sum(struct builder *builder, size_t a, size_t b, size_t *out);

/* Computes the memory offsets of all tensors and gradients, and the total size. */
void build_place(struct model *model);

/* Builds the whole model: layers, steps and gradient slots. */
status build_model(struct model *model, const struct model_config *config);

#endif
