/* joins: the keys of concat, which parallel has, too. */
#pragma once

#include "model/layer.h"

struct concat_config {
    int64_t dim;
};

#define CONCAT_DIM_ROW(at)                                                                                             \
    {                                                                                                                  \
        .key = "dim", .type = SCHEMA_INT, .offset = (at) + offsetof(struct concat_config, dim), .fallback = "1",       \
        .min = -MAX_DIMS, .max = MAX_DIMS,                                                                             \
        .doc = "The dimension along which they are joined, as in PyTorch: 0 is the batch, 1 the channels of an image " \
               "or the features of a vector, -1 the last."                                                             \
    }

/* The key `dim` of layers of one input; [what]: "The dimension". */
#define DIM_ROW(struct_, what, ...)                                                                                    \
    SCHEMA_ROW(INT, struct struct_, dim, .min = -MAX_DIMS, .max = MAX_DIMS,                                            \
               .doc = what ", as in PyTorch: 0 is the batch, 1 the channels of an image or the features of a "         \
                           "vector, -1 the last.",                                                                     \
               __VA_ARGS__)

/* The dimension [dim] of PyTorch, where 0 is the batch, as an index into a shape of a row; -1: it has no such one. */
int join_dimension(const struct shape *shape, int64_t dim);
/* STATUS_USAGE if it has no such one. */
status join_check_dimension(const struct shape *shape, int64_t dim);

/* In memory, a row of [shape] is [outer] blocks of size[dimension] * inner elements. */
void join_blocks(const struct shape *shape, int dimension, size_t *outer, size_t *inner);
