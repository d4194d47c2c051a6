/* One table, one byte at a time. */
#include "base/files/crc32c.h"

#include <pthread.h>

static uint32_t table[256];
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
