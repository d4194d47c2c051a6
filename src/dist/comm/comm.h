/* comm: collective communication between the ranks of a group, in PyTorch's terms. A backend fills a table: shared
 * memory between ranks of one host, Gloo between hosts; a process that is alone needs none. Counts are in elements.
 *
 * A collective is called by all ranks of the group in the same order, blocks, and ends within the group's timeout.
 * After a failure (STATUS_PEER: a rank was lost, is in another call, or did not answer in time) the group is dead: only
 * comm_destroy may follow.
 *
 * Reductions combine element by element in order of rank, so a result is equal on all ranks, repeats bit for bit, and
 * does not depend on how data is cut into calls. 16-bit floats are computed in float32 and rounded once, with several
 * ranks on each of several hosts once on each host and once over the hosts. Integers wrap around; with floats a NaN
 * wins over any number. */
#ifndef DIST_COMM_H
#define DIST_COMM_H

#include <stddef.h>
#include <stdint.h>

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
    COMM_TYPES /* how many there are */
};
enum comm_op { COMM_SUM, COMM_AVG, COMM_MIN, COMM_MAX, COMM_PRODUCT, COMM_OPS };

size_t comm_type_size(enum comm_type type); /* bytes */

struct comm;

/* Joins the group of all ranks. [backend]: "shm" is shared memory, for ranks of one host; "gloo" goes through sockets;
 * "auto" takes shared memory where it can, Gloo where it must, and both for several ranks on each of several hosts:
 * shared memory inside, and one rank of each host on the wire. world_size 1 gives "self" whatever the backend.
 * [timeout] seconds for each call. [store] is not owned and must outlive the group; NULL only for world_size 1. All
 * ranks. */
status comm_create(const char *backend, const struct dist_env *env, struct store *store, double timeout,
                   struct comm **out);
void comm_destroy(struct comm *comm); /* takes NULL; not collective, never blocks for long */

int comm_rank(const struct comm *comm);
int comm_world_size(const struct comm *comm);
const char *comm_backend(const struct comm *comm);  /* "shm", "gloo", "shm+gloo", "self"; "nccl" with comm_gpu.h */
const char *comm_describe(const struct comm *comm); /* the same in words, with the reason when it is not the best one */

/* Cuts the group into groups: ranks with the same [color] (>= 0) form one, ordered by [key], equal keys by rank. A
 * negative color takes part in the call and in no group: *out is NULL. The new group is destroyed on its own, before
 * the store is closed; it may be split again. MPI_Comm_split; torch.distributed.new_group. All ranks. */
status comm_split(struct comm *comm, int color, int key, struct comm **out);

/* Two independent streams of calls may run at once, each in its own thread: the group itself is lane 0; lane 1 is for a
 * communication thread. Calls of a lane are ordered; lanes do not disturb each other. Not owned: lives as long as the
 * group; comm_destroy takes the group only. NULL: comm_gpu's groups have lane 0 only. */
#define COMM_LANES 2
struct comm *comm_lane(struct comm *comm, int lane);

/* Memory for data that is reduced often, zero at first: with shared memory, comm_all_reduce does not copy it. Lives as
 * long as the group. All ranks, in the same order, with the same [size] in bytes. */
status comm_alloc(struct comm *comm, size_t size, void **out);

/* ---- results on all ranks ---- */

/* data (count): every rank ends with the element-wise result. */
status comm_all_reduce(struct comm *comm, void *data, size_t count, enum comm_type type, enum comm_op op);
/* data (world, count), out (count): rank r ends with the result of part r, the same bits as comm_all_reduce gives.
 * [out] may be rank r's own part of [data]; the rest of [data] stays. */
status comm_reduce_scatter(struct comm *comm, const void *data, size_t count, enum comm_type type, enum comm_op op,
                           void *out);
/* data (count): rank [root]'s values reach all. */
status comm_broadcast(struct comm *comm, void *data, size_t count, enum comm_type type, int root);
/* out (world, count): every rank's values in order of rank. [data] may be this rank's own part of [out]. */
status comm_all_gather(struct comm *comm, const void *data, size_t count, enum comm_type type, void *out);
/* [size] bytes, as many as each rank likes: *out, malloc'ed, holds those of rank 0, then of rank 1, ...; sizes (world)
 * says how many each gave. torch.distributed.all_gather_object without the pickling. */
status comm_all_gather_bytes(struct comm *comm, const void *data, size_t size, void **out, size_t *sizes);
status comm_barrier(struct comm *comm);

/* ---- one rank's results, or one rank's data ---- */

/* data (count): rank [root] ends with the element-wise result; what the others have stays. */
status comm_reduce(struct comm *comm, void *data, size_t count, enum comm_type type, enum comm_op op, int root);
/* data (count); out (world, count) on [root], else unused. On [root], [data] may be its own part of [out]. */
status comm_gather(struct comm *comm, const void *data, size_t count, enum comm_type type, void *out, int root);
/* As comm_all_gather_bytes; *out is NULL except on [root], sizes (world) are known to all. */
status comm_gather_bytes(struct comm *comm, const void *data, size_t size, int root, void **out, size_t *sizes);
/* data (world, count) on [root], else unused; out (count): rank r ends with part r. On [root], [out] may be its own
 * part of [data]. */
status comm_scatter(struct comm *comm, const void *data, size_t count, enum comm_type type, void *out, int root);

/* ---- between two ranks ---- */

/* [count] must be equal on both; the messages of a pair arrive in order. comm_send may wait for the receiver's
 * comm_recv. Only the two ranks. */
status comm_send(struct comm *comm, const void *data, size_t count, enum comm_type type, int to);
status comm_recv(struct comm *comm, void *data, size_t count, enum comm_type type, int from);

#endif
