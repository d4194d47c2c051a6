/* inspect: the output of `ddptrain inspect` for files of weights. */
#pragma once

#include "base/status.h"
#include "base/text.h"

/* Describes a checkpoint or any other HDF5 file: groups, names, shapes, types, counters, and for checkpoints the seal.
 */
status checkpoint_inspect(const char *path, struct text *out);

/* Describes a file of safetensors: its metadata, and a line for each tensor with type, shape and the range of its
 * values. */
status safetensors_inspect(const char *path, struct text *out);
