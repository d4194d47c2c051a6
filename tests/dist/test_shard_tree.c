/* Sums over shards: the same bits on any number of ranks as a recursive sum. ctest-labels: dist */
#include "ranks.h"

#include "check_main.h"
#include "dist/shard_tree.h"

#define COUNT 700
#define MAX_SHARDS 40

/* Magnitudes differ so much that the order of additions changes the result. */
static float value_of(size_t shard, size_t i, int step) {
    uint32_t x = (uint32_t)(shard * 7919 + i * 104729 + (size_t)step * 31) * 2654435761u;
    return ((float)(x >> 8) / 16777216.0f - 0.5f) * (float)(1u << (x & 15));
}

/* The sum of the tree of [size] shards from [first] on, recursively. */
static float recursive_sum(size_t first, size_t size, size_t shards, size_t i, int step) {
    if (size == 1) return value_of(first, i, step);
    float left = recursive_sum(first, size / 2, shards, i, step);
    return first + size / 2 < shards ? left + recursive_sum(first + size / 2, size / 2, shards, i, step) : left;
}

static void sum_body(const struct dist_env *env, void *argument) {
    (void)argument;
    struct rank_group g = rank_join(env, 20);
    for (size_t shards = 1; shards <= MAX_SHARDS; shards += shards < 9 ? 1 : 7) {
        struct shard_tree *tree;
        size_t first, own, size = 1;
        while (size < shards) size *= 2;
        shard_tree_range(shards, env->rank, env->world_size, &first, &own);
        rank_must(shard_tree_create(shards, COUNT, g.comm, &tree));
        for (int step = 0; step < 2; step++) {
            const float *sum;
            shard_tree_start(tree);
            for (size_t shard = first; shard < first + own; shard++) {
                float *leaf = shard_tree_leaf(tree);
                for (size_t i = 0; i < COUNT; i++) leaf[i] = value_of(shard, i, step);
                shard_tree_push(tree);
            }
            rank_must(shard_tree_finish(tree, &sum));
            for (size_t i = 0; i < COUNT; i++) RANK_CHECK(sum[i] == recursive_sum(0, size, shards, i, step));
        }
        shard_tree_destroy(tree);
    }
    rank_leave(&g);
}

TEST_LOOP(sums_are_those_of_the_tree, 1, 6) { ranks_run(_i, sum_body, NULL); }

TEST(shares_and_cost) {
    for (size_t shards = 1; shards <= 100; shards++)
        for (int world = 1; world <= 20; world++) {
            size_t next = 0, first, count, kept, sent, levels = 1;
            for (int r = 0; r < world; r++, next += count) {
                shard_tree_range(shards, r, world, &first, &count);
                ck_assert_uint_eq(first, next);
            }
            ck_assert_uint_eq(next, shards);
            while (((size_t)1 << levels) < shards) levels++;
            shard_tree_cost(shards, world, &kept, &sent);
            ck_assert_uint_le(kept, 2 * levels + 1);
            ck_assert_uint_le(sent, kept);
        }
    size_t kept, sent;
    shard_tree_cost(8, 8, &kept, &sent);
    ck_assert(kept == 1 && sent == 1);
    shard_tree_cost(8, 2, &kept, &sent);
    ck_assert(kept == 3 && sent == 1);
}

TEST(values_are_summed_in_the_tree) {
    double values[MAX_SHARDS][2];
    for (size_t shards = 1; shards <= MAX_SHARDS; shards++) {
        size_t size = 1;
        while (size < shards) size *= 2;
        for (size_t s = 0; s < shards; s++) values[s][0] = (double)value_of(s, 1, 0), values[s][1] = 1;
        shard_tree_sum(values[0], shards, 2);
        ck_assert(values[0][1] == (double)shards); /* each shard once */
        ck_assert_double_eq_tol(values[0][0], (double)recursive_sum(0, size, shards, 1, 0), 0.05);
    }
}

CHECK_MAIN("shard tree")
