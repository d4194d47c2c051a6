/* config_aliases: words of other programs and what they mean in a config, for suggestions. */
#ifndef TRAIN_CONFIG_ALIASES_H
#define TRAIN_CONFIG_ALIASES_H

#include "base/schema.h"

/* Of config_schema; the last row has words NULL. */
extern const struct schema_alias config_aliases[];

#endif
