/* Yielding lasts long on purpose. Two ranks that put each other to sleep and wake each other up look half idle, so the
 * kernel leaves them on one core, for ever; two that yield look busy, hand that core over in a microsecond, and one is
 * soon moved to a free core. A sleeper wakes up every few milliseconds to see whether the other still lives and whether
 * its own time is over. */
#include "dist/comm/shm_wait.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/processors.h"

#define LOOK_SECONDS 5e-6        /* the caller's lane */
#define LOOK_SECONDS_BESIDE 1e-6 /* a communication thread's: someone computes beside it */
#define YIELD_SECONDS 3e-3
#define YIELD_SECONDS_BESIDE 2e-4
#define YIELDS 16 /* between two looks at the clock */
#define NAP_NANOSECONDS 10000000

static inline void relax(void) {
#if defined __x86_64__
    __builtin_ia32_pause();
#endif
}

static bool has_reached(struct shm_signal *signal, uint32_t number) {
    return (int32_t)(atomic_load_explicit(&signal->number, memory_order_acquire) - number) >= 0;
}

/* How many looks fit into [seconds]. */
static int count_looks(double seconds) {
    static const int sample = 256;
    double start = clock_seconds();
    for (int i = 0; i < sample; i++) relax();
    double each = (clock_seconds() - start) / sample;
    return each > 0 ? (int)(seconds / each) + 1 : 1000;
}

/* Those of all ranks together: each may be bound to one of its own. A quota is for all of them. */
static int count_cores(const struct shm_map *map, int ranks) {
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) != 0) return processors_allowed();
    for (int rank = 0; rank < ranks; rank++) {
        pid_t pid = shm_map_holder(map, rank);
        if (pid > 0 && sched_getaffinity(pid, sizeof one, &one) == 0) CPU_OR(&all, &all, &one);
    }
    int quota = processors_quota(), cores = CPU_COUNT(&all);
    return quota > 0 && quota < cores ? quota : cores;
}

struct shm_patience shm_patience(const struct shm_map *map, const atomic_bool *is_aborted, double timeout, int ranks,
                                 int lane) {
    bool has_room = ranks <= count_cores(map, ranks);
    int looks = has_room ? count_looks(lane ? LOOK_SECONDS_BESIDE : LOOK_SECONDS) : 1;
    return (struct shm_patience){.map = map,
                                 .is_aborted = is_aborted,
                                 .timeout = timeout,
                                 .looks = looks,
                                 .most_looks = looks,
                                 .yielding = lane || !has_room ? YIELD_SECONDS_BESIDE : YIELD_SECONDS};
}

void shm_signal_raise(struct shm_signal *signal, uint32_t number) {
    atomic_store(&signal->number, number);
    if (atomic_load(&signal->sleepers) > 0) syscall(SYS_futex, &signal->number, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static bool wait_yielding(struct shm_signal *signal, uint32_t number, double seconds) {
    double end = 0;
    do {
        for (int i = 0; i < YIELDS; i++) {
            if (has_reached(signal, number)) return true;
            sched_yield();
        }
        if (end == 0) end = clock_seconds() + seconds;
    } while (clock_seconds() < end);
    return false;
}

static void nap(struct shm_signal *signal, uint32_t number) {
    struct timespec time = {.tv_nsec = NAP_NANOSECONDS};
    atomic_fetch_add(&signal->sleepers, 1);
    uint32_t now = atomic_load(&signal->number);
    if ((int32_t)(now - number) < 0) syscall(SYS_futex, &signal->number, FUTEX_WAIT, now, &time, NULL, 0);
    atomic_fetch_sub(&signal->sleepers, 1);
}

static status wait_asleep(struct shm_signal *signal, uint32_t number, const struct shm_patience *patience, int rank,
                          int name, double *deadline) {
    if (*deadline == 0) *deadline = clock_seconds() + patience->timeout;
    while (!has_reached(signal, number)) {
        nap(signal, number);
        if (has_reached(signal, number)) break;
        if (!shm_map_is_open_at(patience->map, rank) && !has_reached(signal, number))
            return status_new(STATUS_PEER, "rank %d left", name);
        if (atomic_load(patience->is_aborted)) return status_new(STATUS_PEER, "another rank was lost");
        if (clock_seconds() > *deadline)
            return status_new(STATUS_PEER, "rank %d did not come within %g s", name, patience->timeout);
    }
    return OK;
}

/* Looking in vain, because the other needs this very core, is done less and less. */
static bool look(struct shm_signal *signal, uint32_t number, struct shm_patience *patience) {
    for (int i = 0; i < patience->looks; i++) {
        if (has_reached(signal, number)) {
            if (patience->looks < patience->most_looks) patience->looks *= 2;
            return true;
        }
        relax();
    }
    patience->looks = patience->looks / 2 + 1;
    return false;
}

status shm_signal_wait(struct shm_signal *signal, uint32_t number, struct shm_patience *patience, int rank, int name,
                       double *deadline) {
    if (look(signal, number, patience)) return OK;
    return wait_yielding(signal, number, patience->yielding)
               ? OK
               : wait_asleep(signal, number, patience, rank, name, deadline);
}
