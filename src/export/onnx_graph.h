/* onnx_graph: a graph of ONNX while it is written (onnx/onnx.proto3, the numbers of its fields are in the comments of
 * onnx_graph.c). A value is named by a string in the graph's arena. */
#ifndef EXPORT_ONNX_GRAPH_H
#define EXPORT_ONNX_GRAPH_H

#include "base/arena.h"
#include "base/text.h"
#include "export/model.h"

enum onnx_type { ONNX_FLOAT = 1, ONNX_INT32 = 6, ONNX_INT64 = 7, ONNX_STRING = 8, ONNX_DOUBLE = 11 };

struct onnx_graph {
    const struct export_model *m;
    struct arena *arena;
    struct text nodes, tensors;  /* the fields of the graph */
    size_t names;                /* used so far */
    bool *has_param;             /* (params.count) the parameter is in [tensors] */
    bool *has_buffer;            /* (buffers.count) the buffer is in [tensors] */
    const char **lengths;        /* (model->lengths_count) see onnx_lengths; NULL: not yet, or not read */
    const char **real_positions; /* (model->lengths_count) see onnx_real_positions */
};

/* Adds an attribute of a node. */
void onnx_int(struct text *attributes, const char *name, int64_t value);
void onnx_ints(struct text *attributes, const char *name, const int64_t *values, size_t count);
void onnx_float(struct text *attributes, const char *name, float value);
void onnx_string(struct text *attributes, const char *name, const char *value);
void onnx_strings(struct text *attributes, const char *name, const char *const *values, size_t count);

/* Adds a node and returns its output. [attributes] NULL: none; it is freed. */
const char *onnx_node(struct onnx_graph *g, const char *op, const char *const *inputs, size_t count,
                      struct text *attributes);
/* The same for the output number [output] (from 0); the others are left out. */
const char *onnx_node_output(struct onnx_graph *g, const char *op, size_t output, const char *const *inputs,
                             size_t count, struct text *attributes);
const char *onnx_node1(struct onnx_graph *g, const char *op, const char *a, struct text *attributes);
const char *onnx_node2(struct onnx_graph *g, const char *op, const char *a, const char *b);
/* [a] where the condition holds, else [b]. */
const char *onnx_where(struct onnx_graph *g, const char *condition, const char *a, const char *b);

/* Adds a constant tensor. [name] NULL: a new name. Returns its name. */
const char *onnx_tensor(struct onnx_graph *g, const char *name, enum onnx_type type, const void *values, size_t dims,
                        const int64_t *shape);
const char *onnx_string_tensor(struct onnx_graph *g, const struct string_list *values); /* (1, count) */
/* [parts] next to each other: (batch, all columns). */
const char *onnx_concat_columns(struct onnx_graph *g, const char *const *parts, size_t count);
/* Elements [start, end) of dimension [axis]; -1: the last. */
const char *onnx_slice(struct onnx_graph *g, const char *x, int64_t axis, int64_t start, int64_t end);
const char *onnx_cast(struct onnx_graph *g, const char *x, enum onnx_type type);
/* Adds an input (field 11) or output (12) of the graph: (batch, [count] sizes). */
void onnx_value(struct text *graph, unsigned field, const char *name, enum onnx_type type, int count,
                const int64_t *sizes);
/* Whether a weight or another value of the graph may have this name. */
bool onnx_is_taken(const struct onnx_graph *g, const char *name);
/* The name of an input: [name], or if that is taken, [kind]/[name]. */
const char *onnx_input_name(struct onnx_graph *g, const char *kind, const char *name);
/* The features of g->m->preparation as doubles (batch, features), of an input for each column, which [inputs] gets. */
const char *onnx_preparation(struct onnx_graph *g, struct text *inputs);
/* A parameter or a buffer of the model, which is in the file once. */
const char *onnx_param(struct onnx_graph *g, size_t index);
const char *onnx_buffer(struct onnx_graph *g, size_t index);
/* A vector of int64, and a scalar float. */
const char *onnx_numbers(struct onnx_graph *g, const int64_t *values, size_t count);
const char *onnx_scalar(struct onnx_graph *g, float value);
/* Reshapes rows: the batch stays the first dimension. */
const char *onnx_reshape(struct onnx_graph *g, const char *x, const int64_t *shape, size_t dims);
/* [order]: of all dimensions, with the batch. */
const char *onnx_transpose(struct onnx_graph *g, const char *x, const int64_t *order, size_t count);

/* Adds the nodes of an operation of [inputs] and returns its output. */
const char *onnx_operation(struct onnx_graph *g, const struct layer *layer, const struct operation *op,
                           const char *const *inputs);

#endif
