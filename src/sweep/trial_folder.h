/* trial_folder: whether the run folder of a trial is as the sweep has left it, so that it may be removed, or has become
 * the user's: the run was trained further, or other files lie in it. */
#ifndef SWEEP_TRIAL_FOLDER_H
#define SWEEP_TRIAL_FOLDER_H

#include "sweep/trials.h"

/* Whether the run in folder [path] was trained further than [result], which the table has of it. false also when the
 * folder has no run. */
status trial_folder_is_extended(const char *path, const struct trial_run *result, bool *out);

/* Adds the name of a file or folder in run folder [path] that no run writes to [name]; nothing: there is none. */
status trial_folder_find_other(const char *path, struct text *name);

#endif
