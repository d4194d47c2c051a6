/* UTF-8 as RFC 3629 has it, and a table of the classes of characters. */
#include "base/utf8.h"

#include <string.h>

#include "base/text.h"
#include "base/unicode_classes.h"

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

/* The last two lines: Unicode's Bidi_Control. */
bool utf8_is_control(uint32_t code) {
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 || code == 0x061c ||
           code == 0x200e || code == 0x200f || (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

bool utf8_is_valid(const char *text) {
    uint32_t code;
    size_t left = strlen(text);
    for (size_t bytes; left > 0; text += bytes, left -= bytes)
        if ((bytes = utf8_decode(text, left, &code)) == 0) return false;
    return true;
}

/* The bytes at the start of [bytes] (size), which is not a whole character, that a valid one can start with; at
 * least 1.
 */
static size_t part_length(const char *bytes, size_t size) {
    const uint8_t *b = (const uint8_t *)bytes;
    size_t length = b[0] < 0xc2 ? 1 : b[0] < 0xe0 ? 2 : b[0] < 0xf0 ? 3 : b[0] < 0xf5 ? 4 : 1, part = 1;
    uint8_t low = b[0] == 0xe0   ? 0xa0
                  : b[0] == 0xf0 ? 0x90
                                 : 0x80,
            high = b[0] == 0xed   ? 0x9f
                   : b[0] == 0xf4 ? 0x8f
                                  : 0xbf;
    if (length > 1 && size > 1 && b[1] >= low && b[1] <= high) part = 2;
    while (part >= 2 && part < length && part < size && (b[part] & 0xc0) == 0x80) part++;
    return part;
}

/* Whether more bytes may complete the character of a part of [size] bytes. */
static bool is_incomplete(const char *bytes, size_t size) {
    uint8_t first = (uint8_t)bytes[0];
    return part_length(bytes, size) == size &&
           size < (first < 0xc2   ? 1u
                   : first < 0xe0 ? 2u
                   : first < 0xf0 ? 3u
                                  : 4u) &&
           first < 0xf5;
}

size_t utf8_repair(const char *bytes, size_t size, bool is_end, struct text *out) {
    uint32_t code;
    size_t at = 0;
    for (size_t length; at < size; at += length) {
        length = utf8_decode(bytes + at, size - at, &code);
        if (length > 0) {
            text_add_bytes(out, bytes + at, length);
            continue;
        }
        if (!is_end && is_incomplete(bytes + at, size - at)) break;
        length = part_length(bytes + at, size - at);
        text_add(out, "\xef\xbf\xbd");
    }
    return at;
}

size_t utf8_write(uint32_t code, char *out) {
    size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const uint8_t heads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = length; i-- > 1; code >>= 6) out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(heads[length] | code);
    return length;
}

/* ---- classes of characters ---- */

/* A generated table of 10 KiB in two stages instead of a library: PCRE2 and libunistring are larger than all of this
 * program's texts need, and their tables are of the Unicode version of the system, so that the tokens of a text would
 * depend on it. */

enum unicode_class unicode_class(uint32_t code) {
    if (code >= UNICODE_END) return UNICODE_OTHER;
    uint64_t word = UNICODE_WORDS[4 * UNICODE_BLOCKS[code / 128] + code / 32 % 4];
    return (enum unicode_class)(word >> 2 * (code % 32) & 3);
}
