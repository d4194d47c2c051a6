/* A hash table with chaining and a fixed number of slots: a job has a few keys for each rank. */
#include "dist/store/store_keys.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS 1024

struct store_value {
    struct store_value *next;
    char *key;
    uint8_t *value;
    size_t size;
};

struct store_keys {
    struct store_value *slots[SLOTS];
};

static size_t slot_of(const char *key) {
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (; *key; key++) hash = (hash ^ (unsigned char)*key) * 16777619u;
    return hash % SLOTS;
}

static struct store_value *find(const struct store_keys *keys, const char *key) {
    struct store_value *e = keys->slots[slot_of(key)];
    while (e && strcmp(e->key, key) != 0) e = e->next;
    return e;
}

struct store_keys *store_keys_create(void) {
    return calloc(1, sizeof(struct store_keys));
}

void store_keys_destroy(struct store_keys *keys) {
    if (!keys) return;
    for (size_t i = 0; i < SLOTS; i++)
        for (struct store_value *e = keys->slots[i], *next; e; e = next) {
            next = e->next;
            free(e->key);
            free(e->value);
            free(e);
        }
    free(keys);
}

static struct store_value *add(struct store_keys *keys, const char *key) {
    struct store_value *e = calloc(1, sizeof *e);
    if (!e || !(e->key = strdup(key))) {
        free(e);
        return NULL;
    }
    struct store_value **slot = &keys->slots[slot_of(key)];
    e->next = *slot;
    *slot = e;
    return e;
}

bool store_keys_set(struct store_keys *keys, const char *key, const void *value, size_t size) {
    uint8_t *copy = malloc(size + 1);
    if (!copy) return false;
    if (size) memcpy(copy, value, size);
    struct store_value *e = find(keys, key);
    if (!e) e = add(keys, key);
    if (!e) {
        free(copy);
        return false;
    }
    free(e->value);
    e->value = copy;
    e->size = size;
    return true;
}

const uint8_t *store_keys_get(const struct store_keys *keys, const char *key, size_t *size) {
    const struct store_value *e = find(keys, key);
    if (!e) return NULL;
    *size = e->size;
    return e->value;
}
