/* build: the layers of a config become steps over tensors. Composites (layers/composites.c) use it to build what is
 * inside them. */
#ifndef MODEL_BUILD_H
#define MODEL_BUILD_H

#include "model/model.h"

#define BUILD_MOST_LAYERS 10000
#define BUILD_MOST_LISTS 40000 /* composites expanded, empty ones too */

struct builder {
    size_t lists; /* expanded so far */
    struct model *model;
    size_t layer_capacity, tensor_capacity, step_capacity;
    const struct string_list *freeze;
    bool merges_relu;      /* the layer that is built next is a relu that its neighbour takes over */
    bool has_relu;         /* it takes over the relu before it */
    struct layer **layers; /* while building: the array of struct layer is made at the end */
};

/* Builds the list after tensor [in]; *out is its last tensor ([in] for an empty list). [path]: "model.layers";
 * [prefix]: of names, "" or "h.0." */
status build_list(struct builder *builder, const struct variant_list *list, const char *path, const char *prefix,
                  size_t in, size_t *out);

/* *out = a + b, which must have one shape; else STATUS_USAGE with both shapes. */
status build_sum(struct builder *builder, size_t a, size_t b, size_t *out);

/* Finds the places of the pieces in memory, and its size. */
void build_place(struct model *model);

/* The whole model: layers, gradients' slots. */
status build_model(struct model *model, const struct model_config *config);

#endif
