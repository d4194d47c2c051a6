/* comm_group: what comm.c (calls) and comm_group.c (life) share. */
#ifndef DIST_COMM_GROUP_H
#define DIST_COMM_GROUP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "dist/comm/comm_backend.h"

#define MOST_BUFFERS 8

/* What the lanes of a group share. */
struct comm_group {
    const struct comm_backend *backend; /* NULL: a group of one */
    void *group;
    char *name;
    struct store *store;
    double timeout;
    int job_rank, job_size; /* among all ranks, for sentences */
    int *members, *hosts;   /* (world): rank in the job, and on which host */
    int host_count;
    char *description;           /* comm_describe */
    unsigned splits;             /* so far: the same on all ranks */
    size_t *equal;               /* (world): room for the sizes of a gather; one for each lane */
    void *buffers[MOST_BUFFERS]; /* of comm_alloc, where the backend has no memory of its own */
    int buffer_count;
    struct comm *gpu; /* comm_gpu's; NULL: none */
    int gpu_number;   /* of a group on GPUs and of the one that it belongs to: this rank's */
    atomic_bool is_dead;
    pthread_mutex_t mutex; /* guards: */
    char *why;             /* the first failure's sentence; NULL before */
};

struct comm {
    int rank, world_size, lane;
    struct comm_group *shared;
    struct comm *lanes; /* (COMM_LANES): one allocation */
};

/* A failure of the backend in [call], with the rank that explains it. Consumes [failure]. */
status comm_explain(const struct comm_group *group, const char *call, status failure);

/* comm.c: around each call of a backend. A failure is explained, and the group is dead. */
status comm_begin(struct comm *comm, const char *call);
status comm_finish(struct comm *comm, const char *call, status failure);

/* comm_group.c: creates [backend]'s group for [comm] and has it aborted when a rank is lost. All ranks. */
status comm_connect_with(struct comm *comm, const struct comm_backend *backend);

/* comm_group.c: a second group of the same ranks, "<name>/gpu", on [backend], of which [comm] becomes the owner. All
 * ranks. */
status comm_add_gpu(struct comm *comm, const struct comm_backend *backend, int gpu);

#endif
