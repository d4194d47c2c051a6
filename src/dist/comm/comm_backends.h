/* comm_backends: the table of values of dist.backend and of `ddptrain comm --backend`. The choices of the config, their
 * names in messages and how a group connects follow from it. */
#ifndef DIST_COMM_BACKENDS_H
#define DIST_COMM_BACKENDS_H

#include "base/status.h"

struct comm;

/* X(name in the code, name, function that connects the host memory of a group). NCCL is used beside the backend for the
 * host memory (comm_gpu.h). */
#define COMM_BACKENDS(X)                                                                                               \
    X(BACKEND_AUTO, "auto", comm_connect_auto)                                                                         \
    X(BACKEND_SHM, "shm", comm_connect_shm)                                                                            \
    X(BACKEND_GLOO, "gloo", comm_connect_gloo)                                                                         \
    X(BACKEND_NCCL, "nccl", comm_connect_auto)

enum dist_backend {
#define X(id, name, connect) id,
    COMM_BACKENDS(X)
#undef X
};

/* STATUS_USAGE when this backend cannot connect these ranks. */
#define X(id, name, connect) status connect(struct comm *comm);
COMM_BACKENDS(X)
#undef X

/* The names in the order of the enum, then NULL. */
extern const char *const comm_backend_names[];
/* *backend is an enum dist_backend; STATUS_USAGE "expected auto, shm, ... or nccl, got 'mpi'". */
status comm_backend_find(const char *name, int *backend);

#endif
