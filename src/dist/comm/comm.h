/* comm: collective communication between the ranks of a group, in PyTorch's terms. Backends are tables of functions:
 * shared memory between ranks of one host, Gloo between hosts. A group of one rank has no backend. Counts are in
 * elements.
 *
 * All ranks of the group call a collective, in the same order. It blocks, and ends within the group's timeout.
 * After a failure (STATUS_PEER: a rank was lost, is in another call, or did not answer in time) the group is unusable:
 * only comm_destroy may follow.
 *
 * Reductions combine element by element in order of rank, so a result is equal on all ranks, is the same in every run,
 * and does not depend on how data is split into calls. 16-bit floats are computed in float32 and rounded once; with
 * several ranks on each of several hosts they are rounded once on each host and once over the hosts. Integers wrap
 * around. A NaN in any input gives NaN. */
#pragma once

#include "base/status.h"
#include "dist/process/env.h"
#include "dist/store/store.h"

enum comm_type {
    COMM_FLOAT32,
    COMM_FLOAT64,
    COMM_BFLOAT16,
    COMM_FLOAT16, /* IEEE half precision */
    COMM_INT32,
    COMM_INT64,
    COMM_UINT8,
    COMM_TYPES /* number of types */
};
enum comm_op { COMM_SUM, COMM_AVG, COMM_MIN, COMM_MAX, COMM_PRODUCT, COMM_OPS };

size_t comm_type_size(enum comm_type type); /* bytes */

struct comm;

/* Joins the group of all ranks. [backend]: "shm" is shared memory, for ranks of one host; "gloo" uses TCP sockets;
 * "auto" uses shared memory on one host, Gloo with one rank on each host, and both for several ranks on each of several
 * hosts: shared memory inside a host, Gloo between the first ranks of the hosts. world_size 1 gives "self" whatever the
 * backend. [timeout]: seconds for each call. [store] is not owned and must outlive the group; NULL only for
 * world_size 1. All ranks. */
status comm_create(const char *backend, const struct dist_env *env, struct store *store, double timeout,
                   struct comm **out);
void comm_destroy(struct comm *comm); /* takes NULL; not collective; blocks for a few seconds at most */

int comm_rank(const struct comm *comm);
int comm_world_size(const struct comm *comm);
const char *comm_backend(const struct comm *comm);  /* "shm", "gloo", "shm+gloo", "self"; "nccl" with comm_gpu.h */
const char *comm_describe(const struct comm *comm); /* for messages; with the reason if a faster one failed */

/* Divides the group into new groups: ranks with the same [color] (>= 0) form one, ordered by [key], then by rank. A
 * rank with a negative color makes the call too and gets no group: *out is NULL. The caller destroys the new group,
 * before the store is closed; it may be split again. Like MPI_Comm_split; torch.distributed.new_group. All ranks. */
status comm_split(struct comm *comm, int color, int key, struct comm **out);

/* A group of the ranks [ranks] (count) of [comm], in this order; *out is NULL on others, which make the call, too. Like
 * torch.distributed.new_group. STATUS_USAGE, the same sentence on all ranks: they name other ranks, or one that is not
 * in [comm] or twice in the list. [name]: of the group, for messages. The rest as comm_split. All ranks. */
status comm_new_group(struct comm *comm, const char *name, const int *ranks, size_t count, struct comm **out);

/* Two independent sequences of calls (lanes) may run at once, each in its own thread: that of the group itself, and one
 * for a communication thread. The calls of a lane are ordered; calls of different lanes are independent. Not owned:
 * valid as long as the group; only the group itself is passed to comm_destroy. NULL for COMM_THREAD_LANE of comm_gpu's
 * groups. */
enum { COMM_MAIN_LANE, COMM_THREAD_LANE, COMM_LANES };
struct comm *comm_lane(struct comm *comm, int lane);

/* Zeroed memory for data that is reduced often: with shared memory, comm_all_reduce does not copy it. Owned by the
 * group and freed with it. All ranks, in the same order, with the same [size] in bytes. */
status comm_alloc(struct comm *comm, size_t size, void **out);

/* ---- results on all ranks ---- */

/* data (count): in place, the element-wise result on every rank. */
status comm_all_reduce(struct comm *comm, void *data, size_t count, enum comm_type type, enum comm_op op);
/* data (count): in place, the sum by the library's own function (MPI_Allreduce), which may add in another order: for
 * comparing times. STATUS_USAGE: the backend has none; it blocks without a timeout. */
status comm_library_sum(struct comm *comm, float *data, size_t count);
bool comm_has_library_sum(const struct comm *comm);
/* data (count): in place, the sum of each rank's value * (float)(1.0 / world_size) on every rank, the arithmetic of
 * PyTorch's DDP and of NCCL's PreMulSum: the same bits as multiplying and then calling comm_all_reduce. */
status comm_average(struct comm *comm, float *data, size_t count);
/* data (world, count), out (count): rank r gets the result of part r, the same bits as from comm_all_reduce. [out] may
 * be rank r's own part of [data]; the rest of [data] is not changed. */
status comm_reduce_scatter(struct comm *comm, const void *data, size_t count, enum comm_type type, enum comm_op op,
                           void *out);
/* data (count): every rank gets the values of rank [root]. */
status comm_broadcast(struct comm *comm, void *data, size_t count, enum comm_type type, int root);
/* data (count), out (world, count): the values of every rank in order of rank. [data] may be this rank's own part of
 * [out]. */
status comm_all_gather(struct comm *comm, const void *data, size_t count, enum comm_type type, void *out);
/* [size] bytes, which may differ between ranks. *out: the bytes of rank 0, then of rank 1, ...; the caller frees it.
 * sizes (world): the size of each rank. Like torch.distributed.all_gather_object, without pickling. */
status comm_all_gather_bytes(struct comm *comm, const void *data, size_t size, void **out, size_t *sizes);
status comm_barrier(struct comm *comm);

/* ---- one rank's results, or one rank's data ---- */

/* data (count): in place on rank [root], the element-wise result; the data of the other ranks is not changed. */
status comm_reduce(struct comm *comm, void *data, size_t count, enum comm_type type, enum comm_op op, int root);
/* data (count); out (world, count) on [root], else unused. On [root], [data] may be its own part of [out]. */
status comm_gather(struct comm *comm, const void *data, size_t count, enum comm_type type, void *out, int root);
/* As comm_all_gather_bytes; *out is NULL except on [root]; sizes (world) are set on all ranks. */
status comm_gather_bytes(struct comm *comm, const void *data, size_t size, int root, void **out, size_t *sizes);
/* data (world, count) on [root], else unused; out (count): rank r gets part r. On [root], [out] may be its own
 * part of [data]. */
status comm_scatter(struct comm *comm, const void *data, size_t count, enum comm_type type, void *out, int root);

/* ---- between two ranks ---- */

/* [count] must be equal on both; messages between two ranks arrive in order. comm_send may wait for the receiver's
 * comm_recv. Only the two ranks. */
status comm_send(struct comm *comm, const void *data, size_t count, enum comm_type type, int to);
status comm_recv(struct comm *comm, void *data, size_t count, enum comm_type type, int from);

/* ---- threads of the ranks of a host ---- */

/* Limits the threads of this rank, unless OMP_NUM_THREADS is set: processors that several ranks of the host may use are
 * divided evenly between them, and so is the quota of the control group. At least 1 thread. Call it before the first
 * loop over threads, and before anything is allocated for one. Does nothing for world_size 1. All ranks. */
status comm_limit_threads(struct comm *comm);

/* *overlaps: whether communication by a thread of its own can run at the same time as computation: yes over a network,
 * where it mostly waits; in shared memory, where it is computation too, if the ranks of the host compute with fewer
 * threads than there are processors. The same answer on all ranks. All ranks. */
status comm_overlaps(struct comm *comm, bool *overlaps);
