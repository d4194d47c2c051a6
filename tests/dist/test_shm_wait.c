/* How patiently ranks look for each other: only where each of them has a core, be it that all may use all or that each
 * is bound to its own. */
#include "dist/shm_wait.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check_main.h"

static void bind_to(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    ck_assert_int_eq(sched_setaffinity(0, sizeof set, &set), 0);
}

static void be_rank(int fd, int rank) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
    ck_assert_int_eq(fcntl(fd, F_SETLK, &lock), 0);
}

/* Rank 1 on [core] of its own until it is killed. */
static pid_t other_rank(int fd, int core) {
    int ready[2];
    char byte = 0;
    ck_assert_int_eq(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        bind_to(core);
        be_rank(fd, 1);
        if (write(ready[1], &byte, 1) == 1) pause();
        _exit(0);
    }
    close(ready[1]);
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static bool looks_often(int fd, int core_of_other) {
    struct shm_map map = {.fd = fd};
    atomic_bool is_aborted = false;
    pid_t other = other_rank(fd, core_of_other);
    struct shm_patience patience = shm_patience(&map, &is_aborted, 1, 2, 0);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    return patience.looks > 1;
}

START_TEST(bound_ranks_have_room) {
    cpu_set_t all;
    int cores[2], found = 0, fd = memfd_create("test", MFD_CLOEXEC);
    ck_assert_int_eq(sched_getaffinity(0, sizeof all, &all), 0);
    for (int core = 0; core < CPU_SETSIZE && found < 2; core++)
        if (CPU_ISSET(core, &all)) cores[found++] = core;
    if (found == 2) {
        bind_to(cores[0]);
        be_rank(fd, 0);
        ck_assert(looks_often(fd, cores[1]));
        ck_assert(!looks_often(fd, cores[0]));
    }
    close(fd);
}
END_TEST

TESTS("shm_wait", bound_ranks_have_room)
