/* digest: checksums of bytes: SHA-256 for sealed files, for a run's state and for configs, a 64-bit hash for memory,
 * and the CRC of TFRecord files. */
#pragma once

#include <nettle/sha2.h>
#include <stddef.h>
#include <stdint.h>

#define DIGEST_SIZE 32     /* bytes */
#define DIGEST_HEX_SIZE 65 /* characters, NUL included */

struct digest {
    struct sha256_ctx context;
};

/* Incremental: start, add any number of times, finish. */
void digest_start(struct digest *digest);
void digest_add(struct digest *digest, const void *bytes, size_t size);
void digest_finish(struct digest *digest, uint8_t hash[DIGEST_SIZE]);

/* One call for [bytes] (size). */
void digest_of(const void *bytes, size_t size, uint8_t hash[DIGEST_SIZE]);

/* Lower-case hexadecimal, NUL-terminated. */
void digest_hex(const uint8_t hash[DIGEST_SIZE], char hex[DIGEST_HEX_SIZE]);

/* The SHA-256 of [bytes] (size) as hexadecimal. */
void digest_hex_of(const void *bytes, size_t size, char hex[DIGEST_HEX_SIZE]);

/* A 64-bit hash of [bytes] (size) for comparing memory, as fast as memory can be read; [seed]: 0, or the hash of the
 * preceding bytes. Two inputs of the same size that differ in a single word never have the same hash; others collide
 * with probability 2^-64. Not for secrets or files. Equal on all machines of one byte order. */
uint64_t hash_add(uint64_t seed, const void *bytes, size_t size);

/* The CRC with Castagnoli's polynomial (RFC 3720, section B.4), which TFRecord files use. */
uint32_t crc32c(const void *bytes, size_t size);
