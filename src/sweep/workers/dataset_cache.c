/* The open datasets of a process. A list that is searched by the text of the config's section. If it is full, the
 * datasets that were not used for the longest time are closed. */
#include "sweep/workers/dataset_cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/files/digest.h"

struct cached {
    char *text, key[DATASET_KEY_SIZE]; /* key: of the text */
    struct dataset *dataset;
    uint64_t bytes, used; /* used: when, by the counter of the cache */
};

struct dataset_cache {
    struct cached *items; /* the first [shared] were opened before dataset_cache_limit */
    size_t count, capacity, shared;
    uint64_t uses, limit;
};

struct dataset_cache *dataset_cache_create(void) {
    struct dataset_cache *cache = status_need(calloc(1, sizeof *cache));
    cache->limit = UINT64_MAX;
    return cache;
}

static void remove_item(struct dataset_cache *cache, size_t index) {
    free(cache->items[index].text);
    dataset_close(cache->items[index].dataset);
    cache->items[index] = cache->items[--cache->count];
}

void dataset_cache_destroy(struct dataset_cache *cache) {
    if (!cache) return;
    while (cache->count > 0) remove_item(cache, cache->count - 1);
    free(cache->items);
    free(cache);
}

void dataset_cache_limit(struct dataset_cache *cache, uint64_t bytes) {
    cache->shared = cache->count;
    cache->limit = bytes;
}

static void add_names(const struct string_list *names, struct text *out) {
    for (size_t i = 0; i < names->count; i++) text_printf(out, "%s ", names->items[i]);
    text_add(out, "\n");
}

static void add_ignored(const struct ignored_class *ignored, struct text *out) {
    text_printf(out, "%d %lld\n", ignored->is_set, ignored->is_set ? (long long)ignored->value : 0);
}

/* All that the rows depend on. */
static char *text_of(const struct config *c) {
    struct text key = {0};
    text_printf(&key, "%d %d %d %d\n", config_loss(c)->wants_classes, c->dataset.request.balances_classes,
                (int)c->dataset.request.target_range, c->dataset.request.has_losses);
    add_ignored(&c->dataset.request.ignored, &key);
    for (size_t i = 0; i < c->dataset.request.class_targets.count; i++)
        add_ignored(&c->dataset.request.class_targets_ignored[i], &key);
    add_names(&c->dataset.request.class_targets, &key);
    for (size_t i = 0; i < TARGET_RANGES; i++) add_names(&c->dataset.request.range_targets[i], &key);
    add_names(&c->dataset.request.input_targets, &key);
    schema_write_yaml(&dataset_schema, &c->dataset, &key);
    return key.data;
}

static void set_key(struct cached *item) {
    char hex[DIGEST_HEX_SIZE];
    digest_hex_of(item->text, strlen(item->text), hex);
    memcpy(item->key, hex, DATASET_KEY_SIZE - 1);
    item->key[DATASET_KEY_SIZE - 1] = 0;
}

static void trim(struct dataset_cache *cache) {
    for (;;) {
        uint64_t bytes = 0;
        size_t oldest = cache->shared;
        for (size_t i = cache->shared; i < cache->count; i++) {
            bytes += cache->items[i].bytes;
            if (cache->items[i].used < cache->items[oldest].used) oldest = i;
        }
        if (bytes <= cache->limit || cache->count <= cache->shared + 1) return;
        remove_item(cache, oldest);
    }
}

/* With dataset.window the rows are in memory once, and a number for each window. */
static uint64_t bytes_of(const struct dataset_info *info) {
    const struct dataset_windows *windows = &info->windows;
    uint64_t samples = info->train_rows + info->validation_rows, target = dataset_target_bytes(info);
    if (windows->steps == 0) return samples * (info->input_size * sizeof(float) + target);
    uint64_t row = windows->features * sizeof(float) + target / windows->target_steps;
    return windows->rows * row + samples * sizeof(int64_t);
}

/* Takes item->text and item->dataset. */
static void add(struct dataset_cache *cache, const struct cached *item) {
    if (cache->count == cache->capacity) {
        cache->capacity = cache->capacity * 2 + 8;
        cache->items = status_need(realloc(cache->items, cache->capacity * sizeof *cache->items));
    }
    cache->items[cache->count++] = *item;
    trim(cache);
}

status dataset_cache_open(struct dataset_cache *cache, const struct config *config, char key[DATASET_KEY_SIZE],
                          struct dataset **out) {
    struct cached new = {.text = text_of(config), .used = ++cache->uses};
    *out = NULL;
    for (size_t i = 0; i < cache->count; i++)
        if (strcmp(cache->items[i].text, new.text) == 0) {
            free(new.text);
            cache->items[i].used = new.used;
            memcpy(key, cache->items[i].key, DATASET_KEY_SIZE);
            *out = dataset_retain(cache->items[i].dataset);
            return OK;
        }
    status s = dataset_open(&config->dataset, config_loss(config)->wants_classes, false, &new.dataset);
    if (s) {
        free(new.text);
        return s;
    }
    set_key(&new);
    memcpy(key, new.key, DATASET_KEY_SIZE);
    new.bytes = bytes_of(dataset_info(new.dataset));
    *out = dataset_retain(new.dataset);
    add(cache, &new);
    return OK;
}
