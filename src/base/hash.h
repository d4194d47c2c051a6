/* hash: a fast 64-bit hash for comparing memory, at the speed of reading it. Two inputs of the same size that differ in
 * a single word never have the same hash; others share one by chance only (2^-64). Not for secrets or files: see
 * digest.
 */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* The hash of [bytes] (size), continuing from [seed] (0, or the hash of what comes before). The same on all machines of
 * one byte order. */
uint64_t hash_add(uint64_t seed, const void *bytes, size_t size);

#endif
