/* hash: a 64-bit hash for comparing memory, as fast as memory can be read. Two inputs of the same size that differ in
 * a single word never have the same hash; others collide with probability 2^-64. Not for secrets or files: see digest.
 */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* The hash of [bytes] (size); [seed]: 0, or the hash of the preceding bytes. Equal on all machines of one byte order.
 */
uint64_t hash_add(uint64_t seed, const void *bytes, size_t size);

#endif
