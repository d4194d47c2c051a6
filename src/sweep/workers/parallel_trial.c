/* A run of a sweep in several processes: starts ddptrain and reads its metrics.jsonl. The child ends with this process
 * (PR_SET_PDEATHSIG), and its ranks with it. */
#include "sweep/workers/parallel_trial.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/files/io.h"
#include "base/system/signals.h"
#include "train/metrics/metrics.h"

#define MAX_OUTPUT (64 << 10) /* bytes of the child's output that are kept */
#define POLL_MILLISECONDS 50

struct child {
    const struct parallel_trial *trial;
    char *config, *metrics; /* paths */
    pid_t pid;
    int error_fd;       /* its standard error */
    struct text output; /* what it wrote there */
    uint64_t offset;    /* how far metrics.jsonl was read */
    bool stop_requested;
};

static char *path_with(const char *folder, const char *ending) {
    struct text path = {0};
    text_printf(&path, "%s%s", folder, ending);
    return path.data;
}

static status write_config(const struct child *c) {
    struct text text = {0};
    char *folder = io_folder_of(c->config);
    schema_write_yaml(&config_schema, c->trial->config, &text);
    struct io_part part = {text_string(&text), text.length};
    status s = io_make_folders(folder);
    if (!s) s = io_replace(c->config, &part, 1);
    free(folder);
    text_free(&text);
    return s;
}

__attribute__((noreturn)) static void execute(const struct child *c, int output, pid_t parent) {
    char nproc[32];
    snprintf(nproc, sizeof nproc, "%lld", (long long)c->trial->nproc);
    const char *const words[] = {"ddptrain",       c->config, "--nproc",       nproc, "--run-dir",
                                 c->trial->folder, "--quiet", "--no-progress", NULL};
    int nothing = open("/dev/null", O_RDWR);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(STATUS_PEER);
    dup2(nothing, 0);
    dup2(nothing, 1);
    dup2(output, 2);
    signals_block_only_stops();
    execv("/proc/self/exe", (char *const *)words);
    _exit(STATUS_IO);
}

static status start(struct child *c) {
    int ends[2];
    pid_t parent = getpid();
    if (pipe2(ends, O_CLOEXEC) != 0) return status_errno(STATUS_IO, errno, "cannot open a pipe for a trial");
    sigset_t before;
    signals_block_all(&before); /* a request to stop waits until the program has its handler */
    c->pid = fork();
    if (c->pid == 0) execute(c, ends[1], parent);
    int error = errno;
    signals_restore(&before);
    close(ends[1]);
    c->error_fd = ends[0];
    if (c->pid > 0) return OK;
    c->pid = 0;
    return status_errno(STATUS_IO, error, "cannot start the processes of a trial");
}

/* ---- while it runs ---- */

static void pass_epoch(const struct child *c, const char *line, size_t length) {
    json_t *event = json_loadb(line, length, 0, NULL);
    const json_t *epoch = json_object_get(event, "epoch"), *value = json_object_get(event, c->trial->metric);
    int64_t number = json_is_integer(epoch) ? json_integer_value(epoch) : -1;
    if (number >= 0 && number < INT64_MAX)
        c->trial->on_epoch(c->trial->user, number + 1, json_is_number(value) ? json_number_value(value) : (double)NAN,
                           number + 1 == c->trial->config->train.epochs);
    json_decref(event);
}

/* The lines that are whole and were not read yet. */
static status read_epochs(struct child *c) {
    struct io_info info;
    int fd;
    size_t got = 0;
    if (!c->trial->on_epoch) return OK;
    TRY(io_stat(c->metrics, &info));
    if (info.size < c->offset) c->offset = 0; /* cut by a resume: an epoch that is reported twice is the same */
    if (!info.is_file || info.size == c->offset) return OK;
    char *bytes = malloc(info.size - c->offset + 1);
    if (!bytes) return status_memory("the metrics of a trial");
    status s = io_open(c->metrics, &fd);
    if (!s) s = io_read_at(fd, c->metrics, bytes, info.size - c->offset, c->offset, &got);
    if (fd >= 0) s = status_first(s, io_close(fd, c->metrics));
    bytes[s ? 0 : got] = 0;
    for (char *line = bytes, *end; !s && (end = strchr(line, '\n')); line = end + 1) {
        if (metrics_line_is(line, METRICS_EPOCH)) pass_epoch(c, line, (size_t)(end - line));
        c->offset += (uint64_t)(end - line) + 1;
    }
    free(bytes);
    return s;
}

/* false: it has closed its standard error. */
static bool read_output(struct child *c) {
    char bytes[4096];
    ssize_t n;
    do n = read(c->error_fd, bytes, sizeof bytes);
    while (n < 0 && errno == EINTR);
    if (n > 0 && c->output.length < MAX_OUTPUT) text_add_bytes(&c->output, bytes, (size_t)n);
    return n > 0;
}

static status watch(struct child *c) {
    bool is_open = true;
    while (is_open) {
        struct pollfd fds = {.fd = c->error_fd, .events = POLLIN};
        int ready = poll(&fds, 1, POLL_MILLISECONDS);
        if (ready > 0) is_open = read_output(c);
        TRY(read_epochs(c));
        if (*c->trial->stop && !c->stop_requested) {
            c->stop_requested = true;
            kill(c->pid, SIGTERM);
        }
    }
    return OK;
}

/* ---- its end ---- */

static double real(const json_t *event, const char *name) {
    const json_t *value = json_object_get(event, name);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* The numbers of the last line, "end" or "stopped". */
static status read_end(const struct child *c, struct run_summary *summary) {
    struct metrics_lines lines;
    TRY(metrics_read(c->metrics, &lines));
    json_t *end = lines.other ? json_loads(lines.other, 0, NULL) : NULL;
    const char *hash = json_string_value(json_object_get(end, "state_sha256"));
    bool is_there = hash && strlen(hash) < sizeof summary->state_sha256;
    if (is_there) {
        *summary = (struct run_summary){.epochs = json_integer_value(json_object_get(end, "epoch")),
                                        .steps = json_integer_value(json_object_get(end, "step")),
                                        .best_value = real(end, "best_value"),
                                        .best_epoch = json_integer_value(json_object_get(end, "best_epoch")),
                                        .seconds = real(end, "seconds")};
        memcpy(summary->state_sha256, hash, strlen(hash) + 1);
    }
    json_decref(end);
    metrics_lines_free(&lines);
    return is_there ? OK : status_new(STATUS_DATA, "%s: its last line is not the end of a run", c->metrics);
}

/* The child's message: from the last line that begins with the program's name, without it, to the end of the output. In
 * an output without such a line it is the last line. */
static status failure_of(struct child *c, int code) {
    static const char name[] = "ddptrain: ";
    while (c->output.length && c->output.data[c->output.length - 1] == '\n') c->output.data[--c->output.length] = 0;
    const char *message = NULL, *last = text_string(&c->output);
    for (const char *line = last; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        last = line;
        if (strncmp(line, name, strlen(name)) == 0) message = line + strlen(name);
    }
    if (!message) message = last;
    return status_new((enum status_code)code, "%s", *message ? message : "the run failed without a message");
}

static status finish(struct child *c, struct run_summary *summary) {
    int ended;
    while (waitpid(c->pid, &ended, 0) < 0 && errno == EINTR) {
    }
    c->pid = 0;
    int code = WIFEXITED(ended) ? WEXITSTATUS(ended) : STATUS_PEER;
    if (WIFSIGNALED(ended))
        return status_new(STATUS_PEER, "the launcher of the trial was ended by signal %d", WTERMSIG(ended));
    if (code == STATUS_STOPPED ||
        (code && c->stop_requested)) {     /* ranks that were starting may end with another code */
        status_free(read_end(c, summary)); /* there is none of a run that had not begun */
        return status_new(STATUS_STOPPED, "stopped on request");
    }
    status failure = code ? failure_of(c, code) : OK;
    failure = status_first(failure, read_epochs(c));
    return failure ? failure : read_end(c, summary);
}

status parallel_trial_run(const struct parallel_trial *trial, struct run_summary *summary) {
    struct child c = {.trial = trial,
                      .config = path_with(trial->folder, ".yaml"),
                      .metrics = path_with(trial->folder, "/metrics.jsonl"),
                      .error_fd = -1};
    status s = write_config(&c);
    if (!s) s = start(&c);
    if (!s) s = watch(&c);
    if (c.pid && s) kill(c.pid, SIGKILL);
    if (c.pid) {
        status end = finish(&c, summary);
        s = status_first(s, end);
    }
    if (c.error_fd >= 0) close(c.error_fd);
    status_free(io_remove(c.config));
    text_free(&c.output);
    free(c.config);
    free(c.metrics);
    return s;
}
