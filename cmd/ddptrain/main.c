/* ddptrain: words on the command line -> one call. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/schema.h"
#include "base/signals.h"
#include "base/stack.h"
#include "command.h"
#include "dist/process/launcher_channel.h"

static const struct {
    const char *name;
    verb *run;
} verbs[] = {
    {"train", verb_train},       {"check", verb_check},     {"eval", verb_eval},     {"predict", verb_predict},
    {"generate", verb_generate}, {"inspect", verb_inspect}, {"export", verb_export}, {"comm", verb_comm},
};

/* A signal handler can reach nothing else. */
static volatile sig_atomic_t stop_requested, can_save, is_rank, is_silent, is_quiet, saves_nothing, stop_fd = -1;
static struct timespec asked_at; /* the handler's: of the first request */

/* While there is something to save, the loop sees the request after its step. Before that, and in verbs that save
 * nothing, the process ends here, or the store ends it after it has told the other ranks: it may be waiting for them,
 * and nothing would be lost. AddressSanitizer would allocate before an _exit on this stack, which a handler must not.
 */
__attribute__((no_sanitize("address"))) static void say(const char *sentence, size_t length) {
    ssize_t written = is_rank || is_silent ? 0 : write(STDERR_FILENO, sentence, length);
    (void)written;
}

/* Schedulers and closing terminals send several signals in a row; only a person's second one means "at once". The
 * launcher decides the same for its ranks (launch.h). */
__attribute__((no_sanitize("address"))) static bool ends_at_once(int signal_number) {
    struct timespec now;
    bool is_first = !stop_requested;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (is_first) asked_at = now;
    if (is_first || is_rank) return false;
    bool is_later = now.tv_sec - asked_at.tv_sec - (now.tv_nsec < asked_at.tv_nsec) >= 1;
    return signal_number == SIGINT || ((signal_number == SIGTERM || signal_number == SIGHUP) && is_later);
}

/* The state is saved first. */
__attribute__((no_sanitize("address"))) static void stop_later(int signal_number) {
#define STOPPING "\nddptrain: stopping after this step or batch of evaluation, then the state is saved"
    static const char stopping[] = STOPPING "\n", interrupted[] = STOPPING "; press Ctrl-C again to end at once\n";
#define AT_ONCE "\nddptrain: ended at once by a second signal"
    static const char at_once[] = AT_ONCE ": what was done since the last checkpoint is lost\n";
    static const char nothing_lost[] = AT_ONCE "\n";
    bool is_first = !stop_requested;
    size_t skipped = !isatty(STDERR_FILENO); /* on a terminal there may be a progress bar */
    if (ends_at_once(signal_number)) {
        if (saves_nothing)
            say(nothing_lost + skipped, sizeof nothing_lost - 1 - skipped);
        else
            say(at_once + skipped, sizeof at_once - 1 - skipped);
        _exit(STATUS_PEER);
    }
    if (!is_first || is_quiet || saves_nothing) return;
    if (signal_number == SIGINT)
        say(interrupted + skipped, sizeof interrupted - 1 - skipped);
    else
        say(stopping + skipped, sizeof stopping - 1 - skipped);
}

__attribute__((no_sanitize("address"))) static void request_stop(int signal_number) {
    static const char sentence[] = "ddptrain: stopped on request before training began; nothing was to be saved\n";
    static const char no_training[] = "ddptrain: stopped on request\n";
    int error = errno;
    if (can_save) stop_later(signal_number);
    stop_requested = 1;
    uint64_t one = 1;
    int fd = can_save ? -1 : stop_fd;
    bool is_told = fd >= 0 && write(fd, &one, sizeof one) == sizeof one; /* the other ranks shall know why */
    errno = error;
    if (can_save || is_told) return;
    if (saves_nothing)
        say(no_training, sizeof no_training - 1);
    else
        say(sentence, sizeof sentence - 1);
    _exit(STATUS_STOPPED);
}

static const char usage[] =
    "usage: ddptrain CONFIG [KEY=VALUE ...] [options]     train (ddptrain train CONFIG is the same)\n"
    "       ddptrain check CONFIG [KEY=VALUE ...]         check the config; print shapes, memory and buckets\n"
    "       ddptrain eval CONFIG                          loss and metrics of the newest checkpoint\n"
    "       ddptrain predict CONFIG --out FILE.csv|.h5    the model's outputs, each with its row number\n"
    "       ddptrain generate CONFIG --prompt TEXT        text from a trained character model\n"
    "       ddptrain inspect FILE|RUN                     contents of a checkpoint, data file, safetensors file or "
    "run folder\n"
    "       ddptrain export RUN|FILE --out FILE.safetensors   the weights of a run's newest checkpoint, for PyTorch\n"
    "       ddptrain comm --nproc N                       check every collective; print a table of times by size\n"
    "       ddptrain --help-config [SECTION]              every key of a config\n"
    "       ddptrain --schema                             JSON schema of a config, for editors\n"
    "       ddptrain --help | --version\n"
    "\n"
    "options\n"
    "  --nproc N|gpu|auto   processes on this node; default: one per visible GPU, or 1 on the CPU\n"
    "  --standalone         one node, a free port (the default)\n"
    "  --nnodes N --node-rank R --master-addr HOST --master-port PORT\n"
    "                       several nodes without a scheduler; run the same command on each with its own R\n"
    "  --cpu-bind none|cores\n"
    "                       cores: bind each process to an equal share of the cores that this command may use;\n"
    "                       default: none\n"
    "  --run-dir DIR        folder for the files of the run; default: runs/<name>\n"
    "  --fresh              rename an existing run folder and start again\n"
    "  --checkpoint FILE|best\n"
    "                       eval, predict, generate: this checkpoint, or the newest of this run folder;\n"
    "                       best, also of export: the one that checkpoint.best keeps\n"
    "  --weights trained|average\n"
    "                       eval, predict, generate, export: the weights, or their moving average (train.ema);\n"
    "                       default: what the evaluations of the run used\n"
    "  --part train|validation|all\n"
    "                       eval, predict: which rows; default: validation if there are any;\n"
    "                       all: every row of dataset.path, without split and validation file\n"
    "  --characters N --temperature T --top-k K --seed S\n"
    "                       generate: number of characters (500), temperature (1; 0: always the most likely "
    "character),\n"
    "                       number of candidates (all), seed of the draws\n"
    "  --max-restarts N     restart all processes from the newest checkpoint after a failure, at most N times in a "
    "row\n"
    "                       without a new checkpoint; default: 0\n"
    "  --backend auto|shm|gloo|nccl --sizes 1K,64K,1M\n"
    "                       comm: backend and sizes in bytes; default: auto, 1K to 64M\n"
    "  --grace SECONDS      time that a process has to save after a stop request; default: 30\n"
    "  --quiet              print failures only\n"
    "  --no-progress        no progress bar\n"
    "\n"
    "KEY=VALUE overrides a key of the config by its dotted path: optimizer.lr=0.01 train.epochs=5\n"
    "Running the same command again continues an unfinished run.\n"
    "\n"
    "exit codes\n";

static void print_usage(void) {
    fputs(usage, stdout);
#define X(name, code, text) printf("  %2d  %s\n", code, text);
    STATUS_CODES(X)
#undef X
}

/* Options with a value: "--name VALUE" or "--name=VALUE", once, under whichever of its names. */
struct option {
    const char *name;
    const char **text;
    int *number;
    double *real;
    bool *flag;
    const char *verbs; /* that take it; NULL: all of them */
    bool is_given;
};

static bool is_same(const struct option *a, const struct option *b) {
    return a->text == b->text && a->number == b->number && a->real == b->real;
}

/* An option that a verb does not take was meant for another one, or for another effect. */
static status check_taken(const struct option *option, const char *verb_name) {
    if (!option->verbs || strstr(option->verbs, verb_name)) return OK;
    return status_new(STATUS_USAGE, "%s is for %s; '%s' does not take it (see ddptrain --help)", option->name,
                      option->verbs, verb_name);
}

/* Two values for one thing are a slip that would silently go one way; a flag may be repeated. */
static status check_given(const struct option *option, const struct option *options, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (options[i].is_given && is_same(option, &options[i]))
            return option == &options[i] ? status_new(STATUS_USAGE, "%s is given twice", option->name)
                                         : status_new(STATUS_USAGE, "%s and %s are the same option; give it once",
                                                      options[i].name, option->name);
    return OK;
}

#define LARGEST_REAL 1e9

static status parse_value(const struct option *option, const char *value) {
    char *end;
    errno = 0;
    if (option->text) {
        if (strncmp(value, "--", 2) == 0)
            return status_new(STATUS_USAGE, "%s needs a value, got the option '%s'", option->name, value);
        if (!*value) return status_new(STATUS_USAGE, "%s needs a value, got an empty value", option->name);
        *option->text = value;
    } else if (option->number) {
        long number = strtol(value, &end, 10);
        if (errno || *end || end == value || number < 0 || number > INT_MAX)
            return status_new(STATUS_USAGE, "%s: expected a whole number from 0 to %d, got '%s'", option->name, INT_MAX,
                              value);
        *option->number = (int)number;
    } else {
        *option->real = strtod(value, &end);
        if (errno || *end || end == value || !(*option->real >= 0 && *option->real <= LARGEST_REAL))
            return status_new(STATUS_USAGE, "%s: expected a number from 0 to %g, got '%s'", option->name, LARGEST_REAL,
                              value);
    }
    return OK;
}

static status unknown_option(const char *word, const struct option *options, size_t count) {
    const char *known[48] = {NULL};
    for (size_t i = 0; i < count; i++) known[i] = options[i].name;
    const char *nearest = schema_nearest(word, known);
    return status_new(STATUS_USAGE, "unknown option '%s'%s%s%s (see ddptrain --help)", word,
                      nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
}

static status parse_option(char **argv, int argc, int *at, const char *verb_name, struct option *options,
                           size_t count) {
    const char *word = argv[*at], *equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word) : strlen(word);
    for (size_t i = 0; i < count; i++) {
        if (strlen(options[i].name) != length || strncmp(options[i].name, word, length) != 0) continue;
        TRY(check_taken(&options[i], verb_name));
        if (options[i].flag) {
            if (equals) return status_new(STATUS_USAGE, "%s takes no value", options[i].name);
            *options[i].flag = true;
            return OK;
        }
        TRY(check_given(&options[i], options, count));
        options[i].is_given = true;
        if (equals) return parse_value(&options[i], equals + 1);
        if (*at + 1 >= argc) return status_new(STATUS_USAGE, "%s needs a value", word);
        return parse_value(&options[i], argv[++*at]);
    }
    return unknown_option(word, options, count);
}

static status parse(int argc, char **argv, int first, const char *verb_name, struct command_line *line) {
    struct option options[] = {
        {.name = "--nproc", .text = &line->nproc},
        {.name = "--nproc_per_node", .text = &line->nproc}, /* torchrun's spellings */
        {.name = "--nproc-per-node", .text = &line->nproc},
        {.name = "--nnodes", .number = &line->nnodes},
        {.name = "--node-rank", .number = &line->node_rank},
        {.name = "--node_rank", .number = &line->node_rank},
        {.name = "--master-addr", .text = &line->master_addr},
        {.name = "--master_addr", .text = &line->master_addr},
        {.name = "--master-port", .number = &line->master_port},
        {.name = "--master_port", .number = &line->master_port},
        {.name = "--cpu-bind", .text = &line->cpu_bind, .verbs = "train, check, eval, predict, comm"},
        {.name = "--run-dir", .text = &line->run_dir},
        {.name = "--out", .text = &line->out, .verbs = "predict, export"},
        {.name = "--checkpoint", .text = &line->checkpoint, .verbs = "eval, predict, generate, export"},
        {.name = "--weights", .text = &line->weights, .verbs = "eval, predict, generate, export"},
        {.name = "--part", .text = &line->part, .verbs = "eval, predict"},
        {.name = "--backend", .text = &line->backend, .verbs = "comm"},
        {.name = "--sizes", .text = &line->sizes, .verbs = "comm"},
        {.name = "--prompt", .text = &line->prompt, .verbs = "generate"},
        {.name = "--characters", .number = &line->characters, .verbs = "generate"},
        {.name = "--temperature", .real = &line->temperature, .verbs = "generate"},
        {.name = "--top-k", .number = &line->top_k, .verbs = "generate"},
        {.name = "--seed", .number = &line->seed, .verbs = "generate"},
        {.name = "--max-restarts", .number = &line->max_restarts},
        {.name = "--max_restarts", .number = &line->max_restarts},
        {.name = "--grace", .real = &line->grace},
        {.name = "--fresh", .flag = &line->is_fresh, .verbs = "train"},
        {.name = "--quiet", .flag = &line->is_quiet},
        {.name = "--no-progress", .flag = &line->has_no_progress},
        {.name = "--standalone", .flag = &line->is_standalone},
    };
    for (int i = first; i < argc; i++) {
        if (argv[i][0] == '-' && argv[i][1])
            TRY(parse_option(argv, argc, &i, verb_name, options, sizeof options / sizeof *options));
        else if (strchr(argv[i], '='))
            line->overrides[line->override_count++] = argv[i];
        else if (!line->config)
            line->config = argv[i];
        else
            return status_new(STATUS_USAGE, "unexpected argument '%s' after '%s'; overrides are KEY=VALUE", argv[i],
                              line->config);
    }
    return OK;
}

/* The verb named by the first word; `train` when it names none. */
static verb *find_verb(const char *word, int *first) {
    for (size_t i = 0; word && i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(word, verbs[i].name) == 0) {
            *first = 2;
            return verbs[i].run;
        }
    *first = 1;
    return verb_train;
}

/* Words of other programs for a command. */
static const struct {
    const char *word, *verb, *note;
} other_verbs[] = {
    {"evaluate", "eval", ""},   {"evaluation", "eval", ""},
    {"test", "eval", ""},       {"val", "eval", ""},
    {"score", "eval", ""},      {"validate", "eval", ", or 'check' for the config alone"},
    {"fit", "train", ""},       {"run", "train", ""},
    {"start", "train", ""},     {"resume", "train", "; it continues an unfinished run"},
    {"infer", "predict", ""},   {"inference", "predict", ""},
    {"sample", "generate", ""}, {"lint", "check", ""},
    {"verify", "check", ""},    {"dry-run", "check", ""},
    {"info", "inspect", ""},    {"show", "inspect", ""},
    {"summary", "check", ""},   {"bench", "comm", ""},
    {"benchmark", "comm", ""},
};

/* A first word that is no file, but nearly a verb: what was meant is not a config of that name. */
static status check_verb(const char *word) {
    const char *names[sizeof verbs / sizeof *verbs + 1] = {NULL};
    if (!word || word[0] == '-' || strpbrk(word, "./=") || access(word, F_OK) == 0) return OK;
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) names[i] = verbs[i].name;
    for (size_t i = 0; names[i]; i++)
        if (strcmp(word, names[i]) == 0) return OK;
    for (size_t i = 0; i < sizeof other_verbs / sizeof *other_verbs; i++)
        if (strcmp(word, other_verbs[i].word) == 0)
            return status_new(STATUS_USAGE, "unknown command '%s'; did you mean '%s'%s? (see ddptrain --help)", word,
                              other_verbs[i].verb, other_verbs[i].note);
    const char *nearest = schema_nearest(word, names);
    if (!nearest) return OK;
    return status_new(STATUS_USAGE, "unknown command '%s'; did you mean '%s'? (see ddptrain --help)", word, nearest);
}

static status run(int argc, char **argv, struct command_line *line) {
    int first;
    verb *run_verb = find_verb(argc > 1 ? argv[1] : NULL, &first);
    line->saves = run_verb == verb_train;
    saves_nothing = !line->saves;
    TRY(check_verb(argc > 1 ? argv[1] : NULL));
    TRY(parse(argc, argv, first, first == 2 ? argv[1] : "train", line));
    is_quiet = line->is_quiet;
    if (!line->config && run_verb != verb_comm)
        return status_new(STATUS_USAGE, "no %s given; see ddptrain --help",
                          run_verb == verb_inspect || run_verb == verb_export ? "file" : "config");
    if (line->nnodes < 1) return status_new(STATUS_USAGE, "--nnodes must be at least 1");
    if (line->is_standalone && line->nnodes > 1)
        return status_new(STATUS_USAGE, "--standalone is for one node; leave it out with --nnodes %d", line->nnodes);
    TRY(command_find_folder(line));
    return run_verb(line);
}

/* Words that print something and end. false: not one of them. */
static bool run_help(int argc, char **argv, status *s) {
    bool is_asked = argc > 1 && strcmp(argv[1], "help") == 0;
    for (int i = 1; i < argc; i++) is_asked = is_asked || strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
    if (argc < 2) return false;
    if (is_asked)
        print_usage();
    else if (strcmp(argv[1], "--version") == 0)
        printf("ddptrain %s\n", DDPTRAIN_VERSION);
    else if (strcmp(argv[1], "--help-config") == 0)
        *s = help_config(argc > 2 ? argv[2] : NULL);
    else if (strcmp(argv[1], "--schema") == 0)
        *s = help_schema();
    else if (strcmp(argv[1], "--reference") == 0)
        *s = help_markdown();
    else
        return false;
    return true;
}

/* What was printed has arrived. A reader that has left (`| head`) has what it wanted. */
static status check_output(void) {
    bool is_lost = ferror(stdout) != 0;
    int number = fflush(stdout) == 0 ? 0 : errno;
    struct pollfd reader = {.fd = STDOUT_FILENO, .events = POLLOUT};
    if (!is_lost && number == 0) return OK;
    if (number == EPIPE || (poll(&reader, 1, 0) == 1 && (reader.revents & POLLERR))) return OK;
    if (number) return status_errno(STATUS_IO, number, "cannot write to standard output");
    return status_new(STATUS_IO, "cannot write to standard output: a part of what was printed is lost");
}

/* Whether a sentence begins with its place, "file:line:column: ", as editors read it. */
static bool starts_with_place(const char *sentence) {
    int end = 0;
    sscanf(sentence, "%*[^:\n]:%*d:%*d: %n", &end);
    return end > 0;
}

/* Under srun, mpirun or torchrun, what every rank fails with is printed once: a stop, on which all ranks agree, by rank
 * 0, and a wrong config by the first rank of a host, or where all are on one host by rank 0. A failure of one rank
 * alone is printed by that rank. */
static bool is_printed_by_another(const struct dist_env *env, const struct command_line *line, status s) {
    size_t length = line->config ? strlen(line->config) : 0;
    const char *sentence = status_message(s);
    bool is_about_config = (length > 0 && strncmp(sentence, line->config, length) == 0 && sentence[length] == ':') ||
                           strncmp(sentence, "argument '", 10) == 0;
    if (env->launcher == LAUNCHER_NONE || env->launcher == LAUNCHER_OWN || env->rank == 0) return false;
    if (status_code(s) == STATUS_STOPPED) return true;
    bool is_first_of_host = env->local_rank == 0 && env->local_world_size < env->world_size;
    return status_code(s) == STATUS_USAGE && is_about_config && !is_first_of_host;
}

static void print_failure(status s) {
    fprintf(stderr, "%s%s\n", starts_with_place(status_message(s)) ? "" : "ddptrain: ", status_message(s));
}

/* A closed standard stream would be the next file that is opened, and lines for the terminal would go into it. */
static bool open_standard_streams(void) {
    int fd = open("/dev/null", O_RDONLY); /* what is printed there is lost, and known to be */
    while (fd >= 0 && fd <= STDERR_FILENO) fd = dup(fd);
    return fd > STDERR_FILENO && close(fd) == 0;
}

int main(int argc, char **argv) {
    struct command_line line = {.program = argv[0],
                                .argv = argv,
                                .nnodes = 1,
                                .grace = 30,
                                .characters = 500,
                                .temperature = 1,
                                .started = clock_seconds(),
                                .stop = &stop_requested,
                                .can_save = &can_save,
                                .stop_fd = &stop_fd};
    struct dist_env env = {0};
    status unknown = dist_env_detect(&env); /* a verb reports it */
    status_free(unknown);
    is_rank = getenv("RANK") != NULL; /* the launcher speaks for its ranks */
    is_silent = env.rank > 0;
    if (!open_standard_streams()) return STATUS_IO;
    signals_on_stop(request_stop);
    line.overrides = calloc((size_t)argc, sizeof *line.overrides);
    if (!line.overrides) status_exit_without_memory();
    status s = stack_check();
    if (!s && !fault_is_readable())
        s = status_new(STATUS_USAGE, "DDPTRAIN_FAULT: expected N:KIND[:once|ever], got '%s'", getenv("DDPTRAIN_FAULT"));
    else if (!s && fault_clock() <= 0)
        s = status_new(STATUS_USAGE, "DDPTRAIN_FAULT_CLOCK: expected a factor above 0, got '%s'",
                       getenv("DDPTRAIN_FAULT_CLOCK"));
    else if (!s && !run_help(argc, argv, &s))
        s = run(argc, argv, &line);
    s = status_first(s, check_output());
    if (s && !launcher_report(s) && !is_printed_by_another(&env, &line, s)) print_failure(s);
    int code = status_exit_code(status_code(s));
    status_free(s);
    free(line.overrides);
    free(line.own_folder);
    return code;
}
