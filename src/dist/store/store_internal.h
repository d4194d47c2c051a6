/* store_internal: what store_agree.c needs to know of a store. */
#ifndef DIST_STORE_INTERNAL_H
#define DIST_STORE_INTERNAL_H

#include "dist/store/store.h"

int store_rank(const struct store *store);
int store_world_size(const struct store *store);
/* 0, 1, 2, ...: the same on all ranks, which agree in the same order. */
unsigned store_next_agreement(struct store *store);

#endif
