/* onnx: a graph of ONNX while layers write their nodes into it (onnx/onnx.proto3, the numbers of its fields are in the
 * comments of onnx.c). Tensors are channels-first, as in PyTorch. A value is named by a string in the graph's arena. */
#pragma once

#include "base/arena.h"
#include "base/schema/schema.h"
#include "base/text.h"
#include "device/image.h"
#include "model/emit/emit.h"

struct layer;
struct shape;

enum onnx_type { ONNX_FLOAT = 1, ONNX_INT32 = 6, ONNX_INT64 = 7, ONNX_STRING = 8, ONNX_DOUBLE = 11 };

struct onnx_graph {
    const struct emitted_model *m;
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
/* The same of several: sets the outputs that are not NULL; the others are left out, but not the last one. */
void onnx_node_outputs(struct onnx_graph *g, const char *op, const char *const *inputs, size_t count,
                       struct text *attributes, const char **outputs, size_t output_count);
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

/* ---- what layers have in common. Each of these adds to the graph, in the order of the calls: two of them are never
 * arguments of one call, whose order compilers choose. ---- */

/* What the nodes of a layer are written from. */
struct onnx_call {
    struct onnx_graph *g;
    const struct layer *layer;
    const char *x;             /* the first of [inputs] */
    const char *const *inputs; /* (layer->in_count) */
};

/* Adds the nodes of a layer, with the relu that it includes, and returns their output. */
const char *onnx_layer(const struct onnx_call *c);

/* The input itself. */
const char *onnx_same(const struct onnx_call *c);
/* The size of the last dimension. */
int64_t onnx_last(const struct shape *shape);
/* A parameter; [size] times [value] for NO_PARAM. */
const char *onnx_param_or(struct onnx_graph *g, size_t param, size_t size, float value);
/* A parameter of the channels, for a tensor of (channels, ...). */
const char *onnx_of_channels(const struct onnx_call *c, size_t param);
/* x w^T + b of the last dimension; [w], [b]: parameters, b may be NO_PARAM; [dims]: of a row. */
const char *onnx_linear(struct onnx_graph *g, const char *x, size_t w, size_t b, int dims);
/* The elements of [x] at [indices] (int64) along a dimension. */
const char *onnx_gather(struct onnx_graph *g, const char *x, const char *indices, int64_t axis);
/* [type] ("ReduceMax") over dimension 1, which the result does not have. */
const char *onnx_reduce(struct onnx_graph *g, const char *type, const char *x);
const char *onnx_mean_of_last(struct onnx_graph *g, const char *x);
/* x / sqrt(mean of x^2 + eps) of the last dimension */
const char *onnx_over_root_mean_square(struct onnx_graph *g, const char *x, float eps);
/* Of the last dimension. */
const char *onnx_softmax(struct onnx_graph *g, const char *x);

/* ---- rows of different lengths; [number]: of struct shape's lengths ---- */

/* Whether the lengths number [number] are read, so that the layer that determines them must call onnx_set_lengths. */
bool onnx_are_lengths_read(const struct onnx_graph *g, size_t number);
void onnx_set_lengths(struct onnx_graph *g, size_t number, const char *lengths);
/* int64 (batch). The layer that sets them has been written. */
const char *onnx_lengths(const struct onnx_graph *g, size_t number);
/* The numbers [first, first + count) as int64. */
const char *onnx_range(struct onnx_graph *g, int64_t first, int64_t count);
/* Whether each position is before the end of its row: bool (batch, positions). */
const char *onnx_real_positions(struct onnx_graph *g, size_t number, int64_t positions);

/* ---- attributes of images ---- */

/* A number for each of [count] dimensions. */
void onnx_sizes(struct text *attributes, const char *name, const size_t *sizes, size_t count);
/* kernel_shape, strides and pads, the padding before and behind, of each of [count] dimensions. */
void onnx_window(struct text *attributes, size_t count, const size_t *kernel, const size_t *stride,
                 const size_t *before, const size_t *after);

/* ---- messages in the binary format of Protocol Buffers, field by field: ONNX needs five kinds of fields and no
 * reading, for which a library would bring generated code of the whole schema ---- */

void protobuf_int(struct text *out, unsigned field, uint64_t value);
void protobuf_string(struct text *out, unsigned field, const char *string);
/* Adds the message [inner] as a field, and frees it. */
void protobuf_message(struct text *out, unsigned field, struct text *inner);
