/* RFC 3629. */
#include "base/utf8.h"

#include <string.h>

#include <stdbool.h>

size_t utf8_decode(const char *bytes, size_t size, uint32_t *code) {
    static const uint32_t min[] = {0, 0, 0x80, 0x800, 0x10000};
    if (size == 0) return 0;
    uint8_t first = (uint8_t)bytes[0];
    size_t length = first < 0x80 ? 1 : first < 0xc0 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf8 ? 4 : 0;
    if (length == 0 || length > size) return 0;
    uint32_t value = length == 1 ? first : first & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        uint8_t next = (uint8_t)bytes[i];
        if ((next & 0xc0) != 0x80) return 0;
        value = value << 6 | (next & 0x3f);
    }
    bool is_surrogate = value >= 0xd800 && value < 0xe000;
    if (value < min[length] || value >= UTF8_CODES || is_surrogate) return 0;
    *code = value;
    return length;
}

bool utf8_is_valid(const char *text) {
    uint32_t code;
    size_t left = strlen(text);
    for (size_t bytes; left > 0; text += bytes, left -= bytes)
        if ((bytes = utf8_decode(text, left, &code)) == 0) return false;
    return true;
}

size_t utf8_encode(uint32_t code, char *out) {
    size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const uint8_t heads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = length; i-- > 1; code >>= 6) out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(heads[length] | code);
    return length;
}
