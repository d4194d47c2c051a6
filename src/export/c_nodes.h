/* c_nodes: the functions that write the call of an operation, and what they share. */
#ifndef EXPORT_C_NODES_H
#define EXPORT_C_NODES_H

#include "export/c_file.h"

/* What a call is written from. */
struct c_call {
    struct c_file *c;
    const struct layer *layer;
    const struct operation *op;
    const char *x, *y;         /* x: the first of [inputs] */
    const char *const *inputs; /* (layer->in_count) */
    const char *const *scratch;
};

typedef void c_writer(const struct c_call *call);

/* Of layers of tokens and positions; NULL: another operation. */
extern c_writer *const c_sequences[OPERATION_KINDS];
/* Sets the sizes of their scratch memories, which are 0 before. */
void c_sequences_scratch(const struct layer *layer, const struct operation *op, size_t sizes[2]);

/* The size of the last dimension. */
size_t c_last(const struct shape *shape);
/* The text to which a call of [function] is added. */
struct text *c_use(const struct c_call *call, enum c_function function);
/* The table of a parameter in its own order. */
const char *c_plain(const struct c_call *call, size_t param);
/* An expression: the number of a row's real positions, of all [positions]. */
const char *c_length(const struct c_call *call, size_t positions);
/* Adds a call of columns: y (rows, width) = x (rows, width), rows x_stride and y_stride apart. */
void c_columns(const struct c_call *call, const char *x, size_t x_stride, const char *y, size_t y_stride, size_t rows,
               size_t width);

#endif
