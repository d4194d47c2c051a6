/* digest: SHA-256 of sealed files, of a run's state and of configs. */
#ifndef BASE_DIGEST_H
#define BASE_DIGEST_H

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

#endif
