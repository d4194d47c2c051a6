/* comm_backends: the table of the values of dist.backend and of `ddptrain comm --backend`: choices of the config, names
 * in messages, and functions that connect a group. */
#ifndef DIST_COMM_BACKENDS_H
#define DIST_COMM_BACKENDS_H

#include <stdbool.h>

#include "base/status.h"

struct comm;

/* X(enum constant, name, function that connects a group for host memory, function that loads the backend for GPU
 * memory that is used in addition (comm_gpu.h; NULL: none), whether every rank must have a GPU). */
#define COMM_BACKENDS(X)                                                                                               \
    X(BACKEND_AUTO, "auto", comm_connect_auto, comm_backend_nccl, false)                                               \
    X(BACKEND_SHM, "shm", comm_connect_shm, NULL, false)                                                               \
    X(BACKEND_GLOO, "gloo", comm_connect_gloo, NULL, false)                                                            \
    X(BACKEND_NCCL, "nccl", comm_connect_auto, comm_backend_nccl, true)

enum dist_backend {
#define X(id, name, connect, gpu, needs_gpus) id,
    COMM_BACKENDS(X)
#undef X
};

/* STATUS_USAGE when this backend cannot connect these ranks. */
#define X(id, name, connect, gpu, needs_gpus) status connect(struct comm *comm);
COMM_BACKENDS(X)
#undef X

/* The names in the order of the enum, then NULL. */
extern const char *const comm_backend_names[];
/* Whether the backend averages gradients in GPU memory; whether it requires GPUs. [backend]: an enum dist_backend. */
bool comm_backend_uses_gpus(int backend);
bool comm_backend_needs_gpus(int backend);
/* *backend is an enum dist_backend; STATUS_USAGE "expected auto, shm, ... or nccl, got 'mpi'". */
status comm_backend_find(const char *name, int *backend);

#endif
