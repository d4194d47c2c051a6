/* shm_wait: waiting for another rank's number in shared memory to rise: first by looking, because the other is usually
 * nanoseconds away, then by yielding the core, because the other may need it, then asleep in the kernel. */
#ifndef DIST_SHM_WAIT_H
#define DIST_SHM_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "dist/comm/shm_map.h"

/* Written by one rank. Two cache lines, since processors fetch pairs. */
struct shm_signal {
    _Alignas(128) atomic_uint number; /* rises, and wraps around; also the futex */
    atomic_uint sleepers;
};

/* How patiently a lane waits. */
struct shm_patience {
    const struct shm_map *map; /* to see whether others live */
    const atomic_bool *is_aborted;
    double timeout;        /* seconds of a call */
    int looks, most_looks; /* how often before the core is offered to others; as many as were of use lately */
    double yielding;       /* seconds after which it is given up */
};

/* [ranks] of this host, of which each has [lane] at work. */
struct shm_patience shm_patience(const struct shm_map *map, const atomic_bool *is_aborted, double timeout, int ranks,
                                 int lane);

void shm_signal_raise(struct shm_signal *signal, uint32_t number);

/* Until the signal of [rank] has reached [number]. *deadline: of the call, 0 before its first long wait. STATUS_PEER
 * when the rank is gone, "rank 2 left", or too late, or *is_aborted; [name]: what it is called there. */
status shm_signal_wait(struct shm_signal *signal, uint32_t number, struct shm_patience *patience, int rank, int name,
                       double *deadline);

#endif
