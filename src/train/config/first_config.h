/* first_config: a config for a data file that nobody has written one for: `ddptrain init`. */
#ifndef TRAIN_FIRST_CONFIG_H
#define TRAIN_FIRST_CONFIG_H

#include "base/status.h"
#include "base/text.h"

/* Adds a commented config that trains at once on [path]. [target]: the column or dataset to predict; NULL: chosen
 * (data/suggest.h). */
status first_config_write(const char *path, const char *target, struct text *out);

#endif
