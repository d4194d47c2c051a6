/* The store and untrusted clients: silent ones, a flood, ones that send invalid data, and one with another rank's
 * number; and connecting to a port without a listener. ctest-labels: dist */
#include "store_ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>

#include "check_main.h"
#include "dist/store/store_frame.h"

/* The number of connections that the other side has not closed. */
static int still_open(const int *fds, int count) {
    int open = 0;
    char byte;
    for (int i = 0; i < count; i++) open += recv(fds[i], &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
    return open;
}

/* Silent connections: at most MAX_UNAUTHENTICATED are kept, and all are closed after the timeout for joining. */
static void silent_body(const struct dist_env *env, void *argument) {
    (void)argument;
    enum { COUNT = 200, KEPT = 128 };
    if (env->rank == 1) {
        int fds[COUNT];
        clock_sleep(0.2); /* rank 0 listens */
        for (int i = 0; i < COUNT; i++) RANK_CHECK((fds[i] = connect_to_port(env->master_port)) >= 0);
        double end = clock_seconds() + 4;
        while (still_open(fds, COUNT) > KEPT && clock_seconds() < end) clock_sleep(0.02);
        RANK_CHECK(still_open(fds, COUNT) == KEPT);
        end = clock_seconds() + 60;
        while (still_open(fds, COUNT) > 0 && clock_seconds() < end) clock_sleep(0.05);
        RANK_CHECK(still_open(fds, COUNT) == 0);
        for (int i = 0; i < COUNT; i++) close(fds[i]);
    }
    struct store *store = rank_open_store(env, 100);
    store_close(store);
}

TEST(silent_connections_are_closed) { ranks_run(2, silent_body, NULL); }

/* HELLO of a rank that does not know the secret, or of rank 1. */
static bool send_hello(int fd, const struct dist_env *env, struct message_handshake *shake) {
    uint8_t body[STORE_HELLO];
    *shake = (struct message_handshake){
        .job = store_job_hash(env->job_id), .rank = 1, .world = 2, .purpose = FOR_RANK, .client_nonce = {7}};
    struct store_hello hello = {.nonce = shake->client_nonce, .world = 2, .purpose = FOR_RANK};
    struct store_frame frame = {.type = FRAME_HELLO, .rank = 1, .job = shake->job, .body = body, .length = sizeof body};
    store_write_hello(&hello, body);
    return store_send_frame(fd, &(struct message_session){0}, &frame, clock_seconds() + 30);
}

/* A new process that connects [rate] times a second from [host], as one who speaks the protocol, and keeps the last
 * 500 connections. */
static pid_t flood_start(const struct dist_env *env, const char *host, int rate) {
    pid_t pid = fork();
    if (pid != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int fds[500];
    struct message_handshake shake;
    memset(fds, -1, sizeof fds);
    double begin = clock_seconds();
    for (int i = 0;; i++) {
        struct sockaddr_in from = {.sin_family = AF_INET}, to = {.sin_family = AF_INET};
        int *fd = &fds[i % 500];
        if (*fd >= 0) close(*fd);
        *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        to.sin_port = htons((uint16_t)env->master_port);
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        from.sin_addr.s_addr = inet_addr(host);
        if (bind(*fd, (struct sockaddr *)&from, sizeof from) != 0) _exit(1);
        if (connect(*fd, (struct sockaddr *)&to, sizeof to) == 0) send_hello(*fd, env, &shake);
        while (clock_seconds() < begin + (double)i / rate) clock_sleep(0.001);
    }
}

/* The handshake of rank 1 over a network with a round trip of 0.2 s. */
static bool join_slowly(const struct dist_env *env) {
    uint8_t secret[32], body[STORE_MAX_JOINING];
    struct message_session session = {0};
    struct message_handshake shake;
    struct store_frame answer;
    double deadline = clock_seconds() + 30;
    rank_must(dist_env_secret(env, secret));
    int fd = connect_to_port(env->master_port);
    RANK_CHECK(fd >= 0);
    bool is_joined = send_hello(fd, env, &shake) &&
                     store_receive_frame(fd, &session, sizeof body, &answer, body, deadline) &&
                     answer.type == FRAME_CHALLENGE;
    if (is_joined) {
        memcpy(shake.server_nonce, body, MESSAGE_NONCE);
        session_begin(&session, secret, &shake, false);
        struct store_frame proof = {
            .type = FRAME_PROOF, .rank = 1, .job = shake.job, .body = (const uint8_t *)"far", .length = 3};
        clock_sleep(0.2);
        is_joined = store_send_frame(fd, &session, &proof, deadline) &&
                    store_receive_frame(fd, &session, sizeof body, &answer, body, deadline) &&
                    answer.type == FRAME_WELCOME;
        session_end(&session);
    }
    close(fd);
    return is_joined;
}

/* A far rank joins at its first try if the stranger is another host, and after some tries if it has the same address.
 */
static void flood_body(const struct dist_env *env, void *argument) {
    const char *host = argument;
    if (env->rank == 1) {
        clock_sleep(0.2); /* rank 0 listens */
        pid_t flood = flood_start(env, host, 400);
        int tries = strcmp(host, "127.0.0.1") == 0 ? 40 : 1;
        clock_sleep(1);
        while (tries > 0 && !join_slowly(env)) tries--;
        RANK_CHECK(tries > 0);
        struct store *store = rank_open_store(env, 30);
        rank_must(store_set(store, "joined", "x", 1));
        kill(flood, SIGKILL);
        store_close(store);
        return;
    }
    struct store *store = rank_open_store(env, 60);
    char *value;
    rank_must(store_get(store, "joined", 60, (void **)&value, NULL));
    free(value);
    store_close(store);
}

TEST_LOOP(a_flood_of_strangers_keeps_no_rank_out, 0, 2) {
    static char hosts[2][16] = {"127.0.0.2", "127.0.0.1"};
    ranks_run(2, flood_body, hosts[_i]);
}

/* Strangers connect until rank 0 accepts no more. It still has descriptors for a rank and for its files. */
static void reserved_body(const struct dist_env *env, void *argument) {
    (void)argument;
    enum { STRANGERS = 100, SPARE = 10, FILES = 12 };
    if (env->rank == 0) {
        int used = open_descriptors(), fds[FILES];
        struct rlimit limit = {.rlim_cur = (rlim_t)(used + 24 + 1 + SPARE),
                               .rlim_max = (rlim_t)(used + 24 + 1 + SPARE)};
        RANK_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        struct store *store = rank_open_store(env, 30);
        for (int i = 0; i < FILES; i++) RANK_CHECK((fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0);
        for (int i = 0; i < FILES; i++) close(fds[i]);
        rank_must(store_set(store, "opened", NULL, 0));
        store_close(store);
        return;
    }
    int fds[STRANGERS];
    char *value;
    clock_sleep(0.2); /* rank 0 listens */
    for (int i = 0; i < STRANGERS; i++) RANK_CHECK((fds[i] = connect_to_port(env->master_port)) >= 0);
    double end = clock_seconds() + 30;
    while (still_open(fds, STRANGERS) > SPARE + 4 && clock_seconds() < end) clock_sleep(0.02);
    RANK_CHECK(still_open(fds, STRANGERS) <= SPARE + 4);
    struct store *store = rank_open_store(env, 30);
    rank_must(store_get(store, "opened", 30, (void **)&value, NULL));
    free(value);
    for (int i = 0; i < STRANGERS; i++) close(fds[i]);
    store_close(store);
}

TEST(strangers_leave_descriptors) { ranks_run(2, reserved_body, NULL); }

/* Connections that send invalid data, one after the other: each is accepted and closed at once. */
static void many_body(const struct dist_env *env, void *argument) {
    (void)argument;
    enum { COUNT = 40 };
    if (env->rank == 1) {
        char bytes[64];
        clock_sleep(0.2); /* rank 0 listens */
        double begin = clock_seconds();
        for (int i = 0; i < COUNT; i++) {
            int fd = connect_to_port(env->master_port);
            RANK_CHECK(fd >= 0 && send(fd, "no frame of the store, but longer than one.", 43, MSG_NOSIGNAL) == 43);
            while (recv(fd, bytes, sizeof bytes, 0) > 0) continue;
            close(fd);
        }
        RANK_CHECK(clock_seconds() - begin < 100); /* not the timeout for joining each time */
    }
    store_close(rank_open_store(env, 110));
}

TEST(invalid_data_closes_the_connection) { ranks_run(2, many_body, NULL); }

/* A connection that sends a frame of another rank is closed, and its own rank is lost. */
static void false_rank_body(const struct dist_env *env, void *argument) {
    (void)argument;
    if (env->rank == 0) {
        struct store *store = rank_open_store(env, 30);
        void *value;
        rank_expect(store_get(store, "never", 30, &value, NULL), STATUS_PEER,
                    "rank 1 (a test) exited without reporting an error");
        store_close(store);
        return;
    }
    uint8_t secret[32], body[STORE_HEARTBEAT], answer[STORE_MAX_BODY];
    struct store_join join = rank_connection(env, secret, FOR_RANK);
    struct message_session session;
    struct store_frame frame = {
        .type = FRAME_HEARTBEAT, .rank = 1, .job = join.job, .body = body, .length = sizeof body};
    struct store_frame reply;
    int fd;
    store_write_heartbeat(&(struct activity_snapshot){0}, body);
    rank_must(store_join(&join, &fd, &session, &(uint32_t){0}));
    for (int i = 0; i < 3; i++) { /* its own frames are accepted */
        RANK_CHECK(store_send_frame(fd, &session, &frame, clock_seconds() + 30));
        RANK_CHECK(store_receive_frame(fd, &session, sizeof answer, &reply, answer, clock_seconds() + 30));
        RANK_CHECK(reply.type == FRAME_SERVER_HEARTBEAT);
    }
    frame.rank = 0;
    RANK_CHECK(store_send_frame(fd, &session, &frame, clock_seconds() + 30));
    double end = clock_seconds() + 30;
    while (store_receive_frame(fd, &session, sizeof answer, &reply, answer, end)) {
    }
    RANK_CHECK(clock_seconds() < end - 1);
    close(fd);
}

TEST(frame_of_another_rank_closes_the_connection) { ranks_run(2, false_rank_body, NULL); }

/* Whether both ends of the connection are this socket: another process may listen on the port meanwhile. */
static bool is_own_peer(int fd) {
    struct sockaddr_in own, peer;
    socklen_t own_size = sizeof own, peer_size = sizeof peer;
    return getsockname(fd, (struct sockaddr *)&own, &own_size) == 0 &&
           getpeername(fd, (struct sockaddr *)&peer, &peer_size) == 0 && own.sin_port == peer.sin_port;
}

/* Linux connects a socket to itself if its ephemeral port equals the target port, about once in ten thousand tries of
 * an even port. This process does not listen, so every try must fail. */
TEST(connect_to_itself_fails) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    bool is_free = false;
    for (uint16_t port = 40000; !is_free; port += 2) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        address.sin_port = htons(port);
        is_free = bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
        close(fd);
    }
    double end = clock_seconds() + 5;
    for (int i = 0; i < 40000 && clock_seconds() < end; i++) {
        int fd;
        bool is_final;
        status s = net_connect("127.0.0.1", ntohs(address.sin_port), clock_seconds() + 5, &fd, &is_final);
        ck_assert_msg(s != OK || !is_own_peer(fd), "try %d: connected to itself", i);
        if (fd >= 0) close(fd);
        status_free(s);
    }
}

CHECK_MAIN("store_untrusted")
