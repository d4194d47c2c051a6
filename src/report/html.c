/* One character at a time: what is not known to be harmless is replaced. */
#include "report/html.h"

#include <stdbool.h>
#include <string.h>

#include "base/utf8.h"

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

static bool is_harmless(uint32_t code) {
    bool is_no_character = (code & 0xfffe) == 0xfffe || (code >= 0xfdd0 && code <= 0xfdef);
    return (code == '\n' || code == '\t' || !utf8_is_control(code)) && !is_no_character;
}

static const char *escape_of(uint32_t code) {
    switch (code) {
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '&':
        return "&amp;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

static void add_characters(struct text *out, const char *string, size_t size) {
    for (size_t at = 0, length; at < size; at += length) {
        uint32_t code = 0xffff;
        length = utf8_decode(string + at, size - at, &code);
        const char *escape = length && is_harmless(code) ? escape_of(code) : REPLACEMENT;
        if (escape)
            text_add(out, escape);
        else
            text_add_bytes(out, string + at, length);
        if (length == 0) length = 1;
    }
}

void html_add(struct text *out, const char *string) { add_characters(out, string, strlen(string)); }

void html_add_short(struct text *out, const char *string, size_t max) {
    size_t size = strlen(string);
    if (size <= max) {
        add_characters(out, string, size);
        return;
    }
    while (max > 0 && (string[max] & 0xc0) == 0x80) max--; /* not within a character */
    add_characters(out, string, max);
    text_add(out, "...");
}
