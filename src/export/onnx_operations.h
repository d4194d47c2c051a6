/* onnx_operations: the functions that write an operation as nodes, in one table for each family of operations. */
#ifndef EXPORT_ONNX_OPERATIONS_H
#define EXPORT_ONNX_OPERATIONS_H

#include "export/onnx_graph.h"

/* What an operation is written from. */
struct onnx_call {
    struct onnx_graph *g;
    const struct layer *layer;
    const struct operation *op;
    const char *x;             /* the first of [inputs] */
    const char *const *inputs; /* (layer->in_count) */
};

/* Adds the nodes and returns their output. */
typedef const char *onnx_writer(const struct onnx_call *c);

/* NULL: the operation belongs to another family. */
extern onnx_writer *const onnx_attention[OPERATION_KINDS];
extern onnx_writer *const onnx_images[OPERATION_KINDS];
extern onnx_writer *const onnx_norms[OPERATION_KINDS];
extern onnx_writer *const onnx_sequences[OPERATION_KINDS];
extern onnx_writer *const onnx_shapes[OPERATION_KINDS];

/* An LSTM, a GRU or an RNN. */
onnx_writer onnx_recurrent;

/* ---- shared by the families ---- */

/* The size of the last dimension. */
int64_t onnx_last(const struct shape *shape);
/* x w^T + b of the last dimension; [w], [b]: parameters, b may be OPERATION_NO_PARAM; [dims]: of a row. */
const char *onnx_linear(struct onnx_graph *g, const char *x, size_t w, size_t b, int dims);
/* The lengths of rows that struct shape numbers: int64 (batch). The layer that sets them has been written. */
const char *onnx_lengths(const struct onnx_graph *g, size_t number);
/* Whether each position is before the end of its row: bool (batch, positions). */
const char *onnx_real_positions(struct onnx_graph *g, size_t number, int64_t positions);
/* The elements of [x] at [indices] (int64) along a dimension. */
const char *onnx_gather(struct onnx_graph *g, const char *x, const char *indices, int64_t axis);
/* Of the last dimension. */
const char *onnx_softmax(struct onnx_graph *g, const char *x);

#endif
