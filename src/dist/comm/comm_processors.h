/* comm_processors: how many threads a rank uses when the ranks of its host share the processors. */
#ifndef DIST_COMM_PROCESSORS_H
#define DIST_COMM_PROCESSORS_H

#include "dist/comm/comm.h"

/* Limits the threads of this rank, unless OMP_NUM_THREADS is set: processors that several ranks of the host may use are
 * divided evenly between them, and so is the quota of the control group. At least 1 thread. Call it before the first
 * loop over threads, and before anything is allocated for one. Does nothing for world_size 1. All ranks. */
status comm_limit_threads(struct comm *comm);

/* *overlaps: whether communication by a thread of its own can run at the same time as computation: yes over a network,
 * where it mostly waits; in shared memory, where it is computation too, if the ranks of the host compute with fewer
 * threads than there are processors. The same answer on all ranks. All ranks. */
status comm_overlaps(struct comm *comm, bool *overlaps);

#endif
