/* store_keys: the store's memory, a hash table of keys and values. One thread. */
#ifndef DIST_STORE_KEYS_H
#define DIST_STORE_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store_keys;

/* NULL without memory. */
struct store_keys *store_keys_create(void);
void store_keys_destroy(struct store_keys *keys); /* takes NULL */

/* Copies; replaces an older value. false without memory. */
bool store_keys_set(struct store_keys *keys, const char *key, const void *value, size_t size);
/* NULL when the key is not there. The value stays until the key is set again. */
const uint8_t *store_keys_get(const struct store_keys *keys, const char *key, size_t *size);

#endif
