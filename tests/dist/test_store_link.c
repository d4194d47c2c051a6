/* The link of launchers in the store: which rank may open one, how often, and the log while it is not answered.
 * ctest-labels: dist fault */
#include "store_ranks.h"

#include <poll.h>

#include "check_main.h"
#include "dist/store/store_frame.h"

/* ---- which rank may open a link ---- */

/* Opens a link as [rank]; expects the result [code] with [text]. */
static void open_link(const struct dist_env *env, int rank, enum status_code code, const char *text) {
    uint8_t secret[32];
    int fd;
    struct message_session session;
    struct store_join join = rank_connection(env, secret, FOR_LINK);
    join.rank = rank;
    status s = store_join(&join, &fd, &session, &(uint32_t){0});
    if (!s) close(fd);
    rank_expect(s, code, text);
}

static void link_body(const struct dist_env *env, void *argument) {
    atomic_int *is_done = argument;
    struct store *store;
    rank_must(store_open(env, 20, &store));
    if (env->rank == 0) {
        for (int i = 0; i < 3000 && !atomic_load(is_done); i++) clock_sleep(0.01);
    } else {
        open_link(env, 1, STATUS_OK, "");
        open_link(env, 1, STATUS_USAGE, "rank 1 has connected the launchers already");
        open_link(env, 2, STATUS_USAGE, "rank 2 does not exist");
        store_close(store);
        store = NULL;
        open_link(env, 1, STATUS_USAGE, "rank 1 has left this job already");
        atomic_store(is_done, true);
    }
    store_close(store);
}

TEST(joined_rank_may_open_one_link) { ranks_run(2, link_body, shared_count()); }

/* ---- the log ---- */

#define MAX_PIPES 8

static bool forward(int from, int to) {
    uint8_t bytes[4096];
    ssize_t received = recv(from, bytes, sizeof bytes, MSG_DONTWAIT);
    return received < 0 || (received > 0 && net_send(to, bytes, (size_t)received, clock_seconds() + 5));
}

/* A relay between rank 1 and the store, until it is killed. It accepts the second connection and never answers it. */
static _Noreturn void relay(int listener, int port) {
    struct pollfd polls[1 + 2 * MAX_PIPES] = {{.fd = listener, .events = POLLIN}};
    int accepted = 0;
    nfds_t count = 1;
    for (;;) {
        poll(polls, count, -1);
        for (nfds_t i = 1; i < count; i += 2)
            for (nfds_t side = i; side < i + 2; side++) {
                int from = polls[side].fd, to = polls[side == i ? i + 1 : i].fd;
                if (from < 0 || !polls[side].revents || forward(from, to)) continue;
                close(from);
                close(to);
                polls[i].fd = polls[i + 1].fd = -1;
            }
        int fd = accept(listener, NULL, NULL), onward;
        bool is_final;
        if (fd < 0 || ++accepted == 2 || count + 2 > sizeof polls / sizeof *polls) continue;
        if (net_connect("127.0.0.1", port, clock_seconds() + 5, &onward, &is_final)) _exit(1);
        polls[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
        polls[count++] = (struct pollfd){.fd = onward, .events = POLLIN};
    }
}

/* Sets the environment of a rank whose launcher has no link yet. */
static void set_launcher_environment(int report) {
    char text[32];
    snprintf(text, sizeof text, "%ld", (long)getppid());
    setenv(LAUNCHER_VARIABLE, text, 1);
    snprintf(text, sizeof text, "%d", report);
    setenv(REPORT_FD_VARIABLE, text, 1);
    setenv(LINK_VARIABLE, "1", 1);
}

static void slow_link_body(const struct dist_env *env, void *argument) {
    int report[2], log = memfd_create("said", MFD_CLOEXEC);
    struct dist_env other = *env;
    struct store *store;
    struct store_options options = {.timeout = 60};
    if (env->rank == 1) {
        RANK_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, report) == 0);
        set_launcher_environment(report[1]);
        other.local_rank = 0;
        other.master_port = *(int *)argument;
        dup2(log, STDERR_FILENO);
        options.log = log_create(false, false);
    }
    rank_must(store_open_with(&other, &options, &store));
    if (env->rank == 1) {
        char text[1024] = "", packet[4096];
        RANK_CHECK(pread(log, text, sizeof text - 1, 0) > 0);
        RANK_CHECK(strstr(text, "waiting for rank 0 at 127.0.0.1:"));
        RANK_CHECK(recv(report[0], packet, sizeof packet, MSG_DONTWAIT) > 0); /* the link, opened at last */
        log_destroy(options.log);
        rank_must(store_set(store, "linked", NULL, 0));
    } else {
        SCOPED_MEMORY char *value;
        rank_must(store_get(store, "linked", 60, (void **)&value, NULL));
    }
    store_close(store);
}

TEST(waiting_for_a_link_is_logged) {
    struct ranks ranks;
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    int listener, port;
    ranks_prepare(&ranks, 2);
    ck_assert_ptr_null(net_listen("127.0.0.1", 0, true, &listener));
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    port = net_port(&address);
    pid_t relay_pid = fork();
    if (relay_pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ranks.listener);
        relay(listener, ranks.port);
    }
    close(listener);
    ranks_start(&ranks, slow_link_body, &port);
    ranks_wait(&ranks);
    kill(relay_pid, SIGKILL);
    waitpid(relay_pid, NULL, 0);
    ck_assert_int_eq(ranks.codes[0], 0);
    ck_assert_int_eq(ranks.codes[1], 0);
}

CHECK_MAIN("store_link")
