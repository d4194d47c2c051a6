/* net: addresses to listen on and to connect to, and the options of a connection. ctest-labels: unit */
#include "dist/process/net.h"

#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "check_main.h"

static int listen_on_loopback(int *listener) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    ck_assert(net_listen("127.0.0.1", 0, true, listener) == OK);
    ck_assert_int_eq(getsockname(*listener, (struct sockaddr *)&address, &size), 0);
    return net_port(&address);
}

/* The port of a host that does not answer: with a full backlog the kernel drops the packets. */
static int silent_port(void) {
    int listener, fd, port = listen_on_loopback(&listener);
    bool is_final;
    status s = OK;
    ck_assert_int_eq(listen(listener, 0), 0);
    for (int i = 0; i < 8 && !s; i++) s = net_connect("127.0.0.1", port, clock_seconds() + 0.3, &fd, &is_final);
    ck_assert_msg(s && strstr(status_message(s), "timed out"), "%s", status_message(s));
    status_free(s);
    return port;
}

TEST(connect_times_out) { ck_assert_int_gt(silent_port(), 0); }

typedef int resolver(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **out);

static int first_port; /* of the first address of the host "two.test" */

/* Instead of the C library's, which it calls: "two.test" has two addresses. */
int getaddrinfo(const char *restrict host, const char *restrict service, const struct addrinfo *restrict hints,
                struct addrinfo **restrict out) {
    resolver *resolve = (resolver *)(uintptr_t)dlsym(RTLD_NEXT, "getaddrinfo");
    char port[16];
    if (strcmp(host, "two.test") != 0) return resolve(host, service, hints, out);
    snprintf(port, sizeof port, "%d", first_port);
    int error = resolve("127.0.0.1", port, hints, out);
    if (error) return error;
    struct addrinfo *last = *out;
    while (last->ai_next) last = last->ai_next;
    return resolve("127.0.0.1", service, hints, &last->ai_next);
}

/* The first address of a host may be of a network that drops packets; then the second one is used. */
TEST(a_silent_address_leaves_time_for_the_next) {
    int listener, fd, port = listen_on_loopback(&listener);
    bool is_final;
    first_port = silent_port();
    double begin = clock_seconds();
    status s = net_connect("two.test", port, begin + 4, &fd, &is_final);
    ck_assert_msg(!s, "%s", status_message(s));
    ck_assert_double_ge(clock_seconds(), begin + 2);
    close(fd);
    close(listener);
}

TEST(listening_addresses) {
    int fd, second;
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char text[64];
    ck_assert(net_listen("localhost", 0, true, &fd) == OK);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    ck_assert(net_is_loopback(&address));
    status s = net_listen("127.0.0.1", net_port(&address), true, &second);
    if (address.ss_family == AF_INET) {
        ck_assert_int_eq(status_code(s), STATUS_USAGE);
        ck_assert_ptr_nonnull(strstr(status_message(s), "MASTER_PORT"));
    }
    status_free(s);
    close(fd);
    /* with several hosts a name that resolves to loopback is replaced by the wildcard address */
    ck_assert(net_listen("127.0.0.1", 0, false, &fd) == OK);
    size = sizeof address;
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    net_address_text(&address, text);
    ck_assert_str_eq(text, "0.0.0.0");
    close(fd);
}

/* With TCP_USER_TIMEOUT Linux closes a connection after a third of a second without a route, whatever its value. */
TEST(no_user_timeout_is_set) {
    int listener, fd, timeout = -1;
    bool is_final;
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    ck_assert(net_listen("127.0.0.1", 0, true, &listener) == OK);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    ck_assert(net_connect("127.0.0.1", net_port(&address), clock_seconds() + 5, &fd, &is_final) == OK);
    size = sizeof timeout;
    ck_assert_int_eq(getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, &size), 0);
    ck_assert_int_eq(timeout, 0);
    close(fd);
    close(listener);
}

/* A silent one of the host that has one, before those of the host that has three; of these each is chosen at some time.
 */
TEST(the_unproven_connection_that_is_closed) {
    const struct net_unproven all[] = {
        {.host = 1}, {.host = 2}, {.host = 3, .is_silent = true}, {.host = 2}, {.host = 2}};
    struct net_unproven open[5];
    unsigned chosen = 0;
    for (int i = 0; i < 200; i++) {
        memcpy(open, all, sizeof open);
        ck_assert_uint_eq(net_choose_unproven(open, 5), 2);
    }
    for (int i = 0; i < 1000; i++) {
        memcpy(open, all, sizeof open);
        open[2].is_silent = false;
        chosen |= 1u << net_choose_unproven(open, 5);
    }
    ck_assert_uint_eq(chosen, 1u << 1 | 1u << 3 | 1u << 4);
    ck_assert_uint_eq(net_choose_unproven(open, 1), 0);
    ck_assert_int_eq(net_max_unproven(2), 128);
    ck_assert_int_eq(net_max_unproven(1000), 1000);
}

CHECK_MAIN("net")
