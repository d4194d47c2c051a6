/* unicode: the classes of characters that regular expressions of tokenizers use: \p{L}, \p{N} and \s. */
#ifndef BASE_UNICODE_H
#define BASE_UNICODE_H

#include <stdint.h>

enum unicode_class {
    UNICODE_OTHER,
    UNICODE_LETTER, /* general category L* */
    UNICODE_NUMBER, /* general category N* */
    UNICODE_SPACE   /* property White_Space */
};

/* The class of a code point in Unicode 16.0.0. */
enum unicode_class unicode_class(uint32_t code);

#endif
