/* ddptrain: words on the command line -> one call. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/schema.h"
#include "base/signals.h"
#include "command.h"
#include "dist/launch.h"

static const struct {
    const char *name;
    verb *run;
} verbs[] = {
    {"train", verb_train},       {"check", verb_check},     {"eval", verb_eval},     {"predict", verb_predict},
    {"generate", verb_generate}, {"inspect", verb_inspect}, {"export", verb_export}, {"comm", verb_comm},
};

/* A signal handler can reach nothing else. */
static volatile sig_atomic_t stop_requested, can_save, is_rank, saves_nothing, stop_fd = -1;

/* While there is something to save, the loop sees the request after its step. Before that, and in verbs that save
 * nothing, the process ends here, or the store ends it after it has told the other ranks: it may be waiting for them,
 * and nothing would be lost. AddressSanitizer would allocate before an _exit on this stack, which a handler must not.
 */
__attribute__((no_sanitize("address"))) static void request_stop(int signal_number) {
    static const char sentence[] = "ddptrain: stopped on request before training began; nothing was to be saved\n";
    static const char no_training[] = "ddptrain: stopped on request\n";
    (void)signal_number;
    stop_requested = 1;
    if (can_save) return;
    uint64_t one = 1;
    int fd = stop_fd;
    if (fd >= 0 && write(fd, &one, sizeof one) == sizeof one) return; /* the other ranks shall know why */
    ssize_t written = 0;
    if (!is_rank && saves_nothing) written = write(STDERR_FILENO, no_training, sizeof no_training - 1);
    if (!is_rank && !saves_nothing) written = write(STDERR_FILENO, sentence, sizeof sentence - 1);
    (void)written;
    _exit(STATUS_STOPPED);
}

static const char usage[] =
    "usage: ddptrain CONFIG [KEY=VALUE ...] [options]     train (ddptrain train CONFIG is the same)\n"
    "       ddptrain check CONFIG [KEY=VALUE ...]         validate; print shapes, memory, buckets; touch no device\n"
    "       ddptrain eval CONFIG                          loss and metrics of the newest checkpoint, exact on any "
    "number of ranks\n"
    "       ddptrain predict CONFIG --out FILE.csv|.h5    the model's outputs, each with the number of its row\n"
    "       ddptrain generate CONFIG --prompt TEXT        text from a trained character model\n"
    "       ddptrain inspect FILE                         what is in a checkpoint, dataset or safetensors file\n"
    "       ddptrain export RUN|FILE --out FILE.safetensors   the weights of a run's newest checkpoint, for PyTorch\n"
    "       ddptrain comm --nproc N                       check every collective; print a table of times by size\n"
    "       ddptrain --help-config [SECTION]              every key of a config\n"
    "       ddptrain --schema                             JSON schema of a config, for editors\n"
    "       ddptrain --help | --version\n"
    "\n"
    "options\n"
    "  --nproc N|gpu|auto   processes on this node; default one per visible GPU, on the CPU 1\n"
    "  --standalone         one node, a free port (the default)\n"
    "  --nnodes N --node-rank R --master-addr HOST --master-port PORT\n"
    "                       several nodes without a scheduler; run the same command on each with its R\n"
    "  --cpu-bind none|cores\n"
    "                       cores: each process gets cores of its own, an even part of those left to this command;\n"
    "                       default none\n"
    "  --run-dir DIR        where the run keeps its files; default runs/<name>\n"
    "  --fresh              move an existing run folder aside and start over\n"
    "  --checkpoint FILE    eval, predict, generate: this one, or the newest of this run folder\n"
    "  --weights trained|average\n"
    "                       eval, predict, generate, export: the weights, or their moving average (train.ema); "
    "default\n"
    "                       what the run's own evaluations used\n"
    "  --part train|validation|all\n"
    "                       eval, predict: which rows; default validation where there are any; all: every row of\n"
    "                       dataset.path, without split and validation file\n"
    "  --characters N --temperature T --top-k K --seed S\n"
    "                       generate: how many (500), how bold (1; 0: always the likeliest), among how many (all)\n"
    "  --max-restarts N     start all processes again from the newest checkpoint after a failure, at most N times in\n"
    "                       a row without a new checkpoint; default 0\n"
    "  --backend auto|shm|gloo|nccl --sizes 1K,64K,1M\n"
    "                       comm: by which way, and which sizes in bytes; default auto, 1K to 64M\n"
    "  --grace SECONDS      time a process has to save after a request to stop; default 30\n"
    "  --quiet              nothing on the terminal but failures\n"
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
        if (!*value) return status_new(STATUS_USAGE, "%s needs a value, got an empty word", option->name);
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
        {.name = "--checkpoint", .text = &line->checkpoint, .verbs = "eval, predict, generate"},
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
            return status_new(STATUS_USAGE, "unexpected word '%s' after '%s'; overrides are KEY=VALUE", argv[i],
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

/* A first word that is no file, but nearly a verb: what was meant is not a config of that name. */
static status check_verb(const char *word) {
    const char *names[sizeof verbs / sizeof *verbs + 1] = {NULL};
    if (!word || word[0] == '-' || strpbrk(word, "./=") || access(word, F_OK) == 0) return OK;
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) names[i] = verbs[i].name;
    for (size_t i = 0; names[i]; i++)
        if (strcmp(word, names[i]) == 0) return OK;
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
    is_rank = getenv("RANK") != NULL; /* the starter speaks for its ranks */
    if (!open_standard_streams()) return STATUS_IO;
    signals_on_stop(request_stop);
    line.overrides = calloc((size_t)argc, sizeof *line.overrides);
    if (!line.overrides) return STATUS_BUG;
    status s = OK;
    if (!fault_is_readable())
        s = status_new(STATUS_USAGE, "DDPTRAIN_FAULT: expected N:KIND[:once|ever], got '%s'", getenv("DDPTRAIN_FAULT"));
    else if (!run_help(argc, argv, &s))
        s = run(argc, argv, &line);
    s = status_first(s, check_output());
    if (s && !launch_report(s)) print_failure(s);
    int code = status_code(s);
    status_free(s);
    free(line.overrides);
    free(line.own_folder);
    return code;
}
