/* layer: one layer of a model. A layer type is a name in LAYER_TYPES (layers/layers.h) and a file in layers/;
 * docs/adding.md explains how to add one. A layer defines its keys, its output shape and parameters (plan), its initial
 * weights, and how it runs. */
#pragma once

#include "base/numbers/rng.h"
#include "base/schema/schema.h"
#include "device/device.h"
#include "device/image.h"
#include "model/params.h"
#include "model/placement.h"

/* The shape of one row: without the batch dimension. */
struct shape {
    int dims;
    int64_t size[MAX_DIMS];
    bool is_channels_last; /* (channels, height, width) or (channels, length) with the channels innermost in memory */
    bool is_tokens;        /* int32_t token ids instead of floats; only for a model's inputs */
    int64_t vocabulary;    /* with is_tokens: ids are below this */
    int64_t tokens;        /* else, of values that are token ids: these are below it; 0: it is not known */
    size_t input; /* 1 + its first value in a row of the model's inputs; 0: it is not such a part, but computed */
    /* Its first dimension are positions, and a row has only as many as pass_lengths says; later ones are padding. The
     * number of these lengths in the model, from 1; 0: all positions are real. */
    size_t lengths;
};

size_t shape_elements(const struct shape *shape);
/* Whether the sizes are equal, in whatever memory format. */
bool shape_is_equal(const struct shape *a, const struct shape *b);
/* "13" or "(1, 28, 28)" */
struct shape_text {
    char s[MAX_DIMS * 24];
};
struct shape_text shape_text(const struct shape *shape);

/* Keys that every layer takes. */
struct layer_common {
    const char *name;        /* replaces the index in parameter names, and names the output; NULL: the index */
    struct string_list from; /* the outputs that it takes; count 0: that of the layer before */
    const char *share;       /* the layer whose parameters it uses; NULL: its own */
    bool recompute;          /* backward computes again what forward computes inside it */
};

/* Receives gradients as soon as they are complete: elements [first, first + count) of the gradient of parameter
 * [index], stored at [gradient] during the call. The layer's backward does not read the parameter afterwards. */
struct gradient_receiver {
    void (*receive)(void *user, size_t index, size_t first, size_t count, float *gradient);
    void *user;
};

/* The arguments of a pass over one batch. The caller sets the first part, the model the second. */
struct pass {
    struct device *device;
    size_t rows;
    bool is_training;
    struct draw_key draws; /* stream is set per layer */
    /* For layers that use the rows of all ranks; NULL: one rank. All ranks make the same passes. */
    const struct all_sum *all_sum;
    size_t position;  /* of the first row, with cached_positions: the rows are consecutive ones */
    bool is_repeated; /* set by the model: backward runs a forward again, whose running statistics are updated */
    /* The rows follow those of the pass before: layers with carried state begin with it, else with 0. */
    bool continues_rows;

    const struct device_ops *ops;             /* of the device */
    const struct gradient_receiver *receiver; /* model_backward_in_parts; NULL: gradients stay in params */
    const struct params *params;              /* of the model */
    const struct params *buffers; /* state that is saved but not learned (running statistics); no gradients */
    int32_t *lengths;             /* (model->lengths_count, lengths_stride) */
    size_t lengths_stride;
};

/* The lengths (rows) of the rows of a tensor, in device memory; NULL: all positions are real. The layer that declares
 * them (planning->lengths) sets them in its forward. */
static inline int32_t *pass_lengths(const struct pass *pass, const struct shape *shape) {
    return shape->lengths ? pass->lengths + (shape->lengths - 1) * pass->lengths_stride : NULL;
}

struct layer;

/* Where a layer declares its parameters and buffers. */
struct planning {
    struct params *params, *buffers;
    struct arena *arena;
    /* Number of lengths that were declared; a layer that adds some sets layer->out.lengths = ++*lengths. */
    size_t *lengths;
};

struct builder;

/* An entry of a list of layers, or a layer that it consists of. */
struct layer_entry {
    const struct variant *variant; /* its config and place */
    const char *path, *name;       /* as in struct layer */
    const size_t *in;              /* (count) tensors that it takes, by index (model.h); one unless it joins */
    size_t count;
};

/* The memory format (torch.memory_format) that a layer requires for rows with several dimensions; build.c inserts a
 * reorder layer where neighbours differ. */
enum memory_format {
    FORMAT_CONTIGUOUS,    /* row-major, as the shape is written */
    FORMAT_PRESERVE,      /* either, but contiguous if rows have lengths; the output has that of the input */
    FORMAT_CHANNELS_LAST, /* struct shape's is_channels_last */
};

/* How a layer can include an adjacent relu (layer->has_relu), which saves passes over memory. */
enum relu_place {
    RELU_NONE,
    RELU_AFTER,  /* forward applies it; the model applies its derivative to dy before backward */
    RELU_INSIDE, /* after the layer; forward and backward apply it */
    RELU_BEFORE, /* before the layer; forward and backward apply it */
    RELU_ITSELF  /* the layer is a relu */
};

/* A layer before or after a GELU by tanh, where the device runs layer, GELU and layer as one fused operation: tensors
 * between them have the format of struct gelu_ops, the others are as in forward and backward. */
struct layer_around_gelu {
    void (*forward_before)(const struct layer *layer, const struct pass *pass, const struct tensor *x,
                           const struct tensor *kept, const struct tensor *y);
    void (*forward_after)(const struct layer *layer, const struct pass *pass, const struct tensor *y,
                          const struct tensor *to);
    void (*backward_after)(const struct layer *layer, const struct pass *pass, const struct tensor *y,
                           const struct tensor *kept, const struct tensor *dy, const struct tensor *dkept);
    void (*backward_before)(const struct layer *layer, const struct pass *pass, const struct tensor *x,
                            const struct tensor *dkept, const struct tensor *dx);
};

/* What forward reads and writes, and backward. */
struct operands {
    const struct tensor *x; /* of a layer that joins several: x[i] is (rows, elements of ins[i]) */
    const struct tensor *y;
    const struct tensor *dy, *dx; /* NULL in forward */
};

/* Operands of a layer that may be 16 bits, named as in forward and backward. BY_ELEMENT: the layer works
 * element by element, so the device checks the size of all rows together, not the last dimension or the channels. */
enum { HALF_X = 1, HALF_Y = 2, HALF_DY = 4, HALF_DX = 8, HALF_ALL = 15, HALF_BY_ELEMENT = 16 };

/* How PyTorch's autocast treats a layer: the output has the type of the input; or it is a matrix product, which
 * rounds its input and returns 16 bits; or the output is float32. */
enum autocast { AUTOCAST_AS_INPUT, AUTOCAST_PRODUCT, AUTOCAST_FLOAT32 };

/* Which 16-bit copies of float32 matrices (struct half_copy) a layer's products read, of its inputs in forward and of
 * dy in backward: none, those with rows of the last dimension, or those without gaps. */
enum copy_layout { COPY_NONE, COPY_ROWS, COPY_WITHOUT_GAPS };

/* A matrix in layer->saved that one of the layer's operators writes and a product of it reads in the same pass. */
struct inner_matrix {
    size_t size; /* elements of one row of the batch */
    size_t columns;
    bool is_backward; /* in backward; else in forward */
};
#define LAYER_MAX_INNER 4

/* What other code needs to know about a layer besides its shapes. */
struct layer_facts {
    size_t lengths;  /* struct shape's: of those that it leaves out when it attends, steps or reduces; 0: none */
    bool uses_batch; /* its outputs outside of training depend on the rows that are computed together */
    bool reads_tokens;
    int32_t padding; /* of them: the one that is left out; -1: none */
    size_t unscaled; /* 1 + the index of its input whose numbers are tokens, lengths or a mask; 0: none */
    /* What configs of other programs say, too. */
    size_t heads, kv_heads, head_size;  /* 0: it has none; kv_heads: of an attention without projections */
    double rotation_base;               /* with head_size */
    float layer_norm_eps, rms_norm_eps; /* -1: it has none */
    bool is_activation;
    enum activation activation;
};

struct onnx_call;
struct c_call;

struct layer_type {
    struct schema_variant variant;
    const struct schema_alias *aliases; /* of this type and of others of its file; NULL: none */
    /* It takes several inputs (in_count of the layer). */
    bool joins;
    bool takes_one; /* with joins: it may also take the output of the layer before alone */
    /* The outputs that its own keys name: inputs behind those of `from:`. NULL: its keys name none. */
    const struct string_list *(*sources)(const void *config);
    const char *sources_key; /* that names them, for messages */
    /* The output has parts with names: makes them known (build_add_part); *out: the output, then the part that the next
     * layer takes. NULL: it has none. */
    status (*add_parts)(struct builder *builder, const struct layer_entry *e, size_t *out);
    /* Not NULL: a composite, which builds the layers inside it; nothing below is used. *out: the output. */
    status (*expand)(struct builder *builder, const struct layer_entry *e, size_t *out);
    /* The output is a part of the model's inputs (struct shape's input). */
    bool is_input;
    /* The output is the input: it has no memory, and forward and backward are not called (flatten). */
    bool is_view;
    /* The output is the input in another order of memory. */
    bool is_reorder;
    enum memory_format memory_format;
    enum relu_place relu;
    /* What backward does not read; if no other node needs it, its memory is reused. */
    enum { IGNORES_NOTHING, IGNORES_X = 1, IGNORES_Y = 2, IGNORES_X_AND_Y = 3 } ignores;
    /* backward can add dx to the existing gradient (layer->adds_to_dx) instead of setting it. */
    bool can_add_to_dx;
    /* On a device whose operators do (device/image.h): x and dx may have a stride (struct tensor), and backward can add
     * to dx (layer->adds_to_dx). */
    bool takes_strides;
    /* Whether it joins the channels of each position, the innermost dimension in memory, so that an input may be in the
     * memory of its output (concat.h). NULL: never. */
    bool (*joins_channels)(const struct layer *layer);
    /* The input may be token ids; other layers reject them. */
    bool takes_tokens;
    /* It computes each position of (positions, features) alone, or from what it stored of the earlier ones
     * (cached_positions). */
    bool is_by_position;
    /* It may have cached_positions without is_by_position: it computes one from the state after those before it. */
    bool stores_state;
    /* With cached_positions, positions must be below them: it stores each, or has a vector for each. */
    bool limits_positions;
    /* The positions of its output are those of its first input (recurrent layers, prelu), so that their lengths hold
     * for it; is_by_position implies it. */
    bool keeps_positions;
    /* plan sets the lengths of its output. */
    bool sets_lengths;
    /* Its output is probabilities, which losses that compute them from scores do not expect. */
    bool gives_probabilities;
    /* It works on the last dimension alone, so an image must be flattened before it. */
    bool uses_last_dimension;
    /* On the CPU its sums may be a library's, in an order that depends on the number of threads (oneDNN). */
    bool depends_on_threads;
    /* STATUS_USAGE if the device's operators do not support this layer's sizes; the caller adds the config position and
     * the device. NULL: they support all. */
    status (*check_device)(const struct layer *layer, const struct device_ops *ops);
    /* Sets layer->out from layer->in, declares parameters and buffers, sets saved_size. The error says what does not
     * match; the caller adds the config position. */
    status (*plan)(struct layer *layer, struct planning *planning);
    /* STATUS_DATA if the layer cannot use the values of a row of the model's inputs. NULL: it can use any. */
    status (*check_row)(const struct layer *layer, const struct params *params, const float *row);
    /* Creates layer->runtime for passes of up to [batch] rows, and frees it. NULL: no runtime. */
    status (*alloc)(struct layer *layer, struct device *device, size_t batch);
    void (*release)(struct layer *layer, struct device *device);
    /* Prepares the runtime for passes of exactly [rows] rows, so that they allocate nothing. NULL: nothing to
     * prepare. */
    status (*prepare)(struct layer *layer, struct device *device, size_t rows, bool is_training);
    /* Fills the parameters with PyTorch's default initial weights, drawn in PyTorch's order. NULL: no parameters. */
    void (*init)(const struct layer *layer, const struct params *params, struct rng *rng);
    /* Fills buffers that do not start at 0 (running_var). NULL: all start at 0. */
    void (*init_buffers)(const struct layer *layer, const struct params *buffers);
    /* y (rows, out) from x (rows, in); may store values for backward in layer->saved */
    void (*forward)(const struct layer *layer, const struct pass *pass, struct operands o);
    /* x = a + b, then y = forward of x, in one operator, on a device that takes_sum. NULL: no device has one. */
    void (*forward_of_sum)(const struct layer *layer, const struct pass *pass, const struct tensor *a,
                           const struct tensor *b, const struct tensor *x, const struct tensor *y);
    bool (*takes_sum)(const struct device_ops *ops);
    /* Parameter gradients += ; dx (rows, in), unless NULL (no node before needs it), = or += dL/dx. Of a layer that
     * joins: dx[i], without data where it is not needed, = dL/dx[i]; no two are the same memory. */
    void (*backward)(const struct layer *layer, const struct pass *pass, struct operands o);
    /* Elements of the first parameter's gradient that backward can compute at a time when pass->receiver takes them;
     * backward then passes the parts on itself. NULL, or 0: all at once. */
    size_t (*gradient_part)(const struct layer *layer);
    /* Recomputes y from x at low cost, so that y need not be kept for layers whose backward reads it. NULL: y is
     * kept. */
    void (*recompute)(const struct layer *layer, const struct pass *pass, struct operands o);
    /* The operands of forward and backward that may be 16 bits where the device supports it (HALF_X, ...), all others
     * are float32; and whether this layer's sizes allow it. NULL: they do. */
    int half;
    enum autocast autocast;
    bool (*can_be_half)(const struct layer *layer);
    enum copy_layout copies;
    /* Fills the matrices inside the layer that have 16-bit copies; returns their number. NULL: there are none. */
    size_t (*inner_matrices)(const struct layer *layer, struct inner_matrix to[LAYER_MAX_INNER]);
    /* NULL: it cannot be fused with a GELU. */
    const struct layer_around_gelu *around_gelu;
    /* Whether a training pass calls pass->all_sum, so that all ranks must participate. NULL: never. */
    bool (*sums_over_ranks)(const struct layer *layer);
    /* Minimum rows of a training pass, over all ranks where it sums over them. NULL: one. */
    size_t (*min_rows)(const struct layer *layer);
    /* Multiply-adds of one row in forward; NULL: negligible. */
    size_t (*multiply_adds)(const struct layer *layer);
    /* Of a composite: expand makes the blocks of `recompute` itself (build_add_block). */
    bool makes_blocks;
    /* A forward that runs again (pass->is_repeated) does not change its buffers. */
    bool keeps_buffers;
    /* Outside of training y = x (dropout). */
    bool is_identity;
    /* What forward computes when it does not train, as nodes of ONNX, whose output it returns, and as calls in C
     * (model/emit). NULL: a composite, a view, or an identity. */
    const char *(*onnx)(const struct onnx_call *call);
    void (*c)(const struct c_call *call);
    /* What the layer is in PyTorch, a template of schema_fill: a module ("nn.Linear({in}, {out}{,bias})") or, if it
     * begins with its input {x} or names it, an expression ("{x} * {x1}"). export/pytorch.c lists the places and calls
     * the module; NULL: a composite or a view. Instead of it where the layer leaves out what is behind the lengths of
     * its rows: [pytorch_with_lengths]; and the lengths that it determines. NULL: the same; none. */
    const char *pytorch, *pytorch_with_lengths, *pytorch_lengths;
    /* Adds the place {x_formula} of that template, of [inputs]; NULL: there is none. */
    void (*add_formula)(const struct layer *layer, const char *const *inputs, struct text *out);
    /* Floats of the two scratch memories of its calls in C, which are 0 before. NULL: it needs none. */
    void (*c_scratch)(const struct layer *layer, size_t sizes[2]);
    /* NULL: there are none. */
    void (*facts)(const struct layer *layer, struct layer_facts *to);
};

struct layer {
    const struct layer_type *type;
    const struct layer_type *entry; /* of its entry in the config, of which it may be a part; NULL: it has none */
    const void *config;             /* the type's own struct */
    struct place place;             /* in the config file */
    const char *path;               /* "model.layers.2.linear": for messages */
    const char *name;               /* prefix of its parameters: "0", its name:, dotted inside composites: "h.0.ln_1" */
    struct string_list from;        /* as in struct layer_common */
    uint32_t stream;                /* of its random numbers: its index */
    struct shape in, out;
    struct shape *ins; /* (in_count) of all inputs; the first is [in] */
    size_t in_count;
    size_t in_size, out_size;          /* elements of one row, of the first input */
    size_t first_param, param_count;   /* in params */
    size_t tied, tied_count;           /* parameters of an earlier layer that it uses, too: 0 or 1 from [tied] */
    size_t first_buffer, buffer_count; /* in buffers */
    size_t cached_positions; /* a row is one position, the next of so many: the model stores what later ones need; 0: a
                                row is all positions */
    size_t batch_rows;       /* of all ranks, with a state that is kept between batches; 0: not known */
    bool is_sharing;         /* parameters and buffers are those of an earlier layer */
    size_t saved_size;       /* floats of one row that forward stores for backward */
    struct piece saved_piece;
    float *saved;                             /* (batch, saved_size); NULL before model_alloc or when saved_size is 0 */
    struct half_copy *inner[LAYER_MAX_INNER]; /* 16-bit copies of its type's inner_matrices; NULL: none */
    bool adds_to_dx;
    bool has_relu; /* type->relu says where */
    void *runtime; /* owned by the type, from alloc to release */
};

/* The matrix [i] of its type's inner_matrices, at [data], which an operator writes next. */
static inline struct tensor layer_inner(const struct layer *layer, size_t i, float *data) {
    if (layer->inner[i]) layer->inner[i]->is_valid = false;
    return (struct tensor){.data = data, .copy = layer->inner[i]};
}

/* Whether its x and dx are several tensors. */
static inline bool layer_joins(const struct layer *layer) { return layer->type->joins || layer->in_count > 1; }

/* Whether outside of training the output is the input. */
bool layer_is_identity(const struct layer *layer);
struct layer_facts layer_facts_of(const struct layer *layer);

/* The table; NULL past its end. For the schema of `layers:`. */
extern const struct schema_variants layer_variants;
const struct layer_type *layer_type_at(size_t index);
size_t layer_type_count(void);
/* Adds the type of an extension. False: there is one of its name. */
bool layer_type_add(const struct layer_type *type);
