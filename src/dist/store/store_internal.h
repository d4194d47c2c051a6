/* store_internal: functions of a store that store_agree.c needs. */
#ifndef DIST_STORE_INTERNAL_H
#define DIST_STORE_INTERNAL_H

#include "dist/store/store.h"

int store_rank(const struct store *store);
int store_world_size(const struct store *store);
/* 0, 1, 2, ...: equal on all ranks, which call store_agree in the same order. */
unsigned store_next_agreement(struct store *store);

#endif
