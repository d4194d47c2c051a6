/* Any bytes as a tokenizer.json: rejected with a sentence that names it, or it encodes a text, and what it decodes are
 * ids of its own. */
#include <stdlib.h>
#include <string.h>

#include "data/text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void use(const struct tokenizer *tokenizer) {
    static const char text[] =
        " Hello, world! it's  \n\n 12345 \xc3\xa9\xe2\x82\xac<|endoftext|>aaaaaaab <b> \xf0\x9f\x98\x80";
    struct token_list list = {0};
    struct text decoded = {0};
    status s = tokenizer_encode(tokenizer, text, sizeof text - 1, &list);
    if (s && status_code(s) != STATUS_DATA) abort();
    status_free(s);
    for (size_t i = 0; i < list.count; i++)
        if (list.ids[i] < 0 || (size_t)list.ids[i] >= tokenizer_size(tokenizer)) abort();
    tokenizer_decode(tokenizer, list.ids, list.count, true, &decoded);
    text_free(&decoded);
    free(list.ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    struct tokenizer *tokenizer;
    char *exact = malloc(size ? size : 1); /* so that a read past the end is seen */
    if (!exact) abort();
    if (size) memcpy(exact, bytes, size);
    status s = tokenizer_parse("fuzz.json", exact, size, &tokenizer);
    free(exact);
    if (s && (status_code(s) != STATUS_DATA || strncmp(status_message(s), "fuzz.json:", 10) != 0)) abort();
    if (!s) use(tokenizer);
    tokenizer_destroy(tokenizer);
    status_free(s);
    return 0;
}
