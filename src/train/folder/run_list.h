/* run_list: a table of the run folders in a folder: state, progress, best epoch, time, size. It only reads files and
 * works while runs write them. */
#pragma once

#include "base/status.h"
#include "base/text.h"

/* Adds a table of the run folders in [folder], and in those of its folders that are not runs, the one written last at
 * the end. Of the folder of a sweep, which may be [folder] or in it, these are the runs that the sweep has kept. The
 * state of a run is `running` while a process has its lock, `complete` or `stopped` by its last event, else `failed`:
 * the process ended with an error or was killed. STATUS_DATA for a folder that is absent or has no run. */
status run_list(const char *folder, struct text *out);
