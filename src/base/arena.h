/* arena: small blocks that live and die together (a parsed config, a table of names).
 * Allocation of these small blocks never fails: when the host has no memory left for them the process ends
 * with a sentence (exit 74). Large buffers (parameters, batches, images) are not for an arena: they are
 * allocated with buffer_new (base/buffer.h), which answers with a status. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>

struct arena;

struct arena *arena_create(void);
void arena_destroy(struct arena *arena); /* takes NULL */

/* [size] zeroed bytes, aligned for any type. Never NULL. */
void *arena_alloc(struct arena *arena, size_t size);

char *arena_copy(struct arena *arena, const char *text);
char *arena_printf(struct arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
