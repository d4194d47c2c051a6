/* Open addressing with linear probing; at most half of the slots are used. */
#include "data/columns/text_pool.h"

#include <stdlib.h>
#include <string.h>

#include "base/files/digest.h"

/* Of most texts the first 8 and the last 8 bytes are all. */
static uint64_t hash_of(const char *text, size_t length) {
    const uint64_t odd = 0x9e3779b97f4a7c15u;
    uint64_t first = 0, last = 0;
    if (length > 16) return hash_add(0, text, length);
    if (length >= 8) {
        memcpy(&first, text, 8);
        memcpy(&last, text + length - 8, 8);
    } else {
        for (size_t i = 0; i < length; i++) first = first << 8 | (unsigned char)text[i];
    }
    uint64_t h = (first ^ length) * odd;
    h = ((h << 29 | h >> 35) ^ last) * odd;
    h = (h ^ h >> 32) * odd;
    return h ^ h >> 29;
}

static size_t slot_of(const struct text_pool *pool, const char *text) {
    size_t slot = (size_t)hash_of(text, strlen(text)) & (pool->slot_count - 1);
    while (pool->slots[slot] && strcmp(pool->items[pool->slots[slot] - 1].text, text) != 0)
        slot = (slot + 1) & (pool->slot_count - 1);
    return slot;
}

static status grow(struct text_pool *pool) {
    size_t capacity = pool->capacity ? pool->capacity * 2 : 16;
    if (capacity > UINT32_MAX / 4) return status_memory("more than %zu different texts of a column", pool->count);
    struct pooled_text *items = realloc(pool->items, capacity * sizeof *items);
    if (items) pool->items = items;
    uint32_t *slots = calloc(2 * capacity, sizeof *slots);
    if (!items || !slots) {
        free(slots);
        return status_memory("%zu different texts of a column", capacity);
    }
    free(pool->slots);
    pool->slots = slots;
    pool->capacity = capacity;
    pool->slot_count = 2 * capacity;
    for (size_t i = 0; i < pool->count; i++) pool->slots[slot_of(pool, pool->items[i].text)] = (uint32_t)i + 1;
    return OK;
}

status text_pool_add(struct text_pool *pool, const char *text, size_t row, size_t *index) {
    if (pool->count == pool->capacity) TRY(grow(pool));
    uint32_t *slot = &pool->slots[slot_of(pool, text)];
    if (!*slot) {
        const char *kept = pool->arena ? arena_copy(pool->arena, text) : text;
        pool->items[pool->count++] = (struct pooled_text){kept, 0, row};
        *slot = (uint32_t)pool->count;
    }
    pool->items[*slot - 1].count++;
    *index = *slot - 1;
    return OK;
}

bool text_pool_has(const struct text_pool *pool, const char *text) {
    return pool->slots && pool->slots[slot_of(pool, text)];
}

void text_pool_free(struct text_pool *pool) {
    free(pool->items);
    free(pool->slots);
    *pool = (struct text_pool){0};
}
