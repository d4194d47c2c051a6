/* Text files that a tokenizer makes tokens of, when the file is opened. The tokens are stored as ids of 1, 2 or 4
 * bytes; rows overlap in them. For a text that does not fit into memory, a file of ids (format tokens) is read row by
 * row. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/io.h"
#include "data/source/text_files.h"
#include "data/source/token_array.h"
#include "data/source/tokens.h"
#include "data/text/tokenizer.h"

struct tokenized {
    struct source base;
    struct text name;            /* of the files, for messages */
    char *json;                  /* of the tokenizer; NULL for a validation file, whose tokenizer is that of training */
    struct tokenizer *tokenizer; /* the same */
    struct token_array tokens;
};

static status keep_tokens(struct tokenized *t, const struct token_list *list) {
    TRY(token_array_alloc(&t->tokens, list->count, (size_t)t->base.vocabulary));
    for (size_t i = 0; i < list->count; i++) token_array_set(&t->tokens, i, (uint32_t)list->ids[i]);
    return OK;
}

static status read_text(struct tokenized *t, const struct tokenizer *tokenizer, const char *path,
                        const struct string_list *others) {
    struct text_files files = {0};
    struct token_list list = {0};
    status s = text_files_read(&files, path, others);
    if (!s) s = status_prefix(tokenizer_encode(tokenizer, files.text, files.size, &list), "%s", text_string(&t->name));
    text_files_free(&files);
    if (!s) s = keep_tokens(t, &list);
    free(list.ids);
    return s;
}

static status open_all(struct tokenized *t, const struct dataset_config *config, const char *path,
                       const struct tokenized *train) {
    int64_t block = config->tokens.block_size, stride = config->tokens.stride;
    if (!train)
        TRY(tokenizer_open(config->tokens.tokenizer, TOKENIZER_KEY, config->trained_tokenizer, &t->json,
                           &t->tokenizer));
    const struct tokenizer *tokenizer = train ? train->tokenizer : t->tokenizer;
    TRY(tokens_check_vocabulary(config, tokenizer, &t->base.vocabulary));
    t->base.classes = t->base.vocabulary;
    TRY(read_text(t, tokenizer, path, dataset_others(config, train != NULL)));
    return tokens_shape(&t->base, t->tokens.count, block, stride == SCHEMA_NO_INT ? block : stride,
                        text_string(&t->name), "tokens");
}

static void close_tokenized(struct source *source) {
    struct tokenized *t = (struct tokenized *)source;
    token_array_free(&t->tokens);
    tokenizer_destroy(t->tokenizer);
    buffer_free(t->json);
    text_free(&t->name);
    free(t);
}

static status open_tokenized(const struct dataset_config *config, const char *path, bool wants_classes,
                             const struct source *train, struct source **out) {
    (void)wants_classes;
    struct tokenized *t = calloc(1, sizeof *t);
    if (!t) return status_memory("the tokens of a text");
    t->base.format = &dataset_tokenized;
    t->base.is_small = true;
    files_describe(path, dataset_others(config, train != NULL), &t->name);
    status s = open_all(t, config, path, (const struct tokenized *)train);
    if (s == OK)
        *out = &t->base;
    else
        close_tokenized(&t->base);
    return s;
}

static status read_tokenized(const struct source *source, size_t row, int32_t *inputs, int64_t *targets) {
    const struct tokenized *t = (const struct tokenized *)source;
    token_array_read(&t->tokens, row * source->stride, source->input_size, inputs, targets);
    return OK;
}

static status digest_tokenized(const struct source *source, struct digest *digest) {
    const struct tokenized *t = (const struct tokenized *)source;
    uint64_t shape[] = {source->stride, (uint64_t)source->vocabulary, t->tokens.count};
    digest_add(digest, shape, sizeof shape);
    if (t->json) digest_add(digest, t->json, strlen(t->json));
    token_array_digest(&t->tokens, digest);
    return OK;
}

static const char *tokenizer_of(const struct source *source) { return ((const struct tokenized *)source)->json; }

static const char *const extensions[] = {".txt", NULL};
const struct dataset_format dataset_tokenized = {.name = "tokens",
                                                 .keys = KEY_TOKENS | KEY_TEXT,
                                                 .extensions = extensions,
                                                 .open = open_tokenized,
                                                 .concatenates = true,
                                                 .read_tokens = read_tokenized,
                                                 .digest = digest_tokenized,
                                                 .tokenizer = tokenizer_of,
                                                 .close = close_tokenized};
