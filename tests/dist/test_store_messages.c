/* Messages about the store: rank 0's log while it waits for others, failures when rank 0 does not answer, and the
 * reason of a rank that its launcher or a request ends. ctest-labels: dist */
#include "ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/stop.h"
#include "check_main.h"
#include "dist/process/launcher_channel.h"

/* ---- rank 0's log ---- */

static const struct {
    bool is_one_host;
    double late; /* seconds after which rank 1 joins */
    const char *expected;
} logs[] = {
    {true, 0, ""},
    {false, 0, "rank 0 is reached at 127.0.0.1 (lo); " INTERFACE_VARIABLE " chooses another interface for the data\n"},
    {true, 4, "waiting for 1 of 2 ranks: 1\nall 2 ranks have joined\n"},
};

static void log_body(const struct dist_env *env, void *argument) {
    const int number = *(const int *)argument;
    struct dist_env mine = *env;
    struct store_options options = {.timeout = 20};
    struct store *store;
    char text[1024], *value;
    int log = memfd_create("said", MFD_CLOEXEC), own = dup(STDERR_FILENO);
    if (!logs[number].is_one_host) mine.local_rank = 0, mine.local_world_size = 1;
    if (env->rank == 0) {
        RANK_CHECK(dup2(log, STDERR_FILENO) >= 0);
        options.log = log_create(false, false);
    } else {
        clock_sleep(logs[number].late);
    }
    rank_must(store_open_with(&mine, &options, &store));
    if (env->rank == 0) {
        clock_sleep(0.6); /* three heartbeats of the server */
        RANK_CHECK(dup2(own, STDERR_FILENO) >= 0);
        ssize_t size = pread(log, text, sizeof text - 1, 0);
        text[size < 0 ? 0 : size] = 0;
        if (strcmp(text, logs[number].expected) != 0) fprintf(stderr, "the log is '%s'\n", text);
        RANK_CHECK(strcmp(text, logs[number].expected) == 0);
        rank_must(store_set(store, "read", NULL, 0));
    } else {
        rank_must(store_get(store, "read", 20, (void **)&value, NULL));
        free(value);
    }
    store_close(store);
    log_destroy(options.log);
}

TEST_EACH(missing_ranks_and_address_are_logged, logs) {
    int number = _i;
    ranks_run(2, log_body, &number);
}

/* ---- no answer ---- */

/* Expects that rank 0 does not answer. Returns whether the reason is [why]. */
static bool has_no_answer(const struct ranks *ranks, const char *why) {
    struct dist_env env = ranks_env(ranks, 1);
    struct store *store;
    double begin = clock_seconds();
    status s = store_open(&env, 0.4, &store);
    char expected[200];
    ck_assert_int_eq(status_code(s), STATUS_PEER);
    snprintf(expected, sizeof expected, "rank 0 did not answer at 127.0.0.1:%d within ", ranks->port);
    ck_assert_msg(strstr(status_message(s), expected), "%s", status_message(s));
    ck_assert_double_lt(clock_seconds() - begin, 60);
    bool is_why = strstr(status_message(s), why);
    status_free(s);
    return is_why;
}

TEST(silent_listener_is_reported) {
    struct ranks ranks;
    ranks_prepare(&ranks, 2);
    ck_assert(has_no_answer(&ranks, "(the connection was accepted but nothing was sent)"));
    close(ranks.listener);
}

/* Accepts connections, reads once and closes them, until the listener is shut down. */
static void *accept_and_close(void *argument) {
    char bytes[1000];
    for (int fd; (fd = accept(*(const int *)argument, NULL, NULL)) >= 0; close(fd))
        if (recv(fd, bytes, sizeof bytes, 0) < 0) continue;
    return NULL;
}

TEST(closed_connection_is_reported) {
    struct ranks ranks;
    pthread_t thread;
    ranks_prepare(&ranks, 2);
    fcntl(ranks.listener, F_SETFL, 0); /* blocking */
    ck_assert_int_eq(pthread_create(&thread, NULL, accept_and_close, &ranks.listener), 0);
    bool is_reported =
        false; /* on a loaded machine the time may end before the thread has closed the last connection */
    for (int i = 0; i < 20 && !is_reported; i++) is_reported = has_no_answer(&ranks, "(the connection was closed)");
    ck_assert(is_reported);
    shutdown(ranks.listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(ranks.listener);
}

/* Connections that are not accepted fill the listener's queue; the next one gets no answer. */
TEST(connect_times_out) {
    struct ranks ranks;
    int fds[8], fd;
    bool is_final;
    ranks_prepare(&ranks, 2);
    ck_assert_int_eq(listen(ranks.listener, 0), 0);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)ranks.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0; i < 8; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (connect(fds[i], (struct sockaddr *)&address, sizeof address) < 0) ck_assert_int_eq(errno, EINPROGRESS);
    }
    double begin = clock_seconds();
    status s = net_connect("127.0.0.1", ranks.port, begin + 0.3, &fd, &is_final);
    ck_assert_msg(status_code(s) == STATUS_PEER && strstr(status_message(s), "Connection timed out"), "%s",
                  status_message(s));
    ck_assert_double_ge(clock_seconds() - begin, 0.3);
    ck_assert_int_eq(fd, -1);
    ck_assert(!is_final);
    status_free(s);
    for (int i = 0; i < 8; i++) close(fds[i]);
    close(ranks.listener);
}

/* ---- a connection that breaks ---- */

/* This process's connection to rank 0. */
static int request_connection(int port) {
    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_storage there;
        socklen_t size = sizeof there;
        if (getpeername(fd, (struct sockaddr *)&there, &size) == 0 && net_port(&there) == port) return fd;
    }
    return -1;
}

static void expect_peer(status s, const char *words) {
    if (status_code(s) != STATUS_PEER || !strstr(status_message(s), words)) rank_must(s);
    RANK_CHECK(s);
    status_free(s);
}

static void broken_body(const struct dist_env *env, void *argument) {
    (void)argument;
    struct store *store;
    void *value;
    rank_must(store_open(env, 20, &store));
    if (env->rank == 1) {
        int fd = request_connection(env->master_port);
        RANK_CHECK(fd >= 0 && shutdown(fd, SHUT_RDWR) == 0);
        expect_peer(store_set(store, "key", NULL, 0),
                    "exited without reporting an error, or the connection to it broke");
        expect_peer(store_set(store, "key", NULL, 0), "the connection to rank 0 at 127.0.0.1:");
    } else {
        expect_peer(store_get(store, "never", 20, &value, NULL), "exited without reporting an error");
    }
    store_close(store);
}

TEST(broken_connection_is_reported) { ranks_run(2, broken_body, NULL); }

/* ---- out of descriptors ---- */

/* store_open closes all descriptors that it has opened, wherever it fails. */
TEST(descriptors_are_closed) {
    int before = open_descriptors();
    struct rlimit all, few;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &all), 0);
    for (int more = 1; more < 16; more++) {
        struct ranks ranks;
        struct store *store;
        ranks_prepare(&ranks, 2);
        struct dist_env env = ranks_env(&ranks, 0);
        status failure = status_new(STATUS_DATA, "bad data"), s;
        few = (struct rlimit){.rlim_cur = (rlim_t)(before + more), .rlim_max = all.rlim_max};
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
        s = store_open_with(&env, &(struct store_options){.timeout = 0.05, .failure = failure}, &store);
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &all), 0);
        ck_assert_ptr_null(store);
        const char *expected = status_code(s) == STATUS_IO ? "Too many open files" : "rank 1 of 2 did not join rank 0";
        ck_assert_msg(strstr(status_message(s), expected), "%d more: %s", more, status_message(s));
        ck_assert_msg(open_descriptors() == before, "%d more: %s", more, status_message(s));
        status_free(s);
        status_free(failure);
    }
}

/* ---- ended before training ---- */

/* The message that rank 1 gets from its launcher before SIGTERM (-1: none), and the failure of the other ranks. */
static const struct {
    int message;
    bool is_inference;
    enum status_code code;
    const char *reason;
} ends[] = {
    {-1, false, STATUS_STOPPED, "): " STOPPED_BEFORE_TRAINING},
    {-1, true, STATUS_STOPPED, "): " STOPPED_ON_REQUEST},
    {MESSAGE_RANK_EXIT, false, STATUS_PEER, ") was ended by a test"},
    {MESSAGE_TERMINATE, false, STATUS_PEER, "): ended by its launcher, because another rank of its node had failed"},
};

/* Sets the environment of a rank whose launcher sends on the socket [exits]. */
static void set_launcher_environment(int exits[2]) {
    char text[32];
    snprintf(text, sizeof text, "%ld", (long)getppid());
    setenv(LAUNCHER_VARIABLE, text, 1);
    RANK_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, exits) == 0);
    snprintf(text, sizeof text, "%d", exits[1]);
    setenv(EXITS_FD_VARIABLE, text, 1);
}

/* Waits until all ranks have opened their stores, since the message for a rank that is joining differs. */
static void send_to_rank(struct store *store, int exits, int message) {
    struct launcher_packet packet = {.message = message, .number = 2, .text = " was ended by a test"};
    for (int rank = 0; rank <= 2; rank += 2) {
        SCOPED_MEMORY void *value;
        rank_must(store_get(store, rank ? "rank 2 is open" : "rank 0 is open", 20, &value, NULL));
    }
    if (message >= 0) RANK_CHECK(send(exits, &packet, sizeof packet, 0) == sizeof packet);
}

static void ended_body(const struct dist_env *env, void *argument) {
    const int number = *(const int *)argument;
    struct store_options options = {.timeout = 20, .is_inference = ends[number].is_inference};
    struct store *store;
    void *value;
    int exits[2];
    if (env->rank == 1) {
        options.forwards_stop = true;
        set_launcher_environment(exits);
    }
    rank_must(store_open_with(env, &options, &store));
    if (env->rank == 1) {
        send_to_rank(store, exits[0], ends[number].message);
        clock_sleep(ends[number].message < 0 ? 0 : 1); /* the launcher's message arrives before the signal */
        RANK_CHECK(stop_request());
    } else {
        rank_must(store_set(store, env->rank ? "rank 2 is open" : "rank 0 is open", NULL, 0));
        status s = store_get(store, "never", 20, &value, NULL);
        size_t length = strlen(status_message(s)), end = strlen(ends[number].reason);
        if (status_code(s) != ends[number].code || length < end ||
            strcmp(status_message(s) + length - end, ends[number].reason) != 0)
            rank_must(s);
        RANK_CHECK(
            strstr(status_message(s), ends[number].message == MESSAGE_RANK_EXIT ? "rank 2 (host " : "rank 1 (host "));
        status_free(s);
    }
    store_close(store);
    RANK_CHECK(!stop_request());
}

TEST_EACH(end_before_training_is_reported, ends) {
    int number = _i;
    ranks_run(3, ended_body, &number);
}

CHECK_MAIN("store_messages")
