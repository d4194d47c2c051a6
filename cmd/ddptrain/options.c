/* The command line: the tables of commands and options, its parsing, and suggestions for words that are none of them.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/files/io.h"
#include "base/schema/schema.h"
#include "command.h"

/* ---- commands ---- */

static const struct subcommand *const subcommands[] = {
#define X(name) &subcommand_##name,
    SUBCOMMANDS(X)
#undef X
};
#define SUBCOMMAND_COUNT (sizeof subcommands / sizeof *subcommands)

const struct subcommand *subcommand_at(size_t index) { return index < SUBCOMMAND_COUNT ? subcommands[index] : NULL; }

const struct subcommand *subcommand_find(const char *word) {
    for (size_t i = 0; word && i < SUBCOMMAND_COUNT; i++)
        if (strcmp(word, subcommands[i]->name) == 0) return subcommands[i];
    return NULL;
}

/* Names of commands in other programs. */
static const struct {
    const char *word, *subcommand, *note;
} other_subcommands[] = {
    {"evaluate", "eval", ""},   {"evaluation", "eval", ""},
    {"test", "eval", ""},       {"val", "eval", ""},
    {"score", "eval", ""},      {"validate", "eval", ", or 'check' for the config alone"},
    {"fit", "train", ""},       {"run", "train", ""},
    {"start", "train", ""},     {"resume", "train", "; it continues an unfinished run"},
    {"infer", "predict", ""},   {"inference", "predict", ""},
    {"sample", "generate", ""}, {"lint", "check", ""},
    {"verify", "check", ""},    {"dry-run", "check", ""},
    {"info", "inspect", ""},    {"show", "inspect", ""},
    {"list", "runs", ""},       {"ls", "runs", ""},
    {"history", "runs", ""},    {"status", "runs", ""},
    {"new", "init", ""},        {"create", "init", ""},
    {"search", "sweep", ""},    {"tune", "sweep", ""},
    {"optimize", "sweep", ""},  {"hpo", "sweep", ""},
    {"plot", "report", ""},     {"html", "report", ""},
    {"monitor", "watch", ""},   {"tail", "watch", ""},
    {"summary", "check", ""},   {"bench", "comm", ""},
    {"benchmark", "comm", ""},
};

status subcommand_check_word(const char *word) {
    const char *names[SUBCOMMAND_COUNT + 1] = {NULL};
    if (!word || subcommand_find(word)) return OK;
    if (word[0] == '-' || strpbrk(word, "./=") || access(word, F_OK) == 0) return OK;
    for (size_t i = 0; i < sizeof other_subcommands / sizeof *other_subcommands; i++)
        if (strcmp(word, other_subcommands[i].word) == 0)
            return status_usage("unknown command '%s'; did you mean '%s'%s? (see ddptrain --help)", word,
                                other_subcommands[i].subcommand, other_subcommands[i].note);
    for (size_t i = 0; i < SUBCOMMAND_COUNT; i++) names[i] = subcommands[i]->name;
    const char *nearest = schema_nearest(word, names);
    if (!nearest) return OK;
    return status_usage("unknown command '%s'; did you mean '%s'? (see ddptrain --help)", word, nearest);
}

bool command_print(FILE *stream, const struct text *text) {
    SCOPED_TEXT escaped = {0};
    text_add_escaped(&escaped, text_string(text));
    return fputs(text_string(&escaped), stream) >= 0;
}

/* ---- options ---- */

/* A row with a value, and one without; .aliases may follow. */
#define OPTION(type_, name_, member_, subcommands_, value_, help_, ...)                                                \
    {                                                                                                                  \
        .name = name_, .type = VALUE_##type_, .offset = offsetof(struct command_line, member_),                        \
        .subcommands = subcommands_, .value = value_, .help = help_, __VA_ARGS__                                       \
    }
#define FLAG(name_, member_, subcommands_, ...) OPTION(NONE, name_, member_, subcommands_, "", __VA_ARGS__)

static const struct option options[] = {
    OPTION(TEXT, "--nproc", nproc, 0, "N|gpu|auto",
           "processes on this node; default: one per visible GPU, or 1 on the CPU",
           .aliases = {"--nproc_per_node", "--nproc-per-node"}),
    FLAG("--standalone", is_standalone, 0, "one node, a free port (the default)"),
    OPTION(NUMBER, "--nnodes", nnodes, 0, "N", NULL, .aliases = {"--nodes"}),
    OPTION(NUMBER, "--node-rank", node_rank, 0, "R", NULL, .aliases = {"--node_rank"}),
    OPTION(TEXT, "--master-addr", master_addr, 0, "HOST", NULL, .aliases = {"--master_addr"}),
    OPTION(NUMBER, "--master-port", master_port, 0, "PORT",
           "several nodes without a scheduler; run the same command on each with its own R",
           .aliases = {"--master_port"}),
    OPTION(TEXT, "--cpu-bind", cpu_bind, OPTION_CPU_BIND, "none|cores",
           "with cores, bind each process to an\n"
           "equal share of the cores that this command may use; default: none"),
    OPTION(TEXT, "--time", time, OPTION_SUBMIT, "H:MM:SS",
           "time limit of the job; a minute before, the run saves and is queued again"),
    OPTION(TEXT, "--queue", queue, OPTION_SUBMIT, "slurm|pbs|lsf|flux|sge",
           "kind of the queue; default: that whose programs are found here"),
    FLAG("--now", is_now, OPTION_SUBMIT, "submit the script, too"),
    OPTION(FOLDER, "--run-dir", run_dir, OPTION_RUN_DIR, "DIR",
           "folder for the files of the run; default: runs/<name>"),
    FLAG("--fresh", is_fresh, OPTION_FRESH, "rename an existing run folder and start again"),
    FLAG("--share", is_shared, OPTION_SHARE,
         "train trials of a sweep that other processes, on any host with this folder, share: the\n"
         "same command may be started any number of times, at any time"),
    OPTION(REAL, "--lease", lease, OPTION_SHARE, "SECONDS",
           "with --share: time without a sign of another process after which its trials are taken over;\n"
           "default: 60"),
    OPTION(NUMBER, "--stop-after", stop_after, OPTION_STOP_AFTER, "STEP",
           "save and stop after this update (0: before the first one), with exit\n"
           "code 75; without it the run continues there"),
    OPTION(NUMBER, "--step", step, OPTION_REPLAY, "N",
           "this update of the run, from 1; the file is RUN-step-N.h5 in this folder without --out"),
    OPTION(TEXT, "--trace", trace, OPTION_STOP_AFTER, NULL, NULL),
    OPTION(TEXT, "--save-at", save_at, OPTION_STOP_AFTER, NULL, NULL),
    OPTION(TEXT, "--out", out, OPTION_OUT, "FILE",
           "the file that is written; of predict and certify the default is -, the standard output"),
    OPTION(TEXT, "--format", format, OPTION_FORMAT, "safetensors|pt|onnx|c|pytorch|metrics-csv|mlflow",
           "default: by the extension of --out"),
    OPTION(TEXT, "--checkpoint", checkpoint, OPTION_CHECKPOINT, "FILE|best|newest|initial",
           "this checkpoint, or that of this run folder; best:\n"
           "that of checkpoint.best, the default if the run keeps one;\n"
           "newest: the last one that was saved; initial: the start of\n"
           "a new run, such as the weights of model.init_from\n"
           "(export accepts only best, newest and initial)"),
    OPTION(TEXT, "--weights", weights, OPTION_WEIGHTS, "trained|average",
           "the weights, or their moving average (train.ema);\n"
           "default: what the evaluations of the run used"),
    OPTION(TEXT, "--part", part, OPTION_PART, "train|validation|test|all",
           "which rows; default: validation if there are any;\n"
           "all: every row of dataset.path, without split and validation file"),
    FLAG("--probabilities", wants_probabilities, OPTION_PREDICTIONS, NULL),
    FLAG("--with-inputs", wants_inputs, OPTION_PREDICTIONS, NULL),
    FLAG("--outputs", wants_outputs, OPTION_PREDICTIONS,
         "also a column for each class with its probability; the columns of\n"
         "the CSV file in front; the model's outputs as they are (logits)"),
    OPTION(NUMBER, "--ahead", ahead, OPTION_PREDICTIONS, "N",
           "the N steps after each row of a series: the outputs of a step are the inputs of\n"
           "the next one"),
    FLAG("--skip-bad-rows", skips_bad_rows, OPTION_SKIP,
         "leave out rows of CSV files and SQLite tables that the model cannot read, and\n"
         "print how many and why; in predictions of a whole file their lines are empty",
         .aliases = {"--skip_bad_rows"}),
    FLAG("--dot", prints_dot, OPTION_CHECK,
         "print the model as a graph for Graphviz: ddptrain check CONFIG --dot | dot -Tsvg"),
    FLAG("--sources", prints_sources, OPTION_CHECK,
         "print each key that is given, and the file and line or argument that it is from;\n"
         "nothing else is checked"),
    FLAG("--data", reads_all, OPTION_CHECK, "read every row of the dataset, too, and check its values"),
    FLAG("--quick", is_quick, OPTION_QUICK, "train only a few of the models"),
    OPTION(NUMBER, "--intervals", intervals, OPTION_AUDIT, "N", NULL),
    OPTION(REAL, "--fraction", fraction, OPTION_AUDIT, "F", NULL),
    FLAG("--all", is_all, OPTION_AUDIT,
         "how many of the intervals between checkpoints are repeated, chosen at random: N of them, this\n"
         "part of them (default: 0.1, and at least one), or all; with --seed S the same ones again"),
    OPTION(TEXT, "--statement", statement, OPTION_AUDIT, "FILE", "prove this statement of certify, too"),
    OPTION(TEXT, "--target", target, OPTION_TARGET, "COLUMN",
           "the column or dataset to predict; default: the last one named target(s), label(s),\n"
           "class, y, outcome, survived or churn, in any case, else the last column"),
    OPTION(TEXT, "--prompt", prompt, OPTION_PROMPT, NULL, NULL),
    OPTION(TEXT, "--prompt-file", prompt_file, OPTION_PROMPT, "FILE|-",
           "the prompt is the text of this file, or the standard input, with its line ends",
           .aliases = {"--prompt_file"}),
    OPTION(NUMBER, "--characters", characters, OPTION_CHARACTERS, "N", NULL,
           .aliases = {"--max-new-tokens", "--max_new_tokens"}),
    OPTION(REAL, "--temperature", temperature, OPTION_TEMPERATURE, "T", NULL),
    OPTION(NUMBER, "--top-k", top_k, OPTION_TOP_K, "K", NULL, .aliases = {"--top_k"}),
    OPTION(REAL, "--top-p", top_p, OPTION_TOP_P, "P", NULL, .aliases = {"--top_p"}),
    OPTION(NUMBER, "--seed", seed, OPTION_SEED, "S",
           "number of characters or tokens (500), temperature (1; 0: always the most likely one),\n"
           "number of candidates (all), of these the most likely whose probabilities sum to P (1: all),\n"
           "seed of the sampling"),
    OPTION(TEXT, "--stop", stop_text, OPTION_STOP, "TEXT",
           "the text ends before this one, such as that of the token that ends a document",
           .aliases = {"--stop-strings", "--stop_strings"}),
    FLAG("--tensorboard", wants_tensorboard, OPTION_TENSORBOARD,
         "write TensorBoard event files (train.tensorboard; of a sweep: tensorboard)"),
    OPTION(NUMBER, "--seeds", seeds, OPTION_SEEDS, "N",
           "number of pairs of runs, with the seeds of the configs plus 0, 1, 2 ...; default: 10"),
    OPTION(TEXT, "--metric", metric, OPTION_METRIC, "NAME",
           "the metric to compare, in the best epoch of each run; default: val_loss"),
    OPTION(NUMBER, "--max-restarts", max_restarts, 0, "N",
           "restart all processes from the newest checkpoint after a failure, at most N times in a row\n"
           "without a new checkpoint; default: 0",
           .aliases = {"--max_restarts"}),
    OPTION(TEXT, "--backend", backend, OPTION_BACKEND, "auto|shm|gloo|mpi|nccl", NULL),
    OPTION(TEXT, "--sizes", sizes, OPTION_SIZES, "1K,64K,1M", "backend and sizes in bytes; default: auto, 1K to 64M"),
    OPTION(TEXT, "--show", show, OPTION_SHOW, "OPERATION",
           "instead, print the buffers of all ranks before and after a call: send, broadcast, reduce,\n"
           "all_reduce (also step by step), scatter, gather, all_gather, reduce_scatter,\n"
           "all_gather_object or barrier"),
    OPTION(TEXT, "--group", group, OPTION_SHOW, "0,2", NULL),
    OPTION(TEXT, "--values", values, OPTION_SHOW, "EXPRESSION", NULL),
    OPTION(NUMBER, "--root", root, OPTION_SHOW, "R", NULL),
    OPTION(TEXT, "--op", op, OPTION_SHOW, "sum|avg|min|max|product",
           "of --show: ranks of a process group (all), value i of a rank's buffer, as in rank + 1\n"
           "(10 * rank + i), the rank that sends or receives (the first), how values are combined (sum)"),
    OPTION(REAL, "--grace", grace, 0, "SECONDS", "time that a process has to save after a stop request; default: 30"),
    FLAG("--quiet", is_quiet, 0, "print failures only"),
    FLAG("--no-progress", has_no_progress, 0, "no progress bar"),
};
#define N_OPTIONS (sizeof options / sizeof *options)
#define N_NAMES 3 /* of an option */

const struct option *option_at(size_t index) { return index < N_OPTIONS ? &options[index] : NULL; }

bool option_is_for(const struct option *option, const struct subcommand *subcommand) {
    return !option->subcommands || (subcommand->options & option->subcommands);
}

/* Name [index] of an option: its name, then its aliases; NULL after the last. */
static const char *name_at(const struct option *option, size_t index) {
    return index == 0 ? option->name : option->aliases[index - 1];
}

void option_add_subcommands(const struct option *option, struct text *out) {
    const char *separator = "";
    for (size_t i = 0; subcommand_at(i); i++)
        if (subcommand_at(i)->options & option->subcommands) {
            text_printf(out, "%s%s", separator, subcommand_at(i)->name);
            separator = ", ";
        }
}

/* ---- suggestions ---- */

/* Options of other programs. */
static const struct {
    const char *words, *instead;
} other_options[] = {
    {"-c --config --cfg --config-file --config-path --config-name --yaml",
     "the config is an argument: ddptrain CONFIG [KEY=VALUE ...] [options]"},
    {"-n -np -j --num-processes --nprocs --ngpus --gpus --num-gpus", "did you mean '--nproc'?"},
    {"-N --num-nodes", "did you mean '--nnodes'?"},
    {"-o --output --output-file", "did you mean '--out'?"},
    {"--output-dir --out-dir --save-dir --logdir --log-dir --default-root-dir", "did you mean '--run-dir'?"},
    {"-i --input --input-file --data --data-file --stdin",
     "the data file follows the config: ddptrain predict CONFIG DATA; '-' is the standard input"},
    {"--proba --probs --predict-proba --softmax", "did you mean '--probabilities'?"},
    {"--logits --raw", "did you mean '--outputs'?"},
    {"-q --silent", "did you mean '--quiet'?"},
    {"--best --best-model", "did you mean '--checkpoint best'?"},
    {"-v -V", "did you mean '--version'?"},
    {"--verbose --debug", "there is none; --quiet prints less"},
    {"--overwrite --force --restart --no-resume", "did you mean '--fresh'? It renames the folder of an earlier run"},
    {"--dry-run --dryrun --check", "did you mean the command 'check'?"},
    {"--eval --evaluate --test --do-eval", "did you mean the command 'eval'?"},
    {"--predict --do-predict", "did you mean the command 'predict'?"},
    {"--train --do-train", "training is the default: ddptrain CONFIG"},
    {"--config-help", "did you mean '--help-config'?"},
    {"--local-rank --rank --world-size",
     "ranks are read from the environment (RANK, WORLD_SIZE, LOCAL_RANK), or started by --nproc N"},
    {"--rdzv-backend --rdzv-endpoint --rdzv-id",
     "there is no rendezvous; name the host of rank 0 by --master-addr and --master-port"},
};

static const char *instead_of(const char *name) {
    for (size_t i = 0; i < sizeof other_options / sizeof *other_options; i++)
        for (const char *w = other_options[i].words; *w; w += strspn(w, " ")) {
            size_t length = strcspn(w, " ");
            if (strlen(name) == length && strncmp(w, name, length) == 0) return other_options[i].instead;
            w += length;
        }
    return NULL;
}

/* Adds "did you mean 'train.epochs=5'?" for the unknown option [word]: an option of another program, a key of the
 * config with [has_config], or the most similar of the NULL-terminated [known] options; else nothing. [next]: the next
 * argument, or NULL. */
static void option_hint(const char *word, const char *next, const char *const *known, bool has_config,
                        struct text *out) {
    size_t length = strcspn(word, "="), dashes = strspn(word, "-");
    const char *value = word[length] ? word + length + 1 : next && next[0] != '-' ? next : NULL;
    char name[64], dashed[64];
    snprintf(name, sizeof name, "%.*s", (int)length, word);
    snprintf(dashed, sizeof dashed, "%s", name);
    for (char *c = dashed; *c; c++) *c = *c == '_' ? '-' : *c;
    const char *instead = instead_of(dashed), *nearest = schema_nearest(dashed, known);
    bool is_same = nearest && strcmp(nearest, dashed) == 0;
    if (instead)
        text_add(out, instead);
    else if (has_config && !is_same && dashes < strlen(name))
        schema_suggest_override(&config_schema, name + dashes, value, out);
    if (!out->length && nearest) text_printf(out, "did you mean '%s'?", nearest);
}

/* ---- parsing ---- */

/* Adds a suggestion for [word]: first of the options of [subcommand], then of all. */
static void add_hint(const char *word, const char *next, const struct subcommand *subcommand, struct text *out) {
    const char *known[N_OPTIONS + 1] = {NULL};
    size_t count = 0;
    bool has_config = subcommand->operand && strcmp(subcommand->operand, "config") == 0;
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (option_is_for(&options[i], subcommand)) known[count++] = options[i].name;
    option_hint(word, next, known, has_config, out);
    for (size_t i = 0; i < N_OPTIONS; i++) known[i] = options[i].name;
    if (!out->length) option_hint(word, next, known, false, out);
}

/* STATUS_USAGE if [subcommand] does not accept the option, with the commands that do and a suggestion. */
static status check_subcommand(const struct option *option, const char *name, const char *word, const char *next,
                               const struct subcommand *subcommand) {
    SCOPED_TEXT accepted = {0}, hint = {0};
    if (option_is_for(option, subcommand)) return OK;
    option_add_subcommands(option, &accepted);
    option_hint(word, next, (const char *const[]){NULL},
                subcommand->operand && strcmp(subcommand->operand, "config") == 0, &hint);
    return status_usage("%s is for %s; '%s' does not accept it%s%s (see ddptrain --help)", name, text_string(&accepted),
                        subcommand->name, hint.length ? "; " : "", text_string(&hint));
}

#define MAX_REAL 1e9

/* [value] may be changed: it is a part of argv. */
static status parse_value(const struct option *option, const char *name, char *value, void *to) {
    char *end;
    errno = 0;
    if (option->type == VALUE_TEXT || option->type == VALUE_FOLDER) {
        if (strncmp(value, "--", 2) == 0) return status_usage("%s needs a value, got the option '%s'", name, value);
        if (!*value) return status_usage("%s needs a value, got an empty value", name);
        if (option->type == VALUE_FOLDER) value[io_length_without_slashes(value)] = 0;
        *(const char **)to = value;
    } else if (option->type == VALUE_NUMBER) {
        long number = strtol(value, &end, 10);
        if (errno || *end || end == value || number < 0 || number > INT_MAX)
            return status_usage("%s: expected a whole number from 0 to %d, got '%s'", name, INT_MAX, value);
        *(int *)to = (int)number;
    } else {
        double real = strtod(value, &end);
        if (errno || *end || end == value || !(real >= 0 && real <= MAX_REAL))
            return status_usage("%s: expected a number from 0 to %g, got '%s'", name, MAX_REAL, value);
        *(double *)to = real;
    }
    return OK;
}

static status unknown_option(const char *word, const char *next, const struct subcommand *subcommand) {
    SCOPED_TEXT hint = {0};
    add_hint(word, next, subcommand, &hint);
    return status_usage("unknown option '%s'%s%s (see ddptrain --help)", word, hint.length ? "; " : "",
                        text_string(&hint));
}

/* The option with the name *name, the first [length] characters of [word]; NULL: none. */
static const struct option *find(const char *word, size_t length, const char **name) {
    for (size_t i = 0; i < N_OPTIONS; i++)
        for (size_t n = 0; n < N_NAMES && (*name = name_at(&options[i], n)); n++)
            if (strlen(*name) == length && strncmp(*name, word, length) == 0) return &options[i];
    return NULL;
}

/* [given] (N_OPTIONS): the name by which each option was given; NULL: not yet. Two values for an option are an error; a
 * flag may be repeated. */
static status parse_option(char **argv, int argc, int *at, const struct subcommand *subcommand, const char **given,
                           struct command_line *line) {
    char *word = argv[*at], *equals = strchr(word, '=');
    const char *name, *next = *at + 1 < argc ? argv[*at + 1] : NULL;
    const struct option *option = find(word, equals ? (size_t)(equals - word) : strlen(word), &name);
    if (!option) return unknown_option(word, next, subcommand);
    void *to = (char *)line + option->offset;
    const char **before = &given[option - options];
    TRY(check_subcommand(option, name, word, next, subcommand));
    if (option->type == VALUE_NONE) {
        if (equals) return status_usage("%s takes no value", name);
        *(bool *)to = true;
        return OK;
    }
    if (*before && strcmp(*before, name) == 0) return status_usage("%s is given twice", name);
    if (*before) return status_usage("%s and %s are the same option; give it once", *before, name);
    *before = name;
    if (equals) return parse_value(option, name, equals + 1, to);
    if (!next) return status_usage("%s needs a value", word);
    return parse_value(option, name, argv[++*at], to);
}

/* "did you mean '--checkpoint best'?" for checkpoint=best, if the command has the option. */
static void suggest_option(const char *word, const struct subcommand *subcommand, struct text *hint) {
    const char *equals = strchr(word, '='), *name;
    SCOPED_TEXT option_name = {0};
    text_add(&option_name, "--");
    text_add_bytes(&option_name, word, equals ? (size_t)(equals - word) : 0);
    const struct option *option = find(text_string(&option_name), option_name.length, &name);
    if (option && option_is_for(option, subcommand)) text_printf(hint, "did you mean '%s %s'?", name, equals + 1);
}

/* A second data file, as the shell makes of a pattern: "give several files as one pattern in quotes: 'part-*.txt'". */
static void suggest_pattern(const char *first, const char *second, struct text *hint) {
    size_t a = strlen(first), b = strlen(second), start = 0, end = 0, shorter = a < b ? a : b;
    while (start < shorter && first[start] == second[start]) start++;
    while (end < shorter - start && first[a - 1 - end] == second[b - 1 - end]) end++;
    text_printf(hint, "give several files as one pattern in quotes, which the shell does not expand: '%.*s*%s'",
                (int)start, first, first + a - end);
}

/* The failure for a second operand, probably a key without '=' or a data file. */
static status unexpected(char **words, int count, const struct subcommand *subcommand,
                         const struct command_line *line) {
    bool has_config = subcommand->operand && strcmp(subcommand->operand, "config") == 0;
    int next = count > 1 && strcmp(words[1], "=") == 0 ? 2 : 1;
    SCOPED_TEXT hint = {0};
    if (has_config && access(words[0], F_OK) == 0 && !strstr(words[0], ".yaml"))
        text_printf(&hint, "did you mean 'dataset.path=%s'?", words[0]);
    else if (subcommand->takes_pattern && access(words[0], F_OK) == 0)
        suggest_pattern(line->config, words[0], &hint);
    else if (has_config)
        schema_suggest_override(&config_schema, words[0], next < count ? words[next] : NULL, &hint);
    else
        suggest_option(words[0], subcommand, &hint);
    return status_usage("unexpected argument '%s' after '%s'%s%s%s", words[0], line->config,
                        subcommand->takes_overrides && !subcommand->override_prefixes ? "; overrides are KEY=VALUE"
                                                                                      : "",
                        hint.length ? "; " : "", text_string(&hint));
}

static bool is_override(const struct subcommand *subcommand, const char *word) {
    const char *const *prefixes = subcommand->override_prefixes;
    bool is_key = !prefixes;
    for (size_t i = 0; prefixes && prefixes[i]; i++)
        is_key = is_key || strncmp(word, prefixes[i], strlen(prefixes[i])) == 0;
    return subcommand->takes_overrides && strchr(word, '=') && is_key;
}

status options_parse(int argc, char **argv, int first, const struct subcommand *subcommand, struct command_line *line) {
    const char *given[N_OPTIONS] = {NULL};
    for (int i = first; i < argc; i++) {
        if (argv[i][0] == '-' && argv[i][1])
            TRY(parse_option(argv, argc, &i, subcommand, given, line));
        else if (is_override(subcommand, argv[i]))
            line->overrides[line->override_count++] = argv[i];
        else if (line->operand_count < (subcommand->max_operands ? subcommand->max_operands : 1))
            line->operands[line->operand_count++] = argv[i];
        else
            return unexpected(argv + i, argc - i, subcommand, line);
        line->config = line->operand_count ? line->operands[0] : NULL;
    }
    if (line->out && strcmp(line->out, "-") == 0 && !subcommand->writes_stdout)
        return status_usage("--out -: %s writes a file, not to standard output; give it a name", subcommand->name);
    if (line->wants_tensorboard) line->overrides[line->override_count++] = subcommand->tensorboard;
    return OK;
}
