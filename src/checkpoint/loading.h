/* loading: a file of tensors is loaded into the parameters of a model, by the names and shapes of the model, or by the
 * rules of a weight_map. */
#pragma once

#include "base/status.h"
#include "base/text.h"
#include "checkpoint/safetensors.h"
#include "model/params.h"
#include "model/weight_map.h"

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
    bool is_torch;                     /* the file is one of torch.save */
    const struct safetensors *tensors; /* those of the file, already read, not owned; NULL: the file is read */
    /* NULL, or called for each tensor that a parameter got values of; [offset]: of its values in the file. */
    void (*used)(void *user, const struct param *param, size_t offset);
    void *user;          /* its first argument */
    size_t *comparisons; /* NULL, or counts those of two names, for tests */
};

/* Whether a buffer is the state of the rows of the batch before (carry_state), with which no run begins. */
bool loading_is_carried_state(const char *name);

/* Fills the values of all parameters from the file. Names and shapes of file and model must be the same; else each
 * difference is a line of the STATUS_DATA failure, and no value is changed. F64, F16 and BF16 are converted; a value
 * that is not finite in float32 is STATUS_DATA too. When some matrices of the file match only transposed, the failure
 * also lists its square product matrices, whose layout the shape does not show. The prefixes of DistributedDataParallel
 * ("module.") and torch.compile ("_orig_mod.") are removed from names, and one that all share, where the rest is a name
 * of the model; PyTorch's num_batches_tracked and the states of rows (loading_is_carried_state) are ignored; an alias
 * may be in the file instead of its parameter or, with the same values, beside it. */
status safetensors_load(const char *path, const struct safetensors_target *target);

/* As safetensors_load, except that names and layouts follow [source], and what does not match is allowed by
 * source->is_partial. Adds lines to [report]: which tensors were used, which were not and why, and which parameters
 * keep their values. A square matrix of a product whose layout no rule states is a difference when others are
 * transposed. */
status mapped_load(const char *path, const struct safetensors_target *target, const struct weight_source *source,
                   struct text *report);
