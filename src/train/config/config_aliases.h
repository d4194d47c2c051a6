/* config_aliases: names that PyTorch, Keras, Lightning, Hugging Face and scikit-learn use for keys and values of a
 * config, and common misspellings, for suggestions. The first row that matches is used, so rows of one layer precede
 * rows of all layers. */
#ifndef TRAIN_CONFIG_ALIASES_H
#define TRAIN_CONFIG_ALIASES_H

#include "base/schema/schema.h"

/* The aliases of config_schema: the first of the tables, which continue with config_aliases_training.c,
 * config_aliases_values.c and config_aliases_calls.c. */
extern const struct schema_alias config_aliases_layers[];

#endif
