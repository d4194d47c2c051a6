/* ddptrain: parses the command line and calls a command; handles stop requests and prints failures. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/files/hdf5.h"
#include "base/stop.h"
#include "base/system/machine.h"
#include "base/system/signals.h"
#include "command.h"
#include "device/cpu/parallel.h"
#include "dist/process/launcher_channel.h"

#define MAX_NODES 65536 /* times the 4096 processes of --nproc, which an int can hold */

/* A signal handler can access only globals. */
static volatile sig_atomic_t is_rank, is_silent, is_quiet, saves_nothing;
static struct timespec first_request; /* time; used by the handler only */

/* To standard error, unless the launcher or rank 0 prints it. No AddressSanitizer in handlers: it would allocate memory
 * before an _exit on the signal stack. */
__attribute__((no_sanitize("address"))) static void write_message(const char *sentence, size_t length) {
    ssize_t written = is_rank || is_silent ? 0 : write(STDERR_FILENO, sentence, length);
    (void)written;
}

/* Schedulers and closing terminals send several signals in a row; a second signal ends the process at once only if it
 * is SIGINT or comes a second later. The launcher does the same for its ranks (launch.h). */
__attribute__((no_sanitize("address"))) static bool ends_at_once(int signal_number) {
    struct timespec now;
    bool is_first = !stop_is_requested();
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (is_first) first_request = now;
    if (is_first || is_rank) return false;
    bool is_later = now.tv_sec - first_request.tv_sec - (now.tv_nsec < first_request.tv_nsec) >= 1;
    return signal_number == SIGINT || ((signal_number == SIGTERM || signal_number == SIGHUP) && is_later);
}

/* Prints that the state is saved first, or ends at once. */
__attribute__((no_sanitize("address"))) static void report_stop(int signal_number) {
#define STOPPING "\nddptrain: stopping after this step or batch of evaluation, then the state is saved"
    static const char stopping[] = STOPPING "\n", interrupted[] = STOPPING "; press Ctrl-C again to end at once\n";
#define AT_ONCE "\nddptrain: ended at once by a second signal"
    static const char at_once[] = AT_ONCE ": what was done since the last checkpoint is lost\n";
    static const char nothing_lost[] = AT_ONCE "\n";
    bool is_first = !stop_is_requested();
    size_t skipped = !isatty(STDERR_FILENO); /* on a terminal there may be a progress bar */
    if (ends_at_once(signal_number)) {
        if (saves_nothing)
            write_message(nothing_lost + skipped, sizeof nothing_lost - 1 - skipped);
        else
            write_message(at_once + skipped, sizeof at_once - 1 - skipped);
        _exit(STATUS_PEER);
    }
    if (!is_first || is_quiet || saves_nothing) return;
    if (signal_number == SIGINT)
        write_message(interrupted + skipped, sizeof interrupted - 1 - skipped);
    else
        write_message(stopping + skipped, sizeof stopping - 1 - skipped);
}

/* During training the loop handles the request after its step. Before that, and in commands that save nothing, the
 * process ends here, or the store ends it after it has informed the other ranks. */
__attribute__((no_sanitize("address"))) static void request_stop(int signal_number) {
    static const char sentence[] = "ddptrain: " STOPPED_BEFORE_TRAINING "\n";
    static const char no_training[] = "ddptrain: " STOPPED_ON_REQUEST "\n";
    int error = errno;
    if (stop_is_deferred()) report_stop(signal_number);
    bool is_handled = stop_request(); /* by the loop, or by the store, which informs the other ranks */
    errno = error;
    if (is_handled) return;
    if (saves_nothing)
        write_message(no_training, sizeof no_training - 1);
    else
        write_message(sentence, sizeof sentence - 1);
    _exit(STATUS_STOPPED);
}

static status run_subcommand(int argc, char **argv, struct command_line *line) {
    const char *word = argc > 1 ? argv[1] : NULL;
    const struct subcommand *named = subcommand_find(word);
    line->subcommand = named ? named : subcommand_at(0);
    saves_nothing = !line->subcommand->saves;
    TRY(subcommand_check_word(word));
    TRY(options_parse(argc, argv, named ? 2 : 1, line->subcommand, line));
    is_quiet = line->is_quiet;
    if (line->config && !line->subcommand->operand)
        return status_usage("%s takes no config, got '%s'; see ddptrain --help", line->subcommand->name, line->config);
    if (!line->config && line->subcommand->operand && !line->subcommand->needs_no_operand)
        return status_usage("no %s given; see ddptrain --help", line->subcommand->operand);
    if (line->nnodes < 1 || line->nnodes > MAX_NODES)
        return status_usage("--nnodes: expected 1 to %d, got %d", MAX_NODES, line->nnodes);
    if (line->node_rank >= line->nnodes)
        return status_usage("--node-rank must be below --nnodes %d, got %d", line->nnodes, line->node_rank);
    if (line->is_standalone && line->nnodes > 1)
        return status_usage("--standalone is for one node; leave it out with --nnodes %d", line->nnodes);
    TRY(command_find_run(line));
    TRY(command_use_data(line));
    TRY(command_find_folder(line));
    return line->subcommand->run(line);
}

/* Whether the output was written. A reader that has closed the pipe (`| head`) is no failure. */
static status check_output(void) {
    bool is_lost = ferror(stdout) != 0;
    int number = fflush(stdout) == 0 ? 0 : errno;
    struct pollfd reader = {.fd = STDOUT_FILENO, .events = POLLOUT};
    if (!is_lost && number == 0) return OK;
    if (number == EPIPE || (poll(&reader, 1, 0) == 1 && (reader.revents & POLLERR))) return OK;
    if (number) return status_errno(STATUS_IO, number, "cannot write to standard output");
    return status_new(STATUS_IO, "cannot write to standard output: a part of what was printed is lost");
}

/* Whether a message begins with a place, "file:line:column: ", which editors parse. */
static bool starts_with_place(const char *sentence) {
    int end = 0;
    sscanf(sentence, "%*[^:\n]:%*d:%*d: %n", &end);
    return end > 0;
}

/* Under srun, mpirun or torchrun, a failure of all ranks is printed once: a stop by rank 0, a wrong config by the first
 * rank of each host, or by rank 0 if all are on one host. A failure of one rank is printed by that rank. */
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

/* Opens closed standard streams: otherwise the next opened file would get their number and receive the output. */
static bool open_standard_streams(void) {
    int fd = open("/dev/null", O_RDONLY); /* read-only, so that writing to it is a failure */
    while (fd >= 0 && fd <= STDERR_FILENO) fd = dup(fd);
    return fd > STDERR_FILENO && close(fd) == 0;
}

int main(int argc, char **argv) {
    struct command_line line = {.program = argv[0],
                                .argv = argv,
                                .nnodes = 1,
                                .grace = DEFAULT_GRACE,
                                .lease = 60,
                                .characters = 500,
                                .seed = -1,
                                .seeds = 10,
                                .fraction = -1,
                                .intervals = -1,
                                .stop_after = -1,
                                .root = -1,
                                .temperature = 1,
                                .top_p = 1,
                                .started = clock_seconds()};
    struct dist_env env = {0};
    status unknown = dist_env_detect(&env); /* a command reports it */
    status_free(unknown);
    is_rank = getenv("RANK") != NULL; /* the launcher prints for its ranks */
    is_silent = env.rank > 0;
    if (!open_standard_streams()) {
        fprintf(stderr, "ddptrain: cannot open /dev/null: %s; is /dev mounted?\n", strerror(errno));
        return STATUS_IO;
    }
    parallel_limit_spinning();
    hdf5_skip_end();
    signals_on_stop(request_stop);
    line.overrides = calloc((size_t)argc + MAX_DATA_OVERRIDES, sizeof *line.overrides);
    line.operands = calloc((size_t)argc, sizeof *line.operands);
    if (!line.overrides || !line.operands) status_exit_without_memory();
    status s = stack_check();
    if (!s && !fault_is_readable())
        s = status_usage("DDPTRAIN_FAULT: expected N:KIND[:once|ever], got '%s'", getenv("DDPTRAIN_FAULT"));
    else if (!s && fault_clock() <= 0)
        s = status_usage("DDPTRAIN_FAULT_CLOCK: expected a factor above 0, got '%s'", getenv("DDPTRAIN_FAULT_CLOCK"));
    else if (!s && !help_print(argc, argv, &s))
        s = run_subcommand(argc, argv, &line);
    s = status_first(s, check_output());
    if (s && !launcher_report(s) && !is_printed_by_another(&env, &line, s)) print_failure(s);
    int code = status_exit_code(status_code(s));
    status_free(s);
    free(line.overrides);
    free(line.operands);
    free(line.config_run_folder);
    command_free_operands(&line);
    return code;
}
