/* scoped: local variables that are freed where their block ends, on every way out of it: SCOPED_TEXT why = {0}; What
 * the function gives away is an ordinary struct text or char *, and so is what it allocates in sight of clang's
 * analyzer, which does not know the attribute and reports a leak. */
#pragma once

#include <stdlib.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/text.h"

static inline void scoped_free(char **string) { free(*string); }
static inline void scoped_buffer_free(void *variable) { buffer_free(*(void **)variable); }
static inline void scoped_destroy(struct arena **arena) { arena_destroy(*arena); }

#define SCOPED_TEXT __attribute__((cleanup(text_free))) struct text
#define SCOPED_STRING __attribute__((cleanup(scoped_free))) char * /* malloc'ed, or NULL */
#define SCOPED_ARENA __attribute__((cleanup(scoped_destroy))) struct arena *
#define SCOPED_BUFFER                                                                                                  \
    __attribute__((cleanup(scoped_buffer_free))) /* before a pointer to memory of buffer_new, or NULL */
