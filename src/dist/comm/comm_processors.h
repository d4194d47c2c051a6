/* comm_processors: how many threads a rank takes when those of its host share the processors. */
#ifndef DIST_COMM_PROCESSORS_H
#define DIST_COMM_PROCESSORS_H

#include "dist/comm/comm.h"

/* Unless OMP_NUM_THREADS is set: as many threads as processors in this rank's mask, where others of its host have the
 * same an even part of them, and no more than an even part of the control group's quota. At least 1. Before the first
 * loop over threads, and before anything is prepared for one. For a world of one nothing happens. All ranks. */
status comm_limit_threads(struct comm *comm);

#endif
