/* utf8: converts single characters between UTF-8 and Unicode code points, and tells the classes of code points. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UTF8_CODES 0x110000u /* number of code points */

/* Decodes the first character of [bytes] (size) and returns its number of bytes; 0: invalid UTF-8 (also overlong forms
 * and surrogates). */
size_t utf8_decode(const char *bytes, size_t size, uint32_t *code);

/* Whether [text] is valid UTF-8. */
bool utf8_is_valid(const char *text);

/* Adds bytes (size) as valid UTF-8: U+FFFD for each maximal part of a character that is not completed, as Python's
 * errors="replace". Returns the bytes that were used: without [is_end] not those of a last character that may be
 * completed by more. */
struct text;
size_t utf8_repair(const char *bytes, size_t size, bool is_end, struct text *out);

/* Whether a terminal, an editor or a browser does not show the character but obeys it: control characters, separators
 * of lines and paragraphs, and those that change the writing direction. */
bool utf8_is_control(uint32_t code);

/* Encodes [code] to out (4) and returns the number of bytes. */
size_t utf8_write(uint32_t code, char *out);

/* The classes of characters that regular expressions of tokenizers use: \p{L}, \p{N} and \s. */
enum unicode_class {
    UNICODE_OTHER,
    UNICODE_LETTER, /* general category L* */
    UNICODE_NUMBER, /* general category N* */
    UNICODE_SPACE   /* property White_Space */
};

/* The class of a code point in Unicode 16.0.0. */
enum unicode_class unicode_class(uint32_t code);
