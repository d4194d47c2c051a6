/* comm_check detects one wrong element of each collective and reports it. ctest-labels: dist */
#include "ranks.h"

#include <stdatomic.h>

#include "check_main.h"
#include "dist/comm/comm_check.h"
#include "dist/comm/comm_group.h"

enum call { REDUCE_ALL, REDUCE_ROOT, REDUCE_SCATTER, GATHER_ALL, GATHER_ROOT, SCATTER, BROADCAST, RECV };

/* In rank [rank] of two, the first call [call] of [size] bytes (gather: from rank 1) adds 100 to the float, or the byte
 * if [size] is odd, at byte [at] of its result; in a rank without a result, of its data, which must not change. */
static const struct mistake {
    enum call call;
    int rank;
    size_t size, at;
    const char *expected;
} mistakes[] = {
    {REDUCE_ALL, 1, 4 * 16385, 4 * 16000, "all_reduce of 16385 float32, sum: element 16000 is 106, expected 6"},
    {REDUCE_ALL, 0, 4 * 100001, 4 * 100000, "all_reduce of 100001 float32, sum: element 100000 is 107, expected 7"},
    {REDUCE_ROOT, 1, 4 * 16385, 0, "reduce of 16385 float32, sum: element 0 is 99, expected -1"},
    {REDUCE_ROOT, 0, 4 * 16385, 4 * 16384, "reduce of 16385 float32, sum: element 0 is nan, expected 0"},
    {REDUCE_SCATTER, 1, 4 * 16385, 0, "reduce_scatter of 16385 float32, sum: element 0 is 106, expected 6"},
    {BROADCAST, 0, 4 * 16385, 4 * 45, "broadcast of 16385 float32: element 45 is 98, expected -2"},
    {GATHER_ALL, 0, 4 * 16385, 4 * 16386, "all_gather of 16385 float32: element 1 is 98, expected -2"},
    {GATHER_ROOT, 1, 4 * 16385, 4 * 1, "gather of 16385 float32: element 1 is 104, expected 4"},
    {SCATTER, 0, 4 * 16385, 4 * 2, "scatter of 16385 float32: element 2 is 105, expected 5"},
    {RECV, 0, 4 * 16385, 4 * 16384, "send of 16385 float32: element 16384 is 104, expected 4"},
    {GATHER_ALL, 0, 13, 5, "all_gather_bytes of 1 uint8: element 5 is 102, expected 2"},
    {GATHER_ROOT, 1, 13, 12, "gather_bytes of 1 uint8: element 12 is 102, expected 2"},
};

static const struct mistake *mistake; /* of this rank; NULL: none */
static atomic_bool is_done;           /* the mistake is made once; several threads run the check */
static const struct comm_backend *real;

static void make_mistake(enum call call, size_t size, void *result) {
    if (!mistake || call != mistake->call || size != mistake->size || atomic_exchange(&is_done, true)) return;
    if (size % 2)
        ((uint8_t *)result)[mistake->at] = (uint8_t)(((uint8_t *)result)[mistake->at] + 100);
    else
        *(float *)(void *)((char *)result + mistake->at) += 100;
}

static status reduce(void *group, int lane, void *data, size_t count, enum comm_type type, enum comm_op op, int root) {
    TRY(real->reduce(group, lane, data, count, type, op, root));
    if (type == COMM_FLOAT32 && op == COMM_SUM)
        make_mistake(root == COMM_ALL ? REDUCE_ALL : REDUCE_ROOT, 4 * count, data);
    return OK;
}

static status reduce_scatter(void *group, int lane, const void *data, size_t count, enum comm_type type,
                             enum comm_op op, void *out) {
    TRY(real->reduce_scatter(group, lane, data, count, type, op, out));
    if (type == COMM_FLOAT32 && op == COMM_SUM) make_mistake(REDUCE_SCATTER, 4 * count, out);
    return OK;
}

static status gather(void *group, int lane, const void *data, const size_t *sizes, void *out, int root) {
    TRY(real->gather(group, lane, data, sizes, out, root));
    if (out) make_mistake(root == COMM_ALL ? GATHER_ALL : GATHER_ROOT, sizes[1], out);
    return OK;
}

static status scatter(void *group, int lane, const void *data, size_t size, void *out, int root) {
    TRY(real->scatter(group, lane, data, size, out, root));
    make_mistake(SCATTER, size, out);
    return OK;
}

static status broadcast(void *group, int lane, void *data, size_t size, int root) {
    TRY(real->broadcast(group, lane, data, size, root));
    make_mistake(BROADCAST, size, data);
    return OK;
}

static status receive(void *group, int lane, void *data, size_t size, int from) {
    TRY(real->recv(group, lane, data, size, from));
    make_mistake(RECV, size, data);
    return OK;
}

/* ---- progress ---- */

struct progress {
    size_t calls, done, total, checks;
    bool has_groups, is_wrong;
};

static void note_progress(void *context, const char *part, size_t done, size_t total, size_t checks) {
    struct progress *p = context;
    p->is_wrong = p->is_wrong || done < p->done || done >= total || checks < p->checks;
    p->has_groups = strcmp(part, "groups") == 0; /* the last part */
    *p = (struct progress){p->calls + 1, done, total, checks, p->has_groups, p->is_wrong};
}

static void progress_body(const struct dist_env *env, void *argument) {
    (void)argument;
    struct rank_group g = rank_join(env, 20);
    struct progress progress = {0};
    size_t checks;
    rank_must(comm_check(g.comm, note_progress, &progress, &checks));
    RANK_CHECK(!progress.is_wrong && progress.has_groups && progress.done + 1 == progress.total);
    RANK_CHECK(progress.calls >= progress.total);
    size_t groups = checks - progress.checks; /* a half, a half of that, and the group without rank 0 */
    RANK_CHECK(groups == (env->rank == 0 ? 2 : 3));
    rank_leave(&g);
}

TEST(progress_is_reported) { ranks_run(2, progress_body, NULL); }

/* ---- mistakes ---- */

static void check_body(const struct dist_env *env, void *argument) {
    const struct mistake *m = argument;
    struct rank_group g = rank_join(env, 20);
    real = g.comm->shared->backend;
    mistake = env->rank == m->rank ? m : NULL;
    struct comm_backend wrong = *real;
    wrong.reduce = reduce;
    wrong.reduce_scatter = reduce_scatter;
    wrong.gather = gather;
    wrong.scatter = scatter;
    wrong.broadcast = broadcast;
    wrong.recv = receive;
    if (mistake)
        g.comm->shared->backend =
            &wrong; /* only here: the store's thread of the other rank may read its table at any time */
    size_t checks;
    status s = comm_check(g.comm, NULL, NULL, &checks);
    if (env->rank == m->rank) {
        char expected[200];
        snprintf(expected, sizeof expected, "rank %d of 2, shm: %s", env->rank, m->expected);
        if (strcmp(status_message(s), expected) != 0) fprintf(stderr, "expected: %s\n", expected);
        if (status_code(s) != STATUS_BUG || strcmp(status_message(s), expected) != 0) rank_must(s);
        RANK_CHECK(checks > 0);
        _exit(0); /* ends the check of the other rank */
    }
    RANK_CHECK(status_code(s) == STATUS_PEER);
    status_free(s);
    rank_leave(&g);
}

TEST_EACH(wrong_element_is_reported, mistakes) { ranks_run(2, check_body, (void *)&mistakes[_i]); }

CHECK_MAIN("comm_check")
