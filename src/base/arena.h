/* arena: small blocks that are freed together (a parsed config, a table of names).
 * Allocation never fails: when the host has no memory left, the process prints a message and exits with 74. Large
 * buffers (parameters, batches, images) do not belong into an arena: buffer_new (base/buffer.h) allocates them and
 * returns a status. */
#pragma once

#include <stdarg.h>
#include <stddef.h>

struct arena;

struct arena *arena_create(void);
void arena_destroy(struct arena *arena); /* takes NULL */

/* [size] zeroed bytes, aligned for any type. Never NULL. */
void *arena_alloc(struct arena *arena, size_t size);

char *arena_copy(struct arena *arena, const char *text);
char *arena_printf(struct arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
