/* utf8: one character at a time between bytes and Unicode code points. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define UTF8_CODES 0x110000u /* code points are below */

/* The code point that starts at [bytes] (size); returns its bytes, 0 when they are no UTF-8 (overlong forms and
 * surrogates are none). */
size_t utf8_decode(const char *bytes, size_t size, uint32_t *code);

/* Writes [code] to out (4) and returns how many bytes. */
size_t utf8_encode(uint32_t code, char *out);

#endif
