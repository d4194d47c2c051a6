/* Byte-level BPE, WordPiece and WordLevel, and Unigram by unigram.h: reading tokenizer.json, words and their tokens,
 * and tokenizers that are made of the words of a table or a text. */
#include "data/text/tokenizer.h"

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/buffer.h"
#include "base/files/io.h"
#include "base/scoped.h"
#include "base/utf8.h"
#include "data/files/files.h"
#include "data/text/normalizer.h"
#include "data/text/unigram.h"

#define TOKEN_NONE UINT32_MAX

/* ---- tables of strings ---- */

/* Bytes of a string of the pool. */
struct pool_range {
    uint32_t offset, length;
};

/* Numbers by strings; zero-initialise. */
struct byte_map {
    char *pool; /* (pool_size) the strings, one after another */
    size_t pool_size, pool_capacity;
    struct byte_entry {
        uint64_t hash;
        struct pool_range key;
        uint32_t value;
        bool is_used;
    } * slots; /* (slot_count), a power of two */
    size_t slot_count, count;
};

/* ---- words ---- */

/* The end of the word at text (size > 0), whose end is that of the text for the regular expression. */
typedef size_t word_end(const char *text, size_t size);

word_end words_gpt2; /* that of ByteLevel's use_regex */

/* ---- the tokenizer ---- */

/* A pair of tokens that becomes one. */
struct merge {
    uint32_t left, right; /* TOKEN_NONE: a free slot */
    uint32_t rank, result;
};

/* Content and id of an added token. */
struct added_token {
    struct pool_range content;
    uint32_t id;
    bool takes_left, takes_right; /* white space beside it: lstrip, rstrip */
};

/* Added tokens that are searched together. */
struct added_set {
    struct added_token *items; /* (count), sorted by their contents */
    size_t count;
    bool starts[256]; /* the first bytes */
};

struct tokenizer {
    struct byte_map vocabulary; /* ids of the tokens that are bytes; its pool has the bytes of all tokens */
    struct pool_range *tokens;  /* (size) by id; length 0: no token */
    size_t size;
    uint32_t bytes[256];  /* ids of the single bytes; TOKEN_NONE: no token */
    struct merge *merges; /* (merge_slots) hash table by left and right, a power of two */
    size_t merge_slots;
    struct added_set added[2]; /* the second is searched in what the first leaves, normalized */
    bool is_nfc;               /* that part of a text is brought to the form NFC */
    word_end *word_end;
    bool has_prefix_space; /* add_prefix_space */
    int32_t padding;       /* -1: none */
    bool ignores_merges;   /* a word that is a token needs no merges */
    /* WordLevel: words between white space; [replaced] in a text becomes [replacement] first. */
    bool is_word_level;
    uint32_t unknown;
    struct pool_range replaced, replacement; /* length 0: nothing */
    /* WordPiece: each word is the longest piece at its start, then the longest ones behind [prefix]. */
    bool is_word_piece, cleans, spaces_chinese, strips_accents, lowers;
    struct pool_range prefix;
    size_t max_characters;   /* of a word; longer ones are unknown */
    struct unigram *unigram; /* NULL: another model */
};

/* ---- bytes to ids ---- */

/* Open addressing, at most half full; the strings are in one block, so that a clear is cheap. */

#define FIRST_SLOTS 1024

static uint64_t byte_map_hash(const char *bytes, size_t size) {
    const uint64_t odd = 0x9e3779b97f4a7c15u;
    uint64_t hash = (size + 1) * odd, word;
    for (; size >= sizeof word; bytes += sizeof word, size -= sizeof word) {
        memcpy(&word, bytes, sizeof word);
        hash = (hash ^ word) * odd;
        hash ^= hash >> 32;
    }
    word = 0;
    for (size_t i = 0; i < size; i++) word |= (uint64_t)(uint8_t)bytes[i] << 8 * i;
    hash = (hash ^ word) * odd;
    return hash ^ hash >> 29;
}

static struct byte_entry *slot_of(const struct byte_map *map, uint64_t hash, const char *bytes, size_t size) {
    for (size_t i = hash & (map->slot_count - 1);; i = (i + 1) & (map->slot_count - 1)) {
        struct byte_entry *entry = &map->slots[i];
        if (!entry->is_used) return entry;
        if (entry->hash == hash && entry->key.length == size && memcmp(map->pool + entry->key.offset, bytes, size) == 0)
            return entry;
    }
}

/* NULL: not in the map. */
static const struct byte_entry *byte_map_find(const struct byte_map *map, uint64_t hash, const char *bytes,
                                              size_t size) {
    if (map->slot_count == 0) return NULL;
    const struct byte_entry *entry = slot_of(map, hash, bytes, size);
    return entry->is_used ? entry : NULL;
}

static status grow(struct byte_map *map) {
    size_t before = map->slot_count, count = before ? 2 * before : FIRST_SLOTS;
    struct byte_entry *old = map->slots, *slots = calloc(count, sizeof *slots);
    if (!slots) return status_memory("the tokenizer");
    map->slots = slots;
    map->slot_count = count;
    for (size_t i = 0; i < before; i++)
        if (old[i].is_used) *slot_of(map, old[i].hash, map->pool + old[i].key.offset, old[i].key.length) = old[i];
    free(old);
    return OK;
}

/* Adds [bytes] to the pool only. */
static status byte_map_keep(struct byte_map *map, const char *bytes, size_t size, struct pool_range *out) {
    if (size > UINT32_MAX - map->pool_size) return status_data("the tokens have more than 4 GiB");
    TRY(array_grow(&map->pool, &map->pool_capacity, map->pool_size + size, 1, "the tokenizer"));
    memcpy(map->pool + map->pool_size, bytes, size);
    *out = (struct pool_range){(uint32_t)map->pool_size, (uint32_t)size};
    map->pool_size += size;
    return OK;
}

/* Adds [bytes], which is not in the map; at most 4 GiB in all. */
static status byte_map_add(struct byte_map *map, uint64_t hash, const char *bytes, size_t size, uint32_t value) {
    struct pool_range key;
    if (2 * (map->count + 1) > map->slot_count) TRY(grow(map));
    TRY(byte_map_keep(map, bytes, size, &key));
    *slot_of(map, hash, bytes, size) = (struct byte_entry){hash, key, value, true};
    map->count++;
    return OK;
}

/* keeps the memory */
static void byte_map_clear(struct byte_map *map) {
    if (map->slots) memset(map->slots, 0, map->slot_count * sizeof *map->slots);
    map->pool_size = map->count = 0;
}

static void byte_map_free(struct byte_map *map) {
    free(map->slots);
    free(map->pool);
}

/* ---- words ---- */

/* The regular expressions that cut a text into words, as functions: there are three in use, and a function for one is
 * an order of magnitude faster than a general matcher. None looks behind, so a word depends on what follows only. */

/* The class of the first character of text (size > 0), and its length. */
static enum unicode_class class_at(const char *text, size_t size, size_t *length) {
    uint8_t first = (uint8_t)text[0];
    uint32_t code = first;
    *length = 1;
    if ((uint8_t)((first | 0x20) - 'a') < 26) return UNICODE_LETTER;
    if (first >= 0x80) *length = utf8_decode(text, size, &code);
    assert(*length > 0);
    return unicode_class(code);
}

/* The end of the characters of [class] from [at] on. */
static size_t run_end(const char *text, size_t size, size_t at, enum unicode_class class) {
    size_t length;
    for (; at < size && class_at(text + at, size - at, &length) == class; at += length) {
    }
    return at;
}

/* 's|'t|'re|'ve|'m|'ll|'d at an apostrophe; 0: none of them. U+017F is another lower case of S. */
static size_t contraction_end(const char *text, size_t size, bool ignores_case) {
    static const char *const endings[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t length = strlen(endings[i]), same = 0;
        if (size <= length) continue;
        while (same < length && (text[1 + same] | (ignores_case ? 0x20 : 0)) == endings[i][same]) same++;
        if (same == length) return 1 + length;
    }
    return ignores_case && size > 2 && memcmp(text + 1, "\u017f", 2) == 0 ? 3 : 0;
}

/* \s+(?!\S)|\s+ at white space: without the last character where a word follows, unless it is the only one. */
static size_t spaces_end(const char *text, size_t size) {
    size_t last = 0, at = 0, length;
    for (; at < size && class_at(text + at, size - at, &length) == UNICODE_SPACE; at += length) last = at;
    return at == size || last == 0 ? at : last;
}

/* '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
size_t words_gpt2(const char *text, size_t size) {
    size_t end = text[0] == '\'' ? contraction_end(text, size, false) : 0, length;
    if (end) return end;
    size_t start = text[0] == ' ' && size > 1;
    enum unicode_class class = class_at(text + start, size - start, &length);
    return class == UNICODE_SPACE ? spaces_end(text, size) : run_end(text, size, start + length, class);
}

static bool is_newline(char c) { return c == '\n' || c == '\r'; }

/* \s*[\r\n]+ at white space; 0: there is no newline. */
static size_t newlines_end(const char *text, size_t size) {
    size_t end = 0, length;
    for (size_t at = 0; at < size && class_at(text + at, size - at, &length) == UNICODE_SPACE; at += length)
        if (is_newline(text[at])) end = at + 1;
    return end;
}

/* [^\r\n\p{L}\p{N}]?\p{L}+; 0: it does not match. */
static size_t letters_end(const char *text, size_t size) {
    size_t length, next = 0;
    enum unicode_class class = class_at(text, size, &length);
    if (class == UNICODE_LETTER) return run_end(text, size, length, class);
    if (class == UNICODE_NUMBER || is_newline(text[0]) || length == size) return 0;
    if (class_at(text + length, size - length, &next) != UNICODE_LETTER) return 0;
    return run_end(text, size, length + next, UNICODE_LETTER);
}

/* \p{N}{1,max} at a number. */
static size_t numbers_end(const char *text, size_t size, size_t max) {
    size_t at = 0, length;
    for (size_t n = 0; n < max && at < size && class_at(text + at, size - at, &length) == UNICODE_NUMBER; n++)
        at += length;
    return at;
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,max}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|
 * \s+(?!\S)|\s+ */
static size_t with_max_numbers(const char *text, size_t size, size_t max) {
    size_t end = text[0] == '\'' ? contraction_end(text, size, true) : 0, length;
    if (!end) end = letters_end(text, size);
    if (end) return end;
    if (class_at(text, size, &length) == UNICODE_NUMBER) return numbers_end(text, size, max);
    size_t start = text[0] == ' ' && size > 1;
    if (class_at(text + start, size - start, &length) == UNICODE_OTHER) {
        end = run_end(text, size, start + length, UNICODE_OTHER);
        while (end < size && is_newline(text[end])) end++;
        return end;
    }
    end = newlines_end(text, size);
    return end ? end : spaces_end(text, size);
}

static size_t words_llama3(const char *text, size_t size) { return with_max_numbers(text, size, 3); }
static size_t words_qwen2(const char *text, size_t size) { return with_max_numbers(text, size, 1); }

#define CONTRACTIONS "'s|'t|'re|'ve|'m|'ll|'d"
#define REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct {
    const char *pattern;
    word_end *end;
} patterns[] = {
    {CONTRACTIONS "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", words_gpt2},
    {"(?i:" CONTRACTIONS ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" REST, words_llama3},
    {"(?i:" CONTRACTIONS ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" REST, words_qwen2},
};

/* The function of a regular expression; NULL: not supported. */
static word_end *words_of_pattern(const char *pattern) {
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (strcmp(patterns[i].pattern, pattern) == 0) return patterns[i].end;
    return NULL;
}

/* ---- encoding ---- */

/* Most words of a text were seen before, so their tokens are kept; the pairs of a new word are merged with a heap,
 * which takes n log n steps also for a word of a million bytes. */

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
    struct unigram_search search; /* of Unigram */
    bool is_first;                /* the part of a text that is encoded is its start */
};

static status reserve_ids(struct token_list *list, size_t count) {
    return array_grow(&list->ids, &list->capacity, list->count + count, sizeof *list->ids, "the tokens of a text");
}

/* Adds a token; the memory was reserved. */
static void put(struct token_list *list, uint32_t id) { list->ids[list->count++] = (int32_t)id; }

/* ---- merges ---- */

/* The slot of a pair: its merge, or a free one. */
static struct merge *tokenizer_merge(const struct tokenizer *tokenizer, uint32_t left, uint32_t right) {
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
    if (size > MAX_WORD) return status_data("the text has a word of more than 1 GiB");
    TRY(reserve_symbols(e, size));
    for (size_t i = 0; i < size; i++) {
        uint32_t id = e->tokenizer->bytes[(uint8_t)word[i]];
        if (id == TOKEN_NONE)
            return status_data("the tokenizer has no token for the byte 0x%02x", (unsigned)(uint8_t)word[i]);
        uint32_t next = i + 1 < size ? (uint32_t)i + 1 : NONE;
        e->symbols[i] = (struct symbol){.id = id, .previous = i ? (uint32_t)i - 1 : NONE, .next = next};
    }
    return OK;
}

static status encode_new_word(struct encoder *e, uint64_t hash, const char *word, size_t size) {
    const struct tokenizer *t = e->tokenizer;
    const struct byte_entry *token = t->ignores_merges ? byte_map_find(&t->vocabulary, hash, word, size) : NULL;
    TRY(reserve_ids(e->out, size));
    if (t->unigram) return unigram_encode(t->unigram, &e->search, word, size, e->out);
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

/* ---- WordLevel ---- */

/* The word at text (size > 0), which begins with no white space. */
static size_t plain_word(const char *text, size_t size) {
    size_t at = 0, length;
    for (; at < size && class_at(text + at, size - at, &length) != UNICODE_SPACE; at += length) {
    }
    return at;
}

/* Adds the words of a text in which nothing is left to replace. */
static status encode_levels(struct encoder *e, const char *text, size_t size) {
    const struct tokenizer *t = e->tokenizer;
    for (size_t at = 0, length; at < size; at += length) {
        if (class_at(text + at, size - at, &length) == UNICODE_SPACE) continue;
        length = plain_word(text + at, size - at);
        const struct byte_entry *known =
            byte_map_find(&t->vocabulary, byte_map_hash(text + at, length), text + at, length);
        TRY(reserve_ids(e->out, 1));
        put(e->out, known ? known->value : t->unknown);
    }
    return OK;
}

/* A word may begin before what is replaced and end after it, so the whole text is copied. */
static status encode_replaced(struct encoder *e, const char *text, size_t size) {
    const struct tokenizer *t = e->tokenizer;
    const char *pool = t->vocabulary.pool, *found;
    struct normalized copy = {0};
    status s = OK;
    for (size_t at = 0; at < size && !s; at = found ? (size_t)(found - text) + t->replaced.length : size) {
        found = t->replaced.length ? memmem(text + at, size - at, pool + t->replaced.offset, t->replaced.length) : NULL;
        s = normalized_add(&copy, text + at, found ? (size_t)(found - text) - at : size - at);
        if (found && !s) s = normalized_add(&copy, pool + t->replacement.offset, t->replacement.length);
    }
    if (!s) s = encode_levels(e, copy.text, copy.size);
    free(copy.text);
    return s;
}

/* ---- WordPiece, as of BERT ---- */

#define MAX_PIECE_WORD 10000 /* characters: pieces are searched in quadratic time */

/* A word while its characters are found. */
struct piece_word {
    struct encoder *e;
    struct normalized bytes, key; /* key: the prefix and what is searched */
    size_t characters;
};

/* The piece of bytes [at, end) of the word; NULL: none. */
static const struct byte_entry *find_piece(struct piece_word *w, size_t at, size_t end) {
    const struct tokenizer *t = w->e->tokenizer;
    size_t prefix = at > 0 ? t->prefix.length : 0;
    memcpy(w->key.text + prefix, w->bytes.text + at, end - at);
    if (prefix) memcpy(w->key.text, t->vocabulary.pool + t->prefix.offset, prefix);
    size_t size = prefix + end - at;
    return byte_map_find(&t->vocabulary, byte_map_hash(w->key.text, size), w->key.text, size);
}

/* The longest pieces from left to right; false: some characters have none. */
static bool put_pieces(struct piece_word *w) {
    for (size_t at = 0, end; at < w->bytes.size; at = end) {
        const struct byte_entry *found = NULL;
        for (end = w->bytes.size; end > at && !(found = find_piece(w, at, end)); end--)
            while (end > at + 1 && ((uint8_t)w->bytes.text[end - 1] & 0xc0) == 0x80) end--; /* to a first byte */
        if (!found) return false;
        put(w->e->out, found->value);
    }
    return true;
}

static status end_word(struct piece_word *w) {
    const struct tokenizer *t = w->e->tokenizer;
    size_t before = w->e->out->count, size = w->bytes.size;
    if (size == 0) return OK;
    w->key.size = 0;
    /* Memory for the longest key; NOLINTNEXTLINE(clang-analyzer-unix.Malloc): encode_pieces frees it */
    TRY(normalized_add(&w->key, w->bytes.text, size));
    if (t->prefix.length) TRY(normalized_add(&w->key, t->vocabulary.pool + t->prefix.offset, t->prefix.length));
    TRY(reserve_ids(w->e->out, size));
    if (w->characters > t->max_characters || !put_pieces(w)) {
        w->e->out->count = before;
        put(w->e->out, t->unknown);
    }
    w->bytes.size = w->characters = 0;
    return OK;
}

static bool is_punctuation(utf8proc_int32_t code) {
    utf8proc_category_t c = utf8proc_category(code);
    bool is_ascii = code < 0x80 && c >= UTF8PROC_CATEGORY_SM && c <= UTF8PROC_CATEGORY_SO;
    return is_ascii || (c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO);
}

/* BERT's CJK ideographs. */
static bool is_chinese(uint32_t code) {
    static const uint32_t ranges[][2] = {{0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df},
                                         {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf},
                                         {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};
    bool is_inside = false;
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        is_inside = is_inside || (code >= ranges[i][0] && code <= ranges[i][1]);
    return is_inside;
}

/* A normalized character: white space and punctuation end a word, and the second is one of its own. */
static status add_character(struct piece_word *w, uint32_t code) {
    char bytes[4];
    size_t size = utf8_write(code, bytes);
    bool is_sign = is_punctuation((utf8proc_int32_t)code);
    if (is_sign || unicode_class(code) == UNICODE_SPACE) TRY(end_word(w));
    if (unicode_class(code) == UNICODE_SPACE) return OK;
    TRY(normalized_add(&w->bytes, bytes, size));
    w->characters++;
    return is_sign ? end_word(w) : OK;
}

#define DOTTED_I 0x130 /* its lower case is two characters */
#define MAX_DECOMPOSED 8

/* The characters that the normalizer makes of one. */
static status normalize_character(struct piece_word *w, uint32_t code) {
    const struct tokenizer *t = w->e->tokenizer;
    utf8proc_int32_t parts[MAX_DECOMPOSED] = {(utf8proc_int32_t)code};
    utf8proc_ssize_t count = 1;
    if (t->strips_accents)
        count = utf8proc_decompose_char((utf8proc_int32_t)code, parts, MAX_DECOMPOSED,
                                        UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, NULL);
    for (utf8proc_ssize_t i = 0; i < count && i < MAX_DECOMPOSED; i++) {
        if (t->strips_accents && utf8proc_category(parts[i]) == UTF8PROC_CATEGORY_MN) continue;
        TRY(add_character(w, (uint32_t)(t->lowers ? utf8proc_tolower(parts[i]) : parts[i])));
        if (t->lowers && parts[i] == DOTTED_I) TRY(add_character(w, 0x307));
    }
    return OK;
}

/* Characters that cleaning removes; all white space is a blank. */
static bool is_removed(uint32_t code) {
    if (code == '\t' || code == '\n' || code == '\r') return false;
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)code);
    return code == 0xfffd || c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF || c == UTF8PROC_CATEGORY_CO;
}

static status encode_pieces(struct encoder *e, const char *text, size_t size) {
    const struct tokenizer *t = e->tokenizer;
    struct piece_word word = {.e = e};
    uint32_t code;
    status s = OK;
    for (size_t at = 0; at < size && !s;) {
        at += utf8_decode(text + at, size - at, &code);
        if (t->cleans && is_removed(code)) continue;
        bool is_own = t->spaces_chinese && is_chinese(code);
        if (is_own) s = end_word(&word);
        if (!s) s = normalize_character(&word, code);
        if (!s && is_own) s = end_word(&word);
    }
    if (!s) s = end_word(&word);
    free(word.bytes.text);
    free(word.key.text);
    return s;
}

/* ---- Unigram ---- */

static status encode_unigram(struct encoder *e, const char *text, size_t size) {
    const struct unigram *unigram = e->tokenizer->unigram;
    struct normalized words = {0};
    status s = unigram_pretokenize(unigram, text, size, e->is_first, &words);
    for (size_t at = 0, length, skipped; at < words.size && !s; at += skipped + length) {
        length = unigram_word(unigram, words.text + at, words.size - at, &skipped);
        s = encode_word(e, words.text + at + skipped, length);
    }
    free(words.text);
    return s;
}

static status encode_plain(struct encoder *e, const char *text, size_t size) {
    if (e->tokenizer->unigram) return size ? encode_unigram(e, text, size) : OK;
    if (e->tokenizer->is_word_piece) return encode_pieces(e, text, size);
    if (e->tokenizer->is_word_level) return encode_replaced(e, text, size);
    if (!e->tokenizer->has_prefix_space || text[0] == ' ') return encode_words(e, text, size);
    SCOPED_BUFFER char *longer = NULL;
    TRY(buffer_new(size + 1, "the tokens of a text", &longer));
    longer[0] = ' ';
    memcpy(longer + 1, text, size);
    return encode_words(e, longer, size + 1);
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
        e->is_first = false;
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
    const struct tokenizer *t = e->tokenizer;
    struct normalized normalized = {0};
    if (set != 1 || (!t->unigram && (!t->is_nfc || is_ascii_text(text, size)))) return encode_from(e, set, text, size);
    status s = t->unigram ? normalizer_run(unigram_normalizer(t->unigram), text, size, &normalized)
                          : normalize_form(NORMAL_NFC, text, size, &normalized);
    if (!s) s = encode_from(e, set, normalized.text, normalized.size);
    free(normalized.text);
    return s;
}

status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t size, struct token_list *out) {
    struct encoder e = {.tokenizer = tokenizer, .out = out, .is_first = true};
    status s = size ? encode_between(&e, 0, text, size) : OK;
    byte_map_free(&e.words);
    free(e.cached.ids);
    free(e.symbols);
    free(e.heap);
    free(e.search.nodes);
    return s;
}

void tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, size_t count, bool is_start,
                      struct text *out) {
    for (size_t i = 0; i < count; i++) {
        assert(ids[i] >= 0 && (size_t)ids[i] < tokenizer->size);
        struct pool_range token = tokenizer->tokens[ids[i]];
        const char *bytes = tokenizer->vocabulary.pool + token.offset;
        if (tokenizer->unigram)
            unigram_decode(tokenizer->unigram, bytes, token.length, is_start && i == 0, out);
        else
            text_add_bytes(out, bytes, token.length);
    }
}

/* ---- tokenizer.json ---- */

/* tokenizer.json: JSON (jansson limits the depth and rejects duplicates), then each part is checked before it is used.
 * What would change the tokens of a text and is not supported is an error; what an encoding without special tokens does
 * not use (post_processor, truncation, padding) is ignored. */

#define MAX_MERGES ((size_t)4 << 20)
#define BYTE_LEVEL_CODES 324 /* code points that stand for bytes are below it */

struct reader {
    struct tokenizer *tokenizer;
    const json_t *root, *model;
    int16_t byte_of[BYTE_LEVEL_CODES]; /* the byte of a code point; -1: none */
    char *scratch;                     /* (size of the file) bytes of a token */
    uint32_t unknown;                  /* the token for bytes without one; TOKEN_NONE: none */
};

/* ---- tokens ---- */

/* The code points that stand for the bytes in tokenizer.json, GPT-2's bytes_to_unicode: printable bytes of Latin-1 for
 * themselves, 256, 257, ... for the others. */
static void tokenizer_byte_letters(uint32_t letters[256]) {
    uint32_t others = 256;
    for (uint32_t byte = 0; byte < 256; byte++) {
        bool is_printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
        letters[byte] = is_printable ? byte : others++;
    }
}

static void list_bytes(int16_t *byte_of) {
    uint32_t letters[256];
    tokenizer_byte_letters(letters);
    for (size_t code = 0; code < BYTE_LEVEL_CODES; code++) byte_of[code] = -1;
    for (int16_t byte = 0; byte < 256; byte++) byte_of[letters[byte]] = byte;
}

/* Writes the bytes of a token to the scratch memory; false: it has characters that stand for no byte. */
static bool bytes_of_token(struct reader *r, const char *token, size_t size, size_t *count) {
    uint32_t code;
    *count = 0;
    for (size_t at = 0, length; at < size; at += length) {
        length = utf8_decode(token + at, size - at, &code);
        if (length == 0 || code >= BYTE_LEVEL_CODES || r->byte_of[code] < 0) return false;
        r->scratch[(*count)++] = (char)r->byte_of[code];
    }
    return true;
}

static status check_id(const char *token, const json_t *id, uint32_t *out) {
    json_int_t value = json_integer_value(id);
    if (!json_is_integer(id) || value < 0 || value >= TOKENIZER_MAX_TOKENS)
        return bad("the id of the token '%s' is not a number from 0 to %d", token, TOKENIZER_MAX_TOKENS - 1);
    *out = (uint32_t)value;
    return OK;
}

/* Whether the word is what stands for the text that is replaced, apart from white space around it. */
static bool is_replacement(const struct tokenizer *t, const char *word, size_t size) {
    const char *text = t->vocabulary.pool + t->replacement.offset, *end = text + t->replacement.length;
    while (text < end && *text == ' ') text++;
    while (end > text && end[-1] == ' ') end--;
    return t->replaced.length && (size_t)(end - text) == size && memcmp(text, word, size) == 0;
}

/* A token of WordLevel or WordPiece, and what decoding writes for it. */
static status add_level(struct reader *r, const char *token, size_t size, uint32_t id) {
    struct tokenizer *t = r->tokenizer;
    TRY(byte_map_add(&t->vocabulary, byte_map_hash(token, size), token, size, id));
    if (is_replacement(t, token, size)) {
        t->tokens[id] = t->replaced;
        return OK;
    }
    size_t prefix = t->prefix.length;
    if (prefix && size > prefix && memcmp(token, t->vocabulary.pool + t->prefix.offset, prefix) == 0)
        return byte_map_keep(&t->vocabulary, token + prefix, size - prefix, &t->tokens[id]);
    r->scratch[0] = ' ';
    memcpy(r->scratch + 1, token, size);
    return byte_map_keep(&t->vocabulary, r->scratch, size + 1, &t->tokens[id]);
}

/* Keeps the bytes of a token of the vocabulary. */
static status add_token(struct reader *r, const char *token, uint32_t id) {
    struct tokenizer *t = r->tokenizer;
    size_t size = strlen(token), count;
    if (size == 0) return bad("the token %u has no characters", id);
    if (t->tokens[id].length > 0) return bad("the tokens '%s' and another have the id %u", token, id);
    if (t->is_word_level || t->is_word_piece) return add_level(r, token, size, id);
    if (!bytes_of_token(r, token, size, &count)) return byte_map_keep(&t->vocabulary, token, size, &t->tokens[id]);
    uint64_t hash = byte_map_hash(r->scratch, count);
    TRY(byte_map_add(&t->vocabulary, hash, r->scratch, count, id));
    t->tokens[id] = (struct pool_range){(uint32_t)(t->vocabulary.pool_size - count), (uint32_t)count};
    return OK;
}

/* The largest id + 1 of the vocabulary and the added tokens. */
static status find_size(struct reader *r, const json_t *vocabulary, const json_t *added) {
    const char *token;
    json_t *value;
    size_t i;
    uint32_t id = 0;
    json_object_foreach((json_t *)vocabulary, token, value) {
        TRY(check_id(token, value, &id));
        if (id >= r->tokenizer->size) r->tokenizer->size = id + 1;
    }
    json_array_foreach(added, i, value) {
        const char *content = json_string_value(json_object_get(value, "content"));
        if (!content || !*content) return bad("added token %zu has no content", i + 1);
        TRY(check_id(content, json_object_get(value, "id"), &id));
        if (id >= r->tokenizer->size) r->tokenizer->size = id + 1;
    }
    return r->tokenizer->size ? OK : bad("the vocabulary is empty");
}

static status read_vocabulary(struct reader *r) {
    struct tokenizer *t = r->tokenizer;
    const json_t *vocabulary = json_object_get(r->model, "vocab"), *added = json_object_get(r->root, "added_tokens");
    const char *token;
    json_t *value;
    if (!t->unigram && !json_is_object(vocabulary)) return bad("model.vocab is not an object of tokens and ids");
    if (!is_absent(added) && !json_is_array(added)) return bad("added_tokens is not a list");
    if (t->unigram) t->size = unigram_size(t->unigram);
    TRY(find_size(r, vocabulary, added));
    t->tokens = calloc(t->size ? t->size : 1, sizeof *t->tokens);
    if (!t->tokens) return status_memory("the tokenizer");
    json_object_foreach((json_t *)vocabulary, token, value) {
        TRY(add_token(r, token, (uint32_t)json_integer_value(value)));
    }
    for (size_t i = 0; t->unigram && i < unigram_size(t->unigram); i++) {
        token = json_string_value(json_array_get(json_array_get(vocabulary, i), 0));
        TRY(byte_map_keep(&t->vocabulary, token, strlen(token), &t->tokens[i]));
    }
    return OK;
}

/* The id of a token of the vocabulary that stands for bytes; NULL: it is not there. */
static const struct byte_entry *find_token(struct reader *r, const char *token, size_t size) {
    size_t count;
    if (!bytes_of_token(r, token, size, &count)) return NULL;
    return byte_map_find(&r->tokenizer->vocabulary, byte_map_hash(r->scratch, count), r->scratch, count);
}

static status find_unknown(struct reader *r) {
    const json_t *unknown = json_object_get(r->model, "unk_token");
    r->unknown = TOKEN_NONE;
    if (is_absent(unknown)) return OK;
    const json_t *id = json_object_get(json_object_get(r->model, "vocab"), json_string_value(unknown));
    if (!json_is_string(unknown) || !id) return bad("model.unk_token is not in the vocabulary");
    r->unknown = (uint32_t)json_integer_value(id);
    return OK;
}

static status find_bytes(struct reader *r) {
    struct tokenizer *t = r->tokenizer;
    bool is_complete = true;
    TRY(find_unknown(r));
    for (unsigned byte = 0; byte < 256; byte++) {
        char bytes[] = {(char)byte};
        const struct byte_entry *entry = byte_map_find(&t->vocabulary, byte_map_hash(bytes, 1), bytes, 1);
        is_complete = is_complete && entry;
        t->bytes[byte] = entry ? entry->value : r->unknown;
    }
    if (!is_complete && r->unknown != TOKEN_NONE && flag_of(r->model, "fuse_unk", false))
        return bad("model.fuse_unk is not supported for a vocabulary without all 256 bytes");
    return OK;
}

/* ---- added tokens ---- */

/* The id of a token of the vocabulary; -1: it is not there. */
static int64_t id_of_token(const struct reader *r, const char *token) {
    const json_t *id = json_object_get(json_object_get(r->model, "vocab"), token);
    if (r->tokenizer->unigram) return unigram_find(r->tokenizer->unigram, token, strlen(token));
    return id ? json_integer_value(id) : -1;
}

/* Replaces what is searched for an added token by its normalized form. */
static status normalize_content(struct tokenizer *t, struct added_token *token) {
    struct pool_range content = token->content;
    struct normalized text;
    status s =
        normalizer_run(unigram_normalizer(t->unigram), t->vocabulary.pool + content.offset, content.length, &text);
    if (!s && text.size == 0) s = bad("the added token %u has no characters after the normalizer", token->id);
    if (!s) s = byte_map_keep(&t->vocabulary, text.text, text.size, &token->content);
    free(text.text);
    return s;
}

static status add_added(struct reader *r, const json_t *value) {
    struct tokenizer *t = r->tokenizer;
    const char *content = json_string_value(json_object_get(value, "content"));
    uint32_t id = (uint32_t)json_integer_value(json_object_get(value, "id"));
    int64_t known = id_of_token(r, content);
    struct added_set *set = &t->added[flag_of(value, "normalized", !flag_of(value, "special", false))];
    struct added_token *token = &set->items[set->count++];
    token->id = id;
    if (flag_of(value, "single_word", false)) return bad("added token '%s': single_word is not supported", content);
    if (t->is_nfc && set == &t->added[1] && !is_ascii_text(content, strlen(content)))
        return bad("added token '%s': normalized by NFC and not ASCII, which is not supported", content);
    if ((known >= 0 && known != id) || (known < 0 && t->tokens[id].length > 0))
        return bad("added token '%s' has the id %u, but the vocabulary has another token of this id", content, id);
    TRY(byte_map_keep(&t->vocabulary, content, strlen(content), &token->content));
    if (t->unigram && set == &t->added[1]) TRY(normalize_content(t, token));
    t->tokens[id] = token->content;
    token->takes_left = flag_of(value, "lstrip", false);
    token->takes_right = flag_of(value, "rstrip", false);
    set->starts[(uint8_t)t->vocabulary.pool[token->content.offset]] = true;
    return OK;
}

static int by_content(const void *a, const void *b, void *pool) {
    struct pool_range x = ((const struct added_token *)a)->content, y = ((const struct added_token *)b)->content;
    int order = memcmp((char *)pool + x.offset, (char *)pool + y.offset, x.length < y.length ? x.length : y.length);
    return order ? order : (x.length > y.length) - (x.length < y.length);
}

static status read_added(struct reader *r) {
    struct tokenizer *t = r->tokenizer;
    const json_t *added = json_object_get(r->root, "added_tokens");
    size_t count = json_array_size(added);
    for (size_t i = 0; i < 2; i++) {
        t->added[i].items = calloc(count + 1, sizeof *t->added[i].items);
        if (!t->added[i].items) return status_memory("the tokenizer");
    }
    for (size_t i = 0; i < count; i++) TRY(add_added(r, json_array_get(added, i)));
    for (size_t i = 0; i < 2; i++)
        qsort_r(t->added[i].items, t->added[i].count, sizeof *t->added[i].items, by_content, t->vocabulary.pool);
    return OK;
}

/* ---- merges ---- */

/* The tokens of merge number [index]: "a b" or ["a", "b"]. */
static status parts_of_merge(struct reader *r, size_t index, const json_t *value, const struct byte_entry **left,
                             const struct byte_entry **right) {
    const char *a = json_string_value(json_is_array(value) ? json_array_get(value, 0) : value), *b;
    size_t size;
    if (json_is_array(value) && json_array_size(value) == 2) {
        b = json_string_value(json_array_get(value, 1));
        size = a ? strlen(a) : 0;
    } else {
        b = json_is_string(value) ? strchr(a, ' ') : NULL;
        size = b ? (size_t)(b++ - a) : 0;
    }
    if (!a || !b || strchr(b, ' ')) return bad("merge %zu is not two tokens", index + 1);
    *left = find_token(r, a, size);
    *right = find_token(r, b, strlen(b));
    if (!*left || !*right)
        return bad("merge %zu: '%.*s' is not in the vocabulary", index + 1, *left ? (int)strlen(b) : (int)size,
                   *left ? b : a);
    return OK;
}

static status add_merge(struct reader *r, size_t index, const json_t *value) {
    struct tokenizer *t = r->tokenizer;
    const struct byte_entry *left = NULL, *right = NULL;
    TRY(parts_of_merge(r, index, value, &left, &right));
    size_t count = left->key.length + right->key.length;
    memcpy(r->scratch, t->vocabulary.pool + left->key.offset, left->key.length);
    memcpy(r->scratch + left->key.length, t->vocabulary.pool + right->key.offset, right->key.length);
    const struct byte_entry *result =
        byte_map_find(&t->vocabulary, byte_map_hash(r->scratch, count), r->scratch, count);
    if (!result) return bad("merge %zu: its result is not in the vocabulary", index + 1);
    *tokenizer_merge(t, left->value, right->value) =
        (struct merge){left->value, right->value, (uint32_t)index, result->value};
    return OK;
}

static status read_merges(struct reader *r) {
    struct tokenizer *t = r->tokenizer;
    const json_t *merges = json_object_get(r->model, "merges");
    size_t count = json_array_size(merges);
    if (!json_is_array(merges)) return bad("model.merges is not a list");
    if (count > MAX_MERGES) return bad("%zu merges; at most %zu are supported", count, MAX_MERGES);
    for (t->merge_slots = 2; t->merge_slots < 2 * count;) t->merge_slots *= 2;
    t->merges = malloc(t->merge_slots * sizeof *t->merges);
    if (!t->merges) return status_memory("the tokenizer");
    for (size_t i = 0; i < t->merge_slots; i++) t->merges[i].left = TOKEN_NONE;
    for (size_t i = 0; i < count; i++) TRY(add_merge(r, i, json_array_get(merges, i)));
    return OK;
}

/* ---- the parts of the pipeline ---- */

static status check_model(const struct reader *r) {
    const json_t *model = r->model, *dropout = json_object_get(model, "dropout");
    const char *type = json_string_value(json_object_get(model, "type"));
    if (!json_is_object(model)) return bad("it has no model; is this a tokenizer.json of Hugging Face?");
    r->tokenizer->is_word_level = type && strcmp(type, "WordLevel") == 0;
    r->tokenizer->is_word_piece = type && strcmp(type, "WordPiece") == 0;
    if (r->tokenizer->is_word_level || r->tokenizer->is_word_piece) return OK;
    if (type && strcmp(type, "Unigram") == 0) return unigram_read(r->root, &r->tokenizer->unigram);
    if (type && strcmp(type, "BPE") != 0)
        return bad("the model '%s' is not supported; byte-level BPE (as of GPT-2 and Llama 3), WordPiece (as of BERT), "
                   "Unigram (as of T5) and WordLevel are",
                   type);
    if (json_number_value(dropout) != 0) return bad("model.dropout makes tokens random, which is not supported");
    if (flag_of(model, "byte_fallback", false))
        return bad("model.byte_fallback is not supported; byte-level BPE is (as of GPT-2 and Llama 3)");
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 2; i++) {
        const char *affix = json_string_value(json_object_get(model, affixes[i]));
        if (affix && *affix) return bad("model.%s is not supported", affixes[i]);
    }
    return OK;
}

static status no_byte_level(void) {
    return bad("pre_tokenizer must be ByteLevel, or a Sequence of Split by a regular expression and ByteLevel; others "
               "are not supported");
}

/* [{"type": "Split", "pattern": {"Regex": "..."}, "behavior": "Isolated"}, {"type": "ByteLevel", "use_regex": false}]
 */
static status read_sequence(struct tokenizer *t, const json_t *parts) {
    const json_t *split = json_array_get(parts, 0), *byte_level = json_array_get(parts, 1);
    const char *behavior = json_string_value(json_object_get(split, "behavior"));
    const char *pattern = json_string_value(json_object_get(json_object_get(split, "pattern"), "Regex"));
    if (json_array_size(parts) != 2 || !is_type(split, "Split") || !is_type(byte_level, "ByteLevel"))
        return no_byte_level();
    if (!behavior || strcmp(behavior, "Isolated") != 0 || flag_of(split, "invert", false))
        return bad("pre_tokenizer: Split must have the behavior Isolated without invert; others are not supported");
    if (flag_of(byte_level, "use_regex", true) || flag_of(byte_level, "add_prefix_space", true))
        return bad("pre_tokenizer: ByteLevel after Split must have neither use_regex nor add_prefix_space");
    t->word_end = pattern ? words_of_pattern(pattern) : NULL;
    if (!t->word_end)
        return bad(
            "pre_tokenizer: the regular expression of Split is not supported; those of GPT-2, Llama 3 and Qwen 2 are");
    return OK;
}

/* The normalizer Replace of one text by another one, and the words between white space. */
static status read_level_words(const struct reader *r) {
    struct tokenizer *t = r->tokenizer;
    const json_t *pre = json_object_get(r->root, "pre_tokenizer"), *normalizer = json_object_get(r->root, "normalizer");
    const char *from = json_string_value(json_object_get(json_object_get(normalizer, "pattern"), "String"));
    const char *to = json_string_value(json_object_get(normalizer, "content"));
    if (!is_type(pre, "WhitespaceSplit"))
        return bad("pre_tokenizer of a WordLevel model must be WhitespaceSplit; others are not supported");
    if (!is_absent(json_object_get(r->root, "decoder")))
        return bad("the decoder of a WordLevel model must be null; others are not supported");
    if (is_absent(normalizer)) return OK;
    if (!is_type(normalizer, "Replace") || !from || !*from || !to)
        return bad("the normalizer of a WordLevel model must be null or Replace of a text; others are not supported");
    TRY(byte_map_keep(&t->vocabulary, from, strlen(from), &t->replaced));
    return byte_map_keep(&t->vocabulary, to, strlen(to), &t->replacement);
}

/* The normalizer and the words of BERT. */
static status read_piece_words(const struct reader *r) {
    struct tokenizer *t = r->tokenizer;
    const json_t *pre = json_object_get(r->root, "pre_tokenizer"), *normalizer = json_object_get(r->root, "normalizer");
    const json_t *decoder = json_object_get(r->root, "decoder"), *added;
    const json_t *max = json_object_get(r->model, "max_input_chars_per_word");
    const char *prefix = json_string_value(json_object_get(r->model, "continuing_subword_prefix"));
    size_t i;
    if (!is_type(pre, "BertPreTokenizer"))
        return bad("pre_tokenizer of a WordPiece model must be BertPreTokenizer; others are not supported");
    if (!is_absent(normalizer) && !is_type(normalizer, "BertNormalizer"))
        return bad("the normalizer of a WordPiece model must be null or BertNormalizer; others are not supported");
    if (!is_absent(decoder) && !is_type(decoder, "WordPiece"))
        return bad("the decoder of a WordPiece model must be WordPiece; others are not supported");
    json_array_foreach(json_object_get(r->root, "added_tokens"), i, added) {
        if (flag_of(added, "normalized", !flag_of(added, "special", false)))
            return bad("added token %zu: normalized is not supported with a WordPiece model", i + 1);
    }
    bool has_normalizer = !is_absent(normalizer);
    t->cleans = has_normalizer && flag_of(normalizer, "clean_text", true);
    t->spaces_chinese = has_normalizer && flag_of(normalizer, "handle_chinese_chars", true);
    t->lowers = has_normalizer && flag_of(normalizer, "lowercase", true);
    t->strips_accents = has_normalizer && flag_of(normalizer, "strip_accents", t->lowers);
    json_int_t most = json_is_integer(max) ? json_integer_value(max) : 100;
    if (most < 1 || most > MAX_PIECE_WORD)
        return bad("model.max_input_chars_per_word is not a number from 1 to %d", MAX_PIECE_WORD);
    t->max_characters = (size_t)most;
    return byte_map_keep(&t->vocabulary, prefix ? prefix : "##", strlen(prefix ? prefix : "##"), &t->prefix);
}

static status read_words(const struct reader *r) {
    if (r->tokenizer->is_word_piece) return read_piece_words(r);
    if (r->tokenizer->is_word_level) return read_level_words(r);
    if (r->tokenizer->unigram) return OK;
    struct tokenizer *t = r->tokenizer;
    const json_t *pre = json_object_get(r->root, "pre_tokenizer"), *normalizer = json_object_get(r->root, "normalizer");
    const json_t *decoder = json_object_get(r->root, "decoder");
    const char *name = json_string_value(json_object_get(normalizer, "type"));
    t->is_nfc = is_type(normalizer, "NFC");
    if (!is_absent(normalizer) && !t->is_nfc)
        return bad("the normalizer '%s' is not supported; it must be null or NFC", name ? name : "?");
    if (!is_absent(decoder) && !is_type(decoder, "ByteLevel"))
        return bad("the decoder is not supported; it must be ByteLevel");
    t->ignores_merges = flag_of(r->model, "ignore_merges", false);
    if (is_type(pre, "Sequence")) return read_sequence(t, json_object_get(pre, "pretokenizers"));
    if (!is_type(pre, "ByteLevel")) return no_byte_level();
    if (!flag_of(pre, "use_regex", true)) return bad("pre_tokenizer: ByteLevel without use_regex is not supported");
    t->has_prefix_space = flag_of(pre, "add_prefix_space", true);
    t->word_end = words_gpt2;
    return OK;
}

static bool is_padding(const char *content) {
    static const char *const usual[] = {"[PAD]", "<pad>", "<|pad|>", "<|padding|>"};
    for (size_t i = 0; content && i < sizeof usual / sizeof *usual; i++)
        if (strcmp(content, usual[i]) == 0) return true;
    return false;
}

static void read_padding(struct reader *r) {
    const json_t *id = json_object_get(json_object_get(r->root, "padding"), "pad_id"), *token;
    const json_t *added = json_object_get(r->root, "added_tokens");
    for (size_t i = 0; !json_is_integer(id) && (token = json_array_get(added, i)); i++)
        if (is_padding(json_string_value(json_object_get(token, "content")))) id = json_object_get(token, "id");
    json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
    r->tokenizer->padding = value >= 0 && value < (json_int_t)r->tokenizer->size ? (int32_t)value : -1;
}

static status read_all(struct reader *r) {
    r->model = json_object_get(r->root, "model");
    TRY(check_model(r));
    TRY(read_words(r));
    TRY(read_vocabulary(r));
    if (r->tokenizer->is_word_level || r->tokenizer->is_word_piece) {
        TRY(find_unknown(r));
        r->tokenizer->unknown = r->unknown;
        if (r->unknown == TOKEN_NONE) return bad("model.unk_token is missing");
    } else if (!r->tokenizer->unigram) {
        TRY(find_bytes(r));
        TRY(read_merges(r));
    }
    TRY(read_added(r));
    read_padding(r);
    return OK;
}

status tokenizer_parse(const char *path, const char *json, size_t size, struct tokenizer **out) {
    json_error_t error;
    *out = NULL;
    if (size > TOKENIZER_MAX_BYTES)
        return status_data("%s: a tokenizer of %zu bytes; at most %zu are supported", path, size, TOKENIZER_MAX_BYTES);
    json_t *root = json_loadb(json, size, JSON_REJECT_DUPLICATES, &error);
    if (!root) return status_data("%s:%d:%d: this is not JSON: %s", path, error.line, error.column, error.text);
    struct reader r = {.tokenizer = calloc(1, sizeof *r.tokenizer), .root = root, .scratch = malloc(size)};
    list_bytes(r.byte_of);
    status s = r.tokenizer && r.scratch ? status_prefix(read_all(&r), "%s", path) : status_memory("the tokenizer");
    free(r.scratch);
    json_decref(root);
    if (s) tokenizer_destroy(r.tokenizer);
    if (!s) *out = r.tokenizer;
    return s;
}

static status read_json(const char *path, const char *key, char **json, size_t *size) {
    struct io_info info;
    TRY(io_stat(path, &info));
    if (!info.is_file)
        return status_data("cannot read the tokenizer '%s' (%s): %s", path, key,
                           info.exists ? "it is not a regular file" : strerror(ENOENT));
    if (info.size > TOKENIZER_MAX_BYTES)
        return status_data("%s: a tokenizer has at most %zu bytes, this file has %llu", path, TOKENIZER_MAX_BYTES,
                           (unsigned long long)info.size);
    return file_read(path, json, size);
}

static status copy_trained(const char *text, char **json, size_t *size) {
    *size = strlen(text);
    TRY(buffer_new(*size + 1, "the tokenizer", json));
    memcpy(*json, text, *size);
    return OK;
}

status tokenizer_open(const char *path, const char *key, const char *trained, char **json, struct tokenizer **out) {
    size_t size;
    *json = NULL;
    *out = NULL;
    TRY(trained ? copy_trained(trained, json, &size) : read_json(path, key, json, &size));
    return tokenizer_parse(trained ? "the model's tokenizer" : path, *json, size, out);
}

void tokenizer_destroy(struct tokenizer *tokenizer) {
    if (!tokenizer) return;
    byte_map_free(&tokenizer->vocabulary);
    for (size_t i = 0; i < 2; i++) free(tokenizer->added[i].items);
    free(tokenizer->tokens);
    free(tokenizer->merges);
    unigram_destroy(tokenizer->unigram);
    free(tokenizer);
}

size_t tokenizer_size(const struct tokenizer *tokenizer) { return tokenizer->size; }

int32_t tokenizer_padding(const struct tokenizer *tokenizer) { return tokenizer->padding; }

/* ---- a tokenizer of words ---- */

/* Words are those of GPT-2's regular expression, with the blank before them; ignore_merges makes a word of the
 * vocabulary one token without merges. */

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
    TRY(array_grow(&w->items, &w->capacity, w->map.count + 1, sizeof *w->items, "the words of the texts"));
    struct word *item = &w->items[w->map.count];
    TRY(byte_map_add(&w->map, hash, word, size, (uint32_t)w->map.count));
    *item = (struct word){{(uint32_t)(w->map.pool_size - size), (uint32_t)size}, times};
    return OK;
}

/* A text that begins with no blank gets one, as add_prefix_space does. */
status word_counts_add(struct word_counts *words, const char *text, size_t times) {
    SCOPED_TEXT longer = {0};
    if (text[0] != ' ') text_add(&longer, " ");
    text_add(&longer, text);
    const char *at = text_string(&longer);
    status s = OK;
    for (size_t left = longer.length, size; !s && left > 0; at += size, left -= size) {
        size = words_gpt2(at, left);
        if (size > 1 && size <= MAX_WORD_BYTES) s = add_word(words, at, size, times);
    }
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
static void write_token(const uint32_t *letters, const char *bytes, size_t size, size_t id, struct text *json) {
    SCOPED_TEXT token = {0};
    for (size_t i = 0; i < size; i++) {
        char letter[4];
        text_add_bytes(&token, letter, utf8_write(letters[(uint8_t)bytes[i]], letter));
    }
    text_add(json, ",");
    text_add_json(json, text_string(&token));
    text_printf(json, ":%zu", id);
}

static void add_vocabulary(const struct word *sorted, size_t count, const char *pool, struct text *json) {
    uint32_t letters[256];
    tokenizer_byte_letters(letters);
    text_printf(json, "{\"[PAD]\":%d",
                WORD_TOKENIZER_PADDING); /* no text has it: its brackets are words of their own */
    for (size_t byte = 0; byte < 256; byte++) write_token(letters, (const char[]){(char)byte}, 1, 1 + byte, json);
    for (size_t i = 0; i < count && i < MAX_WORDS && sorted[i].count >= MIN_OCCURRENCES; i++)
        write_token(letters, pool + sorted[i].bytes.offset, sorted[i].bytes.length, FIRST_WORD + i, json);
    text_add(json, "}");
}

status word_counts_write(const struct word_counts *words, struct text *json) {
    size_t count = words->map.count;
    SCOPED_BUFFER struct word *sorted = NULL;
    TRY(buffer_new(count * sizeof *sorted, "the words of the texts", &sorted));
    if (count) memcpy(sorted, words->items, count * sizeof *sorted);
    qsort_r(sorted, count, sizeof *sorted, by_count, words->map.pool);
    text_printf(json,
                "{\"version\":\"1.0\",\"truncation\":null,\"padding\":{\"strategy\":\"BatchLongest\",\"direction\":"
                "\"Right\",\"pad_to_multiple_of\":null,\"pad_id\":%d,\"pad_type_id\":0,\"pad_token\":\"[PAD]\"},"
                "\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_"
                "space\":true,\"trim_offsets\":true,\"use_regex\":true},\"post_processor\":null,\"decoder\":{\"type\":"
                "\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},\"model\":{\"type\":"
                "\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,\"end_of_word_suffix\":"
                "null,\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":true,\"vocab\":",
                WORD_TOKENIZER_PADDING);
    add_vocabulary(sorted, count, words->map.pool, json);
    text_add(json, ",\"merges\":[]}}");
    return OK;
}

/* ---- the words of a text ---- */

#define LINE_END "<eos>"
#define UNKNOWN_WORD "<unk>"

/* Counts the words and line ends. */
static status add_words_of_text(struct word_counts *words, const char *text, size_t size) {
    status s = OK;
    for (size_t at = 0, length; at < size && !s; at += length) {
        bool is_space = class_at(text + at, size - at, &length) == UNICODE_SPACE;
        if (is_space && text[at] == '\n') s = add_word(words, LINE_END, strlen(LINE_END), 1);
        if (is_space) continue;
        length = plain_word(text + at, size - at);
        s = add_word(words, text + at, length, 1);
    }
    if (!s) s = add_word(words, UNKNOWN_WORD, strlen(UNKNOWN_WORD), 0);
    if (!s && words->map.count > TOKENIZER_MAX_TOKENS)
        s = status_data("it has %zu different words; at most %d are supported", words->map.count, TOKENIZER_MAX_TOKENS);
    return s;
}

static void write_words(const struct word_counts *words, struct text *json) {
    SCOPED_TEXT word = {0};
    for (size_t i = 0; i < words->map.count; i++) {
        struct pool_range bytes = words->items[i].bytes;
        text_clear(&word);
        text_add_bytes(&word, words->map.pool + bytes.offset, bytes.length);
        text_add(json, i ? "," : "");
        text_add_json(json, text_string(&word));
        text_printf(json, ":%zu", i);
    }
}

status tokenizer_write_words(const char *text, size_t size, struct text *json) {
    struct word_counts *words;
    TRY(word_counts_create(&words));
    status s = add_words_of_text(words, text, size);
    if (!s) {
        text_add(json, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[],\"normalizer\":{"
                       "\"type\":\"Replace\",\"pattern\":{\"String\":\"\\n\"},\"content\":\" " LINE_END
                       " \"},\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},\"post_processor\":null,\"decoder\":null,"
                       "\"model\":{\"type\":\"WordLevel\",\"vocab\":{");
        write_words(words, json);
        text_add(json, "},\"unk_token\":\"" UNKNOWN_WORD "\"}}");
    }
    word_counts_destroy(words);
    return s;
}
