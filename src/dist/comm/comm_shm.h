/* comm_shm: the backend between ranks of one host, over shared memory. */
#pragma once

#include <stdatomic.h>
#include <sys/types.h>

#include "dist/comm/comm_backend.h"

extern const struct comm_backend comm_shm;

/* ---- the map ---- */

/* Memory that all ranks of a group on one host map. It is a memfd: it has no name in any file system, does not depend
 * on the size of /dev/shm, and is freed with its last process, however that ends. Rank 0 sends the descriptor over a
 * Unix socket to ranks that prove the job's secret. Every rank locks one byte of it until it exits, so the kernel shows
 * which ranks are alive. */

struct shm_map {
    int fd;
    void *base; /* (size), zeroed */
    size_t size;
};

/* identity (size): a string that is equal for ranks that can share memory: host name, boot id, network namespace, user.
 * DDPTRAIN_HOST, if set, is part of it: two values on one machine count as two hosts (for tests). */
#define HOST_VARIABLE "DDPTRAIN_HOST"
void shm_host_identity(char *identity, size_t size);

/* ---- waiting ---- */

/* Waits until a counter of another rank in shared memory reaches a number. It spins first, because the other rank is
 * usually nanoseconds behind; then it yields the core, because the other rank may need it; then it sleeps on a futex.
 */

/* Written by one rank. Two cache lines, since processors fetch pairs. */
struct shm_signal {
    _Alignas(128) atomic_uint number; /* only incremented; wraps around; also the futex */
    atomic_uint sleepers;
};

/* How a lane waits. */
struct shm_wait_policy {
    const struct shm_map *map; /* shows which ranks are alive */
    const atomic_bool *is_aborted;
    double timeout;         /* seconds of a call */
    int spins, max_spins;   /* checks before the first yield; adapts to whether spinning succeeded lately */
    double yield_seconds;   /* then the rank sleeps */
    long sleep_nanoseconds; /* between two checks whether the other is alive */
};

/* For a lane of a group with [ranks] ranks on this host. [timeout]: seconds of a call. */
struct shm_wait_policy shm_wait_policy(const struct shm_map *map, const atomic_bool *is_aborted, double timeout,
                                       int ranks, int lane);

/* Waits until the signal of [rank] has reached [number]. *deadline: of the call, 0 before its first long wait.
 * STATUS_PEER when the rank has exited, does not reach it in time, or *is_aborted is set. [name]: the rank's number for
 * messages. */
status shm_signal_wait(struct shm_signal *signal, uint32_t number, struct shm_wait_policy *policy, int rank, int name,
                       double *deadline);
