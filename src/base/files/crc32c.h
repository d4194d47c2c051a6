/* crc32c: the CRC with Castagnoli's polynomial (RFC 3720, section B.4), which TFRecord files use. */
#ifndef BASE_CRC32C_H
#define BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32c(const void *bytes, size_t size);

#endif
