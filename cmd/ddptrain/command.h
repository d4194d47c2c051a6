/* command: the command line, the tables of commands and options, and how a command starts its processes. A command is a
 * file in this folder with a struct subcommand. */
#pragma once

#include <stdio.h>

#include "base/log.h"
#include "base/scoped.h"
#include "base/status.h"
#include "dist/process/env.h"
#include "sweep/sweep.h"
#include "train/config/config.h"
#include "train/inference/inference.h"
#include "train/metrics/metrics.h"
#include "train/weights/weights.h"

struct subcommand;

/* A local variable, freed where its block ends. */
static inline void scoped_log_destroy(struct log **log) { log_destroy(*log); }
#define SCOPED_LOG __attribute__((cleanup(scoped_log_destroy))) struct log *

#define DEFAULT_GRACE 30     /* seconds */
#define MAX_DATA_OVERRIDES 9 /* one for each key that command_use_data sets */

struct command_line {
    const char *program;
    char *const *argv;  /* of main, for starting ranks */
    const char *config; /* the first argument that is neither option nor KEY=VALUE; NULL: none */
    char **operands;    /* all of these words (operand_count) */
    size_t operand_count;
    char **overrides; /* (override_count) KEY=VALUE */
    size_t override_count;
    const char *cpu_bind;  /* --cpu-bind: "none" or "cores"; NULL: not given */
    const char *nproc;     /* --nproc: a number, "gpu" or "auto"; NULL: not given */
    int nnodes, node_rank; /* 1, 0 */
    const char *master_addr;
    int master_port;
    const char *run_dir, *out, *checkpoint, *weights, *part; /* --run-dir, ...; NULL: not given */
    char *config_run_folder; /* the run folder that the config is in (command_find_folder); NULL: none */
    char *allocated_config;  /* [config], if command_find_run has replaced a run folder; else NULL */
    char *data_overrides[MAX_DATA_OVERRIDES]; /* those of [overrides] that command_use_data has added */
    size_t data_override_count;
    bool wants_probabilities, wants_inputs, wants_outputs; /* predict: --probabilities, ... */
    bool skips_bad_rows;                                   /* eval, predict */
    const char *backend, *sizes;                           /* comm */
    const char *show, *group, *values, *op;                /* comm; NULL: not given */
    int root;                                              /* comm; negative: not given */
    const char *format;                                    /* export */
    const char *target;                                    /* init */
    const char *time, *queue;                              /* submit; NULL: not given */
    bool is_now;                                           /* submit: --now */
    bool prints_dot, reads_all, prints_sources;            /* check: --dot, --data, --sources */
    bool is_quick;                                         /* selftest: --quick */
    const char *prompt, *prompt_file, *stop_text;          /* generate */
    int characters, top_k, seed;                           /* seed -1: not given */
    int intervals;                                         /* audit; -1: not given */
    double fraction;                                       /* audit; negative: not given */
    bool is_all;                                           /* audit */
    const char *statement;                                 /* audit; NULL: not given */
    const char *metric;                                    /* compare */
    int seeds;                                             /* compare */
    int ahead;                                             /* predict; 0: not given */
    double grace, temperature, top_p;
    const struct subcommand *subcommand;
    bool wants_tensorboard; /* --tensorboard, which has become an override */
    bool is_shared;         /* sweep */
    double lease;           /* sweep */
    bool is_fresh, is_quiet, has_no_progress, is_standalone;
    int max_restarts;
    int stop_after;      /* -1: not given */
    int step;            /* replay; 0: not given */
    const char *trace;   /* --trace, of replay's run; NULL: not given */
    const char *save_at; /* --save-at, of audit's runs; NULL: not given */
    double started;      /* clock_seconds() at the start of main */
};

/* Options that only some commands accept; rows of the table in options.c. */
enum subcommand_option {
    OPTION_CPU_BIND = 1 << 0,
    OPTION_FRESH = 1 << 1,
    OPTION_OUT = 1 << 2,
    OPTION_CHECKPOINT = 1 << 3,
    OPTION_WEIGHTS = 1 << 4,
    OPTION_PART = 1 << 5,
    OPTION_PROMPT = 1 << 6,
    OPTION_CHARACTERS = 1 << 7,
    OPTION_TEMPERATURE = 1 << 8,
    OPTION_TOP_K = 1 << 9,
    OPTION_SEED = 1 << 10,
    OPTION_BACKEND = 1 << 11,
    OPTION_SIZES = 1 << 12,
    OPTION_SEEDS = 1 << 13,
    OPTION_METRIC = 1 << 14,
    OPTION_TENSORBOARD = 1 << 15,
    OPTION_FORMAT = 1 << 16,
    OPTION_PREDICTIONS = 1 << 17, /* --probabilities, --with-inputs, --outputs, --ahead */
    OPTION_TARGET = 1 << 18,
    OPTION_CHECK = 1 << 19, /* --dot, --data, --sources */
    OPTION_TOP_P = 1 << 20,
    OPTION_STOP = 1 << 21,
    OPTION_SKIP = 1 << 22,  /* --skip-bad-rows */
    OPTION_QUICK = 1 << 23, /* selftest */
    OPTION_STOP_AFTER = 1 << 24,
    OPTION_AUDIT = 1 << 25,  /* --intervals, --fraction, --all, --statement */
    OPTION_REPLAY = 1 << 26, /* --step */
    OPTION_SHOW = 1 << 27,   /* --show, --group, --values, --root, --op */
    OPTION_SHARE = 1 << 28,  /* --share, --lease */
    OPTION_SUBMIT = 1 << 29, /* --time, --queue, --now */
    OPTION_RUN_DIR = 1 << 30
};

struct subcommand {
    const char *name, *arguments, *help; /* a line of --help: "eval", "CONFIG", "loss and ..." */
    status (*run)(const struct command_line *line);
    unsigned options;                     /* enum subcommand_option */
    const char *operand;                  /* the first argument after the command: "config", "file"; NULL: none */
    size_t max_operands;                  /* 0: one */
    char *tensorboard;                    /* the KEY=VALUE that --tensorboard stands for */
    bool needs_no_operand;                /* the operand is optional */
    bool saves;                           /* it saves before it stops */
    bool accepts_run;                     /* the config may be a run folder: its config.yaml */
    bool takes_overrides;                 /* KEY=VALUE; of other commands such a word is an operand */
    const char *const *override_prefixes; /* NULL-terminated; NULL: any key */
    bool accepts_data;                    /* a data file may follow the config; max_operands is 2 */
    bool writes_stdout;                   /* --out may be "-" */
    bool takes_pattern; /* the operand may be a pattern of data files, such as part-*.csv, in quotes */
};

/* The table: a name here, and a `const struct subcommand subcommand_<name>`. The first one is the default. */
/* clang-format off */
#define SUBCOMMANDS(X) \
    X(train) X(check) X(eval) X(predict) X(generate) X(sweep) X(compare) \
    X(init) X(inspect) X(runs) X(report) X(watch) X(export) X(comm) X(selftest) X(audit) X(bisect) X(certify) X(replay) \
    X(doctor) X(extension) X(submit)
/* clang-format on */
#define X(name) extern const struct subcommand subcommand_##name;
SUBCOMMANDS(X)
#undef X

/* ---- options.c: the tables of commands and options, and parsing ---- */

/* Command [index] of the table; NULL after the last. */
const struct subcommand *subcommand_at(size_t index);
/* The command with the name [word], the first argument; NULL: none. */
const struct subcommand *subcommand_find(const char *word);
/* STATUS_USAGE with a suggestion if [word] is not a file but similar to a command of this or of another program. */
status subcommand_check_word(const char *word);
/* The file [name] of texts/. */
const char *command_text(const char *name);
/* Prints what a command has to say: the characters that a terminal would obey are escaped (text_add_escaped). False: it
 * cannot be written. */
bool command_print(FILE *stream, const struct text *text);

/* VALUE_FOLDER: a text, from which slashes at the end are removed. */
enum value_type { VALUE_NONE, VALUE_TEXT, VALUE_FOLDER, VALUE_NUMBER, VALUE_REAL };

/* "--name VALUE" or "--name=VALUE", at most once, by any of its names; "--name" for a flag (VALUE_NONE). */
struct option {
    const char *name;
    enum value_type type;
    size_t offset;        /* in struct command_line, a bool, const char *, int or double, by type */
    unsigned subcommands; /* its enum subcommand_option; 0: for every command */
    const char *value;    /* of --help: "none|cores", "FILE|best"; lower-case words are accepted values, others describe
                             one; NULL: not in --help */
    const char *help;     /* NULL: that of the next row */
    const char *aliases[2]; /* spellings of torchrun */
};

/* Row [index]; NULL after the last. */
const struct option *option_at(size_t index);
bool option_is_for(const struct option *option, const struct subcommand *subcommand);
/* Adds the commands that accept the option: "eval, predict". */
void option_add_subcommands(const struct option *option, struct text *out);

/* Parses the arguments [first, argc). */
status options_parse(int argc, char **argv, int first, const struct subcommand *subcommand, struct command_line *line);

/* ---- help.c ---- */

/* Prints what an option such as --help or --schema asks for; false: the arguments have none. */
bool help_print(int argc, char **argv, status *s);

/* ---- ranks.c ---- */

/* The work of a command on each rank. Only rank 0 prints to [log]. */
typedef status rank_function(const struct command_line *line, const struct config *config, const struct dist_env *env,
                             struct log *log);

/* For store_options.overdue: ends this process, which hangs or cannot be stopped by the store. */
void command_end_overdue(enum status_code code, const char *why);

/* Loads the config and calls [run], if this process is a rank or the only process; else starts the ranks. */
status command_on_ranks(const struct command_line *line, rank_function *run);
/* The same for a command without a config; [config] is NULL. */
status command_on_ranks_without_config(const struct command_line *line, rank_function *run);

/* The checkpoint and the weights of eval, predict and generate. */
struct weights_options command_weights(const struct command_line *line);
/* Sets line->config_run_folder if the config is the config.yaml of a run folder and name=NAME is not given: the command
 * is for that run. STATUS_USAGE if --fresh would rename that folder. */
status command_find_folder(struct command_line *line);

/* Chooses the device of train.device: auto for this process and the ranks that it starts (config_set_auto_device). Sets
 * *nproc to the number of GPUs if --nproc is not given. STATUS_USAGE if the config needs a GPU. */
status command_choose_device(const struct command_line *line, struct config_file *file, const struct dist_env *env,
                             int *nproc);
/* --nproc as a number; default: one per visible GPU for device "cuda", else 1. */
status command_nproc(const struct command_line *line, const char *device, int *nproc);

/* STATUS_USAGE for several nodes without the address of rank 0. */
status command_check_nodes(const struct command_line *line);
/* STATUS_USAGE where another launcher has decided what --nproc, --nnodes or --cpu-bind ask for. */
status command_check_launcher(const struct command_line *line, const struct dist_env *env, int nproc);
/* Threads for each of [processes] of this rank: its share of the processors of the host. */
int command_threads(const struct dist_env *env, int processes);
/* --cpu-bind cores; STATUS_USAGE for an unknown value. */
status command_cpu_bind(const struct command_line *line, bool *binds_cores);
/* Whether --backend needs GPUs. */
bool command_uses_gpus(const struct command_line *line);
/* --backend as enum dist_backend; default: BACKEND_AUTO. */
int command_backend(const struct command_line *line);

/* ---- operands.c ---- */

/* Replaces a run folder by its config.yaml, for a command that accepts it. STATUS_USAGE for a folder without one. */
status command_find_run(struct command_line *line);
/* Uses the data file after the config, if there is one: overrides dataset.path, and --part is all by default. "-" is
 * the standard input, a CSV file. */
status command_use_data(struct command_line *line);
void command_free_operands(struct command_line *line);

/* ---- child.c, for commands that start runs of this program ---- */

/* Runs this program with [arguments], which end with NULL, without the variables of a launcher; its output goes to the
 * file [output]. *code: its exit code, or 128 and the number of a signal. STATUS_STOPPED after a request to stop. */
status command_run_child(const char *const *arguments, const char *output, int *code);
/* Of the output of a run that failed, the reason: the first line that begins with "ddptrain: ", else the last line. */
void command_add_reason(const char *path, struct text *out);
/* A new folder in [parent], NULL: this one, for command_remove_folder, which takes NULL. Removes those there whose
 * process was killed. */
status command_make_folder(const char *parent, const char *name, char **out);
void command_remove_folder(char *folder);
/* Removes a folder with all that is in it. */
void command_remove_tree(const char *folder);

/* ---- ledger_file.c, for commands that repeat parts of a run: audit, bisect, replay ---- */

struct ledger_line {
    const char *text; /* (size) */
    size_t size;
    enum metrics_event event;
    int64_t step;
};

/* The ledger of a run (train/loop/ledger.h). */
struct ledger_file {
    char *path, *text;
    struct ledger_line *lines; /* (count) */
    size_t count;
    char chain[METRICS_CHAIN_SIZE]; /* of the last line */
};

/* Reads that of a run [folder]; close it also after a failure. STATUS_DATA: there is none; STATUS_DIVERGED: a line was
 * changed, removed or moved. */
status ledger_file_read(const char *folder, struct ledger_file *out);
/* The lines of metrics.jsonl that a ledger could have, without a chain, and those of epochs, with the step of the line
 * before; those of starts have the step before their first one. None where there is no such file. */
status ledger_file_read_metrics(const char *folder, struct ledger_file *out);
void ledger_file_close(struct ledger_file *ledger);
/* The newest line of [event] with [step], or with any (-1); NULL: there is none. */
const struct ledger_line *ledger_find(const struct ledger_file *ledger, enum metrics_event event, int64_t step);

/* The newest start or resume at or before [step]; NULL: there is none. */
const struct ledger_line *ledger_start_at(const struct ledger_file *ledger, int64_t step);
/* Whether a file of a run is there; one that cannot be looked at is not. */
bool ledger_has_file(const char *path);
/* A counter in the file of a checkpoint, such as "state/step"; unchanged where it has none. */
status ledger_read_counter(const char *path, const char *counter, int64_t *out);
/* The number of a line in its file, from 1. */
size_t ledger_line_number(const struct ledger_file *ledger, const struct ledger_line *line);

/* Of field [key]: its value as it is written, with quotes, added to [out], nothing if there is none; a whole number, or
 * -1; a text in [arena], or ""; whether there is one; whether both lines have the same, or none. */
void ledger_line_add(const struct ledger_line *line, const char *key, struct text *out);
int64_t ledger_line_int(const struct ledger_line *line, const char *key);
const char *ledger_line_word(struct arena *arena, const struct ledger_line *line, const char *key);
bool ledger_line_has(const struct ledger_line *line, const char *key);
bool ledger_line_equals(const struct ledger_line *a, const struct ledger_line *b, const char *key);
/* Adds the names of the fields [keys] (NULL-terminated) that are equal, and of the others both values. */
void ledger_line_compare(const struct ledger_line *recorded, const struct ledger_line *repeated,
                         const char *const *keys, struct text *equal, struct text *differences);

/* The config with the SHA-256 [wanted], in [arena], from the starts of the [ledger] of a run [folder], from its
 * config.yaml or from a checkpoint: ledgers of earlier versions have no configs. NULL: none. */
status ledger_find_config(struct arena *arena, const char *folder, const struct ledger_file *ledger, const char *wanted,
                          const char **out);

/* STATUS_USAGE while a process trains in a run [folder]: what is compared would change meanwhile. */
status ledger_check_ended(const char *folder);
/* The number of processes that repeat a run of [world]: --nproc, else as many. STATUS_USAGE where the bits would be
 * others. */
status ledger_processes(const struct command_line *line, int64_t world, bool is_elastic, int64_t *out);
/* Runs without portable arithmetic have the same bits on the same kind of processor alone; else STATUS_USAGE. [where]:
 * the device of the run in [folder]; [processor] NULL: not known. */
status ledger_check_processor(const char *folder, const char *processor, const char *where, bool is_portable);

/* For subcommand.override_prefixes: where files are now that have moved since the run: its data, their order, and what
 * it started from. */
#define FILE_KEYS(prefix)                                                                                              \
    prefix "dataset.", prefix "sampler.path=", prefix "model.init_from", prefix "checkpoint.resume="

/* A run of this program that repeats steps [first] to [stop] of another one. */
struct repetition {
    const char *name;      /* of the other one, for messages */
    const char *config;    /* text */
    const char *from;      /* checkpoint; NULL: where the config starts */
    const char *folder;    /* of the new run */
    const char *device;    /* on which the other one ran, as its ledger says; NULL: that of the config */
    const char *temporary; /* folder for its config and output */
    const char *trace;     /* file for everything of step [stop] (train/loop/trace.h); NULL: none */
    const char *save_at;   /* steps between, with commas, at which it saves, too; NULL: none */
    int64_t first, stop, every, processes;
    char *const *overrides; /* (override_count); checkpoint.resume has no effect on one that starts [from] a file */
    size_t override_count;
};
/* Saves at the end, where it keeps only that checkpoint. A failure has the exit code and the reason of the run. */
status ledger_repeat(const struct repetition *repetition);

/* ---- train.c ---- */

/* Where the allocation ends at [ends_at] (clock_unix; 0: unknown): this process is asked to stop in time to save. */
void command_stop_before(double ends_at, double grace, struct log *log);

/* ---- sweep.c ---- */

/* The folder of sweep and compare: --run-dir, else "sweeps/wine_sweep" for "configs/wine_sweep.yaml", or
 * "sweeps/a-or-b"; the caller frees it. */
char *command_sweep_folder(const struct command_line *line);
