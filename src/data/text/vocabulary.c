/* A sorted array of code points with binary search, or a tokenizer. */
#include "data/text/vocabulary.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/scoped.h"
#include "base/utf8.h"
#include "data/text/tokenizer.h"

struct vocabulary {
    struct tokenizer *tokenizer; /* NULL: characters */
    size_t count;
    uint32_t codes[]; /* (count), increasing */
};

status vocabulary_create(const char *characters, struct vocabulary **out) {
    size_t size = strlen(characters);
    struct vocabulary *v = calloc(1, sizeof *v + (size + 1) * sizeof *v->codes);
    *out = NULL;
    if (!v) return status_memory("the vocabulary");
    for (size_t at = 0, length; at < size; at += length) {
        length = utf8_decode(characters + at, size - at, &v->codes[v->count]);
        if (length == 0 || (v->count > 0 && v->codes[v->count] <= v->codes[v->count - 1])) {
            status s = status_new(
                STATUS_DATA,
                "the vocabulary is damaged: byte %zu begins no valid character, or one that is not above the last",
                at + 1);
            free(v);
            return s;
        }
        v->count++;
    }
    *out = v;
    return OK;
}

status vocabulary_create_tokenizer(const char *json, struct vocabulary **out) {
    struct vocabulary *v = calloc(1, sizeof *v);
    *out = NULL;
    if (!v) return status_memory("the vocabulary");
    status s = tokenizer_parse("the model's tokenizer", json, strlen(json), &v->tokenizer);
    if (s) {
        free(v);
        return s;
    }
    v->count = tokenizer_size(v->tokenizer);
    *out = v;
    return OK;
}

status vocabulary_open_tokenizer(const char *path, struct vocabulary **out) {
    struct tokenizer *tokenizer;
    SCOPED_BUFFER char *json = NULL;
    status s = tokenizer_open(path, TOKENIZER_KEY, NULL, &json, &tokenizer);
    if (!s) s = vocabulary_create_tokenizer(json, out);
    tokenizer_destroy(tokenizer);
    return s;
}

void vocabulary_destroy(struct vocabulary *vocabulary) {
    if (vocabulary) tokenizer_destroy(vocabulary->tokenizer);
    free(vocabulary);
}

bool vocabulary_has_characters(const struct vocabulary *vocabulary) { return !vocabulary->tokenizer; }

size_t vocabulary_size(const struct vocabulary *vocabulary) { return vocabulary->count; }

int64_t vocabulary_find(const struct vocabulary *vocabulary, uint32_t code) {
    size_t low = 0, high = vocabulary->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (vocabulary->codes[middle] < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < vocabulary->count && vocabulary->codes[low] == code ? (int64_t)low : -1;
}

static status encode_tokens(const struct tokenizer *tokenizer, const char *text, int32_t **ids, size_t *count) {
    size_t size = strlen(text);
    uint32_t code;
    struct token_list list = {0};
    for (size_t at = 0, length; at < size; at += length)
        if ((length = utf8_decode(text + at, size - at, &code)) == 0)
            return status_usage("byte %zu of the text is not valid UTF-8", at + 1);
    status s = tokenizer_encode(tokenizer, text, size, &list);
    if (s) {
        free(list.ids);
        return s;
    }
    *ids = list.ids;
    *count = list.count;
    return OK;
}

status vocabulary_encode(const struct vocabulary *vocabulary, const char *text, int32_t **ids, size_t *count) {
    *ids = NULL;
    *count = 0;
    if (vocabulary->tokenizer) return encode_tokens(vocabulary->tokenizer, text, ids, count);
    size_t size = strlen(text), n = 0;
    int32_t *found = calloc(size + 1, sizeof *found);
    if (!found) return status_memory("the vocabulary");
    status s = OK;
    for (size_t at = 0, length; s == OK && at < size; at += length) {
        uint32_t code;
        length = utf8_decode(text + at, size - at, &code);
        int64_t id = length ? vocabulary_find(vocabulary, code) : -1;
        if (length == 0)
            s = status_usage("byte %zu of the text is not valid UTF-8", at + 1);
        else if (id < 0)
            s = status_usage("the model's vocabulary does not contain the character '%.*s' (U+%04X)", (int)length,
                             text + at, code);
        else
            found[n++] = (int32_t)id;
    }
    if (s != OK) {
        free(found);
        return s;
    }
    *ids = found;
    *count = n;
    return OK;
}

void vocabulary_decode(const struct vocabulary *vocabulary, const int32_t *ids, size_t count, struct text *out) {
    if (vocabulary->tokenizer) {
        tokenizer_decode(vocabulary->tokenizer, ids, count, false, out);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        char bytes[4];
        assert(ids[i] >= 0 && (size_t)ids[i] < vocabulary->count);
        text_add_bytes(out, bytes, utf8_write(vocabulary->codes[ids[i]], bytes));
    }
}
