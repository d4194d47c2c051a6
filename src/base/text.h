/* text: a growing string for messages, resolved configs and JSON lines. Without memory the process exits, as in
 * arena.h, but for text_try_reserve. Zero-initialise; text_free at the end. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
    char *data; /* NUL-terminated once anything was added; NULL before */
    size_t length, capacity;
};

void text_add(struct text *text, const char *string);
void text_add_bytes(struct text *text, const char *bytes, size_t count);
void text_add_int(struct text *text, int64_t value); /* in decimal */
void text_printf(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Add text from untrusted files for output on a terminal: control characters, invalid UTF-8 and characters that change
 * the writing direction are escaped (\x1b, \u202e). text_add_value is for a name or a value: one line, truncated to
 * [max] bytes with "..." at its end. text_add_printable is for a message: it keeps line breaks and tabs and truncates
 * each line to TEXT_MAX_LINE bytes; all failures and log lines use it. text_add_escaped is the same without a limit,
 * for what a command prints. */
#define TEXT_MAX_NAME 80
#define TEXT_MAX_LINE 4096
void text_add_value(struct text *text, const char *string, size_t max);
void text_add_printable(struct text *text, const char *string);
/* What text_add_value adds of a name, for use within one expression: text_name(x).s */
struct name_text {
    char s[TEXT_MAX_NAME + 16];
};
struct name_text text_name(const char *string);
void text_add_escaped(struct text *text, const char *string);
/* Adds blanks until the valid UTF-8 from byte [start] has [width] characters, for columns of a table. */
void text_pad(struct text *text, size_t start, size_t width);
/* The maximum number of bytes that text_add_printable adds for a string of [length] bytes. */
size_t text_max_printable(size_t length);

/* "" for [count] 1, else [ending] ("s" or "es"): printf("%zu row%s", n, text_plural(n, "s")) */
const char *text_plural(uint64_t count, const char *ending);

/* Adds [string] as a JSON string with its quotes; invalid UTF-8 becomes U+FFFD. */
void text_add_json(struct text *text, const char *string);
/* ["a", "b"] */
void text_add_json_list(struct text *text, const char *const *strings, size_t count);

/* Adds [string] as one word of a command, as a POSIX shell reads it back: quoted where it has blanks or other
 * characters that a shell interprets. */
void text_add_shell(struct text *text, const char *string);

/* Adds the shortest decimal that parses to the same double ("0.1", "1e-08"), for JSON and YAML. Non-finite values
 * become null. */
void text_add_double(struct text *text, double value);

/* Members of a JSON object, "name":value, each after a comma unless the text ends with "{". */
void text_add_name(struct text *text, const char *name); /* the value follows */
void text_add_member_int(struct text *text, const char *name, int64_t value);
void text_add_member_double(struct text *text, const char *name, double value); /* not finite: null */
void text_add_member(struct text *text, const char *name, const char *string);

/* The end of the text, where [count] bytes can be written. text_extend adds those that were, and the NUL. */
char *text_reserve(struct text *text, size_t count);
void text_extend(struct text *text, size_t count);
/* Allocates memory for [count] more bytes, so that adding them cannot fail; false: there is none. */
bool text_try_reserve(struct text *text, size_t count);

void text_clear(struct text *text); /* keeps the memory */
void text_free(struct text *text);

/* The string, "" when nothing was added. */
const char *text_string(const struct text *text);

/* ---- strings ---- */

bool text_ends_with(const char *string, const char *end);
/* What printf prints, malloc'ed. */
char *text_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "folder/name", malloc'ed. */
char *text_path(const char *folder, const char *name);
/* Compares two strings by their addresses, for qsort and bsearch. */
int text_compare(const void *left, const void *right);
