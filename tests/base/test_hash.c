/* hash: every single flipped bit changes the hash, at every position and for every size. */
#include "check_main.h"

#include <stdlib.h>

#include "base/files/digest.h"

#define MAX_SIZE 300

static void fill(unsigned char *bytes, size_t size, uint64_t seed) {
    for (size_t i = 0; i < size; i++) bytes[i] = (unsigned char)((seed = seed * 6364136223846793005u + 1) >> 56);
}

TEST(every_flip_shows) {
    unsigned char bytes[MAX_SIZE];
    for (size_t size = 1; size <= MAX_SIZE; size += size < 140 ? 1 : 37) {
        fill(bytes, size, size);
        uint64_t before = hash_add(7, bytes, size);
        for (size_t bit = 0; bit < 8 * size; bit++) {
            bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
            ck_assert_uint_ne(hash_add(7, bytes, size), before);
            bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
        ck_assert_uint_eq(hash_add(7, bytes, size), before);
    }
}

TEST(size_seed_and_order_count) {
    unsigned char bytes[MAX_SIZE] = {0};
    for (size_t a = 0; a < MAX_SIZE; a++)
        for (size_t b = a + 1; b < MAX_SIZE; b += 17) ck_assert_uint_ne(hash_add(0, bytes, a), hash_add(0, bytes, b));
    fill(bytes, MAX_SIZE, 3);
    ck_assert_uint_ne(hash_add(0, bytes, 64), hash_add(1, bytes, 64));
    ck_assert_uint_ne(hash_add(hash_add(0, bytes, 64), bytes + 64, 64),
                      hash_add(hash_add(0, bytes + 64, 64), bytes, 64));
}

/* Ranks compare the low 54 bits: they must differ for many similar inputs. */
static int by_value(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

TEST(low_bits_are_mixed) {
    static uint64_t hashes[200000];
    float value[32] = {0};
    size_t count = sizeof hashes / sizeof *hashes;
    for (size_t i = 0; i < count; i++) {
        value[i % 32] = (float)i;
        hashes[i] = hash_add(0, value, sizeof value) & ((1ull << 54) - 1);
    }
    qsort(hashes, count, sizeof *hashes, by_value);
    for (size_t i = 1; i < count; i++) ck_assert_uint_ne(hashes[i], hashes[i - 1]);
}

CHECK_MAIN("hash")
