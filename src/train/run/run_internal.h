/* run_internal: struct run, which the files of a run share: run.c has the order of the steps, run_join.c connects the
 * ranks, run_resume.c loads the state, run_test.c evaluates the test rows, run_log.c logs the start and the end. */
#ifndef TRAIN_RUN_INTERNAL_H
#define TRAIN_RUN_INTERNAL_H

#include "base/text.h"
#include "train/folder/run_folder.h"
#include "train/loop/trainer.h"
#include "train/plan/plan.h"

struct run_options;

struct run {
    const struct config *config;
    const struct dist_env *env;
    const struct run_options *options;
    struct log *log;     /* NULL except on rank 0 */
    struct log *any_log; /* on all ranks */
    struct plan *plan;
    struct store *store;
    struct comm *own_comm; /* of this rank alone, for evaluations that are not shared; NULL: they are shared */
    struct run_folder *folder;
    char *folder_path;
    struct text config_text;
    struct rng rng; /* PyTorch's default generator: seeded, then used to build the model */
    struct trainer trainer;
    bool is_resumed, is_complete; /* set on all ranks by run_resume */
};

static inline bool run_is_first_rank(const struct run *run) { return run->env->rank == 0; }

/* Connects to the other ranks, compares the invariants, and creates the objects that communicate. All ranks. */
status run_join(struct run *run);

/* Rank 0 opens the run folder and loads a checkpoint; the state is broadcast, so that only rank 0 needs the file. All
 * ranks. */
status run_resume(struct run *run);

/* After the last step evaluates the test rows, if there are any, into trainer.test: with the best checkpoint where one
 * is kept, else with the newest state, which is the same afterwards. *is_stopped: by a stop request; the same command
 * does it then. All ranks. */
status run_test(struct run *run, bool *is_stopped);

/* Log the start and the end, also in metrics.jsonl. [is_stopped]: by a stop request. Rank 0. */
status run_log_start(struct run *run);
status run_log_end(struct run *run, bool is_stopped);

#endif
