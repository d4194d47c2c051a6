/* trial_folder: whether the run folder of a trial is as the sweep has left it, so that it may be removed, or has become
 * the user's: the run was trained further, or other files lie in it. */
#ifndef SWEEP_TRIAL_FOLDER_H
#define SWEEP_TRIAL_FOLDER_H

#include "sweep/trials.h"

enum trial_folder_state {
    TRIAL_FOLDER_AS_LEFT, /* of the run in the table, of a part of it, or without a run */
    TRIAL_FOLDER_DIFFERS, /* of a run as long, which has ended with another state */
    TRIAL_FOLDER_EXTENDED /* trained further than the table says, or being trained now */
};

/* What the folder [path] has of the run that is [result] in the table. */
status trial_folder_compare(const char *path, const struct trial_run *result, enum trial_folder_state *out);

/* The value [name] of the last line of the run in the folder [path], if it has ended; NAN: there is none. */
status trial_folder_value(const char *path, const char *name, double *out);

/* Adds the name of a file or folder in run folder [path] that no run writes to [name]; nothing: there is none. */
status trial_folder_find_other(const char *path, struct text *name);

#endif
