/* text_pool: the different texts of a column, in the order of their first occurrence. */
#ifndef DATA_TEXT_POOL_H
#define DATA_TEXT_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

struct pooled_text {
    const char *text;
    size_t count, first_row;
};

/* Zero-initialise, but [arena]. */
struct text_pool {
    struct arena *arena; /* texts are copied to it; NULL: they stay valid */
    struct pooled_text *items;
    size_t count, capacity;
    uint32_t *slots; /* (slot_count) hash table: 1 + index into items; 0: free */
    size_t slot_count;
};

/* Counts an occurrence of [text] in [row]: its index. */
status text_pool_add(struct text_pool *pool, const char *text, size_t row, size_t *index);
/* Whether the text was added before. */
bool text_pool_has(const struct text_pool *pool, const char *text);
void text_pool_free(struct text_pool *pool);

#endif
