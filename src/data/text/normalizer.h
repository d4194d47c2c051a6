/* normalizer: what a tokenizer.json does to a text before it is cut into tokens: the Unicode forms, and the normalizers
 * of files made from SentencePiece models (T5, ALBERT, XLM-R): Precompiled (the table of characters of the model),
 * Replace, Strip, StripAccents, Lowercase, Sequence. Immutable, so that threads may share it. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <string.h>

#include "base/status.h"

/* Zero-initialise; the caller frees text. */
struct normalized {
    char *text; /* (size), valid UTF-8 */
    size_t size, capacity;
};

/* STATUS_MEMORY. */
status normalized_add(struct normalized *to, const void *bytes, size_t size);

enum normal_form { NORMAL_NFC, NORMAL_NFD, NORMAL_NFKC, NORMAL_NFKD };

/* Adds the form of text (size), which is valid UTF-8. Also after a failure *out is to be freed. STATUS_MEMORY. */
status normalize_form(enum normal_form form, const char *text, size_t size, struct normalized *out);

bool is_ascii_text(const char *text, size_t size);

struct normalizer;

/* Reads the normalizer of a tokenizer.json; absent or null: one that changes nothing. STATUS_DATA with what is damaged
 * or not supported. */
status normalizer_read(const json_t *json, struct normalizer **out);
/* Whether it can remove or replace the first characters of a text in a way after which the tokenizers package no longer
 * takes what follows for the start of the text. */
bool normalizer_removes_start(const struct normalizer *normalizer);
void normalizer_destroy(struct normalizer *normalizer); /* takes NULL */

/* Sets *out to the normalized text (size), which is valid UTF-8. Also after a failure *out is to be freed.
 * STATUS_MEMORY. */
status normalizer_run(const struct normalizer *normalizer, const char *text, size_t size, struct normalized *out);

/* ---- reading a tokenizer.json ---- */

#define bad(...) status_data(__VA_ARGS__)

static inline bool is_absent(const json_t *value) { return !value || json_is_null(value); }

static inline bool is_type(const json_t *part, const char *type) {
    const char *value = json_string_value(json_object_get(part, "type"));
    return value && strcmp(value, type) == 0;
}

/* A boolean that may be absent. */
static inline bool flag_of(const json_t *part, const char *key, bool fallback) {
    const json_t *value = json_object_get(part, key);
    return json_is_boolean(value) ? json_is_true(value) : fallback;
}
