/* The yield phase is long on purpose. Two ranks that put each other to sleep and wake each other up look half idle to
 * the kernel, which leaves them on one core; two that yield look busy, switch in a microsecond, and the kernel soon
 * moves one to a free core. A sleeping rank wakes up every few milliseconds to check whether the other is alive and
 * whether its deadline has passed. */
#include "dist/comm/shm_wait.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/system/machine.h"

/* Of the main lane, and of the other: its communication thread shares the cores with computation. */
#define SPIN_SECONDS 5e-6
#define THREAD_SPIN_SECONDS 1e-6
#define YIELD_SECONDS 3e-3
#define THREAD_YIELD_SECONDS 2e-4
#define YIELDS 16 /* between two reads of the clock */
#define SLEEP_NANOSECONDS 10000000

/* Leaves the core to its other thread for a moment, or to memory accesses before the next check. */
static inline void relax(void) {
#if defined __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("isb" ::: "memory"); /* most cores execute `yield` as no operation */
#endif
}

static bool has_reached(struct shm_signal *signal, uint32_t number) {
    return (int32_t)(atomic_load_explicit(&signal->number, memory_order_acquire) - number) >= 0;
}

/* Checks a signal; false: it did not reach the number in [spins] checks. */
static bool spin(struct shm_signal *signal, uint32_t number, int spins) {
    for (int i = 0; i < spins; i++) {
        if (has_reached(signal, number)) return true;
        relax();
    }
    return false;
}

/* The number of spins that take [seconds]. Whole checks are measured: on some processors relax() takes no time. */
static int count_spins(double seconds) {
    static const int sample = 256;
    struct shm_signal never = {0};
    double start = clock_seconds();
    spin(&never, 1, sample);
    double each = (clock_seconds() - start) / sample;
    return each > 0 ? (int)(seconds / each) + 1 : 1000;
}

/* The cores that any rank of the host may use: each may be bound to its own. A quota is for all of them. */
static int count_cores(const struct shm_map *map, int ranks) {
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) != 0) return processors_allowed();
    for (int rank = 0; rank < ranks; rank++) {
        pid_t pid = shm_map_pid(map, rank);
        if (pid > 0 && sched_getaffinity(pid, sizeof one, &one) == 0) CPU_OR(&all, &all, &one);
    }
    int quota = processors_quota(), cores = CPU_COUNT(&all);
    return quota > 0 && quota < cores ? quota : cores;
}

struct shm_wait_policy shm_wait_policy(const struct shm_map *map, const atomic_bool *is_aborted, double timeout,
                                       int ranks, int lane) {
    bool has_own_core = ranks <= count_cores(map, ranks);
    int spins = has_own_core ? count_spins(lane == COMM_THREAD_LANE ? THREAD_SPIN_SECONDS : SPIN_SECONDS) : 1;
    return (struct shm_wait_policy){.map = map,
                                    .is_aborted = is_aborted,
                                    .timeout = timeout,
                                    .spins = spins,
                                    .max_spins = spins,
                                    .yield_seconds = lane == COMM_THREAD_LANE || !has_own_core ? THREAD_YIELD_SECONDS
                                                                                               : YIELD_SECONDS};
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

static void futex_wait(struct shm_signal *signal, uint32_t number) {
    struct timespec time = {.tv_nsec = SLEEP_NANOSECONDS};
    atomic_fetch_add(&signal->sleepers, 1);
    uint32_t now = atomic_load(&signal->number);
    if ((int32_t)(now - number) < 0) syscall(SYS_futex, &signal->number, FUTEX_WAIT, now, &time, NULL, 0);
    atomic_fetch_sub(&signal->sleepers, 1);
}

static status wait_asleep(struct shm_signal *signal, uint32_t number, const struct shm_wait_policy *policy, int rank,
                          int name, double *deadline) {
    if (*deadline == 0) *deadline = clock_seconds() + policy->timeout;
    while (!has_reached(signal, number)) {
        futex_wait(signal, number);
        if (has_reached(signal, number)) break;
        if (!shm_map_is_open_at(policy->map, rank) && !has_reached(signal, number))
            return status_new(STATUS_PEER, "rank %d has left the group", name);
        if (atomic_load(policy->is_aborted)) return status_new(STATUS_PEER, "another rank was lost");
        if (clock_seconds() > *deadline)
            return status_new(STATUS_PEER, "rank %d did not make the call within %g s", name, policy->timeout);
    }
    return OK;
}

/* Spinning fails when the other rank needs this core: each failure halves the number of spins. */
static bool wait_spinning(struct shm_signal *signal, uint32_t number, struct shm_wait_policy *policy) {
    bool has_succeeded = spin(signal, number, policy->spins);
    if (!has_succeeded)
        policy->spins = policy->spins / 2 + 1;
    else if (policy->spins < policy->max_spins)
        policy->spins *= 2;
    return has_succeeded;
}

status shm_signal_wait(struct shm_signal *signal, uint32_t number, struct shm_wait_policy *policy, int rank, int name,
                       double *deadline) {
    if (wait_spinning(signal, number, policy)) return OK;
    return wait_yielding(signal, number, policy->yield_seconds)
               ? OK
               : wait_asleep(signal, number, policy, rank, name, deadline);
}
