/* net: sockets of the control plane: addresses, listening, one attempt to connect, and whole messages with a deadline.
 * Descriptors are closed on exec. A deadline is a time of clock_seconds(). */
#ifndef DIST_NET_H
#define DIST_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "base/status.h"

/* "10.0.0.7" or "fe80::1" of a socket address; "?" when it is neither IPv4 nor IPv6. */
void net_address_text(const struct sockaddr_storage *address, char text[64]);
bool net_is_loopback(const struct sockaddr_storage *address);
int net_port(const struct sockaddr_storage *address); /* 0 when it is neither */

/* A non-blocking listening socket on [host]:[port]. [is_one_host]: all ranks are here, so a loopback address is bound
 * as it is; otherwise a name that means loopback here (Debian's 127.0.1.1) or is not of this host becomes the
 * wildcard address. */
status net_listen(const char *host, int port, bool is_one_host, int *fd);

/* One attempt to connect, at most until [deadline]. *is_final: another attempt would not help. STATUS_IO when this host
 * lacks memory or descriptors. */
status net_connect(const char *host, int port, double deadline, int *fd, bool *is_final);

/* Seconds since the other host has acknowledged anything; 0 where that is not known (no TCP). */
double net_link_age(int fd);

/* Whether [host] means this host or cannot be resolved. */
bool net_is_here(const char *host);

/* The interface that has [address] ("eth0"), "?" when there is none. */
void net_interface(const char *address, char *name, size_t size);

/* Out of descriptors, in this process (EMFILE) or on this machine (ENFILE). */
bool net_is_out_of_descriptors(int error);
bool net_is_shortage(int error); /* of descriptors or memory */
/* STATUS_IO, with the limit and what to do, unless [count] more descriptors can be opened now. They are closed again.
 */
status net_need_descriptors(int count);

/* Low latency, and the kernel asks an idle peer every two seconds whether it is there, which net_link_age shows. */
void net_tune(int fd);

/* All [size] bytes, on a blocking or non-blocking socket. false: closed, failed or late; errno is 0, the error, or
 * ETIMEDOUT. */
bool net_send(int fd, const void *bytes, size_t size, double deadline);
bool net_receive(int fd, void *bytes, size_t size, double deadline);

/* Host name of this machine, "?" when it has none. */
void host_name(char *name, size_t size);

#endif
