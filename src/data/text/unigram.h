/* unigram: the model Unigram of Hugging Face's tokenizer.json (T5, ALBERT, XLM-R), with its normalizer, the
 * pre-tokenizer Metaspace and the decoder: the ids of the tokenizers package. Immutable, so that threads may share it.
 *
 * Each piece has a score, the logarithm of its probability. The tokens of a word are the pieces with the largest sum of
 * scores; of equal sums the one is kept whose last piece is longest (the search goes from left to right, and only a
 * larger sum replaces the one before). A character without a piece has the lowest score less 10; adjacent ones are one
 * unknown token, or with byte_fallback the tokens of their bytes. A word of n bytes takes n times the longest piece. */
#pragma once

#include "base/text.h"
#include "data/text/normalizer.h"

struct unigram;
struct token_list;

/* Reads the parts of a tokenizer.json. STATUS_DATA with what is damaged or not supported; also then *out is to be
 * destroyed. */
status unigram_read(const json_t *root, struct unigram **out);
void unigram_destroy(struct unigram *unigram); /* takes NULL */

size_t unigram_size(const struct unigram *unigram); /* number of pieces */
/* The id of a piece; -1: it is none. */
int64_t unigram_find(const struct unigram *unigram, const char *piece, size_t size);

const struct normalizer *unigram_normalizer(const struct unigram *unigram);

/* Adds a normalized text (size > 0) as the pre-tokenizer writes it. [is_first]: the start of the whole text. */
status unigram_pretokenize(const struct unigram *unigram, const char *text, size_t size, bool is_first,
                           struct normalized *out);

/* The length of the word at the start of what the pre-tokenizer has written (size > 0); *skipped: that of a separator
 * before it. */
size_t unigram_word(const struct unigram *unigram, const char *text, size_t size, size_t *skipped);

/* The memory of searches; zero-initialise, free nodes. */
struct unigram_search {
    struct unigram_node *nodes; /* (capacity) */
    size_t capacity;
};

/* Adds the tokens of a word to out, at most one for each byte, for which there is memory. STATUS_DATA for a character
 * without a piece if the model has no unknown token, STATUS_MEMORY. */
status unigram_encode(const struct unigram *unigram, struct unigram_search *search, const char *word, size_t size,
                      struct token_list *out);

/* Adds what the decoder writes for a token. [is_first]: the first of a text. */
void unigram_decode(const struct unigram *unigram, const char *token, size_t size, bool is_first, struct text *out);
