/* build: turns the layers of a config into nodes over tensors. Composites (layers/composites.c) use it to build the
 * layers inside them. */
#pragma once

#include "model/model.h"

#define BUILD_MAX_LAYERS 10000
#define BUILD_MAX_LISTS 40000 /* expanded composites, also empty ones */

#define BUILD_MAX_ELEMENTS ((size_t)1 << 40) /* of a row of an output, and of a parameter */

#define BUILD_MAX_INPUTS 256 /* tensors that a layer joins */

struct scope;

/* While the layers of an entry with `share:` are built: the names of the entry and of the one whose parameters it
 * uses. */
struct sharing {
    const char *own, *other; /* own NULL: not */
};

struct builder {
    size_t lists; /* expanded so far */
    struct model *model;
    size_t layer_capacity, tensor_capacity, node_capacity;
    const struct string_list *freeze;
    const struct model_names *names;
    struct string_list sources; /* all names in `from:` of the config, and those of outputs */
    struct scope *scope;        /* of the list that is being built */
    struct sharing sharing;
    bool merges_relu;      /* the next layer is a relu that is fused into its neighbour */
    bool has_relu;         /* the layer includes the relu before it */
    bool output_is_read;   /* by another layer, apart from its parts */
    struct layer **layers; /* while building; the array of struct layer is made at the end */
    void *by_name;         /* the layers of the config, a tree of tsearch */
};

/* Builds [list] with the input tensor [in]; *out is its last tensor ([in] for an empty list). Names of its layers are
 * known within it and the lists inside it. [path]: "model.layers"; [prefix] of parameter names: "" or "h.0." */
status build_list(struct builder *builder, const struct variant_list *list, const char *path, const char *prefix,
                  size_t in, size_t *out);

/* *out = the sum of the tensors [in] (count, at least 1), which must have the same shape, else STATUS_USAGE with both
 * shapes. */
status build_sum(struct builder *builder, const size_t *in, size_t count, size_t *out);

/* Adds a layer of [type], which takes all inputs of the entry. */
status build_layer(struct builder *builder, const struct layer_type *type, const struct layer_entry *e, size_t *out);

/* *out = the elements from [first] on of each row of tensor [in], as [shape] with its lengths: a part of the output of
 * the layer, known as [part]; NULL: the one that the next layer takes. */
status build_add_part(struct builder *builder, const struct layer_entry *e, const char *part, size_t first,
                      const struct shape *shape, size_t in, size_t *out);

/* Adds the place of the entry, and its path, to a failure. */
status build_at(const struct layer_entry *e, status failure);

/* The nodes from [first] on are a block whose values backward computes again (recompute). */
void build_add_block(struct builder *builder, size_t first);

/* ---- names of outputs, for `from:` ---- */

struct scope {
    const struct scope *outer; /* NULL: the model's list */
    struct output_name {
        const char *name;
        size_t tensor;
        const char *layer;             /* the layer's full name; NULL: an input */
        const struct variant *variant; /* its entry in the config */
    } * items;                         /* (count) */
    size_t count, capacity;
};

/* Makes [tensor] known as [name] in the present scope; STATUS_USAGE if the scope has that name. [layer], [variant]: as
 * in struct output_name. */
status build_add_name(struct builder *builder, const char *name, size_t tensor, const char *layer,
                      const struct variant *variant);

/* Computes the memory offsets of all tensors and gradients, and the total size. */
void build_assign_memory(struct model *model);

/* Builds the whole model: layers, nodes and gradient slots. */
status build_model(struct model *model, const struct model_config *config, const struct model_names *names);
