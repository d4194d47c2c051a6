/* A loop for each width of an id. */
#include "data/source/token_array.h"

#include "data/source/source.h"

status token_array_alloc(struct token_array *tokens, size_t count, size_t vocabulary) {
    tokens->width = vocabulary <= 0x100 ? 1 : vocabulary <= 0x10000 ? 2 : 4;
    tokens->count = count;
    return rows_alloc(count, (size_t)tokens->width, "the text", &tokens->ids);
}

void token_array_free(struct token_array *tokens) {
    buffer_free(tokens->ids);
    *tokens = (struct token_array){0};
}

void token_array_set(struct token_array *tokens, size_t i, uint32_t id) {
    if (tokens->width == 1) ((uint8_t *)tokens->ids)[i] = (uint8_t)id;
    if (tokens->width == 2) ((uint16_t *)tokens->ids)[i] = (uint16_t)id;
    if (tokens->width == 4) ((uint32_t *)tokens->ids)[i] = id;
}

void token_array_read(const struct token_array *tokens, size_t first, size_t size, int32_t *inputs, int64_t *targets) {
    const void *ids = tokens->ids;
    int width = tokens->width;
    if (width == 1)
        for (size_t i = 0; i < size; i++) inputs[i] = ((const uint8_t *)ids + first)[i];
    else if (width == 2)
        for (size_t i = 0; i < size; i++) inputs[i] = ((const uint16_t *)ids + first)[i];
    else
        for (size_t i = 0; i < size; i++) inputs[i] = (int32_t)((const uint32_t *)ids + first)[i];
    size_t last = first + size;
    for (size_t i = 0; i + 1 < size; i++) targets[i] = inputs[i + 1];
    targets[size - 1] = width == 1   ? ((const uint8_t *)ids)[last]
                        : width == 2 ? ((const uint16_t *)ids)[last]
                                     : ((const uint32_t *)ids)[last];
}

void token_array_digest(const struct token_array *tokens, struct digest *digest) {
    digest_add(digest, tokens->ids, tokens->count * (size_t)tokens->width);
}
