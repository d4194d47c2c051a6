/* comm_hosts: the backend for several ranks on each of several hosts: shared memory inside a host; the first rank of
 * each host, its leader, exchanges data with the other leaders over Gloo. Reductions combine the ranks of each host in
 * order, then the hosts in order. */
#ifndef DIST_COMM_HOSTS_H
#define DIST_COMM_HOSTS_H

#include "dist/comm/comm_backend.h"

extern const struct comm_backend comm_hosts;

#endif
