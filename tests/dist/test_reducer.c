/* Buckets as PyTorch assigns them; averages over ranks as the same arithmetic in one process. ctest-labels: dist */
#include "ranks.h"

#include <jansson.h>
#include <math.h>

#include "check_main.h"
#include "dist/comm/combine.h"
#include "dist/reducer.h"
#include "vectors.h"

static size_t read_sizes(const json_t *list, size_t *sizes) {
    for (size_t i = 0; i < json_array_size(list); i++) sizes[i] = (size_t)json_integer_value(json_array_get(list, i));
    return json_array_size(list);
}

TEST(buckets_as_pytorch) {
    json_t *root = vectors_load("ddp_buckets"), *c;
    size_t n;
    ck_assert_uint_gt(json_array_size(json_object_get(root, "cases")), 3);
    json_array_foreach(json_object_get(root, "cases"), n, c) {
        struct reducer_range ranges[200];
        size_t sizes[200], limits[2], bucket_of[200], offset = 0, seen = 0;
        size_t count = read_sizes(json_object_get(c, "numel_f32"), sizes);
        ck_assert_uint_eq(read_sizes(json_object_get(c, "limits"), limits), 2);
        json_t *expected = json_object_get(c, "buckets");
        for (size_t i = 0; i < count; i++) { /* reducer_plan begins with the last parameter */
            size_t numel = sizes[count - 1 - i];
            ranges[i] = (struct reducer_range){.name = "w", .offset = offset, .count = numel};
            offset += numel;
        }
        struct reducer_config config = {.first_bucket_mb = (double)limits[0] / 1048576,
                                        .bucket_cap_mb = (double)limits[1] / 1048576};
        ck_assert_uint_eq(reducer_plan(ranges, count, &config, bucket_of), json_array_size(expected));
        for (size_t b = 0; b < json_array_size(expected); b++)
            for (size_t i = 0; i < json_array_size(json_array_get(expected, b)); i++, seen++) {
                size_t index = (size_t)json_integer_value(json_array_get(json_array_get(expected, b), i));
                ck_assert_uint_eq(bucket_of[count - 1 - index], b);
            }
        ck_assert_uint_eq(seen, count);
    }
    json_decref(root);
}

#define PARAMETERS 9
static const size_t numels[PARAMETERS] = {832, 64, 192, 3, 50000, 1, 7000, 31, 4096};

static float gradient_of(int rank, int step, size_t i) {
    return sinf((float)(i % 1000) * 0.37f + (float)rank) * (float)(step + 1);
}

struct reducer_case {
    double first_kib, cap_kib;
    bool is_permuted;   /* gradients become ready in another order on every rank */
    bool is_overlapped; /* with the communication thread */
};

/* With gaps between ranges, as an aligned flat buffer has. */
static size_t lay_out(struct reducer_range *ranges) {
    size_t offset = 0;
    for (size_t i = 0; i < PARAMETERS; i++) {
        ranges[i] = (struct reducer_range){.name = "p", .offset = offset, .count = numels[i]};
        offset += (numels[i] + 15) / 16 * 16;
    }
    return offset;
}

static void average_body(const struct dist_env *env, void *argument) {
    const struct reducer_case *c = argument;
    struct rank_group g = rank_join(env, 20);
    struct reducer_range ranges[PARAMETERS];
    size_t total = lay_out(ranges);
    float *gradients = calloc(total, sizeof *gradients);
    struct reducer_config config = {
        .first_bucket_mb = c->first_kib / 1024, .bucket_cap_mb = c->cap_kib / 1024, .is_overlapped = c->is_overlapped};
    struct reducer *reducer;
    rank_must(reducer_create(&config, ranges, PARAMETERS, gradients, g.comm, &reducer));
    int world = env->world_size;
    for (int step = 0; step < 10; step++) {
        reducer_start(reducer);
        for (size_t k = 0; k < PARAMETERS; k++) {
            size_t p = PARAMETERS - 1 - (c->is_permuted ? (k * 4 + (size_t)env->rank) % PARAMETERS : k);
            for (size_t i = 0; i < numels[p]; i++)
                gradients[ranges[p].offset + i] = gradient_of(env->rank, step, ranges[p].offset + i);
            reducer_ready(reducer, p);
        }
        rank_must(reducer_finish(reducer));
        float factor = (float)(1.0 / world);
        for (size_t p = 0; p < PARAMETERS; p++)
            for (size_t i = ranges[p].offset; i < ranges[p].offset + numels[p]; i++) {
                double sum = 0, size = 0;
                for (int r = 0; r < world; r++) {
                    double term = world == 1 ? gradient_of(r, step, i) : gradient_of(r, step, i) * factor;
                    sum += term;
                    size += fabs(term);
                }
                if (world <= 2) RANK_CHECK(gradients[i] == (float)sum); /* one addition: exact */
                RANK_CHECK(fabs(gradients[i] - sum) <= 3e-7 * size);
            }
    }
    struct reducer_times times = reducer_times(reducer);
    RANK_CHECK(world == 1 ? times.communication == 0 : times.communication > 0 && times.waited > 0);
    double hidden = reducer_hidden((struct reducer_times){0}, times);
    RANK_CHECK(world == 1 ? isnan(hidden) : hidden >= 0 && hidden < 1);
    if (world > 1 && (c->first_kib == 1024 || !c->is_overlapped)) RANK_CHECK(hidden == 0);
    reducer_destroy(reducer);
    free(gradients);
    rank_leave(&g);
}

static const struct reducer_case cases[] = {
    {1024, 25600, false, true}, /* one bucket */
    {1, 4, false, true},        /* about one bucket for each parameter */
    {0.001, 0.001, true, true}, /* one bucket for each parameter, ready in any order */
    {16, 100, true, true},      {300, 1, false, true}, {1, 4, true, false}, /* no thread: all buckets at the end */
};
#define CASES ((int)(sizeof cases / sizeof *cases))

TEST_LOOP(average_is_serial, 0, 4 * CASES) {
    struct reducer_case c = cases[_i % CASES];
    ranks_run(1 + _i / CASES, average_body, &c);
}

static float as_bfloat16(float value) {
    uint16_t half;
    combine_to_half(&half, &value, 1, COMM_BFLOAT16);
    combine_from_half(&value, &half, 1, COMM_BFLOAT16);
    return value;
}

/* The sum of ranks [first], [first] + [stride], ...: rounded terms are added in float32, and the sum is rounded. */
static float compressed_sum(int first, int stride, int world, size_t i) {
    float sum = 0, factor = (float)(1.0 / world);
    for (int r = first; r < world; r += stride) {
        float term = as_bfloat16(gradient_of(r, 0, i) * factor);
        sum = r == first ? term : sum + term;
    }
    return as_bfloat16(sum);
}

/* Rank r is on host r % [hosts]; the sums of the hosts are added. 0: one host. */
static float compressed_average(int hosts, int world, size_t i) {
    if (hosts == 0) return compressed_sum(0, 1, world, i);
    float sum = compressed_sum(0, hosts, world, i);
    for (int host = 1; host < hosts; host++) sum += compressed_sum(host, hosts, world, i);
    return as_bfloat16(sum);
}

struct shards_case {
    const char *backend;
    int world;
    bool is_overlapped;
};

/* Elements that rank [rank] has of the averages, in their order, SIZE_MAX for gaps; returns their number. */
static size_t own_elements(const struct reducer_shard *shards, size_t count, int world, int rank, size_t *elements) {
    size_t n = 0;
    for (size_t s = 0; s < count; s++) {
        size_t begin = shards[s].begin + (size_t)rank * shards[s].size,
               end = n + reducer_shard_floats(&shards[s], world);
        for (size_t i = 0; i < shards[s].size; i++) elements[n++] = begin + i;
        for (size_t i = shards[s].begin + (size_t)world * shards[s].size; i < shards[s].end; i++) elements[n++] = i;
        while (n < end) elements[n++] = SIZE_MAX;
    }
    return n;
}

/* Two batches, whose buckets are in turn in one of two places: a bucket is written while the one before it may still be
 * reduced. Rank 1 is late, so that rank 0 would write too early without reducer_claim. */
static void shards_body(const struct dist_env *env, void *argument) {
    const struct shards_case *c = argument;
    struct rank_group g = rank_join(env, 20);
    struct reducer_range ranges[PARAMETERS];
    struct reducer_shard shards[PARAMETERS];
    size_t total = lay_out(ranges), shard_count, places[PARAMETERS], bucket_of[PARAMETERS];
    size_t *elements = calloc(total, sizeof *elements);
    float *gradients = calloc(2 * total, sizeof *gradients), *own = calloc(total, sizeof *own);
    struct reducer_config config = {.first_bucket_mb = 0.001,
                                    .bucket_cap_mb = 0.01,
                                    .is_scattered = true,
                                    .is_overlapped = c->is_overlapped,
                                    .shards = own,
                                    .places = places};
    struct reducer *reducer;
    size_t buckets = reducer_plan(ranges, PARAMETERS, &config, bucket_of);
    RANK_CHECK(buckets > 3);
    for (size_t b = 0; b < buckets; b++) places[b] = b % 2 * total;
    rank_must(reducer_shards(ranges, PARAMETERS, &config, c->world, shards, &shard_count));
    rank_must(reducer_create(&config, ranges, PARAMETERS, gradients, g.comm, &reducer));
    size_t count = own_elements(shards, shard_count, c->world, env->rank, elements);
    for (int step = 0; step < 6; step++) {
        (step % 2 == 0 ? reducer_start : reducer_start_next)(reducer);
        for (size_t p = PARAMETERS; p-- > 0;) {
            size_t b = bucket_of[p], begin = shards[shard_count - 1 - b].begin;
            if (env->rank == 1 && p % 3 == 0) clock_sleep(0.002);
            if (p + 1 == PARAMETERS || bucket_of[p + 1] != b) {
                reducer_claim(reducer, b);
                memset(gradients + places[b], 0, (shards[shard_count - 1 - b].end - begin) * sizeof *gradients);
            }
            for (size_t i = 0; i < numels[p]; i++)
                gradients[places[b] + ranges[p].offset + i - begin] =
                    gradient_of(env->rank, step, ranges[p].offset + i);
            reducer_ready(reducer, p);
        }
        rank_must(reducer_finish(reducer));
        float factor = (float)(1.0 / c->world);
        for (size_t k = 0; k < count; k++) {
            size_t i = elements[k], p = 0;
            if (i == SIZE_MAX) continue;
            while (i >= ranges[p].offset + (numels[p] + 15) / 16 * 16) p++;
            if (i >= ranges[p].offset + numels[p]) continue; /* a gap */
            float expected = 0;
            for (int batch = step % 2 == 0 ? step : step - 1; batch <= step; batch++) {
                float sum = gradient_of(0, batch, i) * factor;
                for (int r = 1; r < c->world; r++) sum += gradient_of(r, batch, i) * factor;
                expected = batch == step && step % 2 == 0 ? sum : batch == step ? expected + sum : sum;
            }
            RANK_CHECK(own[k] == expected);
        }
    }
    reducer_destroy(reducer);
    free(gradients), free(own), free(elements);
    rank_leave(&g);
}

static const struct shards_case shards_cases[] = {
    {"shm", 2, false}, {"shm", 2, true}, {"shm", 3, true}, {"gloo", 2, true}, {"gloo", 3, false}};

TEST_EACH(shards_are_kept, shards_cases) {
    struct shards_case c = shards_cases[_i];
    setenv("TEST_BACKEND", c.backend, 1);
    setenv("TEST_HOSTS", "0", 1);
    ranks_run(c.world, shards_body, &c);
}

struct compressed_case {
    const char *backend;
    int hosts, world;
    bool is_scattered, is_overlapped;
};

static void compressed_body(const struct dist_env *env, void *argument) {
    const struct compressed_case *c = argument;
    struct rank_group g = rank_join(env, 20);
    struct reducer_range ranges[PARAMETERS];
    struct reducer_shard shards[PARAMETERS];
    size_t total = lay_out(ranges), shard_count;
    float *gradients = calloc(total, sizeof *gradients);
    struct reducer_config config = {.first_bucket_mb = 0.01,
                                    .bucket_cap_mb = 0.1,
                                    .is_scattered = c->is_scattered,
                                    .is_compressed = true,
                                    .is_overlapped = c->is_overlapped};
    struct reducer *reducer;
    rank_must(reducer_create(&config, ranges, PARAMETERS, gradients, g.comm, &reducer));
    rank_must(reducer_shards(ranges, PARAMETERS, &config, c->world, shards, &shard_count));
    for (size_t p = 0; p < PARAMETERS; p++)
        for (size_t i = 0; i < numels[p]; i++)
            gradients[ranges[p].offset + i] = gradient_of(env->rank, 0, ranges[p].offset + i);
    reducer_start(reducer);
    for (size_t p = PARAMETERS; p-- > 0;) reducer_ready(reducer, p);
    rank_must(reducer_finish(reducer));
    RANK_CHECK(shard_count > 2);
    for (size_t p = 0; p < PARAMETERS; p++)
        for (size_t i = ranges[p].offset, shard = 0; i < ranges[p].offset + numels[p]; i++) {
            while (i >= shards[shard].end) shard++;
            size_t owner = shards[shard].size ? (i - shards[shard].begin) / shards[shard].size : (size_t)c->world;
            bool is_own = !c->is_scattered || owner == (size_t)env->rank || owner >= (size_t)c->world;
            if (is_own) RANK_CHECK(gradients[i] == compressed_average(c->hosts, c->world, i));
        }
    reducer_destroy(reducer);
    free(gradients);
    rank_leave(&g);
}

static const struct compressed_case compressed_cases[] = {
    {"shm", 0, 2, false, false}, {"shm", 0, 2, false, true},  {"shm", 0, 3, true, true},
    {"shm", 0, 3, true, false},  {"gloo", 0, 2, false, true}, {"gloo", 0, 3, false, true},
    {"gloo", 0, 2, true, true},  {"auto", 2, 4, false, true}, {"auto", 2, 4, true, true}};

TEST_EACH(compressed_is_rounded_twice, compressed_cases) {
    struct compressed_case c = compressed_cases[_i];
    char hosts[16];
    snprintf(hosts, sizeof hosts, "%d", c.hosts);
    setenv("TEST_BACKEND", c.backend, 1);
    setenv("TEST_HOSTS", hosts, 1);
    ranks_run(c.world, compressed_body, &c);
}

/* Rank 0's first bucket waits for that of rank 1 while its backward continues: the wait overlaps. */
static void overlap_body(const struct dist_env *env, void *argument) {
    atomic_int *is_waiting = argument;
    struct rank_group g = rank_join(env, 20);
    static float gradients[64];
    struct reducer_range ranges[] = {{"a", 0, 32}, {"b", 32, 32}};
    struct reducer_config config = {.first_bucket_mb = 1e-6, .bucket_cap_mb = 1e-6, .is_overlapped = true};
    struct reducer *reducer;
    rank_must(reducer_create(&config, ranges, 2, gradients, g.comm, &reducer));
    rank_must(comm_barrier(g.comm));
    reducer_start(reducer);
    while (env->rank == 1 && !atomic_load(is_waiting)) clock_sleep(0.001);
    if (env->rank == 1) clock_sleep(0.5);
    reducer_ready(reducer, 1);
    atomic_store(is_waiting, 1);
    if (env->rank == 0) clock_sleep(1);
    reducer_ready(reducer, 0);
    rank_must(reducer_finish(reducer));
    struct reducer_times times = reducer_times(reducer);
    double hidden = reducer_hidden((struct reducer_times){0}, times);
    RANK_CHECK(hidden >= 0 && hidden < 1);
    if (env->rank == 0) RANK_CHECK(hidden > 0 && times.communication > times.waited + 0.05);
    reducer_destroy(reducer);
    rank_leave(&g);
}

TEST(overlap_is_measured) { ranks_run(2, overlap_body, shared_count()); }

TEST(hidden_share_is_computed) {
    struct reducer_times before = {1, 2}, idle = before, half = {3, 3}, late = {2, 3.01};
    ck_assert(isnan(reducer_hidden(before, idle)));
    ck_assert(reducer_hidden(before, half) == 0.5);
    ck_assert(reducer_hidden(before, late) == 0);
}

static void missing_body(const struct dist_env *env, void *argument) {
    (void)argument;
    struct rank_group g = rank_join(env, 5);
    static float gradients[20];
    struct reducer_range ranges[] = {{"0.weight", 0, 10}, {"0.bias", 10, 10}};
    struct reducer_config config = {.first_bucket_mb = 1e-6, .bucket_cap_mb = 1e-6, .is_overlapped = true};
    struct reducer *reducer;
    rank_must(reducer_create(&config, ranges, 2, gradients, g.comm, &reducer));
    reducer_start(reducer);
    reducer_ready(reducer, 1);
    reducer_ready(reducer, 1); /* the second call does nothing */
    status s = reducer_finish(reducer);
    RANK_CHECK(status_code(s) == STATUS_BUG && strstr(status_message(s), "'0.weight'"));
    status_free(s);
    reducer_destroy(reducer);
    rank_must(comm_barrier(g.comm));
    rank_leave(&g);
}

TEST_LOOP(missing_gradient_is_reported, 1, 3) { ranks_run(_i, missing_body, NULL); }

/* A rank is killed during a step: reducer_finish of the other fails, and reducer_destroy does not hang. */
static void killed_body(const struct dist_env *env, void *argument) {
    const bool *is_overlapped = argument;
    struct rank_group g = rank_join(env, 60);
    static float gradients[400000];
    struct reducer_range ranges[] = {{"a", 0, 100000}, {"b", 100000, 100000}, {"c", 200000, 200000}};
    struct reducer_config config = {.first_bucket_mb = 0.1, .bucket_cap_mb = 0.1, .is_overlapped = *is_overlapped};
    struct reducer *reducer;
    rank_must(reducer_create(&config, ranges, 3, gradients, g.comm, &reducer));
    double start = clock_seconds();
    status s = OK;
    for (int step = 0; step < 1000 && !s; step++) {
        reducer_start(reducer);
        for (size_t p = 3; p-- > 0;) {
            reducer_ready(reducer, p);
            if (env->rank == 1 && step == 3 && p == 1) raise(SIGKILL);
        }
        s = reducer_finish(reducer);
    }
    RANK_CHECK(status_code(s) == STATUS_PEER && strstr(status_message(s), "rank 1"));
    RANK_CHECK(clock_seconds() - start < 55);
    status_free(s);
    reducer_destroy(reducer);
    rank_leave(&g);
}

TEST_LOOP(rank_is_killed_in_a_step, 0, 2) {
    struct ranks ranks;
    ranks_prepare(&ranks, 2);
    bool is_overlapped = _i;
    ranks_start(&ranks, killed_body, &is_overlapped);
    ranks_wait(&ranks);
    ck_assert_int_eq(ranks.codes[0], 0);
    ck_assert_int_eq(ranks.codes[1], 128 + SIGKILL);
}

/* Rank 1 reduces only the last bucket, which is the caller's, and is killed: the failure is that of the thread. From
 * reducer_finish on it is the caller's alone. */
static void thread_fails_body(const struct dist_env *env, void *argument) {
    (void)argument;
    struct rank_group g = rank_join(env, 60);
    static float gradients[300];
    struct reducer_range ranges[] = {{"a", 0, 100}, {"b", 100, 100}, {"c", 200, 100}};
    struct reducer_config config = {.first_bucket_mb = 1e-6, .bucket_cap_mb = 1e-6, .is_overlapped = true};
    struct reducer *reducer;
    rank_must(reducer_create(&config, ranges, 3, gradients, g.comm, &reducer));
    if (env->rank == 1) {
        rank_must(comm_average(g.comm, gradients, 100));
        clock_sleep(0.3);
        raise(SIGKILL);
    }
    reducer_start(reducer);
    for (size_t p = 3; p-- > 0;) reducer_ready(reducer, p);
    status s = reducer_finish(reducer);
    reducer_destroy(reducer);
    RANK_CHECK(status_code(s) == STATUS_PEER && strstr(status_message(s), "rank 1 (host "));
    status_free(s);
    rank_leave(&g);
}

TEST(the_failure_of_the_thread_is_passed_on) {
    struct ranks ranks;
    ranks_prepare(&ranks, 2);
    ranks_start(&ranks, thread_fails_body, NULL);
    ranks_wait(&ranks);
    ck_assert_int_eq(ranks.codes[0], 0);
    ck_assert_int_eq(ranks.codes[1], 128 + SIGKILL);
}

CHECK_MAIN("reducer")
