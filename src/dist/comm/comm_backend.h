/* comm_backend: the table of functions that a backend of comm fills. comm.c checks arguments, handles groups of one,
 * and adds to a failure the name of the call and the rank that failed first; a backend moves bytes and calls combine().
 * Included by C++ too (comm_gloo.cc), so it is plain C. */
#pragma once

#include "base/status.h"
#include "base/text.h"
#include "dist/comm/comm_gpu.h"

struct comm_setup {
    const char *name; /* of the group, equal on its ranks and unique in the job: the prefix of its keys in the store */
    int rank, world_size; /* in the group, world_size > 1 */
    const int *members;   /* (world): their ranks in the job, for messages; not owned, valid until destroy */
    const int *hosts;    /* (world): host number of each rank; hosts are numbered from 0 in order of their first rank */
    double timeout;      /* seconds for each call */
    const char *address; /* numeric address of this host on the network that reaches rank 0 */
    struct store *store;
    int gpu;                            /* for a backend on GPUs: device number of this rank */
    const struct comm_backend *between; /* for comm_hosts: the backend between hosts */
};

#define COMM_ALL (-1) /* as a root: all ranks */

/* Additional functions of a backend on GPUs: the calls of comm_gpu.h, where they are documented. */
struct comm_enqueued {
    status (*after)(void *group, void *stream);
    status (*before)(void *group, void *stream);
    status (*add_marks)(void *group, size_t count, size_t *first);
    status (*mark)(void *group, size_t index);
    status (*before_mark)(void *group, size_t index, void *stream);
    status (*average)(void *group, float *data, size_t count, bool is_compressed, struct comm_result to);
    status (*average_scatter)(void *group, float *data, size_t count, bool is_compressed, struct comm_result to);
    status (*reserve)(void *group, size_t count);
    status (*all_gather)(void *group, const float *own, float *data, size_t count);
    status (*copy)(void *group, float *to, const float *from, size_t count);
    status (*wait)(void *group, void *stream);
};

/* Sizes are in bytes, ranks are the group's, lane < COMM_LANES. Failures are STATUS_PEER with a reason. */
struct comm_backend {
    const char *name;
    status (*create)(const struct comm_setup *setup, void **group); /* all ranks */
    void (*destroy)(void *group);                                   /* takes NULL */
    /* Makes blocked calls of all threads fail soon; NULL: they end by their timeout only. May be called from any
     * thread, at any time between create and destroy, more than once. */
    void (*abort)(void *group);
    /* in place on [root]; the data of other ranks is not changed. COMM_ALL: all-reduce */
    status (*reduce)(void *group, int lane, void *data, size_t count, enum comm_type type, enum comm_op op, int root);
    /* comm_average, with [factor] 1 / world_size; NULL: comm.c multiplies, and calls [reduce] */
    status (*average)(void *group, int lane, float *data, size_t count, float factor);
    status (*reduce_scatter)(void *group, int lane, const void *data, size_t count, enum comm_type type,
                             enum comm_op op, void *out);
    /* sizes (world): bytes of each rank, equal on all ranks; out: the bytes of rank 0, then of rank 1, ... COMM_ALL:
     * all-gather */
    status (*gather)(void *group, int lane, const void *data, const size_t *sizes, void *out, int root);
    status (*scatter)(void *group, int lane, const void *data, size_t size, void *out, int root);
    status (*broadcast)(void *group, int lane, void *data, size_t size, int root);
    status (*barrier)(void *group, int lane);
    status (*send)(void *group, int lane, const void *data, size_t size, int to);
    status (*recv)(void *group, int lane, void *data, size_t size, int from);
    /* zeroed memory that reduce uses without a copy, valid until destroy; STATUS_IO, on all ranks: none available. All
     * ranks. The function is NULL if the backend has no such memory */
    status (*alloc)(void *group, size_t size, void **out);
    const struct comm_enqueued *enqueued; /* NULL: a backend for host memory */
    const char *title;                    /* with [enqueued]: the name in messages, "NCCL" */
    /* Connections are made when two ranks first use them: comm_hosts has a group of all ranks for send and recv. false:
     * it cannot send and receive between hosts (the backend of the simulation) */
    bool connects_on_demand;
    /* Adds [data] (count) of all ranks by the library's own all-reduce, whose order of sums is another; for comparing
     * times. It blocks without a deadline. NULL: it has none, or none that is comparable */
    status (*library_sum)(void *group, float *data, size_t count);
};

/* Loads the module of "gloo". STATUS_USAGE when this build has none. */
status comm_backend_gloo(const struct comm_backend **out);
/* Pure but for the environment: "openmpi" or "mpich", the module for the MPI that has started this process by mpirun,
 * or by srun with --mpi; NULL: none has. */
const char *comm_mpi_module(enum dist_launcher launcher);
/* Loads the library and the module of the MPI that has started this process by [launcher]. STATUS_USAGE when none has,
 * or when it cannot be loaded. */
status comm_backend_mpi(enum dist_launcher launcher, const struct comm_backend **out);
/* Loads the module of "nccl". STATUS_USAGE when this build has none, or its library is missing. */
status comm_backend_nccl(const struct comm_backend **out);

/* For the creation of a group: *number becomes the maximum over its ranks. Every rank passes its own failure or OK,
 * which is consumed; all get the first failure in order of rank, as STATUS_IO. [what] is used once in a group. One
 * message from and to each rank. All ranks. */
status comm_agree(const struct comm_setup *setup, const char *what, status own, int *number);

/* ---- the table of backends ---- */

/* The table of the values of dist.backend and of `ddptrain comm --backend`: choices of the config, names in messages,
 * and functions that connect a group. */

struct comm;

/* X(enum constant, name, function that connects a group for host memory, function that loads the backend for GPU
 * memory that is used in addition (comm_gpu.h; NULL: none), whether every rank must have a GPU). */
#define COMM_BACKENDS(X)                                                                                               \
    X(BACKEND_AUTO, "auto", comm_connect_auto, comm_backend_nccl, false)                                               \
    X(BACKEND_SHM, "shm", comm_connect_shm, NULL, false)                                                               \
    X(BACKEND_GLOO, "gloo", comm_connect_gloo, NULL, false)                                                            \
    X(BACKEND_MPI, "mpi", comm_connect_mpi, NULL, false)                                                               \
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
/* *backend is an enum dist_backend; STATUS_USAGE "expected auto, shm, ... or nccl, got 'tcp'". */
status comm_backend_find(const char *name, int *backend);

/* ---- proofs ---- */

/* The two ranks of a connection prove to each other that they have the job's secret. Each sends the other store_sign of
 * the message below, which contains both ranks, the connection's name, and a nonce that the other has made for it, so
 * no proof can be used twice. Pure, so that a fuzzer can test it without a network. */

#define COMM_NONCE 32
#define COMM_PROOF 32

/* Adds to [out] the message that rank [from] signs for rank [to] of [link]. false: [size] of [nonce] is not COMM_NONCE.
 */
bool comm_proof_message(const char *link, int from, int to, const void *nonce, size_t size, struct text *out);

/* Whether the proofs are equal; compared in constant time. */
bool comm_proof_is_good(const uint8_t received[COMM_PROOF], const uint8_t expected[COMM_PROOF]);
