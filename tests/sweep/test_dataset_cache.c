/* Which datasets a process of a sweep keeps open: those it shares with its parent process, the newest, and others up to
 * a limit. ctest-labels: unit */
#include "sweep/workers/dataset_cache.h"

#include <stdio.h>

#include "check_main.h"
#include "files.h"

#define ROW_BYTES (10 * sizeof(float) + sizeof(int64_t))
#define ROWS 100

/* The dataset of data seed [seed] with more [keys], or ""; the caller closes it. While it is open no other one has its
 * address. */
static struct dataset *open_keys(struct dataset_cache *cache, int seed, const char *keys) {
    char text[400], key[DATASET_KEY_SIZE];
    struct config_file *file;
    struct dataset *dataset;
    snprintf(text, sizeof text,
             "dataset: {%s format: synthetic, synthetic: {kind: classes, rows: %d, inputs: 10, classes: 3, seed: %d}}\n"
             "sampler: {batch_size: 8}\nmodel: {layers: [{linear: {out: 3}}]}\nloss: cross_entropy\n"
             "optimizer: {type: sgd, lr: 0.1}\ntrain: {epochs: 1}\n",
             keys, ROWS, seed);
    ck_ok(config_parse("test.yaml", text, &file));
    ck_ok(dataset_cache_open(cache, config_of(file), key, &dataset));
    config_free(file);
    return dataset;
}

static struct dataset *open_seed(struct dataset_cache *cache, int seed) { return open_keys(cache, seed, ""); }

static bool is_kept(struct dataset_cache *cache, int seed, const struct dataset *before) {
    struct dataset *now = open_seed(cache, seed);
    bool is_same = now == before;
    dataset_close(now);
    return is_same;
}

TEST(keeps_what_is_within_the_limit) {
    struct dataset_cache *cache = dataset_cache_create();
    struct dataset *first[6];
    first[0] = open_seed(cache, 0);
    first[1] = open_seed(cache, 1);
    ck_assert(is_kept(cache, 0, first[0]) && is_kept(cache, 1, first[1])); /* there is no limit yet */
    dataset_cache_limit(cache, 2 * ROWS * ROW_BYTES);
    for (int seed = 2; seed < 4; seed++) first[seed] = open_seed(cache, seed);
    for (int seed = 0; seed < 4; seed++) ck_assert(is_kept(cache, seed, first[seed]));
    ck_assert(is_kept(cache, 2, first[2])); /* used after 3 */
    first[4] = open_seed(cache, 4);
    ck_assert(is_kept(cache, 4, first[4]) && is_kept(cache, 2, first[2]));
    ck_assert(is_kept(cache, 0, first[0]) && is_kept(cache, 1, first[1]));
    ck_assert(!is_kept(cache, 3, first[3]));
    dataset_cache_destroy(cache);
    for (int seed = 0; seed < 5; seed++) dataset_close(first[seed]);
}

TEST(keeps_the_newest_above_the_limit) {
    struct dataset_cache *cache = dataset_cache_create();
    dataset_cache_limit(cache, 0);
    struct dataset *a = open_seed(cache, 0);
    ck_assert(is_kept(cache, 0, a));
    struct dataset *b = open_seed(cache, 1);
    ck_assert(is_kept(cache, 1, b));
    ck_assert(!is_kept(cache, 0, a));
    dataset_cache_destroy(cache);
    dataset_cache_destroy(NULL);
    dataset_close(a);
    dataset_close(b);
}

/* They have 79 windows of 20 rows and 2 targets each, but their 100 rows are in memory once. */
TEST(counts_the_rows_of_windows_once) {
    static const char keys[] = "window: {steps: 20, predict_steps: 2},";
    struct dataset_cache *cache = dataset_cache_create();
    struct dataset *first[3];
    dataset_cache_limit(cache, 2 * (ROWS * ROW_BYTES + 79 * sizeof(int64_t)));
    for (int seed = 0; seed < 2; seed++) first[seed] = open_keys(cache, seed, keys);
    for (int seed = 0; seed < 3; seed++) {
        struct dataset *now = open_keys(cache, seed, keys);
        if (seed < 2) ck_assert_ptr_eq(now, first[seed]);
        dataset_close(now);
    }
    first[2] = open_keys(cache, 0, keys);
    ck_assert_ptr_ne(first[2], first[0]); /* two fit */
    dataset_cache_destroy(cache);
    for (int seed = 0; seed < 3; seed++) dataset_close(first[seed]);
}

CHECK_MAIN("dataset cache")
