/* saved_config: config.json, which transformers' save_pretrained writes beside the weights: it has what the shapes of
 * tensors do not show (heads, eps, the base of rotary embeddings, the activation). */
#ifndef TRAIN_SAVED_CONFIG_H
#define TRAIN_SAVED_CONFIG_H

#include "model/model.h"

/* Compares the layers of [model] with the config.json of [folder], if there is one. STATUS_USAGE with a line for each
 * layer that differs; with [is_partial], where layers may be the user's own, warnings instead. Adds warnings to
 * [warnings], each after a line break. Keys that are missing are not compared. */
status saved_config_compare(const struct model *model, const char *folder, bool is_partial, struct text *warnings);

#endif
