/* text_tokens: texts of a column as rows of the same number of tokens. */
#ifndef DATA_TEXT_TOKENS_H
#define DATA_TEXT_TOKENS_H

#include "base/schema/schema.h"
#include "base/status.h"
#include "data/columns/text_pool.h"
#include "data/text/tokenizer.h"

/* For each of [texts] its first [length] tokens, then [padding]: ids (texts, length). STATUS_DATA for a byte that has
 * no token, STATUS_MEMORY. */
status text_tokens(const struct tokenizer *tokenizer, const struct string_list *texts, size_t length, int32_t padding,
                   int32_t *ids);

/* The number of tokens, of a tokenizer of their own words, that 95 % of the texts of [pool] do not exceed. */
status text_usual_length(const struct text_pool *pool, size_t *out);

#endif
