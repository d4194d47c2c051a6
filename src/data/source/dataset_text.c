/* Text files for character-level models. The vocabulary is the set of characters of the training text. The text is
 * stored as one id of 1, 2 or 4 bytes per character; rows overlap in it. */
#include <stdlib.h>

#include "base/utf8.h"
#include "data/source/text_files.h"
#include "data/source/token_array.h"
#include "data/source/tokens.h"
#include "data/text/vocabulary.h"

struct text_source {
    struct source base;
    struct text name;          /* of the files, for messages */
    struct text_files files;   /* freed when the ids are known */
    size_t count;              /* characters that are used */
    struct text characters;    /* the vocabulary as a string */
    struct vocabulary *known;  /* the same, for a validation file */
    struct text origin;        /* of the vocabulary of another text, for messages */
    struct token_array tokens; /* (count) */
};

static uint32_t next_code(const struct text_source *t, size_t *at) {
    uint32_t code = 0;
    *at += utf8_decode(t->files.text + *at, t->files.size - *at, &code);
    return code;
}

/* sorted(set(text)) */
static status collect_vocabulary(struct text_source *t) {
    bool *is_used = calloc(UTF8_CODES, sizeof *is_used);
    if (!is_used) return status_memory("the text of a dataset");
    for (size_t i = 0, at = 0; i < t->count; i++) is_used[next_code(t, &at)] = true;
    for (uint32_t code = 0; code < UTF8_CODES; code++) {
        char bytes[4];
        if (is_used[code]) text_add_bytes(&t->characters, bytes, utf8_encode(code, bytes));
    }
    free(is_used);
    return vocabulary_create(text_string(&t->characters), &t->known);
}

static status number_characters(struct text_source *t, const struct text_source *train) {
    const struct vocabulary *known = train ? train->known : t->known;
    size_t vocabulary = vocabulary_size(known);
    t->base.vocabulary = t->base.classes = (int64_t)vocabulary;
    TRY(token_array_alloc(&t->tokens, t->count, vocabulary));
    for (size_t i = 0, at = 0; i < t->count; i++) {
        size_t before = at;
        int64_t id = vocabulary_find(known, next_code(t, &at));
        if (id < 0)
            return text_files_prefix(&t->files, before,
                                     status_new(STATUS_DATA,
                                                "the character '%.*s' is not in %s, so the model has no token for it",
                                                (int)(at - before), t->files.text + before, text_string(&t->origin)));
        token_array_set(&t->tokens, i, (uint32_t)id);
    }
    return OK;
}

/* The characters of the model; NULL: those of the text. */
static status choose_vocabulary(struct text_source *t, const char *characters) {
    if (!characters) return collect_vocabulary(t);
    text_add(&t->characters, characters);
    text_add(&t->origin, "the text that the model was trained with");
    return vocabulary_create(characters, &t->known);
}

static status open_all(struct text_source *t, const struct dataset_config *dataset, const char *path,
                       const struct text_source *train) {
    const struct text_config *config = &dataset->text;
    const char *name = text_string(&t->name);
    if (dataset->is_trained && !dataset->characters && !train)
        return status_new(STATUS_DATA,
                          "%s: the model was not trained with characters, so it has no tokens for those of a text; "
                          "give its tokenizer (dataset.tokens.tokenizer) or a file of tokens",
                          name);
    TRY(text_files_read(&t->files, path, dataset_others(dataset, train != NULL)));
    t->count = train ? t->files.characters : (size_t)(config->truncate * (double)t->files.characters);
    TRY(tokens_shape(&t->base, t->count, config->block_size, config->stride, name, "characters"));
    if (train) text_printf(&t->origin, "'%s'", text_string(&train->name));
    if (!train) TRY(choose_vocabulary(t, dataset->characters));
    TRY(number_characters(t, train));
    text_files_free(&t->files);
    return OK;
}

static void close_text(struct source *source) {
    struct text_source *t = (struct text_source *)source;
    text_files_free(&t->files);
    token_array_free(&t->tokens);
    text_free(&t->characters);
    vocabulary_destroy(t->known);
    text_free(&t->name);
    text_free(&t->origin);
    free(t);
}

static status open_text(const struct dataset_config *config, const char *path, bool wants_classes,
                        const struct source *train, struct source **out) {
    (void)wants_classes;
    struct text_source *t = calloc(1, sizeof *t);
    if (!t) return status_memory("the text of a dataset");
    t->base.format = &dataset_text;
    t->base.is_small = true;
    files_describe(path, dataset_others(config, train != NULL), &t->name);
    status s = open_all(t, config, path, (const struct text_source *)train);
    if (s == OK)
        *out = &t->base;
    else
        close_text(&t->base);
    return s;
}

static status read_text(const struct source *source, size_t row, int32_t *inputs, int64_t *targets) {
    const struct text_source *t = (const struct text_source *)source;
    token_array_read(&t->tokens, row * source->stride, source->input_size, inputs, targets);
    return OK;
}

static status digest_text(const struct source *source, struct digest *digest) {
    const struct text_source *t = (const struct text_source *)source;
    uint64_t shape[] = {source->stride, (uint64_t)t->tokens.width, t->count};
    digest_add(digest, shape, sizeof shape);
    digest_add(digest, text_string(&t->characters), t->characters.length);
    token_array_digest(&t->tokens, digest);
    return OK;
}

static const char *vocabulary_of(const struct source *source) {
    return text_string(&((const struct text_source *)source)->characters);
}

static const char *const extensions[] = {".txt", NULL};
const struct dataset_format dataset_text = {.name = "text",
                                            .keys = KEY_TEXT,
                                            .extensions = extensions,
                                            .open = open_text,
                                            .concatenates = true,
                                            .read_tokens = read_text,
                                            .digest = digest_text,
                                            .vocabulary = vocabulary_of,
                                            .close = close_text};
