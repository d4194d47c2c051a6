/* vocabulary: the tokens of a model of texts: characters, whose ids are their indices, or those of a tokenizer. A
 * checkpoint stores the characters as one string (dataset_vocabulary, "data/vocabulary"), or the tokenizer
 * (dataset_tokenizer, "data/tokenizer"), so that text can be generated without the training text. */
#pragma once

#include "base/status.h"
#include "base/text.h"

struct vocabulary;

/* [characters]: UTF-8, in strictly increasing order of code points; else STATUS_DATA. */
status vocabulary_create(const char *characters, struct vocabulary **out);
/* [json]: of the tokenizer; STATUS_DATA as tokenizer_parse. */
status vocabulary_create_tokenizer(const char *json, struct vocabulary **out);
/* The same of the file [path], dataset.tokens.tokenizer. */
status vocabulary_open_tokenizer(const char *path, struct vocabulary **out);
void vocabulary_destroy(struct vocabulary *vocabulary); /* takes NULL */

size_t vocabulary_size(const struct vocabulary *vocabulary);

/* Whether the tokens are characters. */
bool vocabulary_has_characters(const struct vocabulary *vocabulary);

/* The id of a code point of a vocabulary of characters; -1: not in the vocabulary. */
int64_t vocabulary_find(const struct vocabulary *vocabulary, uint32_t code);

/* Encodes [text] to *ids (count), released with free. STATUS_USAGE with the first character that is not in the
 * vocabulary, or the first byte that is not valid UTF-8. */
status vocabulary_encode(const struct vocabulary *vocabulary, const char *text, int32_t **ids, size_t *count);

/* Adds the texts of ids (count), each below vocabulary_size, as UTF-8; with a tokenizer they may begin and end within a
 * character, or be no valid UTF-8. */
void vocabulary_decode(const struct vocabulary *vocabulary, const int32_t *ids, size_t count, struct text *out);
