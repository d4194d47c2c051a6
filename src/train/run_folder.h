/* run_folder: runs/<name>, where a run keeps its resolved config, metrics, log and checkpoints. One process at a time
 * owns it. Nothing in it is changed before the run is known to be able to start. Rank 0. */
#ifndef TRAIN_RUN_FOLDER_H
#define TRAIN_RUN_FOLDER_H

#include <stdbool.h>

#include "base/log.h"
#include "base/status.h"
#include "train/config.h"

struct run_folder;

/* Opens (makes) [path] and takes its lock; another owner is STATUS_USAGE naming the folder. [is_fresh]: an existing
 * folder is first moved aside to "<path>.1", ".2" ... (its name is logged). A folder of a config that differs in more
 * than keys that extend a run is STATUS_USAGE with the differences. */
status run_folder_open(const char *path, bool is_fresh, const struct config *config, struct log *log,
                       struct run_folder **out);
void run_folder_close(struct run_folder *folder); /* takes NULL */

const char *run_folder_metrics(const struct run_folder *folder);     /* "<path>/metrics.jsonl" */
const char *run_folder_log(const struct run_folder *folder);         /* "<path>/log.txt" */
const char *run_folder_checkpoints(const struct run_folder *folder); /* "<path>/checkpoints" */

/* Writes the resolved config when it is new or differs: from here on the folder belongs to this run. */
status run_folder_write_config(struct run_folder *folder, const char *text);

#endif
