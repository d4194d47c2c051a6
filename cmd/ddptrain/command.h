/* command: what the verbs share: options, and how a failure reaches the user. Each verb is one file with one function.
 */
#ifndef CMD_COMMAND_H
#define CMD_COMMAND_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/log.h"
#include "base/status.h"
#include "dist/process/env.h"
#include "train/config.h"
#include "train/weights.h"

struct command_line {
    const char *program;
    char *const *argv;  /* as main got it, for starting ranks */
    const char *config; /* the first word that is neither option nor KEY=VALUE; NULL: none */
    char **overrides;   /* KEY=VALUE words (override_count) */
    size_t override_count;
    const char *cpu_bind;  /* --cpu-bind: "none" or "cores"; NULL: not given */
    const char *nproc;     /* --nproc: a number, "gpu" or "auto"; NULL: not given */
    int nnodes, node_rank; /* 1, 0 */
    const char *master_addr;
    int master_port;
    const char *run_dir, *out, *checkpoint, *weights, *part; /* --run-dir, ...; NULL: not given */
    char *own_folder;                                        /* command_find_folder's; NULL: none */
    const char *backend, *sizes;                             /* comm */
    const char *prompt;                                      /* generate */
    int characters, top_k, seed;
    double grace, temperature;
    bool saves; /* the verb trains: it saves before it stops */
    bool is_fresh, is_quiet, has_no_progress, is_standalone;
    int max_restarts;
    volatile sig_atomic_t *stop_fd;    /* store_options' */
    double started;                    /* clock_seconds() at the start of main */
    const volatile sig_atomic_t *stop; /* set by a request to stop (signals_on_stop) */
    volatile sig_atomic_t *can_save;   /* to be set when these must wait for the verb; before, they end the process */
};

/* A verb. The failure it returns is printed by main. */
typedef status verb(const struct command_line *line);
verb verb_train, verb_check, verb_eval, verb_predict, verb_generate, verb_inspect, verb_export, verb_comm;

/* `--help-config [SECTION]` and its machine-readable forms. */
status help_config(const char *section);
status help_schema(void);
status help_markdown(void);

/* What a verb does on each rank. [log] speaks on rank 0. */
typedef status rank_function(const struct command_line *line, const struct config *config, const struct dist_env *env,
                             struct log *log);

/* store_options' overdue: ends this process, which hangs or cannot be reached by what ends it in peace. */
void command_end_overdue(enum status_code code, const char *why);

/* Loads the config and runs [run] in this process, when it is a rank or the only one, or starts the ranks. */
status command_on_ranks(const struct command_line *line, rank_function *run);
/* The same for a verb that has no config: it gets NULL. */
status command_on_ranks_without_config(const struct command_line *line, rank_function *run);

/* The checkpoint that eval, predict and generate mean, and which of its weights. */
struct weights_options command_weights(const struct command_line *line);
/* Sets line->own_folder when the config is the config.yaml of a run folder: that run is meant. */
status command_find_folder(struct command_line *line);

/* What train.device: auto stands for in this process, told also to ranks that it starts (config_settle_device). Where
 * the number of processes is left to GPUs, *nproc becomes theirs. STATUS_USAGE where the config needs a GPU. */
status command_settle_device(const struct command_line *line, struct config_file *file, const struct dist_env *env,
                             int *nproc);
/* --nproc as a number, by the default rule: one per visible GPU for device "cuda", else 1. */
status command_nproc(const struct command_line *line, const char *device, int *nproc);
/* --cpu-bind cores; STATUS_USAGE for an unknown word. */
status command_cpu_bind(const struct command_line *line, bool *binds_cores);
/* --backend nccl. */
bool command_wants_gpus(const struct command_line *line);

#endif
