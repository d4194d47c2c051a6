/* mapped: loads a file of tensors whose names or layouts are not the model's, by the rules of a weight_map. */
#ifndef CHECKPOINT_MAPPED_H
#define CHECKPOINT_MAPPED_H

#include "checkpoint/safetensors.h"
#include "model/weight_map.h"

/* As safetensors_load, except that names and layouts follow [source], and what does not match is allowed by
 * source->is_partial. Adds lines to [report]: which tensors were used, which were not and why, and which parameters
 * keep their values. A square matrix of a product whose layout no rule states is a difference when others are
 * transposed. */
status mapped_load(const char *path, const struct safetensors_target *target, const struct weight_source *source,
                   struct text *report);

#endif
