/* Every collective and type on 1 to 5 ranks against the same arithmetic in one process. ctest-labels: dist */
#include "ranks.h"

#include <math.h>

#include "base/system/machine.h"
#include "check_main.h"
#include "dist/comm/combine.h"
#include "dist/comm/comm.h"
#include "dist/comm/comm_check.h"

/* Sets the backend: 0 gloo, 1 shm, 2 and 3 both, on 2 and 3 simulated hosts. */
#define CASES 11
static void set_backend(int backend) {
    setenv("TEST_BACKEND", backend == 0 ? "gloo" : "auto", 1);
    setenv("TEST_HOSTS", backend == 2 ? "2" : backend == 3 ? "3" : "0", 1);
}
static const char *const expected_backends[] = {"gloo", "shm", "shm+gloo", "shm+gloo"};

static void all_body(const struct dist_env *env, void *argument) {
    struct rank_group g = rank_join(env, 20);
    size_t checks;
    rank_must(comm_check(g.comm, NULL, NULL, &checks));
    RANK_CHECK(checks > 400);
    RANK_CHECK(strcmp(comm_backend(g.comm), env->world_size > 1 ? (const char *)argument : "self") == 0);
    rank_must(comm_all_reduce(g.comm, NULL, 0, COMM_FLOAT32, COMM_SUM));
    bool is_shm = strcmp(comm_backend(g.comm), "shm") == 0;
    long slice = processors_slice();
    processors_shorten_slice(); /* the backend has called it already */
    RANK_CHECK(!is_shm || processors_slice() == slice);
    rank_leave(&g);
}

TEST_LOOP(every_collective, 0, CASES) {
    static const struct {
        int backend, world;
    } cases[] = {{0, 1}, {0, 2}, {0, 3}, {0, 5}, {1, 2}, {1, 3}, {1, 4}, {1, 5}, {2, 3}, {2, 5}, {3, 4}};
    ck_assert_uint_eq(sizeof cases / sizeof *cases, CASES);
    set_backend(cases[_i].backend);
    ranks_run(cases[_i].world, all_body, (void *)expected_backends[cases[_i].backend]);
}

/* Sums of floats that depend on the order: the same bits on all ranks and in every call. */
static void bits_body(const struct dist_env *env, void *argument) {
    (void)argument;
    struct rank_group g = rank_join(env, 20);
    enum { COUNT = 20011 };
    static float first[COUNT], second[COUNT], all[4 * COUNT];
    for (size_t c = 100; c <= COUNT; c += COUNT - 100) {
        for (size_t i = 0; i < c; i++) first[i] = second[i] = sinf((float)i + 0.1f * (float)env->rank) * 1e3f;
        rank_must(comm_all_reduce(g.comm, first, c, COMM_FLOAT32, COMM_SUM));
        rank_must(comm_all_reduce(g.comm, second, c, COMM_FLOAT32, COMM_SUM));
        RANK_CHECK(memcmp(first, second, c * sizeof *first) == 0);
        for (size_t i = 0; i < c; i++) { /* in order of rank */
            float sum = sinf((float)i) * 1e3f;
            for (int r = 1; r < env->world_size; r++) sum += sinf((float)i + 0.1f * (float)r) * 1e3f;
            RANK_CHECK(sum == first[i]);
        }
        rank_must(comm_all_gather(g.comm, first, c, COMM_FLOAT32, all));
        for (int r = 0; r < env->world_size; r++)
            RANK_CHECK(memcmp(first, all + (size_t)r * c, c * sizeof *first) == 0);
    }
    float extreme[3] = {env->rank == 1 ? NAN : 1.0f, INFINITY, -1.0f};
    rank_must(comm_all_reduce(g.comm, extreme, 3, COMM_FLOAT32, COMM_MAX));
    RANK_CHECK(isnan(extreme[0]) && isinf(extreme[1]) && extreme[2] == -1.0f);
    rank_leave(&g);
}

TEST_LOOP(same_bits_on_all_ranks, 0, 6) {
    set_backend(_i / 3);
    ranks_run(2 + _i % 3, bits_body, NULL);
}

/* The barrier waits for the last rank. */
static void barrier_body(const struct dist_env *env, void *argument) {
    atomic_int *arrived = argument;
    struct rank_group g = rank_join(env, 20);
    rank_must(comm_barrier(g.comm));
    if (env->rank == env->world_size - 1) clock_sleep(0.3);
    atomic_fetch_add(arrived, 1);
    rank_must(comm_barrier(g.comm));
    RANK_CHECK(atomic_load(arrived) == env->world_size);
    rank_leave(&g);
}

TEST_LOOP(barrier_waits, 0, 2) {
    set_backend(_i);
    ranks_run(3, barrier_body, shared_count());
}

/* A rank reports its failure; the failure of the others contains its message. */
static void report_body(const struct dist_env *env, void *argument) {
    (void)argument;
    struct rank_group g = rank_join(env, 20);
    rank_must(comm_barrier(g.comm));
    if (env->rank == 0) {
        status s = status_new(STATUS_DATA, "the file x.h5 is damaged");
        store_report(g.store, s);
        status_free(s);
        rank_leave(&g);
        return;
    }
    status s = comm_barrier(g.comm);
    RANK_CHECK(status_code(s) == STATUS_PEER && strstr(status_message(s), "the file x.h5 is damaged"));
    status_free(s);
    rank_leave(&g);
}

TEST_LOOP(reported_failure_is_in_the_message, 0, 2) {
    set_backend(_i);
    ranks_run(2, report_body, NULL);
}

/* If a rank does not make the call, those of the others time out; it runs until they have. */
static void timeout_body(const struct dist_env *env, void *argument) {
    atomic_int *done = argument;
    struct rank_group g = rank_join(env, 6);
    rank_must(comm_barrier(g.comm));
    if (env->rank == 1) {
        while (atomic_load(done) < env->world_size - 1) clock_sleep(0.01);
        _exit(0);
    }
    double start = clock_seconds();
    static float data[100000];
    status s = comm_all_reduce(g.comm, data, env->world_size == 2 ? 100000 : 10, COMM_FLOAT32, COMM_SUM);
    double seconds = clock_seconds() - start;
    atomic_fetch_add(done, 1);
    RANK_CHECK(status_code(s) == STATUS_PEER && seconds > 5.8 && seconds < 100);
    status_free(s);
    rank_leave(&g);
}

TEST_LOOP(calls_time_out, 0, 2) {
    set_backend(_i);
    ranks_run(3, timeout_body, shared_count());
}

/* Ranks in different calls get a failure; they do not hang or mix data. */
static void mismatch_body(const struct dist_env *env, void *argument) {
    (void)argument;
    struct rank_group g = rank_join(env, 5);
    float data[4] = {0};
    status s = comm_all_reduce(g.comm, data, env->rank == 0 ? 3 : 4, COMM_FLOAT32, COMM_SUM);
    RANK_CHECK(status_code(s) == STATUS_PEER);
    if (env->rank == 0) clock_sleep(1); /* both report the mismatch, not that the other has left */
    status_free(s);
    rank_leave(&g);
}

TEST_LOOP(mismatch_is_detected, 0, 2) {
    set_backend(_i);
    ranks_run(2, mismatch_body, NULL);
}

/* Each link between two ranks over Gloo has two keys, which are gone when it is made. */
static void keys_body(const struct dist_env *env, void *argument) {
    (void)argument;
    enum { COUNT = 500000 };
    static float data[COUNT];
    struct rank_group g = rank_join(env, 20);
    struct store_traffic before, after;
    int numbers[MAX_TEST_RANKS];
    store_count_traffic(g.store, &before);
    rank_must(store_number(g.store, "created", NULL, 0, 20, numbers));
    rank_must(comm_barrier(g.comm));
    for (int lane = 0; lane < COMM_LANES; lane++)
        rank_must(comm_all_reduce(comm_lane(g.comm, lane), data, COUNT, COMM_FLOAT32, COMM_SUM));
    rank_must(store_number(g.store, "connected", NULL, 0, 20, numbers));
    store_count_traffic(g.store, &after);
    uint64_t links = 3 * (uint64_t)(env->world_size * (env->world_size - 1)); /* of quick messages and both lanes */
    if (env->rank == 0) RANK_CHECK(after.received - before.received >= 2 * links); /* SET and TAKE */
    RANK_CHECK(after.keys == 0);
    rank_leave(&g);
}

TEST_LOOP(links_leave_no_keys, 2, 6) {
    set_backend(0);
    ranks_run(_i, keys_body, NULL);
}

/* The send buffers of one sender: a message is received before the next one, to any rank, overwrites it. */
static void in_a_row_body(const struct dist_env *env, void *argument) {
    (void)argument;
    enum { COUNT = 300000, MESSAGES = 4 };
    static float data[COUNT];
    struct rank_group g = rank_join(env, 20);
    RANK_CHECK(strcmp(comm_backend(g.comm), "shm") == 0);
    for (int m = 0; m < MESSAGES; m++) {
        int to = 1 + m % 2;
        size_t count = m < 2 ? 10 : COUNT;
        if (env->rank == 0) {
            for (size_t i = 0; i < count; i++) data[i] = (float)(m * 1000 + (int)(i % 997));
            rank_must(comm_send(g.comm, data, count, COMM_FLOAT32, to));
        } else if (env->rank == to) {
            clock_sleep(0.1);
            rank_must(comm_recv(g.comm, data, count, COMM_FLOAT32, 0));
            for (size_t i = 0; i < count; i++) RANK_CHECK(data[i] == (float)(m * 1000 + (int)(i % 997)));
        }
    }
    rank_leave(&g);
}

TEST(messages_in_a_row) {
    set_backend(1);
    ranks_run(3, in_a_row_body, NULL);
}

/* Two ranks send to a third at once, which receives from the later one first. */
static void two_senders_body(const struct dist_env *env, void *argument) {
    (void)argument;
    enum { COUNT = 100000 };
    static float data[COUNT];
    struct rank_group g = rank_join(env, 20);
    for (int from = 1; env->rank == 2 && from >= 0; from--) {
        rank_must(comm_recv(g.comm, data, COUNT, COMM_FLOAT32, from));
        for (size_t i = 0; i < COUNT; i++) RANK_CHECK(data[i] == (float)((size_t)from * COUNT + i));
    }
    for (size_t i = 0; i < COUNT; i++) data[i] = (float)((size_t)env->rank * COUNT + i);
    if (env->rank == 1) clock_sleep(0.1);
    if (env->rank < 2) rank_must(comm_send(g.comm, data, COUNT, COMM_FLOAT32, 2));
    rank_leave(&g);
}

TEST_LOOP(two_senders_have_two_channels, 0, 2) {
    set_backend(_i);
    ranks_run(3, two_senders_body, NULL);
}

static float value_to_average(int rank, size_t i) { return sinf((float)i * 0.1f + (float)rank); }

/* Each value is multiplied, rounded and added in order of rank: in memory of the group and elsewhere, at every size. */
static void average_body(const struct dist_env *env, void *argument) {
    (void)argument;
    static const size_t counts[] = {5, 1024, 1030, 9001};
    enum { COUNT = 9001 };
    static float plain[COUNT];
    struct rank_group g = rank_join(env, 20);
    void *shared;
    rank_must(comm_alloc(g.comm, COUNT * sizeof(float), &shared));
    float factor = (float)(1.0 / env->world_size);
    for (size_t c = 0; c < 2 * sizeof counts / sizeof *counts; c++) {
        size_t count = counts[c / 2];
        float *data = c % 2 ? plain : shared;
        for (size_t i = 0; i < count; i++) data[i] = value_to_average(env->rank, i);
        rank_must(comm_average(g.comm, data, count));
        for (size_t i = 0; i < count; i++) {
            volatile float sum = value_to_average(0, i) * factor; /* no fused multiply-add */
            for (int r = 1; r < env->world_size; r++) {
                volatile float term = value_to_average(r, i) * factor;
                sum = sum + term;
            }
            RANK_CHECK(data[i] == sum);
        }
    }
    rank_leave(&g);
}

TEST_LOOP(average_is_the_scaled_sum, 0, 4) {
    set_backend(_i % 2);
    ranks_run(2 + _i / 2, average_body, NULL);
}

/* More ranks than wait for each other directly: a tree of two levels, with fewer leaves under a sanitizer. */
static int ranks_of_a_tree(void) {
    const char *sanitizer = getenv("DDPTRAIN_SANITIZER");
    return sanitizer && *sanitizer ? 20 : MAX_TEST_RANKS;
}

TEST_LOOP(many_ranks_wait_along_a_tree, 0, 5) {
    static const rank_body bodies[] = {average_body, barrier_body, timeout_body, mismatch_body, all_body};
    set_backend(1);
    ranks_run(ranks_of_a_tree(), bodies[_i], _i < 4 ? (void *)shared_count() : (void *)"shm");
}

/* In a tree the failure of every rank names the rank that is late, not one that waits for it: rank 35 is below rank 2,
 * rank 1 has ranks below it. */
struct late {
    int rank;
    atomic_int *done;
};

static void late_body(const struct dist_env *env, void *argument) {
    const struct late *late = argument;
    struct rank_group g = rank_join(env, 3);
    char name[32];
    rank_must(comm_barrier(g.comm));
    snprintf(name, sizeof name, "rank %d did not make", late->rank);
    if (env->rank != late->rank) {
        float data[10] = {0};
        status s = comm_all_reduce(g.comm, data, 10, COMM_FLOAT32, COMM_SUM);
        atomic_fetch_add(late->done, 1);
        if (!s || !strstr(status_message(s), name)) printf("rank %d: %s\n", env->rank, s ? status_message(s) : "OK");
        RANK_CHECK(status_code(s) == STATUS_PEER && strstr(status_message(s), name));
        status_free(s);
    }
    while (atomic_load(late->done) < env->world_size - 1) clock_sleep(0.01); /* all are there while one waits */
    _exit(0);
}

TEST_LOOP(the_late_rank_of_a_tree_is_named, 0, 3) {
    int world = ranks_of_a_tree(), ranks[] = {world - 1, 1, 0};
    struct late late = {ranks[_i], shared_count()};
    set_backend(1);
    ranks_run(world, late_body, &late);
}

/* Over a network always; in shared memory if the ranks, of one thread each, leave a processor. */
static void overlap_body(const struct dist_env *env, void *argument) {
    (void)argument;
    struct rank_group g = rank_join(env, 20);
    bool overlaps, is_shm = strcmp(comm_backend(g.comm), "shm") == 0;
    rank_must(comm_overlaps(g.comm, &overlaps));
    rank_must(comm_barrier(g.comm));
    RANK_CHECK(overlaps == (!is_shm || env->world_size < processors_allowed()));
    rank_leave(&g);
}

TEST_LOOP(communication_overlaps, 0, 4) {
    setenv("OMP_NUM_THREADS", "1", 1);
    set_backend(_i % 2);
    ranks_run(2 + _i / 2, overlap_body, NULL);
}

/* A NaN of any rank gives NaN. */
TEST(nan_gives_nan) {
    static const enum comm_op ops[] = {COMM_SUM, COMM_AVG, COMM_MIN, COMM_MAX, COMM_PRODUCT};
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
        for (int bad = 0; bad < 3; bad++) {
            float singles[3][2] = {{1, 2}, {-1, 3}, {5, -4}}, single[2];
            double doubles[3][2] = {{1, 2}, {-1, 3}, {5, -4}}, twice[2];
            uint16_t halves[3][2], half[2];
            singles[bad][0] = NAN, doubles[bad][0] = NAN;
            combine(single, (const void *const[]){singles[0], singles[1], singles[2]}, 3, 2, COMM_FLOAT32, ops[o]);
            combine(twice, (const void *const[]){doubles[0], doubles[1], doubles[2]}, 3, 2, COMM_FLOAT64, ops[o]);
            ck_assert_msg(isnan(single[0]) && isnan(twice[0]), "operation %d, rank %d", (int)ops[o], bad);
            ck_assert(!isnan(single[1]) && !isnan(twice[1]));
            for (int type = COMM_BFLOAT16; type <= COMM_FLOAT16; type++) {
                for (int r = 0; r < 3; r++) combine_to_half(halves[r], singles[r], 2, (enum comm_type)type);
                combine(half, (const void *const[]){halves[0], halves[1], halves[2]}, 3, 2, (enum comm_type)type,
                        ops[o]);
                combine_from_half(single, half, 2, (enum comm_type)type);
                ck_assert_msg(isnan(single[0]) && !isnan(single[1]), "operation %d, rank %d", (int)ops[o], bad);
            }
        }
}

TEST(unknown_backend) {
    struct comm *comm;
    struct dist_env env = {.rank = 0, .world_size = 2};
    status s = comm_create("tcp", &env, NULL, 1, &comm);
    ck_assert_int_eq(status_code(s), STATUS_USAGE);
    ck_assert_ptr_nonnull(
        strstr(status_message(s), "communication backend: expected auto, shm, gloo, mpi or nccl, got "));
    ck_assert_ptr_null(comm);
    status_free(s);
}

CHECK_MAIN("comm")
