/* text: a growing string, for messages, resolved configs and JSON lines. Grows without limit and never fails
 * (see arena.h for what happens without memory). Zero-initialise; text_free at the end. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdarg.h>
#include <stddef.h>

struct text {
    char *data; /* NUL-terminated once anything was added; NULL before */
    size_t length, capacity;
};

void text_add(struct text *text, const char *string);
void text_add_bytes(struct text *text, const char *bytes, size_t count);
void text_printf(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* [string] as a JSON string with its quotes; control characters, quotes and backslashes escaped. */
void text_add_json(struct text *text, const char *string);

/* The shortest decimal that reads back as the same double ("0.1", "1e-08"); JSON and YAML both read it.
 * Not-finite values become null. */
void text_add_double(struct text *text, double value);

void text_clear(struct text *text); /* keeps the memory */
void text_free(struct text *text);

/* The string, "" when nothing was added. */
const char *text_string(const struct text *text);

#endif
