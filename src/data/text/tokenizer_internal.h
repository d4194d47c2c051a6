/* Declarations shared by the files of the tokenizer. */
#ifndef DATA_TOKENIZER_INTERNAL_H
#define DATA_TOKENIZER_INTERNAL_H

#include <stdbool.h>

#include "data/text/tokenizer.h"

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

uint64_t byte_map_hash(const char *bytes, size_t size);
/* NULL: not in the map. */
const struct byte_entry *byte_map_find(const struct byte_map *map, uint64_t hash, const char *bytes, size_t size);
/* Adds [bytes], which is not in the map; at most 4 GiB in all. */
status byte_map_add(struct byte_map *map, uint64_t hash, const char *bytes, size_t size, uint32_t value);
/* Adds [bytes] to the pool only. */
status byte_map_keep(struct byte_map *map, const char *bytes, size_t size, struct pool_range *out);
void byte_map_clear(struct byte_map *map); /* keeps the memory */
void byte_map_free(struct byte_map *map);

/* The code points that stand for the bytes in tokenizer.json, GPT-2's bytes_to_unicode: printable bytes of Latin-1 for
 * themselves, 256, 257, ... for the others. */
void tokenizer_byte_letters(uint32_t letters[256]);

/* ---- words ---- */

/* The end of the word at text (size > 0), whose end is that of the text for the regular expression. */
typedef size_t word_end(const char *text, size_t size);

/* The function of a regular expression; NULL: not supported. */
word_end *words_of_pattern(const char *pattern);
word_end words_gpt2; /* that of ByteLevel's use_regex */

/* ---- normalization ---- */

struct normalized {
    char *text; /* (size); the caller frees it */
    size_t size, capacity;
};

bool tokenizer_is_ascii(const char *text, size_t size);
/* The form NFC of text (size), which is valid UTF-8; sets out, whose text must be freed also after a failure.
 * STATUS_MEMORY. */
status tokenizer_normalize(const char *text, size_t size, struct normalized *out);

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
};

/* The slot of a pair: its merge, or a free one. */
struct merge *tokenizer_merge(const struct tokenizer *tokenizer, uint32_t left, uint32_t right);

#endif
