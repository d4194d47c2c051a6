/* A generated table of 10 KiB in two stages instead of a library: PCRE2 and libunistring are larger than all of this
 * program's texts need, and their tables are of the Unicode version of the system, so that the tokens of a text would
 * depend on it. */
#include "base/unicode.h"

#include "base/unicode_classes.h"

enum unicode_class unicode_class(uint32_t code) {
    if (code >= UNICODE_END) return UNICODE_OTHER;
    uint64_t word = UNICODE_WORDS[4 * UNICODE_BLOCKS[code / 128] + code / 32 % 4];
    return (enum unicode_class)(word >> 2 * (code % 32) & 3);
}
