/* npy_header: parses the header of NumPy's .npy format (numpy.lib.format, versions 1.0 to 3.0) and converts its values
 * to doubles. Headers are not trusted: every length and every product is checked. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/dims.h"
#include "base/status.h"
#include "base/text.h"

#define NPY_MAX_HEADER ((size_t)65536) /* bytes; NumPy itself reads at most 10,000 characters */

struct npy_type {
    const char *code; /* "f4", without the byte order */
    const char *name; /* "float32" */
    size_t bytes;
    bool is_float32; /* each value is exact in float32 */
    void (*convert)(const void *values, size_t count, double *out);
};

/* The type with this name, which must exist. */
const struct npy_type *npy_type_named(const char *name);

struct npy_header {
    const struct npy_type *type;
    bool is_swapped; /* the bytes of a value have the other order than on this machine */
    bool is_fortran; /* the first index changes fastest */
    int dims;        /* with the rows, at least 1 */
    size_t shape[MAX_DIMS + 1];
    size_t rows, size; /* shape[0]; values of a row, at least 1 */
    size_t bytes;      /* of the header: the values start here */
};

/* Parses the first bytes (size) of an array, all of them or at least NPY_MAX_HEADER. [name]: the file, or the file and
 * the array, for messages. STATUS_DATA for anything that is not an array of numbers with one or more dimensions. */
status npy_header_parse(const char *name, const uint8_t *bytes, size_t size, struct npy_header *out);

/* Sets rows and size of an array whose dims and shape are known, which npy_header_parse does. STATUS_DATA: it has no
 * dimensions or too many, or its rows have no values or too many. */
status npy_header_check_shape(const char *name, struct npy_header *header);

/* Bytes of all values; exact below 2^53. */
double npy_header_value_bytes(const struct npy_header *header);

/* Adds "1, 2", the indices of value [at] of an array of [shape] (dims) in C order. */
void npy_add_indices(int dims, const size_t *shape, size_t at, struct text *out);

/* Where value [at] of such an array in Fortran order, whose first index changes fastest, is in C order. */
size_t npy_in_c_order(int dims, const size_t *shape, size_t at);

/* Adds the place of value [element] of a row, ", column 2", or ", element [1, 2]" of rows with several dimensions. */
void npy_add_element(const struct npy_header *header, size_t element, struct text *out);

/* Reads [size] raw bytes of values at [offset]; STATUS_DATA when the file has become shorter than it was. */
status npy_read_raw(int fd, const char *path, uint64_t offset, void *out, size_t size);

/* Tells the operating system that they will be read soon. */
void npy_will_read(int fd, uint64_t offset, size_t size);

/* Converts raw values (count), which are overwritten when they are swapped, to out (count). [out] may overlap the
 * values where these are at its end. */
void npy_header_convert(const struct npy_header *header, void *values, size_t count, double *out);
