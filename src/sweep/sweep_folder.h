/* sweep_folder: sweeps/<name>, where a sweep keeps sweep.yaml and base_config.yaml (both resolved; of a comparison
 * also other_config.yaml), history.jsonl, trials.csv and runs/0042, ordinary run folders. One coordinator at a time
 * owns it, or several processes share it (claims.h): then nothing in it is locked, and its files are created by
 * io_link and replaced by a rename. */
#pragma once

#include "base/log.h"
#include "sweep/trials.h"

struct sweep_folder;

#define SWEEP_BASE_CONFIG "base_config.yaml"
#define SWEEP_OTHER_CONFIG "other_config.yaml"
#define SWEEP_SHARED "shared"                 /* of a sweep that several processes share */
#define SWEEP_MEMBERS SWEEP_SHARED "/members" /* a folder for each process */
#define SWEEP_BLOCKS SWEEP_SHARED "/blocks"   /* claims and results */

/* Opens (makes) [path] and takes its lock. STATUS_USAGE: another process has it; the folder is another sweep's, with
 * the first difference; it has files that are no sweep's. [is_fresh]: what is there is first moved to "<path>.1" ...
 * Where repeat.seeds was added or removed since the last start, the runs of the first seed are moved to their paths. */
status sweep_folder_open(const char *path, bool is_fresh, const struct sweep_file *file, struct log *log,
                         struct sweep_folder **out);
/* The same for one of several processes, whose own folder becomes <path>/shared/members/[member]. STATUS_USAGE also
 * where repeat.seeds has changed, and where one process alone runs the sweep. */
status sweep_folder_open_shared(const char *path, const char *member, const struct sweep_file *file,
                                struct sweep_folder **out);
/* The own folder of a process that shares the sweep, only for its run folders. */
struct sweep_folder *sweep_folder_of_member(const char *own);
/* The same folder by a path that remains valid when it is moved, so that files are never written to the folder of
 * another sweep; for this process alone. */
const char *sweep_folder_by_fd(const struct sweep_folder *folder);
/* [failure] (consumed; OK stays) with the folder's path in the place of that one. */
status sweep_folder_explain(const struct sweep_folder *folder, status failure);
/* A path for temporary files of this process alone, on the same file system; NULL: the folder is not shared. */
const char *sweep_folder_temporary(const struct sweep_folder *folder);
/* A new file, complete from the moment it has its name, or *is_taken: there is one. [temporary]:
 * sweep_folder_temporary. [is_durable]: its name, too, is on disk on return. */
status sweep_folder_publish(const char *temporary, const char *path, const char *text, bool is_durable, bool *is_taken);
void sweep_folder_close(struct sweep_folder *folder); /* takes NULL */
/* Before files of it are written: finds the locked folder, which may have been moved; then the path is the new one,
 * with a warning (*has_moved). STATUS_IO: it was deleted, or another process has its lock. */
status sweep_folder_follow(struct sweep_folder *folder, struct log *log, bool *has_moved);
uint64_t sweep_folder_inode(const struct sweep_folder *folder);
const char *sweep_folder_path(const struct sweep_folder *folder);

/* "<path>/runs/0042", malloc'ed. */
char *sweep_trial_path(const char *folder, int64_t trial);
/* "<path>/runs/0042", with repeats "<path>/runs/0042/seed-1-fold-2", malloc'ed. */
char *sweep_run_path(const char *folder, const struct sweep_config *sweep, int64_t run);

/* Removes the run folders of trial [trial], whose runs are [results] (sweep->runs). OK when there are none. Where one
 * was trained further, has another state or contains files that no run writes, all are left, and [log] gets a line
 * (NULL: not wanted). */
status sweep_folder_remove_trial(const struct sweep_folder *folder, const struct sweep_config *sweep, int64_t trial,
                                 const struct trial_run *results, struct log *log);

/* [point] of a trial without results was just drawn. Where an earlier start, which drew other values, has begun its
 * runs, *point becomes what they have, so that they continue; if that is not known, their folders are removed, with a
 * line for [log]. [no_gpu]: as worker_options'. */
status sweep_folder_continue_trial(const struct sweep_folder *folder, const struct sweep_config *sweep, int64_t trial,
                                   const char *no_gpu, struct log *log, struct point *point);

/* The numbers of the trials that have a folder: calls [visit] for each until it fails. */
status sweep_folder_visit(const struct sweep_folder *folder, status (*visit)(void *user, int64_t trial), void *user);

/* ---- the run folder of a trial ---- */

enum trial_folder_state {
    TRIAL_FOLDER_AS_LEFT, /* of the run in the table, of a part of it, or without a run */
    TRIAL_FOLDER_DIFFERS, /* of a run as long, which has ended with another state */
    TRIAL_FOLDER_EXTENDED /* trained further than the table says, or being trained now */
};

/* What the folder [path] has of the run that is [result] in the table. */
status trial_folder_compare(const char *path, const struct trial_run *result, enum trial_folder_state *out);

/* Whether the folder [path] has the complete run that is [result] in the table. */
status trial_folder_is_complete(const char *path, const struct trial_run *result, bool *out);

/* The value [name] of the last line of the run in the folder [path], if it has ended; NAN: there is none. */
status trial_folder_value(const char *path, const char *name, double *out);

/* Adds the name of a file or folder in run folder [path] that no run writes to [name]; nothing: there is none. */
status trial_folder_find_other(const char *path, struct text *name);
