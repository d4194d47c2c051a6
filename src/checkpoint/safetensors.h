/* safetensors: the file format for exchanging weights with PyTorch: 8 bytes with the length of a JSON header, the
 * header
 * {"name": {"dtype": "F32", "shape": [64, 13], "data_offsets": [from, to]}, ...}, then the values, little-endian. Files
 * are not trusted: everything is checked before it is used. */
#ifndef CHECKPOINT_SAFETENSORS_H
#define CHECKPOINT_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "checkpoint/named_tensor.h"
#include "model/params.h"

/* An entry of the header's "__metadata__", besides "format": "pt"; [value] NULL: omitted. */
struct safetensors_note {
    const char *key, *value;
};
/* Writes the file with io_replace. */
status safetensors_write(const char *path, const struct safetensors_note *notes, size_t note_count,
                         const struct named_tensor *tensors, size_t count);

/* Another name of a parameter: "lm_head.weight" of the tied "wte.weight". */
struct safetensors_alias {
    const char *name, *of;
};

/* A text of the header's "__metadata__" that the caller asks for. */
struct safetensors_wanted {
    const char *key;
    char *value; /* freed by the caller; NULL: the file does not have it */
};

/* The parameters that a file is loaded into. */
struct safetensors_target {
    const struct params *const *sets; /* (set_count) */
    size_t set_count;
    const struct safetensors_alias *aliases; /* (alias_count) */
    size_t alias_count;
    const char *const *products; /* (product_count): names of parameters that are factors of matrix products */
    size_t product_count;
    struct safetensors_wanted *wanted; /* (wanted_count) */
    size_t wanted_count;
    bool is_torch; /* the file is one of torch.save */
};

/* Fills the values of all parameters from the file. Names and shapes of file and model must be the same; else each
 * difference is a line of the STATUS_DATA failure, and no value is changed. F64, F16 and BF16 are converted; a value
 * that is not finite in float32 is STATUS_DATA too. When some matrices of the file match only transposed, the failure
 * also lists its square product matrices, whose layout the shape does not show. The prefixes of DistributedDataParallel
 * ("module.") and torch.compile ("_orig_mod.") are removed from names, and one that all share, where the rest is a name
 * of the model; PyTorch's num_batches_tracked are ignored; an
 * alias may be in the file instead of its parameter or, with the same values, beside it. */
status safetensors_load(const char *path, const struct safetensors_target *target);

/* Describes the file: its metadata, and a line for each tensor with type, shape and the range of its values. */
status safetensors_inspect(const char *path, struct text *out);

/* Only parses and checks the header, for the fuzzer. [bytes] (size): a whole file. */
status safetensors_check(const char *name, const void *bytes, size_t size);

#endif
