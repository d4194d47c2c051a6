/* The collectives that are made of messages, on threads as ranks: bits in order of rank for every way and any number of
 * ranks; rounds, peers and scratch memory as functions of the number of ranks. ctest-labels: dist */
#include <check.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_main.h"
#include "dist/comm/collectives.h"
#include "dist/comm/combine.h"

/* ---- messages between threads ---- */

/* A send ends only when its receive has been posted, as on a network without room. */
struct message {
    struct message *next;
    void *data;
    size_t size;
    int rank, set;
    bool is_send;
    int clock; /* rounds until it was sent */
};

struct queue {
    struct message *first, **end;
};

struct rank {
    struct collectives collectives; /* first */
    struct job *job;
    int left[COLLECTIVES_SETS]; /* messages that are not complete */
    int arrived[COLLECTIVES_SETS];
    int clock; /* rounds: the longest chain of messages that came before */
    size_t sent, bytes;
    bool *peers;
    pthread_cond_t changed;
};

struct job {
    int world;
    pthread_mutex_t mutex;
    struct rank *ranks;
    struct queue *queues; /* (world, world): from, to; sends or receives that wait for the other side */
    void (*body)(struct rank *r, void *argument);
    void *argument;
};

static void complete(struct job *j, struct message *m, const struct message *other) {
    struct rank *r = &j->ranks[m->rank];
    if (!m->is_send && other->clock + 1 > r->arrived[m->set]) r->arrived[m->set] = other->clock + 1;
    r->left[m->set]--;
    pthread_cond_signal(&r->changed);
}

static status connect_peers(void *group, int lane, const int *peers, int count) {
    struct rank *r = group;
    (void)lane;
    for (int i = 0; i < count; i++) {
        ck_assert(peers[i] >= 0 && peers[i] < r->collectives.world && peers[i] != r->collectives.rank);
        r->peers[peers[i]] = true;
    }
    return OK;
}

static status post(void *group, int lane, int set, int peer, void *data, size_t size, bool is_send) {
    struct rank *r = group;
    struct job *j = r->job;
    int own = r->collectives.rank;
    ck_assert(lane == 0 && size > 0 && r->peers[peer]);
    struct message *m = malloc(sizeof *m);
    *m = (struct message){NULL, data, size, own, set, is_send, r->clock};
    pthread_mutex_lock(&j->mutex);
    struct queue *q = &j->queues[is_send ? own * j->world + peer : peer * j->world + own];
    struct message *first = q->first;
    r->left[set]++;
    r->sent += is_send;
    r->bytes += is_send ? size : 0;
    if (first && first->is_send != is_send) {
        ck_assert_uint_eq(first->size, size);
        if (is_send)
            memcpy(first->data, data, size);
        else
            memcpy(data, first->data, size);
        q->first = first->next;
        complete(j, first, m);
        complete(j, m, first);
        free(first);
        free(m);
    } else {
        if (!first) q->end = &q->first;
        *q->end = m;
        q->end = &m->next;
    }
    pthread_mutex_unlock(&j->mutex);
    return OK;
}

static status wait(void *group, int lane, int set) {
    struct rank *r = group;
    (void)lane;
    pthread_mutex_lock(&r->job->mutex);
    while (r->left[set]) pthread_cond_wait(&r->changed, &r->job->mutex);
    pthread_mutex_unlock(&r->job->mutex);
    if (r->arrived[set] > r->clock) r->clock = r->arrived[set];
    r->arrived[set] = 0;
    return OK;
}

static const struct collectives_transport transport = {.connect = connect_peers, .post = post, .wait = wait};

static void *run_rank(void *argument) {
    struct rank *r = argument;
    r->job->body(r, r->job->argument);
    return NULL;
}

/* Runs [body] on all ranks; what they have counted stays in j->ranks until job_free. */
static void job_run(struct job *j, int world, void (*body)(struct rank *, void *), void *argument) {
    size_t n = (size_t)world;
    *j = (struct job){.world = world,
                      .ranks = calloc(n, sizeof *j->ranks),
                      .queues = calloc(n * n, sizeof *j->queues),
                      .body = body,
                      .argument = argument};
    pthread_t *threads = calloc(n, sizeof *threads);
    pthread_attr_t small;
    pthread_mutex_init(&j->mutex, NULL);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 << 10);
    for (int r = 0; r < world; r++) {
        j->ranks[r].job = j;
        j->ranks[r].peers = calloc(n, sizeof *j->ranks[r].peers);
        pthread_cond_init(&j->ranks[r].changed, NULL);
        ck_assert(collectives_create(&j->ranks[r].collectives, r, world, &transport) == OK);
    }
    for (int r = 0; r < world; r++) ck_assert_int_eq(pthread_create(&threads[r], &small, run_rank, &j->ranks[r]), 0);
    for (int r = 0; r < world; r++) pthread_join(threads[r], NULL);
    for (size_t i = 0; i < n * n; i++) ck_assert_msg(!j->queues[i].first, "a message was not received");
    free(threads);
    pthread_attr_destroy(&small);
}

static void job_free(struct job *j) {
    for (int r = 0; r < j->world; r++) {
        collectives_free(&j->ranks[r].collectives);
        free(j->ranks[r].peers);
    }
    free(j->ranks);
    free(j->queues);
}

/* ---- bits ---- */

static const int worlds[] = {2, 3, 4, 5, 6, 7, 8, 9, 16, 17};

static bool is_sanitized(void) {
    const char *sanitizer = getenv("DDPTRAIN_SANITIZER");
    return sanitizer && *sanitizer;
}

/* Under a sanitizer some numbers of ranks stand for those between them. */
static bool is_tried(int world) { return !is_sanitized() || world < 4 || world == 5 || world == 8 || world == 17; }

/* Values whose sums depend on the order: of many magnitudes, with signs. ThreadSanitizer would take most of its time
 * for these writes, of memory that no other thread has yet. */
__attribute__((no_sanitize("thread"))) static void fill(void *data, size_t count, enum comm_type type, int rank) {
    uint32_t state = (uint32_t)rank * 2654435761u + 12345;
    float scales[16];
    for (int i = 0; i < 16; i++) scales[i] = ldexpf(1, i - 39);
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        float value = (float)(int32_t)state * scales[state >> 9 & 15];
        switch (type) {
        case COMM_FLOAT32:
            ((float *)data)[i] = value;
            break;
        case COMM_FLOAT64:
            ((double *)data)[i] = (double)value / 3;
            break;
        case COMM_BFLOAT16:
        case COMM_FLOAT16:
            combine_to_half((uint16_t *)data + i, &value, 1, type);
            break;
        case COMM_INT32:
            ((int32_t *)data)[i] = (int32_t)state;
            break;
        case COMM_INT64:
            ((int64_t *)data)[i] = (int64_t)state << 20;
            break;
        default:
            ((uint8_t *)data)[i] = (uint8_t)(state >> 24);
        }
    }
}

struct reduction {
    size_t count;
    enum comm_type type;
    enum comm_op op;
    int root;
    void *expected;
};

static void check_reduction(struct rank *r, void *argument) {
    const struct reduction *c = argument;
    size_t size = c->count * comm_type_size(c->type);
    SCOPED_MEMORY char *data = malloc(size), *before = malloc(size);
    fill(data, c->count, c->type, r->collectives.rank);
    memcpy(before, data, size);
    ck_assert(collectives_reduce(r, 0, data, c->count, c->type, c->op, c->root) == OK);
    bool is_receiver = c->root == COMM_ALL || c->root == r->collectives.rank;
    ck_assert(memcmp(data, is_receiver ? c->expected : before, size) == 0);
    if (r->collectives.rank == 0 && c->root == COMM_ALL && c->count % (size_t)r->collectives.world == 0)
        ck_assert_uint_lt(r->collectives.lanes[0].scratch_size, 16 << 20);
}

/* What [world] ranks have filled. */
static void *combined(size_t count, int world, enum comm_type type, enum comm_op op) {
    size_t size = count * comm_type_size(type);
    void **inputs = calloc((size_t)world, sizeof *inputs), *all = malloc(size);
    for (int r = 0; r < world; r++) fill(inputs[r] = malloc(size), count, type, r);
    combine(all, (const void *const *)inputs, world, count, type, op);
    for (int r = 0; r < world; r++) free(inputs[r]);
    free(inputs);
    return all;
}

static void compare_reduction(int world, struct reduction c) {
    struct job job;
    c.expected = combined(c.count, world, c.type, c.op);
    job_run(&job, world, check_reduction, &c);
    job_free(&job);
    free(c.expected);
}

/* Every way: whole, in one round and in several; slices; rounds; a chain with fewer and with more chunks than ranks. */
TEST_EACH(reductions_are_in_order_of_rank, worlds) {
    static const size_t lengths[] = {1, 3, 1001, 5003, 65537};
    int world = worlds[_i];
    if (!is_tried(world)) return;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int root = COMM_ALL; root < world; root += root == COMM_ALL ? 1 : world / 2 > 0 ? world / 2 : 1)
            compare_reduction(world, (struct reduction){lengths[i], COMM_FLOAT32, COMM_SUM, root, NULL});
    for (int root = COMM_ALL; root < world; root += root == COMM_ALL ? 1 : world - 1)
        compare_reduction(world, (struct reduction){(size_t)world * 65536 + 1237, COMM_FLOAT32, COMM_SUM, root, NULL});
    for (enum comm_type type = 0; type < COMM_TYPES && (world == 3 || world == 17); type++)
        for (enum comm_op op = 0; op < COMM_OPS; op++) /* with a root that is not the last, 17 ranks are a chain */
            compare_reduction(world, (struct reduction){40001, type, op, world == 17 ? 8 : COMM_ALL, NULL});
}

/* ---- the other calls ---- */

static void *pattern(size_t size, int rank) {
    uint8_t *data = malloc(size + 1);
    fill(data, size, COMM_UINT8, rank + 100);
    return data;
}

static const size_t units[] = {1, 70, 4900, 343000}, counts[] = {3, 40007};

/* The results, computed once for all ranks. */
struct expected {
    char *gathered[sizeof units / sizeof *units];
    float *sums[sizeof counts / sizeof *counts];
};

static size_t gathered_size(size_t unit, int rank) { return unit * (size_t)(rank % 3); } /* none for some */

static void check_gathers(struct rank *r, size_t unit, const char *expected) {
    int world = r->collectives.world, own = r->collectives.rank;
    size_t *sizes = malloc((size_t)world * sizeof *sizes), total = 0;
    for (int p = 0; p < world; p++) total += sizes[p] = gathered_size(unit, p);
    SCOPED_MEMORY void *data = pattern(sizes[own], own);
    for (int root = COMM_ALL; root < world; root += world / 2) {
        SCOPED_MEMORY char *out = malloc(total + 1);
        ck_assert(collectives_gather(r, 0, data, sizes, out, root) == OK);
        if (root == COMM_ALL || root == own) ck_assert(memcmp(out, expected, total) == 0);
    }
    free(sizes);
}

static void check_from_root(struct rank *r, size_t size) {
    int world = r->collectives.world, own = r->collectives.rank;
    for (int root = 0; root < world; root += world / 2 + 1) {
        SCOPED_MEMORY char *data = own == root ? pattern(size, root) : malloc(size), *out = malloc(size);
        SCOPED_MEMORY char *sent = pattern(size, root), *part = pattern(size, world + own), *parts = NULL;
        if (own == root) parts = malloc(size * (size_t)world);
        for (int p = 0; own == root && p < world; p++) {
            SCOPED_MEMORY char *theirs = pattern(size, world + p);
            memcpy(parts + (size_t)p * size, theirs, size);
        }
        ck_assert(collectives_broadcast(r, 0, data, size, root) == OK);
        ck_assert(memcmp(data, sent, size) == 0);
        ck_assert(collectives_scatter(r, 0, parts, size, out, root) == OK);
        ck_assert(memcmp(out, part, size) == 0);
    }
}

static void check_scatter_of_sums(struct rank *r, size_t count, const float *expected) {
    size_t world = (size_t)r->collectives.world, at = (size_t)r->collectives.rank * count;
    SCOPED_MEMORY float *data = malloc(world * count * sizeof *data);
    fill(data, world * count, COMM_FLOAT32, r->collectives.rank);
    ck_assert(collectives_reduce_scatter(r, 0, data, count, COMM_FLOAT32, COMM_SUM, data + at) == OK);
    ck_assert(memcmp(data + at, expected + at, count * sizeof *data) == 0);
}

static void check_others(struct rank *r, void *argument) {
    const struct expected *expected = argument;
    int world = r->collectives.world, own = r->collectives.rank;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) check_gathers(r, units[i], expected->gathered[i]);
    for (size_t size = 1; size < 10000000; size *= 123) check_from_root(r, size);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) check_scatter_of_sums(r, counts[i], expected->sums[i]);
    ck_assert(collectives_barrier(r, 0) == OK);
    int64_t mine = own, theirs = -1;
    if (own == 0) ck_assert(collectives_send(r, 0, &mine, sizeof mine, world - 1) == OK);
    if (own == world - 1) ck_assert(collectives_recv(r, 0, &theirs, sizeof theirs, 0) == OK && theirs == 0);
}

static char *gathered_of(size_t unit, int world) {
    char *all = malloc(unit * 2 * (size_t)world), *at = all;
    for (int p = 0; p < world; at += gathered_size(unit, p++)) {
        SCOPED_MEMORY void *theirs = pattern(gathered_size(unit, p), p);
        memcpy(at, theirs, gathered_size(unit, p));
    }
    return all;
}

TEST_EACH(other_calls, worlds) {
    struct expected expected;
    struct job job;
    int world = worlds[_i];
    if (!is_tried(world)) return;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) expected.gathered[i] = gathered_of(units[i], world);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        expected.sums[i] = combined((size_t)world * counts[i], world, COMM_FLOAT32, COMM_SUM);
    job_run(&job, world, check_others, &expected);
    job_free(&job);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) free(expected.gathered[i]);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) free(expected.sums[i]);
}

/* ---- growth ---- */

static void reduce_bytes(struct rank *r, void *argument) {
    size_t count = *(size_t *)argument / sizeof(double);
    SCOPED_MEMORY double *data = calloc(count, sizeof *data);
    ck_assert(collectives_reduce(r, 0, data, count, COMM_FLOAT64, COMM_SUM, COMM_ALL) == OK);
}

static int rounds_of(int world) {
    int rounds = 0;
    while (1 << rounds < world) rounds++;
    return rounds;
}

/* The sums of a step, a medium and a large buffer. */
TEST_LOOP(rounds_peers_and_scratch_grow_slowly, 0, 3) {
    static const size_t sizes[] = {240, 64 << 10, 4 << 20};
    size_t size = sizes[_i];
    for (int world = 32; world <= (_i == 2 || is_sanitized() ? 64 : 256); world *= 2) {
        struct job job;
        int peers = 0, rounds = 0;
        size_t scratch = 0, bytes = 0;
        job_run(&job, world, reduce_bytes, &size);
        for (int r = 0; r < world; r++) {
            const struct rank *rank = &job.ranks[r];
            int own = 0;
            for (int p = 0; p < world; p++) own += rank->peers[p];
            if (own > peers) peers = own;
            if (rank->clock > rounds) rounds = rank->clock;
            if (rank->bytes > bytes) bytes = rank->bytes;
            if (rank->collectives.lanes[0].scratch_size > scratch) scratch = rank->collectives.lanes[0].scratch_size;
        }
        bool is_whole = size * (size_t)world <= COLLECTIVES_SMALL;
        bool is_chain = size >= (size_t)world * (256 << 10);
        printf("%4d ranks, %7zu bytes: %3d rounds, %2d peers, %9zu bytes sent, %9zu bytes of scratch\n", world, size,
               rounds, peers, bytes, scratch);
        if (is_chain) {
            ck_assert_int_eq(peers, 2);
            ck_assert_int_le(rounds, 2 * world + (int)(size / (128 << 10)));
            ck_assert_uint_le(bytes, 2 * size);
        } else {
            ck_assert_int_le(peers, 2 * rounds_of(world));
            ck_assert_int_eq(rounds, (is_whole ? 1 : 2) * rounds_of(world));
            ck_assert_uint_le(bytes, is_whole ? size * (size_t)world
                                              : size / 2 * (size_t)rounds_of(world) + size + 64 * (size_t)world);
        }
        ck_assert_uint_lt(scratch, is_whole ? COLLECTIVES_SMALL + 1 : 13 << 20);
        job_free(&job);
    }
}

/* Few ranks send each other all data in one round, unless that is so much that slices in two rounds are faster. */
TEST_LOOP(few_ranks_send_whole_data_or_slices, 0, 2) {
    size_t size = _i == 0 ? 48 << 10 : 64 << 10, whole = 4 * size, slices = 2 * size - size / 5;
    struct job job;
    job_run(&job, 5, reduce_bytes, &size);
    for (int r = 0; r < 5; r++) {
        ck_assert_int_eq(job.ranks[r].clock, 1 + _i);
        ck_assert_uint_le(job.ranks[r].bytes, _i == 0 ? whole : slices);
    }
    job_free(&job);
}

CHECK_MAIN("collectives")
