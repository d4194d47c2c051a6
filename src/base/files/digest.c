/* Three checksums: for files (by nettle, which uses the CPU's SHA instructions where available), for memory, for
 * TFRecord. */
#include "base/files/digest.h"

#include <pthread.h>
#include <string.h>

/* ---- SHA-256 ---- */

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

void digest_hex_of(const void *bytes, size_t size, char hex[DIGEST_HEX_SIZE]) {
    uint8_t hash[DIGEST_SIZE];
    digest_of(bytes, size, hash);
    digest_hex(hash, hex);
}

/* ---- hash of memory ---- */

/* Eight lanes, each h = rotate(h ^ word) * odd, a bijection of h and of the word: a single different word always
 * changes its lane. The lanes are combined by bijections too. Independent lanes hide the latency of the multiplication.
 */

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

/* ---- CRC-32C ---- */

static uint32_t table[256]; /* one byte at a time */
static pthread_once_t is_filled = PTHREAD_ONCE_INIT;

static void fill(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++) value = value & 1 ? value >> 1 ^ 0x82F63B78u : value >> 1;
        table[i] = value;
    }
}

uint32_t crc32c(const void *bytes, size_t size) {
    const uint8_t *at = bytes;
    uint32_t crc = 0xFFFFFFFFu;
    pthread_once(&is_filled, fill);
    for (size_t i = 0; i < size; i++) crc = crc >> 8 ^ table[(crc ^ at[i]) & 0xFF];
    return ~crc;
}
