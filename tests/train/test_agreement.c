/* The sums over ranks show exactly whether all hashes are equal. */
#include "check_main.h"

#include "train/parallel/agreement.h"

static bool are_equal(const uint64_t *hashes, int world) {
    double sums[AGREEMENT_NUMBERS] = {0}, numbers[AGREEMENT_NUMBERS];
    for (int r = 0; r < world; r++) {
        agreement_put(hashes[r], numbers);
        for (int i = 0; i < AGREEMENT_NUMBERS; i++) sums[i] += numbers[i];
    }
    return agreement_is_equal(sums, world);
}

TEST(equal_hashes_are_accepted) {
    static uint64_t hashes[4096];
    for (uint64_t h = 1; h != 0; h <<= 1)
        for (int world = 1; world <= 4096; world *= 4) {
            for (int r = 0; r < world; r++) hashes[r] = h - 1;
            ck_assert(are_equal(hashes, world));
        }
}

TEST(any_difference_is_detected) {
    static uint64_t hashes[4096];
    for (int world = 2; world <= 4096; world *= 2)
        for (int bit = 0; bit < 54; bit++) {
            for (int r = 0; r < world; r++) hashes[r] = 0x123456789abcdefull;
            hashes[bit % world] ^= 1ull << bit;
            ck_assert(!are_equal(hashes, world));
        }
    ck_assert(!are_equal((uint64_t[]){1, 2, 3}, 3)); /* the sum alone is 3 x 2 */
    ck_assert(!are_equal((uint64_t[]){0, 0, 4, 4}, 4));
}

CHECK_MAIN("agreement")
