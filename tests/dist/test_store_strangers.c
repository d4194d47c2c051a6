/* The store and those who are not what they say, or say nothing; a connection to nobody. ctest-labels: dist */
#include "base/text.h"
#include "check_main.h"
#include "dist/store/store_frame.h"
#include "dist/store/store_join.h"
#include "dist/store/store_secret.h"
#include "ranks.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>

static struct store *join_store(const struct dist_env *env, double timeout) {
    struct store *store;
    rank_must(store_open(env, timeout, &store));
    return store;
}

static int knock(int port) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

/* How many of the connections the other side has not closed. */
static int still_open(const int *fds, int count) {
    int open = 0;
    char byte;
    for (int i = 0; i < count; i++) open += recv(fds[i], &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
    return open;
}

/* Strangers that say nothing: so many are kept waiting (MAX_STRANGERS), those that came first go, and none stays for
 * longer than it may take to join. */
static void silent_body(const struct dist_env *env, void *argument) {
    (void)argument;
    enum { COUNT = 80, KEPT = 32 };
    if (env->rank == 1) {
        int fds[COUNT];
        clock_sleep(0.2); /* rank 0 listens */
        for (int i = 0; i < COUNT; i++) RANK_CHECK((fds[i] = knock(env->master_port)) >= 0);
        double end = clock_seconds() + 4;
        while (still_open(fds, COUNT) > KEPT && clock_seconds() < end) clock_sleep(0.02);
        RANK_CHECK(still_open(fds, COUNT) == KEPT && still_open(fds, COUNT - KEPT) == 0);
        end = clock_seconds() + 15;
        while (still_open(fds, COUNT) > 0 && clock_seconds() < end) clock_sleep(0.05);
        RANK_CHECK(still_open(fds, COUNT) == 0);
        for (int i = 0; i < COUNT; i++) close(fds[i]);
    }
    struct store *store = join_store(env, 30);
    store_close(store);
}

START_TEST(silent_strangers) { ranks_run(2, silent_body, NULL); }
END_TEST

/* One after the other; each is taken, and dropped for what it says, without a pause. */
static void many_body(const struct dist_env *env, void *argument) {
    (void)argument;
    enum { COUNT = 40 };
    if (env->rank == 1) {
        char bytes[64];
        clock_sleep(0.2); /* rank 0 listens */
        double begin = clock_seconds();
        for (int i = 0; i < COUNT; i++) {
            int fd = knock(env->master_port);
            RANK_CHECK(fd >= 0 && send(fd, "no frame of the store's, but as long as one", 43, MSG_NOSIGNAL) == 43);
            while (recv(fd, bytes, sizeof bytes, 0) > 0) continue;
            close(fd);
        }
        RANK_CHECK(clock_seconds() - begin < 2);
    }
    store_close(join_store(env, 30));
}

START_TEST(many_strangers) { ranks_run(2, many_body, NULL); }
END_TEST

/* A rank speaks for itself only: a connection that sends a frame of another rank is closed. */
static void false_rank_body(const struct dist_env *env, void *argument) {
    (void)argument;
    struct store *store = join_store(env, 30);
    if (env->rank == 1) {
        uint8_t secret[32], body[STORE_BEAT], tick[STORE_MAX_TICK];
        rank_must(store_secret_find(env, secret));
        struct store_join join = {.host = "127.0.0.1",
                                  .port = env->master_port,
                                  .rank = 1,
                                  .world_size = 2,
                                  .node_size = 2,
                                  .job = store_job_hash(env->job_id),
                                  .secret = secret,
                                  .who = "rank 1",
                                  .deadline = clock_seconds() + 10,
                                  .purpose = FOR_WATCHING};
        struct store_session session;
        struct store_frame beat = {.type = FRAME_BEAT, .rank = 1, .job = join.job, .body = body, .length = sizeof body},
                           reply;
        int fd;
        store_write_beat(&(struct pulse_reading){0}, body);
        rank_must(store_join(&join, &fd, &session, &(uint32_t){0}));
        for (int i = 0; i < 3; i++) { /* its own are answered by ticks */
            RANK_CHECK(store_send_frame(fd, &session, &beat, clock_seconds() + 5));
            RANK_CHECK(store_receive_frame(fd, &session, sizeof tick, &reply, tick, clock_seconds() + 5));
            RANK_CHECK(reply.type == FRAME_TICK);
        }
        beat.rank = 0;
        RANK_CHECK(store_send_frame(fd, &session, &beat, clock_seconds() + 5));
        double end = clock_seconds() + 5;
        while (store_receive_frame(fd, &session, sizeof tick, &reply, tick, end)) {
        }
        RANK_CHECK(clock_seconds() < end - 1);
        close(fd);
        rank_must(store_set(store, "tried", "x", 1)); /* the rank itself is not lost */
    }
    char *value;
    rank_must(store_get(store, "tried", 30, (void **)&value, NULL));
    free(value);
    store_close(store);
}

START_TEST(a_rank_speaks_for_itself) { ranks_run(2, false_rank_body, NULL); }
END_TEST

/* Linux connects a socket to itself when its own port happens to be the wanted one, which happens to one in some ten
 * thousand tries of an even port. Nobody listens, so every try must fail. */
START_TEST(nobody_listens) {
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
        ck_assert_msg(s != OK && fd < 0, "try %d: connected to itself", i);
        status_free(s);
    }
}
END_TEST

TESTS("store_strangers", silent_strangers, many_strangers, a_rank_speaks_for_itself, nobody_listens)
