/* net: sockets of the control plane: addresses, listen, one attempt to connect, and send and receive of whole messages
 * with a deadline. All descriptors are close-on-exec. A deadline is a time of clock_seconds(). */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/status.h"

/* "10.0.0.7" or "fe80::1"; "?" if the address is neither IPv4 nor IPv6. */
void net_address_text(const struct sockaddr_storage *address, char text[64]);
bool net_is_loopback(const struct sockaddr_storage *address);
int net_port(const struct sockaddr_storage *address); /* 0 if the address is neither IPv4 nor IPv6 */

/* *fd: a non-blocking socket that listens on [host]:[port]. [is_one_host]: all ranks are on this host, so a loopback
 * address is used as it is. Otherwise the wildcard address replaces a name that resolves to loopback here (Debian's
 * 127.0.1.1) or to an address of another host. STATUS_USAGE: the port is in use, or the host cannot be resolved;
 * STATUS_IO: no memory or descriptors. */
status net_listen(const char *host, int port, bool is_one_host, int *fd);

/* One attempt to connect, until [deadline] at the latest; several addresses of [host] share that time. *is_final:
 * another attempt would fail, too. STATUS_IO: no memory or descriptors on this host. */
status net_connect(const char *host, int port, double deadline, int *fd, bool *is_final);

/* Whether packets reach [host] and come back, until [deadline]: OK also if no program listens at the port (*listens
 * false). */
status net_check_way(const char *host, int port, double deadline, bool *listens);

/* A connection to a listener that has not proved the job's secret yet. */
struct net_unproven {
    uint64_t host;       /* of net_accept */
    bool is_silent;      /* it has not sent its first message, as a rank does at once */
    size_t index, score; /* of net_choose_unproven */
};
#define NET_MIN_UNPROVEN 128 /* that a listener keeps open */
/* For a job of [ranks], which never displace each other: each has one unproven connection at a time. */
int net_max_unproven(int ranks);

/* Accepts a connection, which does not block: its descriptor, or -1 with errno. *host: a number for the other host: its
 * IPv4 address, or its network (/64) with IPv6, where a host has many addresses. */
int net_accept(int listener, uint64_t *host);

/* Which of the connections (count > 0), which are sorted, is closed for a new one, so that strangers cannot keep a rank
 * of the job out: a silent one before others; one of the host that has most of them; of those a random one, because a
 * rank tries again. Returns its place before sorting. */
size_t net_choose_unproven(struct net_unproven *open, size_t count);

/* Seconds since the last acknowledgement from the other host; 0 if not known (not a TCP socket). */
double net_link_age(int fd);

/* Whether [host] resolves to an address of this host, or cannot be resolved; only to loopback addresses, which each
 * host takes for itself. */
bool net_is_this_host(const char *host);
bool net_is_loopback_host(const char *host);

/* STATUS_USAGE if [host] has no address: no name service knows it, or none answers. */
status net_check_host(const char *host);

/* Whether there is a network interface [name]; *is_up: it is up and has an address. */
bool net_has_interface(const char *name, bool *is_up);
/* name (size): the network interface that has [address] ("eth0"); "?": there is none. */
void net_interface(const char *address, char *name, size_t size);

bool net_is_out_of_resources(int error); /* descriptors or memory */
/* Checks that [count] more descriptors can be opened now, and raises the soft limit of this process for them.
 * STATUS_IO, with the limit, if the hard limit is too low. *spare, unless NULL: how many beyond them are wanted; set to
 * how many of these can be opened. */
status net_check_descriptors(int count, int *spare);

/* Sets TCP_NODELAY and keep-alive: the kernel probes an idle connection, after two seconds and then every second, so
 * that net_link_age is current. */
void net_tune(int fd);

/* Send or receive all [size] bytes, on a blocking or non-blocking socket. false: closed, failed or timed out; errno is
 * 0, the error, or ETIMEDOUT. */
bool net_send(int fd, const void *bytes, size_t size, double deadline);
bool net_receive(int fd, void *bytes, size_t size, double deadline);

/* name (size): the host name of this machine; "?": unknown. */
void host_name(char *name, size_t size);
