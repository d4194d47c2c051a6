/* npy_array: the rows of one NumPy array in a file: an .npy file, or a member of an .npz archive. Rows are read from
 * the file when they are needed; only a compressed member is decompressed as a whole, at the first read. */
#ifndef DATA_NPY_ARRAY_H
#define DATA_NPY_ARRAY_H

#include "base/files/zip.h"
#include "data/source/npy_header.h"
#include "data/source/source.h"

struct npy_array {
    const char *name; /* for messages: "a.npy", "a.npz: array 'x'". Not owned, as [file]. */
    const char *path;
    int fd; /* not owned */
    const struct zip *zip;
    const struct zip_member *member; /* NULL: the file is the array */
    struct npy_header of;
    uint64_t start;  /* of the values in the file, unless the member is compressed */
    uint8_t *values; /* of a compressed member, after the first read */
};

/* Reads and checks the header of an open .npy file of [bytes] bytes. */
status npy_array_open(int fd, const char *path, uint64_t bytes, struct npy_array *out);

/* The same for a member of an archive; [name]: for messages. Both must stay open. */
status npy_array_open_member(const struct zip *zip, const struct zip_member *member, const char *name,
                             struct npy_array *out);
void npy_array_free(struct npy_array *array);

/* Whether npy_array_read_floats may be called: values are float32 of this machine, in C order. */
bool npy_array_has_floats(const struct npy_array *array);
void npy_array_will_read(const struct npy_array *array, size_t row); /* a hint to the operating system */
status npy_array_read_floats(struct npy_array *array, size_t first, size_t count, float *out);

/* Reads rows first .. first + count - 1 as doubles, out (count, size). */
status npy_array_read(struct npy_array *array, size_t first, size_t count, double *out);

/* The same without conversion, for values of one byte. */
status npy_array_read_bytes(struct npy_array *array, size_t first, size_t count, uint8_t *out);

/* Adds "float32 (100, 28, 28)", with ", Fortran order" where the first index changes fastest. */
void npy_array_add_shape(const struct npy_array *array, struct text *out);

/* Adds "a.npy: row 3, element [1, 2]". */
void npy_array_describe(const struct npy_array *array, size_t row, size_t element, struct text *out);

#endif
