/* comm_backend: the table that a backend of comm fills. comm.c checks arguments, answers for groups of one, and names
 * the call and the rank that failed first in failures; a backend moves bytes and calls combine(). Also read by C++
 * (comm_gloo.cc), so it holds nothing but plain C. */
#ifndef DIST_COMM_BACKEND_H
#define DIST_COMM_BACKEND_H

#include "dist/comm/comm.h"

struct comm_setup {
    const char *name; /* of the group, the same on its ranks and no other group's: a prefix of its keys in the store */
    int rank, world_size; /* in the group, world_size > 1 */
    const int *members;   /* (world): their ranks in the job, for sentences; not owned as long as the group lives */
    const int *hosts;     /* (world): on which host each is, the hosts numbered from 0 in order of their first rank */
    double timeout;       /* seconds for each call */
    const char *address;  /* numeric, of this host, on the network that leads to rank 0 */
    struct store *store;
    int gpu; /* for a backend on GPUs: this rank's */
};

#define COMM_ALL (-1) /* as a root: everybody */

/* What a backend on GPUs has beyond the table below: calls of comm_gpu.h, which says what they do. */
struct comm_enqueued {
    status (*after)(void *group, void *stream);
    status (*before)(void *group, void *stream);
    status (*average)(void *group, float *data, size_t count, bool is_compressed);
    status (*average_scatter)(void *group, float *data, size_t count, bool is_compressed);
    status (*reserve)(void *group, size_t count);
    status (*sum)(void *group, void *data, size_t count, enum comm_type type);
    status (*all_gather)(void *group, float *data, size_t count);
    status (*wait)(void *group, void *stream);
};

/* Sizes are in bytes, ranks are the group's, lane < COMM_LANES. Failures are STATUS_PEER with a reason. */
struct comm_backend {
    const char *name;
    status (*create)(const struct comm_setup *setup, void **group); /* all ranks */
    void (*destroy)(void *group);                                   /* takes NULL */
    /* Makes calls that are blocked fail soon, in every thread; NULL: they end by their timeout only. From any thread,
     * at any time between create and destroy, more than once. */
    void (*abort)(void *group);
    /* in place on [root]; the others' data stays. COMM_ALL: all-reduce */
    status (*reduce)(void *group, int lane, void *data, size_t count, enum comm_type type, enum comm_op op, int root);
    status (*reduce_scatter)(void *group, int lane, const void *data, size_t count, enum comm_type type,
                             enum comm_op op, void *out);
    /* sizes (world): what each rank gives, known to all; out: those of rank 0, then of rank 1, ... COMM_ALL: all-gather
     */
    status (*gather)(void *group, int lane, const void *data, const size_t *sizes, void *out, int root);
    status (*scatter)(void *group, int lane, const void *data, size_t size, void *out, int root);
    status (*broadcast)(void *group, int lane, void *data, size_t size, int root);
    status (*barrier)(void *group, int lane);
    status (*send)(void *group, int lane, const void *data, size_t size, int to);
    status (*recv)(void *group, int lane, void *data, size_t size, int from);
    /* memory that reduce uses where it is, zero at first, until destroy; STATUS_IO: on no rank. All ranks. NULL: there
     * is none */
    status (*alloc)(void *group, size_t size, void **out);
    const struct comm_enqueued *enqueued; /* NULL: a backend on the host's memory */
    const char *title;                    /* with [enqueued]: its name in sentences, "NCCL" */
};

/* "gloo", from its module. STATUS_USAGE when this build has none. */
status comm_backend_gloo(const struct comm_backend **out);
/* "nccl", the same. */
status comm_backend_nccl(const struct comm_backend **out);

#endif
