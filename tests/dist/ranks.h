/* Runs a function in N processes that are the ranks of one job, with a store on a socket that the parent has opened.
 * For tests. A rank reports a failure by its exit code and on standard error, because only the parent can use Check. */
#pragma once

#include <arpa/inet.h>
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "dist/comm/comm.h"
#include "dist/comm/comm_shm.h"
#include "dist/process/env.h"
#include "dist/process/net.h"
#include "dist/store/store.h"

#define MAX_TEST_RANKS 40

/* In a rank: exits with 1 unless the condition is true. */
#define RANK_CHECK(condition)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: rank fails: %s\n", __FILE__, __LINE__, #condition);                                \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

/* In a rank: exits with 1 unless the call has succeeded. */
static inline void rank_must(status s) {
    if (!s) return;
    fprintf(stderr, "rank fails: %s\n", status_message(s));
    _exit(1);
}

static inline int open_descriptors(void) {
    int count = 0;
    for (int fd = 0; fd < 256; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* A counter in memory that all ranks share. */
static inline atomic_int *shared_count(void) {
    void *count = mmap(NULL, sizeof(atomic_int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(count, MAP_FAILED);
    return count;
}

struct ranks {
    int world, listener, port;
    pid_t pids[MAX_TEST_RANKS];
    int codes[MAX_TEST_RANKS]; /* exit code; 128 + signal */
};

static inline struct dist_env ranks_env(const struct ranks *ranks, int rank) {
    struct dist_env env = {.launcher = LAUNCHER_OWN,
                           .rank = rank,
                           .world_size = ranks->world,
                           .local_rank = rank,
                           .local_world_size = ranks->world,
                           .master_addr = "127.0.0.1",
                           .master_port = ranks->port,
                           .job_id = "test"};
    return env;
}

/* Opens the listening socket of the store and sets the environment variable with its number, as the launcher does. */
static inline void ranks_prepare(struct ranks *ranks, int world) {
    *ranks = (struct ranks){.world = world};
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    status s = net_listen("127.0.0.1", 0, true, &ranks->listener);
    ck_assert_msg(s == OK, "%s", status_message(s));
    ck_assert_int_eq(getsockname(ranks->listener, (struct sockaddr *)&address, &size), 0);
    ranks->port = net_port(&address);
    char number[16];
    snprintf(number, sizeof number, "%d", ranks->listener);
    setenv(STORE_FD_VARIABLE, number, 1);
    unsetenv(SECRET_FD_VARIABLE);
}

typedef void (*rank_body)(const struct dist_env *env, void *argument);

static inline void ranks_start_one(struct ranks *ranks, int rank, rank_body body, void *argument) {
    fflush(NULL);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGPIPE, SIG_IGN);
        if (rank != 0) close(ranks->listener);
        struct dist_env env = ranks_env(ranks, rank);
        body(&env, argument);
        exit(0);
    }
    ranks->pids[rank] = pid;
}

static inline void ranks_start(struct ranks *ranks, rank_body body, void *argument) {
    for (int r = 0; r < ranks->world; r++) ranks_start_one(ranks, r, body, argument);
    close(ranks->listener);
}

static inline void ranks_wait(struct ranks *ranks) {
    for (int r = 0; r < ranks->world; r++) {
        int how = 0;
        if (!ranks->pids[r]) continue;
        ck_assert_int_eq(waitpid(ranks->pids[r], &how, 0), ranks->pids[r]);
        ranks->codes[r] = WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
    }
}

/* Runs [body] in all ranks; all must exit with 0. */
static inline void ranks_run(int world, rank_body body, void *argument) {
    struct ranks ranks;
    ranks_prepare(&ranks, world);
    ranks_start(&ranks, body, argument);
    ranks_wait(&ranks);
    for (int r = 0; r < world; r++) ck_assert_msg(ranks.codes[r] == 0, "rank %d of %d: %d", r, world, ranks.codes[r]);
}

/* The store and the group of a rank. */
struct rank_group {
    struct store *store;
    struct comm *comm;
};

/* TEST_BACKEND, else "auto". */
static inline const char *rank_backend(void) {
    const char *name = getenv("TEST_BACKEND");
    return name ? name : "auto";
}

/* TEST_HOSTS: number of simulated hosts; rank r is on host r % TEST_HOSTS. 0: one host. */
static inline void rank_set_host(const struct dist_env *env) {
    const char *hosts = getenv("TEST_HOSTS");
    char name[16];
    if (!hosts || atoi(hosts) == 0) return;
    snprintf(name, sizeof name, "h%d", env->rank % atoi(hosts));
    setenv(HOST_VARIABLE, name, 1);
}

static inline struct rank_group rank_join(const struct dist_env *env, double timeout) {
    struct rank_group group;
    rank_set_host(env);
    rank_must(store_open(env, 20, &group.store));
    rank_must(comm_create(rank_backend(), env, group.store, timeout, &group.comm));
    return group;
}

static inline void rank_leave(struct rank_group *group) {
    comm_destroy(group->comm);
    store_close(group->store);
}
