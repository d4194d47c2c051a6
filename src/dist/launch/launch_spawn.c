/* Starts ranks: fork and exec of the program itself. The launcher has one thread, so the child may allocate memory
 * between fork and exec. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/files/io.h"
#include "base/system/signals.h"
#include "dist/launch/launch_internal.h"
#include "dist/process/net.h"
#include "dist/process/variables.h"
#include "dist/store/store.h"

/* ---- resources of all ranks ---- */

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

status launch_prepare(struct launch_job *job) {
    const struct launch_config *config = job->config;
    job->listener = job->secret = job->alive[0] = job->alive[1] = -1;
    if (pipe2(job->alive, O_CLOEXEC) != 0)
        return status_errno(STATUS_IO, errno, "cannot start %d ranks", config->nproc);
    if (config->nnodes == 1) return prepare_one_node(job);
    if (!config->master_addr || !*config->master_addr || strlen(config->master_addr) >= sizeof job->master_addr)
        return status_new(STATUS_USAGE, "several nodes need the host of rank 0 (--master-addr)");
    if (config->master_port < 1 || config->master_port > 65535)
        return status_new(STATUS_USAGE, "several nodes need a port on the host of rank 0, 1 to 65535 (--master-port)");
    snprintf(job->master_addr, sizeof job->master_addr, "%s", config->master_addr);
    job->master_port = config->master_port;
    set_job_id(config, job->job_id);
    return OK;
}

void launch_report(const struct launch_job *job, const bool *informed, int stop, struct log *log, status failure) {
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

void launch_release(struct launch_job *job) {
    if (job->listener >= 0) close(job->listener);
    if (job->secret >= 0) close(job->secret);
    if (job->alive[0] >= 0) close(job->alive[0]);
}

void launch_end(struct launch_job *job) {
    if (job->alive[1] >= 0) close(job->alive[1]);
    job->alive[0] = job->alive[1] = -1;
}

/* ---- the child ---- */

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
    if (is_bound) execv("/proc/self/exe", job->argv);
    status failure = status_errno(STATUS_IO, errno, "cannot %s",
                                  is_bound ? "start the program again by /proc/self/exe; is /proc mounted?"
                                           : "bind this rank to its processors");
    launcher_report(failure);
    _exit(STATUS_IO);
}

/* ---- the launcher ---- */

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

status launch_spawn(const struct launch_job *job, int local_rank, struct launched_rank *rank) {
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
