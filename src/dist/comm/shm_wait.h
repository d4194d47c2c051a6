/* shm_wait: waits until a counter of another rank in shared memory reaches a number. It spins first, because the other
 * rank is usually nanoseconds behind; then it yields the core, because the other rank may need it; then it sleeps on a
 * futex. */
#ifndef DIST_SHM_WAIT_H
#define DIST_SHM_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "dist/comm/shm_map.h"

/* Written by one rank. Two cache lines, since processors fetch pairs. */
struct shm_signal {
    _Alignas(128) atomic_uint number; /* only incremented; wraps around; also the futex */
    atomic_uint sleepers;
};

/* How a lane waits. */
struct shm_wait_policy {
    const struct shm_map *map; /* shows which ranks are alive */
    const atomic_bool *is_aborted;
    double timeout;       /* seconds of a call */
    int spins, max_spins; /* checks before the first yield; adapts to whether spinning succeeded lately */
    double yield_seconds; /* then the rank sleeps */
};

/* For a lane of a group with [ranks] ranks on this host. [timeout]: seconds of a call. */
struct shm_wait_policy shm_wait_policy(const struct shm_map *map, const atomic_bool *is_aborted, double timeout,
                                       int ranks, int lane);

/* Sets the number and wakes sleeping ranks. What this rank has read and written before is complete for a rank that has
 * waited for the number (release and acquire), on processors with weak memory order too. */
void shm_signal_raise(struct shm_signal *signal, uint32_t number);

/* Waits until the signal of [rank] has reached [number]. *deadline: of the call, 0 before its first long wait.
 * STATUS_PEER when the rank has exited, does not reach it in time, or *is_aborted is set. [name]: the rank's number for
 * messages. */
status shm_signal_wait(struct shm_signal *signal, uint32_t number, struct shm_wait_policy *policy, int rank, int name,
                       double *deadline);

#endif
