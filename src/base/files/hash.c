/* Eight lanes, each h = rotate(h ^ word) * odd, a bijection of h and of the word: a single different word always
 * changes its lane. The lanes are combined by bijections too. Independent lanes hide the latency of the multiplication.
 */
#include "base/files/hash.h"

#include <string.h>

#define LANES 8
#define ODD 0x9e3779b97f4a7c15ull

static inline uint64_t mix(uint64_t h, uint64_t word) {
    h ^= word;
    return (h << 29 | h >> 35) * ODD;
}

uint64_t hash_add(uint64_t seed, const void *bytes, size_t size) {
    const unsigned char *at = bytes;
    uint64_t lanes[LANES], words[LANES];
    for (size_t l = 0; l < LANES; l++) lanes[l] = seed + l * ODD;
    size_t left = size;
    for (; left >= sizeof words; left -= sizeof words, at += sizeof words) {
        memcpy(words, at, sizeof words);
        for (size_t l = 0; l < LANES; l++) lanes[l] = mix(lanes[l], words[l]);
    }
    memset(words, 0, sizeof words);
    if (left) memcpy(words, at, left);
    for (size_t l = 0; l < LANES; l++) lanes[l] = mix(lanes[l], words[l]);
    uint64_t h = mix(seed, size);
    for (size_t l = 0; l < LANES; l++) h = mix(h, lanes[l]);
    h ^= h >> 32;
    h *= ODD;
    return h ^ h >> 29;
}
