/* tokenizer.json: JSON (jansson limits the depth and rejects duplicates), then each part is checked before it is used.
 * What would change the tokens of a text and is not supported is an error; what an encoding without special tokens does
 * not use (post_processor, truncation, padding) is ignored. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/files/io.h"
#include "base/utf8.h"
#include "data/files/files.h"
#include "data/text/tokenizer_internal.h"

#define MAX_MERGES ((size_t)4 << 20)
#define BYTE_LEVEL_CODES 324 /* code points that stand for bytes are below it */

struct reader {
    struct tokenizer *tokenizer;
    const json_t *root, *model;
    int16_t byte_of[BYTE_LEVEL_CODES]; /* the byte of a code point; -1: none */
    char *scratch;                     /* (size of the file) bytes of a token */
    uint32_t unknown;                  /* the token for bytes without one; TOKEN_NONE: none */
};

static status bad(const char *format, ...) __attribute__((format(printf, 1, 2)));
static status bad(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    status s = status_newv(STATUS_DATA, format, arguments);
    va_end(arguments);
    return s;
}

static bool is_absent(const json_t *value) { return !value || json_is_null(value); }

static bool is_type(const json_t *part, const char *type) {
    const char *value = json_string_value(json_object_get(part, "type"));
    return value && strcmp(value, type) == 0;
}

/* A boolean that may be absent. */
static bool flag_of(const json_t *part, const char *key, bool fallback) {
    const json_t *value = json_object_get(part, key);
    return json_is_boolean(value) ? json_is_true(value) : fallback;
}

/* ---- tokens ---- */

void tokenizer_byte_letters(uint32_t letters[256]) {
    uint32_t others = 256;
    for (uint32_t byte = 0; byte < 256; byte++) {
        bool is_printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
        letters[byte] = is_printable ? byte : others++;
    }
}

static void list_bytes(int16_t *byte_of) {
    uint32_t letters[256];
    tokenizer_byte_letters(letters);
    for (size_t code = 0; code < BYTE_LEVEL_CODES; code++) byte_of[code] = -1;
    for (int16_t byte = 0; byte < 256; byte++) byte_of[letters[byte]] = byte;
}

/* Writes the bytes of a token to the scratch memory; false: it has characters that stand for no byte. */
static bool bytes_of_token(struct reader *r, const char *token, size_t size, size_t *count) {
    uint32_t code;
    *count = 0;
    for (size_t at = 0, length; at < size; at += length) {
        length = utf8_decode(token + at, size - at, &code);
        if (length == 0 || code >= BYTE_LEVEL_CODES || r->byte_of[code] < 0) return false;
        r->scratch[(*count)++] = (char)r->byte_of[code];
    }
    return true;
}

static status check_id(const char *token, const json_t *id, uint32_t *out) {
    json_int_t value = json_integer_value(id);
    if (!json_is_integer(id) || value < 0 || value >= TOKENIZER_MAX_TOKENS)
        return bad("the id of the token '%s' is not a number from 0 to %d", token, TOKENIZER_MAX_TOKENS - 1);
    *out = (uint32_t)value;
    return OK;
}

/* Keeps the bytes of a token of the vocabulary. */
static status add_token(struct reader *r, const char *token, uint32_t id) {
    struct tokenizer *t = r->tokenizer;
    size_t size = strlen(token), count;
    if (size == 0) return bad("the token %u has no characters", id);
    if (t->tokens[id].length > 0) return bad("the tokens '%s' and another have the id %u", token, id);
    if (!bytes_of_token(r, token, size, &count)) return byte_map_keep(&t->vocabulary, token, size, &t->tokens[id]);
    uint64_t hash = byte_map_hash(r->scratch, count);
    TRY(byte_map_add(&t->vocabulary, hash, r->scratch, count, id));
    t->tokens[id] = (struct pool_range){(uint32_t)(t->vocabulary.pool_size - count), (uint32_t)count};
    return OK;
}

/* The largest id + 1 of the vocabulary and the added tokens. */
static status find_size(struct reader *r, const json_t *vocabulary, const json_t *added) {
    const char *token;
    json_t *value;
    size_t i;
    uint32_t id = 0;
    json_object_foreach((json_t *)vocabulary, token, value) {
        TRY(check_id(token, value, &id));
        if (id >= r->tokenizer->size) r->tokenizer->size = id + 1;
    }
    json_array_foreach(added, i, value) {
        const char *content = json_string_value(json_object_get(value, "content"));
        if (!content || !*content) return bad("added token %zu has no content", i + 1);
        TRY(check_id(content, json_object_get(value, "id"), &id));
        if (id >= r->tokenizer->size) r->tokenizer->size = id + 1;
    }
    return r->tokenizer->size ? OK : bad("the vocabulary is empty");
}

static status read_vocabulary(struct reader *r) {
    struct tokenizer *t = r->tokenizer;
    const json_t *vocabulary = json_object_get(r->model, "vocab"), *added = json_object_get(r->root, "added_tokens");
    const char *token;
    json_t *value;
    if (!json_is_object(vocabulary)) return bad("model.vocab is not an object of tokens and ids");
    if (!is_absent(added) && !json_is_array(added)) return bad("added_tokens is not a list");
    TRY(find_size(r, vocabulary, added));
    t->tokens = calloc(t->size, sizeof *t->tokens);
    if (!t->tokens) return status_memory("the tokenizer");
    json_object_foreach((json_t *)vocabulary, token, value) {
        TRY(add_token(r, token, (uint32_t)json_integer_value(value)));
    }
    return OK;
}

/* The id of a token of the vocabulary that stands for bytes; NULL: it is not there. */
static const struct byte_entry *find_token(struct reader *r, const char *token, size_t size) {
    size_t count;
    if (!bytes_of_token(r, token, size, &count)) return NULL;
    return byte_map_find(&r->tokenizer->vocabulary, byte_map_hash(r->scratch, count), r->scratch, count);
}

static status find_unknown(struct reader *r) {
    const json_t *unknown = json_object_get(r->model, "unk_token");
    r->unknown = TOKEN_NONE;
    if (is_absent(unknown)) return OK;
    const json_t *id = json_object_get(json_object_get(r->model, "vocab"), json_string_value(unknown));
    if (!json_is_string(unknown) || !id) return bad("model.unk_token is not in the vocabulary");
    r->unknown = (uint32_t)json_integer_value(id);
    return OK;
}

static status find_bytes(struct reader *r) {
    struct tokenizer *t = r->tokenizer;
    bool is_complete = true;
    TRY(find_unknown(r));
    for (unsigned byte = 0; byte < 256; byte++) {
        char bytes[] = {(char)byte};
        const struct byte_entry *entry = byte_map_find(&t->vocabulary, byte_map_hash(bytes, 1), bytes, 1);
        is_complete = is_complete && entry;
        t->bytes[byte] = entry ? entry->value : r->unknown;
    }
    if (!is_complete && r->unknown != TOKEN_NONE && flag_of(r->model, "fuse_unk", false))
        return bad("model.fuse_unk is not supported for a vocabulary without all 256 bytes");
    return OK;
}

/* ---- added tokens ---- */

static status add_added(struct reader *r, const json_t *value) {
    struct tokenizer *t = r->tokenizer;
    const char *content = json_string_value(json_object_get(value, "content"));
    uint32_t id = (uint32_t)json_integer_value(json_object_get(value, "id"));
    const json_t *known = json_object_get(json_object_get(r->model, "vocab"), content);
    struct added_set *set = &t->added[flag_of(value, "normalized", !flag_of(value, "special", false))];
    struct added_token *token = &set->items[set->count++];
    if (flag_of(value, "single_word", false)) return bad("added token '%s': single_word is not supported", content);
    if (t->is_nfc && set == &t->added[1] && !tokenizer_is_ascii(content, strlen(content)))
        return bad("added token '%s': normalized by NFC and not ASCII, which is not supported", content);
    if ((known && json_integer_value(known) != id) || (!known && t->tokens[id].length > 0))
        return bad("added token '%s' has the id %u, but the vocabulary has another token of this id", content, id);
    TRY(byte_map_keep(&t->vocabulary, content, strlen(content), &token->content));
    t->tokens[id] = token->content;
    token->id = id;
    token->takes_left = flag_of(value, "lstrip", false);
    token->takes_right = flag_of(value, "rstrip", false);
    set->starts[(uint8_t)content[0]] = true;
    return OK;
}

static int by_content(const void *a, const void *b, void *pool) {
    struct pool_range x = ((const struct added_token *)a)->content, y = ((const struct added_token *)b)->content;
    int order = memcmp((char *)pool + x.offset, (char *)pool + y.offset, x.length < y.length ? x.length : y.length);
    return order ? order : (x.length > y.length) - (x.length < y.length);
}

static status read_added(struct reader *r) {
    struct tokenizer *t = r->tokenizer;
    const json_t *added = json_object_get(r->root, "added_tokens");
    size_t count = json_array_size(added);
    for (size_t i = 0; i < 2; i++) {
        t->added[i].items = calloc(count + 1, sizeof *t->added[i].items);
        if (!t->added[i].items) return status_memory("the tokenizer");
    }
    for (size_t i = 0; i < count; i++) TRY(add_added(r, json_array_get(added, i)));
    for (size_t i = 0; i < 2; i++)
        qsort_r(t->added[i].items, t->added[i].count, sizeof *t->added[i].items, by_content, t->vocabulary.pool);
    return OK;
}

/* ---- merges ---- */

/* The tokens of merge number [index]: "a b" or ["a", "b"]. */
static status parts_of_merge(struct reader *r, size_t index, const json_t *value, const struct byte_entry **left,
                             const struct byte_entry **right) {
    const char *a = json_string_value(json_is_array(value) ? json_array_get(value, 0) : value), *b;
    size_t size;
    if (json_is_array(value) && json_array_size(value) == 2) {
        b = json_string_value(json_array_get(value, 1));
        size = a ? strlen(a) : 0;
    } else {
        b = json_is_string(value) ? strchr(a, ' ') : NULL;
        size = b ? (size_t)(b++ - a) : 0;
    }
    if (!a || !b || strchr(b, ' ')) return bad("merge %zu is not two tokens", index + 1);
    *left = find_token(r, a, size);
    *right = find_token(r, b, strlen(b));
    if (!*left || !*right)
        return bad("merge %zu: '%.*s' is not in the vocabulary", index + 1, *left ? (int)strlen(b) : (int)size,
                   *left ? b : a);
    return OK;
}

static status add_merge(struct reader *r, size_t index, const json_t *value) {
    struct tokenizer *t = r->tokenizer;
    const struct byte_entry *left = NULL, *right = NULL;
    TRY(parts_of_merge(r, index, value, &left, &right));
    size_t count = left->key.length + right->key.length;
    memcpy(r->scratch, t->vocabulary.pool + left->key.offset, left->key.length);
    memcpy(r->scratch + left->key.length, t->vocabulary.pool + right->key.offset, right->key.length);
    const struct byte_entry *result =
        byte_map_find(&t->vocabulary, byte_map_hash(r->scratch, count), r->scratch, count);
    if (!result) return bad("merge %zu: its result is not in the vocabulary", index + 1);
    *tokenizer_merge(t, left->value, right->value) =
        (struct merge){left->value, right->value, (uint32_t)index, result->value};
    return OK;
}

static status read_merges(struct reader *r) {
    struct tokenizer *t = r->tokenizer;
    const json_t *merges = json_object_get(r->model, "merges");
    size_t count = json_array_size(merges);
    if (!json_is_array(merges)) return bad("model.merges is not a list");
    if (count > MAX_MERGES) return bad("%zu merges; at most %zu are supported", count, MAX_MERGES);
    for (t->merge_slots = 2; t->merge_slots < 2 * count;) t->merge_slots *= 2;
    t->merges = malloc(t->merge_slots * sizeof *t->merges);
    if (!t->merges) return status_memory("the tokenizer");
    for (size_t i = 0; i < t->merge_slots; i++) t->merges[i].left = TOKEN_NONE;
    for (size_t i = 0; i < count; i++) TRY(add_merge(r, i, json_array_get(merges, i)));
    return OK;
}

/* ---- the parts of the pipeline ---- */

static status check_model(const struct reader *r) {
    const json_t *model = r->model, *dropout = json_object_get(model, "dropout");
    const char *type = json_string_value(json_object_get(model, "type"));
    if (!json_is_object(model)) return bad("it has no model; is this a tokenizer.json of Hugging Face?");
    if (type && strcmp(type, "BPE") != 0)
        return bad("the model '%s' is not supported; byte-level BPE is (as of GPT-2 and Llama 3)", type);
    if (json_number_value(dropout) != 0) return bad("model.dropout makes tokens random, which is not supported");
    if (flag_of(model, "byte_fallback", false))
        return bad("model.byte_fallback is not supported; byte-level BPE is (as of GPT-2 and Llama 3)");
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 2; i++) {
        const char *affix = json_string_value(json_object_get(model, affixes[i]));
        if (affix && *affix) return bad("model.%s is not supported", affixes[i]);
    }
    return OK;
}

static status no_byte_level(void) {
    return bad("pre_tokenizer must be ByteLevel, or a Sequence of Split by a regular expression and ByteLevel; others "
               "are not supported");
}

/* [{"type": "Split", "pattern": {"Regex": "..."}, "behavior": "Isolated"}, {"type": "ByteLevel", "use_regex": false}]
 */
static status read_sequence(struct tokenizer *t, const json_t *parts) {
    const json_t *split = json_array_get(parts, 0), *byte_level = json_array_get(parts, 1);
    const char *behavior = json_string_value(json_object_get(split, "behavior"));
    const char *pattern = json_string_value(json_object_get(json_object_get(split, "pattern"), "Regex"));
    if (json_array_size(parts) != 2 || !is_type(split, "Split") || !is_type(byte_level, "ByteLevel"))
        return no_byte_level();
    if (!behavior || strcmp(behavior, "Isolated") != 0 || flag_of(split, "invert", false))
        return bad("pre_tokenizer: Split must have the behavior Isolated without invert; others are not supported");
    if (flag_of(byte_level, "use_regex", true) || flag_of(byte_level, "add_prefix_space", true))
        return bad("pre_tokenizer: ByteLevel after Split must have neither use_regex nor add_prefix_space");
    t->word_end = pattern ? words_of_pattern(pattern) : NULL;
    if (!t->word_end)
        return bad("pre_tokenizer: the regular expression of Split is not supported; those of GPT-2, Llama 3 and "
                   "Qwen 2 are");
    return OK;
}

static status read_words(const struct reader *r) {
    struct tokenizer *t = r->tokenizer;
    const json_t *pre = json_object_get(r->root, "pre_tokenizer"), *normalizer = json_object_get(r->root, "normalizer");
    const json_t *decoder = json_object_get(r->root, "decoder");
    const char *name = json_string_value(json_object_get(normalizer, "type"));
    t->is_nfc = is_type(normalizer, "NFC");
    if (!is_absent(normalizer) && !t->is_nfc)
        return bad("the normalizer '%s' is not supported; it must be null or NFC", name ? name : "?");
    if (!is_absent(decoder) && !is_type(decoder, "ByteLevel"))
        return bad("the decoder is not supported; it must be ByteLevel");
    t->ignores_merges = flag_of(r->model, "ignore_merges", false);
    if (is_type(pre, "Sequence")) return read_sequence(t, json_object_get(pre, "pretokenizers"));
    if (!is_type(pre, "ByteLevel")) return no_byte_level();
    if (!flag_of(pre, "use_regex", true)) return bad("pre_tokenizer: ByteLevel without use_regex is not supported");
    t->has_prefix_space = flag_of(pre, "add_prefix_space", true);
    t->word_end = words_gpt2;
    return OK;
}

static bool is_padding(const char *content) {
    static const char *const usual[] = {"[PAD]", "<pad>", "<|pad|>", "<|padding|>"};
    for (size_t i = 0; content && i < sizeof usual / sizeof *usual; i++)
        if (strcmp(content, usual[i]) == 0) return true;
    return false;
}

static void read_padding(struct reader *r) {
    const json_t *id = json_object_get(json_object_get(r->root, "padding"), "pad_id"), *token;
    const json_t *added = json_object_get(r->root, "added_tokens");
    for (size_t i = 0; !json_is_integer(id) && (token = json_array_get(added, i)); i++)
        if (is_padding(json_string_value(json_object_get(token, "content")))) id = json_object_get(token, "id");
    json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
    r->tokenizer->padding = value >= 0 && value < (json_int_t)r->tokenizer->size ? (int32_t)value : -1;
}

static status read_all(struct reader *r) {
    r->model = json_object_get(r->root, "model");
    TRY(check_model(r));
    TRY(read_words(r));
    TRY(read_vocabulary(r));
    TRY(find_bytes(r));
    TRY(read_merges(r));
    TRY(read_added(r));
    read_padding(r);
    return OK;
}

status tokenizer_parse(const char *path, const char *json, size_t size, struct tokenizer **out) {
    json_error_t error;
    *out = NULL;
    if (size > TOKENIZER_MAX_BYTES)
        return status_new(STATUS_DATA, "%s: a tokenizer of %zu bytes; at most %zu are supported", path, size,
                          TOKENIZER_MAX_BYTES);
    json_t *root = json_loadb(json, size, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return status_new(STATUS_DATA, "%s:%d:%d: this is not JSON: %s", path, error.line, error.column, error.text);
    struct reader r = {.tokenizer = calloc(1, sizeof *r.tokenizer), .root = root, .scratch = malloc(size)};
    list_bytes(r.byte_of);
    status s = r.tokenizer && r.scratch ? status_prefix(read_all(&r), "%s", path) : status_memory("the tokenizer");
    free(r.scratch);
    json_decref(root);
    if (s)
        tokenizer_destroy(r.tokenizer);
    else
        *out = r.tokenizer;
    return s;
}

static status read_json(const char *path, const char *key, char **json, size_t *size) {
    struct io_info info;
    TRY(io_stat(path, &info));
    if (!info.is_file)
        return status_new(STATUS_DATA, "cannot read the tokenizer '%s' (%s): %s", path, key,
                          info.exists ? "it is not a regular file" : strerror(ENOENT));
    if (info.size > TOKENIZER_MAX_BYTES)
        return status_new(STATUS_DATA, "%s: a tokenizer has at most %zu bytes, this file has %llu", path,
                          TOKENIZER_MAX_BYTES, (unsigned long long)info.size);
    return file_read(path, json, size);
}

static status copy_trained(const char *text, char **json, size_t *size) {
    void *copy;
    *size = strlen(text);
    TRY(buffer_new(*size + 1, "the tokenizer", &copy));
    memcpy(copy, text, *size);
    *json = copy;
    return OK;
}

status tokenizer_open(const char *path, const char *key, const char *trained, char **json, struct tokenizer **out) {
    size_t size;
    *json = NULL;
    *out = NULL;
    TRY(trained ? copy_trained(trained, json, &size) : read_json(path, key, json, &size));
    return tokenizer_parse(trained ? "the model's tokenizer" : path, *json, size, out);
}

void tokenizer_destroy(struct tokenizer *tokenizer) {
    if (!tokenizer) return;
    byte_map_free(&tokenizer->vocabulary);
    for (size_t i = 0; i < 2; i++) free(tokenizer->added[i].items);
    free(tokenizer->tokens);
    free(tokenizer->merges);
    free(tokenizer);
}

size_t tokenizer_size(const struct tokenizer *tokenizer) { return tokenizer->size; }

int32_t tokenizer_padding(const struct tokenizer *tokenizer) { return tokenizer->padding; }
