/* CRC-32C against the values of RFC 3720, section B.4. ctest-labels: unit */
#include "check_main.h"

#include <string.h>

#include "base/files/digest.h"

TEST(equals_the_values_of_the_rfc) {
    unsigned char bytes[32];
    memset(bytes, 0, sizeof bytes);
    ck_assert_uint_eq(crc32c(bytes, sizeof bytes), 0x8A9136AAu);
    memset(bytes, 0xFF, sizeof bytes);
    ck_assert_uint_eq(crc32c(bytes, sizeof bytes), 0x62A8AB43u);
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)i;
    ck_assert_uint_eq(crc32c(bytes, sizeof bytes), 0x46DD794Eu);
    ck_assert_uint_eq(crc32c("123456789", 9), 0xE3069283u);
    ck_assert_uint_eq(crc32c("", 0), 0);
}

CHECK_MAIN("crc32c")
