/* A rank spins only if every rank of the host can have a core of its own: all may use all cores, or each is bound to
 * one. */
#include "dist/comm/comm_shm.h"

#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/system/machine.h"
#include "check_main.h"

static void bind_to(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    ck_assert_int_eq(sched_setaffinity(0, sizeof set, &set), 0);
}

static void lock_byte_of_rank(int fd, int rank) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
    ck_assert_int_eq(fcntl(fd, F_SETLK, &lock), 0);
}

/* Starts rank 1, bound to [core], which runs until it is killed. */
static pid_t start_other_rank(int fd, int core) {
    int ready[2];
    char byte = 0;
    ck_assert_int_eq(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        bind_to(core);
        lock_byte_of_rank(fd, 1);
        if (write(ready[1], &byte, 1) == 1) pause();
        _exit(0);
    }
    close(ready[1]);
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

/* Whether rank 0 spins while rank 1 is bound to [core_of_other]. */
static bool does_spin(int fd, int core_of_other) {
    struct shm_map map = {.fd = fd};
    atomic_bool is_aborted = false;
    pid_t other = start_other_rank(fd, core_of_other);
    struct shm_wait_policy policy = shm_wait_policy(&map, &is_aborted, 1, 2, 0);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    return policy.spins > 1;
}

TEST(ranks_bound_to_own_cores_spin) {
    cpu_set_t all;
    int cores[2], found = 0, fd = memfd_create("test", MFD_CLOEXEC);
    ck_assert_int_eq(sched_getaffinity(0, sizeof all, &all), 0);
    for (int core = 0; core < CPU_SETSIZE && found < 2; core++)
        if (CPU_ISSET(core, &all)) cores[found++] = core;
    if (found == 2) {
        bind_to(cores[0]);
        lock_byte_of_rank(fd, 0);
        bool has_time = processors_quota() != 1; /* for both, also where these tests have a quota */
        ck_assert(does_spin(fd, cores[1]) == has_time);
        ck_assert(!does_spin(fd, cores[0]));
    }
    close(fd);
}

/* Enters a new control group (version 1) with the processor time of one core; false: no permission to create one. */
static bool enter_quota(char *group, size_t size) {
    char path[256];
    snprintf(group, size, "/sys/fs/cgroup/cpu/ddptrain-test-%d", (int)getpid());
    if (mkdir(group, 0700) != 0) return false;
    static const char *const lines[][2] = {{"cpu.cfs_quota_us", "100000"}, {"cgroup.procs", "0"}};
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", group, lines[i][0]);
        FILE *file = fopen(path, "w");
        bool is_written = file && fputs(lines[i][1], file) >= 0;
        if (file && fclose(file) != 0) is_written = false;
        if (!is_written) rmdir(group);
        if (!is_written) return false;
    }
    return true;
}

static void leave_quota(const char *group) {
    FILE *file = fopen("/sys/fs/cgroup/cpu/cgroup.procs", "w");
    ck_assert_ptr_nonnull(file);
    fputs("0", file);
    fclose(file);
    for (int i = 0; i < 100 && rmdir(group) != 0; i++) usleep(10000);
}

/* Each has a core, but the quota gives all together the time of one. */
TEST(quota_applies_to_all_ranks) {
    cpu_set_t all;
    char group[128];
    int cores[2], found = 0, fd = memfd_create("test", MFD_CLOEXEC);
    ck_assert_int_eq(sched_getaffinity(0, sizeof all, &all), 0);
    for (int core = 0; core < CPU_SETSIZE && found < 2; core++)
        if (CPU_ISSET(core, &all)) cores[found++] = core;
    if (found == 2 && enter_quota(group, sizeof group)) {
        bind_to(cores[0]);
        lock_byte_of_rank(fd, 0);
        bool does = does_spin(fd, cores[1]);
        leave_quota(group);
        ck_assert(!does);
    }
    close(fd);
}

static double thread_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Processor time of [times] as many spins as a policy begins with, on a signal that is not raised. */
static double seconds_of_spins(int times) {
    int fd = memfd_create("test", MFD_CLOEXEC);
    struct shm_map map = {.fd = fd};
    struct shm_signal never = {0};
    atomic_bool is_aborted = true; /* it returns after the spins */
    double deadline = 0;
    struct shm_wait_policy policy = shm_wait_policy(&map, &is_aborted, 1, 1, 0);
    policy.spins *= times;
    policy.yield_seconds = 0;
    double start = thread_seconds();
    status failure = shm_signal_wait(&never, 1, &policy, 0, 0, &deadline);
    double seconds = thread_seconds() - start;
    ck_assert_ptr_nonnull(failure);
    status_free(failure);
    close(fd);
    return seconds;
}

/* 5 us: also where a processor has no instruction to wait for a moment, so that a check takes a nanosecond. */
TEST(spins_take_as_long_as_planned) {
    double min = 1;
    for (int i = 0; i < 5; i++) min = fmin(min, seconds_of_spins(1000) / 1000);
    ck_assert_msg(min < 15e-6, "the spins before the first yield take %g us", 1e6 * min);
}

CHECK_MAIN("shm_wait")
