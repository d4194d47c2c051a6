/* safetensors_file: a safetensors file in memory with a checked header, for loading and `inspect`. */
#ifndef CHECKPOINT_SAFETENSORS_FILE_H
#define CHECKPOINT_SAFETENSORS_FILE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "model/params.h"

struct safetensors_dtype {
    const char *name; /* "F32" */
    size_t bytes;
    /* converts values (count) to float32; NULL: integers and 8-bit floats, which no model accepts */
    void (*convert)(const unsigned char *from, float *to, size_t count);
};

struct safetensors {
    const char *path;          /* for messages; not owned */
    void *bytes;               /* of safetensors_read; NULL: owned by the caller */
    const unsigned char *data; /* after the header */
    size_t data_size;
    json_t *header;
};

/* One tensor of the file, checked. */
struct safetensors_entry {
    const struct safetensors_dtype *dtype;
    int dims;
    int64_t shape[MAX_DIMS];
    size_t count, offset; /* elements; bytes from file->data */
};

/* Reads and checks a whole file; or parses [bytes] (size), which the caller owns. Call safetensors_close also after a
 * failure. */
status safetensors_read(const char *path, struct safetensors *file);
status safetensors_parse(const char *name, const void *bytes, size_t size, struct safetensors *file);
void safetensors_close(struct safetensors *file);

/* The type of a header's "dtype"; NULL: there is none of this name. */
const struct safetensors_dtype *safetensors_dtype(const char *name);

/* Whether an entry of the header is a tensor, not "__metadata__"; and its description. */
bool safetensors_is_tensor(const char *name);
status safetensors_entry(const struct safetensors *file, const char *name, const json_t *entry,
                         struct safetensors_entry *out);

/* "tensor 'NAME': WHAT" as STATUS_DATA */
status safetensors_bad(const struct safetensors *file, const char *name, const char *what);

#endif
