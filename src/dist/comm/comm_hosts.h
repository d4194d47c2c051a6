/* comm_hosts: the backend for several ranks on each of several hosts: shared memory inside a host, and the first rank
 * of each host, its leader, talks to the other leaders over Gloo. Reductions add up the ranks of each host in order,
 * then the hosts in order. */
#ifndef DIST_COMM_HOSTS_H
#define DIST_COMM_HOSTS_H

#include "dist/comm/comm_backend.h"

extern const struct comm_backend comm_hosts;

#endif
