/* Sockets with deadlines. Every wait is a poll(2) with a timeout, so no call blocks without a limit. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "dist/process/net.h"

#define RESOLVE_SECONDS 3.0 /* retries after a temporary failure of name resolution */
#define BASE_DESCRIPTORS 40 /* that a launcher or a rank needs in any case */

void net_address_text(const struct sockaddr_storage *address, char text[64]) {
    const void *bytes = address->ss_family == AF_INET ? (const void *)&((const struct sockaddr_in *)address)->sin_addr
                        : address->ss_family == AF_INET6
                            ? (const void *)&((const struct sockaddr_in6 *)address)->sin6_addr
                            : NULL;
    if (!bytes || !inet_ntop(address->ss_family, bytes, text, 64)) memcpy(text, "?", 2);
}

bool net_is_loopback(const struct sockaddr_storage *address) {
    if (address->ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    return address->ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

int net_port(const struct sockaddr_storage *address) {
    if (address->ss_family == AF_INET) return ntohs(((const struct sockaddr_in *)address)->sin_port);
    return address->ss_family == AF_INET6 ? ntohs(((const struct sockaddr_in6 *)address)->sin6_port) : 0;
}

static uint64_t host_of(const struct sockaddr_storage *from) {
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)from;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)from;
    uint64_t host = 0;
    bool is_mapped = from->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr);
    if (from->ss_family == AF_INET) memcpy(&host, &v4->sin_addr, 4);
    if (from->ss_family == AF_INET6) memcpy(&host, v6->sin6_addr.s6_addr + (is_mapped ? 12 : 0), is_mapped ? 4 : 8);
    return host;
}

int net_accept(int listener, uint64_t *host) {
    struct sockaddr_storage from = {0};
    socklen_t size = sizeof from;
    int fd = accept4(listener, (struct sockaddr *)&from, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) *host = host_of(&from);
    return fd;
}

int net_max_unproven(int ranks) { return ranks < NET_MIN_UNPROVEN ? NET_MIN_UNPROVEN : ranks; }

static int compare_hosts(const void *a, const void *b) {
    const struct net_unproven *x = a, *y = b;
    return x->host < y->host ? -1 : x->host > y->host;
}

/* Sets the scores: the number of connections of the same host, and more than all of them for a silent one. Returns the
 * highest. */
static size_t score_unproven(struct net_unproven *open, size_t count) {
    size_t highest = 0;
    qsort(open, count, sizeof *open, compare_hosts);
    for (size_t i = 0, end = 0; i < count; i = end) {
        while (end < count && open[end].host == open[i].host) end++;
        for (size_t k = i; k < end; k++) {
            open[k].score = end - i + (open[k].is_silent ? count : 0);
            if (open[k].score > highest) highest = open[k].score;
        }
    }
    return highest;
}

size_t net_choose_unproven(struct net_unproven *open, size_t count) {
    for (size_t i = 0; i < count; i++) open[i].index = i;
    size_t highest = score_unproven(open, count), ties = 0, chosen = 0;
    for (size_t i = 0; i < count; i++) ties += open[i].score == highest;
    uint32_t random = 0;
    if (getrandom(&random, sizeof random, 0) != sizeof random) random = 0;
    for (size_t nth = ties ? random % ties : 0; open[chosen].score != highest || nth > 0; chosen++)
        nth -= open[chosen].score == highest;
    return open[chosen].index;
}

void host_name(char *name, size_t size) {
    if (gethostname(name, size) != 0 || size == 0) memcpy(name, "?", 2);
    name[size - 1] = 0;
}

/* Out of descriptors, in this process (EMFILE) or on this machine (ENFILE). */
static bool net_is_out_of_descriptors(int error) { return error == EMFILE || error == ENFILE; }

bool net_is_out_of_resources(int error) {
    return net_is_out_of_descriptors(error) || error == ENOMEM || error == ENOBUFS;
}

static status too_few_descriptors(int error, int count) {
    struct rlimit limit = {0};
    getrlimit(RLIMIT_NOFILE, &limit);
    if (error == ENFILE)
        return status_new(STATUS_IO, "too many open files on this machine: its limit is /proc/sys/fs/file-max");
    return status_new(STATUS_IO,
                      "too many open files: the limit of this process is %llu, and it needs %d more than are open; "
                      "raise the limit, for example with 'ulimit -n %d', and start again",
                      (unsigned long long)limit.rlim_cur, count, count + BASE_DESCRIPTORS);
}

/* Raises the soft limit by [count], as far as the hard limit allows. Returns whether it is higher now. */
static bool raise_limit(int count) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return false;
    rlim_t wanted = limit.rlim_cur + (rlim_t)count;
    limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

status net_check_descriptors(int count, int *spare) {
    int all = count + (spare ? *spare : 0), done = 0, error = 0;
    int *opened = malloc((size_t)all * sizeof *opened);
    bool was_raised = false;
    if (!opened) return status_memory("the numbers of %d files", all);
    while (done < all && !error) {
        opened[done] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (opened[done] < 0)
            error = errno;
        else
            done++;
        if (error != EMFILE || was_raised) continue;
        was_raised = true;
        if (raise_limit(all)) error = 0;
    }
    bool is_enough = done >= count;
    if (spare) *spare = is_enough ? done - count : 0;
    while (done > 0) close(opened[--done]);
    free(opened);
    return !is_enough && net_is_out_of_descriptors(error) ? too_few_descriptors(error, count) : OK;
}

static status resolve(const char *host, int port, struct addrinfo **list, bool *is_final) {
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    int error = getaddrinfo(host, service, &hints, list);
    int reason = error == EAI_MEMORY ? ENOMEM : error == EAI_SYSTEM ? errno : 0;
    *is_final = error != 0 && error != EAI_AGAIN && error != EAI_SYSTEM && error != EAI_MEMORY;
    if (error == 0) return OK;
    if (net_is_out_of_resources(reason))
        return status_errno(STATUS_IO, reason, "cannot look up the host of rank 0, '%s'", host);
    return status_usage("the host of rank 0, '%s', has no address: %s; set MASTER_ADDR to a name or address that every "
                        "node can resolve",
                        host, gai_strerror(error));
}

/* A listening socket, or -1 with errno. */
static int listen_on(const struct sockaddr *address, socklen_t size) {
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, address, size) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int listen_on_wildcard(int family, int port) {
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    if (family == AF_INET) return listen_on((const struct sockaddr *)&any, sizeof any);
    return listen_on((const struct sockaddr *)&any6, sizeof any6);
}

/* Retries for a while after a temporary failure of name resolution. */
static status resolve_with_retries(const char *host, int port, struct addrinfo **list) {
    double pause = 0.05;
    for (double end = clock_seconds() + RESOLVE_SECONDS;; pause *= 2) {
        bool is_final;
        status failure = resolve(host, port, list, &is_final);
        if (!failure || is_final || clock_seconds() + pause > end) return failure;
        status_free(failure);
        clock_sleep(pause);
    }
}

status net_check_host(const char *host) {
    struct addrinfo *list;
    TRY(resolve_with_retries(host, 0, &list));
    freeaddrinfo(list);
    return OK;
}

status net_listen(const char *host, int port, bool is_one_host, int *fd) {
    struct addrinfo *list;
    *fd = -1;
    TRY(resolve_with_retries(host, port, &list));
    int error = EADDRNOTAVAIL;
    for (const struct addrinfo *a = list; a && *fd < 0; a = a->ai_next) {
        struct sockaddr_storage address = {0};
        memcpy(&address, a->ai_addr, a->ai_addrlen);
        bool is_reachable = is_one_host || !net_is_loopback(&address);
        *fd = is_reachable ? listen_on(a->ai_addr, a->ai_addrlen) : listen_on_wildcard(a->ai_family, port);
        if (*fd < 0 && errno == EADDRNOTAVAIL && !is_one_host) *fd = listen_on_wildcard(a->ai_family, port);
        if (*fd < 0) error = errno;
    }
    freeaddrinfo(list);
    if (*fd >= 0) return OK;
    if (error == EADDRINUSE)
        return status_new(
            STATUS_USAGE,
            "port %d on %s, where rank 0 must listen, is in use by another program; set MASTER_PORT to a free one",
            port, host);
    if (net_is_out_of_descriptors(error)) return too_few_descriptors(error, 1);
    if (error == EACCES)
        return status_new(
            STATUS_USAGE,
            "rank 0 may not listen on port %d of %s: such ports are for root; set MASTER_PORT to one from 1024 on",
            port, host);
    return status_errno(net_is_out_of_resources(error) ? STATUS_IO : STATUS_USAGE, error,
                        "rank 0 cannot listen on %s:%d", host, port);
}

static bool wait_for(int fd, short events, double deadline) {
    for (;;) {
        int left = clock_milliseconds_until(deadline);
        struct pollfd p = {.fd = fd, .events = events};
        int ready = poll(&p, 1, left);
        if (ready > 0) return true;
        if (ready < 0 && errno != EINTR) return false;
        if (ready == 0 && left == 0) {
            errno = ETIMEDOUT;
            return false;
        }
    }
}

/* 0 or an errno value. */
static int connect_to(const struct addrinfo *a, double deadline, int *fd) {
    *fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd < 0) return errno;
    int error = 0;
    socklen_t size = sizeof error;
    if (connect(*fd, a->ai_addr, a->ai_addrlen) != 0) error = errno;
    if (error == EINPROGRESS || error == EINTR) {
        if (!wait_for(*fd, POLLOUT, deadline))
            error = errno;
        else if (getsockopt(*fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
            error = errno;
    }
    if (!error) return 0;
    close(*fd);
    *fd = -1;
    return error;
}

/* Linux connects a socket to itself if no process listens and the ephemeral source port equals the target port. */
static bool is_connected_to_itself(int fd) {
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t here_size = sizeof here, there_size = sizeof there;
    return getsockname(fd, (struct sockaddr *)&here, &here_size) == 0 &&
           getpeername(fd, (struct sockaddr *)&there, &there_size) == 0 && here_size == there_size &&
           memcmp(&here, &there, here_size) == 0;
}

/* As net_connect; *error: 0, or an errno value, and *fd is -1. */
static status connect_to_any(const char *host, int port, double deadline, int *fd, bool *is_final, int *error) {
    struct addrinfo *list;
    *fd = -1;
    TRY(resolve(host, port, &list, is_final));
    int left = 0;
    *error = 0;
    for (const struct addrinfo *a = list; a; a = a->ai_next) left++;
    for (const struct addrinfo *a = list; a && *fd < 0; a = a->ai_next) {
        double now = clock_seconds();
        *error = connect_to(a, now + (deadline - now) / left--, fd); /* an address that drops packets leaves time */
        if (*fd >= 0 && is_connected_to_itself(*fd)) {
            close(*fd);
            *fd = -1;
            *error = ECONNREFUSED;
        }
    }
    freeaddrinfo(list);
    return OK;
}

static status connect_failure(const char *host, int port, int error) {
    return status_errno(net_is_out_of_resources(error) ? STATUS_IO : STATUS_PEER, error, "%s:%d", host, port);
}

status net_connect(const char *host, int port, double deadline, int *fd, bool *is_final) {
    int error;
    TRY(connect_to_any(host, port, deadline, fd, is_final, &error));
    if (*fd < 0) return connect_failure(host, port, error);
    net_tune(*fd);
    return OK;
}

status net_check_way(const char *host, int port, double deadline, bool *listens) {
    int fd, error;
    bool is_final;
    TRY(connect_to_any(host, port, deadline, &fd, &is_final, &error));
    *listens = fd >= 0;
    if (fd >= 0) close(fd);
    return *listens || error == ECONNREFUSED ? OK : connect_failure(host, port, error);
}

double net_link_age(int fd) {
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
    return info.tcpi_last_ack_recv * 1e-3;
}

bool net_is_this_host(const char *host) {
    struct addrinfo *list;
    bool is_final, is_here = false;
    status failure = resolve(host, 0, &list, &is_final);
    if (failure) {
        status_free(failure);
        return true;
    }
    for (const struct addrinfo *a = list; a && !is_here; a = a->ai_next) {
        int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        is_here = fd >= 0 && bind(fd, a->ai_addr, a->ai_addrlen) == 0;
        if (fd >= 0) close(fd);
    }
    freeaddrinfo(list);
    return is_here;
}

bool net_is_loopback_host(const char *host) {
    struct addrinfo *list;
    bool is_final, is_loopback = true;
    status failure = resolve(host, 0, &list, &is_final);
    if (failure) {
        status_free(failure);
        return false;
    }
    for (const struct addrinfo *a = list; a; a = a->ai_next) {
        struct sockaddr_storage address = {0};
        memcpy(&address, a->ai_addr, a->ai_addrlen);
        is_loopback = is_loopback && net_is_loopback(&address);
    }
    freeaddrinfo(list);
    return is_loopback;
}

void net_interface(const char *address, char *name, size_t size) {
    struct ifaddrs *list;
    snprintf(name, size, "?");
    if (getifaddrs(&list) != 0) return;
    for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
        struct sockaddr_storage full = {0};
        char text[64];
        if (!i->ifa_addr || (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6)) continue;
        memcpy(&full, i->ifa_addr,
               i->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
        net_address_text(&full, text);
        if (strcmp(text, address) == 0) snprintf(name, size, "%s", i->ifa_name);
    }
    freeifaddrs(list);
}

bool net_has_interface(const char *name, bool *is_up) {
    struct ifaddrs *list;
    bool is_found = false;
    *is_up = false;
    if (getifaddrs(&list) != 0) return false;
    for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
        if (strcmp(i->ifa_name, name) != 0) continue;
        is_found = true;
        bool has_address = i->ifa_addr && (i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6);
        *is_up = *is_up || (has_address && (i->ifa_flags & IFF_UP));
    }
    freeifaddrs(list);
    return is_found;
}

/* The kernel must not close a connection early: the store decides which rank is lost. TCP_USER_TIMEOUT is not set: with
 * it, Linux (6.18 at least) closes a connection with ETIMEDOUT as soon as a retransmission finds no route, after a
 * third of a second. Keep-alive probes keep net_link_age current. A link that fails repeatedly may lose several probes
 * in a row, so the connection is closed only after a minute without an answer. */
void net_tune(int fd) {
    static const struct {
        int level, name, value;
    } options[] = {{IPPROTO_TCP, TCP_NODELAY, 1},
                   {SOL_SOCKET, SO_KEEPALIVE, 1},
                   {IPPROTO_TCP, TCP_KEEPIDLE, 2},
                   {IPPROTO_TCP, TCP_KEEPINTVL, 1},
                   {IPPROTO_TCP, TCP_KEEPCNT, 60}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof options[i].value);
}

bool net_send(int fd, const void *bytes, size_t size, double deadline) {
    const char *at = bytes;
    while (size > 0) {
        ssize_t done = send(fd, at, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (done > 0) {
            at += done;
            size -= (size_t)done;
        } else if (errno == EAGAIN) {
            if (!wait_for(fd, POLLOUT, deadline)) return false;
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

bool net_receive(int fd, void *bytes, size_t size, double deadline) {
    char *at = bytes;
    while (size > 0) {
        ssize_t done = recv(fd, at, size, MSG_DONTWAIT);
        if (done > 0) {
            at += done;
            size -= (size_t)done;
        } else if (done == 0) {
            errno = 0;
            return false;
        } else if (errno == EAGAIN) {
            if (!wait_for(fd, POLLIN, deadline)) return false;
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}
