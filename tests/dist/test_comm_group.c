/* Members, hosts and backends of groups that are split from another, and groups on GPUs. ctest-labels: dist */
#include "ranks.h"

#include <stdatomic.h>

#include "check_main.h"
#include "dist/comm/comm_backend.h"
#include "dist/comm/comm_gpu.h"
#include "dist/comm/comm_group.h"

/* ---- groups of a group ---- */

#define WORLD 4

/* Four ranks on two hosts, 0 and 2, 1 and 3, and the results of comm_split(colors[rank], keys[rank]). */
static const struct {
    int colors[WORLD], keys[WORLD];
    struct {
        int count, rank, members[WORLD], hosts[WORLD];
        const char *description;
    } groups[WORLD];
} splits[] = {
    {{0, 1, 0, 1},
     {0},
     {{2, 0, {0, 2}, {0, 0}, "shared memory"},
      {2, 0, {1, 3}, {0, 0}, "shared memory"},
      {2, 1, {0, 2}, {0, 0}, "shared memory"},
      {2, 1, {1, 3}, {0, 0}, "shared memory"}}},
    {{-1, 5, 5, 5},
     {0, 2, 2, 1},
     {{0, 0, {0}, {0}, ""},
      {3, 1, {3, 1, 2}, {0, 0, 1}, "shared memory, gloo between hosts"},
      {3, 2, {3, 1, 2}, {0, 0, 1}, "shared memory, gloo between hosts"},
      {3, 0, {3, 1, 2}, {0, 0, 1}, "shared memory, gloo between hosts"}}},
    {{7, 7, 7, 2},
     {0, 0, -1, 0},
     {{3, 1, {2, 0, 1}, {0, 0, 1}, "shared memory, gloo between hosts"},
      {3, 2, {2, 0, 1}, {0, 0, 1}, "shared memory, gloo between hosts"},
      {3, 0, {2, 0, 1}, {0, 0, 1}, "shared memory, gloo between hosts"},
      {1, 0, {3}, {0}, "self"}}},
    {{0, 0, -2, -2}, {0}, {{2, 0, {0, 1}, {0, 1}, "gloo"}, {2, 1, {0, 1}, {0, 1}, "gloo"}, {0}, {0}}},
};

static void check_group(const struct comm *comm, int number, int rank) {
    int count = splits[number].groups[rank].count, hosts = 0;
    RANK_CHECK(!comm == (count == 0));
    if (!comm) return;
    const struct comm_group *g = comm->shared;
    RANK_CHECK(comm_world_size(comm) == count && comm_rank(comm) == splits[number].groups[rank].rank);
    for (int r = 0; r < count; r++) {
        RANK_CHECK(g->members[r] == splits[number].groups[rank].members[r]);
        RANK_CHECK(g->hosts[r] == splits[number].groups[rank].hosts[r]);
        if (g->hosts[r] >= hosts) hosts = g->hosts[r] + 1;
    }
    RANK_CHECK(g->host_count == hosts && g->job_rank == rank && g->job_size == WORLD);
    RANK_CHECK(strcmp(comm_describe(comm), splits[number].groups[rank].description) == 0);
}

static void split_body(const struct dist_env *env, void *argument) {
    int number = *(const int *)argument, rank = env->rank;
    struct rank_group g = rank_join(env, 20);
    struct comm *part;
    RANK_CHECK(strcmp(comm_describe(g.comm), "shared memory, gloo between hosts") == 0);
    rank_must(comm_split(g.comm, splits[number].colors[rank], splits[number].keys[rank], &part));
    check_group(part, number, rank);
    int32_t sum = 1 << rank, expected = 0;
    for (int r = 0; r < splits[number].groups[rank].count; r++) expected += 1 << splits[number].groups[rank].members[r];
    if (part) rank_must(comm_all_reduce(part, &sum, 1, COMM_INT32, COMM_SUM));
    RANK_CHECK(!part || sum == expected);
    comm_destroy(part);
    rank_must(comm_barrier(g.comm));
    rank_leave(&g);
}

TEST_EACH(split_group_has_members_and_hosts, splits) {
    int number = _i;
    setenv("TEST_HOSTS", "2", 1);
    ranks_run(WORLD, split_body, &number);
}

/* A split group has the backend of its parent. */
static void same_backend_body(const struct dist_env *env, void *argument) {
    const char *name = argument;
    struct rank_group g = {0};
    struct comm *part;
    rank_must(store_open(env, 20, &g.store));
    rank_must(comm_create(name, env, g.store, 20, &g.comm));
    RANK_CHECK(strcmp(comm_backend(g.comm), name) == 0);
    rank_must(comm_split(g.comm, 0, -env->rank, &part));
    RANK_CHECK(strcmp(comm_backend(part), name) == 0 && comm_rank(part) == 1 - env->rank);
    rank_must(comm_barrier(part));
    comm_destroy(part);
    rank_leave(&g);
}

TEST_LOOP(split_group_has_backend_of_parent, 0, 2) { ranks_run(2, same_backend_body, _i == 0 ? "shm" : "gloo"); }

/* More groups than the connections that the store may open meanwhile, 2 for each rank. */
#define GROUPS (2 * WORLD + 1)

static void descriptors_body(const struct dist_env *env, void *argument) {
    struct rank_group g;
    struct comm *part;
    rank_set_host(env);
    rank_must(store_open(env, 20, &g.store));
    rank_must(comm_create(argument, env, g.store, 20, &g.comm));
    int before = open_descriptors();
    for (int i = 0; i < GROUPS; i++) {
        int32_t sum = 1;
        rank_must(comm_split(g.comm, 0, 0, &part));
        rank_must(comm_all_reduce(part, &sum, 1, COMM_INT32, COMM_SUM));
        comm_destroy(part);
    }
    RANK_CHECK(open_descriptors() - before < GROUPS);
    rank_must(comm_barrier(g.comm));
    rank_leave(&g);
}

TEST_LOOP(destroyed_group_has_closed_descriptors, 0, 3) {
    static char names[][5] = {"shm", "gloo", "auto"};
    if (_i == 2) setenv("TEST_HOSTS", "2", 1);
    ranks_run(WORLD, descriptors_body, names[_i]);
}

/* ---- the group on GPUs, with a backend that transfers no data ---- */

static struct comm_setup last_setup; /* its name is not valid any more */
static char last_name[64];
static int last_members[WORLD], last_hosts[WORLD], alive;
static atomic_int aborted;
static bool is_failing;

static status fake_create(const struct comm_setup *setup, void **group) {
    last_setup = *setup;
    snprintf(last_name, sizeof last_name, "%s", setup->name);
    memcpy(last_members, setup->members, (size_t)setup->world_size * sizeof *last_members);
    memcpy(last_hosts, setup->hosts, (size_t)setup->world_size * sizeof *last_hosts);
    if (is_failing) return status_new(STATUS_USAGE, "no GPU here");
    *group = &alive;
    alive++;
    return OK;
}

static void fake_destroy(void *group) {
    RANK_CHECK(group == &alive);
    alive--;
}

static void fake_abort(void *group) {
    RANK_CHECK(group == &alive && alive > 0);
    atomic_fetch_add(&aborted, 1);
}

static const struct comm_enqueued enqueued;
static const struct comm_backend fake = {.name = "fake",
                                         .create = fake_create,
                                         .destroy = fake_destroy,
                                         .abort = fake_abort,
                                         .enqueued = &enqueued,
                                         .title = "FAKE"};

static void gpu_body(const struct dist_env *env, void *argument) {
    (void)argument;
    struct rank_group g = rank_join(env, 20);
    struct comm *part;
    is_failing = true;
    status s = comm_add_gpu(g.comm, &fake, 5 + env->rank);
    RANK_CHECK(status_code(s) == STATUS_USAGE && strcmp(status_message(s), "no GPU here") == 0);
    status_free(s);
    RANK_CHECK(!comm_gpu(g.comm) && strcmp(comm_backend(g.comm), "shm") == 0);
    RANK_CHECK(strcmp(comm_describe(g.comm), "shared memory") == 0);

    is_failing = false;
    rank_must(comm_add_gpu(g.comm, &fake, 5 + env->rank));
    RANK_CHECK(alive == 1 && last_setup.gpu == 5 + env->rank && strcmp(last_name, "comm/gpu") == 0);
    RANK_CHECK(last_setup.rank == env->rank && last_setup.world_size == 3 && last_setup.timeout == 20);
    for (int r = 0; r < 3; r++) RANK_CHECK(last_members[r] == r);
    struct comm *gpu = comm_gpu(g.comm);
    RANK_CHECK(gpu && comm_lane(gpu, 0) == gpu && !comm_lane(gpu, 1) && comm_lane(g.comm, 1));
    RANK_CHECK(strcmp(comm_backend(g.comm), "fake") == 0);
    RANK_CHECK(strcmp(comm_describe(g.comm), "FAKE; host memory by shared memory") == 0);

    rank_must(
        comm_split(g.comm, env->rank == 0, 0, &part)); /* rank 0 is in a group of one, which has no group on GPUs */
    RANK_CHECK(!comm_gpu(part) == (env->rank == 0) && alive == (env->rank == 0 ? 1 : 2));
    if (env->rank > 0) {
        RANK_CHECK(last_setup.gpu == 5 + env->rank && strcmp(last_name, "comm/0.0/gpu") == 0);
        RANK_CHECK(last_setup.world_size == 2 && last_members[0] == 1 && last_members[1] == 2);
    }
    comm_destroy(part);
    RANK_CHECK(alive == 1);
    rank_must(comm_barrier(g.comm));
    rank_leave(&g);
    RANK_CHECK(alive == 0);
}

/* Three ranks on two hosts. */
static void gpu_hosts_body(const struct dist_env *env, void *argument) {
    (void)argument;
    struct rank_group g = rank_join(env, 20);
    rank_must(comm_add_gpu(g.comm, &fake, 0));
    RANK_CHECK(last_hosts[0] == 0 && last_hosts[1] == 1 && last_hosts[2] == 0);
    RANK_CHECK(comm_gpu(g.comm)->shared->host_count == 2);
    rank_must(comm_barrier(g.comm));
    rank_leave(&g);
}

TEST(gpu_group_has_hosts_of_ranks) {
    setenv("TEST_HOSTS", "2", 1);
    ranks_run(3, gpu_hosts_body, NULL);
}

/* One of two groups has been destroyed when rank 1 exits. */
static void abort_body(const struct dist_env *env, void *argument) {
    (void)argument;
    struct rank_group g = rank_join(env, 20);
    struct comm *part;
    rank_must(comm_add_gpu(g.comm, &fake, 0));
    rank_must(comm_split(g.comm, 0, 0, &part));
    RANK_CHECK(alive == 2);
    comm_destroy(part);
    rank_must(comm_barrier(g.comm));
    if (env->rank == 1) _exit(0);
    status s = comm_barrier(g.comm);
    RANK_CHECK(status_code(s) == STATUS_PEER);
    status_free(s);
    for (int i = 0; i < 10000 && atomic_load(&aborted) == 0; i++) clock_sleep(0.01);
    RANK_CHECK(atomic_load(&aborted) == 1);
    rank_leave(&g);
}

TEST(lost_rank_aborts_remaining_groups) { ranks_run(2, abort_body, NULL); }

TEST(group_on_gpus_is_added) { ranks_run(3, gpu_body, NULL); }

CHECK_MAIN("comm_group")
