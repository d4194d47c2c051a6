/* run_internal: what the files of a run share: run.c in which order everything happens, run_join.c how the ranks become
 * a group, run_resume.c where the run starts, run_log.c what is said about its start and end. */
#ifndef TRAIN_RUN_INTERNAL_H
#define TRAIN_RUN_INTERNAL_H

#include "base/text.h"
#include "train/parts.h"
#include "train/plan.h"
#include "train/run_folder.h"

struct run_options;

struct run {
    const struct config *config;
    const struct dist_env *env;
    const struct run_options *options;
    struct log *log; /* NULL except on rank 0 */
    struct log *any_log;
    struct plan *plan;
    struct store *store;
    struct comm *alone; /* for evaluations that are not shared; NULL: they are */
    struct run_folder *folder;
    char *folder_path;
    struct text config_text;
    struct rng rng; /* PyTorch's default generator: seeded, then used to build the model */
    struct trainer trainer;
    bool is_resumed, is_complete; /* known on all ranks after run_resume */
};

static inline bool run_is_first_rank(const struct run *run) { return run->env->rank == 0; }

/* Meets the other ranks, compares with them what must be identical, and creates what works with all of them. All
 * ranks. */
status run_join(struct run *run);

/* Rank 0 opens the run folder and loads; the state reaches the others by broadcast, so that only rank 0 needs the file.
 * All ranks. */
status run_resume(struct run *run);

/* The log's and metrics.jsonl's lines about the start. Rank 0. */
status run_log_start(struct run *run);
/* [is_stopped]: on request, before the end of the run. Rank 0. */
status run_log_end(struct run *run, bool is_stopped);

#endif
