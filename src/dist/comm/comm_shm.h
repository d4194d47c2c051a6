/* comm_shm: the backend between ranks of one host, over shared memory. */
#ifndef DIST_COMM_SHM_H
#define DIST_COMM_SHM_H

#include "dist/comm/comm_backend.h"

extern const struct comm_backend comm_shm;

#endif
