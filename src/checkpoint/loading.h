/* loading: a file of tensors and the parameters that it is loaded into. */
#ifndef CHECKPOINT_LOADING_H
#define CHECKPOINT_LOADING_H

#include "base/text.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_file.h"

/* A file and the model it is compared with. */
struct loading {
    struct safetensors file;
    const struct safetensors_target *target;
    struct text prefix; /* of every name in the file */
};

/* By their names in the model; NULL: there is none. */
const struct param *loading_find_param(const struct loading *l, const char *name);
const struct safetensors_alias *loading_find_alias(const struct loading *l, const char *name);

/* PyTorch's num_batches_tracked, which is not loaded. */
bool loading_is_batch_counter(const char *name);

/* Reads the file and sets l->prefix and the texts of l->target->wanted. Call loading_close also after a failure. */
status loading_open(struct loading *l, const char *path);
void loading_close(struct loading *l);

/* Adds the prefix of a class that has the model as a member, such as the "model." of PyTorch Lightning: the shortest
 * parts before a dot that all tensors share, where the rest is a name of the model. */
void loading_find_member(struct loading *l);

/* STATUS_DATA for a tensor of integers or 8-bit floats. */
status loading_check_type(const struct loading *l, const char *name, const struct safetensors_entry *entry);

/* The description of a tensor; STATUS_DATA as loading_check_type. */
status loading_entry(const struct loading *l, const char *name, const json_t *entry, struct safetensors_entry *out);

/* "(3, 64)" */
void loading_add_shape(struct text *out, int dims, const int64_t *shape);

/* STATUS_DATA for the first of the converted [values] (found->count) that is not finite. */
status loading_check_finite(const struct loading *l, const char *name, const struct safetensors_entry *found,
                            const float *values);

#endif
