/* SHA-256 by nettle, which uses the CPU's SHA instructions where available. */
#include "base/files/digest.h"

void digest_start(struct digest *digest) { sha256_init(&digest->context); }

void digest_add(struct digest *digest, const void *bytes, size_t size) {
    if (size) sha256_update(&digest->context, size, bytes);
}

void digest_finish(struct digest *digest, uint8_t hash[DIGEST_SIZE]) {
    sha256_digest(&digest->context, DIGEST_SIZE, hash);
}

void digest_of(const void *bytes, size_t size, uint8_t hash[DIGEST_SIZE]) {
    struct digest digest;
    digest_start(&digest);
    digest_add(&digest, bytes, size);
    digest_finish(&digest, hash);
}

void digest_hex(const uint8_t hash[DIGEST_SIZE], char hex[DIGEST_HEX_SIZE]) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < DIGEST_SIZE; i++) {
        hex[2 * i] = digits[hash[i] >> 4];
        hex[2 * i + 1] = digits[hash[i] & 15];
    }
    hex[DIGEST_HEX_SIZE - 1] = 0;
}
