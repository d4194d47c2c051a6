/* The sampler against PyTorch's DistributedSampler, and each row exactly once. ctest-labels: unit */
#include "base/files/digest.h"
#include "data/sampling/sampler.h"

#include "marks.h"
#include "open.h"

static struct sampler_config config_of(bool shuffle, bool drop_last, int64_t seed) {
    return (struct sampler_config){
        .batch_size = 32, .global_batch_size = SCHEMA_NO_INT, .shuffle = shuffle, .drop_last = drop_last, .seed = seed};
}

static int64_t integer(const json_t *object, const char *key) {
    return json_integer_value(json_object_get(object, key));
}

TEST(equals_distributed_sampler) {
    json_t *root = vectors_load("sampler"), *c, *rank_indices;
    size_t i, rank, k, compared = 0;
    json_array_foreach(json_object_get(root, "distributed"), i, c) {
        struct sampler_config config =
            config_of(true, json_is_true(json_object_get(c, "drop_last")), integer(c, "seed"));
        size_t rows = (size_t)integer(c, "n");
        int world = (int)integer(c, "world");
        json_array_foreach(json_object_get(c, "ranks"), rank, rank_indices) {
            int64_t indices[256];
            size_t length = sampler_length(&config, rows, world);
            ck_assert_uint_eq(length, json_array_size(rank_indices));
            draw_indices(&config, rows, integer(c, "epoch"), (int)rank, world, indices);
            for (k = 0; k < length; k++)
                ck_assert_int_eq(indices[k], json_integer_value(json_array_get(rank_indices, k)));
            compared += length;
        }
    }
    ck_assert_uint_eq(i, 25);
    ck_assert_uint_gt(compared, 3000);
    json_decref(root);
}

/* N = 10, 3 ranks, as in the PyTorch tutorial. */
TEST(pads_with_the_first_rows) {
    static const int64_t expected[3][4] = {{0, 3, 6, 9}, {1, 4, 7, 0}, {2, 5, 8, 1}};
    struct sampler_config config = config_of(false, false, 0);
    for (int rank = 0; rank < 3; rank++) {
        int64_t indices[4];
        ck_assert_uint_eq(sampler_length(&config, 10, 3), 4);
        draw_indices(&config, 10, 7, rank, 3, indices);
        for (int k = 0; k < 4; k++) ck_assert_int_eq(indices[k], expected[rank][k]);
    }
}

/* All ranks together draw each row once, and repeat the rows that DistributedSampler repeats. */
static void check_cover(size_t rows, int world, bool shuffle, bool drop_last) {
    struct sampler_config config = config_of(shuffle, drop_last, 5);
    size_t length = sampler_length(&config, rows, world), total = length * (size_t)world;
    ck_assert_uint_eq(total % (size_t)world, 0);
    if (drop_last)
        ck_assert(total <= rows && rows - total < (size_t)world);
    else
        ck_assert(total >= rows && total - rows < (size_t)world);
    SCOPED_MEMORY int64_t *indices = calloc(length + 1, sizeof *indices);
    SCOPED_MEMORY int64_t *order = calloc(total + 1, sizeof *order);
    int *seen = calloc(rows + 1, sizeof *seen);
    for (int rank = 0; rank < world; rank++) {
        draw_indices(&config, rows, 3, rank, world, indices);
        for (size_t k = 0; k < length; k++) order[(size_t)rank + k * (size_t)world] = indices[k];
    }
    for (size_t i = 0; i < total; i++) {
        ck_assert(order[i] >= 0 && order[i] < (int64_t)rows);
        if (i >= rows) ck_assert_int_eq(order[i], order[i % rows]);
        if (i < rows) seen[order[i]]++;
    }
    for (size_t i = 0, missed = 0; i < rows; i++) {
        ck_assert_int_le(seen[i], 1);
        missed += seen[i] == 0;
        ck_assert_uint_le(missed, total < rows ? rows - total : 0);
    }
    free(seen);
}

TEST(each_row_once) {
    for (int world = 1; world <= 8; world++) {
        const size_t sizes[] = {0, 1, (size_t)world - 1, 2, 3, 7, 13, 97, 997, 10000};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int flags = 0; flags < 4; flags++) check_cover(sizes[i], world, flags & 1, flags & 2);
    }
}

/* An epoch needs at least one batch, with drop_last_batch a full one. */
TEST(the_fewest_rows) {
    static const struct {
        size_t rows;
        bool drop_last, drop_last_batch, is_enough;
    } cases[] = {{16, false, true, true}, {14, false, true, false}, {15, false, true, true}, {15, true, true, false},
                 {1, false, false, true}, {1, true, false, false},  {2, true, false, true},  {0, false, false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sampler_config config = config_of(false, cases[i].drop_last, 0);
        config.drop_last_batch = cases[i].drop_last_batch;
        status s = sampler_check_rows(&config, cases[i].rows, 2, 8);
        ck_assert_msg((s == OK) == cases[i].is_enough, "case %zu", i);
        status_free(s);
    }
}

TEST(epochs_differ_and_repeat) {
    struct sampler_config config = config_of(true, false, 0);
    int64_t a[100], b[100], c[100];
    draw_indices(&config, 100, 0, 0, 1, a);
    draw_indices(&config, 100, 1, 0, 1, b);
    draw_indices(&config, 100, 0, 0, 1, c);
    ck_assert_int_ne(memcmp(a, b, sizeof a), 0);
    ck_assert_int_eq(memcmp(a, c, sizeof a), 0);
    config.seed = 1; /* seed + epoch is what counts */
    draw_indices(&config, 100, 0, 0, 1, c);
    ck_assert_int_eq(memcmp(b, c, sizeof b), 0);
}

TEST(evaluation_covers_each_row_once) {
    for (int world = 1; world <= 8; world++)
        for (size_t rows = 0; rows < 50; rows++) {
            size_t next = 0, first, count, least = rows, most = 0;
            for (int rank = 0; rank < world; rank++) {
                sampler_evaluation_range(rows, rank, world, &first, &count);
                ck_assert_uint_eq(first, next);
                next += count;
                least = count < least ? count : least;
                most = count > most ? count : most;
            }
            ck_assert_uint_eq(next, rows);
            ck_assert_uint_le(most - least, 1);
        }
}

/* Row r of a batch of all ranks follows row r of the batch before; what fills no batch is left out. */
TEST(batchify_continues_rows) {
    for (int world = 1; world <= 3; world++) {
        struct sampler_config config = config_of(true, false, 5);
        config.type = SAMPLER_BATCHIFY, config.global_batch_size = 6;
        ck_assert_uint_eq(sampler_length(&config, 47, world), (size_t)(42 / world));
        ck_assert_uint_eq(sampler_own_length(&config, 47, 0, world), (size_t)(42 / world));
        for (int rank = 0; rank < world; rank++) {
            int64_t indices[42];
            draw_indices(&config, 47, 3, rank, world, indices);
            for (int i = 0; i < 42 / world; i++)
                ck_assert_int_eq(indices[i], (i % (6 / world) * world + rank) * 7 + i / (6 / world));
        }
    }
}

/* Each row once, and within a part in order; the parts of a rank differ by at most one row. */
TEST(evaluation_in_parts) {
    for (size_t count = 1; count < 20; count++) {
        bool is_read[20] = {false};
        for (size_t i = 0; i < count; i++) {
            size_t row = sampler_evaluation_row(EVALUATION_BATCHIFY, 100, count, 1, 2, 4, i) - 100;
            ck_assert(row < count && !is_read[row]);
            is_read[row] = true;
            if (i >= 4)
                ck_assert_uint_eq(row,
                                  sampler_evaluation_row(EVALUATION_BATCHIFY, 100, count, 1, 2, 4, i - 4) - 100 + 1);
        }
    }
    ck_assert_uint_eq(sampler_evaluation_row(EVALUATION_INTERLEAVED, 100, 10, 1, 2, 4, 3), 7);
    ck_assert_uint_eq(sampler_evaluation_row(EVALUATION_IN_ORDER, 100, 10, 1, 2, 4, 3), 103);
}

TEST(batch_of_a_rank) {
    struct sampler_config config = config_of(true, false, 0);
    size_t batch;
    ck_ok(sampler_batch(&config, 3, &batch));
    ck_assert_uint_eq(batch, 32);
    config.batch_size = SCHEMA_NO_INT;
    config.global_batch_size = 96;
    ck_ok(sampler_batch(&config, 3, &batch));
    ck_assert_uint_eq(batch, 32);
    ck_failure(sampler_batch(&config, 5, &batch), STATUS_USAGE,
               "sampler.global_batch_size 96 is not a multiple of the 5 ranks");
}

TEST(config_binds) {
    struct sampler_config config;
    struct document *document;
    ck_ok(bind_yaml(&sampler_schema, "{}", &config, &document));
    ck_assert_int_eq(config.batch_size, 32);
    ck_assert_int_eq(config.global_batch_size, SCHEMA_NO_INT);
    ck_assert(config.shuffle && !config.drop_last && !config.drop_last_batch);
    ck_assert_int_eq(config.seed, 0);
    document_destroy(document);
    ck_ok(bind_yaml(&sampler_schema, "{global_batch_size: 64, drop_last: true, seed: 3}", &config, &document));
    ck_assert_int_eq(config.batch_size, SCHEMA_NO_INT);
    ck_assert_int_eq(config.global_batch_size, 64);
    document_destroy(document);
    ck_failure(bind_yaml(&sampler_schema, "batch_size: 8\nglobal_batch_size: 64\n", &config, &document), STATUS_USAGE,
               "batch_size (per rank) and global_batch_size (of all ranks) exclude each other; give one");
    document_destroy(document);
    ck_failure(bind_yaml(&sampler_schema, "batch_size: 0\n", &config, &document), STATUS_USAGE, "c.yaml:1:13: ");
    document_destroy(document);
}

/* list(WeightedRandomSampler([1 / count[c] for c in classes], 12, True, torch.Generator().manual_seed(seed + epoch))),
 * distributed over the ranks. */
TEST(equals_weighted_random_sampler) {
    static const int64_t classes[12] = {0, 0, 0, 0, 0, 0, 1, 1, 2, 0, 0, 1};
    static const int64_t expected[] = {8, 6, 6, 6, 6, 10, 8, 8, 10, 7, 6, 6};
    double cumulative[12];
    int64_t indices[12];
    ck_ok(sampler_weigh(classes, 12, 3, cumulative));
    struct sampler_config config = {.type = SAMPLER_WEIGHTED, .seed = 3, .cumulative = cumulative};
    draw_indices(&config, 12, 2, 0, 1, indices);
    ck_assert_mem_eq(indices, expected, sizeof expected);
    for (int world = 2; world <= 5; world++)
        for (int rank = 0; rank < world; rank++) {
            size_t length = sampler_length(&config, 12, world);
            draw_indices(&config, 12, 2, rank, world, indices);
            for (size_t i = 0; i < length; i++)
                ck_assert_int_eq(indices[i], expected[((size_t)rank + i * (size_t)world) % 12]);
        }
}

/* Weighted orders of 8 bytes, of 2^32 rows and more, are drawn as those of 4. */
TEST(wide_orders_are_the_same) {
    enum { N = 1000 };
    double cumulative[N];
    int64_t of[N], wide[N];
    uint32_t small[N];
    for (int64_t i = 0; i < N; i++) of[i] = i % 3;
    ck_ok(sampler_weigh(of, N, 3, cumulative));
    struct sampler_config config = {.type = SAMPLER_WEIGHTED, .seed = 5, .cumulative = cumulative};
    struct row_order a = {.wide = wide}, b = {.small = small};
    sampler_draw(&config, N, 2, &a);
    sampler_draw(&config, N, 2, &b);
    for (size_t i = 0; i < N; i++) ck_assert_uint_eq(order_at(&a, i), order_at(&b, i));
    void *copy;
    ck_ok(rows_alloc(N, sizeof(int64_t), "an order", &copy));
    memcpy(copy, wide, sizeof wide);
    struct row_order made = {.wide = copy};
    order_shrink(&made, N, ORDER_MAX_SMALL + 1);
    ck_assert_ptr_eq(made.wide, copy);
    order_shrink(&made, N, N);
    ck_assert_ptr_null(made.wide);
    for (size_t i = 0; i < N; i++) ck_assert_uint_eq(order_at(&made, i), order_at(&a, i));
    order_free(&made);
}

static int by_number(const void *left, const void *right) {
    const int64_t *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

/* From 2^32 rows on an epoch needs no memory for its order: ranks have different rows, of all parts of the file. */
TEST(orders_of_many_rows_need_no_memory) {
    enum { RANKS = 3, TAKEN = 20000, PARTS = 10 };
    const size_t rows = (size_t)5e9;
    struct sampler_config config = config_of(true, false, 1);
    struct row_order order, next;
    ck_ok(sampler_alloc(&config, ORDER_MAX_SMALL / 1000, &order));
    ck_assert(order.small && !order.wide);
    order_free(&order);
    ck_ok(sampler_alloc(&config, rows, &order));
    ck_assert(!order.small && !order.wide);
    next = order;
    sampler_draw(&config, rows, 3, &order);
    sampler_draw(&config, rows, 4, &next);
    int64_t *taken = calloc((size_t)RANKS * TAKEN, sizeof *taken);
    size_t of_part[PARTS] = {0}, same = 0, count = 0;
    for (int rank = 0; rank < RANKS; rank++)
        for (size_t i = 0; i < TAKEN; i++) {
            size_t row = sampler_row(&order, rows, rank, RANKS, rows / RANKS - 1 - i); /* near the end */
            ck_assert_uint_lt(row, rows);
            taken[count++] = (int64_t)row;
            of_part[row / (rows / PARTS)]++;
            same += row == sampler_row(&next, rows, rank, RANKS, rows / RANKS - 1 - i);
        }
    qsort(taken, count, sizeof *taken, by_number);
    size_t repeated = 0;
    for (size_t i = 1; i < count; i++) repeated += taken[i] == taken[i - 1];
    ck_assert_uint_eq(same, 0);
    ck_assert_uint_eq(repeated, 0);
    for (int i = 0; i < PARTS; i++) ck_assert(of_part[i] > 5700 && of_part[i] < 6300); /* 6000 +- 4 deviations */
    free(taken);
    order_free(&order);
}

TEST(equals_weighted_random_sampler_on_many_rows) {
    enum { N = 5000 };
    int64_t *memory = calloc(2 * N, sizeof *memory), *classes = memory, *indices = memory + (size_t)N;
    SCOPED_MEMORY double *cumulative = calloc(N, sizeof *cumulative);
    uint8_t hash[DIGEST_SIZE];
    char hex[DIGEST_HEX_SIZE];
    for (int64_t i = 0; i < N; i++) classes[i] = i * i % 7;
    ck_ok(sampler_weigh(classes, N, 7, cumulative));
    const struct sampler_config config = {.type = SAMPLER_WEIGHTED, .seed = 123, .cumulative = cumulative};
    draw_indices(&config, N, 0, 0, 1, indices);
    digest_of(indices, N * sizeof *indices, hash);
    digest_hex(hash, hex);
    ck_assert_str_eq(hex, "92b2106dadaa0a542221eb387bcbfd0528707b0fa6cf3bd83e96947d45115736");
    free(memory);
}

CHECK_MAIN("sampler")
