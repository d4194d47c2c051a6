/* config_aliases: names that other programs use for keys and values of a config, for suggestions. */
#pragma once

#include "base/schema/schema.h"

/* config_schema's [alias_table]: those of each layer, loss and optimizer, then those of the other sections. Rows of one
 * layer precede rows of all layers. */
const struct schema_alias *config_alias_table(size_t index);
