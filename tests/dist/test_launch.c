/* The launcher, with this program itself as the ranks: `test_launch role NAME FOLDER`. ctest-labels: dist fault */
#include "dist/launch/launch.h"
#include "dist/process/launcher_channel.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/system/signals.h"
#include "check_main.h"
#include "dist/launch/launch_internal.h"
#include "dist/process/env.h"
#include "dist/store/store.h"

/* ---- roles of ranks ---- */

struct role_context {
    struct dist_env env;
    const char *folder;
};

static volatile sig_atomic_t is_requested;

static void on_term(int number) {
    (void)number;
    is_requested = 1;
}

static int end_with(status failure) {
    int code = status_code(failure);
    if (!launcher_report(failure)) return 1;
    status_free(failure);
    return code;
}

static void wait_long(void) { clock_sleep(60); }

/* Creates the file "NAME.RANK" in the folder: the event NAME has happened in this rank. */
static void mark(const struct role_context *c, const char *name, long value) {
    char path[512], ready[600];
    snprintf(path, sizeof path, "%s/.%s.%d", c->folder, name, c->env.rank);
    snprintf(ready, sizeof ready, "%s/%s.%d", c->folder, name, c->env.rank);
    FILE *file = fopen(path, "w");
    if (!file) _exit(99);
    fprintf(file, "%ld", value);
    fclose(file);
    if (rename(path, ready) != 0) _exit(99);
}

static int role_join(const struct role_context *c) {
    struct store *store;
    const char *threads = getenv("OMP_NUM_THREADS");
    char text[64];
    if (c->env.launcher != LAUNCHER_OWN || c->env.local_rank != c->env.rank) return 2;
    if (c->env.world_size > 1 && (!threads || strcmp(threads, "1") != 0)) return 3;
    if (getpgid(0) != getpid()) return 4;
    if (c->env.rank != 0 && getenv(STORE_FD_VARIABLE)) return 5;
    status s = store_open(&c->env, 20, &store);
    snprintf(text, sizeof text, "world %d", c->env.world_size);
    if (!s) s = store_agree(store, "text", text, 20);
    if (s) return end_with(s);
    store_close(store);
    mark(c, "joined", 1);
    return 0;
}

static int role_fail(const struct role_context *c) {
    if (c->env.rank != 1) wait_long();
    return end_with(status_new(STATUS_DATA, "x.h5 is damaged"));
}

static void await(const struct role_context *c, const char *name, int rank) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s.%d", c->folder, name, rank);
    while (access(path, F_OK) != 0) clock_sleep(0.002);
}

/* Rank 0 reports the loss of a peer first; rank 1 reports the cause later, on a busy machine only after SIGTERM. */
static int role_peer_loss_first(const struct role_context *c) {
    if (c->env.rank == 1) {
        signal(SIGTERM, SIG_IGN);
        mark(c, "up", getpid());
        await(c, "lost", 0);
        return end_with(status_new(STATUS_NOT_FINITE, "the loss is nan"));
    }
    if (c->env.rank == 2) wait_long();
    await(c, "up", 1);
    int code = end_with(status_new(STATUS_PEER, "lost a rank"));
    mark(c, "lost", 1);
    return code;
}

static int role_only_peer_losses(const struct role_context *c) {
    if (c->env.rank == 0) clock_sleep(0.1);
    return end_with(status_new(STATUS_PEER, "lost a rank, reported by %d", c->env.rank));
}

static int role_killed(const struct role_context *c) {
    if (c->env.rank == 1) raise(SIGKILL);
    if (c->env.rank == 0) return end_with(status_new(STATUS_PEER, "lost rank 1"));
    wait_long();
    return 0;
}

static int role_crash(const struct role_context *c) {
    signal(SIGSEGV, SIG_DFL);
    if (c->env.rank == 1) raise(SIGSEGV);
    wait_long();
    return 0;
}

static int role_silent_1(const struct role_context *c) {
    if (c->env.rank == 1) return 1;
    wait_long();
    return 0;
}

static int role_silent_65(const struct role_context *c) {
    if (c->env.rank == 0) return 65;
    wait_long();
    return 0;
}

/* Rank 1 ends in the middle of a step. */
static int end_in_step(const struct role_context *c, int killed_by) {
    struct store *store;
    status s = store_open(&c->env, 20, &store);
    if (s) return end_with(s);
    if (c->env.rank != 1) wait_long();
    struct activity *activity = store_activity(store);
    activity_step(activity, 119, 0.01);
    activity_enter(activity, 0, "all_reduce");
    activity_leave(activity, 0);
    activity_phase(activity, ACTIVITY_BACKWARD);
    if (killed_by) raise(killed_by);
    _exit(3);
}

static int role_killed_in_step(const struct role_context *c) { return end_in_step(c, SIGKILL); }
static int role_silent_in_step(const struct role_context *c) { return end_in_step(c, 0); }

/* Saves at SIGTERM, which takes 0.2 s. */
static int role_saves(const struct role_context *c) {
    signal(SIGTERM, on_term);
    mark(c, "up", getpid());
    while (!is_requested) clock_sleep(0.01);
    clock_sleep(0.2);
    mark(c, "saved", 1);
    return STATUS_STOPPED;
}

/* Rank 0 is done when it gets the request to stop. */
static int role_done_and_stopped(const struct role_context *c) {
    role_saves(c);
    return c->env.rank == 0 ? 0 : STATUS_STOPPED;
}

static int role_ignores_term(const struct role_context *c) {
    signal(SIGTERM, SIG_IGN);
    mark(c, "up", getpid());
    wait_long();
    return 0;
}

/* Rank 0 is stopped by SIGSTOP; rank 1 fails. */
static int role_stopped_and_fail(const struct role_context *c) {
    mark(c, "up", getpid());
    if (c->env.rank == 0) raise(SIGSTOP);
    if (c->env.rank == 0) wait_long();
    clock_sleep(0.2);
    return end_with(status_new(STATUS_IO, "the disk is full"));
}

/* For a launcher that is killed: rank 0 waits, rank 1 is stopped by SIGSTOP, rank 2 has no parent-death signal, rank 3
 * ignores all signals. */
static int role_orphan(const struct role_context *c) {
    if (c->env.rank == 2) prctl(PR_SET_PDEATHSIG, 0);
    if (c->env.rank == 3)
        for (int i = 1; i < 32; i++) signal(i, SIG_IGN);
    mark(c, "up", getpid());
    if (c->env.rank == 1) raise(SIGSTOP);
    wait_long();
    return 0;
}

/* Exits before its child process. */
static int role_leaves_child(const struct role_context *c) {
    pid_t child = fork();
    if (child == 0) {
        wait_long();
        _exit(0);
    }
    mark(c, "up", child);
    return 0;
}

static int role_late_report(const struct role_context *c) {
    if (c->env.rank == 1) { /* reports and then cannot end by itself */
        signal(SIGTERM, SIG_IGN);
        end_with(status_new(STATUS_USAGE, "no such key"));
    }
    wait_long();
    return 0;
}

/* The store reports that rank 1 hangs; rank 2 does not end by itself. */
static int role_hang(const struct role_context *c) {
    if (c->env.rank != 0) return role_ignores_term(c);
    await(c, "up", 1);
    await(c, "up", 2);
    launcher_send(MESSAGE_HANG, STATUS_PEER, 1, "rank 1 (host n, pid 1) hangs in forward");
    return end_with(status_new(STATUS_PEER, "lost rank 1"));
}

/* Sends a descriptor with a message other than MESSAGE_LINK: the launcher must close it. */
static int role_descriptor(const struct role_context *c) {
    int ends[2], report = atoi(getenv(REPORT_FD_VARIABLE));
    struct launcher_packet packet = {.message = MESSAGE_SAVED, .number = 1};
    struct iovec bytes = {.iov_base = &packet, .iov_len = sizeof packet};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof ends[1])];
    } control = {.header = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof ends[1])}};
    struct msghdr whole = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.space};
    (void)c;
    if (pipe2(ends, O_CLOEXEC) != 0) return 1;
    memcpy(CMSG_DATA(&control.header), &ends[1], sizeof ends[1]);
    if (sendmsg(report, &whole, 0) != sizeof packet) return 2;
    close(ends[1]);
    struct pollfd end = {.fd = ends[0], .events = POLLIN};
    return poll(&end, 1, 5000) == 1 && (end.revents & POLLHUP) ? 0 : 65;
}

/* Fills the channel to the launcher, which is stopped and then reads all of it. */
static int role_fills_channel(const struct role_context *c) {
    (void)c;
    kill(getppid(), SIGSTOP);
    for (int i = 0; i < 300; i++) launcher_send(MESSAGE_JOINED, 0, i, "");
    kill(getppid(), SIGCONT);
    clock_sleep(0.2);
    return 0;
}

/* Each start but the first resumes from an older checkpoint, and saves no newer one than that. */
static int role_restarts(const struct role_context *c) {
    mark(c, "started", c->env.restart_count);
    launcher_send(MESSAGE_RESUMED, 0, c->env.restart_count == 0 ? 100 : 50, c->folder);
    if (c->env.restart_count > 0) launcher_send(MESSAGE_SAVED, 0, 60, "");
    raise(SIGKILL);
    return 0;
}

static const struct {
    const char *name;
    int (*run)(const struct role_context *c);
} roles[] = {
    {"join", role_join},
    {"fail", role_fail},
    {"peer_loss_first", role_peer_loss_first},
    {"only_peer_losses", role_only_peer_losses},
    {"killed", role_killed},
    {"crash", role_crash},
    {"silent_1", role_silent_1},
    {"silent_65", role_silent_65},
    {"killed_in_step", role_killed_in_step},
    {"silent_in_step", role_silent_in_step},
    {"saves", role_saves},
    {"done_and_stopped", role_done_and_stopped},
    {"ignores_term", role_ignores_term},
    {"stopped_and_fail", role_stopped_and_fail},
    {"orphan", role_orphan},
    {"leaves_child", role_leaves_child},
    {"late_report", role_late_report},
    {"hang", role_hang},
    {"descriptor", role_descriptor},
    {"restarts", role_restarts},
    {"fills_channel", role_fills_channel},
};

static int run_role(const char *name, const char *folder) {
    struct role_context c = {.folder = folder};
    status s = dist_env_detect(&c.env);
    if (s) return 98;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(roles[i].name, name) == 0) return roles[i].run(&c);
    return 97;
}

/* ---- the launcher in a process of its own ---- */

struct launcher {
    pid_t pid;
    int out; /* pipe with its message */
    char folder[64];
};

/* How the launcher ended. */
struct outcome {
    int code;
    char message[1024];
    double seconds;
};

static struct launcher launcher_start(const char *role, int nproc, double grace) {
    struct launcher launcher;
    int ends[2];
    snprintf(launcher.folder, sizeof launcher.folder, "/tmp/test_launch.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(launcher.folder));
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    fflush(NULL);
    launcher.pid = fork();
    ck_assert_int_ge(launcher.pid, 0);
    if (launcher.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        static const int plain[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU};
        for (size_t i = 0; i < 7; i++) signal(plain[i], SIG_DFL);
        unsetenv("OMP_NUM_THREADS");
        char *argv[] = {"test_launch", "role", (char *)role, launcher.folder, NULL};
        struct launch_config config = {
            .nproc = nproc, .nnodes = 1, .grace = grace, .max_restarts = strcmp(role, "restarts") == 0};
        status s = launch_run(&config, argv, NULL);
        ssize_t length = (ssize_t)strlen(status_message(s));
        if (write(ends[1], status_message(s), (size_t)length) != length) _exit(96);
        int code = status_code(s);
        status_free(s);
        exit(code);
    }
    close(ends[1]);
    launcher.out = ends[0];
    return launcher;
}

static struct outcome launcher_wait(struct launcher *launcher) {
    struct outcome outcome = {0};
    int how;
    double start = clock_seconds();
    ck_assert_int_eq(waitpid(launcher->pid, &how, 0), launcher->pid);
    outcome.seconds = clock_seconds() - start;
    outcome.code = WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
    ssize_t received = read(launcher->out, outcome.message, sizeof outcome.message - 1);
    outcome.message[received > 0 ? received : 0] = 0;
    close(launcher->out);
    return outcome;
}

/* Waits until a rank has marked [name]; returns the value. */
static long marked(const struct launcher *launcher, const char *name, int rank) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s.%d", launcher->folder, name, rank);
    for (double start = clock_seconds(); clock_seconds() - start < 100; clock_sleep(0.01)) {
        FILE *file = fopen(path, "r");
        long value = -1;
        if (!file) continue;
        ck_assert_int_eq(fscanf(file, "%ld", &value), 1);
        fclose(file);
        return value;
    }
    ck_abort_msg("%s was not created within 100 s", path);
    return -1;
}

static void clean(const struct launcher *launcher) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", launcher->folder);
    ck_assert_int_eq(system(command), 0);
}

static bool is_running(long pid) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return false;
    bool has_line = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    const char *state = has_line ? strrchr(line, ')') : NULL;
    return state && state[2] != 'Z' && state[2] != 'X';
}

static void expect_end(long pid) {
    double start = clock_seconds();
    while (is_running(pid)) {
        ck_assert_msg(clock_seconds() - start < 100, "process %ld is still there", pid);
        clock_sleep(0.01);
    }
}

/* ---- tests ---- */

TEST_LOOP(all_ranks_join, 1, 5) {
    struct launcher launcher = launcher_start("join", _i, 0);
    struct outcome outcome = launcher_wait(&launcher);
    ck_assert_msg(outcome.code == 0, "%d: %s", outcome.code, outcome.message);
    for (int r = 0; r < _i; r++) marked(&launcher, "joined", r);
    clean(&launcher);
}

TEST(unexpected_descriptors_are_closed) {
    struct launcher launcher = launcher_start("descriptor", 1, 0);
    struct outcome outcome = launcher_wait(&launcher);
    ck_assert_msg(outcome.code == 0, "%d: %s", outcome.code, outcome.message);
    clean(&launcher);
}

TEST(full_channel_is_no_end_of_the_launcher) {
    struct launcher launcher = launcher_start("fills_channel", 1, 0);
    struct outcome outcome = launcher_wait(&launcher);
    ck_assert_msg(outcome.code == 0, "%d: %s", outcome.code, outcome.message);
    clean(&launcher);
}

/* Of these one is in time, if a loaded machine alone is the reason that the others are not. */
enum { ATTEMPTS = 5 };

static const struct {
    const char *role;
    int nproc, code;
    const char *expected[2]; /* parts of the message */
    double within;           /* seconds */
} endings[] = {
    {"fail", 3, 65, {"rank 1 (host ", "): x.h5 is damaged"}, 4},
    {"peer_loss_first", 3, 76, {"rank 1 (host ", "): the loss is nan"}, 4},
    {"only_peer_losses", 3, 69, {"rank ", "): lost a rank, reported by "}, 4},
    {"killed", 3, 69, {"rank 1 (host ", "was killed by SIGKILL"}, 4},
    {"crash", 2, 69, {"rank 1 (host ", "was killed by SIGSEGV"}, 4},
    {"silent_1", 2, 70, {"rank 1 (host ", "ended with exit code 1 without reporting an error"}, 4},
    {"silent_65", 2, 65, {"rank 0 (host ", "ended with exit code 65"}, 4},
    {"killed_in_step",
     2,
     69,
     {"rank 1 (host ", "by SIGKILL; last seen in backward of step 120, after all_reduce #1"},
     4},
    {"silent_in_step",
     2,
     70,
     {"exit code 3 without reporting an error", "; last seen in backward of step 120, after all_r"},
     4},
    {"stopped_and_fail", 2, 74, {"rank 1 (host ", "): the disk is full"}, 8},
    {"late_report", 2, 64, {"rank 1 (host ", "): no such key"}, 8},
};

TEST_EACH(root_cause_is_reported, endings) {
    struct launcher launcher;
    struct outcome outcome;
    for (int i = 0; i < ATTEMPTS; i++) {
        launcher = launcher_start(endings[_i].role, endings[_i].nproc, 1);
        outcome = launcher_wait(&launcher);
        if (outcome.seconds < endings[_i].within || i == ATTEMPTS - 1) break;
        clean(&launcher);
    }
    ck_assert_msg(outcome.code == endings[_i].code, "%s: %d %s", endings[_i].role, outcome.code, outcome.message);
    for (int i = 0; i < 2; i++)
        ck_assert_msg(strstr(outcome.message, endings[_i].expected[i]), "%s: %s", endings[_i].role, outcome.message);
    ck_assert_msg(!strstr(outcome.message, "memory"), "%s", outcome.message); /* no rank ran out of memory */
    ck_assert_double_lt(outcome.seconds, endings[_i].within);
    clean(&launcher);
}

TEST(older_checkpoints_are_no_progress) {
    struct launcher launcher = launcher_start("restarts", 1, 10);
    struct outcome outcome = launcher_wait(&launcher);
    ck_assert_msg(outcome.code == STATUS_PEER, "%d: %s", outcome.code, outcome.message);
    ck_assert_msg(strstr(outcome.message, "1 restart without a new checkpoint"), "%s", outcome.message);
    ck_assert_int_eq(marked(&launcher, "started", 0), 1);
    clean(&launcher);
}

static const int requests[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU};

TEST_EACH(requests_are_forwarded_to_ranks, requests) {
    struct launcher launcher = launcher_start("saves", 2, 10);
    for (int r = 0; r < 2; r++) marked(&launcher, "up", r);
    kill(launcher.pid, requests[_i]);
    if (requests[_i] != SIGINT) kill(launcher.pid, requests[_i]); /* as a scheduler may */
    struct outcome outcome = launcher_wait(&launcher);
    ck_assert_msg(outcome.code == 75, "%d: %s", outcome.code, outcome.message);
    for (int r = 0; r < 2; r++) marked(&launcher, "saved", r);
    clean(&launcher);
}

TEST(done_and_stopped_is_stopped) {
    struct launcher launcher = launcher_start("done_and_stopped", 3, 10);
    for (int r = 0; r < 3; r++) marked(&launcher, "up", r);
    kill(launcher.pid, SIGTERM);
    struct outcome outcome = launcher_wait(&launcher);
    ck_assert_int_eq(outcome.code, 75);
    clean(&launcher);
}

TEST(ranks_are_killed_after_grace) {
    struct launcher launcher = launcher_start("ignores_term", 2, 0.5);
    long pids[2] = {marked(&launcher, "up", 0), marked(&launcher, "up", 1)};
    double start = clock_seconds();
    kill(launcher.pid, SIGTERM);
    struct outcome outcome = launcher_wait(&launcher);
    ck_assert_double_gt(clock_seconds() - start, 0.4);
    ck_assert_int_eq(outcome.code, 69);
    ck_assert_msg(strstr(outcome.message, "did not stop within 0.5 s"), "%s", outcome.message);
    for (int r = 0; r < 2; r++) ck_assert(!is_running(pids[r]));
    clean(&launcher);
}

/* The rank that hangs is killed soon; the others have a grace period, which is shorter than after other failures. */
TEST(hang_shortens_grace) {
    struct launcher launcher;
    struct outcome outcome;
    bool is_alone = false;
    for (int i = 0; i < ATTEMPTS; i++) {
        launcher = launcher_start("hang", 3, 30);
        long pids[2] = {marked(&launcher, "up", 1), marked(&launcher, "up", 2)};
        expect_end(pids[0]);
        is_alone = is_running(pids[1]);
        outcome = launcher_wait(&launcher);
        if ((is_alone && outcome.seconds < 4.5) || i == ATTEMPTS - 1) break;
        clean(&launcher);
    }
    ck_assert(is_alone);
    ck_assert_int_eq(outcome.code, 69);
    ck_assert_str_eq(outcome.message, "rank 1 (host n, pid 1) hangs in forward");
    ck_assert_double_lt(outcome.seconds, 4.5); /* after other failures the grace period is 5 s */
    clean(&launcher);
}

TEST(second_ctrl_c_kills_ranks) {
    struct launcher launcher = launcher_start("ignores_term", 2, 30);
    for (int r = 0; r < 2; r++) marked(&launcher, "up", r);
    kill(launcher.pid, SIGINT);
    clock_sleep(0.2);
    kill(launcher.pid, SIGINT);
    struct outcome outcome = launcher_wait(&launcher);
    ck_assert_int_eq(outcome.code, 69);
    ck_assert_msg(strstr(outcome.message, "second signal"), "%s", outcome.message);
    ck_assert_double_lt(outcome.seconds, 25); /* the grace period is 30 s */
    clean(&launcher);
}

TEST(ranks_end_with_launcher) {
    struct launcher launcher = launcher_start("orphan", 4, 30);
    long pids[4];
    for (int r = 0; r < 4; r++) pids[r] = marked(&launcher, "up", r);
    clock_sleep(0.1);
    kill(launcher.pid, SIGKILL);
    ck_assert_int_eq(launcher_wait(&launcher).code, 128 + SIGKILL);
    for (int r = 0; r < 4; r++) expect_end(pids[r]);
    clean(&launcher);
}

TEST(children_of_ranks_are_killed) {
    struct launcher launcher = launcher_start("leaves_child", 2, 30);
    long pids[2] = {marked(&launcher, "up", 0), marked(&launcher, "up", 1)};
    ck_assert_int_eq(launcher_wait(&launcher).code, 0);
    for (int r = 0; r < 2; r++) expect_end(pids[r]);
    clean(&launcher);
}

/* ---- pure functions ---- */

static struct launched_rank ended(int rank, int order, int wait_status, int reported) {
    struct launched_rank r = {
        .rank = rank, .pid = 100 + rank, .has_ended = true, .order = order, .wait_status = wait_status};
    r.has_report = reported != 0;
    r.code = reported;
    snprintf(r.text, sizeof r.text, "failure of %d", rank);
    return r;
}

static const struct launch_context no_stop = {.host = "h", .grace = 30, .saves = true};

TEST(out_of_memory_needs_evidence) {
    struct launched_rank ranks[] = {ended(0, 2, STATUS_PEER << 8, STATUS_PEER), ended(1, 1, SIGKILL, 0)};
    struct launch_context oom = no_stop;
    oom.memory = (struct launch_memory){.has_oom = true, .limit_gib = 2};
    ranks[1].peak_kib = 3 << 19;
    status s = launch_result(ranks, 2, &oom);
    ck_assert_str_eq(status_message(s), "rank 1 (host h, pid 101) was killed by SIGKILL; probably out of memory: limit "
                                        "2.0 GiB, peak of this rank 1.5 GiB");
    status_free(s);
    s = launch_result(ranks, 2, &no_stop);
    ck_assert_str_eq(status_message(s), "rank 1 (host h, pid 101) was killed by SIGKILL");
    status_free(s);
    ranks[1].wait_status = SIGTERM;
    s = launch_result(ranks, 2, &oom);
    ck_assert_str_eq(status_message(s), "rank 1 (host h, pid 101) was killed by SIGTERM");
    status_free(s);
    ranks[1].wait_status = SIGRTMIN + 2; /* has no name */
    s = launch_result(ranks, 2, &oom);
    char expected[64];
    snprintf(expected, sizeof expected, "rank 1 (host h, pid 101) was killed by signal %d", SIGRTMIN + 2);
    ck_assert_str_eq(status_message(s), expected);
    status_free(s);
}

TEST(order_of_causes) {
    /* the earliest failure of a rank itself is the cause, not an earlier loss of a peer or a later failure */
    struct launched_rank ranks[] = {ended(0, 1, STATUS_PEER << 8, STATUS_PEER), ended(1, 3, STATUS_IO << 8, STATUS_IO),
                                    ended(2, 2, STATUS_DATA << 8, STATUS_DATA)};
    status s = launch_result(ranks, 3, &no_stop);
    ck_assert_int_eq(status_code(s), STATUS_DATA);
    ck_assert_str_eq(status_message(s), "rank 2 (host h, pid 102): failure of 2");
    status_free(s);
    /* a rank that the launcher killed is not the cause */
    ranks[2] = ended(2, 1, SIGKILL, 0);
    ranks[2].was_signalled = true;
    ranks[0] = ended(0, 2, SIGTERM, 0);
    ranks[0].was_signalled = true;
    s = launch_result(ranks, 3, &no_stop);
    ck_assert_str_eq(status_message(s), "rank 1 (host h, pid 101): failure of 1");
    status_free(s);
    /* a crash after SIGTERM of the launcher is */
    ranks[1] = ended(1, 3, SIGBUS, 0);
    ranks[1].was_signalled = true;
    s = launch_result(ranks, 3, &no_stop);
    ck_assert_str_eq(status_message(s), "rank 1 (host h, pid 101) was killed by SIGBUS");
    status_free(s);
}

/* The cause is a rank of another node; the ranks of this node only lost a peer. */
TEST(job_failure_explains_peer_losses) {
    struct launched_rank ranks[] = {ended(0, 1, STATUS_PEER << 8, STATUS_PEER), ended(1, 2, SIGKILL, 0)};
    struct launch_context context = no_stop;
    context.job_failure =
        (struct launch_job_failure){.is_known = true, .code = STATUS_DATA, .text = "rank 2 (host b): bad data"};
    ranks[1].was_signalled = true;
    status s = launch_result(ranks, 2, &context);
    ck_assert_int_eq(status_code(s), STATUS_DATA);
    ck_assert_str_eq(status_message(s), "rank 2 (host b): bad data");
    status_free(s);
    ranks[0] = ended(0, 1, SIGKILL, 0); /* no rank of this node has reported anything */
    ranks[0].was_signalled = true;
    s = launch_result(ranks, 2, &context);
    ck_assert_str_eq(status_message(s), "rank 2 (host b): bad data");
    status_free(s);
    ranks[1].was_signalled = false; /* a signal of another process on this node is the cause */
    s = launch_result(ranks, 2, &context);
    ck_assert_str_eq(status_message(s), "rank 1 (host h, pid 101) was killed by SIGKILL");
    status_free(s);
}

TEST(invalid_configs_are_rejected) {
    static const struct launch_config configs[] = {
        {.nproc = 0, .nnodes = 1},
        {.nproc = 1, .nnodes = 2, .node_rank = 2, .master_addr = "n1", .master_port = 1},
        {.nproc = 1, .nnodes = 2, .master_port = 29500},
        {.nproc = 1, .nnodes = 2, .master_addr = "n1"},
        {.nproc = 1, .nnodes = 2, .master_addr = "n1", .master_port = 70000},
    };
    char *argv[] = {"x", NULL};
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        status s = launch_run(&configs[i], argv, NULL);
        ck_assert_int_eq(status_code(s), STATUS_USAGE);
        status_free(s);
    }
    status s = status_new(STATUS_IO, "x");
    ck_assert(!launcher_report(s)); /* this process has no launcher */
    ck_assert(!launcher_report(OK));
    status_free(s);
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "role") == 0) {
        signals_unblock_stops(); /* as signals_on_stop does in a rank of the program */
        return run_role(argv[2], argv[3]);
    }
    return check_suite("launch");
}
