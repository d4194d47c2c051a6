/* Links between launchers: how a launcher handles a closed link, a reset, and a reset after silence (a network
 * failure), and which messages node 0 forwards. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "check_main.h"
#include "dist/launch/launch_internal.h"
#include "dist/process/message.h"
#include "dist/store/store_frame.h"
#include "files.h"
#include "no_memory.h"

#define MAGIC 0x4c504444u

enum { HELLO, DONE, RESTART, JOB_DONE, STOPPED, LOST, LOST_AFTER_DONE }; /* as in launch_nodes.c */
#define SILENCE_US 3300000 /* more than SILENCE_SECONDS of launch_nodes.c */

static struct launch_nodes *make_nodes(int count, int own) {
    struct launch_nodes *nodes;
    ck_ok(launch_nodes_create(count, own, &nodes));
    return nodes;
}

/* The two ends of a new TCP connection. */
static void connect_ends(int *one, int *other) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, size), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    *one = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(*one, (struct sockaddr *)&address, size), 0);
    *other = accept(listener, NULL, NULL);
    ck_assert_int_ge(*other, 0);
    setsockopt(*other, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = 5}, sizeof(struct timeval));
    close(listener);
}

/* The end of a link where the test takes the part of the launcher. */
struct peer {
    int fd;
    struct message_session session;
};

#define CONTENT_SIZE 12
#define MESSAGE_SIZE (CONTENT_SIZE + SESSION_TAG)

static void make_message(struct peer *p, uint32_t message, uint32_t number, uint8_t bytes[MESSAGE_SIZE]) {
    store_write_u32(bytes, MAGIC);
    store_write_u32(bytes + 4, message);
    store_write_u32(bytes + 8, number);
    session_sign(&p->session, bytes, CONTENT_SIZE, bytes + CONTENT_SIZE);
}

static void send_bytes(const struct peer *p, const uint8_t bytes[MESSAGE_SIZE]) {
    ck_assert_int_eq(send(p->fd, bytes, MESSAGE_SIZE, MSG_NOSIGNAL), MESSAGE_SIZE);
}

static void send_message(struct peer *p, uint32_t message, uint32_t number) {
    uint8_t bytes[MESSAGE_SIZE];
    make_message(p, message, number, bytes);
    send_bytes(p, bytes);
}

/* The sessions of the two ends of a connection. */
static void make_sessions(struct message_session *client, struct message_session *server) {
    static const uint8_t secret[32] = "a secret of this job";
    struct message_handshake shake = {.rank = 1};
    session_begin(client, secret, &shake, false);
    session_begin(server, secret, &shake, true);
}

/* Gives node 1 a link to node 0 and waits until its HELLO has arrived. Returns the end of node 0. */
static struct peer link_up(struct launch_nodes *nodes) {
    struct peer other;
    struct message_session session;
    int own;
    make_sessions(&session, &other.session);
    connect_ends(&own, &other.fd);
    launch_nodes_set_link(nodes, 0, own, &session);
    send_message(&other, HELLO, 0);
    for (int i = 0; i < 6000 && launch_nodes_need_link(nodes); i++) usleep(10000);
    ck_assert(!launch_nodes_need_link(nodes));
    return other;
}

static void reset(int fd) {
    struct linger linger = {.l_onoff = 1};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    close(fd);
}

static void read_for_200_ms(struct launch_nodes *nodes) {
    for (int i = 0; i < 20; i++) {
        usleep(10000);
        launch_nodes_read(nodes);
    }
}

TEST_LOOP(closed_link_is_a_loss_until_a_new_link, 0, 2) {
    struct launch_nodes *nodes = make_nodes(2, 1);
    ck_assert(launch_nodes_need_link(nodes));
    struct peer other = link_up(nodes);
    ck_assert_int_eq(launch_nodes_lost(nodes), -1);
    _i == 0 ? (void)close(other.fd) : reset(other.fd);
    read_for_200_ms(nodes);
    ck_assert_int_eq(launch_nodes_lost(nodes), 0);
    ck_assert_int_eq(launch_nodes_lost_unfinished(nodes, 60), -1);
    other = link_up(nodes);
    ck_assert_int_eq(launch_nodes_lost(nodes), -1);
    launch_nodes_destroy(nodes);
    close(other.fd);
}

TEST(reset_after_silence_is_no_loss) {
    struct launch_nodes *nodes = make_nodes(2, 1);
    struct peer other = link_up(nodes);
    usleep(SILENCE_US);
    ck_assert(launch_nodes_need_link(nodes)); /* before the connection is closed */
    reset(other.fd);
    read_for_200_ms(nodes);
    ck_assert_int_eq(launch_nodes_lost(nodes), -1);
    launch_nodes_destroy(nodes);
}

/* The number of messages that arrive until none has arrived for 0.3 s; all must be authentic. */
static int read_messages(struct peer *p) {
    struct timeval timeout = {.tv_usec = 300000};
    uint8_t bytes[MESSAGE_SIZE];
    size_t size = 0;
    int count = 0;
    setsockopt(p->fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    for (ssize_t received; (received = recv(p->fd, bytes + size, sizeof bytes - size, 0)) > 0;) {
        size = (size + (size_t)received) % sizeof bytes;
        if (size > 0) continue;
        ck_assert(session_verify(&p->session, bytes, CONTENT_SIZE, NULL, 0, bytes + CONTENT_SIZE));
        count++;
    }
    return count;
}

/* After a message that did not fit into the send buffer, no other is sent: its tag would be wrong. */
TEST(message_without_space_is_the_last) {
    enum { MANY = 300000 };
    struct launch_nodes *nodes = make_nodes(2, 1);
    struct peer other = link_up(nodes);
    for (int i = 0; i < MANY; i++) launch_nodes_send_restart(nodes, i);
    ck_assert_int_lt(read_messages(&other), MANY);
    launch_nodes_send_restart(nodes, MANY);
    read_messages(&other);
    launch_nodes_destroy(nodes);
    close(other.fd);
}

/* ---- three nodes ---- */

/* Node 0, node 1 with a link to it, and the other end of node 0's link to node 2. */
struct trio {
    struct launch_nodes *hub, *other;
    struct peer third;
};

static void read_all(struct trio *t) {
    for (int i = 0; i < 20; i++) {
        usleep(10000);
        launch_nodes_read(t->hub);
        launch_nodes_read(t->other);
    }
}

static struct trio trio_create(void) {
    struct trio t = {.hub = make_nodes(3, 0), .other = make_nodes(3, 1)};
    struct message_session client, server;
    int hub_end, end;
    make_sessions(&client, &server);
    connect_ends(&hub_end, &end);
    launch_nodes_set_link(t.hub, 1, hub_end, &server);
    launch_nodes_set_link(t.other, 0, end, &client);
    make_sessions(&t.third.session, &server);
    connect_ends(&hub_end, &t.third.fd);
    launch_nodes_set_link(t.hub, 2, hub_end, &server);
    send_message(&t.third, HELLO, 0);
    read_all(&t);
    ck_assert(!launch_nodes_need_link(t.other));
    return t;
}

static void trio_destroy(struct trio *t) {
    launch_nodes_destroy(t->hub);
    launch_nodes_destroy(t->other);
}

/* Three nodes of which the third has closed its link, after a DONE or none: again where this process got no time for so
 * long that this counts as a failure of the network. */
static struct trio trio_without_third(bool is_done) {
    for (;;) {
        double begin = clock_seconds();
        struct trio t = trio_create();
        if (is_done) send_message(&t.third, DONE, 0);
        close(t.third.fd);
        read_all(&t);
        if (clock_seconds() - begin < 2.5) return t;
        trio_destroy(&t);
    }
}

TEST(loss_is_forwarded) {
    struct trio t = trio_without_third(false);
    ck_assert_int_eq(launch_nodes_lost(t.hub), 2);
    ck_assert_int_eq(launch_nodes_lost_unfinished(t.hub, 0), 2);
    ck_assert_int_eq(launch_nodes_lost_unfinished(t.hub, 60), -1);
    launch_nodes_destroy(t.hub);
    t.hub = NULL;
    read_all(&t);
    ck_assert_int_eq(launch_nodes_lost(t.other), 2);
    ck_assert_int_eq(launch_nodes_lost_unfinished(t.other, 0), 2);
    ck_assert_int_eq(launch_nodes_stopped(t.other), -1);
    trio_destroy(&t);
}

TEST(stop_is_no_loss) {
    struct trio t = trio_create();
    send_message(&t.third, STOPPED, 2);
    close(t.third.fd);
    read_all(&t);
    launch_nodes_send_stopped(t.hub);
    launch_nodes_destroy(t.hub);
    t.hub = NULL;
    read_all(&t);
    ck_assert_int_eq(launch_nodes_stopped(t.other), 2);
    ck_assert_int_eq(launch_nodes_lost(t.other), -1);
    trio_destroy(&t);
}

/* The ranks of node 2 have all exited with 0: no rank waits for it, but a restart needs it. */
TEST(node_may_end_after_done) {
    struct trio t = trio_without_third(true);
    ck_assert_int_eq(launch_nodes_lost_unfinished(t.hub, 0), -1);
    ck_assert_int_eq(launch_nodes_lost_unfinished(t.other, 0), -1);
    ck_assert_double_eq(launch_nodes_lost_unfinished_time(t.other, 2), 0);
    ck_assert_int_eq(launch_nodes_lost(t.hub), 2);
    ck_assert_int_eq(launch_nodes_lost(t.other), 2);
    launch_nodes_send_restart(t.other, 1);
    ck_assert_int_eq(launch_nodes_lost_unfinished(t.other, 0), 2);
    ck_assert(launch_nodes_lost_unfinished_time(t.other, 2) > 0);
    trio_destroy(&t);
}

/* Only node 0 may report losses, and there is no node 3. */
TEST(invalid_messages_are_ignored) {
    struct trio t = trio_create();
    for (uint32_t message = STOPPED; message <= LOST_AFTER_DONE + 1; message++) send_message(&t.third, message, 3);
    send_message(&t.third, STOPPED, UINT32_MAX);
    send_message(&t.third, STOPPED, 0);
    send_message(&t.third, LOST, 1);
    send_message(&t.third, LOST_AFTER_DONE, 1);
    read_all(&t);
    ck_assert_int_eq(launch_nodes_lost(t.hub), -1);
    ck_assert_int_eq(launch_nodes_stopped(t.hub), -1);
    ck_assert_int_eq(launch_nodes_lost(t.other), -1);
    ck_assert_int_eq(launch_nodes_stopped(t.other), -1);
    trio_destroy(&t);
    close(t.third.fd);
}

TEST(message_in_two_parts) {
    struct trio t = trio_create();
    uint8_t bytes[MESSAGE_SIZE];
    make_message(&t.third, STOPPED, 2, bytes);
    ck_assert_int_eq(send(t.third.fd, bytes, 7, MSG_NOSIGNAL), 7);
    read_all(&t);
    ck_assert_int_eq(launch_nodes_stopped(t.hub), -1);
    ck_assert_int_eq(launch_nodes_lost(t.hub), -1);
    ck_assert_int_eq(send(t.third.fd, bytes + 7, MESSAGE_SIZE - 7, MSG_NOSIGNAL), MESSAGE_SIZE - 7);
    read_all(&t);
    ck_assert_int_eq(launch_nodes_stopped(t.hub), 2);
    ck_assert_int_eq(launch_nodes_lost(t.hub), -1);
    trio_destroy(&t);
    close(t.third.fd);
}

/* Who connects and sends no message was no launcher. */
TEST(silent_link_is_no_loss) {
    struct launch_nodes *nodes = make_nodes(2, 0);
    struct message_session client, server;
    int own, other;
    make_sessions(&client, &server);
    connect_ends(&own, &other);
    launch_nodes_set_link(nodes, 1, own, &server);
    close(other);
    read_for_200_ms(nodes);
    ck_assert_int_eq(launch_nodes_lost(nodes), -1);
    launch_nodes_destroy(nodes);
}

/* ---- reports ---- */

/* The result of launch_nodes_need_report, and which of the three nodes are informed, as digits. */
static void check_report(const struct launch_nodes *nodes, bool is_needed, const char *expected) {
    bool informed[3];
    ck_assert(launch_nodes_need_report(nodes, informed) == is_needed);
    for (int i = 0; i < 3; i++) ck_assert_msg(informed[i] == (expected[i] == '1'), "node %d, expected %s", i, expected);
}

TEST(nodes_that_joined_need_no_report) {
    struct launch_nodes *hub = make_nodes(3, 0), *other = make_nodes(3, 1);
    check_report(hub, true, "100");
    launch_nodes_joined(hub, 2);
    check_report(hub, true, "101");
    launch_nodes_joined(hub, 1);
    check_report(hub, false, "111");
    launch_nodes_send_restart(hub, 1);
    check_report(hub, true, "100");
    launch_nodes_joined(hub, -1);
    check_report(hub, false, "111");
    check_report(other, true, "010"); /* to rank 0's store, which informs node 2 */
    launch_nodes_joined(other, 2);
    check_report(other, true, "011");
    launch_nodes_joined(other, -1);
    check_report(other, false, "111");
    launch_nodes_send_restart(other, 1);
    launch_nodes_joined(other, 1);
    check_report(other, false, "010");
    launch_nodes_destroy(hub);
    launch_nodes_destroy(other);
}

/* ---- tampering ---- */

enum { ALTERED, REPEATED, LEFT_OUT, SWAPPED, FORGED, REFLECTED, TAMPERINGS };

static void tamper(struct peer *p, int how) {
    uint8_t one[MESSAGE_SIZE], two[MESSAGE_SIZE], own[MESSAGE_SIZE];
    make_message(p, RESTART, 1, one);
    make_message(p, STOPPED, 2, two);
    switch (how) {
    case ALTERED:
        one[8] ^= 2;
        send_bytes(p, one);
        break;
    case REPEATED:
        send_bytes(p, one);
        send_bytes(p, one);
        break;
    case LEFT_OUT:
        send_bytes(p, two);
        break;
    case SWAPPED:
        send_bytes(p, two);
        send_bytes(p, one);
        break;
    case FORGED:
        memset(two + CONTENT_SIZE, 0, SESSION_TAG);
        send_bytes(p, two);
        break;
    default: /* REFLECTED: a message of the other side, HELLO */
        ck_assert_int_eq(recv(p->fd, own, MESSAGE_SIZE, 0), MESSAGE_SIZE);
        send_bytes(p, own);
    }
}

/* The link is closed with that reason, and later messages are ignored. */
TEST_LOOP(wrong_tag_closes_the_link, 0, TAMPERINGS) {
    struct trio t = trio_create();
    tamper(&t.third, _i);
    send_message(&t.third, STOPPED, 2);
    read_all(&t);
    ck_assert_int_eq(launch_nodes_stopped(t.hub), -1);
    ck_assert_int_eq(launch_nodes_stopped(t.other), -1);
    ck_assert_int_eq(launch_nodes_lost(t.hub), 2);
    ck_assert_ptr_nonnull(strstr(launch_nodes_describe_loss(t.hub, 2), "was tampered with or corrupted"));
    ck_assert_str_eq(launch_nodes_describe_loss(t.hub, 1), "has ended");
    trio_destroy(&t);
    close(t.third.fd);
}

/* ---- the end of a start ---- */

static void expect_message(struct peer *p, uint32_t message, uint32_t number) {
    uint8_t bytes[MESSAGE_SIZE];
    ck_assert_int_eq(recv(p->fd, bytes, MESSAGE_SIZE, MSG_WAITALL), MESSAGE_SIZE);
    ck_assert(session_verify(&p->session, bytes, CONTENT_SIZE, NULL, 0, bytes + CONTENT_SIZE));
    ck_assert_uint_eq(store_read_u32(bytes + 4), message);
    ck_assert_uint_eq(store_read_u32(bytes + 8), number);
}

/* Calls launch_nodes_wait_done at the end of start 3; it must not wait for long. Returns its code; *newer is -1 or the
 * restart count of a newer start. */
static enum status_code wait_done(struct launch_nodes *nodes, int signals, const char *expected, int64_t *newer) {
    double begin = clock_seconds();
    *newer = -1;
    status s = launch_nodes_wait_done(nodes, signals, 3, newer);
    enum status_code code = status_code(s);
    ck_assert_msg(!s || strstr(status_message(s), expected), "%s", status_message(s));
    ck_assert_double_lt(clock_seconds() - begin, 20); /* the timeout is 30 s */
    status_free(s);
    return code;
}

/* Gives node 0 a link to node 1. Returns the end of node 1. */
static struct peer link_of_hub(struct launch_nodes *hub) {
    struct peer other;
    struct message_session session;
    int own;
    make_sessions(&other.session, &session);
    connect_ends(&own, &other.fd);
    launch_nodes_set_link(hub, 1, own, &session);
    send_message(&other, HELLO, 0);
    expect_message(&other, HELLO, 0);
    return other;
}

TEST(node_0_waits_for_the_same_start_of_all) {
    int64_t newer;
    struct launch_nodes *hub = make_nodes(2, 0);
    struct peer other = link_of_hub(hub);
    send_message(&other, RESTART, 3); /* of the start that has ended now */
    send_message(&other, DONE, 3);
    ck_assert_int_eq(wait_done(hub, -1, "", &newer), STATUS_OK);
    ck_assert_int_eq(newer, -1);
    expect_message(&other, JOB_DONE, 3);
    send_message(&other, DONE, 2); /* of an older start: ignored */
    send_message(&other, RESTART, 5);
    ck_assert_int_eq(wait_done(hub, -1, "a rank of node 1 was lost", &newer), STATUS_PEER);
    ck_assert_int_eq(newer, 5);
    launch_nodes_destroy(hub);
    ck_assert_int_eq(recv(other.fd, &newer, sizeof newer, 0), 0); /* no other message */
    close(other.fd);
}

TEST(others_wait_for_node_0) {
    int64_t newer;
    struct launch_nodes *nodes = make_nodes(2, 1);
    struct peer hub = link_up(nodes);
    expect_message(&hub, HELLO, 0);
    send_message(&hub, RESTART, 4);
    ck_assert_int_eq(wait_done(nodes, -1, "a rank of node 0 was lost", &newer), STATUS_PEER);
    ck_assert_int_eq(newer, 4);
    expect_message(&hub, DONE, 3);
    launch_nodes_destroy(nodes);
    close(hub.fd);

    nodes = make_nodes(2, 1);
    hub = link_up(nodes);
    expect_message(&hub, HELLO, 0);
    send_message(&hub, JOB_DONE, 3);
    ck_assert_int_eq(wait_done(nodes, -1, "", &newer), STATUS_OK);
    expect_message(&hub, DONE, 3);
    launch_nodes_destroy(nodes);
    ck_assert_int_eq(recv(hub.fd, &newer, sizeof newer, 0), 0);
    close(hub.fd);
}

/* No other node is left. */
TEST_LOOP(closed_link_ends_the_wait, 0, 2) {
    int64_t newer;
    struct launch_nodes *nodes = make_nodes(2, _i), *none = NULL;
    struct peer other = _i == 0 ? link_of_hub(nodes) : link_up(nodes);
    close(other.fd);
    ck_assert_int_eq(wait_done(nodes, -1, "", &newer), STATUS_OK);
    ck_assert_int_eq(wait_done(none, -1, "", &newer), STATUS_OK);
    launch_nodes_destroy(nodes);
}

/* SIGCHLD does not end the wait, SIGTERM does. */
TEST(signal_ends_the_wait) {
    int64_t newer;
    int signals[2];
    struct signalfd_siginfo child = {.ssi_signo = SIGCHLD}, term = {.ssi_signo = SIGTERM};
    struct launch_nodes *hub = make_nodes(2, 0);
    struct peer other = link_of_hub(hub);
    ck_assert_int_eq(pipe2(signals, O_NONBLOCK), 0);
    ck_assert_int_eq(write(signals[1], &child, sizeof child), sizeof child);
    ck_assert_int_eq(write(signals[1], &term, sizeof term), sizeof term);
    ck_assert_int_eq(wait_done(hub, signals[0], "stopped on request after the ranks of this node had ended", &newer),
                     STATUS_STOPPED);
    ck_assert_int_eq(read(signals[0], &child, sizeof child), -1); /* both were read */
    close(signals[0]);
    close(signals[1]);
    launch_nodes_destroy(hub);
    close(other.fd);
}

/* Only links and signals end the poll, not a standard input whose other end is closed: the wait needs no processor. */
TEST(wait_ignores_standard_input) {
    int64_t newer;
    int signals[2], closed[2], saved = dup(STDIN_FILENO);
    struct signalfd_siginfo term = {.ssi_signo = SIGTERM};
    struct launch_nodes *hub = make_nodes(3, 0);
    struct peer other = link_of_hub(hub);
    ck_assert_int_eq(pipe2(closed, O_CLOEXEC), 0);
    ck_assert_int_eq(dup2(closed[0], STDIN_FILENO), STDIN_FILENO);
    close(closed[0]);
    close(closed[1]);
    ck_assert_int_eq(pipe2(signals, O_NONBLOCK), 0);
    double begin = cpu_seconds();
    pid_t child = fork();
    if (child == 0) {
        usleep(500000);
        _exit(write(signals[1], &term, sizeof term) != sizeof term);
    }
    ck_assert_int_eq(wait_done(hub, signals[0], "stopped on request", &newer), STATUS_STOPPED);
    ck_assert_double_lt(cpu_seconds() - begin, 0.2);
    int wait_status;
    ck_assert_int_eq(waitpid(child, &wait_status, 0), child);
    ck_assert_int_eq(wait_status, 0);
    ck_assert_int_eq(dup2(saved, STDIN_FILENO), saved >= 0 ? STDIN_FILENO : -1);
    close(saved);
    close(signals[0]);
    close(signals[1]);
    launch_nodes_destroy(hub);
    close(other.fd);
}

/* All ranks of nodes 0 and 1 have exited with 0 when node 2 stops on request. */
TEST(stop_of_another_node_ends_the_wait) {
    struct trio t = trio_create();
    int64_t newer = 0;
    double begin = clock_seconds();
    send_message(&t.third, STOPPED, 2);
    status s = launch_nodes_wait_done(t.hub, -1, 0, &newer);
    ck_assert_int_eq(status_code(s), STATUS_STOPPED);
    status_free(s);
    s = launch_nodes_wait_done(t.other, -1, 0, &newer);
    ck_assert_int_eq(status_code(s), STATUS_STOPPED);
    status_free(s);
    ck_assert_double_lt(clock_seconds() - begin, 20); /* the timeout is 30 s each */
    trio_destroy(&t);
    close(t.third.fd);
}

TEST(links_of_unknown_nodes_are_closed) {
    struct launch_nodes *nodes = make_nodes(2, 1), *none = NULL;
    static const int numbers[] = {-1, 1, 2, 70000}; /* 1: its own */
    struct message_session session, unused;
    make_sessions(&session, &unused);
    for (int i = 0; i < 5; i++) {
        int own, other;
        char byte;
        connect_ends(&own, &other);
        launch_nodes_set_link(i < 4 ? nodes : none, i < 4 ? numbers[i] : 0, own, &session);
        ck_assert_int_eq(read(other, &byte, 1), 0); /* closed */
        close(other);
    }
    launch_nodes_destroy(nodes);
}

/* NULL means one node, so a launcher must not continue with it. */
TEST(no_memory_is_a_failure) {
    struct launch_nodes *nodes;
    if (!CAN_FAIL_ALLOCATIONS) return;
    allocations_left = 1;
    status s = launch_nodes_create(2, 0, &nodes);
    allocations_left = 0;
    ck_assert_ptr_null(nodes);
    ck_failure(s, STATUS_MEMORY, "no memory for the links to 2 nodes");
}

CHECK_MAIN("launch_nodes")
