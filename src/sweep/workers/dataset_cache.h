/* dataset_cache: the datasets that a process of a sweep has open, so that trials with the same data do not read them
 * again. */
#pragma once

#include "data/dataset/dataset.h"
#include "train/config/config.h"

struct dataset_cache;
struct dataset_cache *dataset_cache_create(void);
void dataset_cache_destroy(struct dataset_cache *cache); /* takes NULL */

/* In a process that was forked: the datasets that are open now share their memory with the parent process, and are
 * kept. Those that are opened from now on are kept up to [bytes] of rows, and the newest in any case. */
void dataset_cache_limit(struct dataset_cache *cache, uint64_t bytes);

#define DATASET_KEY_SIZE 17 /* characters, NUL included */

/* The dataset of the config, shared: the caller closes it. Configs with the same [key] have the same rows as long as
 * the files are the same. */
status dataset_cache_open(struct dataset_cache *cache, const struct config *config, char key[DATASET_KEY_SIZE],
                          struct dataset **out);
