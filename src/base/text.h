/* text: a growing string, for messages, resolved configs and JSON lines. Grows without limit and never fails
 * (see arena.h for what happens without memory). Zero-initialise; text_free at the end. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

struct text {
    char *data; /* NUL-terminated once anything was added; NULL before */
    size_t length, capacity;
};

void text_add(struct text *text, const char *string);
void text_add_bytes(struct text *text, const char *bytes, size_t count);
void text_printf(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Text from files for a reader at a terminal: control characters, bytes that are no UTF-8 and characters that change
 * the direction of writing become \x1b or \u202e. text_add_foreign is for a name or a value: one line, cut to [max]
 * bytes with "..." at its end. text_add_printable is for a whole message: line ends and tabs stay, and each line is cut
 * to TEXT_MAX_LINE bytes. Every failure and every line of the log passes it. */
#define TEXT_MAX_NAME 80
#define TEXT_MAX_LINE 4096
void text_add_foreign(struct text *text, const char *string, size_t max);
void text_add_printable(struct text *text, const char *string);

/* The end of a noun behind [count]: "" for 1, else [ending], "s" or "es". ("%zu row%s", n, text_plural(n, "s")) */
const char *text_plural(uint64_t count, const char *ending);

/* [string] as a JSON string with its quotes; control characters, quotes and backslashes escaped, bytes that are no
 * UTF-8 replaced by U+FFFD. */
void text_add_json(struct text *text, const char *string);

/* The shortest decimal that reads back as the same double ("0.1", "1e-08"); JSON and YAML both read it.
 * Not-finite values become null. */
void text_add_double(struct text *text, double value);

void text_clear(struct text *text); /* keeps the memory */
void text_free(struct text *text);

/* The string, "" when nothing was added. */
const char *text_string(const struct text *text);

#endif
