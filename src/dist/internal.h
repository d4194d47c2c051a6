/* internal: what the files of src/dist share: names of the agent's variables, time, and sockets. */
#ifndef DIST_INTERNAL_H
#define DIST_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/status.h"

/* Set by the agent for its ranks. */
#define AGENT_VARIABLE "DDPTRAIN_AGENT"             /* the agent's pid, to tell a rank from a grandchild */
#define JOB_VARIABLE "DDPTRAIN_JOB_ID"              /* the same on all nodes of the job */
#define STORE_FD_VARIABLE "DDPTRAIN_STORE_FD"       /* rank 0: a listening socket for the store */
#define SECRET_FD_VARIABLE "DDPTRAIN_SECRET_FD"     /* a file with the job's secret */
#define REPORT_FD_VARIABLE "DDPTRAIN_REPORT_FD"     /* a socket to the agent for launch_report */
#define NEWS_FD_VARIABLE "DDPTRAIN_NEWS_FD"         /* a socket on which the agent tells of the death of others */
#define PULSE_FD_VARIABLE "DDPTRAIN_PULSE_FD"       /* a file in memory for the pulse, which the agent reads */
#define LINK_VARIABLE "DDPTRAIN_LINK"               /* 1: the agent has no link to that of node 0 */
#define INCARNATION_VARIABLE "DDPTRAIN_INCARNATION" /* 0, 1, ...: how often the agents have started the ranks */
#define BEGUN_VARIABLE "DDPTRAIN_BEGUN"             /* 1: an earlier start has opened the run folder */
#define SECRET_VARIABLE "DDPTRAIN_SECRET"           /* set by the user across nodes */
#define INTERFACE_VARIABLE "GLOO_SOCKET_IFNAME"     /* as PyTorch: overrides the network interface */

/* env_slurm.c: the n-th (from 0) host of a Slurm node list such as "n[1-2,05],m7", and the number of hosts. false:
 * not a node list, or shorter. Pure. */
bool slurm_host(const char *list, int index, char *host, size_t size);
int slurm_host_count(const char *list);
/* The n-th number of a Slurm list of counts such as "2(x3),1"; 0 when there is none. Pure. */
int slurm_count(const char *list, int index);

/* A port for a job whose launcher gave none: the same on all its ranks, outside the ephemeral range. Pure. */
int derived_port(const char *job_id);

/* net.c. Descriptors are closed on exec. A deadline is a time of clock_seconds(). */

/* "10.0.0.7" or "fe80::1" of a socket address; "?" when it is neither IPv4 nor IPv6. */
void net_address_text(const struct sockaddr_storage *address, char text[64]);
bool net_is_loopback(const struct sockaddr_storage *address);
int net_port(const struct sockaddr_storage *address); /* 0 when it is neither */

/* A non-blocking listening socket on [host]:[port]. [is_one_host]: all ranks are here, so a loopback address is bound
 * as it is; otherwise a name that means loopback here (Debian's 127.0.1.1) or is not of this host becomes the
 * wildcard address. */
status net_listen(const char *host, int port, bool is_one_host, int *fd);

/* One attempt to connect, at most until [deadline]. *is_final: another attempt would not help. */
status net_connect(const char *host, int port, double deadline, int *fd, bool *is_final);

/* Seconds since the other host has acknowledged anything; 0 where that is not known (no TCP). */
double net_link_age(int fd);

/* Whether [host] means this host or cannot be resolved. */
bool net_is_here(const char *host);

/* The interface that has [address] ("eth0"), "?" when there is none. */
void net_interface(const char *address, char *name, size_t size);

/* Low latency, and a silent peer is noticed within a few seconds. */
void net_tune(int fd);

/* All [size] bytes, on a blocking or non-blocking socket. false: closed, failed or late; errno is 0, the error, or
 * ETIMEDOUT. */
bool net_send(int fd, const void *bytes, size_t size, double deadline);
bool net_receive(int fd, void *bytes, size_t size, double deadline);

/* Host name of this machine, "?" when it has none. */
void host_name(char *name, size_t size);

#endif
