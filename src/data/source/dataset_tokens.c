/* Files of token ids, as nanoGPT writes them: an array of little-endian uint16 or uint32. Each row is one pread, so the
 * file may be larger than the memory. It is not mapped: a truncated file would give SIGBUS. */
#include <endian.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/io.h"
#include "data/source/text_files.h"
#include "data/source/tokens.h"
#include "data/text/tokenizer.h"

#define CHUNK ((size_t)1 << 20) /* bytes */
#define SAMPLES 64

struct part {
    char *path;
    int fd;              /* -1: not open */
    size_t first, count; /* its tokens in those of all files */
};

struct tokens {
    struct source base;
    struct text name;   /* of the files, for messages */
    struct part *parts; /* (part_count): the files, one after another */
    size_t part_count;
    size_t width, count;
    char *json; /* of the tokenizer; NULL: none */
};

status tokens_shape(struct source *source, size_t count, int64_t block_size, int64_t stride, const char *path,
                    const char *what) {
    size_t block = (size_t)block_size;
    if (count <= block)
        return status_new(STATUS_DATA,
                          "%s: %zu %s are used, but a row and its targets need block_size + 1 = %zu; use a smaller "
                          "block_size or a larger part of the file",
                          path, count, what, block + 1);
    source->input_kind = INPUT_TOKENS;
    source->stride = (size_t)stride;
    source->rows = (count - block - 1) / source->stride + 1;
    source->input_dims = 1;
    source->input_shape[0] = block_size;
    source->input_size = source->target_size = block;
    return OK;
}

static uint32_t token_at(const struct tokens *t, const void *bytes, size_t i) {
    uint16_t token16;
    uint32_t token32;
    if (t->width == sizeof token16) {
        memcpy(&token16, (const char *)bytes + i * sizeof token16, sizeof token16);
        return le16toh(token16);
    }
    memcpy(&token32, (const char *)bytes + i * sizeof token32, sizeof token32);
    return le32toh(token32);
}

/* The file that has token [at]. */
static const struct part *part_of(const struct tokens *t, size_t at) {
    size_t low = 0, high = t->part_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (t->parts[middle].first <= at)
            low = middle;
        else
            high = middle;
    }
    return &t->parts[low];
}

/* Reads tokens first .. first + count - 1 without conversion. */
static status read_raw(const struct tokens *t, size_t first, size_t count, void *bytes) {
    for (const struct part *part = part_of(t, first); count > 0; part++) {
        size_t at = first - part->first, n = part->count - at, got;
        if (n > count) n = count;
        TRY(io_read_at(part->fd, part->path, bytes, n * t->width, at * t->width, &got));
        if (got != n * t->width)
            return status_new(STATUS_DATA, "%s: the file was truncated after it was opened", part->path);
        bytes = (char *)bytes + got;
        first += n;
        count -= n;
    }
    return OK;
}

/* Calls [visit] with all chunks of the file, in order. */
static status visit_chunks(const struct tokens *t, void (*visit)(const struct tokens *, void *, const void *, size_t),
                           void *context) {
    void *chunk = malloc(CHUNK);
    if (!chunk) return status_memory("a dataset of tokens");
    status s = OK;
    for (size_t first = 0, max = CHUNK / t->width, n; s == OK && first < t->count; first += n) {
        n = t->count - first < max ? t->count - first : max;
        s = read_raw(t, first, n, chunk);
        if (s == OK) visit(t, context, chunk, n);
    }
    free(chunk);
    return s;
}

static void visit_largest(const struct tokens *t, void *context, const void *bytes, size_t count) {
    uint32_t *largest = context;
    for (size_t i = 0; i < count; i++)
        if (token_at(t, bytes, i) > *largest) *largest = token_at(t, bytes, i);
}

static status find_vocabulary(struct tokens *t, const struct tokens_config *config, const struct source *train) {
    int64_t *vocabulary = &t->base.vocabulary;
    if (config->vocabulary != SCHEMA_NO_INT || train) {
        *vocabulary = train ? train->vocabulary : config->vocabulary;
    } else {
        uint32_t largest = 0;
        TRY(visit_chunks(t, visit_largest, &largest));
        if (largest >= INT32_MAX)
            return status_new(STATUS_DATA, "%s: token %u is too large; is dataset.tokens.dtype correct?",
                              text_string(&t->name), largest);
        *vocabulary = (int64_t)largest + 1;
    }
    t->base.classes = *vocabulary;
    return OK;
}

status tokens_check_vocabulary(const struct dataset_config *config, const struct tokenizer *tokenizer,
                               int64_t *vocabulary) {
    int64_t size = (int64_t)tokenizer_size(tokenizer), given = config->tokens.vocabulary;
    *vocabulary = given == SCHEMA_NO_INT ? size : given;
    if (*vocabulary >= size) return OK;
    return status_new(STATUS_USAGE, "dataset.tokens.vocabulary is %lld, but the tokenizer has %lld tokens",
                      (long long)given, (long long)size);
}

/* Sets the vocabulary to that of the tokenizer, if there is one. */
static status read_tokenizer(struct tokens *t, struct dataset_config *config) {
    struct tokenizer *tokenizer;
    if (!config->tokens.tokenizer) return OK;
    TRY(tokenizer_open(config->tokens.tokenizer, TOKENIZER_KEY, config->trained_tokenizer, &t->json, &tokenizer));
    status s = tokens_check_vocabulary(config, tokenizer, &config->tokens.vocabulary);
    tokenizer_destroy(tokenizer);
    return s;
}

static status open_part(struct tokens *t, const char *path) {
    struct part *part = &t->parts[t->part_count++];
    struct io_info info;
    *part = (struct part){.path = strdup(path), .fd = -1, .first = t->count};
    if (!part->path) return status_memory("a dataset of tokens");
    TRY(io_open(path, &part->fd));
    TRY(io_stat_fd(part->fd, path, &info));
    if (info.size % t->width != 0)
        return status_new(STATUS_DATA,
                          "%s: its size, %llu bytes, is not a multiple of %zu: it has no tokens of type %s", path,
                          (unsigned long long)info.size, t->width, t->width == 2 ? "uint16" : "uint32");
    part->count = (size_t)(info.size / t->width);
    t->count += part->count;
    return OK;
}

static status open_all(struct tokens *t, const struct tokens_config *config, const char *path,
                       const struct string_list *others, const struct source *train) {
    t->parts = calloc(others->count + 1, sizeof *t->parts);
    if (!t->parts) return status_memory("a dataset of tokens");
    for (size_t i = 0; i <= others->count; i++) TRY(open_part(t, i ? others->items[i - 1] : path));
    int64_t stride = config->stride == SCHEMA_NO_INT ? config->block_size : config->stride;
    TRY(tokens_shape(&t->base, t->count, config->block_size, stride, text_string(&t->name), "tokens"));
    return find_vocabulary(t, config, train);
}

static void close_tokens(struct source *source) {
    struct tokens *t = (struct tokens *)source;
    for (size_t i = 0; i < t->part_count; i++) {
        struct part *part = &t->parts[i];
        if (part->fd >= 0) status_free(io_close(part->fd, part->path)); /* nothing was written that could be lost */
        free(part->path);
    }
    free(t->parts);
    text_free(&t->name);
    buffer_free(t->json);
    free(t);
}

static status open_tokens(const struct dataset_config *config, const char *path, bool wants_classes,
                          const struct source *train, struct source **out) {
    (void)wants_classes;
    struct tokens *t = calloc(1, sizeof *t);
    if (!t) return status_memory("a dataset of tokens");
    t->base.format = &dataset_tokens;
    t->width = config->tokens.type == TOKEN_UINT16 ? sizeof(uint16_t) : sizeof(uint32_t);
    const struct string_list *others = dataset_others(config, train != NULL);
    files_describe(path, others, &t->name);
    struct dataset_config own = *config;
    status s = train ? OK : read_tokenizer(t, &own);
    if (s == OK) s = open_all(t, &own.tokens, path, others, train);
    if (s == OK)
        *out = &t->base;
    else
        close_tokens(&t->base);
    return s;
}

static status check_token(const struct tokens *t, size_t at, uint32_t token, int32_t *out) {
    if (token < (uint64_t)t->base.vocabulary) {
        *out = (int32_t)token;
        return OK;
    }
    const struct part *part = part_of(t, at);
    return status_new(STATUS_DATA,
                      "%s: token number %zu is %u, but the vocabulary has %lld (dataset.tokens.vocabulary); is "
                      "dataset.tokens.dtype correct?",
                      part->path, at - part->first, token, (long long)t->base.vocabulary);
}

/* The raw tokens are read to [targets]: (size + 1) tokens of at most 4 bytes fit into (size) targets of 8 bytes. */
static status read_tokens(const struct source *source, size_t row, int32_t *inputs, int64_t *targets) {
    const struct tokens *t = (const struct tokens *)source;
    size_t first = row * source->stride, size = source->input_size;
    int32_t last = 0;
    TRY(read_raw(t, first, size + 1, targets));
    for (size_t i = 0; i < size; i++) TRY(check_token(t, first + i, token_at(t, targets, i), &inputs[i]));
    TRY(check_token(t, first + size, token_at(t, targets, size), &last));
    for (size_t i = 0; i + 1 < size; i++) targets[i] = inputs[i + 1];
    targets[size - 1] = last;
    return OK;
}

static void will_read(const struct source *source, size_t row) {
    const struct tokens *t = (const struct tokens *)source;
    const struct part *part = part_of(t, row * source->stride);
    off_t start = (off_t)((uint64_t)(row * source->stride - part->first) * t->width);
    posix_fadvise(part->fd, start, (off_t)((source->input_size + 1) * t->width), POSIX_FADV_WILLNEED);
}

static void visit_digest(const struct tokens *t, void *context, const void *bytes, size_t count) {
    digest_add(context, bytes, count * t->width);
}

/* Digests all tokens, or for a large file its size and samples at equal distances. */
static status digest_tokens(const struct source *source, struct digest *digest) {
    const struct tokens *t = (const struct tokens *)source;
    uint64_t shape[] = {source->stride, t->width, t->count, (uint64_t)source->vocabulary};
    digest_add(digest, shape, sizeof shape);
    if (t->json) digest_add(digest, t->json, strlen(t->json));
    if ((double)t->count * (double)t->width <= MAX_DIGESTED) return visit_chunks(t, visit_digest, digest);
    char sample[4096];
    size_t n = sizeof sample / t->width;
    for (size_t i = 0; i < SAMPLES; i++) {
        TRY(read_raw(t, (t->count - n) / (SAMPLES - 1) * i, n, sample));
        digest_add(digest, sample, sizeof sample);
    }
    return OK;
}

static const char *tokenizer_of(const struct source *source) { return ((const struct tokens *)source)->json; }

static const char *const extensions[] = {".bin", NULL};
const struct dataset_format dataset_tokens = {.name = "tokens",
                                              .keys = KEY_TOKENS,
                                              .extensions = extensions,
                                              .open = open_tokens,
                                              .read_tokens = read_tokens,
                                              .concatenates = true,
                                              .will_read = will_read,
                                              .digest = digest_tokens,
                                              .tokenizer = tokenizer_of,
                                              .close = close_tokens};
