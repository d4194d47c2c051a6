/* run_list: the run folders below a folder, as a table: their states, progress, best epochs, times and sizes. Only
 * files are read, so it works while the runs write them. */
#ifndef TRAIN_RUN_LIST_H
#define TRAIN_RUN_LIST_H

#include "base/status.h"
#include "base/text.h"

/* Adds a table of the run folders in [folder], sorted by name. A run folder has .lock, config.yaml and metrics.jsonl.
 * Its state is `running` while a process holds its lock, `complete` or `stopped` by its last event, else `failed`: the
 * process ended with an error or was killed. STATUS_DATA for a folder that is absent or has no run. */
status run_list(const char *folder, struct text *out);

#endif
