/* The launcher of a node: starts the ranks, watches them, finds out which one failed first, and starts them again. The
 * code of a failure decides whether a restart may help; a new checkpoint, which is reported to every launcher, counts
 * as progress. */
#include "dist/launch/launch.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/files/io.h"
#include "base/scoped.h"
#include "base/system/machine.h"
#include "base/system/program.h"
#include "base/system/signals.h"
#include "dist/launch/launch_internal.h"
#include "dist/process/env.h"
#include "dist/process/net.h"
#include "dist/store/store.h"
#include "dist/store/store_members.h"

/* The settings that all ranks of this node share. */
struct launch_job {
    const struct launch_config *config;
    char *const *argv;
    char job_id[128];
    int restart_count;
    bool has_begun;  /* an earlier start has opened the run folder: resume, even with --fresh */
    bool needs_link; /* the first rank of this node must create one to node 0 */
    char master_addr[256];
    int master_port;
    int listener;     /* listening socket for rank 0's store; -1: rank 0 creates it */
    int secret;       /* a memfd with the job's secret; -1: DDPTRAIN_SECRET of the user */
    int alive[2];     /* a pipe without data: [1] is open in the launcher only, and the kernel kills the ranks when it
                         is closed */
    cpu_set_t *parts; /* (nproc) processors of each rank; NULL: not bound */
};

/* One start of the ranks of this node. */
struct launch_start {
    struct launch_job *job;
    struct log *log;
    struct launch_nodes *nodes; /* NULL: one node */
    int signals;                /* signalfd */
    double grace;
    /* results */
    enum launch_stop stop;
    int64_t checkpoint;    /* step of the newest checkpoint of all starts */
    bool has_begun;        /* a rank has opened the run folder */
    bool has_own_failure;  /* a rank of this node has failed by itself, or the ranks could not be started */
    int64_t restart_count; /* of the store that rejected the ranks of this node; -1: none did */
};

/* ---- output ---- */

/* Copies the output of ranks: each line in one write, after "[rank N] ", so that output of several ranks never mixes
 * within a line. */

#define MAX_LINE 8192
#define MAX_UNLOGGED 65536 /* bytes of output that are kept until the log is open */

static void write_all(int fd, const char *bytes, size_t size) {
    while (size > 0) {
        ssize_t done = write(fd, bytes, size);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return; /* an error, such as a full disk, must not end the job */
        bytes += done;
        size -= (size_t)done;
    }
}

static void write_log(struct launched_rank *r, const char *line, size_t size) {
    if (r->log >= 0)
        write_all(r->log, line, size);
    else if (r->unlogged.length + size <= MAX_UNLOGGED)
        text_add_bytes(&r->unlogged, line, size);
}

static void end_line(struct launched_rank *r) {
    SCOPED_TEXT line = {0};
    text_add(&r->line, "\n");
    text_printf(&line, "[rank %d] ", r->rank);
    text_add_bytes(&line, r->line.data, r->line.length);
    write_all(STDERR_FILENO, line.data, line.length);
    write_log(r, r->line.data, r->line.length);
    text_clear(&r->line);
}

void launch_output_read(struct launched_rank *r) {
    char bytes[4096];
    while (r->output >= 0) {
        ssize_t received = read(r->output, bytes, sizeof bytes);
        if (received < 0 && errno == EINTR) continue;
        if (received < 0 && errno == EAGAIN) return;
        if (received <= 0) {
            close(r->output);
            r->output = -1;
            return;
        }
        for (const char *at = bytes, *end = bytes + received; at < end;) {
            const char *newline = memchr(at, '\n', (size_t)(end - at));
            text_add_bytes(&r->line, at, (size_t)((newline ? newline : end) - at));
            at = newline ? newline + 1 : end;
            if (newline || r->line.length > MAX_LINE) end_line(r);
        }
    }
}

void launch_output_note(struct launched_rank *r, const char *text) {
    char stamp[32] = "";
    struct tm parts;
    time_t now = time(NULL);
    SCOPED_TEXT line = {0};
    if (localtime_r(&now, &parts)) strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S", &parts);
    text_printf(&line, "%s %s\n", stamp, text);
    write_log(r, line.data, line.length);
}

/* Creates the folder if it does not exist: nodes may have no shared file system. */
void launch_output_open(struct launched_rank *r, const char *folder) {
    char path[4096];
    if (r->log >= 0 || r->rank == 0) return;
    snprintf(path, sizeof path, "%s/logs", folder);
    for (char *slash = path; (slash = strchr(slash + 1, '/'));) { /* mkdir -p */
        *slash = 0;
        mkdir(path, 0777);
        *slash = '/';
    }
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/logs/rank-%d.txt", folder, r->rank);
    status_free(io_open_append(path, &r->log)); /* without it, the output is that of the terminal */
    if (r->log >= 0 && r->unlogged.length) write_all(r->log, r->unlogged.data, r->unlogged.length);
    text_clear(&r->unlogged);
}

void launch_output_close(struct launched_rank *r) {
    launch_output_read(r);
    if (r->line.length > 0) end_line(r);
    if (r->output >= 0) close(r->output);
    if (r->log >= 0) close(r->log);
    r->output = r->log = -1;
    text_free(&r->line);
    text_free(&r->unlogged);
}

/* ---- memory ---- */

/* Whether ranks ran out of memory: the counter of the kernel's out-of-memory killer and the memory limit, of the
 * control group, else of the machine. */

#define GIB 1073741824.0

/* The number after [key] in a file of lines "key number"; [key] "": at the start of a line. -1: none. */
static double number_after(const char *path, const char *key) {
    FILE *file = fopen(path, "re");
    if (!file) return -1;
    char line[256];
    double number = -1;
    size_t length = strlen(key);
    while (number < 0 && fgets(line, sizeof line, file)) {
        char *end;
        if (strncmp(line, key, length) != 0) continue;
        double value = strtod(line + length, &end);
        if (end != line + length) number = value;
    }
    fclose(file);
    return number;
}

struct search {
    const char *v2, *v1, *key; /* the files of the versions, the key in them */
    double max;                /* numbers above it mean "no limit" */
    double number;             /* -1: not found yet */
};

static bool visit(void *context, const char *folder, bool is_v2) {
    struct search *search = context;
    char path[CGROUP_MAX_PATH + 32];
    snprintf(path, sizeof path, "%s/%s", folder, is_v2 ? search->v2 : search->v1);
    double number = number_after(path, search->key);
    if (number <= search->max) search->number = number;
    return search->number < 0;
}

/* The number of [key] in the file [v2] or [v1] of this process's control group, or of the nearest ancestor that has one
 * of at most [max]. -1: none. */
static double group_number(const char *v2, const char *v1, const char *key, double max) {
    struct search search = {.v2 = v2, .v1 = v1, .key = key, .max = max, .number = -1};
    cgroup_visit(CGROUP_ROOT, "memory", visit, &search);
    return search.number;
}

static long launch_oom_kills(void) {
    double kills = group_number("memory.events", "memory.oom_control", "oom_kill ", 1e18);
    return (long)(kills >= 0 ? kills : number_after("/proc/vmstat", "oom_kill "));
}

static double launch_memory_limit(void) {
    double limit = group_number("memory.max", "memory.limit_in_bytes", "", 1e15);
    if (limit > 0) return limit / GIB;
    double machine = number_after("/proc/meminfo", "MemTotal:");
    return machine > 0 ? machine * 1024 / GIB : 0;
}

/* ---- cause ---- */

/* Finds the rank whose end caused the ends of the others. Order of preference: a failure of its own (the earliest), a
 * death by a signal that the launcher did not send, a rank that only lost a peer. The end of a rank after a signal of
 * the launcher counts only if the rank has reported a failure. */

static bool is_known_code(int code) {
    static const int codes[] = {
#define X(name, number, text) number,
        STATUS_CODES(X)
#undef X
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i] == code) return true;
    return false;
}

static bool was_killed(const struct launched_rank *r) { return r->has_ended && WIFSIGNALED(r->wait_status); }

/* Killed by SIGKILL or SIGTERM after the launcher sent one, without a report of its own. */
static bool was_killed_by_launcher(const struct launched_rank *r) {
    return was_killed(r) && r->was_signalled && !r->has_report &&
           (WTERMSIG(r->wait_status) == SIGKILL || WTERMSIG(r->wait_status) == SIGTERM);
}

/* Has not yet joined the other ranks, so has done no training. */
static bool is_starting(const struct launched_rank *r) {
    struct activity_snapshot reading;
    if (!r->activity) return false;
    activity_read(r->activity, &reading);
    return reading.phase == ACTIVITY_STARTING && reading.step == 0;
}

/* Killed by a SIGTERM from another process before the rank had installed its handler. */
static bool was_stopped_at_start(const struct launched_rank *r) {
    return was_killed(r) && WTERMSIG(r->wait_status) == SIGTERM && !r->was_signalled && !r->has_report &&
           is_starting(r);
}

static int code_of(const struct launched_rank *r) {
    if (r->has_report && r->code != STATUS_OK) return r->code;
    if (!r->has_ended) return STATUS_OK;
    if (was_stopped_at_start(r)) return STATUS_STOPPED;
    if (was_killed(r)) return STATUS_PEER;
    int code = WEXITSTATUS(r->wait_status);
    return is_known_code(code) ? code : STATUS_BUG;
}

/* Whether a rank failed: its code is neither 0 nor STATUS_STOPPED; and whether it only lost a peer. */
static bool launch_has_failed(const struct launched_rank *r) {
    int code = code_of(r);
    return code != STATUS_OK && code != STATUS_STOPPED;
}

/* Whether a rank has ended on a request to stop before it could inform the other ranks, which may wait for it. */
static bool launch_stopped_early(const struct launched_rank *r) {
    return r->has_ended && code_of(r) == STATUS_STOPPED && (!r->has_report || is_starting(r));
}

static bool launch_lost_peer(const struct launched_rank *r) {
    if (was_killed_by_launcher(r)) return true;
    return code_of(r) == STATUS_PEER && !(was_killed(r) && !r->has_report);
}

static void add_memory(const struct launched_rank *r, const struct launch_memory *memory, struct text *out) {
    text_add(out, "; probably out of memory: ");
    if (memory->limit_gib > 0) text_printf(out, "limit %.1f GiB, ", memory->limit_gib);
    text_printf(out, "peak of this rank %.1f GiB", (double)r->peak_kib / (1 << 20));
}

/* The activity record is memory that launcher and rank share, so it shows the last activity of a rank that has ended.
 */
static void add_last_seen(const struct launched_rank *r, struct text *out) {
    struct activity_snapshot reading;
    if (!r->activity) return;
    activity_read(r->activity, &reading);
    if (reading.phase == ACTIVITY_STARTING && !*reading.call) /* it may not have joined */
        text_add(out, "; last seen starting");
    else
        members_last_seen(&reading, out);
}

/* Adds how a rank ended, " was killed by SIGKILL", to [out]; nothing if it has reported a failure. */
static void launch_describe_end(const struct launched_rank *r, const struct launch_memory *memory, struct text *out) {
    if (r->has_report && r->code != STATUS_OK) return;
    if (was_killed(r)) {
        int number = WTERMSIG(r->wait_status);
        const char *name = sigabbrev_np(number);
        if (name)
            text_printf(out, " was killed by SIG%s", name);
        else
            text_printf(out, " was killed by signal %d", number);
        if (number == SIGKILL && memory->has_oom) add_memory(r, memory, out);
    } else {
        text_printf(out, " ended with exit code %d without reporting an error", WEXITSTATUS(r->wait_status));
    }
    add_last_seen(r, out);
}

/* "rank 1 (host n1, pid 71): <its message>", or how it ended. */
static void describe(const struct launched_rank *r, const struct launch_context *context, struct text *out) {
    text_printf(out, "rank %d (host %s, pid %ld)", r->rank, context->host, (long)r->pid);
    if (r->has_report && r->code != STATUS_OK)
        text_printf(out, ": %s", r->text);
    else
        launch_describe_end(r, &context->memory, out);
}

static const struct launched_rank *first_failure(const struct launched_rank *ranks, int count) {
    const struct launched_rank *best = NULL;
    for (int i = 0; i < count; i++) {
        const struct launched_rank *r = &ranks[i];
        if (!launch_has_failed(r) || was_killed_by_launcher(r)) continue;
        bool is_better = !best || (launch_lost_peer(best) && !launch_lost_peer(r)) ||
                         (launch_lost_peer(best) == launch_lost_peer(r) && r->order < best->order);
        if (is_better) best = r;
    }
    return best;
}

static const struct launched_rank *first_killed_by_launcher(const struct launched_rank *ranks, int count) {
    for (int i = 0; i < count; i++)
        if (was_killed_by_launcher(&ranks[i])) return &ranks[i];
    return NULL;
}

/* All ranks were stopped while starting: a rank that left before the others got the request makes them fail with
 * STATUS_PEER, which is not the cause. */
static bool is_stopped_start(const struct launched_rank *ranks, int count, const struct launched_rank *cause,
                             enum launch_stop stop) {
    bool was_stopped = stop == STOP_ELSEWHERE;
    for (int i = 0; i < count && stop != STOP_NONE; i++)
        was_stopped = was_stopped || code_of(&ranks[i]) == STATUS_STOPPED;
    return was_stopped && WIFEXITED(cause->wait_status) && code_of(cause) == STATUS_PEER;
}

static status did_not_stop(const struct launched_rank *killed, const struct launch_context *context) {
    SCOPED_TEXT last = {0};
    add_last_seen(killed, &last);
    return status_new(STATUS_PEER, "rank %d (host %s, pid %ld) did not stop within %g s and was killed%s", killed->rank,
                      context->host, (long)killed->pid, context->grace, text_string(&last));
}

/* The result if no rank failed by itself: success, a stop, or a rank that the launcher had to kill. */
static status result_of_shutdown(const struct launched_rank *ranks, int count, const struct launch_context *context) {
    const struct launched_rank *killed = first_killed_by_launcher(ranks, count);
    if (killed && context->stop == STOP_NOW)
        return status_new(STATUS_PEER, "ended at once by a second signal%s",
                          context->saves ? ": what was done since the last checkpoint is lost" : "");
    if (killed && WTERMSIG(killed->wait_status) == SIGTERM) /* it had not yet installed its handler */
        return status_new(STATUS_STOPPED, "%s", context->saves ? STOPPED_BEFORE_TRAINING : STOPPED_ON_REQUEST);
    if (killed) return did_not_stop(killed, context);
    for (int i = 0; i < count; i++)
        if (code_of(&ranks[i]) == STATUS_STOPPED)
            return status_new(STATUS_STOPPED, "%s",
                              ranks[i].has_report && *ranks[i].text      ? ranks[i].text
                              : context->saves && is_starting(&ranks[i]) ? STOPPED_BEFORE_TRAINING
                              : context->saves ? "stopped on request; run the same command again to continue"
                                               : STOPPED_ON_REQUEST);
    for (int i = 0; i < count && context->stop == STOP_ELSEWHERE; i++)
        if (launch_has_failed(&ranks[i])) return status_new(STATUS_STOPPED, "stopped on request on another node");
    return OK;
}

status launch_result(const struct launched_rank *ranks, int count, const struct launch_context *context) {
    const struct launched_rank *cause = first_failure(ranks, count);
    if (cause && is_stopped_start(ranks, count, cause, context->stop)) cause = NULL;
    /* a rank hung, and the launcher ended the others before they detected it */
    if (!cause && context->stop == STOP_NONE && context->job_failure.is_known)
        return status_new((enum status_code)context->job_failure.code, "%s", context->job_failure.text);
    if (!cause) return result_of_shutdown(ranks, count, context);
    /* the store has reports of other nodes, and of a rank that hung until the launcher killed it */
    if (launch_lost_peer(cause) && context->job_failure.is_known)
        return status_new((enum status_code)context->job_failure.code, "%s", context->job_failure.text);
    SCOPED_TEXT text = {0};
    describe(cause, context, &text);
    return status_new(code_of(cause), "%s", text.data);
}

/* ---- starting ranks ---- */

/* Starts ranks: fork and exec of the program itself. The launcher has one thread, so the child may allocate memory
 * between fork and exec. */

/* ---- starting ranks: resources of all ranks ---- */

static status create_secret(int *fd) {
    uint8_t secret[32];
    *fd = memfd_create("ddptrain-secret", MFD_CLOEXEC);
    if (*fd < 0 || getrandom(secret, sizeof secret, 0) != sizeof secret)
        return status_errno(STATUS_IO, errno, "cannot create the job's secret");
    status failure = io_write(*fd, "the job's secret", secret, sizeof secret);
    explicit_bzero(secret, sizeof secret);
    return failure;
}

static status bind_loopback(struct launch_job *job) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    TRY(net_listen("127.0.0.1", 0, true, &job->listener));
    if (getsockname(job->listener, (struct sockaddr *)&address, &size) != 0)
        return status_errno(STATUS_IO, errno, "cannot find a free port");
    job->master_port = net_port(&address);
    snprintf(job->master_addr, sizeof job->master_addr, "127.0.0.1");
    return OK;
}

/* One node: the job id is unique and stays the same over restarts. */
static status prepare_one_node(struct launch_job *job) {
    uint64_t random = 0;
    if (getrandom(&random, sizeof random, 0) != sizeof random) random = (uint64_t)getpid();
    snprintf(job->job_id, sizeof job->job_id, "%ld-%016llx", (long)getpid(), (unsigned long long)random);
    TRY(create_secret(&job->secret));
    return job->config->nproc > 1 ? bind_loopback(job) : OK;
}

/* Several nodes: the same job id on each, even if the nodes are configured with different numbers of nodes. */
static void set_job_id(const struct launch_config *config, char job_id[128]) {
    const char *variable = getenv(JOB_VARIABLE);
    if (variable && *variable && strlen(variable) < 128)
        snprintf(job_id, 128, "%s", variable);
    else
        snprintf(job_id, 128, "nodes-port-%d", config->master_port);
}

/* Sets job id, secret and address of the store for the next start. */
static status launch_prepare(struct launch_job *job) {
    const struct launch_config *config = job->config;
    job->listener = job->secret = job->alive[0] = job->alive[1] = -1;
    if (pipe2(job->alive, O_CLOEXEC) != 0)
        return status_errno(STATUS_IO, errno, "cannot start %d ranks", config->nproc);
    if (config->nnodes == 1) return prepare_one_node(job);
    if (!config->master_addr || !*config->master_addr || strlen(config->master_addr) >= sizeof job->master_addr)
        return status_usage("several nodes need the host of rank 0 (--master-addr)");
    if (config->master_port < 1 || config->master_port > 65535)
        return status_usage("several nodes need a port on the host of rank 0, 1 to 65535 (--master-port)");
    snprintf(job->master_addr, sizeof job->master_addr, "%s", config->master_addr);
    job->master_port = config->master_port;
    set_job_id(config, job->job_id);
    return OK;
}

/* As launch_report_before_joining; [informed] and [stop] as in store_report_before_joining. */
static void launch_report(const struct launch_job *job, const bool *informed, int stop, struct log *log,
                          status failure) {
    const struct launch_config *config = job->config;
    struct dist_env env = {.launcher = LAUNCHER_NONE,
                           .rank = config->node_rank * config->nproc,
                           .world_size = config->nnodes * config->nproc,
                           .local_world_size = config->nproc,
                           .restart_count = job->restart_count,
                           .master_port = config->master_port};
    if (!config->master_addr || strlen(config->master_addr) >= sizeof env.master_addr) return;
    snprintf(env.master_addr, sizeof env.master_addr, "%s", config->master_addr);
    set_job_id(config, env.job_id);
    store_report_before_joining(&env, informed, stop, log, failure);
}

void launch_report_before_joining(const struct launch_config *config, struct log *log, status failure) {
    struct launch_job job = {.config = config};
    bool *informed = config->nnodes > 1 ? calloc((size_t)config->nnodes, sizeof *informed) : NULL;
    if (!informed) return;
    informed[config->node_rank] = true;
    launch_report(&job, informed, 0, log, failure);
    free(informed);
}

static void launch_release(struct launch_job *job) {
    if (job->listener >= 0) close(job->listener);
    if (job->secret >= 0) close(job->secret);
    if (job->alive[0] >= 0) close(job->alive[0]);
}

static void launch_end(struct launch_job *job) {
    if (job->alive[1] >= 0) close(job->alive[1]);
    job->alive[0] = job->alive[1] = -1;
}

/* ---- starting ranks: the child ---- */

static void set_number(const char *name, long value) {
    char text[32];
    snprintf(text, sizeof text, "%ld", value);
    setenv(name, text, 1);
}

/* Keeps [fd] open over exec and sets variable [name] to its number; -1 removes the variable. */
static void pass_descriptor(const char *name, int fd) {
    unsetenv(name);
    if (fd < 0) return;
    fcntl(fd, F_SETFD, 0);
    set_number(name, fd);
}

/* Channels between launcher and rank: [0] is the launcher's end, [1] the rank's. */
struct channels {
    int report[2], exits[2]; /* sockets: messages of the rank; exits of other ranks */
    int output[2];           /* pipe; -1 for rank 0, which inherits the standard streams */
    int activity;            /* memfd; -1: none */
};

static void set_environment(const struct launch_job *job, int local_rank, pid_t launcher,
                            const struct channels *channels) {
    const struct launch_config *c = job->config;
    int rank = c->node_rank * c->nproc + local_rank;
    set_number(LAUNCHER_VARIABLE, launcher);
    setenv(JOB_VARIABLE, job->job_id, 1);
    set_number(RESTART_COUNT_VARIABLE, job->restart_count);
    set_number(BEGUN_VARIABLE, job->has_begun);
    set_number(LINK_VARIABLE, job->needs_link && local_rank == 0);
    set_number("RANK", rank);
    set_number("LOCAL_RANK", local_rank);
    set_number("WORLD_SIZE", (long)c->nnodes * c->nproc);
    set_number("LOCAL_WORLD_SIZE", c->nproc);
    unsetenv("MASTER_ADDR");
    unsetenv("MASTER_PORT");
    if (job->master_port) {
        setenv("MASTER_ADDR", job->master_addr, 1);
        set_number("MASTER_PORT", job->master_port);
    }
    if (c->nproc > 1) setenv("OMP_NUM_THREADS", "1", 0);
    pass_descriptor(STORE_FD_VARIABLE, rank == 0 ? job->listener : -1);
    pass_descriptor(SECRET_FD_VARIABLE, job->secret);
    pass_descriptor(REPORT_FD_VARIABLE, channels->report[1]);
    pass_descriptor(EXITS_FD_VARIABLE, channels->exits[1]);
    pass_descriptor(ACTIVITY_FD_VARIABLE, channels->activity);
}

/* The kernel kills this rank when the launcher ends: by the parent-death signal, and by a signal when the launcher's
 * end of the pipe [alive] is closed. Nothing is written to that pipe: on a channel with messages, the signal would also
 * be sent for each message and each time that a full buffer has space again. The pipe is opened anew because the
 * process that gets the signal belongs to the open file. */
static bool kill_with_launcher(pid_t launcher, int alive) {
    char path[64];
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return false;
    snprintf(path, sizeof path, "/proc/self/fd/%d", alive);
    int own = open(path, O_RDONLY | O_NONBLOCK); /* stays open over exec */
    if (own >= 0) {
        fcntl(own, F_SETOWN, getpid());
        fcntl(own, F_SETSIG, SIGKILL);
        fcntl(own, F_SETFL, O_NONBLOCK | O_ASYNC);
    }
    return getppid() == launcher; /* false: the launcher has ended before prctl */
}

static _Noreturn void exec_rank(const struct launch_job *job, int local_rank, pid_t launcher,
                                const struct channels *channels) {
    setpgid(0, 0);
    if (!kill_with_launcher(launcher, job->alive[0])) _exit(STATUS_PEER);
    set_environment(job, local_rank, launcher, channels);
    static const int reset[] = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD};
    for (size_t i = 0; i < sizeof reset / sizeof *reset; i++) signal(reset[i], SIG_DFL);
    signal(SIGTTOU, SIG_IGN);   /* its process group is not the terminal's, which may stop it (stty tostop) */
    signals_block_only_stops(); /* main unblocks them after it has installed the handlers */
    if (channels->output[1] >= 0) {
        dup2(channels->output[1], STDOUT_FILENO);
        dup2(channels->output[1], STDERR_FILENO);
    }
    const cpu_set_t *part = job->parts ? &job->parts[local_rank] : NULL;
    bool is_bound = !part || sched_setaffinity(0, sizeof *part, part) == 0;
    if (is_bound) program_start_again(job->argv);
    status failure = status_errno(STATUS_IO, errno, "cannot %s",
                                  is_bound ? "start the program again by /proc/self/exe; is /proc mounted?"
                                           : "bind this rank to its processors");
    launcher_report(failure);
    _exit(STATUS_IO);
}

/* ---- starting ranks: the launcher ---- */

static void close_channels(struct channels *channels, int side) {
    int *all[] = {channels->report, channels->exits, channels->output};
    for (size_t i = 0; i < 3; i++)
        if (all[i][side] >= 0) close(all[i][side]);
}

static bool open_channels(struct channels *channels, bool has_output) {
    *channels = (struct channels){{-1, -1}, {-1, -1}, {-1, -1}, -1};
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channels->report) == 0 &&
           socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channels->exits) == 0 &&
           (!has_output || pipe2(channels->output, O_CLOEXEC) == 0);
}

static status launch_spawn(const struct launch_job *job, int local_rank, struct launched_rank *rank) {
    struct channels channels;
    int number = job->config->node_rank * job->config->nproc + local_rank;
    *rank = (struct launched_rank){.rank = number, .report = -1, .exits = -1, .output = -1, .log = -1};
    if (!open_channels(&channels, number != 0)) {
        int error = errno;
        close_channels(&channels, 0);
        close_channels(&channels, 1);
        return status_errno(STATUS_IO, error, "cannot start rank %d%s", number,
                            error == EMFILE ? " (ulimit -n is too low for so many processes)" : "");
    }
    if (job->config->nproc * job->config->nnodes > 1) channels.activity = activity_file();
    rank->activity = activity_map(channels.activity);
    pid_t launcher = getpid(), pid = fork();
    if (pid == 0) exec_rank(job, local_rank, launcher, &channels);
    int error = errno;
    close_channels(&channels, 1);
    if (channels.activity >= 0) close(channels.activity);
    rank->report = channels.report[0];
    rank->exits = channels.exits[0];
    rank->output = channels.output[0];
    if (rank->output >= 0) fcntl(rank->output, F_SETFL, O_NONBLOCK);
    if (pid < 0) return status_errno(STATUS_IO, error, "cannot start rank %d", number);
    setpgid(pid, pid); /* in both processes: either may run first */
    rank->pid = pid;
    return OK;
}

/* ---- one start ---- */

/* One start of all ranks of this node: a poll loop over a signalfd and over the messages and output of the ranks.
 * Phases: running; collecting (a rank lost a peer: waits 0.3 s for the report of the cause); stopping (SIGTERM sent);
 * killing (SIGKILL sent); giving up (a rank survived SIGKILL). */

#define FAILURE_GRACE 5.0   /* for the other ranks after a failure: they have nothing to save */
#define HANGING_SECONDS 0.5 /* for a rank that was reported as hanging to end by itself */
#define COLLECT_SECONDS 0.3
#define KILL_SECONDS 5.0 /* for the kernel to end ranks after SIGKILL */
#define SECOND_SIGNAL_SECONDS 1.0
#define LOST_NODE_SECONDS 2.0 /* for ranks to detect by themselves that another node has ended */

enum phase { RUNNING, COLLECTING, STOPPING, KILLING, GIVING_UP };

struct launcher {
    struct launched_rank *ranks; /* (count) */
    int count, alive, order;
    enum phase phase;
    double phase_ends;   /* clock_seconds(); not for RUNNING */
    double requested_at; /* time of the first signal */
    struct launch_start *start;
    struct launch_memory memory;
    long oom_before;
    struct launch_job_failure job_failure;
    int lost_node;        /* the ranks were stopped because they would wait for this node; -1: none */
    bool has_child_ended; /* SIGCHLD has arrived since ranks were last reaped */
    struct pollfd *polls; /* (1 + 2 count + nodes) */
};

/* ---- one start: ends of ranks ---- */

static void on_failure(struct launcher *l, struct launched_rank *r, const struct launcher_packet *packet) {
    if (r->has_report) return;
    r->has_report = true;
    r->code = packet->code;
    memcpy(r->text, packet->text, sizeof r->text);
    launch_output_note(r, r->text);
    if (!r->order) r->order = ++l->order;
}

static void on_job_failure(struct launcher *l, const struct launcher_packet *packet) {
    if (l->job_failure.is_known) return;
    l->job_failure = (struct launch_job_failure){.is_known = true,
                                                 .is_hang = packet->message == MESSAGE_HANG,
                                                 .code = packet->code,
                                                 .rank = (int)packet->number,
                                                 .at = clock_seconds()};
    memcpy(l->job_failure.text, packet->text, sizeof l->job_failure.text);
}

/* The launcher prints restarts and the cause of a failure: they are added to what rank 0 logs. */
static void open_log(struct log *log, const char *folder) {
    if (!log) return;
    SCOPED_STRING path = text_path(folder, "log.txt");
    status_free(log_open_file(log, path)); /* the terminal has it all */
}

static void on_packet(struct launcher *l, struct launched_rank *r, struct launcher_packet *packet) {
    struct launch_start *start = l->start;
    packet->text[sizeof packet->text - 1] = 0;
    switch (packet->message) {
    case MESSAGE_FAILURE:
        on_failure(l, r, packet);
        break;
    case MESSAGE_JOB_FAILURE:
    case MESSAGE_HANG:
        on_job_failure(l, packet);
        break;
    case MESSAGE_JOINED: /* node n has the ranks n * count ... */
        launch_nodes_joined(start->nodes, packet->number < 0 ? -1 : (int)(packet->number / l->count));
        break;
    case MESSAGE_RESTART_COUNT:
        start->restart_count = packet->number;
        break;
    case MESSAGE_RESUMED:
        start->has_begun = true;
        launch_output_open(r, packet->text);
        if (r->rank == 0) open_log(start->log, packet->text);
        if (packet->number > start->checkpoint) start->checkpoint = packet->number;
        break;
    case MESSAGE_SAVED:
        if (packet->number > start->checkpoint) start->checkpoint = packet->number;
        break;
    default:
        break;
    }
}

/* Receives one packet, and the descriptor that was passed with it; -1: none. */
static ssize_t receive(int fd, struct launcher_packet *packet, int *passed) {
    struct iovec bytes = {.iov_base = packet, .iov_len = sizeof *packet};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof *passed)];
    } control = {0};
    struct msghdr whole = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.space};
    ssize_t received = recvmsg(fd, &whole, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    const struct cmsghdr *first = received > 0 ? CMSG_FIRSTHDR(&whole) : NULL;
    *passed = -1;
    if (first && first->cmsg_level == SOL_SOCKET && first->cmsg_type == SCM_RIGHTS)
        memcpy(passed, CMSG_DATA(first), sizeof *passed);
    return received;
}

static void on_link(struct launcher *l, const struct launcher_packet *packet, int fd) {
    struct message_session session;
    static_assert(sizeof session <= LAUNCHER_MAX_SESSION, "a packet must have space for a session");
    memcpy(&session, packet->session, sizeof session);
    if (fd >= 0) launch_nodes_set_link(l->start->nodes, (int)packet->number / l->count, fd, &session);
    session_end(&session);
}

static void read_report(struct launcher *l, struct launched_rank *r) {
    struct launcher_packet packet;
    int passed;
    while (r->report >= 0) {
        ssize_t received = receive(r->report, &packet, &passed);
        if (received < 0 && errno == EINTR) continue;
        if (received < 0 && errno == EAGAIN) return;
        bool is_link = received == sizeof packet && packet.message == MESSAGE_LINK;
        if (passed >= 0 && !is_link) close(passed);
        if (received != sizeof packet) { /* closed, or malformed */
            close(r->report);
            r->report = -1;
            return;
        }
        if (is_link)
            on_link(l, &packet, passed);
        else
            on_packet(l, r, &packet);
        explicit_bzero(packet.session, sizeof packet.session);
    }
}

static void send_to_ranks(const struct launcher *l, const struct launcher_packet *packet) {
    for (int i = 0; i < l->count; i++)
        if (l->ranks[i].exits >= 0) send(l->ranks[i].exits, packet, sizeof *packet, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Sends how a rank ended to the others, which report it to the store: only the parent gets the signal that killed it.
 */
static void report_exit(struct launcher *l, const struct launched_rank *ended) {
    SCOPED_TEXT text = {0};
    l->memory.has_oom = l->oom_before >= 0 && launch_oom_kills() > l->oom_before;
    if (l->phase < STOPPING && launch_has_failed(ended)) launch_describe_end(ended, &l->memory, &text);
    if (text.length > 0) {
        struct launcher_packet packet = {.message = MESSAGE_RANK_EXIT, .number = ended->rank};
        snprintf(packet.text, sizeof packet.text, "%s", text.data);
        send_to_ranks(l, &packet);
    }
}

/* Kills the rest of the rank's process group before the rank is reaped, while its group id cannot be reused. */
static void reap(struct launcher *l, struct launched_rank *r) {
    siginfo_t info = {0};
    struct rusage usage = {0};
    if (r->has_ended || !r->pid || waitid(P_PID, (id_t)r->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0)
        return;
    kill(-r->pid, SIGKILL);
    while (wait4(r->pid, &r->wait_status, 0, &usage) < 0 && errno == EINTR) {
    }
    r->peak_kib = usage.ru_maxrss;
    read_report(l, r);
    if (r->report >= 0) close(r->report);
    if (r->exits >= 0) close(r->exits);
    r->report = r->exits = -1;
    r->has_ended = true;
    if (!r->order) r->order = ++l->order;
    l->alive--;
    report_exit(l, r);
    launch_output_read(r);
}

/* ---- one start: shutdown: SIGTERM, then SIGKILL ---- */

/* Without it, a rank would take the SIGTERM for a request of the user and report that to the others. */
static void announce_termination(const struct launcher *l) {
    send_to_ranks(l, &(struct launcher_packet){.message = MESSAGE_TERMINATE});
}

static void signal_all(struct launcher *l, int number) {
    if (number == SIGTERM && l->start->stop == STOP_NONE) announce_termination(l);
    for (int i = 0; i < l->count; i++) {
        struct launched_rank *r = &l->ranks[i];
        if (r->has_ended || !r->pid) continue;
        r->was_signalled = true;
        kill(number == SIGKILL ? -r->pid : r->pid, number);
        kill(r->pid, SIGCONT); /* a rank that is stopped (SIGSTOP) does not handle SIGTERM */
    }
}

static void enter(struct launcher *l, enum phase phase, double seconds) {
    l->phase = phase;
    l->phase_ends = clock_seconds() + seconds;
}

static void begin_stopping(struct launcher *l, double grace) {
    if (l->phase >= STOPPING) return;
    signal_all(l, SIGTERM);
    enter(l, STOPPING, grace);
}

static void begin_killing(struct launcher *l) {
    if (l->phase >= KILLING) return;
    signal_all(l, SIGKILL);
    enter(l, KILLING, KILL_SECONDS);
}

static double failure_grace(const struct launcher *l) {
    double grace = l->job_failure.is_hang ? HANG_GRACE : FAILURE_GRACE;
    return l->start->grace < grace ? l->start->grace : grace;
}

/* A rank that failed by itself starts the shutdown at once; after the loss of a peer the cause may still arrive. */
static void check_failures(struct launcher *l) {
    bool has_cause = false, has_peer_loss = false;
    for (int i = 0; i < l->count; i++) {
        if (!launch_has_failed(&l->ranks[i])) continue;
        if (launch_lost_peer(&l->ranks[i]))
            has_peer_loss = true;
        else
            has_cause = true;
    }
    if (has_cause) {
        double now = clock_seconds(), grace = failure_grace(l);
        bool is_waiting_for_save = l->phase == STOPPING && l->phase_ends > now + grace;
        if (is_waiting_for_save) l->phase_ends = now + grace; /* without the failed rank they cannot save */
        begin_stopping(l, grace);
    } else if (has_peer_loss && l->phase == RUNNING) {
        enter(l, COLLECTING, COLLECT_SECONDS);
    }
}

/* Kills a rank that was reported as hanging: it cannot save, and the others may wait on its connections. */
static void kill_hanging(struct launcher *l) {
    bool is_due = l->job_failure.is_known && l->job_failure.code == STATUS_PEER &&
                  clock_seconds() >= l->job_failure.at + HANGING_SECONDS;
    for (int i = 0; is_due && i < l->count; i++) {
        struct launched_rank *r = &l->ranks[i];
        if (r->rank != l->job_failure.rank || r->has_ended || !r->pid || r->has_report) continue;
        r->was_signalled = true;
        kill(-r->pid, SIGKILL);
    }
}

/* Ranks that detect the loss themselves have ended before, with the cause. */
static void check_lost_nodes(struct launcher *l) {
    if (l->phase != RUNNING || launch_nodes_lost_unfinished(l->start->nodes, LOST_NODE_SECONDS) < 0) return;
    l->lost_node = launch_nodes_lost_unfinished(l->start->nodes, LOST_NODE_SECONDS);
    begin_stopping(l, failure_grace(l));
}

/* A rank that stopped before it joined was not reported to the store, so the others may wait for it. */
static void check_early_stops(struct launcher *l) {
    struct launch_start *start = l->start;
    for (int i = 0; i < l->count && start->stop == STOP_NONE; i++) {
        if (l->ranks[i].was_signalled || !launch_stopped_early(&l->ranks[i])) continue;
        start->stop = STOP_ELSEWHERE;
        if (l->alive > 0) log_line(start->log, "stopping: rank %d has stopped on request", l->ranks[i].rank);
        begin_stopping(l, start->grace);
    }
}

/* The ranks of another node have all stopped on request: stops those of this node, with the same grace period. */
static void check_stopped_nodes(struct launcher *l) {
    struct launch_start *start = l->start;
    if (start->stop != STOP_NONE || launch_nodes_stopped(start->nodes) < 0) return;
    start->stop = STOP_ELSEWHERE;
    if (l->alive > 0)
        log_line(start->log, "stopping: the ranks of node %d have stopped on request",
                 launch_nodes_stopped(start->nodes));
    begin_stopping(l, start->grace);
}

static void next_phase(struct launcher *l) {
    if (l->phase == RUNNING || clock_seconds() < l->phase_ends) return;
    if (l->phase == COLLECTING)
        begin_stopping(l, failure_grace(l));
    else if (l->phase == STOPPING)
        begin_killing(l);
    else
        l->phase = GIVING_UP;
}

/* ---- one start: signals to the launcher ---- */

static void on_request(struct launcher *l, int number) {
    double now = clock_seconds();
    if (l->start->stop < STOP_REQUESTED) {
        l->start->stop = STOP_REQUESTED;
        l->requested_at = now;
        bool saves = l->start->job->config->saves;
        log_line(l->start->log, "stopping%s (SIG%s)%s", saves ? " after this step" : "", sigabbrev_np(number),
                 number == SIGINT ? "; press Ctrl-C again to end at once"
                 : saves          ? "; waiting for the ranks to save"
                                  : "");
        begin_stopping(l, l->start->grace);
        return;
    }
    /* schedulers and terminals that are closed send several signals in a row, which count as one */
    bool is_repeatable = number == SIGTERM || number == SIGHUP;
    bool is_second = number == SIGINT || (is_repeatable && now - l->requested_at >= SECOND_SIGNAL_SECONDS);
    if (!is_second) return;
    l->start->stop = STOP_NOW;
    begin_killing(l);
}

static void read_signals(struct launcher *l) {
    struct signalfd_siginfo info;
    while (read(l->start->signals, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            l->has_child_ended = true;
        else
            on_request(l, (int)info.ssi_signo);
    }
}

/* ---- one start: the loop ---- */

static void poll_once(struct launcher *l) {
    int timeout = l->job_failure.is_known ? (int)(HANGING_SECONDS * 1000) : -1;
    double next =
        l->phase != RUNNING ? l->phase_ends : launch_nodes_lost_unfinished_time(l->start->nodes, LOST_NODE_SECONDS);
    if (next > 0) {
        int until_next = clock_milliseconds_until(next);
        if (timeout < 0 || until_next < timeout) timeout = until_next;
    }
    l->polls[0] = (struct pollfd){.fd = l->start->signals, .events = POLLIN};
    for (int i = 0; i < l->count; i++) {
        l->polls[1 + 2 * i] = (struct pollfd){.fd = l->ranks[i].report, .events = POLLIN};
        l->polls[2 + 2 * i] = (struct pollfd){.fd = l->ranks[i].output, .events = POLLIN};
    }
    nfds_t nodes = (nfds_t)launch_nodes_poll(l->start->nodes, l->polls + 1 + 2 * l->count);
    if (poll(l->polls, 1 + 2 * (nfds_t)l->count + nodes, timeout) >= 0) return;
    short news = errno == EINTR ? 0 : POLLIN; /* where the kernel cannot say, all are read */
    for (int i = 0; i < 2 * l->count; i++) l->polls[1 + i].revents = news;
}

/* Only of ranks with news: one wake for each message of each of many ranks must not ask the kernel about all others. A
 * rank whose report has ended may have ended itself, whether or not SIGCHLD says so. */
static void read_ranks(struct launcher *l) {
    bool has_child_ended = l->has_child_ended;
    l->has_child_ended = false;
    for (int i = 0; i < l->count; i++) {
        struct launched_rank *r = &l->ranks[i];
        if (l->polls[1 + 2 * i].revents) read_report(l, r);
        if (l->polls[2 + 2 * i].revents) launch_output_read(r);
        if (has_child_ended || r->report < 0) reap(l, r);
    }
}

static void watch(struct launcher *l) {
    while (l->alive > 0 && l->phase != GIVING_UP) {
        poll_once(l);
        read_signals(l);
        read_ranks(l);
        launch_nodes_read(l->start->nodes);
        check_early_stops(l);
        check_failures(l);
        check_stopped_nodes(l);
        check_lost_nodes(l);
        kill_hanging(l);
        next_phase(l);
    }
}

static status start_ranks(struct launcher *l) {
    struct launch_job *job = l->start->job;
    status failure = launch_prepare(job);
    for (int i = 0; i < l->count && !failure; i++) {
        failure = launch_spawn(job, i, &l->ranks[i]);
        if (!failure) l->alive++;
    }
    launch_release(job);
    return failure;
}

/* Whether the failure of this node must be reported to the other nodes: not if its ranks only lost other ranks. */
static bool has_own_failure(const struct launcher *l) {
    bool result = l->job_failure.is_known;
    for (int i = 0; i < l->count; i++) /* the reported failure of this rank is that it lost a peer */
        if (l->ranks[i].rank == l->job_failure.rank && launch_lost_peer(&l->ranks[i])) result = false;
    for (int i = 0; i < l->count; i++)
        result = result || (launch_has_failed(&l->ranks[i]) && !launch_lost_peer(&l->ranks[i]));
    return result;
}

static status result_of(struct launcher *l) {
    char host[256];
    host_name(host, sizeof host);
    for (int i = 0; i < l->count; i++)
        if (!l->ranks[i].has_ended)
            return status_new(STATUS_PEER,
                              "rank %d (host %s, pid %ld) did not end after SIGKILL: it hangs in the kernel",
                              l->ranks[i].rank, host, (long)l->ranks[i].pid);
    l->memory.has_oom = l->oom_before >= 0 && launch_oom_kills() > l->oom_before;
    struct launch_context context = {.host = host,
                                     .memory = l->memory,
                                     .job_failure = l->job_failure,
                                     .stop = l->start->stop,
                                     .grace = l->start->grace,
                                     .saves = l->start->job->config->saves};
    status failure = launch_result(l->ranks, l->count, &context);
    bool waited_for_node = l->lost_node >= 0 && l->start->stop == STOP_NONE && status_code(failure) == STATUS_STOPPED;
    if (!waited_for_node) return failure;
    status_free(failure);
    return status_new(STATUS_PEER, "the ranks of this node waited for those of node %d, whose launcher %s",
                      l->lost_node, launch_nodes_describe_loss(l->start->nodes, l->lost_node));
}

static void release(struct launcher *l) {
    for (int i = 0; l->ranks && i < l->count; i++) {
        struct launched_rank *r = &l->ranks[i];
        if (r->report >= 0) close(r->report);
        if (r->exits >= 0) close(r->exits);
        activity_destroy(r->activity);
        launch_output_close(r);
    }
    free(l->ranks);
    free(l->polls);
}

/* Starts the ranks and waits until all have ended. */
static status launch_once(struct launch_start *start) {
    struct launcher l = {.count = start->job->config->nproc,
                         .lost_node = -1,
                         .start = start,
                         .oom_before = launch_oom_kills(),
                         .memory = {.limit_gib = launch_memory_limit()}};
    l.ranks = calloc((size_t)l.count, sizeof *l.ranks);
    l.polls = calloc(2 * (size_t)l.count + 1 + (size_t)start->job->config->nnodes, sizeof *l.polls);
    for (int i = 0; l.ranks && i < l.count; i++)
        l.ranks[i].report = l.ranks[i].exits = l.ranks[i].output = l.ranks[i].log = -1;
    status failure = l.ranks && l.polls ? start_ranks(&l) : status_memory("the start of %d ranks", l.count);
    if (failure) begin_killing(&l);
    watch(&l);
    launch_nodes_read(start->nodes);
    check_early_stops(&l);
    check_stopped_nodes(&l);
    start->has_own_failure = failure || has_own_failure(&l);
    if (!failure) failure = result_of(&l);
    launch_end(start->job);
    release(&l);
    return failure;
}

/* Before a restart: waits [seconds], or until a request to stop on any node, or until another node is lost. */
static void launch_pause(struct launch_start *start, double seconds) {
    double until = clock_seconds() + seconds;
    struct pollfd *polls = calloc((size_t)start->job->config->nnodes + 1, sizeof *polls);
    for (; polls && clock_seconds() < until; launch_nodes_read(start->nodes)) {
        if (start->stop != STOP_NONE || launch_nodes_stopped(start->nodes) >= 0 || launch_nodes_lost(start->nodes) >= 0)
            break;
        struct signalfd_siginfo info;
        nfds_t count = (nfds_t)launch_nodes_poll(start->nodes, polls + 1);
        polls[0] = (struct pollfd){.fd = start->signals, .events = POLLIN};
        if (poll(polls, 1 + count, clock_milliseconds_until(until)) <= 0) continue;
        while (read(start->signals, &info, sizeof info) == sizeof info)
            if (info.ssi_signo != SIGCHLD) start->stop = STOP_REQUESTED;
    }
    free(polls);
}

/* ---- processors ---- */

/* --cpu-bind cores: divides the processors of the launcher among its ranks. */

status launch_split(int nproc, cpu_set_t **parts) {
    cpu_set_t mask;
    *parts = NULL;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0)
        return status_errno(STATUS_IO, errno, "--cpu-bind cores: cannot read the processors that this process may use");
    *parts = calloc((size_t)nproc, sizeof **parts);
    if (!*parts) return status_memory("the processors of --cpu-bind cores");
    if (processors_split(&mask, CPU_FOLDER, nproc, *parts)) return OK;
    free(*parts);
    *parts = NULL;
    return status_usage("--cpu-bind cores: %d process%s here, but %d processor%s to bind them to", nproc,
                        text_plural((uint64_t)nproc, "es"), CPU_COUNT(&mask),
                        text_plural((uint64_t)CPU_COUNT(&mask), "s"));
}

void launch_describe_parts(const cpu_set_t *parts, int nproc, int first, struct text *out) {
    for (int i = 0; i < nproc; i++) {
        text_printf(out, i == 0 ? "rank %d on processors " : ", rank %d on ", first + i);
        processors_list(&parts[i], out);
    }
}

#define DEFAULT_GRACE 30.0
/* Needed before the first rank is started; and for a rank: its channels and its log. */
#define DESCRIPTORS 8
#define RANK_DESCRIPTORS 4
#define FIRST_PAUSE 0.5
#define LONGEST_PAUSE 30.0

/* ---- starts and restarts ---- */

static status check_config(const struct launch_config *c) {
    if (c->nproc < 1 || c->nnodes < 1 || c->node_rank < 0 || c->node_rank >= c->nnodes)
        return status_usage("%d processes on node %d of %d nodes is not possible", c->nproc, c->node_rank, c->nnodes);
    return OK;
}

static bool is_transient(status failure) {
    enum status_code code = status_code(failure);
    return code == STATUS_PEER || code == STATUS_BUG || code == STATUS_IO || code == STATUS_DIVERGED;
}

static double pause_before(int tries) {
    double seconds = FIRST_PAUSE;
    for (int i = 1; i < tries && seconds < LONGEST_PAUSE; i++) seconds *= 2;
    return seconds < LONGEST_PAUSE ? seconds : LONGEST_PAUSE;
}

/* Consumes [failure]. */
static status no_more_restarts(status failure, int tries) {
    status final = status_new(status_code(failure), "%s\n%d restart%s without a new checkpoint: no further restart",
                              status_message(failure), tries, text_plural((uint64_t)tries, "s"));
    status_free(failure);
    return final;
}

/* A restart needs all nodes and no request to stop. false: *failure is replaced by the failure that ends this launcher.
 */
static bool can_restart(const struct launch_start *start, status *failure) {
    launch_nodes_read(start->nodes);
    int lost = launch_nodes_lost(start->nodes), stopped = launch_nodes_stopped(start->nodes);
    status final = OK;
    if (start->stop >= STOP_REQUESTED)
        final =
            status_new(STATUS_STOPPED, "stopped on request between two starts; run the same command again to continue");
    else if (stopped >= 0)
        final = status_new(
            STATUS_STOPPED,
            "%s\nnode %d has stopped on request: this node stops, too; run the same command again to continue",
            status_message(*failure), stopped);
    else if (lost >= 0)
        final = status_new(status_code(*failure), "%s\nthe launcher of node %d %s: this node ends, too",
                           status_message(*failure), lost, launch_nodes_describe_loss(start->nodes, lost));
    if (!final) return true;
    status_free(*failure);
    *failure = final;
    return false;
}

/* Waits until the ranks of all nodes have succeeded. STATUS_PEER: a node restarts, and this one must, too. Of a command
 * that saves nothing the results are complete, and a request to stop only ends the wait. */
static status wait_for_nodes(struct launch_start *start) {
    int64_t newer = 0;
    status failure = launch_nodes_wait_done(start->nodes, start->signals, start->job->restart_count, &newer);
    if (status_code(failure) == STATUS_STOPPED && !start->job->config->saves) {
        status_free(failure);
        return OK;
    }
    if (status_code(failure) != STATUS_PEER) return failure;
    start->restart_count = newer;
    if (start->stop != STOP_NONE) can_restart(start, &failure);
    return failure;
}

static status run(struct launch_start *start) {
    int max_tries = start->job->config->max_restarts, tries = 0;
    for (int64_t previous = 0;; previous = start->checkpoint) {
        start->restart_count = -1;
        start->job->needs_link = launch_nodes_need_link(start->nodes);
        status failure = launch_once(start);
        if (!failure) failure = wait_for_nodes(start);
        if (!failure || max_tries == 0 || start->stop >= STOP_REQUESTED || !is_transient(failure)) return failure;
        if (!can_restart(start, &failure)) return failure;
        start->job->has_begun = start->has_begun;
        if (start->restart_count >= 0) { /* the store rejected these ranks because of their start */
            start->job->restart_count = (int)start->restart_count;
        } else {
            if (start->checkpoint > previous) tries = 0;
            if (tries++ == max_tries) return no_more_restarts(failure, max_tries);
            start->job->restart_count++;
        }
        double seconds = pause_before(tries);
        log_line(start->log, "%s", status_message(failure));
        log_line(start->log, "starting all ranks again in %g s (restart %d, %d of at most %d without a new checkpoint)",
                 seconds, start->job->restart_count, tries, max_tries);
        launch_nodes_send_restart(start->nodes, start->job->restart_count);
        launch_pause(start, seconds);
        if (!can_restart(start, &failure)) return failure;
        status_free(failure);
    }
}

/* Chooses the processors of the ranks, the same for every start. */
static status bind_ranks(struct launch_job *job, struct log *log) {
    const struct launch_config *c = job->config;
    SCOPED_TEXT text = {0};
    if (!c->binds_cores) return OK;
    TRY(launch_split(c->nproc, &job->parts));
    launch_describe_parts(job->parts, c->nproc, c->node_rank * c->nproc, &text);
    log_line(log, "%s", text_string(&text));
    return OK;
}

/* Reports the end of this node to nodes that do not get it otherwise, since their ranks may wait for it. A stop after
 * training has begun needs no report: all ranks have agreed to it. */
static void report_to_other_nodes(const struct launch_start *start, const sigset_t *requests, status failure) {
    const struct launch_job *job = start->job;
    bool is_stopped = status_code(failure) == STATUS_STOPPED;
    bool *informed = failure && start->nodes ? calloc((size_t)job->config->nnodes, sizeof *informed) : NULL;
    if (is_stopped) launch_nodes_send_stopped(start->nodes);
    bool is_needed = is_stopped ? !start->has_begun : start->has_own_failure;
    if (informed && is_needed && launch_nodes_need_report(start->nodes, informed)) {
        int stop = is_stopped ? -1 : signalfd(start->signals, requests, SFD_CLOEXEC | SFD_NONBLOCK);
        launch_report(job, informed, stop > 0 ? stop : 0, start->log, failure);
        if (stop > 0 && stop != start->signals) close(stop);
    }
    free(informed);
}

status launch_check(const struct launch_config *config) {
    TRY(check_config(config));
    int links = config->node_rank == 0 ? config->nnodes - 1 : 1; /* to the launchers of other nodes */
    return net_check_descriptors(DESCRIPTORS + links + RANK_DESCRIPTORS * config->nproc, NULL);
}

status launch_run(const struct launch_config *config, char *const argv[], struct log *log) {
    TRY(launch_check(config));
    struct launch_job job = {.config = config, .argv = argv, .alive = {-1, -1}};
    TRY(bind_ranks(&job, log));
    struct launch_start start = {
        .job = &job, .log = log, .grace = config->grace > 0 ? config->grace : DEFAULT_GRACE, .has_own_failure = true};
    static const int watched[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU, SIGCHLD};
    sigset_t set, before;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof watched / sizeof *watched; i++)
        if (!signals_is_ignored(watched[i])) sigaddset(&set, watched[i]);
    sigprocmask(SIG_BLOCK, &set, &before);
    start.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    int error = errno; /* of signalfd; the other nodes are informed of it, too */
    status failure = config->nnodes > 1 ? launch_nodes_create(config->nnodes, config->node_rank, &start.nodes) : OK;
    if (!failure)
        failure =
            start.signals < 0 ? status_errno(STATUS_IO, error, "cannot start %d ranks", config->nproc) : run(&start);
    static const struct timespec no_wait = {0};
    sigset_t requests = set;
    sigdelset(&requests, SIGCHLD);
    report_to_other_nodes(&start, &requests, failure);
    while (sigtimedwait(&set, NULL, &no_wait) > 0) { /* discards signals that arrived after the end */
    }
    if (start.signals >= 0) close(start.signals);
    launch_nodes_destroy(start.nodes);
    free(job.parts);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (failure) log_file_line(log, status_message(failure));
    return failure;
}
