/* augment_random: random numbers of augmentations. They are functions of the seed, the epoch and the row, so they are
 * the same on any number of ranks, in any order, and after a resume. */
#ifndef DATA_AUGMENT_RANDOM_H
#define DATA_AUGMENT_RANDOM_H

#include <stddef.h>
#include <stdint.h>

#include "base/numbers/philox.h"

/* What the change of an image depends on. */
struct augment_key {
    int64_t seed, epoch, row;
};

/* Four random words; other [stream]s give independent ones. */
static inline void augment_words(const struct augment_key *key, uint32_t stream, uint32_t word[4]) {
    uint64_t row = (uint64_t)key->row, epoch = (uint64_t)key->epoch, seed = (uint64_t)key->seed;
    word[0] = (uint32_t)row;
    word[1] = (uint32_t)(row >> 32);
    word[2] = (uint32_t)epoch;
    word[3] = (uint32_t)(epoch >> 32);
    philox(word, (uint32_t)seed, (uint32_t)(seed >> 32) ^ stream);
}

/* Maps a random word to 0 .. count - 1. */
static inline int64_t augment_below(uint32_t word, int64_t count) {
    return (int64_t)((uint64_t)word * (uint64_t)count >> 32);
}

/* Maps a random word to [low, high). */
static inline double augment_between(uint32_t word, double low, double high) {
    return low + word * 0x1p-32 * (high - low);
}

#endif
