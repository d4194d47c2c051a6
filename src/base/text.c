/* Amortised doubling. */
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

static void reserve(struct text *text, size_t more) {
    size_t need = text->length + more + 1;
    if (need <= text->capacity) return;
    size_t capacity = text->capacity ? text->capacity * 2 : 128;
    if (capacity < need) capacity = need;
    char *data = realloc(text->data, capacity);
    if (!data) {
        fputs("ddptrain: out of memory\n", stderr);
        _Exit(STATUS_BUG);
    }
    text->data = data;
    text->capacity = capacity;
}

void text_add_bytes(struct text *text, const char *bytes, size_t count) {
    reserve(text, count);
    memcpy(text->data + text->length, bytes, count);
    text->length += count;
    text->data[text->length] = 0;
}

void text_add(struct text *text, const char *string) { text_add_bytes(text, string, strlen(string)); }

void text_printf(struct text *text, const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (length > 0) {
        reserve(text, (size_t)length);
        vsnprintf(text->data + text->length, (size_t)length + 1, format, arguments);
        text->length += (size_t)length;
    }
    va_end(arguments);
}

void text_add_json(struct text *text, const char *string) {
    text_add(text, "\"");
    for (const unsigned char *c = (const unsigned char *)string; *c; c++) {
        if (*c == '"' || *c == '\\')
            text_printf(text, "\\%c", *c);
        else if (*c < 0x20)
            text_printf(text, "\\u%04x", *c);
        else
            text_add_bytes(text, (const char *)c, 1);
    }
    text_add(text, "\"");
}

void text_add_double(struct text *text, double value) {
    if (!isfinite(value)) {
        text_add(text, "null");
        return;
    }
    char digits[40];
    for (int precision = 6; precision <= 17; precision = precision < 15 ? 15 : precision + 1) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (precision == 17 || strtod(digits, NULL) == value) break;
    }
    text_add(text, digits);
}

void text_clear(struct text *text) {
    text->length = 0;
    if (text->data) text->data[0] = 0;
}

void text_free(struct text *text) {
    free(text->data);
    *text = (struct text){0};
}

const char *text_string(const struct text *text) { return text->data ? text->data : ""; }
