/* first_config: a config for a data file that nobody has written one for: `ddptrain init`. */
#pragma once

#include "base/status.h"
#include "base/text.h"

/* Adds a commented config that trains at once on [path]. [target]: the column or dataset to predict; NULL: chosen
 * (data/dataset/suggest.h). [overrides] (count): dataset.csv.KEY=VALUE, how a CSV file is written; they become a part
 * of the config. Adds sentences about what was recognised to [notes], each with a line end. */
status first_config_write(const char *path, const char *target, char *const *overrides, size_t count, struct text *out,
                          struct text *notes);
