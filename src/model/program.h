/* program: a model as three lists of instructions: forward in training, forward in evaluations, backward. They are made
 * once, from the nodes, when the model has memory: which operators run together, what each operand is and where, and
 * which gradients are complete after which instruction is decided then; a pass only runs the lists. */
#pragma once

#include "model/model.h"

/* Gathers [first, end) of a list. */
struct gather_range {
    size_t first, end;
};

struct instruction {
    void (*run)(const struct instruction *instruction, const struct pass *pass);
    const struct layer *layer; /* NULL: of a sum without a norm */
    /* The operands: values that it reads (in_count), the value that it writes and another one (the output of a norm
     * after a sum, or of the GELU after a linear layer). In backward: values, [out] as forward wrote it, its gradient,
     * and the gradients of [in] that it writes (in_count). Data NULL: none, or not needed. */
    struct tensor *in, out, second, dout, *din;
    size_t in_count;
    size_t size;                   /* of a sum, or of the derivative of a relu: elements of a row */
    const struct graph_node *node; /* the first whose forward, or part of whose backward, it is */
    bool is_repeated;              /* in backward: a forward that runs again */
    bool adds_gradients;           /* the backward of a layer: it adds to the gradients of the layer's parameters */
    size_t time;                   /* of struct group_gather */
    struct gather_range started, needed; /* the gathers of its list that are started before it, and awaited */
    const size_t *ready;                 /* (ready_count) parameters whose gradients are complete after it, in order */
    size_t ready_count;
};

struct instructions {
    struct instruction *items; /* (count) */
    size_t count;
};

struct program {
    struct instructions forward[2]; /* of an evaluation, in training */
    struct instructions backward;
    struct tensor **inputs; /* (input_count) operands that are the inputs of the pass */
    size_t input_count;
};

/* Makes the program of a model whose tensors have memory (model_alloc). */
struct program *program_create(struct model *model);
