/* A problem stores its formatted sentence and its sort key, so it outlives the document. */
#include "base/document/document_internal.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct problem {
    char *text;         /* owned */
    size_t file_length; /* the file's name is the first bytes of text */
    int line, column;
    bool is_override;
};

struct short_text short_text(const char *text) {
    struct short_text result;
    size_t max = sizeof result.s - 4, length = strnlen(text, max + 1);
    if (length <= max) {
        memcpy(result.s, text, length);
        result.s[length] = 0;
        return result;
    }
    length = max;
    while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80) length--;
    memcpy(result.s, text, length);
    memcpy(result.s + length, "...", 4);
    return result;
}

struct place_text place_text(struct place place) {
    struct place_text t;
    const char *file = place.file ? place.file : "config";
    if (place.line > 0)
        snprintf(t.s, sizeof t.s, "%.*s:%d:%d", PLACE_FILE, file, place.line, place.column);
    else
        snprintf(t.s, sizeof t.s, "%.*s", PLACE_FILE, file);
    return t;
}

/* Escapes C0, C1 and DEL, which a terminal would interpret. */
static void add_escaped(struct text *out, const char *text) {
    for (size_t left = strlen(text); left > 0;) {
        unsigned code = 0;
        size_t length = utf8_decode(text, left, &code);
        if (length == 0)
            text_printf(out, "\\x%02x", (unsigned char)*text);
        else if (code < 0x20 || (code >= 0x7f && code < 0xa0))
            text_printf(out, "\\x%02x", code);
        else
            text_add_bytes(out, text, length);
        if (length == 0) length = 1;
        text += length;
        left -= length;
    }
}

static void *exit_if_null(void *block) {
    if (!block) status_exit_without_memory();
    return block;
}

void problems_add(struct problems *problems, struct place place, const char *key, const char *format, ...) {
    if (problems->count >= PROBLEMS_MAX) {
        problems->left_out++;
        return;
    }
    const char *file = place.file ? place.file : "";
    struct text raw = {0}, line = {0};
    va_list arguments;
    va_start(arguments, format);
    char *sentence = NULL;
    if (vasprintf(&sentence, format, arguments) < 0) exit_if_null(NULL);
    va_end(arguments);

    add_escaped(&line, file);
    size_t file_length = line.length;
    if (place.line > 0) text_printf(&line, ":%d:%d", place.line, place.column);
    if (line.length > 0) text_add(&line, ": ");
    if (key && *key) text_printf(&raw, "%s: ", key);
    text_add(&raw, sentence);
    add_escaped(&line, text_string(&raw));
    free(sentence);
    text_free(&raw);

    if (problems->count == problems->capacity) {
        problems->capacity = problems->capacity ? problems->capacity * 2 : 8;
        problems->items = exit_if_null(realloc(problems->items, problems->capacity * sizeof *problems->items));
    }
    problems->items[problems->count++] = (struct problem){
        .text = line.data,
        .file_length = file_length,
        .line = place.line,
        .column = place.column,
        .is_override = place.line == 0 && strncmp(file, "argument ", 9) == 0,
    };
}

static int compare_problems(const void *left, const void *right) {
    const struct problem *a = *(const struct problem *const *)left, *b = *(const struct problem *const *)right;
    if (a->is_override != b->is_override) return a->is_override ? 1 : -1;
    size_t shorter = a->file_length < b->file_length ? a->file_length : b->file_length;
    int order = a->is_override ? 0 : memcmp(a->text, b->text, shorter);
    if (order == 0 && !a->is_override) order = (a->file_length > b->file_length) - (a->file_length < b->file_length);
    if (order == 0) order = (a->line > b->line) - (a->line < b->line);
    if (order == 0) order = (a->column > b->column) - (a->column < b->column);
    return order ? order : ((uintptr_t)a > (uintptr_t)b) - ((uintptr_t)a < (uintptr_t)b);
}

status problems_status(const struct problems *problems, enum status_code code) {
    if (problems->count == 0) return OK;
    const struct problem **sorted = exit_if_null(calloc(problems->count, sizeof(struct problem *)));
    for (size_t i = 0; i < problems->count; i++) sorted[i] = &problems->items[i];
    qsort(sorted, problems->count, sizeof(struct problem *), compare_problems);
    struct text all = {0};
    for (size_t i = 0; i < problems->count; i++) text_printf(&all, "%s%s", i ? "\n" : "", sorted[i]->text);
    if (problems->left_out) text_printf(&all, "\n... and %zu more", problems->left_out);
    status s = status_new(code, "%s", text_string(&all));
    text_free(&all);
    free(sorted);
    return s;
}

void problems_free(struct problems *problems) {
    for (size_t i = 0; i < problems->count; i++) free(problems->items[i].text);
    free(problems->items);
    *problems = (struct problems){0};
}
