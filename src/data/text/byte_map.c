/* Open addressing, at most half full; the strings are in one block, so that a clear is cheap. */
#include <stdlib.h>
#include <string.h>

#include "data/text/tokenizer_internal.h"

#define FIRST_SLOTS 1024

uint64_t byte_map_hash(const char *bytes, size_t size) {
    const uint64_t odd = 0x9e3779b97f4a7c15u;
    uint64_t hash = (size + 1) * odd, word;
    for (; size >= sizeof word; bytes += sizeof word, size -= sizeof word) {
        memcpy(&word, bytes, sizeof word);
        hash = (hash ^ word) * odd;
        hash ^= hash >> 32;
    }
    word = 0;
    for (size_t i = 0; i < size; i++) word |= (uint64_t)(uint8_t)bytes[i] << 8 * i;
    hash = (hash ^ word) * odd;
    return hash ^ hash >> 29;
}

static struct byte_entry *slot_of(const struct byte_map *map, uint64_t hash, const char *bytes, size_t size) {
    for (size_t i = hash & (map->slot_count - 1);; i = (i + 1) & (map->slot_count - 1)) {
        struct byte_entry *entry = &map->slots[i];
        if (!entry->is_used) return entry;
        if (entry->hash == hash && entry->key.length == size && memcmp(map->pool + entry->key.offset, bytes, size) == 0)
            return entry;
    }
}

const struct byte_entry *byte_map_find(const struct byte_map *map, uint64_t hash, const char *bytes, size_t size) {
    if (map->slot_count == 0) return NULL;
    const struct byte_entry *entry = slot_of(map, hash, bytes, size);
    return entry->is_used ? entry : NULL;
}

static status grow(struct byte_map *map) {
    size_t before = map->slot_count, count = before ? 2 * before : FIRST_SLOTS;
    struct byte_entry *old = map->slots, *slots = calloc(count, sizeof *slots);
    if (!slots) return status_memory("the tokenizer");
    map->slots = slots;
    map->slot_count = count;
    for (size_t i = 0; i < before; i++)
        if (old[i].is_used) *slot_of(map, old[i].hash, map->pool + old[i].key.offset, old[i].key.length) = old[i];
    free(old);
    return OK;
}

status byte_map_keep(struct byte_map *map, const char *bytes, size_t size, struct pool_range *out) {
    if (size > UINT32_MAX - map->pool_size) return status_new(STATUS_DATA, "the tokens have more than 4 GiB");
    if (map->pool_size + size > map->pool_capacity) {
        size_t capacity = 2 * (map->pool_size + size) + FIRST_SLOTS;
        char *pool = realloc(map->pool, capacity);
        if (!pool) return status_memory("the tokenizer");
        map->pool = pool;
        map->pool_capacity = capacity;
    }
    memcpy(map->pool + map->pool_size, bytes, size);
    *out = (struct pool_range){(uint32_t)map->pool_size, (uint32_t)size};
    map->pool_size += size;
    return OK;
}

status byte_map_add(struct byte_map *map, uint64_t hash, const char *bytes, size_t size, uint32_t value) {
    struct pool_range key;
    if (2 * (map->count + 1) > map->slot_count) TRY(grow(map));
    TRY(byte_map_keep(map, bytes, size, &key));
    *slot_of(map, hash, bytes, size) = (struct byte_entry){hash, key, value, true};
    map->count++;
    return OK;
}

void byte_map_clear(struct byte_map *map) {
    if (map->slots) memset(map->slots, 0, map->slot_count * sizeof *map->slots);
    map->pool_size = map->count = 0;
}

void byte_map_free(struct byte_map *map) {
    free(map->slots);
    free(map->pool);
}
