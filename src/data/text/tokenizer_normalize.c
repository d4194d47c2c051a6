/* The Unicode form NFC of a text, by utf8proc. Lines are normalized one by one: a line end composes with nothing, and
 * utf8proc needs four bytes for each character of its argument. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "data/text/tokenizer_internal.h"

bool tokenizer_is_ascii(const char *text, size_t size) {
    for (size_t i = 0; i < size; i++)
        if ((uint8_t)text[i] >= 0x80) return false;
    return true;
}

static status add(struct normalized *to, const void *bytes, size_t size) {
    if (to->capacity - to->size < size) {
        size_t capacity = 2 * to->capacity + size;
        char *larger = realloc(to->text, capacity);
        if (!larger) return status_memory("a text in the form NFC");
        to->text = larger, to->capacity = capacity;
    }
    memcpy(to->text + to->size, bytes, size);
    to->size += size;
    return OK;
}

static status add_line(struct normalized *to, const char *line, size_t size) {
    uint8_t *composed;
    if (tokenizer_is_ascii(line, size)) return add(to, line, size);
    utf8proc_ssize_t length =
        utf8proc_map((const uint8_t *)line, (utf8proc_ssize_t)size, &composed, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (length == UTF8PROC_ERROR_NOMEM || length == UTF8PROC_ERROR_OVERFLOW)
        return status_memory("the form NFC of a line of text");
    if (length < 0) return status_new(STATUS_BUG, "a text cannot be normalized: %s", utf8proc_errmsg(length));
    status s = add(to, composed, (size_t)length);
    free(composed);
    return s;
}

status tokenizer_normalize(const char *text, size_t size, struct normalized *out) {
    *out = (struct normalized){0};
    status s = OK;
    for (size_t at = 0; at < size && !s;) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t length = end ? (size_t)(end - (text + at)) + 1 : size - at;
        s = add_line(out, text + at, length);
        at += length;
    }
    return s;
}
