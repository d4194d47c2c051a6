/* attention_cache: causal attention of one position after the other. The keys and values of the positions so far are
 * stored, so that a position costs as many scores as there are positions before it. */
#ifndef MODEL_LAYERS_ATTENTION_CACHE_H
#define MODEL_LAYERS_ATTENTION_CACHE_H

#include "device/device.h"
#include "device/sequence.h"

struct attention_cache;

/* For groups->positions positions. */
status attention_cache_create(struct device *device, const struct head_groups *groups, struct attention_cache **out);
void attention_cache_destroy(struct attention_cache *cache, struct device *device); /* takes NULL */

/* Stores the keys and values of position [position], which is at most the number of those stored, and computes its
 * output y (heads * head_size) from qkv ((heads + 2 kv_heads) * head_size). */
void attention_cache_forward(struct attention_cache *cache, struct device *device, size_t position, const float *qkv,
                             float *y);

#endif
