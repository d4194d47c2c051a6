/* Most words of a text were seen before, so their tokens are kept; the pairs of a new word are merged with a heap,
 * which takes n log n steps also for a word of a million bytes. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "data/text/tokenizer_internal.h"

#define MAX_CACHED_WORD 64 /* bytes */
#define MAX_CACHED_WORDS ((size_t)1 << 16)
#define MAX_WORD ((size_t)1 << 30) /* bytes */

/* A token of a word, in a list; NONE: no neighbour. */
#define NONE UINT32_MAX
struct symbol {
    uint32_t id, previous, next;
    uint32_t rank; /* of the merge with the next; TOKEN_NONE: none */
};

struct encoder {
    const struct tokenizer *tokenizer;
    struct token_list *out;
    struct byte_map words; /* to the position in [cached] of a word's number of tokens and its tokens */
    struct token_list cached;
    struct symbol *symbols; /* (capacity) of a word */
    uint64_t *heap;         /* (3 * capacity) rank << 32 | position */
    size_t capacity, heap_count;
};

static status reserve_ids(struct token_list *list, size_t count) {
    if (list->count + count <= list->capacity) return OK;
    size_t capacity = 2 * (list->count + count) + 64;
    int32_t *ids = realloc(list->ids, capacity * sizeof *ids);
    if (!ids) return status_memory("the tokens of a text");
    list->ids = ids;
    list->capacity = capacity;
    return OK;
}

/* Adds a token; the memory was reserved. */
static void put(struct token_list *list, uint32_t id) { list->ids[list->count++] = (int32_t)id; }

/* ---- merges ---- */

struct merge *tokenizer_merge(const struct tokenizer *tokenizer, uint32_t left, uint32_t right) {
    uint64_t hash = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
    size_t mask = tokenizer->merge_slots - 1;
    for (size_t i = (hash >> 32) & mask;; i = (i + 1) & mask) {
        struct merge *merge = &tokenizer->merges[i];
        if (merge->left == TOKEN_NONE || (merge->left == left && merge->right == right)) return merge;
    }
}

static void heap_push(struct encoder *e, uint64_t key) {
    size_t i = e->heap_count++;
    for (; i > 0 && e->heap[(i - 1) / 2] > key; i = (i - 1) / 2) e->heap[i] = e->heap[(i - 1) / 2];
    e->heap[i] = key;
}

static uint64_t heap_pop(struct encoder *e) {
    uint64_t top = e->heap[0], key = e->heap[--e->heap_count];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < e->heap_count; i = child) {
        if (child + 1 < e->heap_count && e->heap[child + 1] < e->heap[child]) child++;
        if (e->heap[child] >= key) break;
        e->heap[i] = e->heap[child];
    }
    e->heap[i] = key;
    return top;
}

/* Sets the rank of the pair that starts at [position]. */
static void rank_pair(struct encoder *e, uint32_t position) {
    struct symbol *s = &e->symbols[position];
    s->rank = TOKEN_NONE;
    if (s->next == NONE) return;
    const struct merge *merge = tokenizer_merge(e->tokenizer, s->id, e->symbols[s->next].id);
    if (merge->left == TOKEN_NONE) return;
    s->rank = merge->rank;
    heap_push(e, (uint64_t)merge->rank << 32 | position);
}

static void merge_pair(struct encoder *e, uint32_t position) {
    struct symbol *s = &e->symbols[position], *right = &e->symbols[s->next];
    s->id = tokenizer_merge(e->tokenizer, s->id, right->id)->result;
    right->rank = TOKEN_NONE;
    s->next = right->next;
    if (s->next != NONE) e->symbols[s->next].previous = position;
    rank_pair(e, position);
    if (s->previous != NONE) rank_pair(e, s->previous);
}

/* The leftmost of the pairs with the lowest rank first. An entry of the heap whose pair has changed is skipped. */
static void merge_all(struct encoder *e, size_t count) {
    e->heap_count = 0;
    for (uint32_t i = 0; i < count; i++) rank_pair(e, i);
    while (e->heap_count > 0) {
        uint64_t key = heap_pop(e);
        if (e->symbols[(uint32_t)key].rank == key >> 32) merge_pair(e, (uint32_t)key);
    }
}

static status reserve_symbols(struct encoder *e, size_t count) {
    if (count <= e->capacity) return OK;
    size_t capacity = 2 * count + 64;
    free(e->symbols);
    free(e->heap);
    e->capacity = 0;
    e->symbols = malloc(capacity * sizeof *e->symbols);
    e->heap = malloc(3 * capacity * sizeof *e->heap);
    if (!e->symbols || !e->heap) return status_memory("the tokens of a text");
    e->capacity = capacity;
    return OK;
}

static status split_bytes(struct encoder *e, const char *word, size_t size) {
    if (size > MAX_WORD) return status_new(STATUS_DATA, "the text has a word of more than 1 GiB");
    TRY(reserve_symbols(e, size));
    for (size_t i = 0; i < size; i++) {
        uint32_t id = e->tokenizer->bytes[(uint8_t)word[i]];
        if (id == TOKEN_NONE)
            return status_new(STATUS_DATA, "the tokenizer has no token for the byte 0x%02x",
                              (unsigned)(uint8_t)word[i]);
        uint32_t next = i + 1 < size ? (uint32_t)i + 1 : NONE;
        e->symbols[i] = (struct symbol){.id = id, .previous = i ? (uint32_t)i - 1 : NONE, .next = next};
    }
    return OK;
}

static status encode_new_word(struct encoder *e, uint64_t hash, const char *word, size_t size) {
    const struct tokenizer *t = e->tokenizer;
    const struct byte_entry *token = t->ignores_merges ? byte_map_find(&t->vocabulary, hash, word, size) : NULL;
    TRY(reserve_ids(e->out, size));
    if (token) {
        put(e->out, token->value);
        return OK;
    }
    TRY(split_bytes(e, word, size));
    merge_all(e, size);
    for (uint32_t i = 0; i != NONE; i = e->symbols[i].next) put(e->out, e->symbols[i].id);
    return OK;
}

/* ---- words ---- */

/* Keeps the tokens of a word, which are the last [count] of the result. */
static status remember(struct encoder *e, uint64_t hash, const char *word, size_t size, size_t count) {
    if (e->words.count == MAX_CACHED_WORDS) {
        byte_map_clear(&e->words);
        e->cached.count = 0;
    }
    TRY(byte_map_add(&e->words, hash, word, size, (uint32_t)e->cached.count));
    TRY(reserve_ids(&e->cached, count + 1));
    put(&e->cached, (uint32_t)count);
    memcpy(e->cached.ids + e->cached.count, e->out->ids + e->out->count - count, count * sizeof *e->out->ids);
    e->cached.count += count;
    return OK;
}

static status encode_word(struct encoder *e, const char *word, size_t size) {
    uint64_t hash = byte_map_hash(word, size);
    const struct byte_entry *known = size <= MAX_CACHED_WORD ? byte_map_find(&e->words, hash, word, size) : NULL;
    if (known) {
        const int32_t *ids = e->cached.ids + known->value;
        TRY(reserve_ids(e->out, (size_t)ids[0]));
        for (int32_t i = 1; i <= ids[0]; i++) put(e->out, (uint32_t)ids[i]);
        return OK;
    }
    size_t before = e->out->count;
    TRY(encode_new_word(e, hash, word, size));
    return size <= MAX_CACHED_WORD ? remember(e, hash, word, size, e->out->count - before) : OK;
}

static status encode_words(struct encoder *e, const char *text, size_t size) {
    for (size_t at = 0, length; at < size; at += length) {
        length = e->tokenizer->word_end(text + at, size - at);
        TRY(encode_word(e, text + at, length));
    }
    return OK;
}

static status encode_plain(struct encoder *e, const char *text, size_t size) {
    if (!e->tokenizer->has_prefix_space || text[0] == ' ') return encode_words(e, text, size);
    char *longer = malloc(size + 1);
    if (!longer) return status_memory("the tokens of a text");
    longer[0] = ' ';
    memcpy(longer + 1, text, size);
    status s = encode_words(e, longer, size + 1);
    free(longer);
    return s;
}

/* ---- added tokens ---- */

/* The first item of [low, high) whose byte at [depth] is at least [byte]; items that end there come first. */
static size_t lower_bound(const struct tokenizer *t, const struct added_set *set, size_t low, size_t high, size_t depth,
                          unsigned byte) {
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        struct pool_range content = set->items[middle].content;
        if (content.length <= depth || (uint8_t)t->vocabulary.pool[content.offset + depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest added token at the start of the text; NULL: none. */
static const struct added_token *added_at(const struct tokenizer *t, const struct added_set *set, const char *text,
                                          size_t size) {
    const struct added_token *found = NULL;
    size_t low = 0, high = set->count;
    for (size_t depth = 0; depth < size; depth++) {
        unsigned byte = (uint8_t)text[depth];
        low = lower_bound(t, set, low, high, depth, byte);
        high = lower_bound(t, set, low, high, depth, byte + 1);
        if (low == high) break;
        if (set->items[low].content.length == depth + 1) found = &set->items[low];
    }
    return found;
}

/* The start of the white space before [at], not before [first]. */
static size_t before_spaces(const char *text, size_t first, size_t at) {
    while (at > first) {
        size_t start = at - 1;
        uint32_t code = 0;
        while (start > first && ((uint8_t)text[start] & 0xc0) == 0x80) start--;
        if (utf8_decode(text + start, at - start, &code) == 0 || unicode_class(code) != UNICODE_SPACE) break;
        at = start;
    }
    return at;
}

static size_t after_spaces(const char *text, size_t at, size_t size) {
    uint32_t code;
    for (size_t length; (length = utf8_decode(text + at, size - at, &code)) > 0; at += length)
        if (unicode_class(code) != UNICODE_SPACE) break;
    return at;
}

static status encode_between(struct encoder *e, size_t set, const char *text, size_t size);

/* Cuts the text at the added tokens of a set; the rest goes to the next set. */
static status encode_around(struct encoder *e, size_t index, const char *text, size_t size) {
    const struct tokenizer *t = e->tokenizer;
    const struct added_set *set = &t->added[index];
    size_t done = 0; /* up to here the text is encoded */
    for (size_t at = 0, next; at < size; at = next) {
        const struct added_token *added =
            set->starts[(uint8_t)text[at]] ? added_at(t, set, text + at, size - at) : NULL;
        next = at + 1;
        if (!added) continue;
        next = at + added->content.length;
        size_t start = added->takes_left ? before_spaces(text, done < at ? done : at, at) : at;
        if (done < start) TRY(encode_between(e, index + 1, text + done, start - done));
        TRY(reserve_ids(e->out, 1));
        put(e->out, added->id);
        done = added->takes_right ? after_spaces(text, next, size) : next;
    }
    return done < size ? encode_between(e, index + 1, text + done, size - done) : OK;
}

static status encode_from(struct encoder *e, size_t set, const char *text, size_t size) {
    if (set == sizeof e->tokenizer->added / sizeof *e->tokenizer->added) return encode_plain(e, text, size);
    if (e->tokenizer->added[set].count == 0) return encode_between(e, set + 1, text, size);
    return encode_around(e, set, text, size);
}

/* A text between the added tokens of the sets before [set]. It is normalized before the second set is searched. */
static status encode_between(struct encoder *e, size_t set, const char *text, size_t size) {
    if (set != 1 || !e->tokenizer->is_nfc || tokenizer_is_ascii(text, size)) return encode_from(e, set, text, size);
    struct normalized normalized;
    status s = tokenizer_normalize(text, size, &normalized);
    if (!s) s = encode_from(e, set, normalized.text, normalized.size);
    free(normalized.text);
    return s;
}

status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t size, struct token_list *out) {
    struct encoder e = {.tokenizer = tokenizer, .out = out};
    status s = size ? encode_between(&e, 0, text, size) : OK;
    byte_map_free(&e.words);
    free(e.cached.ids);
    free(e.symbols);
    free(e.heap);
    return s;
}

void tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, size_t count, struct text *out) {
    for (size_t i = 0; i < count; i++) {
        assert(ids[i] >= 0 && (size_t)ids[i] < tokenizer->size);
        struct pool_range token = tokenizer->tokens[ids[i]];
        text_add_bytes(out, tokenizer->vocabulary.pool + token.offset, token.length);
    }
}
