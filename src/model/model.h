/* model: the layers of a config flattened into nodes over tensors, with parameters and activations. It is planned
 * once (shapes, names, memory), allocated once, then run any number of times.
 *
 * A node applies a layer to one tensor or, if it joins, to several, or adds two (a residual connection). All values and
 * gradients of tensors are in one block; those that are not needed at the same time share memory. Time is counted in
 * nodes: the forward of node i is at time i, the loss at node_count, the backward of node i at 2 node_count - i. */
#pragma once

#include "base/schema/schema.h"
#include "model/layer.h"
#include "model/loss.h"
#include "model/params.h"
#include "model/placement.h"
#include "model/weight_map.h"

/* `model:` of the config. */
struct model_config {
    struct variant_list layers;
    struct string_list freeze; /* patterns of names */
    struct variant_list init;  /* rules after the default draws */
    struct weight_source init_from;
    bool has_init_from; /* whether the key was given */
};
extern const struct schema model_schema;

#define NO_TENSOR SIZE_MAX

struct planned_tensor {
    struct shape shape;
    size_t size;                   /* elements of one row */
    size_t alias;                  /* a view: the tensor whose memory it shares; NO_TENSOR: its own */
    const struct shape *scores;    /* where it shows (classes, ...) as (positions, classes): the former; else NULL */
    bool needs_gradient;           /* a node before it has trainable parameters */
    const struct layer *producer;  /* the layer whose output it is, as it was before the model was complete; NULL: an
                                      input, a sum, or another order of memory */
    bool is_read;                  /* while building: a layer takes it, or it is the model's output */
    size_t slot;                   /* of its gradient, during planning of backward; SIZE_MAX: none */
    struct piece piece;            /* of its value, elements of one row; size 0: an input or a view */
    struct piece recomputed_piece; /* of the value if backward recomputes it; size 0: it is kept */
    size_t forward_last;           /* node of forward that reads it last */
    size_t reader;                 /* with recomputed_piece: the node that reads it first in backward */
    void *recomputed;              /* (batch, size), of recomputed_piece; NULL: none */
    void *value;                   /* (batch, size); NULL: an input or a view */
};

/* A 16-bit copy for products of a matrix that the device stores in float32 (half.h). */
struct planned_copy {
    struct piece piece;        /* of its memory, floats of one row, each of which holds two numbers */
    size_t tensor, slot;       /* the matrix is a value or a gradient slot, or inside a layer; SIZE_MAX: not this */
    const struct layer *layer; /* the matrix is inside it; NULL: it is not */
    size_t size;               /* elements of one row of the matrix */
    struct half_copy copy;
};

/* A value or a gradient that is in the memory of another one (concat.h): from channel [at] of each position on. */
struct tensor_part {
    size_t of;         /* the tensor or slot that has the memory */
    size_t at, stride; /* stride 0: it has memory of its own */
};

struct slot_add {
    size_t to, a, b;        /* gradient slots: to = a + b */
    size_t tensor;          /* whose gradient it is */
    struct half_copy *copy; /* of [to], which the sum may write; NULL: none */
};

/* Three nodes that a device may fuse (struct gelu_ops): a linear layer, GELU by tanh, a linear layer. */
enum gelu_fusion { FUSION_NONE, FUSION_BEFORE_GELU, FUSION_GELU, FUSION_AFTER_GELU };

struct graph_node {
    struct layer *layer; /* NULL: out = in[0] + in[1] */
    bool has_relu;       /* of a sum: out = max(in[0] + in[1], 0) */
    bool precedes_norm;  /* a sum that the next node normalises; a device may run both as one operator */
    /* Gradient slot after a relu fused into the node (RELU_AFTER), from which dy is computed; SIZE_MAX: none. */
    size_t dy_after_relu;
    size_t *in, in_count, out; /* tensors; several inputs for a sum and for layers that join */
    enum gelu_fusion fusion;
    size_t block;      /* of blocks, from 1; 0: in none */
    size_t *recompute; /* (recompute_count) nodes whose outputs are recomputed before the backward of this one */
    size_t recompute_count;
    size_t dy, *dx;        /* gradient slots; dy SIZE_MAX: no backward for this node; dx (in_count), SIZE_MAX: not
                              needed */
    struct slot_add *adds; /* (add_count) after the layer's backward */
    size_t add_count;
    /* 16-bit copies of operands, for products; NULL: none. Those that forward reads (in_count) and writes, that of dy
     * which the derivative of a fused relu writes, and those that backward reads and writes (in_count). */
    struct half_copy **in_copies, *out_copy, *relu_copy, *dy_copy, **dx_copies;
};

/* Parameters whose gradients exist only for a part of backward, and then completely (model_group_gradients). */
struct gradient_group {
    size_t begin, end;  /* their elements of the flat buffer of values */
    size_t first, last; /* the first and last of them among all parameters */
    struct piece piece; /* of params.gradients; its times are those of backward */
    bool has_begun;     /* in this pass */
};

/* Nodes [first, last] whose values are not kept after forward: backward runs their forward again before the backward of
 * the last of them, at [time]. */
struct repeated_block {
    size_t first, last, time; /* time 0: no node has a backward */
};

/* The values of [group] are gathered at [at] in params.values (model_gather_values): started before the operators at
 * [time] and complete before those at [needed]; indices of nodes, in backward counted from the last one, from 1. */
struct group_gather {
    size_t group, at;
    size_t time, needed;
};

/* Starts to copy the values of [group] (end - begin), which ranks have in parts, to [to]; [number]: of the gather in
 * its pass. Until await_gather of the number at most the next one is started, too. */
typedef void gather_group(void *user, size_t group, size_t number, float *to);
typedef void await_gather(void *user, size_t number);

struct model {
    struct layer *layers; /* in the order they run */
    size_t layer_count;
    struct planned_tensor *tensors; /* 0: the inputs */
    size_t tensor_count;
    struct graph_node *nodes;
    size_t node_count;
    struct piece *slots; /* (slot_count) gradients of tensors, elements of one row */
    size_t slot_count;
    size_t row_floats; /* of the block, for one row */
    struct params params, buffers;
    size_t *use_counts;                     /* (params.count) layers that use a parameter */
    size_t kept_gradients;                  /* floats of gradients with their own memory (model_split_gradients) */
    struct gradient_group *gradient_groups; /* (gradient_group_count) of model_group_gradients */
    size_t *gradient_group_of;              /* (params.count); SIZE_MAX: frozen */
    struct repeated_block *blocks;          /* (block_count) */
    size_t block_count;
    struct group_gather *gathers[2]; /* (gather_counts[i]) of forward and backward; NULL: all values exist */
    size_t gather_counts[2];
    gather_group *gather; /* of model_gather_values; not NULL in passes */
    await_gather *await_gather;
    void *gatherer;
    size_t gradient_group_count;  /* 0: all gradients exist at once, or as model_split_gradients says */
    size_t output, output_slot;   /* the last tensor, and the slot of its gradient */
    struct model_output *outputs; /* (output_count) the parts of a row of the output; count 0: it has one */
    size_t output_count;
    struct variant_list init; /* of the config */
    struct shape in, out;
    size_t out_size;      /* elements of one output row */
    size_t target_size;   /* values of a row of targets, for the loss; set by its user */
    size_t multiply_adds; /* of one row in forward; backward takes about twice as many */
    size_t lengths_count; /* of struct shape's lengths */
    int32_t *lengths;     /* (lengths_count, batch), on the device; NULL: none */

    struct arena *arena;
    /* What the device stores in 16 bits (half.h): (tensor_count), (slot_count); NULL: nothing. */
    const bool *half_tensors, *half_slots;
    struct tensor_part *tensor_parts, *slot_parts; /* (tensor_count), (slot_count); NULL: none is a part */
    struct planned_copy *copies;                   /* (copy_count) of matrices that it does not store in 16 bits */
    size_t copy_count;
    struct half_copy *loss_copy; /* of the output's gradient, which the loss writes; NULL: none */
    bool allows_half_output;     /* model_allow_half_output */
    bool is_output_half;         /* in this pass, if half_tensors is set for it; half_slots decides for its gradient */
    struct tensor result;        /* the output of the newest pass */
    struct program *program;     /* what passes run; NULL before model_alloc */
    struct device *device;       /* NULL before model_alloc */
    size_t batch;                /* maximum rows of a pass */
    float *block;                /* (batch, row_floats): values, what layers save, gradients */
    void **gradients;            /* (slot_count), into the block: (batch, slots[i].size) */
};

/* A named input: elements first .. first + size - 1 of a row of all inputs. */
struct model_input {
    const char *name;
    size_t first;
    struct shape shape;
};

/* An output of a model with several: elements first .. first + size - 1 of a row of all outputs. */
struct model_output {
    size_t first, size;
    struct shape shape;
    size_t tensor; /* whose values are copied */
};

/* The targets of an output. */
struct class_targets {
    bool are_classes;
    size_t count; /* of a row; 0: not known */
};

/* The tensor whose memory [tensor] is: itself, unless it is a view. */
size_t model_root(const struct model *model, size_t tensor);

/* The inputs and outputs of a model by name. */
struct model_names {
    const struct model_input *inputs; /* (input_count) count 0: one input without a name */
    size_t input_count;
    const char *const *outputs; /* (output_count) names of layers; NULL: the last one; count 0: one output, the last */
    const struct place *output_places; /* (output_count), for messages */
    size_t output_count;
    /* (output_count, at least 1) An output (classes, ...) that the targets classify position by position is computed as
     * (positions, classes), which is its order in memory. NULL: every output keeps its shape. */
    const struct class_targets *targets;
    size_t cached_positions; /* not 0: the input is one position of so many, and passes compute them in order
                                (pass->position); STATUS_USAGE if a layer needs all at once */
    bool accepts_unused;     /* layers whose output no layer takes are no error: parameters that affect no output keep
                                their values, as those of DDP(find_unused_parameters=True) without a gradient */
    size_t batch_rows;       /* of a batch of all ranks, for layers that keep a state of each row; 0: not known */
};

/* model_plan for a model with names: a row of its inputs is that of all inputs one after another, as a vector, and a
 * row of its output that of all outputs (model->outputs). [names]: NULL: none. */
status model_plan_named(const struct model_config *config, const struct shape *input, const struct model_names *names,
                        struct model **out);

/* Plans shapes, names and parameters, without allocating memory for values. A mismatch is STATUS_USAGE with
 * file:line:column and the layer ("config.yaml:12:7: model.layers.2.linear: ..."). */
status model_plan(const struct model_config *config, const struct shape *input, struct model **out);
void model_destroy(struct model *model); /* takes NULL */

/* Adds the names of the parameters that affect no output (DDP's "unused parameters"), "2.weight, 2.bias"; known before
 * the first step because the graph is static. */
void model_add_unused(const struct model *model, struct text *out);

/* Whether only some values of inputs are valid: tokens of an embedding, lengths. */
bool model_checks_rows(const struct model *model);
/* STATUS_DATA naming the layer and the value of a row of inputs that is not valid. */
status model_check_row(const struct model *model, const float *row);

/* Whether a layer carries its state over batches (struct pass's continues_rows). */
bool model_carries_state(const struct model *model);
/* With cached_positions: whether it does, and no layer has a limit of positions. */
bool model_has_endless_positions(const struct model *model);
/* With cached_positions: whether the rows of a pass may be consecutive positions, the first of which is its position.
 */
bool model_has_rows_of_positions(const struct model *model);

/* STATUS_USAGE naming a layer whose passes need all ranks at the same time, for runs where a rank may have no rows or
 * make passes alone; [why] is the reason. */
status model_check_independent(const struct model *model, const char *why);

/* Bytes that model_alloc takes for [batch] rows: parameters and gradients; activations. After model_adapt_to_device. */
void model_memory(const struct model *model, size_t batch, size_t *parameters, size_t *activations);

/* Declares that in training only loss_run, with a loss that supports 16 bits (accepts_half), reads the output, so
 * that the device may store it in 16 bits. Before model_adapt_to_device. */
void model_allow_half_output(struct model *model);

/* Adapts the plan to the device: tensors that it stores in 16 bits in its current precision take half the memory.
 * STATUS_USAGE naming the first layer that the device has no operators for. A second call with the same device does
 * nothing. */
status model_adapt_to_device(struct model *model, const struct device *device);

/* From now on gradients exist only while model_backward_in_parts passes them on; their buffer is as large as the
 * largest layer needs. Before model_alloc. */
void model_split_gradients(struct model *model);

/* From now on the gradients of a group of parameters exist only while model_backward_in_groups computes them and those
 * of the next group, and share a buffer that is about as large as the two largest groups. group_of (params.count): the
 * group of each parameter, SIZE_MAX if it is frozen; parameters of a group are neighbours in the flat buffer, and group
 * 0 has the last ones. Before model_alloc. */
void model_group_gradients(struct model *model, const size_t *group_of, size_t count);

/* From now on the values of trainable parameters exist only in passes, group by group: model->gather is called before
 * the first node of a row of nodes that use a group, and the memory is used by other groups after the last one. So the
 * buffer of values is as large as the frozen parameters and the groups that nodes use at the same time. [is_ahead]: a
 * gather is started while the group before it is used, as soon as the one before that is not used any more; else just
 * before it is needed and awaited. After model_group_gradients, before model_alloc. */
void model_gather_values(struct model *model, bool is_ahead);
/* For a rank without rows: gathers the values that a forward pass gathers. Does nothing without model_gather_values. */
void model_forward_without_rows(struct model *model);

/* Allocates for up to [batch] rows, after model_adapt_to_device. */
status model_alloc(struct model *model, struct device *device, size_t batch);

/* Prepares passes of exactly [batch] rows (0: none), forward and, if [is_training], backward; those then allocate
 * nothing. After model_alloc, for up to as many rows. */
status model_prepare(struct model *model, size_t batch, bool is_training);

/* Maps parameters, also those of a shard, and buffers for the host, and unmaps them (device_map). */
status model_map(struct model *model);
status model_unmap(struct model *model, bool has_changed);

/* Draws PyTorch's default initial weights from [rng] (rng_seed is torch.manual_seed), module after module, then applies
 * the rules of `init:`. The parameters must be mapped. */
void model_init(struct model *model, struct rng *rng);
/* Sets all memory of a model without carried state to what model_alloc leaves, for model_init. On the host. */
void model_clear(struct model *model);

/* Returns the output (rows, out_size) for inputs (rows, in); valid until the next pass. In training it may be 16 bits
 * (model_allow_half_output), else it is float32. */
const struct tensor *model_forward(struct model *model, const struct pass *pass, const float *inputs);

/* The address of model_forward's float32 output for these inputs. */
const float *model_output(const struct model *model, const float *inputs);

/* Called after each node with its output (rows, size), the value of [tensor]; [layer]: the one that computed it, for a
 * sum the last one before it. false ends the pass. */
typedef bool output_visitor(void *user, const struct layer *layer, const struct tensor *output, size_t size,
                            size_t tensor);

/* model_forward that passes every node's output to [visit], for example to find where numbers become non-finite. NULL
 * if the visitor ended it. */
const struct tensor *model_forward_visited(struct model *model, const struct pass *pass, const float *inputs,
                                           output_visitor *visit, void *user);

/* The gradient of the loss with respect to the output (batch, out_size), to be filled before model_backward. */
struct tensor model_output_gradient(const struct model *model);

/* Called when the gradient of parameter [index] is complete: once per trainable parameter, roughly last to first. */
typedef void gradient_ready(void *user, size_t index);

/* Gradients of all parameters +=. [inputs] as in the forward pass before. [ready] may be NULL. */
void model_backward(struct model *model, const struct pass *pass, const float *inputs, gradient_ready *ready,
                    void *user);

/* The same after model_split_gradients, for trainable parameters only: each gradient is zeroed, computed, and passed
 * to [receiver] when it is complete. */
void model_backward_in_parts(struct model *model, const struct pass *pass, const float *inputs,
                             const struct gradient_receiver *receiver);

/* Called before the gradients of a group are set to zero and computed: after it no one may use the memory of the groups
 * that it shares memory with. They are complete, and so is the group after each of them. */
typedef void group_begins(void *user, size_t group);

/* The same after model_group_gradients: all groups begin once, and end when [ready] was called for each of their
 * parameters and those of the groups before. [pass] NULL: nothing is computed, so all gradients are zero. [begins] and
 * [ready] may be NULL. */
void model_backward_in_groups(struct model *model, const struct pass *pass, const float *inputs, group_begins *begins,
                              gradient_ready *ready, void *user);
