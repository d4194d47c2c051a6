/* Formats whose rows are tokens: files of ids, texts of characters, and texts with a tokenizer. */
#include <endian.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/digest.h"
#include "base/files/io.h"
#include "base/scoped.h"
#include "base/utf8.h"
#include "data/source/config.h"
#include "data/source/source.h"
#include "data/text/tokenizer.h"
#include "data/text/vocabulary.h"

/* Zero-initialise. */
struct text_files {
    char *text; /* (size) UTF-8 without NUL, and FILE_PADDING NULs */
    size_t size;
    size_t characters;      /* code points of [text] */
    size_t count;           /* of files */
    const char **paths;     /* (count); they belong to the caller */
    size_t *ends;           /* (count): in [text] */
    struct text what_files; /* for messages: "a.txt", "a.txt and 2 more files" */
};

/* Zero-initialise. */
struct token_array {
    void *ids; /* (count) */
    size_t count;
    int width; /* bytes of an id */
};

/* ---- config ---- */

static const struct schema_row text_rows[] = {
    SCHEMA_ROW(INT, struct text_config, block_size, .fallback = "128", .min = 1, .max = 1e6,
               .doc = "Characters of a row; the targets are the same characters one position later."),
    SCHEMA_ROW(INT, struct text_config, stride, .fallback = "1", .min = 1, .max = 1e9, .flags = SCHEMA_INFERENCE,
               .doc = "Characters between the starts of two rows: 1 starts a row at every character (the minGPT "
                      "tutorial), block_size uses each character once per epoch."),
    SCHEMA_ROW(REAL, struct text_config, truncate, .fallback = "1", .min = 0, .max = 1, .excludes_min = true,
               .flags = SCHEMA_INFERENCE, .doc = "Fraction of the file that is used, from its start."),
    {0},
};

const struct schema text_section = SCHEMA("dataset.text", struct text_config, .rows = text_rows);

bool text_config_is_given(const struct text_config *text) {
    return text->block_size != 128 || text->stride != 1 || text->truncate != 1; /* the fallbacks of text_rows */
}

static const char *const token_types[] = {"uint16", "uint32", NULL};

static const struct schema_row tokens_rows[] = {
    SCHEMA_KEY(CHOICE, "dtype", struct tokens_config, type, .fallback = "uint16", .choices = token_types,
               .flags = SCHEMA_INFERENCE, .doc = "Type of a token in the file, little-endian."),
    SCHEMA_ROW(INT, struct tokens_config, vocabulary, .fallback = "null", .min = 1, .max = INT32_MAX,
               .doc = "Number of tokens of the vocabulary (50257 for GPT-2); null: that of the tokenizer, or the "
                      "largest token of the file + 1 (the file is read once to find it)."),
    SCHEMA_ROW(INT, struct tokens_config, block_size, .fallback = "1024", .min = 1, .max = 1e6,
               .doc = "Tokens of a row; the targets are the same tokens one position later."),
    SCHEMA_ROW(INT, struct tokens_config, stride, .fallback = "null", .min = 1, .max = 1e9, .flags = SCHEMA_INFERENCE,
               .doc =
                   "Tokens between the starts of two rows; null: block_size, so that an epoch sees each token once."),
    SCHEMA_ROW(
        STRING, struct tokens_config, tokenizer, .fallback = "null",
        .flags = SCHEMA_EXTENDS | SCHEMA_INFERENCE, /* the fingerprint is compared instead */
        .doc = "tokenizer.json of Hugging Face's tokenizers, byte-level BPE, WordPiece, Unigram or WordLevel: a text "
               "(.txt) is read as its tokens; for ids (.bin), the tokenizer they were made with. `words`: the words of "
               "the text, between white space, with <eos> for each line end. It is kept in checkpoints, for generate."),
    {0},
};

const struct schema tokens_section = SCHEMA("dataset.tokens", struct tokens_config, .rows = tokens_rows);

/* ---- text files ---- */

/* All files are read to one buffer, because a token may begin in one file and end in the next. */

/* Adds "a.txt", or with [others] "a.txt and 2 more files". */
static void files_describe(const char *path, const struct string_list *others, struct text *out) {
    text_add(out, path);
    if (others->count) text_printf(out, " and %zu more file%s", others->count, text_plural(others->count, "s"));
}

/* Byte [at] of the text is in file *index, which begins at byte *start. */
static void find_file(const struct text_files *files, size_t at, size_t *index, size_t *start) {
    *index = *start = 0;
    while (*index + 1 < files->count && files->ends[*index] <= at) *start = files->ends[(*index)++];
}

/* "<path>: line <n>: <cause>" for byte [at] of the text. */
static status text_files_prefix(const struct text_files *files, size_t at, status cause) {
    size_t index, start, line = 1;
    find_file(files, at, &index, &start);
    for (size_t i = start; i < at; i++) line += files->text[i] == '\n';
    return status_prefix(cause, "%s: line %zu", files->paths[index], line);
}

static status check_text(struct text_files *files) {
    uint32_t code;
    for (size_t at = 0, length, index, start; at < files->size; at += length) {
        length = utf8_decode(files->text + at, files->size - at, &code);
        files->characters++;
        if (length > 0 && code != 0) continue;
        find_file(files, at, &index, &start);
        size_t byte = at - start + 1;
        return text_files_prefix(
            files, at,
            length ? status_data("byte %zu of the file is 0; this is not text", byte)
                   : status_data("byte %zu of the file is not valid UTF-8; convert the file (iconv -f latin1 -t utf-8)",
                                 byte));
    }
    return OK;
}

/* Appends the contents of a file, at most [max] bytes. */
static status append_file(struct text_files *files, const char *path, size_t max) {
    int fd;
    size_t got = 0;
    TRY(io_open(path, &fd));
    status s = io_read(fd, path, files->text + files->size, max, &got);
    files->size += got;
    files->paths[files->count] = path;
    files->ends[files->count++] = files->size;
    return status_first(s, io_close(fd, path));
}

static status read_all(struct text_files *files, const char *path, const struct string_list *others, uint64_t *sizes) {
    uint64_t total = 0;
    for (size_t i = 0; i <= others->count; i++) {
        TRY(file_check(i ? others->items[i - 1] : path, &sizes[i]));
        total += sizes[i];
    }
    TRY(rows_alloc((size_t)total + FILE_PADDING, 1, text_string(&files->what_files), &files->text));
    for (size_t i = 0; i <= others->count; i++)
        TRY(append_file(files, i ? others->items[i - 1] : path, (size_t)sizes[i]));
    return check_text(files);
}

/* Reads [path] and then [others]; STATUS_DATA for bytes that are not text. All three must exist until text_files_free.
 */
static status text_files_read(struct text_files *files, const char *path, const struct string_list *others) {
    size_t count = others->count + 1;
    files_describe(path, others, &files->what_files);
    SCOPED_BUFFER uint64_t *sizes = NULL;
    TRY(rows_alloc(count, sizeof *sizes, "the names of text files", &sizes));
    TRY(rows_alloc(count, sizeof *files->paths, "the names of text files", &files->paths));
    TRY(rows_alloc(count, sizeof *files->ends, "the names of text files", &files->ends));
    return read_all(files, path, others, sizes);
}

static void text_files_free(struct text_files *files) {
    buffer_free(files->text);
    buffer_free(files->paths);
    buffer_free(files->ends);
    text_free(&files->what_files);
    *files = (struct text_files){0};
}

/* ---- tokens in memory ---- */

/* A loop for each width of an id. */

/* Allocates (count) ids below [vocabulary]. */
static status token_array_alloc(struct token_array *tokens, size_t count, size_t vocabulary) {
    tokens->width = vocabulary <= 0x100 ? 1 : vocabulary <= 0x10000 ? 2 : 4;
    tokens->count = count;
    return rows_alloc(count, (size_t)tokens->width, "the text", &tokens->ids);
}

static void token_array_free(struct token_array *tokens) {
    buffer_free(tokens->ids);
    *tokens = (struct token_array){0};
}

static void token_array_set(struct token_array *tokens, size_t i, uint32_t id) {
    if (tokens->width == 1) ((uint8_t *)tokens->ids)[i] = (uint8_t)id;
    if (tokens->width == 2) ((uint16_t *)tokens->ids)[i] = (uint16_t)id;
    if (tokens->width == 4) ((uint32_t *)tokens->ids)[i] = id;
}

/* The row that starts at token [first]: inputs (size), and the targets (size) one position later. */
static void token_array_read(const struct token_array *tokens, size_t first, size_t size, int32_t *inputs,
                             int64_t *targets) {
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

static void token_array_digest(const struct token_array *tokens, struct digest *digest) {
    digest_add(digest, tokens->ids, tokens->count * (size_t)tokens->width);
}

/* ---- files of ids ---- */

/* Files of token ids, as nanoGPT writes them: an array of little-endian uint16 or uint32. Each row is one pread, so the
 * file may be larger than the memory. It is not mapped: a truncated file would give SIGBUS. */

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

/* Sets the shape of [source] for [count] tokens: row i is tokens i * stride .. + block_size - 1, its targets are the
 * tokens one position later. [what]: "characters" or "tokens". */
static status tokens_shape(struct source *source, size_t count, int64_t block_size, int64_t stride, const char *path,
                           const char *what) {
    size_t block = (size_t)block_size;
    if (count <= block)
        return status_data("%s: %zu %s are used, but a row and its targets need block_size + 1 = %zu; use a smaller "
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
        if (got != n * t->width) return status_data("%s: the file was truncated after it was opened", part->path);
        bytes = (char *)bytes + got;
        first += n;
        count -= n;
    }
    return OK;
}

/* Calls [visit] with all chunks of the file, in order. */
static status visit_chunks(const struct tokens *t, void (*visit)(const struct tokens *, void *, const void *, size_t),
                           void *context) {
    SCOPED_BUFFER void *chunk = NULL;
    TRY(buffer_new(CHUNK, "a dataset of tokens", &chunk));
    for (size_t first = 0, max = CHUNK / t->width, n; first < t->count; first += n) {
        n = t->count - first < max ? t->count - first : max;
        TRY(read_raw(t, first, n, chunk));
        visit(t, context, chunk, n);
    }
    return OK;
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
            return status_data("%s: token %u is too large; is dataset.tokens.dtype correct?", text_string(&t->name),
                               largest);
        *vocabulary = (int64_t)largest + 1;
    }
    t->base.classes = *vocabulary;
    return OK;
}

/* The number of tokens: dataset.tokens.vocabulary, or that of the tokenizer. */
static status tokens_check_vocabulary(const struct dataset_config *config, const struct tokenizer *tokenizer,
                                      int64_t *vocabulary) {
    int64_t size = (int64_t)tokenizer_size(tokenizer), given = config->tokens.vocabulary;
    *vocabulary = given == SCHEMA_NO_INT ? size : given;
    if (*vocabulary >= size) return OK;
    return status_usage("dataset.tokens.vocabulary is %lld, but the tokenizer has %lld tokens", (long long)given,
                        (long long)size);
}

/* Sets the vocabulary to that of the tokenizer, if there is one. */
static status read_tokenizer(struct tokens *t, struct dataset_config *config) {
    struct tokenizer *tokenizer;
    if (!config->tokens.tokenizer) return OK;
    TRY(tokenizer_open(config->tokens.tokenizer, TOKENIZER_KEY, config->request.trained_tokenizer, &t->json,
                       &tokenizer));
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
        return status_data("%s: its size, %llu bytes, is not a multiple of %zu: it has no tokens of type %s", path,
                           (unsigned long long)info.size, t->width, t->width == 2 ? "uint16" : "uint32");
    part->count = (size_t)(info.size / t->width);
    t->count += part->count;
    return OK;
}

static status open_file_of_ids(struct tokens *t, const struct tokens_config *config, const char *path,
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
    t->base.tokenizer = t->json;
    if (s == OK) s = open_file_of_ids(t, &own.tokens, path, others, train);
    if (s) close_tokens(&t->base);
    if (!s) *out = &t->base;
    return s;
}

static status check_token(const struct tokens *t, size_t at, uint32_t token, int32_t *out) {
    if (token < (uint64_t)t->base.vocabulary) {
        *out = (int32_t)token;
        return OK;
    }
    const struct part *part = part_of(t, at);
    return status_data("%s: token number %zu is %u, but the vocabulary has %lld (dataset.tokens.vocabulary); is "
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

static const char *const id_extensions[] = {".bin", NULL};
const struct dataset_format dataset_tokens = {.name = "tokens",
                                              .keys = KEY_TOKENS,
                                              .extensions = id_extensions,
                                              .open = open_tokens,
                                              .read_tokens = read_tokens,
                                              .concatenates = true,
                                              .will_read = will_read,
                                              .digest = digest_tokens,
                                              .close = close_tokens,
                                              .pytorch = "read_tokens({path}, {tokens})"};

/* ---- texts ---- */

/* Text files whose characters are tokens, for character-level models, or that a tokenizer makes tokens of, when the
 * file is opened. The tokens are stored as ids of 1, 2 or 4 bytes; rows overlap in them. For a text that does not fit
 * into memory, a file of ids (format tokens) is read row by row. */

struct text_source {
    struct source base;
    struct text name; /* of the files, for messages */
    struct token_array tokens;

    /* Of characters, whose vocabulary is the set of those of the training text. */
    struct text_files files;  /* freed when the ids are known */
    size_t count;             /* characters that are used */
    struct text characters;   /* the vocabulary as a string */
    struct vocabulary *known; /* the same, for a validation file */
    struct text origin;       /* of the vocabulary of another text, for messages */

    char *json;                  /* of the tokenizer; NULL for a validation file, whose tokenizer is that of training */
    struct tokenizer *tokenizer; /* the same */
};

static void close_text(struct source *source) {
    struct text_source *t = (struct text_source *)source;
    text_files_free(&t->files);
    token_array_free(&t->tokens);
    text_free(&t->characters);
    vocabulary_destroy(t->known);
    text_free(&t->name);
    text_free(&t->origin);
    tokenizer_destroy(t->tokenizer);
    buffer_free(t->json);
    free(t);
}

/* [read]: sets the tokens, and what the vocabulary is. */
static status open_source(const struct dataset_format *format, const struct dataset_config *config, const char *path,
                          const struct source *train,
                          status (*read)(struct text_source *, const struct dataset_config *, const char *,
                                         const struct text_source *),
                          struct source **out) {
    struct text_source *t = calloc(1, sizeof *t);
    if (!t) return status_memory("the text of a dataset");
    t->base.format = format;
    t->base.is_small = true;
    files_describe(path, dataset_others(config, train != NULL), &t->name);
    status s = read(t, config, path, (const struct text_source *)train);
    if (s) close_text(&t->base);
    if (!s) *out = &t->base;
    return s;
}

static status read_text(const struct source *source, size_t row, int32_t *inputs, int64_t *targets) {
    const struct text_source *t = (const struct text_source *)source;
    token_array_read(&t->tokens, row * source->stride, source->input_size, inputs, targets);
    return OK;
}

/* ---- of characters ---- */

static uint32_t next_code(const struct text_source *t, size_t *at) {
    uint32_t code = 0;
    *at += utf8_decode(t->files.text + *at, t->files.size - *at, &code);
    return code;
}

/* sorted(set(text)) */
static status collect_vocabulary(struct text_source *t) {
    SCOPED_BUFFER bool *is_used = NULL;
    TRY(buffer_new(UTF8_CODES * sizeof *is_used, "the text of a dataset", &is_used));
    for (size_t i = 0, at = 0; i < t->count; i++) is_used[next_code(t, &at)] = true;
    for (uint32_t code = 0; code < UTF8_CODES; code++) {
        char bytes[4];
        if (is_used[code]) text_add_bytes(&t->characters, bytes, utf8_write(code, bytes));
    }
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
                                     status_data("the character '%.*s' is not in %s, so the model has no token for it",
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

static status open_characters(struct text_source *t, const struct dataset_config *dataset, const char *path,
                              const struct text_source *train) {
    const struct text_config *config = &dataset->text;
    const char *name = text_string(&t->name);
    if (dataset->request.is_trained && !dataset->request.characters && !train)
        return status_data("%s: the model was not trained with characters, so it has no tokens for those of a text; "
                           "give its tokenizer (dataset.tokens.tokenizer) or a file of tokens",
                           name);
    TRY(text_files_read(&t->files, path, dataset_others(dataset, train != NULL)));
    t->count = train ? t->files.characters : (size_t)(config->truncate * (double)t->files.characters);
    TRY(tokens_shape(&t->base, t->count, config->block_size, config->stride, name, "characters"));
    if (train) text_printf(&t->origin, "'%s'", text_string(&train->name));
    if (!train) TRY(choose_vocabulary(t, dataset->request.characters));
    t->base.characters = text_string(&t->characters);
    TRY(number_characters(t, train));
    text_files_free(&t->files);
    return OK;
}

static status open_text(const struct dataset_config *config, const char *path, bool wants_classes,
                        const struct source *train, struct source **out) {
    (void)wants_classes;
    return open_source(&dataset_text, config, path, train, open_characters, out);
}

static status digest_text(const struct source *source, struct digest *digest) {
    const struct text_source *t = (const struct text_source *)source;
    uint64_t shape[] = {source->stride, (uint64_t)t->tokens.width, t->count};
    digest_add(digest, shape, sizeof shape);
    digest_add(digest, text_string(&t->characters), t->characters.length);
    token_array_digest(&t->tokens, digest);
    return OK;
}

static const char *const text_extensions[] = {".txt", NULL};
const struct dataset_format dataset_text = {.name = "text",
                                            .keys = KEY_TEXT,
                                            .extensions = text_extensions,
                                            .open = open_text,
                                            .concatenates = true,
                                            .read_tokens = read_text,
                                            .digest = digest_text,
                                            .close = close_text,
                                            .pytorch = "read_text({path}, {text})"};

/* ---- with a tokenizer ---- */

static status keep_tokens(struct text_source *t, const struct token_list *list) {
    TRY(token_array_alloc(&t->tokens, list->count, (size_t)t->base.vocabulary));
    for (size_t i = 0; i < list->count; i++) token_array_set(&t->tokens, i, (uint32_t)list->ids[i]);
    return OK;
}

static status encode_text(struct text_source *t, const struct tokenizer *tokenizer, const char *path,
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

/* Makes the tokenizer of the words of the files. */
static status open_words(struct text_source *t, const char *path, const struct string_list *others) {
    struct text_files files = {0};
    SCOPED_TEXT json = {0};
    status s = text_files_read(&files, path, others);
    if (!s) s = status_prefix(tokenizer_write_words(files.text, files.size, &json), "%s", text_string(&t->name));
    text_files_free(&files);
    if (!s) s = tokenizer_open("the words of the text", NULL, text_string(&json), &t->json, &t->tokenizer);
    return s;
}

static status open_encoded(struct text_source *t, const struct dataset_config *config, const char *path,
                           const struct text_source *train) {
    int64_t block = config->tokens.block_size, stride = config->tokens.stride;
    bool is_of_words = strcmp(config->tokens.tokenizer, TOKENIZER_OF_WORDS) == 0 && !config->request.trained_tokenizer;
    if (!train && is_of_words)
        TRY(open_words(t, path, dataset_others(config, false)));
    else if (!train)
        TRY(tokenizer_open(config->tokens.tokenizer, TOKENIZER_KEY, config->request.trained_tokenizer, &t->json,
                           &t->tokenizer));
    const struct tokenizer *tokenizer = train ? train->tokenizer : t->tokenizer;
    TRY(tokens_check_vocabulary(config, tokenizer, &t->base.vocabulary));
    t->base.classes = t->base.vocabulary;
    t->base.tokenizer = t->json;
    TRY(encode_text(t, tokenizer, path, dataset_others(config, train != NULL)));
    return tokens_shape(&t->base, t->tokens.count, block, stride == SCHEMA_NO_INT ? block : stride,
                        text_string(&t->name), "tokens");
}

static status open_tokenized(const struct dataset_config *config, const char *path, bool wants_classes,
                             const struct source *train, struct source **out) {
    (void)wants_classes;
    return open_source(&dataset_tokenized, config, path, train, open_encoded, out);
}

static status digest_tokenized(const struct source *source, struct digest *digest) {
    const struct text_source *t = (const struct text_source *)source;
    uint64_t shape[] = {source->stride, (uint64_t)source->vocabulary, t->tokens.count};
    digest_add(digest, shape, sizeof shape);
    if (t->json) digest_add(digest, t->json, strlen(t->json));
    token_array_digest(&t->tokens, digest);
    return OK;
}

const struct dataset_format dataset_tokenized = {.name = "tokens",
                                                 .keys = KEY_TOKENS | KEY_TEXT,
                                                 .extensions = text_extensions,
                                                 .open = open_tokenized,
                                                 .concatenates = true,
                                                 .read_tokens = read_text,
                                                 .digest = digest_tokenized,
                                                 .close = close_text};
