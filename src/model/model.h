/* model: the layers of a config flattened into steps over tensors, its parameters and its activations. Planned once
 * (shapes, names, memory), allocated once, then run any number of times.
 *
 * A step applies a layer to one tensor, or adds two (a residual connection). All values and gradients of tensors lie in
 * one block, on each other where they are not needed at the same time. Times are counted in steps: step i runs at i and
 * goes back at 2 step_count - i; the loss stands between at step_count. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "base/schema.h"
#include "model/layer.h"
#include "model/loss.h"
#include "model/params.h"
#include "model/placement.h"

/* `model:` of the config. */
struct model_config {
    struct variant_list layers;
    struct string_list freeze; /* patterns of names */
    const char *init_from;     /* a file of weights to start from; NULL: none */
    struct variant_list init;  /* rules after the default draws */
};
extern const struct schema model_schema;

#define NO_TENSOR SIZE_MAX

struct tensor {
    struct shape shape;
    size_t size;         /* elements of one row */
    size_t alias;        /* a view: the tensor whose memory it shares; NO_TENSOR: its own */
    bool needs_gradient; /* something with parameters stands before it */
    size_t slot;         /* of its gradient while the way back is planned; SIZE_MAX: none */
    struct piece piece;  /* of its value, elements of one row; size 0: an input or a view */
    struct piece again;  /* of the value when backward makes it again instead of keeping it; size 0: it is kept */
    size_t reader;       /* with again: the step that reads it first on the way back */
    float *remade;       /* (batch, size), of again; NULL: none */
    float *value;        /* (batch, size); the inputs' and views' are set by each pass */
};

struct slot_add {
    size_t to, a, b; /* gradient slots: to = a + b */
};

/* Three steps that a device may do as one (struct gelu_ops): a linear layer, GELU by tanh, a linear layer. */
enum step_part { PART_NONE, PART_BEFORE_GELU, PART_GELU, PART_AFTER_GELU };

struct step {
    struct layer *layer;   /* NULL: out = in + other */
    bool has_relu;         /* of a sum: out = max(in + other, 0) */
    size_t raw;            /* gradient slot behind a relu that the step took over (RELU_AFTER): dy is made from it;
                              SIZE_MAX: dy is the gradient itself */
    size_t in, other, out; /* tensors; other NO_TENSOR for a layer */
    enum step_part part;
    size_t remake;           /* step whose output is made again before this one goes back; SIZE_MAX: none */
    size_t dy, dx;           /* gradient slots; dy SIZE_MAX: nothing to do on the way back, dx SIZE_MAX: not needed */
    struct slot_add adds[2]; /* (add_count) after the layer's backward */
    size_t add_count;
};

struct model {
    struct layer *layers; /* in the order they run */
    size_t layer_count;
    struct tensor *tensors; /* 0: the inputs */
    size_t tensor_count;
    struct step *steps;
    size_t step_count;
    struct piece *slots; /* (slot_count) gradients of tensors, elements of one row */
    size_t slot_count;
    size_t row_floats; /* of the block, for one row */
    struct params params, buffers;
    size_t *users;              /* (params.count) layers that use a parameter */
    size_t kept_gradients;      /* floats of gradients that have places of their own (model_part_gradients) */
    size_t *waiting;            /* (params.count) of them, how many have not yet added to its gradient in this pass */
    size_t output, output_slot; /* the last tensor, and the slot of its gradient */
    struct variant_list init;   /* of the config */
    struct shape in, out;
    size_t out_size;      /* elements of one output row */
    size_t multiply_adds; /* of one row forward; backward takes about twice as many */

    struct arena *arena;
    /* What the device keeps in 16 bits (narrow.h): (tensor_count), (slot_count); NULL: nothing. */
    const bool *tensors_narrow, *slots_narrow;
    bool may_narrow_output; /* model_narrow_output */
    bool is_output_narrow;  /* in this pass, if tensors_narrow says so; its gradient is by slots_narrow */
    struct device *device;  /* NULL before model_alloc */
    size_t batch;           /* most rows of a pass */
    float *block;           /* (batch, row_floats): values, what layers save, gradients */
    float **gradients;      /* (slot_count), into the block: (batch, slots[i].size) */
};

/* Shapes, names and parameters, without memory for numbers. What does not fit is STATUS_USAGE with file:line:column and
 * the layer ("config.yaml:12:7: model.layers.2.linear: ..."). */
status model_plan(const struct model_config *config, const struct shape *input, struct model **out);
void model_destroy(struct model *model); /* takes NULL */

/* STATUS_USAGE naming the parameters that cannot reach the loss (DDP's "unused parameters"); known before the first
 * step, since the steps are. */
status model_check_used(const struct model *model);

/* STATUS_USAGE naming a layer whose passes need all ranks at once, for runs in which [why] a rank may be without rows
 * or its passes are its own. */
status model_check_apart(const struct model *model, const char *why);

/* Bytes that model_alloc will take for [batch] rows: parameters and gradients; activations. After model_suit. */
void model_memory(const struct model *model, size_t batch, size_t *parameters, size_t *activations);

/* The only one who looks at outputs of passes in training is loss_run with a loss that takes 16 bits (takes_narrow), so
 * that the device may leave them so. Before model_suit. */
void model_narrow_output(struct model *model);

/* Makes the plan the device's: what that keeps in 16 bits in the precision that it has now takes half the room.
 * STATUS_USAGE naming the first layer that the device has no operators for. Again with the same device: nothing. */
status model_suit(struct model *model, const struct device *device);

/* From now on gradients exist only while model_backward_in_parts hands them on; the one place for them is as large as
 * the largest layer needs. Before model_alloc. */
void model_part_gradients(struct model *model);

/* Allocates for up to [batch] rows, after model_suit. */
status model_alloc(struct model *model, struct device *device, size_t batch);

/* Makes ready for passes of exactly [batch] rows (0: none), forward and, [is_training], back; those then allocate
 * nothing. After model_alloc, for up to as many rows. */
status model_prepare(struct model *model, size_t batch, bool is_training);

/* Parameters and buffers become the host's, and the device's again (device_lend). */
status model_lend(struct model *model);
status model_take_back(struct model *model, bool has_changed);

/* Draws PyTorch's default initial weights from [rng] (rng_seed is torch.manual_seed), module after module; then the
 * rules of `init:`. While they are lent. */
void model_init(struct model *model, struct rng *rng);

/* Output (rows, out_size) for inputs (rows, in); valid until the next pass. In training it may be 16 bits
 * (model_narrow_output; narrow_loss says so), else it is float32. */
const float *model_forward(struct model *model, const struct pass *pass, const float *inputs);

/* Where model_forward leaves its output for these inputs. */
const float *model_output(const struct model *model, const float *inputs);

/* Called after each step with its output (rows, size), which with [is_narrow] is 16 bits; [layer]: the one that made
 * it, for a sum the last one before it. false ends the pass. */
typedef bool output_visitor(void *user, const struct layer *layer, const float *output, size_t size, bool is_narrow);

/* model_forward that shows every step's output, for finding out where numbers break. NULL when the
 * visitor ended it. */
const float *model_forward_visited(struct model *model, const struct pass *pass, const float *inputs,
                                   output_visitor *visit, void *user);

/* Where the gradient of the loss with respect to the output goes before model_backward: (batch, out_size); loss_run
 * knows whether in 16 bits. */
float *model_output_gradient(struct model *model);

/* Called when the gradient of parameter [index] is complete: once per parameter that is not frozen, roughly last to
 * first. */
typedef void gradient_ready(void *user, size_t index);

/* Gradients of all parameters +=. [inputs] as in the forward pass before. [ready] may be NULL. */
void model_backward(struct model *model, const struct pass *pass, const float *inputs, gradient_ready *ready,
                    void *user);

/* The same after model_part_gradients: each gradient is zeroed, made, and taken when it is complete; parameters that
 * are not frozen only. */
void model_backward_in_parts(struct model *model, const struct pass *pass, const float *inputs,
                             const struct gradient_parts *parts);

#endif
