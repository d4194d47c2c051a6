/* The process that trains runs of a sweep, and its messages with the coordinator. Messages are structs over a socket
 * that keeps their bounds: both ends are the same program on the same machine. */
#include "sweep/workers/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/files/io.h"
#include "base/files/json_lines.h"
#include "base/scoped.h"
#include "base/stop.h"
#include "base/system/program.h"
#include "base/system/signals.h"
#include "data/sampling/split.h"
#include "device/cpu/parallel.h"
#include "sweep/sweep.h"
#include "sweep/sweep_folder.h"
#include "train/metrics/metrics.h"
#include "train/run/run.h"

/* ---- a run in several processes ---- */

/* A run of a sweep in several processes: starts ddptrain and reads its metrics.jsonl. The child ends with this process
 * (PR_SET_PDEATHSIG), and its ranks with it. */

struct parallel_trial {
    const struct config *config;
    const char *folder; /* of the run */
    int64_t nproc;
    const char *metric;           /* of the epochs, for on_epoch */
    run_epoch_function *on_epoch; /* called for each epoch that metrics.jsonl has, from its first on; NULL: none */
    void *user;
};

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

static status write_config(const struct child *c) {
    SCOPED_TEXT text = {0};
    SCOPED_STRING folder = io_folder_of(c->config);
    schema_write_yaml(&config_schema, c->trial->config, &text);
    struct io_part part = {text_string(&text), text.length};
    TRY(io_make_folders(folder));
    return io_replace(c->config, &part, 1);
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
    program_start_again((char *const *)(uintptr_t)words);
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

/* ---- a run in several processes: while it runs ---- */

static void pass_epoch(const struct child *c, const char *line, size_t length) {
    json_auto_t *event = json_loadb(line, length, 0, NULL);
    const json_t *epoch = json_object_get(event, "epoch"), *value = json_object_get(event, c->trial->metric);
    int64_t number = json_is_integer(epoch) ? json_integer_value(epoch) : -1;
    if (number >= 0 && number < INT64_MAX)
        c->trial->on_epoch(c->trial->user, number + 1, json_is_number(value) ? json_number_value(value) : (double)NAN,
                           number + 1 == c->trial->config->train.epochs);
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
        if (stop_is_requested() && !c->stop_requested) {
            c->stop_requested = true;
            kill(c->pid, SIGTERM);
        }
    }
    return OK;
}

/* ---- a run in several processes: its end ---- */

static double real(const json_t *event, const char *name) {
    const json_t *value = json_object_get(event, name);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* The numbers of the last line, "end" or "stopped". */
static status read_end(const struct child *c, struct run_summary *summary) {
    SCOPED_LINES lines = {0};
    TRY(metrics_read(c->metrics, &lines));
    json_auto_t *end = lines.other ? json_loads(lines.other, 0, NULL) : NULL;
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
    return is_there ? OK : status_data("%s: its last line is not the end of a run", c->metrics);
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

/* As run_train: OK, STATUS_STOPPED, or why the run failed, in its own words. */
static status parallel_trial_run(const struct parallel_trial *trial, struct run_summary *summary) {
    struct child c = {.trial = trial,
                      .config = text_format("%s.yaml", trial->folder),
                      .metrics = text_path(trial->folder, "metrics.jsonl"),
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

/* ---- what workers get ---- */

/* Bytes of datasets that the workers of a machine open, besides shared ones. */
#define MAX_CACHED ((uint64_t)512 << 20)
#define SECONDS_WITHOUT_FOLDER 5 /* what a run may lose with its worker where it has no checkpoints */
#define FIRST_SECONDS 0.1        /* of them a worker's first run, of which nothing is known */
#define SLOW_SECONDS 1           /* a longer run begins with its folder */
/* What a run folder costs, until the worker has written one: as on a fast disk, because a folder that costs more is
 * written once, while every run without one may be trained twice. */
#define FOLDER_SECONDS 0.005
#define MIN_FOLDER_SECONDS 0.002
#define MAX_FOLDER_SECONDS 0.1 /* more is a disk that others use just now */
#define FORGET_FOLDER 0.95     /* of that cost, with each run without a folder: the disk may be less busy now */

struct worker_options worker_options(const struct sweep_file *file, const struct sweep_options *options,
                                     const struct dist_env *env) {
    const struct sweep_config *sweep = sweep_file_config(file);
    return (struct worker_options){.sweep = sweep,
                                   .folder = options->folder,
                                   .env = env,
                                   .no_gpu = options->no_gpu,
                                   .threads = options->threads,
                                   .local_workers = options->env->world_size == 1 ? options->workers
                                                                                  : options->env->local_world_size,
                                   .reports_epochs = sweep->early_terminate.type != PRUNE_NONE};
}

/* ---- requests to stop ---- */

/* A request to stop (base/stop.h) ends the run after its step; with this also the process after it. */
static volatile sig_atomic_t stop_self;

static void on_signal(int number) {
    if (number != SIGALRM) stop_self = 1;
    stop_request();
}

/* A request to stop the run before has no effect on the next one. */
static void next_run(void) {
    stop_clear();
    if (stop_self) stop_request();
}

static void set_alarm(double seconds) {
    struct itimerval timer = {.it_value = {(time_t)seconds, (suseconds_t)((seconds - floor(seconds)) * 1e6)}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

/* ---- a run in this process ---- */

struct worker {
    const struct worker_options *options;
    struct dataset_cache *cache;
    int fd;
    int64_t run;
    struct config_file *config;                      /* of the run */
    struct run *parts;                               /* of an earlier run without files; NULL: none */
    struct config_file *parts_config;                /* of the first run of [parts] */
    const char *folder;                              /* of the sweep */
    uint64_t folder_inode;                           /* as of the job */
    char dataset[DATASET_KEY_SIZE], fingerprint[65]; /* of the rows of the run, or of [parts] */
    bool is_pruned;
    bool has_folder;                        /* the run */
    double test;                            /* of the run's test rows; NAN: none */
    double others[SWEEP_MAX_OTHER_METRICS]; /* of a complete run */
    double last_seconds; /* of training and evaluation, not of saving, in the last run, or half of the value before it;
                            INFINITY: there was no run */
    double folder_seconds; /* what the folder of the last run that has one has cost (FORGET_FOLDER) */
    double waits;          /* of the run, as worker_report's */
};

/* Of this process: how long it has computed, in all its threads, and how long this thread was ready to compute while
 * others had the processor (0 where the kernel does not say it). */
struct processor_times {
    double used, missed; /* seconds */
};

static struct processor_times processor_times(void) {
    struct timespec now;
    double missed = 0; /* nanoseconds */
    FILE *file = fopen("/proc/thread-self/schedstat", "re");
    if (file && fscanf(file, "%*s %lf", &missed) != 1) missed = 0;
    if (file) fclose(file);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (struct processor_times){(double)now.tv_sec + (double)now.tv_nsec * 1e-9, missed * 1e-9};
}

static void on_epoch(void *user, int64_t epoch, double value, bool is_last) {
    struct worker *w = user;
    struct worker_report report = {
        .event = WORKER_EPOCH, .is_last = is_last, .run = w->run, .epoch = epoch, .value = value};
    bool must_stop = false;
    if (!w->options->reports_epochs || isnan(value)) return;
    if (send(w->fd, &report, sizeof report, MSG_NOSIGNAL) != sizeof report) return; /* the next message finds out */
    ssize_t got;
    do got = recv(w->fd, &must_stop, sizeof must_stop, 0);
    while (got < 0 && errno == EINTR);
    if (got != sizeof must_stop || !must_stop) return;
    w->is_pruned = true;
    stop_request();
}

static status train_in_processes(struct worker *w, const struct config *config, const char *folder,
                                 struct run_summary *summary) {
    struct parallel_trial trial = {.config = config,
                                   .folder = folder,
                                   .nproc = w->options->sweep->nproc_per_trial,
                                   .metric = w->options->sweep->metric.name,
                                   .on_epoch = on_epoch,
                                   .user = w};
    return parallel_trial_run(&trial, summary);
}

/* The sweep's folder may have been moved since the coordinator looked: a run folder at the old path would be in the way
 * of another sweep. */
static status check_place(const struct worker *w) {
    struct io_info info;
    if (!w->folder_inode) return OK;
    TRY(io_stat(w->folder, &info));
    return info.inode == w->folder_inode ? OK : status_new(STATUS_STOPPED, "%s was moved", w->folder);
}

static void drop_parts(struct worker *w) {
    run_parts_destroy(w->parts);
    config_free(w->parts_config);
    w->parts = NULL;
    w->parts_config = NULL;
    w->dataset[0] = w->fingerprint[0] = 0;
}

static status open_dataset(struct worker *w, const struct config *config, struct dataset **out) {
    TRY(config_add_place(config, dataset_cache_open(w->cache, config, w->dataset, out)));
    memcpy(w->fingerprint, dataset_info(*out)->fingerprint, sizeof w->fingerprint);
    return OK;
}

/* Without files: with the parts of the run before, where the config has only another optimizer or other seeds. */
static status train_without_files(struct worker *w, struct run_options *options, struct log *log) {
    bool is_first = !w->parts;
    options->parts = &w->parts;
    if (is_first) TRY(open_dataset(w, config_of(w->config), &options->dataset));
    status s = run_train(config_of(w->config), w->options->env, options, log);
    if (is_first && w->parts) {
        w->parts_config = w->config;
        config_retain(w->config);
    }
    if (!is_first && !w->parts) {
        config_free(w->parts_config);
        w->parts_config = NULL;
    }
    return s;
}

/* Trains in this process or, with nproc_per_trial, in several; [folder] NULL: without files. */
static status train(struct worker *w, const struct config *config, const char *folder, struct run_summary *summary) {
    if (w->options->sweep->nproc_per_trial > 1) TRY(check_place(w));
    if (w->options->sweep->nproc_per_trial > 1) return train_in_processes(w, config, folder, summary);
    struct log *log = log_create(true, false);
    struct run_options options = {.folder = folder,
                                  .started = clock_seconds(),
                                  .writes_nothing = !folder,
                                  .is_in_sweep = true,
                                  .stop_after = -1,
                                  .on_epoch = on_epoch,
                                  .user = w,
                                  .summary = summary};
    status s = OK;
    bool can_use = !folder && !optimizer_is_in_backward(&config->optimizer);
    if (w->parts && !(can_use && config_has_same_base(w->config, w->parts_config))) drop_parts(w);
    if (folder) {
        s = open_dataset(w, config, &options.dataset);
        if (!s) s = check_place(w);
        if (!s) s = run_train(config, w->options->env, &options, log);
    } else
        s = train_without_files(w, &options, log);
    log_destroy(log);
    return s;
}

/* A run without a folder is trained a second time if its trial is one of the best, so a folder is worth its time if the
 * run takes long, or if many trials are kept. The last run shows how long the next may take: not the time of its saves,
 * which a run without a folder does not have. */
static bool wants_folder(const struct worker *w, const struct config *config) {
    const struct sweep_config *sweep = w->options->sweep;
    bool is_first = isinf(w->last_seconds);
    if (is_first) return config->device != DEVICE_CPU; /* a GPU would be set up twice */
    double repeated = (double)sweep->kept / (double)sweep->trials;
    return w->last_seconds > SLOW_SECONDS || w->last_seconds * repeated > w->folder_seconds;
}

/* A rollback needs a checkpoint, and so does the evaluation of the test rows; other processes report by their files,
 * and other metrics are read from them. */
static bool needs_folder(const struct worker *w, const struct config *config) {
    return config->train.on_nonfinite.policy == NONFINITE_ROLLBACK || split_has_test(&config->dataset.split) ||
           w->options->sweep->nproc_per_trial > 1 || w->options->sweep->other_metrics.count > 0;
}

/* What the run has taken, of [elapsed] seconds with its folder. */
static void note_seconds(struct worker *w, const struct run_summary *summary, double elapsed) {
    double seconds = summary->seconds + summary->evaluation_seconds;
    double cost = w->has_folder ? elapsed - seconds : w->folder_seconds * FORGET_FOLDER;
    w->last_seconds = isinf(w->last_seconds) ? seconds : fmax(seconds, w->last_seconds / 2);
    w->folder_seconds = fmin(fmax(cost, MIN_FOLDER_SECONDS), MAX_FOLDER_SECONDS);
}

static status train_with_or_without_folder(struct worker *w, const struct config *config, bool is_kept,
                                           struct run_summary *summary) {
    SCOPED_STRING folder = sweep_run_path(w->folder, w->options->sweep, w->run);
    bool has_folder = is_kept || wants_folder(w, config) || needs_folder(w, config);
    double start = clock_seconds();
    struct processor_times before = is_kept ? processor_times() : (struct processor_times){0};
    if (!has_folder) set_alarm(isinf(w->last_seconds) ? FIRST_SECONDS : SECONDS_WITHOUT_FOLDER);
    status s = train(w, config, has_folder ? folder : NULL, summary);
    set_alarm(0);
    bool is_over_time = status_code(s) == STATUS_STOPPED && !has_folder && !w->is_pruned && !stop_self;
    if (is_over_time) { /* once more, with checkpoints: the same numbers again */
        status_free(s);
        next_run();
        start = clock_seconds();
        s = train(w, config, folder, summary);
    }
    w->has_folder = has_folder || is_over_time;
    double elapsed = clock_seconds() - start;
    note_seconds(w, summary, elapsed);
    if (is_kept) {
        struct processor_times now = processor_times();
        double used = now.used - before.used, waited = elapsed - used - (now.missed - before.missed);
        w->waits = used > 0 ? fmax(waited / used, 0) : 0;
    }
    return s;
}

/* A run folder may be that of an earlier start, and the user may have trained its run further: its values are not the
 * trial's. */
static status check_length(const struct worker *w, const struct config *c, const struct run_summary *summary) {
    bool counts_steps = c->train.steps != SCHEMA_NO_INT;
    int64_t wanted = counts_steps ? c->train.steps : c->train.epochs,
            got = counts_steps ? summary->steps : summary->epochs;
    if (got <= wanted) return OK;
    SCOPED_STRING folder = sweep_run_path(w->folder, w->options->sweep, w->run);
    return status_new(STATUS_IO,
                      "the run in %s was trained for %lld %s, the trial has %lld; move the folder "
                      "elsewhere and run the same command again",
                      folder, (long long)got, counts_steps ? "steps" : "epochs", (long long)wanted);
}

/* From the last line of its metrics.jsonl, which an earlier start may have written. */
static status read_test(struct worker *w, const struct config *config) {
    SCOPED_TEXT name = {0};
    if (!split_has_test(&config->dataset.split)) return OK;
    TRY(check_place(w));
    SCOPED_STRING folder = sweep_run_path(w->folder, w->options->sweep, w->run);
    sweep_add_test_name(w->options->sweep, &name);
    return trial_folder_value(folder, text_string(&name), &w->test);
}

struct other_reader {
    struct worker *w;
    int64_t epoch; /* the best one, from 0 */
};

static bool read_other_line(void *user, const char *bytes, size_t size) {
    const struct other_reader *r = user;
    const struct sweep_config *sweep = r->w->options->sweep;
    struct json_line line;
    int64_t epoch = -1;
    if (!json_line_read(bytes, size, &line)) return false;
    bool is_epoch = json_line_is(&line, "event", "epoch") &&
                    json_field_int(json_line_find(&line, "epoch"), 0, INT64_MAX, &epoch) && epoch == r->epoch;
    for (size_t i = 0; i < sweep->other_metrics.count; i++) {
        const char *name = sweep_other_metric(sweep, i)->name;
        bool is_start = strcmp(name, SWEEP_PARAMETERS) == 0 && json_line_find(&line, SWEEP_PARAMETERS);
        if (is_start || (is_epoch && json_line_find(&line, name)))
            r->w->others[i] = json_field_exact(json_line_find(&line, name));
    }
    return true;
}

/* Those of the best epoch; all lines of a run's metrics.jsonl are read. */
static status read_others(struct worker *w, const struct run_summary *summary) {
    const struct sweep_config *sweep = w->options->sweep;
    struct line_file file = {0};
    struct other_reader reader = {w, summary->best_epoch - 1};
    bool has_restarted;
    if (!sweep->other_metrics.count) return OK;
    TRY(check_place(w));
    SCOPED_STRING folder = sweep_run_path(w->folder, sweep, w->run), *path = text_path(folder, "metrics.jsonl");
    status s = line_file_read(&file, path, read_other_line, &reader, &has_restarted);
    for (size_t i = 0; i < sweep->other_metrics.count; i++)
        if (strcmp(sweep_other_metric(sweep, i)->name, SWEEP_SECONDS) == 0) w->others[i] = summary->seconds;
    return s;
}

static void set_job(struct worker *w, const struct worker_job *job) {
    w->run = job->run;
    w->folder = *job->folder ? job->folder : w->options->folder;
    w->folder_inode = job->folder_inode;
    w->is_pruned = w->has_folder = false;
    w->waits = 0;
    w->test = NAN;
    for (size_t i = 0; i < SWEEP_MAX_OTHER_METRICS; i++) w->others[i] = NAN;
}

static status open_config(const struct worker *w, const struct worker_job *job, struct config_file **out) {
    const struct sweep_config *sweep = w->options->sweep;
    TRY(sweep_trial_config(sweep, job->run / sweep->runs, &job->point, job->run % sweep->runs, out));
    status s = config_device_is_auto(config_of(*out)) ? config_set_auto_device(*out, w->options->no_gpu) : OK;
    if (s) {
        config_free(*out);
        *out = NULL;
    }
    return s;
}

/* *file: its config, which is opened where it is NULL. */
static status run_job(struct worker *w, const struct worker_job *job, struct config_file **file,
                      struct run_summary *summary) {
    set_job(w, job);
    if (!w->parts) w->dataset[0] = w->fingerprint[0] = 0;
    next_run();
    if (!*file) TRY(open_config(w, job, file));
    w->config = *file;
    TRY(train_with_or_without_folder(w, config_of(*file), job->is_kept, summary));
    TRY(check_length(w, config_of(*file), summary));
    TRY(read_test(w, config_of(*file)));
    return read_others(w, summary);
}

/* Cut between two characters: half of one would be another byte in trials.csv after the history was read again. */
static void copy_message(char out[WORKER_MESSAGE], const char *message) {
    size_t length = strlen(message);
    if (length >= WORKER_MESSAGE) {
        length = WORKER_MESSAGE - 1;
        while (length > 0 && ((unsigned char)message[length] & 0xc0) == 0x80)
            length--; /* within a character of UTF-8 */
    }
    memcpy(out, message, length);
    out[length] = 0;
}

static struct worker_report report_of(const struct worker *w, status s, const struct run_summary *summary) {
    struct worker_report r = {.run = w->run,
                              .code = (int)status_code(s),
                              .has_folder = w->has_folder,
                              .best_epoch = summary->best_epoch,
                              .epochs = summary->epochs,
                              .value = summary->best_epoch > 0 ? summary->best_value : NAN,
                              .test = w->test,
                              .seconds = summary->seconds,
                              .waits = w->waits};
    r.event = !s                                 ? WORKER_DONE
              : status_code(s) != STATUS_STOPPED ? WORKER_FAILED
              : w->is_pruned                     ? WORKER_PRUNED
                                                 : WORKER_STOPPED;
    memcpy(r.others, w->others, sizeof r.others);
    memcpy(r.state_sha256, summary->state_sha256, sizeof r.state_sha256);
    memcpy(r.dataset, w->dataset, sizeof r.dataset);
    memcpy(r.fingerprint, w->fingerprint, sizeof r.fingerprint);
    copy_message(r.message, r.event == WORKER_FAILED ? status_message(s) : "");
    return r;
}

static bool send_report(struct worker *w, status s, const struct run_summary *summary) {
    struct worker_report report = report_of(w, s, summary);
    status_free(s);
    w->folder = w->options->folder; /* the job may end before the next one */
    size_t size = offsetof(struct worker_report, message) + strlen(report.message) + 1;
    return send(w->fd, &report, size, MSG_NOSIGNAL) >= 0;
}

/* ---- several runs at once ---- */

#define MAX_GROUP 16
#define MIN_GROUP 5        /* fewer are as fast one after another */
#define GROUP_SECONDS 0.25 /* that a group may take: its reports come together */

/* How many jobs the worker takes at a time. */
static size_t max_group(const struct worker *w) {
    const struct worker_options *o = w->options;
    if (!w->parts || o->reports_epochs || o->sweep->nproc_per_trial > 1) return 1;
    size_t lanes = run_parts_lanes(w->parts, config_of(w->parts_config));
    if (lanes > MAX_GROUP) lanes = MAX_GROUP;
    while (lanes > 1 && (double)lanes * w->last_seconds > GROUP_SECONDS) lanes /= 2;
    return lanes > 1 ? lanes : 1;
}

/* Whether the run of [job] can be one of a group. *file: its config, or NULL. */
static bool joins_group(struct worker *w, const struct worker_job *job, struct config_file **file) {
    if (job->is_kept) return false;
    status s = open_config(w, job, file);
    bool joins = !s && !wants_folder(w, config_of(*file)) && !needs_folder(w, config_of(*file)) &&
                 !optimizer_is_in_backward(&config_of(*file)->optimizer) &&
                 config_has_same_base(*file, w->parts_config);
    status_free(s); /* run_job has it again */
    return joins;
}

struct job_group {
    struct worker_job jobs[MAX_GROUP];
    struct config_file *files[MAX_GROUP]; /* NULL: not opened */
    size_t count;
};

/* Waits for a job and takes those that are there already. false: there are no more. */
static bool receive_jobs(struct worker *w, struct job_group *g) {
    size_t max = max_group(w);
    for (g->count = 0; g->count < max; g->count++) {
        ssize_t got;
        do got = recv(w->fd, &g->jobs[g->count], sizeof *g->jobs, g->count ? MSG_DONTWAIT : 0);
        while (got < 0 && errno == EINTR && !stop_self);
        if (got <= (ssize_t)offsetof(struct worker_job, folder)) break;
    }
    return g->count > 0;
}

/* Trains those of the group that are like the others; is_trained (count) says which. */
static void train_group(struct worker *w, struct job_group *g, struct run_summary *summaries, bool *is_trained) {
    const struct config *configs[MAX_GROUP];
    size_t places[MAX_GROUP], count = 0;
    struct run_summary found[MAX_GROUP] = {{0}};
    bool are_trained[MAX_GROUP] = {false};
    struct run_options options = {
        .started = clock_seconds(), .writes_nothing = true, .is_in_sweep = true, .stop_after = -1, .parts = &w->parts};
    for (size_t i = 0; i < g->count; i++) {
        if (!joins_group(w, &g->jobs[i], &g->files[i])) continue;
        configs[count] = config_of(g->files[i]);
        places[count++] = i;
    }
    if (count < MIN_GROUP) return;
    struct log *log = log_create(true, false);
    next_run();
    set_alarm(SECONDS_WITHOUT_FOLDER);
    status_free(run_train_group(configs, count, w->options->env, &options, log, found, are_trained));
    set_alarm(0);
    log_destroy(log);
    for (size_t i = 0; i < count; i++) {
        is_trained[places[i]] = are_trained[i];
        summaries[places[i]] = found[i];
    }
}

/* In the order of the jobs; those that are not trained yet are trained alone. */
static bool report_jobs(struct worker *w, struct job_group *g, struct run_summary *summaries, const bool *is_trained) {
    bool is_connected = true;
    for (size_t i = 0; i < g->count && is_connected; i++) {
        status s = OK;
        if (stop_self && i > 0 && !is_trained[i]) break; /* it has not begun */
        if (is_trained[i]) {
            set_job(w, &g->jobs[i]);
            note_seconds(w, &summaries[i], 0);
        } else
            s = run_job(w, &g->jobs[i], &g->files[i], &summaries[i]);
        is_connected = send_report(w, s, &summaries[i]);
    }
    return is_connected;
}

static void work(struct worker *w) {
    struct job_group *g = status_need(malloc(sizeof *g));
    while (!stop_self && receive_jobs(w, g)) {
        struct run_summary summaries[MAX_GROUP] = {{0}};
        memset(g->files, 0, sizeof g->files);
        bool is_trained[MAX_GROUP] = {false};
        if (g->count >= MIN_GROUP) train_group(w, g, summaries, is_trained);
        bool is_connected = report_jobs(w, g, summaries, is_trained);
        for (size_t i = 0; i < g->count; i++) config_free(g->files[i]);
        if (!is_connected) break;
    }
    free(g);
}

/* ---- both ends ---- */

__attribute__((noreturn)) static void run_worker(const struct worker_options *options, struct dataset_cache *cache,
                                                 int fd, pid_t parent) {
    struct worker worker = {
        .options = options, .cache = cache, .fd = fd, .last_seconds = INFINITY, .folder_seconds = FOLDER_SECONDS};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    stop_clear(); /* one of the coordinator */
    signals_block_only_stops();
    signals_on_stop(on_signal);
    dataset_cache_limit(cache, MAX_CACHED / (uint64_t)(options->local_workers > 0 ? options->local_workers : 1));
    if (options->threads > 0 && !parallel_is_given()) parallel_limit(options->threads);
    work(&worker);
    drop_parts(&worker);
    dataset_cache_destroy(cache);
    _exit(0);
}

status worker_start(const struct worker_options *options, struct dataset_cache *cache, pid_t *pid, int *fd) {
    int ends[2];
    pid_t parent = getpid();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return status_errno(STATUS_IO, errno, "cannot open a socket for a worker");
    sigset_t before;
    signals_block_all(&before); /* a request to stop waits until the worker has its own handler */
    *pid = fork();
    if (*pid == 0) {
        close(ends[0]);
        run_worker(options, cache, ends[1], parent);
    }
    int error = errno;
    signals_restore(&before);
    close(ends[1]);
    *fd = ends[0];
    if (*pid > 0) return OK;
    *pid = 0; /* not -1, which means every process to kill and waitpid */
    close(ends[0]);
    return status_errno(STATUS_IO, error, "cannot start a worker");
}

status worker_receive(int fd, struct worker_report *report, bool *got) {
    ssize_t size;
    do size = recv(fd, report, sizeof *report, 0);
    while (size < 0 && errno == EINTR);
    *got = size > (ssize_t)offsetof(struct worker_report, message);
    if (size >= 0 || errno == ECONNRESET) return OK;
    return status_errno(STATUS_IO, errno, "cannot receive from a worker");
}

bool worker_send_job(int fd, const struct worker_job *job) {
    return send(fd, job, offsetof(struct worker_job, folder) + strlen(job->folder) + 1, MSG_NOSIGNAL) > 0;
}

bool worker_answer(int fd, bool must_stop) {
    return send(fd, &must_stop, sizeof must_stop, MSG_NOSIGNAL) == sizeof must_stop;
}

static void describe_end(int ended, struct text *out) {
    if (WIFSIGNALED(ended))
        text_printf(out, "was ended by signal %d (%s)", WTERMSIG(ended), strsignal(WTERMSIG(ended)));
    else
        text_printf(out, "exited with code %d", WEXITSTATUS(ended));
}

void worker_end(pid_t pid, int fd, bool by_force, struct text *how) {
    int ended = 0;
    if (by_force) kill(pid, SIGKILL);
    shutdown(fd, SHUT_RDWR); /* other workers have inherited the descriptor */
    close(fd);
    while (waitpid(pid, &ended, 0) < 0 && errno == EINTR) {
    }
    if (how && ended != 0) describe_end(ended, how);
}
