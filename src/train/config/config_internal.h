/* config_internal: what config_schema.c, which has the rows, and config_check.c, which checks combinations of
 * sections, share. */
#ifndef TRAIN_CONFIG_INTERNAL_H
#define TRAIN_CONFIG_INTERNAL_H

#include "train/config/config.h"

/* The place of [node]; NULL: no place. */
static inline struct place config_place(const struct node *node) { return node ? node->place : (struct place){0}; }

/* Reports wrong entries of `losses`. */
void config_check_losses(const struct config *config, const struct node *root, struct problems *problems);

/* Reports combinations of keys of different sections that contradict each other. The check of config_schema. */
void config_check(void *config, const struct node *where, const char *path, struct problems *problems);

#endif
