/* philox: Philox 4x32-10 (Salmon et al., SC 2011), a counter-based generator: a number depends only on the counter and
 * the key, not on earlier draws. Inline, so that loops over it can be vectorised. */
#pragma once

#include <stdint.h>

#include "base/bits.h"

/* Replaces counter (4) with four random words. */
HOST_DEVICE static inline void philox(uint32_t counter[4], uint32_t key0, uint32_t key1) {
    for (int round = 0; round < 10; round++) {
        uint64_t a = 0xd2511f53ull * counter[0], b = 0xcd9e8d57ull * counter[2];
        uint32_t c0 = (uint32_t)(b >> 32) ^ counter[1] ^ key0, c2 = (uint32_t)(a >> 32) ^ counter[3] ^ key1;
        counter[1] = (uint32_t)b;
        counter[3] = (uint32_t)a;
        counter[0] = c0;
        counter[2] = c2;
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
}
