/* token_array: the tokens of a text in memory, as ids of 1, 2 or 4 bytes; rows are views of it. */
#ifndef DATA_TOKEN_ARRAY_H
#define DATA_TOKEN_ARRAY_H

#include "base/files/digest.h"
#include "base/status.h"
#include "data/source/source.h"

/* Zero-initialise. */
struct token_array {
    void *ids; /* (count) */
    size_t count;
    int width; /* bytes of an id */
};

/* Allocates (count) ids below [vocabulary]. */
status token_array_alloc(struct token_array *tokens, size_t count, size_t vocabulary);
void token_array_free(struct token_array *tokens);

void token_array_set(struct token_array *tokens, size_t i, uint32_t id);

/* The row that starts at token [first]: inputs (size), and the targets (size) one position later. */
void token_array_read(const struct token_array *tokens, size_t first, size_t size, int32_t *inputs, int64_t *targets);

void token_array_digest(const struct token_array *tokens, struct digest *digest);

#endif
