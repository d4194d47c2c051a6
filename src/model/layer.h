/* layer: one step of a model. A type of layer is a row of the table in layer.c and a file in layers/; how to add one:
 * docs/adding.md. A layer says its keys, its output shape and parameters (plan), its initial weights, and how it runs.
 */
#ifndef MODEL_LAYER_H
#define MODEL_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "base/schema.h"
#include "device/device.h"
#include "device/image.h"
#include "model/params.h"
#include "model/placement.h"

/* The shape of one row: without the batch dimension. */
struct shape {
    int dims;
    int64_t size[MODEL_MAX_DIMS];
    bool is_channels_last; /* (channels, height, width) or (channels, length) with the channels innermost in memory */
    bool is_tokens;        /* int32_t token ids instead of floats: only a model's inputs */
    int64_t vocabulary;    /* with is_tokens: ids are below */
};

size_t shape_elements(const struct shape *shape);
/* "13" or "(1, 28, 28)" */
void shape_print(const struct shape *shape, struct text *out);

/* Keys that every layer takes. */
struct layer_common {
    const char *name; /* replaces the index in parameter names; NULL: the index */
};

/* Who takes gradients as soon as they are complete: elements [first, first + count) of that of parameter [index], which
 * stand at [gradient] during the call. Afterwards the layer's backward does not read the parameter any more. */
struct gradient_parts {
    void (*take)(void *user, size_t index, size_t first, size_t count, float *gradient);
    void *user;
};

/* What a pass over one batch needs to know. The caller sets the first part, the model the second. */
struct pass {
    struct device *device;
    size_t rows;
    bool is_training;
    struct draw_key draws; /* stream is set per layer */
    /* For layers that look at the rows of all processes; NULL: this one is alone. All processes make the same passes.
     */
    const struct all_sum *all_sum;

    const struct gradient_parts *parts; /* model_backward_in_parts; NULL: gradients stay in params */
    const struct params *params;        /* of the model */
    const struct params *buffers;       /* state that is saved but not learned (running statistics); no gradients */
};

struct layer;

/* What a layer declares itself into. */
struct planning {
    struct params *params, *buffers;
    struct arena *arena;
};

struct builder;

/* The order in memory that a layer wants of rows with several dimensions; build.c reorders where neighbours differ. */
enum memory_order {
    ORDER_PLAIN,         /* row-major, as the shape is written */
    ORDER_ANY,           /* either; the output is as the input */
    ORDER_CHANNELS_LAST, /* struct shape's is_channels_last */
};

/* How a layer can take over a relu beside it (layer->has_relu), which saves passes over memory. */
enum relu_place {
    RELU_NONE,
    RELU_AFTER,  /* forward applies it; the model takes it off dy before backward */
    RELU_INSIDE, /* after it; forward and backward apply it */
    RELU_BEFORE, /* before it; forward and backward apply it */
};

/* A layer as one side of GELU by tanh, where the device does both sides and the GELU as one: what lies between is in
 * the device's form (struct gelu_ops), the rest as forward and backward have it. */
struct layer_around_gelu {
    void (*forward_before)(const struct layer *layer, const struct pass *pass, const float *x, void *kept, void *y);
    void (*forward_after)(const struct layer *layer, const struct pass *pass, const void *y, float *to);
    void (*backward_after)(const struct layer *layer, const struct pass *pass, const void *y, const void *kept,
                           const float *dy, void *dkept);
    void (*backward_before)(const struct layer *layer, const struct pass *pass, const float *x, const void *dkept,
                            float *dx);
};

/* Operands of a layer's operators, as struct narrow of device/device.h names them. BY_ELEMENT: what stands side by side
 * does not matter to it, so rows in all must be a size that the device takes, not their last dimension or channels. */
enum { NARROW_X = 1, NARROW_Y = 2, NARROW_DY = 4, NARROW_DX = 8, NARROW_ALL = 15, NARROW_BY_ELEMENT = 16 };

/* What PyTorch's autocast makes of a layer: its output is as its input; or it is a product, which rounds its input and
 * makes 16 bits; or its output is float32. */
enum autocast { AUTOCAST_AS_INPUT, AUTOCAST_PRODUCT, AUTOCAST_FLOAT32 };

struct layer_type {
    struct schema_variant variant;
    /* Not NULL: a composite. It builds the layers inside it instead of being one; nothing below is used. Tensors are
     * named by index (model.h); [path] and [name] as in struct layer. */
    status (*expand)(struct builder *builder, const struct variant *variant, const char *path, const char *name,
                     size_t in, size_t *out);
    /* The output is the input: no memory of its own, forward and backward are not called (flatten). */
    bool is_view;
    enum memory_order order;
    enum relu_place relu;
    /* What backward does not look at; where nobody else needs it either, its memory is used again. */
    enum { IGNORES_NOTHING, IGNORES_X = 1, IGNORES_Y = 2, IGNORES_X_AND_Y = 3 } ignores;
    /* backward can add its dx to what is there (layer->adds_to_dx) instead of setting it. */
    bool can_add_to_dx;
    /* Its input may be token ids; others are refused them. */
    bool takes_tokens;
    /* Whether a device has the operators that it calls. NULL: every device has. */
    bool (*runs_on)(const struct device_ops *ops);
    /* STATUS_USAGE where those operators cannot do this layer's sizes; the caller adds the place and the device. NULL:
     * they do all. */
    status (*check_device)(const struct layer *layer, const struct device_ops *ops);
    /* Sets layer->out from layer->in, declares parameters and buffers, sets saved_size. Errors say what does not fit;
     * the caller adds the place. */
    status (*plan)(struct layer *layer, struct planning *planning);
    /* Makes layer->runtime for passes of up to [batch] rows, and takes it away. NULL: nothing to make. */
    status (*alloc)(struct layer *layer, struct device *device, size_t batch);
    void (*release)(struct layer *layer, struct device *device);
    /* Makes the runtime ready for passes of exactly [rows] rows, so that they allocate nothing. NULL: it always is. */
    status (*prepare)(struct layer *layer, struct device *device, size_t rows, bool is_training);
    /* Fills the parameters with PyTorch's default initial weights, drawing in its order. NULL: no parameters. */
    void (*init)(const struct layer *layer, const struct params *params, struct rng *rng);
    /* Buffers that do not start at 0 (running_var). NULL: all do. */
    void (*init_buffers)(const struct layer *layer, const struct params *buffers);
    /* y (rows, out) from x (rows, in); may leave what backward needs in layer->saved */
    void (*forward)(const struct layer *layer, const struct pass *pass, const float *x, float *y);
    /* Parameter gradients += ; dx (rows, in), unless NULL (nothing before it needs it), = or += dL/dx */
    void (*backward)(const struct layer *layer, const struct pass *pass, const float *x, const float *y,
                     const float *dy, float *dx);
    /* Elements of the first parameter's gradient that backward can make at a time where pass->parts takes them; it then
     * hands them on itself. NULL, or 0: all at once. */
    size_t (*gradient_part)(const struct layer *layer);
    /* y from x as the forward pass before made it, for little: then y need not be kept for layers behind whose backward
     * looks at it. NULL: it is kept. */
    void (*remake)(const struct layer *layer, const struct pass *pass, const float *x, float *y);
    /* Which operands of its operators, forward and back, may be 16 bits where the device keeps such; and whether this
     * layer's sizes let them. NULL: they do. */
    int narrow;
    enum autocast autocast;
    bool (*can_narrow)(const struct layer *layer);
    /* NULL: it is not done as one with a GELU. */
    const struct layer_around_gelu *around_gelu;
    /* Whether a pass in training calls pass->all_sum, so that all ranks must be in it. NULL: never. */
    bool (*sums_over_ranks)(const struct layer *layer);
    /* Fewest rows of a pass in training, of all ranks together where it sums over them. NULL: one. */
    size_t (*least_rows)(const struct layer *layer);
    /* Multiply-adds of one row forward; NULL: none worth counting. */
    size_t (*multiply_adds)(const struct layer *layer);
};

struct layer {
    const struct layer_type *type;
    const void *config; /* the type's own struct */
    struct place place; /* in the config file */
    const char *path;   /* "model.layers.2.linear": for messages */
    const char *name;   /* prefix of its parameters: "0", its name:, dotted inside composites: "h.0.ln_1" */
    uint32_t stream;    /* of its random numbers: its index */
    struct shape in, out;
    size_t in_size, out_size;          /* elements of one row */
    size_t first_param, param_count;   /* in params */
    size_t tied, tied_count;           /* parameters of a layer before it that it uses, too: 0 or 1 from [tied] */
    size_t first_buffer, buffer_count; /* in buffers */
    size_t saved_size;                 /* floats of one row that forward keeps for backward */
    struct piece saved_piece;
    float *saved; /* (batch, saved_size); NULL before model_alloc or when saved_size is 0 */
    bool adds_to_dx;
    bool has_relu; /* type->relu says where */
    void *runtime; /* the type's own, from alloc to release */
};

/* The table; NULL past its end. For schema rows of `layers:`. */
extern const struct schema_variants layer_variants;
const struct layer_type *layer_type_at(size_t index);

#endif
