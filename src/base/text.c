/* The capacity doubles when it is exceeded. */
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/utf8.h"

static bool set_capacity(struct text *text, size_t capacity) {
    char *data = realloc(text->data, capacity);
    if (!data) return false;
    text->data = data;
    text->capacity = capacity;
    return true;
}

static __attribute__((noinline)) void grow(struct text *text, size_t need) {
    size_t capacity = text->capacity ? text->capacity * 2 : 128;
    if (!set_capacity(text, capacity < need ? need : capacity)) status_exit_without_memory();
}

static inline void reserve(struct text *text, size_t more) {
    size_t need = text->length + more + 1;
    if (need > text->capacity) grow(text, need);
}

bool text_try_reserve(struct text *text, size_t count) {
    size_t need = text->length + count + 1;
    if (need > text->capacity && !set_capacity(text, need)) return false;
    text->data[text->length] = 0;
    return true;
}

char *text_reserve(struct text *text, size_t count) {
    reserve(text, count);
    return text->data + text->length;
}

void text_extend(struct text *text, size_t count) {
    text->length += count;
    text->data[text->length] = 0;
}

void text_add_bytes(struct text *text, const char *bytes, size_t count) {
    reserve(text, count);
    memcpy(text->data + text->length, bytes, count);
    text_extend(text, count);
}

void text_add(struct text *text, const char *string) { text_add_bytes(text, string, strlen(string)); }

void text_add_int(struct text *text, int64_t value) {
    char digits[24], *at = digits + sizeof digits;
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do *--at = (char)('0' + left % 10);
    while ((left /= 10) > 0);
    if (value < 0) *--at = '-';
    text_add_bytes(text, at, (size_t)(digits + sizeof digits - at));
}

void text_printf(struct text *text, const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    reserve(text, 0);
    size_t left = text->capacity - text->length;
    int length = vsnprintf(text->data + text->length, left, format, arguments);
    if (length > 0 && (size_t)length >= left) {
        reserve(text, (size_t)length);
        vsnprintf(text->data + text->length, (size_t)length + 1, format, again);
    }
    if (length > 0) text->length += (size_t)length;
    text->data[text->length] = 0;
    va_end(again);
    va_end(arguments);
}

/* Adds the first character of [string] (left) and returns its number of bytes. */
static size_t add_character(struct text *text, const char *string, size_t left, bool keeps_lines) {
    uint32_t code;
    size_t bytes = utf8_decode(string, left, &code);
    bool is_layout = keeps_lines && (*string == '\n' || *string == '\t');
    if (bytes == 0 || (bytes == 1 && utf8_is_control(code) && !is_layout))
        text_printf(text, "\\x%02x", (unsigned char)*string);
    else if (bytes > 1 && utf8_is_control(code))
        text_printf(text, "\\u%04x", code);
    else
        text_add_bytes(text, string, bytes);
    return bytes ? bytes : 1;
}

void text_add_value(struct text *text, const char *string, size_t max) {
    size_t left = strlen(string), start = text->length;
    while (left > 0 && text->length - start < max) {
        size_t bytes = add_character(text, string, left, false);
        string += bytes, left -= bytes;
    }
    if (left > 0) text_add(text, "...");
}

struct name_text text_name(const char *string) {
    struct name_text out = {0};
    struct text text = {0};
    text_add_value(&text, string, TEXT_MAX_NAME);
    if (text.length) memcpy(out.s, text.data, text.length);
    text_free(&text);
    return out;
}

void text_pad(struct text *text, size_t start, size_t width) {
    size_t characters = 0;
    for (size_t i = start; i < text->length; i++) characters += ((unsigned char)text->data[i] & 0xc0) != 0x80;
    for (; characters < width; characters++) text_add_bytes(text, " ", 1);
}

/* A byte becomes up to 4. A truncated line has at least TEXT_MAX_LINE / 4 bytes, its end fewer than TEXT_MAX_LINE / 64.
 */
size_t text_max_printable(size_t length) { return 4 * length + length / 16; }

/* Each line up to [max] bytes. */
static void add_lines(struct text *text, const char *string, size_t max) {
    while (*string) {
        size_t left = strcspn(string, "\n"), start = text->length;
        while (left > 0 && text->length - start < max) {
            size_t bytes = add_character(text, string, left, true);
            string += bytes, left -= bytes;
        }
        if (left > 0) text_printf(text, "... (%zu bytes more)", left);
        string += left;
        if (*string) text_add_bytes(text, string++, 1);
    }
}

void text_add_printable(struct text *text, const char *string) { add_lines(text, string, TEXT_MAX_LINE); }

void text_add_escaped(struct text *text, const char *string) { add_lines(text, string, SIZE_MAX); }

void text_add_shell(struct text *text, const char *string) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
    if (*string && !string[strspn(string, plain)]) {
        text_add(text, string);
        return;
    }
    text_add(text, "'");
    for (const char *c = string; *c; c++)
        if (*c == '\'')
            text_add(text, "'\\''");
        else
            text_add_bytes(text, c, 1);
    text_add(text, "'");
}

void text_add_json(struct text *text, const char *string) {
    text_add(text, "\"");
    uint32_t code;
    for (size_t left = strlen(string), bytes; left > 0; string += bytes, left -= bytes) {
        bytes = utf8_decode(string, left, &code);
        if (bytes == 0)
            bytes = 1, text_add(text, "\\ufffd");
        else if (code == '"' || code == '\\')
            text_printf(text, "\\%c", (int)code);
        else if (utf8_is_control(code))
            text_printf(text, "\\u%04x", code);
        else
            text_add_bytes(text, string, bytes);
    }
    text_add(text, "\"");
}

void text_add_json_list(struct text *text, const char *const *strings, size_t count) {
    text_add(text, "[");
    for (size_t i = 0; i < count; i++) {
        text_add(text, i ? ", " : "");
        text_add_json(text, strings[i]);
    }
    text_add(text, "]");
}

void text_add_name(struct text *text, const char *name) {
    if (text->length && text->data[text->length - 1] != '{') text_add(text, ",");
    text_add_json(text, name);
    text_add(text, ":");
}

void text_add_member_int(struct text *text, const char *name, int64_t value) {
    text_add_name(text, name);
    text_add_int(text, value);
}

void text_add_member_double(struct text *text, const char *name, double value) {
    text_add_name(text, name);
    text_add_double(text, value);
}

void text_add_member(struct text *text, const char *name, const char *string) {
    text_add_name(text, name);
    text_add_json(text, string);
}

#define MAX_DECIMALS 12

/* Adds [value] below 1e6 if it is a decimal of few digits, such as 0.001 or 1e-08, as %.15g would: a decimal of up to
 * 15 digits is the only one of its double. The quotient is rounded once, because both numbers are exact. */
static bool add_short_decimal(struct text *text, double value) {
    double size = fabs(value), power = 1;
    for (int decimals = 1; decimals <= MAX_DECIMALS && size * power < 1e8; decimals++) {
        power *= 10;
        int64_t digits = (int64_t)(size * power + 0.5);
        if (digits == 0 || (double)digits / power < size || (double)digits / power > size) continue;
        char memory[24] = {0}, *out = memory + sizeof memory - 1;
        for (int64_t rest = digits; rest > 0; rest /= 10) *--out = (char)('0' + rest % 10);
        int count = (int)(memory + sizeof memory - 1 - out);
        text_add(text, signbit(value) ? "-" : "");
        if (decimals - count >= 4) { /* below 1e-4 */
            text_printf(text, "%c%s%se-%02d", out[0], count > 1 ? "." : "", out + 1, decimals - count + 1);
            return true;
        }
        text_add_int(text, digits / (int64_t)power);
        text_add(text, ".");
        for (int zeros = decimals - count; zeros > 0; zeros--) text_add(text, "0");
        text_add(text, count > decimals ? out + count - decimals : out);
        return true;
    }
    return false;
}

void text_add_double(struct text *text, double value) {
    if (!isfinite(value)) {
        text_add(text, "null");
        return;
    }
    char digits[40];
    bool is_short = fabs(value) < 1e6 && value == (double)(int)value && !(value == 0 && signbit(value));
    if (is_short) { /* the same as by %g, without it */
        text_add_int(text, (int)value);
        return;
    }
    if (value != 0 && fabs(value) < 1e6 && add_short_decimal(text, value)) return;
    int first = fabs(value) < 1e6 ? 15 : 6; /* below 1e6 the shortest of at most 15 digits is the same as by 6 */
    for (int precision = first; precision <= 17; precision = precision < 15 ? 15 : precision + 1) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (precision == 17 || strtod(digits, NULL) == value) break;
    }
    text_add(text, digits);
}

void text_clear(struct text *text) {
    text->length = 0;
    if (text->data) text->data[0] = 0;
}

const char *text_plural(uint64_t count, const char *ending) { return count == 1 ? "" : ending; }

void text_free(struct text *text) {
    free(text->data);
    *text = (struct text){0};
}

const char *text_string(const struct text *text) { return text->data ? text->data : ""; }

/* ---- strings ---- */

bool text_ends_with(const char *string, const char *end) {
    size_t length = strlen(string), tail = strlen(end);
    return length >= tail && strcmp(string + length - tail, end) == 0;
}

char *text_format(const char *format, ...) {
    char *out;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&out, format, arguments) < 0) status_exit_without_memory();
    va_end(arguments);
    return out;
}

char *text_path(const char *folder, const char *name) { return text_format("%s/%s", folder, name); }

int text_compare(const void *left, const void *right) {
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}
