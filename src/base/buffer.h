/* buffer: large allocations (parameters, gradients, file images). A request that exceeds the machine's memory returns a
 * failure for the user instead of ending the process. */
#pragma once

#include <stddef.h>

#include "base/status.h"

#define BUFFER_ALIGNMENT 64

/* Allocates [bytes] zeroed bytes, aligned to BUFFER_ALIGNMENT; 0 bytes give a block too. Large blocks ask the kernel
 * for huge pages. [out]: the pointer, of any type, that is set to it. Without enough memory: STATUS_MEMORY with the
 * purpose ([what], "the gradients") and the size in MiB, and the pointer is NULL. Release with buffer_free. */
status buffer_new(size_t bytes, const char *what, void *out);

/* Gives the memory of the first [bytes] bytes back to the system, whole pages of it: their content is lost. For parts
 * of a buffer, and before buffer_free where the process must shrink at once. */
void buffer_discard(void *buffer, size_t bytes);

void buffer_free(void *buffer); /* takes NULL */

/* Grows a malloc'ed array for [count] items of [size] bytes, to more than twice as many: [items]: its pointer, of any
 * type, for free. STATUS_MEMORY with [what], and the array stays as it is. */
status array_grow(void *items, size_t *capacity, size_t count, size_t size, const char *what);
