/* Each text is encoded as a whole and then cut: where a token ends depends on what follows. */
#include "data/columns/text_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "data/columns/select.h"
#include "data/text/word_tokenizer.h"

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

static status make_tokenizer(const struct text_pool *pool, struct tokenizer **out) {
    struct word_counts *words;
    struct text json = {0};
    status s = word_counts_create(&words);
    for (size_t i = 0; !s && i < pool->count; i++)
        s = word_counts_add(words, pool->items[i].text, pool->items[i].count);
    if (!s) s = word_counts_write(words, &json);
    if (!s) s = tokenizer_parse("the words of the texts", text_string(&json), json.length, out);
    word_counts_destroy(words);
    text_free(&json);
    return s;
}

status text_usual_length(const struct text_pool *pool, size_t *out) {
    struct tokenizer *tokenizer = NULL;
    struct token_list list = {0};
    double *lengths = malloc((pool->count + 1) * sizeof *lengths);
    status s = lengths ? make_tokenizer(pool, &tokenizer) : status_memory("the lengths of the texts");
    *out = 0;
    for (size_t i = 0; !s && i < pool->count; i++) {
        list.count = 0;
        s = tokenizer_encode(tokenizer, pool->items[i].text, strlen(pool->items[i].text), &list);
        lengths[i] = (double)list.count;
    }
    if (!s && pool->count > 0) *out = (size_t)select_value(lengths, pool->count, (pool->count - 1) * 95 / 100);
    tokenizer_destroy(tokenizer);
    free(list.ids);
    free(lengths);
    return s;
}
