/* comm_group: what comm.c shares with the backends beside it. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "dist/comm/comm_backend.h"

#define MAX_BUFFERS 8

/* State that the lanes of a group share. */
struct comm_group {
    const struct comm_backend *backend; /* NULL: a group of one */
    void *group;
    char *name;
    struct store *store;
    double timeout;
    int job_rank, job_size; /* of all ranks, for messages */
    enum dist_launcher launcher;
    const struct comm_backend *between; /* between hosts, with "auto"; NULL: not yet chosen */
    int *members, *hosts;               /* (world): rank in the job; host number */
    int host_count;
    char *description;          /* comm_describe */
    unsigned splits;            /* calls of comm_split so far: equal on all ranks */
    size_t *equal;              /* (COMM_LANES, world): the sizes of a gather */
    void *buffers[MAX_BUFFERS]; /* of comm_alloc, where the backend allocates none */
    int buffer_count;
    struct comm *gpu; /* owned: the group for GPU memory; NULL: none */
    int gpu_number;   /* device number of this rank; set in a group for GPU memory */
    atomic_bool has_failed;
    pthread_mutex_t mutex; /* guards: */
    char *why;             /* message of the first failure; NULL before */
};

struct comm {
    int rank, world_size, lane;
    struct comm_group *shared;
    struct comm *lanes; /* (COMM_LANES): one allocation */
};

/* Before and after each call of a backend. comm_finish passes a failure to comm_explain and marks the group as
 * failed; later calls of comm_begin return the first failure. */
status comm_begin(struct comm *comm, const char *call);
status comm_finish(struct comm *comm, const char *call, status failure);

/* Creates the backend's group for [comm]; it is aborted when a rank is lost. All ranks. */
status comm_connect_with(struct comm *comm, const struct comm_backend *backend);

/* Creates a second group of the same ranks, "<name>/gpu", on [backend]; [comm] owns it. [gpu]: device
 * number of this rank. All ranks. */
status comm_add_gpu(struct comm *comm, const struct comm_backend *backend, int gpu);

/* The backends for several ranks on each of several hosts: shared memory inside a host; the first rank of
 * each host, its leader, exchanges data with the other leaders over Gloo or MPI. Reductions combine the ranks of each
 * host in order, then the hosts in order. */
extern const struct comm_backend comm_hosts_gloo, comm_hosts_mpi;
