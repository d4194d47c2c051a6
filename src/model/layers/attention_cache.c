/* The queries of a group are the rows of two products: with the keys of its head, and of their softmax with the values.
 * Keys and values of a head are stored one position after the other. */
#include "model/layers/attention_cache.h"

#include <math.h>
#include <stdlib.h>

struct attention_cache {
    struct head_groups groups;
    float *keys, *values; /* (kv_heads, positions, head_size) */
    float *queries;       /* (heads * head_size) of the position, scaled */
    float *scores;        /* (heads / kv_heads, positions) */
    float *scales;        /* (heads * head_size) times 1 / sqrt(head_size) */
};

static status alloc_all(struct attention_cache *c, struct device *device) {
    const struct head_groups *g = &c->groups;
    size_t stored = g->kv_heads * g->positions * g->head_size, features = g->heads * g->head_size;
    size_t scores = g->heads / g->kv_heads * g->positions;
    TRY(device_alloc(device, stored * sizeof *c->keys, "the keys of an attention", (void **)&c->keys));
    TRY(device_alloc(device, stored * sizeof *c->values, "the values of an attention", (void **)&c->values));
    TRY(device_alloc(device, features * sizeof *c->queries, "the queries of an attention", (void **)&c->queries));
    TRY(device_alloc(device, 2 * scores * sizeof *c->scores, "the scores of an attention", (void **)&c->scores));
    TRY(device_alloc(device, features * sizeof *c->scales, "the scale of an attention", (void **)&c->scales));
    TRY(device_map(device, (void **)&c->scales));
    for (size_t i = 0; i < features; i++) c->scales[i] = 1 / sqrtf((float)g->head_size);
    return device_unmap(device, (void **)&c->scales, true);
}

status attention_cache_create(struct device *device, const struct head_groups *groups, struct attention_cache **out) {
    struct attention_cache *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c) return status_memory("the cache of an attention");
    c->groups = *groups;
    status s = alloc_all(c, device);
    if (s)
        attention_cache_destroy(c, device);
    else
        *out = c;
    return s;
}

void attention_cache_destroy(struct attention_cache *c, struct device *device) {
    if (!c) return;
    device_free(device, c->keys);
    device_free(device, c->values);
    device_free(device, c->queries);
    device_free(device, c->scores);
    device_free(device, c->scales);
    free(c);
}

void attention_cache_forward(struct attention_cache *c, struct device *device, size_t position, const float *qkv,
                             float *y) {
    const struct device_ops *ops = device_ops(device);
    const struct head_groups *g = &c->groups;
    size_t size = g->head_size, group = g->heads / g->kv_heads, count = position + 1;
    float *softmaxes = c->scores + group * g->positions;
    ops->multiply(device, qkv, c->scales, c->queries, g->heads * size);
    for (size_t h = 0; h < g->kv_heads; h++) {
        float *keys = c->keys + h * g->positions * size, *values = c->values + h * g->positions * size;
        const float *key = qkv + (g->heads + h) * size, *value = key + g->kv_heads * size;
        ops->copy(device, key, keys + position * size, size);
        ops->copy(device, value, values + position * size, size);
        ops->linear_forward(device, c->queries + h * group * size, keys, NULL, false, c->scores, group, size, count);
        ops->sequence->softmax_forward(device, c->scores, softmaxes, group, count);
        ops->linear_backward_input(device, softmaxes, values, y + h * group * size, group, size, count);
    }
}
