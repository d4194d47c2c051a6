/* What a launcher makes of the end of its link to another: an end, a reset, and silence before a reset, which is a cut;
 * and what node 0 passes on to the others. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "check_main.h"
#include "dist/launch/launch_internal.h"
#include "dist/store/store_frame.h"
#include "dist/store/store_session.h"

#define MAGIC 0x4c504444u

enum { HERE, DONE, AGAIN, OVER, STOPPED, LOST, LEFT }; /* launch_nodes.c's words */
#define SILENCE_US 3300000                             /* more than launch_nodes.c calls silence */

/* Ends of one connection. */
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

/* The end of a link whose launcher a test plays. */
struct player {
    int fd;
    struct store_session session;
};

#define WORD 12
#define TAGGED (WORD + SESSION_TAG)

static void make_word(struct player *p, uint32_t word, uint32_t number, uint8_t bytes[TAGGED]) {
    store_write_u32(bytes, MAGIC);
    store_write_u32(bytes + 4, word);
    store_write_u32(bytes + 8, number);
    session_sign(&p->session, bytes, WORD, NULL, 0, bytes + WORD);
}

static void say_bytes(const struct player *p, const uint8_t bytes[TAGGED]) {
    ck_assert_int_eq(send(p->fd, bytes, TAGGED, MSG_NOSIGNAL), TAGGED);
}

static void say(struct player *p, uint32_t word, uint32_t number) {
    uint8_t bytes[TAGGED];
    make_word(p, word, number, bytes);
    say_bytes(p, bytes);
}

/* The two ends of a connection, and what authenticates them. */
static void make_sessions(struct store_session *client, struct store_session *server) {
    static const uint8_t secret[32] = "a secret of this job";
    struct store_handshake shake = {.rank = 1};
    session_begin(client, secret, &shake, false);
    session_begin(server, secret, &shake, true);
}

/* Node 1's links, with one to node 0, whose launcher has said that it is there and is played by what is returned. */
static struct player link_up(struct launch_nodes *nodes) {
    struct player other;
    struct store_session session;
    int own;
    make_sessions(&session, &other.session);
    connect_ends(&own, &other.fd);
    nodes_link(nodes, 0, own, &session);
    say(&other, HERE, 0);
    for (int i = 0; i < 100 && nodes_want_link(nodes); i++) usleep(10000);
    ck_assert(!nodes_want_link(nodes));
    return other;
}

static void reset(int fd) {
    struct linger at_once = {.l_onoff = 1};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
}

static void hear_for_a_moment(struct launch_nodes *nodes) {
    for (int i = 0; i < 20; i++) {
        usleep(10000);
        nodes_hear(nodes);
    }
}

START_TEST(an_end_is_an_end_until_a_new_link) {
    struct launch_nodes *nodes = nodes_create(2, 1);
    ck_assert(nodes_want_link(nodes));
    struct player other = link_up(nodes);
    ck_assert_int_eq(nodes_lost(nodes), -1);
    _i == 0 ? (void)close(other.fd) : reset(other.fd);
    hear_for_a_moment(nodes);
    ck_assert_int_eq(nodes_lost(nodes), 0);
    ck_assert_int_eq(nodes_missed(nodes, 60), -1);
    other = link_up(nodes);
    ck_assert_int_eq(nodes_lost(nodes), -1);
    nodes_destroy(nodes);
    close(other.fd);
}
END_TEST

START_TEST(a_reset_after_silence_is_a_cut) {
    struct launch_nodes *nodes = nodes_create(2, 1);
    struct player other = link_up(nodes);
    usleep(SILENCE_US);
    ck_assert(nodes_want_link(nodes)); /* before the connection is given up */
    reset(other.fd);
    hear_for_a_moment(nodes);
    ck_assert_int_eq(nodes_lost(nodes), -1);
    nodes_destroy(nodes);
}
END_TEST

/* How many words arrive until nothing has come for a while; all of them are authentic. */
static int read_words(struct player *p) {
    struct timeval patience = {.tv_usec = 300000};
    uint8_t bytes[TAGGED];
    size_t size = 0;
    int count = 0;
    setsockopt(p->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    for (ssize_t got; (got = recv(p->fd, bytes + size, sizeof bytes - size, 0)) > 0;) {
        size = (size + (size_t)got) % sizeof bytes;
        if (size > 0) continue;
        ck_assert(session_verify(&p->session, bytes, WORD, NULL, 0, bytes + WORD));
        count++;
    }
    return count;
}

/* No word follows one for which the socket had no space: its tag would be wrong. */
START_TEST(a_word_without_space_ends_the_words) {
    enum { MANY = 300000 };
    struct launch_nodes *nodes = nodes_create(2, 1);
    struct player other = link_up(nodes);
    for (int i = 0; i < MANY; i++) nodes_say_again(nodes, i);
    ck_assert_int_lt(read_words(&other), MANY);
    nodes_say_again(nodes, MANY);
    read_words(&other);
    nodes_destroy(nodes);
    close(other.fd);
}
END_TEST

/* ---- three nodes ---- */

/* Node 0, node 1 with a link to it, and the socket that plays node 2's launcher. */
struct trio {
    struct launch_nodes *hub, *other;
    struct player third;
};

static void hear_all(struct trio *t) {
    for (int i = 0; i < 20; i++) {
        usleep(10000);
        nodes_hear(t->hub);
        nodes_hear(t->other);
    }
}

static struct trio trio_create(void) {
    struct trio t = {.hub = nodes_create(3, 0), .other = nodes_create(3, 1)};
    struct store_session client, server;
    int hub_end, end;
    make_sessions(&client, &server);
    connect_ends(&hub_end, &end);
    nodes_link(t.hub, 1, hub_end, &server);
    nodes_link(t.other, 0, end, &client);
    make_sessions(&t.third.session, &server);
    connect_ends(&hub_end, &t.third.fd);
    nodes_link(t.hub, 2, hub_end, &server);
    say(&t.third, HERE, 0);
    hear_all(&t);
    ck_assert(!nodes_want_link(t.other));
    return t;
}

static void trio_destroy(struct trio *t) {
    nodes_destroy(t->hub);
    nodes_destroy(t->other);
}

START_TEST(the_first_loss_reaches_all) {
    struct trio t = trio_create();
    close(t.third.fd);
    hear_all(&t);
    ck_assert_int_eq(nodes_lost(t.hub), 2);
    ck_assert_int_eq(nodes_missed(t.hub, 0), 2);
    ck_assert_int_eq(nodes_missed(t.hub, 60), -1);
    nodes_destroy(t.hub); /* which ends for that reason */
    t.hub = NULL;
    hear_all(&t);
    ck_assert_int_eq(nodes_lost(t.other), 2);
    ck_assert_int_eq(nodes_missed(t.other, 0), 2);
    ck_assert_int_eq(nodes_stopped(t.other), -1);
    trio_destroy(&t);
}
END_TEST

START_TEST(a_stop_is_no_loss) {
    struct trio t = trio_create();
    say(&t.third, STOPPED, 2);
    close(t.third.fd);
    hear_all(&t);
    nodes_say_stopped(t.hub);
    nodes_destroy(t.hub);
    t.hub = NULL;
    hear_all(&t);
    ck_assert_int_eq(nodes_stopped(t.other), 2);
    ck_assert_int_eq(nodes_lost(t.other), -1);
    trio_destroy(&t);
}
END_TEST

/* Its ranks have all ended with 0: no rank waits for it, but there will be no other start with it. */
START_TEST(who_is_done_may_leave) {
    struct trio t = trio_create();
    say(&t.third, DONE, 0);
    close(t.third.fd);
    hear_all(&t);
    ck_assert_int_eq(nodes_missed(t.hub, 0), -1);
    ck_assert_int_eq(nodes_missed(t.other, 0), -1);
    ck_assert_double_eq(nodes_missed_time(t.other, 2), 0);
    ck_assert_int_eq(nodes_lost(t.hub), 2);
    ck_assert_int_eq(nodes_lost(t.other), 2);
    nodes_say_again(t.other, 1);
    ck_assert_int_eq(nodes_missed(t.other, 0), 2);
    ck_assert(nodes_missed_time(t.other, 2) > 0);
    trio_destroy(&t);
}
END_TEST

/* Losses are node 0's to tell, and there are three nodes. */
START_TEST(strange_words_change_nothing) {
    struct trio t = trio_create();
    for (uint32_t word = STOPPED; word <= LEFT + 1; word++) say(&t.third, word, 3);
    say(&t.third, STOPPED, UINT32_MAX);
    say(&t.third, STOPPED, 0);
    say(&t.third, LOST, 1);
    say(&t.third, LEFT, 1);
    hear_all(&t);
    ck_assert_int_eq(nodes_lost(t.hub), -1);
    ck_assert_int_eq(nodes_stopped(t.hub), -1);
    ck_assert_int_eq(nodes_lost(t.other), -1);
    ck_assert_int_eq(nodes_stopped(t.other), -1);
    trio_destroy(&t);
    close(t.third.fd);
}
END_TEST

/* ---- tampering ---- */

enum { ALTERED, REPEATED, LEFT_OUT, SWAPPED, FORGED, REFLECTED, TAMPERINGS };

static void tamper(struct player *p, int how) {
    uint8_t one[TAGGED], two[TAGGED], own[TAGGED];
    make_word(p, AGAIN, 1, one);
    make_word(p, STOPPED, 2, two);
    switch (how) {
    case ALTERED:
        one[8] ^= 2;
        say_bytes(p, one);
        break;
    case REPEATED:
        say_bytes(p, one);
        say_bytes(p, one);
        break;
    case LEFT_OUT:
        say_bytes(p, two);
        break;
    case SWAPPED:
        say_bytes(p, two);
        say_bytes(p, one);
        break;
    case FORGED:
        memset(two + WORD, 0, SESSION_TAG);
        say_bytes(p, two);
        break;
    default: /* what the other side has said itself: HERE */
        ck_assert_int_eq(recv(p->fd, own, TAGGED, 0), TAGGED);
        say_bytes(p, own);
    }
}

/* The link ends with its reason, and no word of it counts. */
START_TEST(a_wrong_tag_ends_the_link) {
    struct trio t = trio_create();
    tamper(&t.third, _i);
    say(&t.third, STOPPED, 2);
    hear_all(&t);
    ck_assert_int_eq(nodes_stopped(t.hub), -1);
    ck_assert_int_eq(nodes_stopped(t.other), -1);
    ck_assert_int_eq(nodes_lost(t.hub), 2);
    ck_assert_ptr_nonnull(strstr(nodes_describe_loss(t.hub, 2), "was tampered with or corrupted"));
    ck_assert_str_eq(nodes_describe_loss(t.hub, 1), "has ended");
    trio_destroy(&t);
    close(t.third.fd);
}
END_TEST

/* ---- the end of a start ---- */

static void expect_word(struct player *p, uint32_t word, uint32_t number) {
    uint8_t bytes[TAGGED];
    ck_assert_int_eq(recv(p->fd, bytes, TAGGED, MSG_WAITALL), TAGGED);
    ck_assert(session_verify(&p->session, bytes, WORD, NULL, 0, bytes + WORD));
    ck_assert_uint_eq(store_read_u32(bytes + 4), word);
    ck_assert_uint_eq(store_read_u32(bytes + 8), number);
}

/* The status code of nodes_settle at the end of start 3, which may not wait for long; the number of a newer start, or
 * -1. */
static enum status_code settle(struct launch_nodes *nodes, int signals, const char *words, int64_t *newer) {
    double begin = clock_seconds();
    *newer = -1;
    status s = nodes_settle(nodes, signals, 3, newer);
    enum status_code code = status_code(s);
    ck_assert_msg(!s || strstr(status_message(s), words), "%s", status_message(s));
    ck_assert_double_lt(clock_seconds() - begin, 20); /* else 30 s */
    status_free(s);
    return code;
}

/* Node 0 with a link to node 1, whose launcher is played by what is returned. */
static struct player link_of_hub(struct launch_nodes *hub) {
    struct player other;
    struct store_session session;
    int own;
    make_sessions(&other.session, &session);
    connect_ends(&own, &other.fd);
    nodes_link(hub, 1, own, &session);
    say(&other, HERE, 0);
    expect_word(&other, HERE, 0);
    return other;
}

START_TEST(node_0_waits_for_the_same_start_of_all) {
    int64_t newer;
    struct launch_nodes *hub = nodes_create(2, 0);
    struct player other = link_of_hub(hub);
    say(&other, AGAIN, 3); /* the start that has ended now */
    say(&other, DONE, 3);
    ck_assert_int_eq(settle(hub, -1, "", &newer), STATUS_OK);
    ck_assert_int_eq(newer, -1);
    expect_word(&other, OVER, 3);
    say(&other, DONE, 2); /* of an older start: not all */
    say(&other, AGAIN, 5);
    ck_assert_int_eq(settle(hub, -1, "a rank of node 1 was lost", &newer), STATUS_PEER);
    ck_assert_int_eq(newer, 5);
    nodes_destroy(hub);
    ck_assert_int_eq(recv(other.fd, &newer, sizeof newer, 0), 0); /* no other word */
    close(other.fd);
}
END_TEST

START_TEST(others_wait_for_node_0) {
    int64_t newer;
    struct launch_nodes *nodes = nodes_create(2, 1);
    struct player hub = link_up(nodes);
    expect_word(&hub, HERE, 0);
    say(&hub, AGAIN, 4);
    ck_assert_int_eq(settle(nodes, -1, "a rank of node 0 was lost", &newer), STATUS_PEER);
    ck_assert_int_eq(newer, 4);
    expect_word(&hub, DONE, 3);
    nodes_destroy(nodes);
    close(hub.fd);

    nodes = nodes_create(2, 1);
    hub = link_up(nodes);
    expect_word(&hub, HERE, 0);
    say(&hub, OVER, 3);
    ck_assert_int_eq(settle(nodes, -1, "", &newer), STATUS_OK);
    expect_word(&hub, DONE, 3);
    nodes_destroy(nodes);
    ck_assert_int_eq(recv(hub.fd, &newer, sizeof newer, 0), 0);
    close(hub.fd);
}
END_TEST

/* Nobody is left to wait for. */
START_TEST(a_closed_link_ends_the_wait) {
    int64_t newer;
    struct launch_nodes *nodes = nodes_create(2, _i), *none = NULL;
    struct player other = _i == 0 ? link_of_hub(nodes) : link_up(nodes);
    close(other.fd);
    ck_assert_int_eq(settle(nodes, -1, "", &newer), STATUS_OK);
    ck_assert_int_eq(settle(none, -1, "", &newer), STATUS_OK);
    nodes_destroy(nodes);
}
END_TEST

/* A rank's end is no request to stop; SIGTERM is. */
START_TEST(a_signal_ends_the_wait) {
    int64_t newer;
    int signals[2];
    struct signalfd_siginfo child = {.ssi_signo = SIGCHLD}, term = {.ssi_signo = SIGTERM};
    struct launch_nodes *hub = nodes_create(2, 0);
    struct player other = link_of_hub(hub);
    ck_assert_int_eq(pipe2(signals, O_NONBLOCK), 0);
    ck_assert_int_eq(write(signals[1], &child, sizeof child), sizeof child);
    ck_assert_int_eq(write(signals[1], &term, sizeof term), sizeof term);
    ck_assert_int_eq(settle(hub, signals[0], "stopped on request when the ranks of this node had ended", &newer),
                     STATUS_STOPPED);
    ck_assert_int_eq(read(signals[0], &child, sizeof child), -1); /* the second one was the reason */
    close(signals[0]);
    close(signals[1]);
    nodes_destroy(hub);
    close(other.fd);
}
END_TEST

/* All ranks of node 0 have ended with 0; those of others not yet when one of them is asked to stop. */
START_TEST(a_stop_ends_the_wait_for_others) {
    struct trio t = trio_create();
    int64_t newer = 0;
    double begin = clock_seconds();
    say(&t.third, STOPPED, 2);
    status s = nodes_settle(t.hub, -1, 0, &newer);
    ck_assert_int_eq(status_code(s), STATUS_STOPPED);
    status_free(s);
    s = nodes_settle(t.other, -1, 0, &newer);
    ck_assert_int_eq(status_code(s), STATUS_STOPPED);
    status_free(s);
    ck_assert_double_lt(clock_seconds() - begin, 20); /* else 30 s each */
    trio_destroy(&t);
    close(t.third.fd);
}
END_TEST

LOOP_TESTS("launch_nodes", LOOP(an_end_is_an_end_until_a_new_link, 0, 2), ONCE(a_reset_after_silence_is_a_cut),
           ONCE(the_first_loss_reaches_all), ONCE(a_stop_is_no_loss), ONCE(who_is_done_may_leave),
           ONCE(strange_words_change_nothing), ONCE(a_stop_ends_the_wait_for_others),
           ONCE(node_0_waits_for_the_same_start_of_all), ONCE(others_wait_for_node_0),
           LOOP(a_closed_link_ends_the_wait, 0, 2), ONCE(a_signal_ends_the_wait),
           LOOP(a_wrong_tag_ends_the_link, 0, TAMPERINGS), ONCE(a_word_without_space_ends_the_words))
