/* safetensors: the file format for exchanging weights with PyTorch: 8 bytes with the length of a JSON header, the
 * header
 * {"name": {"dtype": "F32", "shape": [64, 13], "data_offsets": [from, to]}, ...}, then the values, little-endian. Files
 * are not trusted: everything is checked before it is used. */
#pragma once

#include <jansson.h>

#include "base/status.h"
#include "model/params.h"

/* ---- reading ---- */

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

/* Only parses and checks the header, for the fuzzer. [bytes] (size): a whole file. */
status safetensors_check(const char *name, const void *bytes, size_t size);

/* ---- weights in several files ---- */

/* Large models are divided among several files, as transformers' save_pretrained does: an index,
 * "model.safetensors.index.json", lists the file of each tensor. */
#define TENSOR_INDEX_ENDING ".index.json"

/* Whether [path] ends with it. */
bool tensor_index_is_name(const char *path);

/* Reads the files that the index [path] lists, of safetensors or torch.save, which are in its folder. [file] is then as
 * after safetensors_read of one file with all tensors; call safetensors_close also after a failure. Not trusted: each
 * tensor must be in the file that the index names, and in no other. */
status tensor_index_read(const char *path, struct safetensors *file);

/* ---- writing ---- */

/* A tensor of float32 under its state_dict name, for writing files of weights. */
struct named_tensor {
    const char *name;
    int dims; /* at most MAX_DIMS */
    const int64_t *shape;
    const float *values; /* (product of shape) */
};

static inline size_t named_tensor_elements(const struct named_tensor *tensor) {
    size_t count = 1;
    for (int d = 0; d < tensor->dims; d++) count *= (size_t)tensor->shape[d];
    return count;
}

/* An entry of the header's "__metadata__", besides "format": "pt"; [value] NULL: omitted. */
struct safetensors_note {
    const char *key, *value;
};
/* Writes the file with io_replace. */
status safetensors_write(const char *path, const struct safetensors_note *notes, size_t note_count,
                         const struct named_tensor *tensors, size_t count);
