/* Each text is encoded as a whole and then cut: where a token ends depends on what follows. */
#include "data/columns/text_tokens.h"

#include <stdlib.h>
#include <string.h>

status text_tokens(const struct tokenizer *tokenizer, const struct string_list *texts, size_t length, int32_t padding,
                   int32_t *ids) {
    struct token_list list = {0};
    status s = OK;
    for (size_t i = 0; !s && i < texts->count; i++) {
        list.count = 0;
        s = tokenizer_encode(tokenizer, texts->items[i], strlen(texts->items[i]), &list);
        for (size_t k = 0; !s && k < length; k++) ids[i * length + k] = k < list.count ? list.ids[k] : padding;
    }
    free(list.ids);
    return s;
}
