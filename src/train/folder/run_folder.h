/* run_folder: runs/<name>, with the resolved config, metrics, log and checkpoints of a run. It is locked by one process
 * at a time, and changed only after all checks of the start. Rank 0. */
#pragma once

#include "base/log.h"
#include "base/status.h"
#include "train/config/config.h"

struct run_folder;

enum run_folder_start {
    RUN_FOLDER_ANY,      /* an existing run is continued */
    RUN_FOLDER_FRESH,    /* the folder of an earlier run is renamed to "<path>.1", ".2" ... (logged) */
    RUN_FOLDER_REQUIRED, /* this job has created it before: STATUS_USAGE when it does not exist */
};

/* Opens or creates [path] and locks it. STATUS_USAGE when another process has the lock; when its config differs in
 * other keys than those that extend a run, with the differences; when it is not a run folder and has files with names
 * that a run writes. The text of the lock file or the seal of a checkpoint identifies a run folder. */
status run_folder_open(const char *path, enum run_folder_start start, const struct config *config, struct log *log,
                       struct run_folder **out);
/* The failures that run_folder_open would have, but for those of creating files. Changes nothing. */
status run_folder_check(const char *path, enum run_folder_start start, const struct config *config);
/* A folder of a sweep: one that was deleted is only created anew where the folder around it still exists, since another
 * sweep may begin at that path. */
status run_folder_set_in_sweep(struct run_folder *folder);
void run_folder_close(struct run_folder *folder); /* takes NULL */

/* Whether [path] is the folder of a run: its lock file, the seal of a checkpoint, or its config and metrics identify
 * it.
 */
status run_folder_is_run(const char *path, bool *out);
/* The same for commands that only read: also a copy without these files, which has metrics.jsonl. */
status run_folder_is_readable(const char *path, bool *out);

const char *run_folder_metrics(const struct run_folder *folder);     /* "<path>/metrics.jsonl" */
const char *run_folder_ledger(const struct run_folder *folder);      /* "<path>/ledger.jsonl" */
const char *run_folder_log(const struct run_folder *folder);         /* "<path>/log.txt" */
const char *run_folder_checkpoints(const struct run_folder *folder); /* "<path>/checkpoints" */
/* The same folder by a path that remains valid when it is moved, so that files are never written to the folder of
 * another run. */
const char *run_folder_checkpoints_by_fd(const struct run_folder *folder);

/* Before a save: finds the locked folder, which may have been moved, or deleted and replaced by another run. If moved,
 * continues with its new path. If deleted, creates a new one with config.yaml and log.txt (*is_new), at the old path
 * or, if that exists, "<path>.1" ... Both log a warning with both paths and change the paths above (*has_changed).
 * Otherwise writes deleted files again; *is_new: metrics.jsonl is missing, too. */
status run_folder_follow(struct run_folder *folder, struct log *log, bool *has_changed, bool *is_new);

/* Writes the resolved config if it is new or differs. From here on the folder is that of this run. */
status run_folder_write_config(struct run_folder *folder, const char *text);
