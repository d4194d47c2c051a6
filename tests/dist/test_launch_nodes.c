/* What an agent makes of the end of its link to another: an end, a reset, and silence before a reset, which is a cut;
 * and what node 0 passes on to the others. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "check_main.h"
#include "dist/launch_internal.h"
#include "dist/store_frame.h"

#define MAGIC 0x4c504444u
#define SILENCE_US 3300000 /* more than launch_nodes.c calls silence */

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
    close(listener);
}

/* Node 1's links, with one to node 0, whose agent has said that it is there and is played by what is returned. */
static int link_up(struct launch_nodes *nodes) {
    uint8_t here[12] = {0};
    int own, other;
    connect_ends(&own, &other);
    nodes_link(nodes, 0, own);
    store_write_u32(here, MAGIC);
    ck_assert_int_eq(send(other, here, sizeof here, 0), sizeof here);
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
    int other = link_up(nodes);
    ck_assert_int_eq(nodes_lost(nodes), -1);
    _i == 0 ? (void)close(other) : reset(other);
    hear_for_a_moment(nodes);
    ck_assert_int_eq(nodes_lost(nodes), 0);
    ck_assert_int_eq(nodes_missed(nodes, 60), -1);
    other = link_up(nodes);
    ck_assert_int_eq(nodes_lost(nodes), -1);
    nodes_destroy(nodes);
    close(other);
}
END_TEST

START_TEST(a_reset_after_silence_is_a_cut) {
    struct launch_nodes *nodes = nodes_create(2, 1);
    int other = link_up(nodes);
    usleep(SILENCE_US);
    ck_assert(nodes_want_link(nodes)); /* before the connection is given up */
    reset(other);
    hear_for_a_moment(nodes);
    ck_assert_int_eq(nodes_lost(nodes), -1);
    nodes_destroy(nodes);
}
END_TEST

/* ---- three nodes ---- */

enum { HERE, DONE, AGAIN, OVER, STOPPED, LOST, LEFT }; /* launch_nodes.c's words */

/* Node 0, node 1 with a link to it, and the socket that plays node 2's agent. */
struct trio {
    struct launch_nodes *hub, *other;
    int third;
};

static void say(int fd, uint32_t word, uint32_t number) {
    uint8_t bytes[12];
    store_write_u32(bytes, MAGIC);
    store_write_u32(bytes + 4, word);
    store_write_u32(bytes + 8, number);
    ck_assert_int_eq(send(fd, bytes, sizeof bytes, MSG_NOSIGNAL), sizeof bytes);
}

static void hear_all(struct trio *t) {
    for (int i = 0; i < 20; i++) {
        usleep(10000);
        nodes_hear(t->hub);
        nodes_hear(t->other);
    }
}

static struct trio trio_create(void) {
    struct trio t = {.hub = nodes_create(3, 0), .other = nodes_create(3, 1)};
    int hub_end, end;
    connect_ends(&hub_end, &end);
    nodes_link(t.hub, 1, hub_end);
    nodes_link(t.other, 0, end);
    connect_ends(&hub_end, &t.third);
    nodes_link(t.hub, 2, hub_end);
    say(t.third, HERE, 0);
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
    close(t.third);
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
    say(t.third, STOPPED, 2);
    close(t.third);
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
    say(t.third, DONE, 0);
    close(t.third);
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
    for (uint32_t word = STOPPED; word <= LEFT + 1; word++) say(t.third, word, 3);
    say(t.third, STOPPED, UINT32_MAX);
    say(t.third, STOPPED, 0);
    say(t.third, LOST, 1);
    say(t.third, LEFT, 1);
    hear_all(&t);
    ck_assert_int_eq(nodes_lost(t.hub), -1);
    ck_assert_int_eq(nodes_stopped(t.hub), -1);
    ck_assert_int_eq(nodes_lost(t.other), -1);
    ck_assert_int_eq(nodes_stopped(t.other), -1);
    trio_destroy(&t);
    close(t.third);
}
END_TEST

/* All ranks of node 0 have ended with 0; those of others not yet when one of them is asked to stop. */
START_TEST(a_stop_ends_the_wait_for_others) {
    struct trio t = trio_create();
    int64_t newer = 0;
    double begin = clock_seconds();
    say(t.third, STOPPED, 2);
    status s = nodes_settle(t.hub, -1, 0, &newer);
    ck_assert_int_eq(status_code(s), STATUS_STOPPED);
    status_free(s);
    s = nodes_settle(t.other, -1, 0, &newer);
    ck_assert_int_eq(status_code(s), STATUS_STOPPED);
    status_free(s);
    ck_assert_double_lt(clock_seconds() - begin, 20); /* else 30 s each */
    trio_destroy(&t);
    close(t.third);
}
END_TEST

LOOP_TESTS("launch_nodes", LOOP(an_end_is_an_end_until_a_new_link, 0, 2), ONCE(a_reset_after_silence_is_a_cut),
           ONCE(the_first_loss_reaches_all), ONCE(a_stop_is_no_loss), ONCE(who_is_done_may_leave),
           ONCE(strange_words_change_nothing), ONCE(a_stop_ends_the_wait_for_others))
