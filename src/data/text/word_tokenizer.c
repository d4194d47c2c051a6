/* Words are those of GPT-2's regular expression, with the blank before them; ignore_merges makes a word of the
 * vocabulary one token without merges. */
#include "data/text/word_tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "data/text/tokenizer_internal.h"

#define MAX_WORDS 20000
#define MAX_WORD_BYTES 64
#define MIN_OCCURRENCES 2
#define FIRST_WORD 257 /* after the padding and the bytes */

struct word {
    struct pool_range bytes;
    size_t count;
};

struct word_counts {
    struct byte_map map; /* indices of items by words */
    struct word *items;  /* (map.count) */
    size_t capacity;
};

status word_counts_create(struct word_counts **out) {
    *out = calloc(1, sizeof **out);
    return *out ? OK : status_memory("the words of the texts");
}

void word_counts_destroy(struct word_counts *words) {
    if (!words) return;
    byte_map_free(&words->map);
    free(words->items);
    free(words);
}

static status add_word(struct word_counts *w, const char *word, size_t size, size_t times) {
    uint64_t hash = byte_map_hash(word, size);
    const struct byte_entry *known = byte_map_find(&w->map, hash, word, size);
    if (known) {
        w->items[known->value].count += times;
        return OK;
    }
    if (w->map.count == w->capacity) {
        size_t capacity = 2 * w->capacity + 1024;
        struct word *items = realloc(w->items, capacity * sizeof *items);
        if (!items) return status_memory("the words of the texts");
        w->items = items;
        w->capacity = capacity;
    }
    struct word *item = &w->items[w->map.count];
    TRY(byte_map_add(&w->map, hash, word, size, (uint32_t)w->map.count));
    *item = (struct word){{(uint32_t)(w->map.pool_size - size), (uint32_t)size}, times};
    return OK;
}

/* A text that begins with no blank gets one, as add_prefix_space does. */
status word_counts_add(struct word_counts *words, const char *text, size_t times) {
    struct text longer = {0};
    if (text[0] != ' ') text_add(&longer, " ");
    text_add(&longer, text);
    const char *at = text_string(&longer);
    status s = OK;
    for (size_t left = longer.length, size; !s && left > 0; at += size, left -= size) {
        size = words_gpt2(at, left);
        if (size > 1 && size <= MAX_WORD_BYTES) s = add_word(words, at, size, times);
    }
    text_free(&longer);
    return s;
}

static int by_count(const void *a, const void *b, void *pool) {
    const struct word *x = a, *y = b;
    if (x->count != y->count) return x->count < y->count ? 1 : -1;
    uint32_t shorter = x->bytes.length < y->bytes.length ? x->bytes.length : y->bytes.length;
    int order = memcmp((char *)pool + x->bytes.offset, (char *)pool + y->bytes.offset, shorter);
    return order ? order : (x->bytes.length > y->bytes.length) - (x->bytes.length < y->bytes.length);
}

/* Adds ',"token":id', each byte as the character that stands for it. */
static void add_token(const uint32_t *letters, const char *bytes, size_t size, size_t id, struct text *json) {
    struct text token = {0};
    for (size_t i = 0; i < size; i++) {
        char letter[4];
        text_add_bytes(&token, letter, utf8_encode(letters[(uint8_t)bytes[i]], letter));
    }
    text_add(json, ",");
    text_add_json(json, text_string(&token));
    text_printf(json, ":%zu", id);
    text_free(&token);
}

static void add_vocabulary(const struct word *sorted, size_t count, const char *pool, struct text *json) {
    uint32_t letters[256];
    tokenizer_byte_letters(letters);
    text_printf(json, "{\"[PAD]\":%d",
                WORD_TOKENIZER_PADDING); /* no text has it: its brackets are words of their own */
    for (size_t byte = 0; byte < 256; byte++) add_token(letters, (const char[]){(char)byte}, 1, 1 + byte, json);
    for (size_t i = 0; i < count && i < MAX_WORDS && sorted[i].count >= MIN_OCCURRENCES; i++)
        add_token(letters, pool + sorted[i].bytes.offset, sorted[i].bytes.length, FIRST_WORD + i, json);
    text_add(json, "}");
}

status word_counts_write(const struct word_counts *words, struct text *json) {
    size_t count = words->map.count;
    struct word *sorted = malloc((count + 1) * sizeof *sorted);
    if (!sorted) return status_memory("the words of the texts");
    if (count) memcpy(sorted, words->items, count * sizeof *sorted);
    qsort_r(sorted, count, sizeof *sorted, by_count, words->map.pool);
    text_printf(
        json,
        "{\"version\":\"1.0\",\"truncation\":null,\"padding\":{\"strategy\":\"BatchLongest\",\"direction\":"
        "\"Right\",\"pad_to_multiple_of\":null,\"pad_id\":%d,\"pad_type_id\":0,\"pad_token\":\"[PAD]\"},"
        "\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\","
        "\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},\"post_processor\":null,"
        "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},"
        "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,"
        "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":true,\"vocab\":",
        WORD_TOKENIZER_PADDING);
    add_vocabulary(sorted, count, words->map.pool, json);
    text_add(json, ",\"merges\":[]}}");
    free(sorted);
    return OK;
}
