/* safetensors: the file format in which PyTorch users pass weights on: 8 bytes with the length of a JSON header, the
 * header {"name":
 * {"dtype": "F32", "shape": [64, 13], "data_offsets": [from, to]}, ...}, then the numbers, little-endian. Nothing in a
 * file is trusted before it is checked. */
#ifndef CHECKPOINT_SAFETENSORS_H
#define CHECKPOINT_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "model/params.h"

/* Writes [params] (values) as float32 under their names, the safe way (io_replace). [path]s of other formats are the
 * caller's business. */
struct safetensors_tensor {
    const char *name;
    int dims;
    const int64_t *shape;
    const float *values;
};
/* An entry of the header's "__metadata__", besides "format": "pt"; [value] NULL: left out. */
struct safetensors_note {
    const char *key, *value;
};
status safetensors_write(const char *path, const struct safetensors_note *notes, size_t note_count,
                         const struct safetensors_tensor *tensors, size_t count);

/* A further name of a parameter: "lm_head.weight" of the tied "wte.weight". */
struct safetensors_alias {
    const char *name, *of;
};

/* What a file is loaded into. */
struct safetensors_target {
    const struct params *const *sets; /* (set_count) */
    size_t set_count;
    const struct safetensors_alias *aliases; /* (alias_count) */
    size_t alias_count;
    const char *const *products; /* (product_count): names of parameters that are factors of matrix products */
    size_t product_count;
};

/* Fills the values of all parameters from the file: every name and shape must match, in both directions, and every
 * difference is a line of the STATUS_DATA failure; then nothing was changed. F64, F16 and BF16 are converted; a number
 * that is not finite in float32 is STATUS_DATA, too, with its tensor. Where some of the file's matrices fit only
 * transposed, the failure also names its square products, whose shape does not show their layout. What
 * DistributedDataParallel ("module.") and torch.compile ("_orig_mod.") put before every name is taken off; PyTorch's
 * num_batches_tracked are passed over; an alias may stand beside its parameter, with the same numbers, or for it. */
status safetensors_load(const char *path, const struct safetensors_target *target);

/* Adds what is in the file: its metadata, and a line for each tensor with type, shape and the range of its numbers. */
status safetensors_inspect(const char *path, struct text *out);

/* The JSON header and its checks alone: for the fuzzer. [bytes] (size): a whole file. */
status safetensors_check(const char *name, const void *bytes, size_t size);

#endif
