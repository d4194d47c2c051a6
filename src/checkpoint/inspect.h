/* inspect: of which kind a file of weights is, by its first bytes, and the output of `ddptrain inspect` for it. */
#pragma once

#include "base/status.h"
#include "base/text.h"

/* Describes a checkpoint or any other HDF5 file: groups, names, shapes, types, counters, and for checkpoints the seal.
 */
status checkpoint_inspect(const char *path, struct text *out);

/* Describes a file of safetensors: its metadata, and a line for each tensor with type, shape and the range of its
 * values. */
status safetensors_inspect(const char *path, struct text *out);

/* Consumes [failure] of opening [path] as a checkpoint: returns a better message when the file has another known
 * format, else [failure]. */
status foreign_explain(const char *path, status failure);

/* Whether the file starts like a safetensors file, or like one of torch.save (also of the format before PyTorch 1.6),
 * regardless of its name. */
bool foreign_is_safetensors(const char *path);
bool foreign_is_torch(const char *path);
