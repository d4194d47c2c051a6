/* comparability: whether a metric means the same for two configs, so that its values can be compared; or for the trials
 * of a sweep, whose configs differ in keys. */
#ifndef SWEEP_COMPARABILITY_H
#define SWEEP_COMPARABILITY_H

#include "train/config/config.h"

/* Adds a sentence for each reason why values of [metric] of [a] and [b] are not comparable, each with "\n": another
 * definition of the loss, if it is a loss, and other validation rows or targets. Nothing: none is known. */
void comparability_explain(const struct config *a, const struct config *b, const char *metric, struct text *out);
/* The same for configs that differ in [key], a dotted path, as trials of a sweep do: at most one sentence, with "\n".
 */
void comparability_explain_key(const char *key, const char *metric, struct text *out);

#endif
