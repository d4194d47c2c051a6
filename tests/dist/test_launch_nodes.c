/* What an agent makes of the end of its link to another: an end, a reset, and silence before a reset, which is a cut.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check_main.h"
#include "dist/launch_internal.h"
#include "dist/store_frame.h"

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
    store_write_u32(here, 0x4c504444u);
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
    ck_assert_int_eq(nodes_lost(nodes, 0), -1);
    _i == 0 ? (void)close(other) : reset(other);
    hear_for_a_moment(nodes);
    ck_assert_int_eq(nodes_lost(nodes, 0), 0);
    ck_assert_int_eq(nodes_lost(nodes, 60), -1);
    other = link_up(nodes);
    ck_assert_int_eq(nodes_lost(nodes, 0), -1);
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
    ck_assert_int_eq(nodes_lost(nodes, 0), -1);
    nodes_destroy(nodes);
}
END_TEST

LOOP_TESTS("launch_nodes", LOOP(an_end_is_an_end_until_a_new_link, 0, 2), ONCE(a_reset_after_silence_is_a_cut))
