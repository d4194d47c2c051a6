/* run_folder: runs/<name>, where a run keeps its resolved config, metrics, log and checkpoints. One process at a time
 * owns it. Nothing in it is changed before the run is known to be able to start. Rank 0. */
#ifndef TRAIN_RUN_FOLDER_H
#define TRAIN_RUN_FOLDER_H

#include <stdbool.h>

#include "base/log.h"
#include "base/status.h"
#include "train/config.h"

struct run_folder;

enum run_folder_start {
    RUN_FOLDER_ANY,   /* an existing one goes on */
    RUN_FOLDER_FRESH, /* an earlier run's is first moved aside to "<path>.1", ".2" ... (its name is logged) */
    RUN_FOLDER_OURS,  /* this job has made it before: that it is not there is STATUS_USAGE */
};

/* Opens (makes) [path] and takes its lock; another owner is STATUS_USAGE naming the folder. A folder of a config that
 * differs in more than keys that extend a run is STATUS_USAGE with the differences; so is one that is no run's and has
 * a file of a name that a run would write, or take for a checkpoint. A run's folder is known by the text of its lock or
 * by the seal of a checkpoint. */
status run_folder_open(const char *path, enum run_folder_start start, const struct config *config, struct log *log,
                       struct run_folder **out);
void run_folder_close(struct run_folder *folder); /* takes NULL */

/* Whether a run has begun in the folder [path]. */
status run_folder_is_run(const char *path, bool *out);

const char *run_folder_metrics(const struct run_folder *folder);     /* "<path>/metrics.jsonl" */
const char *run_folder_log(const struct run_folder *folder);         /* "<path>/log.txt" */
const char *run_folder_checkpoints(const struct run_folder *folder); /* "<path>/checkpoints" */
/* The same folder by a path that stays true when it is moved: what is written through it can never reach the folder of
 * another run. */
const char *run_folder_checkpoints_held(const struct run_folder *folder);

/* Before a save: where is the folder now that this run has locked? It may have been moved meanwhile, or deleted, and
 * another run may have begun in its place. A moved one is followed; for one that is gone (*is_new) another is made,
 * under the old name or, when that is taken, "<path>.1" ..., with config.yaml and log.txt. Either is a warning with
 * both names, and the paths above are others from then on (*has_changed). Of one that is still there what was deleted
 * is made again; *is_new then says that metrics.jsonl is missing, too. */
status run_folder_follow(struct run_folder *folder, struct log *log, bool *has_changed, bool *is_new);

/* Writes the resolved config when it is new or differs: from here on the folder belongs to this run. */
status run_folder_write_config(struct run_folder *folder, const char *text);

#endif
