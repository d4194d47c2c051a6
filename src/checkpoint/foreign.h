/* foreign: what a file is that was given for a checkpoint and is none: said by its first bytes, with what to do instead
 * of "damaged". */
#ifndef CHECKPOINT_FOREIGN_H
#define CHECKPOINT_FOREIGN_H

#include <stdbool.h>

#include "base/status.h"

/* Consumes [failure], which opening [path] as a checkpoint gave: a better one when the file is of another kind, else
 * it. */
status foreign_explain(const char *path, status failure);

/* Whether it begins like a safetensors file, whatever its name. */
bool foreign_is_safetensors(const char *path);

#endif
