/* c_file: an exported C file while it is written: the code of the nodes, the tables of weights, the memory between the
 * nodes. */
#ifndef EXPORT_C_FILE_H
#define EXPORT_C_FILE_H

#include "export/c_code.h"
#include "export/model.h"

enum c_layout { C_PLAIN, C_LINEAR, C_CONVOLUTION, C_SCALE, C_SHIFT };

struct c_file {
    const struct export_model *m;
    struct arena *arena;
    struct text tables, body; /* code */
    struct c_functions used;
    struct piece *pieces;  /* (tensor_count) of tensors that have memory, in floats */
    struct piece *scratch; /* (2 * node_count) of nodes: two each */
    size_t *root;          /* (tensor_count) the tensor whose memory a tensor uses; 0: the inputs */
    size_t work;           /* floats of all memory */
    const char **fields;   /* (m->preparation->count) members of struct model_row */
    size_t table_count, angle_count;
    struct c_table {
        const void *values;
        size_t count;
        enum c_layout layout;
        size_t groups; /* of a convolution */
        float eps;     /* of a batch norm */
    } * made;          /* (table_count) tables that are in the file: layers may share parameters */
};

/* The name of a table of the parameter [index] in [layout], "0" for OPERATION_NO_PARAM. Adds it unless it is there. For
 * a convolution [op] is its operation, else NULL. */
const char *c_table_param(struct c_file *c, size_t index, enum c_layout layout, const struct operation *op);
/* Rows [first, first + count) of a matrix in C_LINEAR. */
const char *c_table_rows(struct c_file *c, size_t index, size_t first, size_t count);
/* Scale and shift of a batch norm. */
const char *c_table_norm(struct c_file *c, const struct operation *op, size_t channels, enum c_layout layout);
/* Cosines and sines of a rotation: (tokens, head_size / 2, 2). */
const char *c_table_angles(struct c_file *c, const struct operation *op, size_t tokens);
/* A name that may stand in a comment. */
const char *c_table_comment(struct c_file *c, const char *name);
/* "static const double name[] = {...};" */
void c_table_doubles(struct c_file *c, const char *name, const double *values, size_t count);

/* "text" */
void c_add_string(struct text *out, const char *string);

/* A table's columns: names its members, adds the struct of a row, and the function that makes features of [type] of it;
 * all for m->preparation. */
void c_preparation_plan(struct c_file *c); /* without one nothing */
void c_preparation_add_struct(struct c_file *c, struct text *out);
void c_preparation_add_function(struct c_file *c, const char *type, struct text *out);

/* Adds the calls of a node. [inputs] (layer->in_count), [y]: expressions; [scratch]: of its two scratch memories. */
void c_node_add(struct c_file *c, const struct layer *layer, const struct operation *op, const char *const *inputs,
                const char *y, const char *const scratch[2]);
/* The floats of the scratch memories that a node needs. */
void c_node_scratch(const struct layer *layer, const struct operation *op, size_t sizes[2]);

#endif
