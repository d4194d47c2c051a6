/* tensor: an operand of an operator that the device may store in 16 bits instead of float32. Operands that are always
 * float32 (parameters, their gradients, statistics) are plain pointers. Its shape is an argument of the operator. */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A copy of a float32 matrix in 16 bits, the type of the precision's factors, for products. The caller owns it and its
 * memory. It passes it with the matrix to the operators that write the matrix or read it in a product, until the last
 * of these products. An operator that gets the copy with a matrix that it writes clears is_valid, or writes the copy,
 * too; the caller clears it before anything else writes the matrix. The first product writes a copy that is not valid,
 * and later ones find it. */
struct half_copy {
    size_t columns;   /* 0: the copy has no gaps; else its rows of so many numbers are padded to a multiple of 8 */
    uint16_t *memory; /* (count), or (count / columns, columns rounded up to a multiple of 8) */
    bool is_valid;    /* the copy is that of the matrix as it is */
    bool has_sums;    /* with is_valid: the operator that wrote the matrix wrote it, so sums of a gradient's columns are
                         those of the copy; else those of the matrix, whichever product wrote the copy */
};

struct tensor {
    void *data;             /* in device memory; an operand that is not given is NULL, or its data is */
    bool is_half;           /* 16 bits, the type of the precision's factors; else float32 */
    struct half_copy *copy; /* of float32 data; NULL: none, products round the data */
    size_t stride; /* floats from a position to the next, where it is some channels of a larger matrix; 0: no gaps */
};

/* The float32 operand at an address, a float pointer. */
#define F32(address) (&(const struct tensor){.data = (void *)(1 ? (address) : (const float *)NULL)})

/* The address of an operand that is float32 or not given. */
static inline float *floats(const struct tensor *t) {
    if (!t) return NULL;
    assert(!t->is_half);
    return (float *)t->data;
}

/* From element [first] on, without the copy. */
static inline struct tensor tensor_from(const struct tensor *t, size_t first) {
    struct tensor from = {(char *)t->data + first * (t->is_half ? sizeof(uint16_t) : sizeof(float)), t->is_half, NULL,
                          0};
    return from;
}
