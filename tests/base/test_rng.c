/* The generator against PyTorch's and NumPy's own numbers. ctest-labels: unit */
#include "base/numbers/rng.h"

#include <nettle/sha2.h>

#include "check_main.h"
#include "vectors.h"

static void hash_equal(const void *bytes, size_t size, const char *expected) {
    struct sha256_ctx hash;
    uint8_t digest[32];
    char hex[65];
    sha256_init(&hash);
    sha256_update(&hash, size, bytes);
    sha256_digest(&hash, sizeof digest, digest);
    for (int i = 0; i < 32; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    ck_assert_str_eq(hex, expected);
}

static int64_t draw31(struct rng *rng) { return rng_u32(rng) % 0x80000000u; }

TEST(engine_and_uniform) {
    json_t *root = vectors_load("rng"), *c;
    size_t i;
    json_array_foreach(json_object_get(root, "cases"), i, c) {
        uint64_t seed = (uint64_t)json_integer_value(json_object_get(c, "seed"));
        struct rng rng;
        json_t *words = json_object_get(c, "u32_mod_2p31");
        rng_seed(&rng, seed);
        for (int k = 0; k < 704; k++) {
            int64_t value = draw31(&rng);
            if (k < 8) ck_assert_int_eq(value, json_integer_value(json_array_get(words, (size_t)k)));
            if (k >= 700) ck_assert_int_eq(value, json_integer_value(json_array_get(words, (size_t)(k - 691))));
        }
        rng_seed(&rng, seed);
        for (size_t k = 0; k < 4; k++)
            ck_assert_int_eq(rng_int64(&rng),
                             json_integer_value(json_array_get(json_object_get(c, "random_int64"), k)));
        float values[64];
        rng_seed(&rng, seed);
        rng_uniform(&rng, values, 12, 0, 1);
        vectors_equal(json_object_get(c, "uniform01_f32"), values, "uniform01");
        rng_seed(&rng, seed);
        rng_uniform(&rng, values, 24, -0.27735, 0.27735);
        vectors_equal(json_object_get(c, "uniform_f32_-0.27735_0.27735"), values, "uniform");
        json_t *doubles = json_object_get(c, "uniform01_f64");
        rng_seed(&rng, seed);
        for (size_t k = 0; k < 6; k++) {
            double value = rng_uniform53(&rng);
            uint64_t bits;
            memcpy(&bits, &value, sizeof bits);
            ck_assert_uint_eq(bits, strtoull(json_string_value(json_array_get(doubles, k)), NULL, 16));
        }
        rng_seed(&rng, seed);
        for (size_t k = 0; k < 40; k++)
            ck_assert_int_eq(rng_uniform53(&rng) < 0.9,
                             json_integer_value(json_array_get(json_object_get(c, "bernoulli_p0.9_40"), k)));
    }
    json_decref(root);
}

TEST(normal) {
    json_t *root = vectors_load("rng"), *c;
    size_t i;
    float *many = malloc(100003 * sizeof *many);
    json_array_foreach(json_object_get(root, "cases"), i, c) {
        uint64_t seed = (uint64_t)json_integer_value(json_object_get(c, "seed"));
        struct rng rng;
        float values[64];
        rng_seed(&rng, seed);
        rng_normal(&rng, values, 7, 0, 1);
        rng_normal(&rng, values + 7, 6, 0.5, 2);
        rng_normal(&rng, values + 13, 3, 0, 1);
        vectors_equal(json_object_get(c, "normal_7_then_6_then_3"), values, "short normal");
        static const char *const names[] = {"normal_16", "normal_17", "normal_33"};
        static const char *const nexts[] = {"next_r31_after_normal_16", "next_r31_after_normal_17",
                                            "next_r31_after_normal_33"};
        static const size_t counts[] = {16, 17, 33};
        for (int k = 0; k < 3; k++) {
            rng_seed(&rng, seed);
            rng_normal(&rng, values, counts[k], 0, 1);
            vectors_equal(json_object_get(c, names[k]), values, names[k]);
            ck_assert_int_eq(draw31(&rng), json_integer_value(json_object_get(c, nexts[k])));
        }
        rng_seed(&rng, seed);
        rng_normal(&rng, values, 64, 0, 0.02);
        vectors_equal(json_object_get(c, "normal_std0.02_64"), values, "std 0.02");
        rng_seed(&rng, seed);
        rng_normal(&rng, many, 100003, 0, 1);
        hash_equal(many, 100003 * sizeof *many, json_string_value(json_object_get(c, "normal_100003_sha256")));
    }
    free(many);
    json_decref(root);
}

TEST(permutation) {
    json_t *root = vectors_load("randperm"), *c;
    size_t i;
    int64_t *p = malloc(60000 * sizeof *p);
    uint32_t *small = malloc(60000 * sizeof *small);
    json_array_foreach(json_object_get(root, "cases"), i, c) {
        struct rng rng;
        size_t n = (size_t)json_integer_value(json_object_get(c, "n"));
        rng_seed(&rng, (uint64_t)json_integer_value(json_object_get(c, "seed")));
        rng_permutation(&rng, p, n);
        struct rng same;
        rng_seed(&same, (uint64_t)json_integer_value(json_object_get(c, "seed")));
        rng_permutation32(&same, small, n);
        for (size_t k = 0; k < n; k++) ck_assert_int_eq(small[k], p[k]);
        ck_assert_mem_eq(same.state, rng.state, sizeof rng.state); /* without the padding of the struct */
        ck_assert_int_eq(same.next, rng.next);
        json_t *perm = json_object_get(c, "perm");
        for (size_t k = 0; k < json_array_size(perm); k++)
            ck_assert_int_eq(p[k], json_integer_value(json_array_get(perm, k)));
        if (json_object_get(c, "next_r31"))
            ck_assert_int_eq(draw31(&rng), json_integer_value(json_object_get(c, "next_r31")));
        if (json_object_get(c, "sha256_int64"))
            hash_equal(p, n * sizeof *p, json_string_value(json_object_get(c, "sha256_int64")));
    }
    free(p);
    free(small);
    json_decref(root);
}

static void fill(const struct draws *set, float *values, size_t count) {
    uint32_t state[DRAWS_WORDS];
    struct rng rng;
    rng_seed(&rng, 5);
    memcpy(state, rng.state, sizeof state);
    for (size_t at = 0; at < count; at += 608) {
        set->refill(state);
        set->uniform(state, values + at, 608, at % 3 ? 1 : 0.7f, at % 3 ? 0 : -0.3f);
        if (at % 3) set->normal(values + at, 608, 0.25f, 0.02f);
    }
}

/* The known answers of the generator's authors (Random123, kat_vectors, philox4x32 10): counter, key, words. */
TEST(philox_is_philox) {
    static const uint32_t known[][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb, 0x5001e420,
         0x24126ea1},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t words[4];
        memcpy(words, known[i], sizeof words);
        philox(words, known[i][4], known[i][5]);
        ck_assert_mem_eq(words, known[i] + 6, sizeof words);
    }
}

TEST(sets_agree_to_the_bit) {
    enum { COUNT = 608 * 2000 };
    SCOPED_MEMORY float *first = malloc(COUNT * sizeof *first), *other = malloc(COUNT * sizeof *other);
    ck_assert_ptr_nonnull(draws_at(0));
    fill(draws_at(0), first, COUNT);
    for (size_t i = 1; draws_at(i); i++) {
        fill(draws_at(i), other, COUNT);
        ck_assert_int_eq(memcmp(first, other, COUNT * sizeof *first), 0);
    }
}

TEST(draws_to_NULL_advance_the_generator_alike) {
    static const size_t counts[] = {1, 7, 15, 16, 17, 623, 624, 625, 2047, 2048, 2064, 5000};
    SCOPED_MEMORY float *values = malloc(5000 * sizeof *values);
    struct rng kept, left;
    rng_seed(&kept, 3);
    rng_seed(&left, 3);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        rng_normal(&kept, values, counts[i], 0, 1);
        rng_normal(&left, NULL, counts[i], 0, 1);
        ck_assert_int_eq(kept.has_normal, left.has_normal);
        ck_assert_uint_eq(rng_u64(&kept), rng_u64(&left));
        rng_uniform(&kept, values, counts[i], -1, 1);
        rng_uniform(&left, NULL, counts[i], -1, 1);
        ck_assert_uint_eq(rng_u64(&kept), rng_u64(&left));
    }
}

/* Each number once, for each count, and in another place for another key. */
TEST(permutation_without_memory) {
    static const size_t counts[] = {1, 2, 3, 4, 5, 15, 16, 17, 1000, 4096, 4097};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (uint64_t key = 0; key < 3; key++) {
            bool seen[4097] = {0};
            size_t same = 0;
            for (uint64_t i = 0; i < counts[c]; i++) {
                uint64_t number = rng_permuted(key, counts[c], i);
                ck_assert_uint_lt(number, counts[c]);
                ck_assert(!seen[number]);
                seen[number] = true;
                same += number == rng_permuted(key + 1, counts[c], i);
            }
            ck_assert_uint_le(same, counts[c] < 1000 ? counts[c] : 12);
        }
    ck_assert_uint_eq(rng_permuted(7, 5000000000, 4999999999), 1231709594); /* orders stay those of earlier versions */
}

CHECK_MAIN("rng")
