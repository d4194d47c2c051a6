/* store_keys: a hash table of keys and values, owned by the store. Not thread-safe. */
#ifndef DIST_STORE_KEYS_H
#define DIST_STORE_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store_keys;

/* NULL: no memory. */
struct store_keys *store_keys_create(void);
void store_keys_destroy(struct store_keys *keys); /* takes NULL */

/* Copies key and value; replaces an older value. false: no memory. */
bool store_keys_set(struct store_keys *keys, const char *key, const void *value, size_t size);
/* NULL: no such key. The value is valid until the key is set again. */
const uint8_t *store_keys_get(const struct store_keys *keys, const char *key, size_t *size);

#endif
