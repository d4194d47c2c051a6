/* tokens: what the formats of tokens share: a text with a tokenizer, and a file of ids. */
#ifndef DATA_TOKENS_H
#define DATA_TOKENS_H

#include "data/source/source.h"

/* Sets the shape of [source] for [count] tokens: row i is tokens i * stride .. + block_size - 1, its targets are the
 * tokens one position later. [what]: "characters" or "tokens". */
status tokens_shape(struct source *source, size_t count, int64_t block_size, int64_t stride, const char *path,
                    const char *what);

/* The number of tokens: dataset.tokens.vocabulary, or that of the tokenizer. */
status tokens_check_vocabulary(const struct dataset_config *config, const struct tokenizer *tokenizer,
                               int64_t *vocabulary);

#endif
