/* Three launchers, each with one rank, which is this program itself: `test_launchers role NAME FOLDER`. The ranks
 * connect the launchers without a store. Tests stop or kill a rank or launcher and check how the others end.
 * ctest-labels: dist fault */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/system/signals.h"
#include "check_main.h"
#include "dist/launch/launch.h"
#include "dist/process/env.h"
#include "dist/process/launcher_channel.h"
#include "dist/process/message.h"
#include "dist/process/net.h"

#define NODES 3
#define LATE_SECONDS 2.5 /* more than LOST_NODE_SECONDS of launch.c */

/* ---- roles of ranks ---- */

static volatile sig_atomic_t is_requested;

static void on_term(int number) {
    (void)number;
    is_requested = 1;
}

/* Creates the file "NAME.NODE" in the folder: the event NAME has happened on this node. */
static void mark(const char *folder, const char *name, int node) {
    char path[256], ready[256];
    snprintf(path, sizeof path, "%s/.%s.%d", folder, name, node);
    snprintf(ready, sizeof ready, "%s/%s.%d", folder, name, node);
    FILE *file = fopen(path, "w");
    if (!file) _exit(99);
    fprintf(file, "%ld", (long)getpid());
    fclose(file);
    if (rename(path, ready) != 0) _exit(99);
}

static bool is_marked(const char *folder, const char *name, int node) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s.%d", folder, name, node);
    return access(path, F_OK) == 0;
}

/* Waits for a mark. false: timeout. */
static bool await(const char *folder, const char *name, int node) {
    for (double end = clock_seconds() + 60; clock_seconds() < end; clock_sleep(0.005))
        if (is_marked(folder, name, node)) return true;
    return false;
}

/* The session of the link from [rank] to rank 0, which the store would have created. */
static struct message_session session_of(uint32_t rank, bool is_server) {
    static const uint8_t secret[32] = "the secret of these launchers";
    struct message_handshake shake = {.rank = rank};
    struct message_session session;
    session_begin(&session, secret, &shake, is_server);
    return session;
}

static void link_launchers(const struct dist_env *env) {
    struct message_session session;
    double deadline = clock_seconds() + 30;
    uint8_t rank = (uint8_t)env->rank;
    int listener = -1, fd = -1;
    bool is_final = false;
    if (env->rank == 0) {
        if (net_listen("127.0.0.1", env->master_port, true, &listener)) _exit(98);
        for (int i = 1; i < env->world_size; i++) {
            while ((fd = accept(listener, NULL, NULL)) < 0 && clock_seconds() < deadline) clock_sleep(0.005);
            if (!net_receive(fd, &rank, 1, deadline)) _exit(98);
            session = session_of(rank, true);
            launcher_send_link(rank, fd, &session, sizeof session);
            close(fd);
        }
        close(listener);
        return;
    }
    for (;;) {
        status failure = net_connect("127.0.0.1", env->master_port, deadline, &fd, &is_final);
        if (!failure) break;
        status_free(failure);
        if (clock_seconds() > deadline) _exit(98);
        clock_sleep(0.01);
    }
    if (!launcher_needs_link() || !net_send(fd, &rank, 1, deadline)) _exit(98);
    session = session_of(rank, false);
    launcher_send_link(0, fd, &session, sizeof session);
    close(fd);
}

static int wait_long(void) {
    clock_sleep(60);
    return 0;
}

static int report_peer_loss(void) {
    status failure = status_new(STATUS_PEER, "lost a rank");
    launcher_report(failure);
    status_free(failure);
    return STATUS_PEER;
}

/* Node 1 gets a request to stop and ends; node 2 gets SIGTERM from its own launcher only; node 0 ends long after it. */
static int role_late(const struct dist_env *env, const char *folder) {
    signal(SIGTERM, on_term);
    mark(folder, "up", env->rank);
    for (double end = clock_seconds() + 60; clock_seconds() < end; clock_sleep(0.01)) {
        bool is_due = env->rank == 0 ? is_marked(folder, "left", 2) : is_requested;
        if (!is_due) continue;
        if (env->rank != 1) clock_sleep(LATE_SECONDS);
        mark(folder, "left", env->rank);
        return STATUS_STOPPED;
    }
    return 1;
}

/* The rank of node 1 ends at a request before the others have joined: they only lose a peer. */
static int role_early(const struct dist_env *env, const char *folder) {
    mark(folder, "up", env->rank);
    if (env->rank == 1) return wait_long();
    signal(SIGTERM, on_term);
    while (!is_requested) clock_sleep(0.01);
    return report_peer_loss();
}

/* Node 1 gets the request; all ranks stop, as in training, and node 2 ends first. */
static int role_other(const struct dist_env *env, const char *folder) {
    signal(SIGTERM, on_term);
    mark(folder, "up", env->rank);
    if (env->rank == 2 && !await(folder, "asked", 1)) return 1;
    while (env->rank != 2 && !is_requested) clock_sleep(0.005);
    if (env->rank == 1) mark(folder, "asked", 1);
    if (env->rank == 1 && !await(folder, "left", 0)) return 1;
    mark(folder, "left", env->rank);
    return STATUS_STOPPED;
}

/* In the first start the rank of node 1 is killed; in the second all ranks wait. */
static int role_restart(const struct dist_env *env, const char *folder) {
    if (env->restart_count > 0) {
        mark(folder, "restarted", env->rank);
        return wait_long();
    }
    for (int i = 0; i < NODES; i++) {
        if (i == env->rank) mark(folder, "up", i);
        if (!await(folder, "up", i)) return 1;
    }
    clock_sleep(1); /* until the launchers have received their links */
    if (env->rank == 1) raise(SIGKILL);
    clock_sleep(0.1);
    return report_peer_loss();
}

/* In the first start the ranks of nodes 0 and 2 exit with 0 before that of node 1 is killed; in the second all do. */
static int role_done(const struct dist_env *env, const char *folder) {
    if (env->restart_count > 0) {
        mark(folder, "restarted", env->rank);
        return 0;
    }
    mark(folder, "up", env->rank);
    for (int i = 0; i < NODES; i++)
        if (!await(folder, "up", i)) return 1;
    clock_sleep(1); /* until the launchers have received their links */
    if (env->rank == 1) raise(SIGKILL);
    return 0;
}

static int role_wait(const struct dist_env *env, const char *folder) {
    mark(folder, "up", env->rank);
    return wait_long();
}

static const struct {
    const char *name;
    int (*run)(const struct dist_env *env, const char *folder);
} roles[] = {{"late", role_late},       {"early", role_early}, {"other", role_other},
             {"restart", role_restart}, {"done", role_done},   {"wait", role_wait}};

static int run_role(const char *name, const char *folder) {
    struct dist_env env;
    if (dist_env_detect(&env)) return 97;
    if (env.restart_count == 0) link_launchers(&env);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(roles[i].name, name) == 0) return roles[i].run(&env, folder);
    return 97;
}

/* ---- the launchers ---- */

struct launchers {
    char folder[64];
    pid_t pids[NODES];
    int out[NODES]; /* pipes with their messages */
};

/* How a launcher ended. */
struct outcome {
    int code;
    char message[1024];
};

static int free_port(void) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    int fd;
    ck_assert_ptr_null(net_listen("127.0.0.1", 0, true, &fd));
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    close(fd);
    return net_port(&address);
}

static struct launchers launchers_start(const char *role, int max_restarts) {
    struct launchers a = {0};
    char path[256];
    int port = free_port();
    snprintf(a.folder, sizeof a.folder, "/tmp/test_launchers.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(a.folder));
    for (int node = 0; node < NODES; node++) {
        int ends[2];
        ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
        fflush(NULL);
        a.pids[node] = fork();
        ck_assert_int_ge(a.pids[node], 0);
        if (a.pids[node] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (int i = 0; i < node; i++) close(a.out[i]);
            char *argv[] = {"test_launchers", "role", (char *)role, a.folder, NULL};
            struct launch_config config = {.nproc = 1,
                                           .nnodes = NODES,
                                           .node_rank = node,
                                           .master_addr = "127.0.0.1",
                                           .master_port = port,
                                           .grace = 20,
                                           .max_restarts = max_restarts,
                                           .saves = true};
            struct log *log = log_create(true, false);
            snprintf(path, sizeof path, "%s/log.%d", a.folder, node);
            status_free(log_open_file(log, path));
            status s = launch_run(&config, argv, log);
            ssize_t length = (ssize_t)strlen(status_message(s));
            _exit(write(ends[1], status_message(s), (size_t)length) == length ? (int)status_code(s) : 96);
        }
        close(ends[1]);
        a.out[node] = ends[0];
    }
    return a;
}

static struct outcome launchers_wait(const struct launchers *a, int node) {
    struct outcome outcome = {0};
    int how;
    ck_assert_int_eq(waitpid(a->pids[node], &how, 0), a->pids[node]);
    outcome.code = WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
    ssize_t received = read(a->out[node], outcome.message, sizeof outcome.message - 1);
    outcome.message[received > 0 ? received : 0] = 0;
    close(a->out[node]);
    return outcome;
}

/* Waits until the ranks of all nodes have marked [name] and their launchers have received the links. */
static void wait_for_all(const struct launchers *a, const char *name) {
    const char *sanitizer = getenv("DDPTRAIN_SANITIZER");
    for (int node = 0; node < NODES; node++) ck_assert(await(a->folder, name, node));
    clock_sleep(sanitizer && *sanitizer ? 3 : 1);
}

static pid_t marked(const struct launchers *a, const char *name, int node) {
    char path[256];
    long pid = 0;
    ck_assert(await(a->folder, name, node));
    snprintf(path, sizeof path, "%s/%s.%d", a->folder, name, node);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%ld", &pid), 1);
    fclose(file);
    return (pid_t)pid;
}

/* Whether the launcher of [node] has logged [what]. */
static bool has_logged(const struct launchers *a, int node, const char *what) {
    char path[256], text[4096];
    snprintf(path, sizeof path, "%s/log.%d", a->folder, node);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return strstr(text, what) != NULL;
}

static void clean(const struct launchers *a) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", a->folder);
    ck_assert_int_eq(system(command), 0);
}

/* ---- tests ---- */

TEST_LOOP(stop_of_one_node_stops_all, 0, 2) {
    static const char *const names[] = {"late", "early"};
    struct launchers a = launchers_start(names[_i], 0);
    wait_for_all(&a, "up");
    kill(a.pids[1], SIGTERM);
    for (int node = 0; node < NODES; node++) {
        struct outcome outcome = launchers_wait(&a, node);
        ck_assert_msg(outcome.code == STATUS_STOPPED, "node %d: %d %s", node, outcome.code, outcome.message);
    }
    clean(&a);
}

/* A message about a stopped node does not claim that the request was sent to that node: its launcher does not know. */
TEST(message_names_no_recipient_of_the_request) {
    struct launchers a = launchers_start("other", 0);
    wait_for_all(&a, "up");
    kill(a.pids[1], SIGTERM);
    for (int node = 0; node < NODES; node++) {
        struct outcome outcome = launchers_wait(&a, node);
        ck_assert_msg(outcome.code == STATUS_STOPPED, "node %d: %d %s", node, outcome.code, outcome.message);
    }
    ck_assert(has_logged(&a, 0, "stopping: the ranks of node 2 have stopped on request\n"));
    for (int node = 0; node < NODES; node++) ck_assert(!has_logged(&a, node, "was asked"));
    clean(&a);
}

TEST_LOOP(stop_between_two_starts, 0, NODES) {
    int stopped = _i;
    struct launchers a = launchers_start("restart", 3);
    pid_t rank = marked(&a, "up", stopped);
    while (kill(rank, 0) == 0) clock_sleep(0.001); /* until it is reaped: the launcher then pauses before the restart */
    kill(a.pids[stopped], SIGTERM);
    for (int node = 0; node < NODES; node++) {
        struct outcome outcome = launchers_wait(&a, node);
        ck_assert_msg(outcome.code == STATUS_STOPPED, "node %d: %d %s", node, outcome.code, outcome.message);
        ck_assert_msg(!strstr(outcome.message, "was asked"), "node %d: %s", node, outcome.message);
    }
    clean(&a);
}

/* A node whose ranks have all exited with 0 starts them again for another node. */
TEST(done_nodes_restart_with_others) {
    struct launchers a = launchers_start("done", 3);
    for (int node = 0; node < NODES; node++) {
        struct outcome outcome = launchers_wait(&a, node);
        ck_assert_msg(outcome.code == 0, "node %d: %d %s", node, outcome.code, outcome.message);
    }
    for (int node = 0; node < NODES; node++) {
        ck_assert_msg(is_marked(a.folder, "restarted", node), "node %d", node);
        if (node != 1) ck_assert(has_logged(&a, node, " was lost after those of this node had ended"));
    }
    clean(&a);
}

/* _i: the node whose launcher is killed, without restarts and then with them. */
TEST_LOOP(lost_node_is_named_by_all, 0, 2 * NODES) {
    int lost = _i % NODES;
    char expected[64];
    struct launchers a = launchers_start(_i < NODES ? "wait" : "restart", _i < NODES ? 0 : 3);
    wait_for_all(&a, _i < NODES ? "up" : "restarted");
    kill(a.pids[lost], SIGKILL);
    snprintf(expected, sizeof expected, "node %d, whose launcher has ended", lost);
    for (int node = 0; node < NODES; node++) {
        struct outcome outcome = launchers_wait(&a, node);
        ck_assert_int_eq(outcome.code, node == lost ? 128 + SIGKILL : STATUS_PEER);
        ck_assert_msg(node == lost || strstr(outcome.message, expected), "node %d: %s", node, outcome.message);
    }
    clean(&a);
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "role") == 0) {
        signals_unblock_stops(); /* as signals_on_stop does in a rank of the program */
        return run_role(argv[2], argv[3]);
    }
    return check_suite("launchers");
}
