/* foreign: detects by its first bytes the format of a file that was given as a checkpoint but is none, so that the
 * message can say what to do instead of "damaged". */
#pragma once

#include "base/status.h"

/* Consumes [failure] of opening [path] as a checkpoint: returns a better message when the file has another known
 * format, else [failure]. */
status foreign_explain(const char *path, status failure);

/* Whether the file starts like a safetensors file, or like one of torch.save (also of the format before PyTorch 1.6),
 * regardless of its name. */
bool foreign_is_safetensors(const char *path);
bool foreign_is_torch(const char *path);
