/* buffer: large memory (parameters, gradients, images of files), which can be more than the machine has. That is an
 * answer for the user, not the end of the process. */
#ifndef BASE_BUFFER_H
#define BASE_BUFFER_H

#include <stddef.h>

#include "base/status.h"

#define BUFFER_ALIGNMENT 64

/* [bytes] zeroed bytes, aligned to BUFFER_ALIGNMENT; 0 bytes are a block too. Large blocks ask the kernel for huge
 * pages. More than the machine has: STATUS_MEMORY that says what for ([what], "the gradients") and how many MiB, and
 * *out NULL. Released with buffer_free. */
status buffer_new(size_t bytes, const char *what, void **out);

void buffer_free(void *buffer); /* takes NULL */

#endif
