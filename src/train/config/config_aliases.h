/* config_aliases: names that other programs use for keys and values of a config, for suggestions. */
#ifndef TRAIN_CONFIG_ALIASES_H
#define TRAIN_CONFIG_ALIASES_H

#include "base/schema.h"

/* The aliases of config_schema; the last row has words NULL. */
extern const struct schema_alias config_aliases[];

#endif
