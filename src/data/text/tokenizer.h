/* tokenizer: byte-level BPE as in Hugging Face's tokenizer.json (GPT-2, Llama 3, Qwen 2), WordPiece, Unigram (T5,
 * unigram.h) and WordLevel: the same ids as tokenizers.Tokenizer.encode(text, add_special_tokens=False). Immutable, so
 * that threads may share it.
 *
 * With WordLevel a text is the words between white space, each of which is a token or the unknown one. With BPE it is
 * cut at the added tokens; the rest is normalized (NFC or not) and cut into words by a regular expression; a word is
 * its bytes, of which the pair of adjacent tokens with the lowest rank is merged until no pair has a rank. */
#pragma once

#include "base/status.h"
#include "base/text.h"

struct tokenizer;

#define TOKENIZER_MAX_BYTES ((size_t)256 << 20) /* of a file */
#define TOKENIZER_KEY "dataset.tokens.tokenizer"
#define TOKENIZER_MAX_TOKENS (1 << 20) /* ids are below it */

/* Reads tokenizer.json: json (size), of which nothing is kept. [path]: for messages. STATUS_DATA with what is damaged
 * or not supported. */
status tokenizer_parse(const char *path, const char *json, size_t size, struct tokenizer **out);
/* The same of the file [path] that the config names at [key], or of [trained], the text of a model's tokenizer (NULL:
 * the file). *json: the text (buffer_free). */
status tokenizer_open(const char *path, const char *key, const char *trained, char **json, struct tokenizer **out);
void tokenizer_destroy(struct tokenizer *tokenizer); /* takes NULL */

/* The largest id + 1. */
size_t tokenizer_size(const struct tokenizer *tokenizer);
/* The token that fills up short texts: pad_id of the file's `padding`, else the added token [PAD], <pad>, <|pad|> or
 * <|padding|>; -1: none. */
int32_t tokenizer_padding(const struct tokenizer *tokenizer);

/* Zero-initialise; free ids. */
struct token_list {
    int32_t *ids; /* (count) */
    size_t count, capacity;
};

/* Adds the tokens of text (size), which is valid UTF-8. STATUS_DATA for a byte that has no token, STATUS_MEMORY. */
status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t size, struct token_list *out);

/* Adds the bytes of ids (count), each below tokenizer_size; an id without a token has none. They may end within a
 * character. Of WordLevel a blank and the word; what the normalizer has replaced is there again. Of WordPiece a blank
 * and the piece, or a later piece of a word without its prefix. [is_start]: ids begin a text, so that Unigram's decoder
 * writes no blank before the first word. */
void tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, size_t count, bool is_start,
                      struct text *out);

/* ---- the words of a text ---- */

#define TOKENIZER_OF_WORDS "words" /* in place of the path of a tokenizer */

/* Adds tokenizer.json of WordLevel for text (size), which is valid UTF-8: its words in the order in which they occur,
 * <eos> for each line end and <unk> for other words. STATUS_DATA for too many words. */
status tokenizer_write_words(const char *text, size_t size, struct text *json);

/* ---- a tokenizer of words ---- */

/* A tokenizer made from texts, where there is no tokenizer.json: the words that occur at least twice,
 * at most MAX_WORDS of them, the most frequent first. Any other word is its bytes. Its JSON is one that
 * tokenizer_parse and Hugging Face's tokenizers read. */

#define WORD_TOKENIZER_PADDING 0 /* the id of the padding token */

struct word_counts;

status word_counts_create(struct word_counts **out);
void word_counts_destroy(struct word_counts *words); /* takes NULL */

/* Counts the words of [text], which is valid UTF-8 and occurs [times] times. */
status word_counts_add(struct word_counts *words, const char *text, size_t times);

/* Adds tokenizer.json: the padding, the 256 bytes, the words. The same for the same words in any order. */
status word_counts_write(const struct word_counts *words, struct text *json);
