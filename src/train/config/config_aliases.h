/* config_aliases: names that other programs use for keys and values of a config, for suggestions. */
#ifndef TRAIN_CONFIG_ALIASES_H
#define TRAIN_CONFIG_ALIASES_H

#include "base/schema/schema.h"

/* config_schema's [alias_table]: those of each layer, loss and optimizer, then those of the other sections. Rows of one
 * layer precede rows of all layers. */
const struct schema_alias *config_alias_table(size_t index);

#endif
