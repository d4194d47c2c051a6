/* word_tokenizer: a tokenizer made from texts, where there is no tokenizer.json: the words that occur at least twice,
 * at most MAX_WORDS of them, the most frequent first. Any other word is its bytes. Its JSON is one that
 * tokenizer_parse and Hugging Face's tokenizers read. */
#ifndef DATA_WORD_TOKENIZER_H
#define DATA_WORD_TOKENIZER_H

#include <stddef.h>

#include "base/status.h"
#include "base/text.h"

#define WORD_TOKENIZER_PADDING 0 /* the id of the padding token */

struct word_counts;

status word_counts_create(struct word_counts **out);
void word_counts_destroy(struct word_counts *words); /* takes NULL */

/* Counts the words of [text], which is valid UTF-8 and occurs [times] times. */
status word_counts_add(struct word_counts *words, const char *text, size_t times);

/* Adds tokenizer.json: the padding, the 256 bytes, the words. The same for the same words in any order. */
status word_counts_write(const struct word_counts *words, struct text *json);

#endif
