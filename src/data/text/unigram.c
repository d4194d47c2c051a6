/* Unigram: pieces in a trie, the search for the best ones of a word, Metaspace. The edges of the trie are in one hash
 * table, which takes memory in proportion to the bytes of the pieces, whatever they are. */
#include "data/text/unigram.h"

#include <math.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "base/utf8.h"
#include "data/text/tokenizer.h"

#define MAX_PIECE 1024 /* bytes */
#define NO_ID UINT32_MAX
#define UNKNOWN_PENALTY 10.0

enum prepend { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS };

/* A character that stands for a blank; length 0: none. */
struct blank {
    char bytes[4];
    size_t length;
};

struct unigram {
    struct normalizer *normalizer;
    double *scores; /* (size) */
    size_t size;
    double unknown_score;
    uint32_t unknown;     /* NO_ID: none */
    bool has_byte_pieces; /* byte_fallback */
    uint32_t bytes[256];  /* ids of <0x00> ..; NO_ID: none */
    /* The trie; node 0 is the root. */
    struct edge {
        uint32_t node, child; /* child 0: a free slot */
        uint8_t byte;
    } * edges;          /* (edge_slots), a power of two, at most half full */
    uint32_t *node_ids; /* (node_capacity) of the piece that ends at a node; NO_ID: none */
    size_t edge_slots, node_count, node_capacity;
    /* Metaspace */
    struct blank blank;
    enum prepend prepend;
    bool cuts_at_blanks, cuts_at_spaces; /* before the blank; at white space, which is removed */
    /* the decoder */
    struct blank decoded_blank; /* what becomes a blank */
    bool drops_first_blanks;    /* those of the first token */
    bool joins_by_blanks;       /* there is no decoder */
    bool decodes_bytes;         /* <0x41> is a byte */
    bool strips_blank;          /* the first one of a text */
};

/* ---- the trie ---- */

static struct edge *edge_slot(const struct unigram *u, uint32_t node, uint8_t byte) {
    uint64_t hash = ((uint64_t)node << 8 | byte) * 0x9e3779b97f4a7c15u;
    for (size_t i = (hash >> 32) & (u->edge_slots - 1);; i = (i + 1) & (u->edge_slots - 1)) {
        struct edge *edge = &u->edges[i];
        if (!edge->child || (edge->node == node && edge->byte == byte)) return edge;
    }
}

/* 0: there is none. */
static uint32_t child_of(const struct unigram *u, uint32_t node, char byte) {
    return edge_slot(u, node, (uint8_t)byte)->child;
}

static status grow_edges(struct unigram *u) {
    size_t before = u->edge_slots, count = before ? 2 * before : 1024;
    struct edge *old = u->edges, *edges = calloc(count, sizeof *edges);
    if (!edges) return status_memory("the tokenizer");
    u->edges = edges;
    u->edge_slots = count;
    for (size_t i = 0; i < before; i++)
        if (old[i].child) *edge_slot(u, old[i].node, old[i].byte) = old[i];
    free(old);
    return OK;
}

static status add_node(struct unigram *u) {
    TRY(array_grow(&u->node_ids, &u->node_capacity, u->node_count + 1, sizeof *u->node_ids, "the tokenizer"));
    u->node_ids[u->node_count++] = NO_ID;
    return OK;
}

/* Of equal pieces the last one counts, as in the tokenizers package. */
static status add_piece(struct unigram *u, const char *piece, size_t size, uint32_t id) {
    uint32_t node = 0;
    for (size_t i = 0; i < size; i++) {
        if (2 * (u->node_count + 1) > u->edge_slots) TRY(grow_edges(u));
        struct edge *edge = edge_slot(u, node, (uint8_t)piece[i]);
        if (!edge->child) {
            *edge = (struct edge){node, (uint32_t)u->node_count, (uint8_t)piece[i]};
            TRY(add_node(u));
        }
        node = edge->child;
    }
    u->node_ids[node] = id;
    return OK;
}

static uint32_t find_piece(const struct unigram *u, const char *piece, size_t size) {
    uint32_t node = 0;
    for (size_t i = 0; i < size; i++)
        if ((node = child_of(u, node, piece[i])) == 0) return NO_ID;
    return u->node_ids[node];
}

int64_t unigram_find(const struct unigram *unigram, const char *piece, size_t size) {
    uint32_t id = find_piece(unigram, piece, size);
    return id == NO_ID ? -1 : (int64_t)id;
}

size_t unigram_size(const struct unigram *unigram) { return unigram->size; }

const struct normalizer *unigram_normalizer(const struct unigram *unigram) { return unigram->normalizer; }

/* ---- words ---- */

/* Adds a word whose blanks are replaced, after a separator if words are not cut before blanks anyway. */
static status add_word(const struct unigram *u, const char *text, size_t size, bool is_first, struct normalized *out) {
    const struct blank *b = &u->blank;
    bool has_blank = size && (text[0] == ' ' || (size >= b->length && memcmp(text, b->bytes, b->length) == 0));
    bool prepends = u->prepend == PREPEND_ALWAYS || (u->prepend == PREPEND_FIRST && is_first);
    if (u->cuts_at_spaces && out->size > 0) TRY(normalized_add(out, " ", 1));
    if (b->length && prepends && !has_blank) TRY(normalized_add(out, b->bytes, b->length));
    for (size_t at = 0; at < size;) {
        const char *blank = b->length ? memchr(text + at, ' ', size - at) : NULL;
        size_t end = blank ? (size_t)(blank - text) : size;
        TRY(normalized_add(out, text + at, end - at));
        if (blank) TRY(normalized_add(out, b->bytes, b->length));
        at = end + (blank != NULL);
    }
    return OK;
}

status unigram_pretokenize(const struct unigram *unigram, const char *text, size_t size, bool is_first,
                           struct normalized *out) {
    if (!unigram->cuts_at_spaces) return add_word(unigram, text, size, is_first, out);
    size_t start = 0, length;
    uint32_t code;
    for (size_t at = 0; at <= size; at += length) {
        length = at < size ? utf8_decode(text + at, size - at, &code) : 1;
        if (at < size && unicode_class(code) != UNICODE_SPACE) continue;
        if (at > start) TRY(add_word(unigram, text + start, at - start, false, out));
        start = at + length;
    }
    return OK;
}

size_t unigram_word(const struct unigram *unigram, const char *text, size_t size, size_t *skipped) {
    const struct blank *b = &unigram->blank;
    size_t start = unigram->cuts_at_spaces && text[0] == ' ', end = size;
    const char *space = unigram->cuts_at_spaces ? memchr(text + start, ' ', size - start) : NULL;
    if (space) end = (size_t)(space - text);
    if (unigram->cuts_at_blanks && end - start > 1) {
        const char *blank = memmem(text + start + 1, end - start - 1, b->bytes, b->length);
        if (blank) end = (size_t)(blank - text);
    }
    *skipped = start;
    return end - start;
}

/* ---- the search ---- */

#define NO_START UINT32_MAX
#define MAX_WORD ((size_t)1 << 30) /* bytes */

/* The best pieces of a word up to one of its bytes. */
struct unigram_node {
    double score;
    uint32_t start; /* of the last piece; NO_START: no piece ends here */
    uint32_t id;
};

static status reserve_nodes(struct unigram_search *search, size_t count) {
    if (count <= search->capacity) return OK;
    free(search->nodes);
    count += 1024; /* a longer word is rare, and nothing is copied */
    search->nodes = malloc(count * sizeof *search->nodes);
    search->capacity = search->nodes ? count : 0;
    return search->nodes ? OK : status_memory("the tokens of a text");
}

static void improve(struct unigram_node *node, double score, size_t start, uint32_t id) {
    if (node->start == NO_START || score > node->score) *node = (struct unigram_node){score, (uint32_t)start, id};
}

/* Finds the best pieces up to each byte; nodes: (size + 1). */
static status search_best(const struct unigram *u, const char *word, size_t size, struct unigram_node *nodes) {
    uint32_t code = 0;
    for (size_t i = 0; i <= size; i++) nodes[i] = (struct unigram_node){0, NO_START, NO_ID};
    for (size_t at = 0, length; at < size; at += length) {
        double before = nodes[at].score;
        bool has_character = false;
        length = utf8_decode(word + at, size - at, &code);
        uint32_t node = 0;
        for (size_t end = at; end < size && (node = child_of(u, node, word[end])) != 0; end++) {
            uint32_t id = u->node_ids[node];
            if (id == NO_ID) continue;
            improve(&nodes[end + 1], u->scores[id] + before, at, id);
            has_character = has_character || end + 1 - at == length;
        }
        if (has_character) continue;
        improve(&nodes[at + length], u->unknown_score + before, at, u->unknown);
        if (nodes[at + length].id == NO_ID)
            return bad("the tokenizer has neither a token for the character U+%04X nor an unknown token (model.unk_id)",
                       (unsigned)code);
    }
    return OK;
}

static void put(struct token_list *out, uint32_t id) { out->ids[out->count++] = (int32_t)id; }

/* Adds the token of a part of the word, or those of its bytes, the last one first. */
static void put_part(const struct unigram *u, const char *part, size_t size, struct token_list *out) {
    uint32_t id = find_piece(u, part, size);
    bool has_bytes = u->has_byte_pieces && id == NO_ID;
    for (size_t i = 0; i < size && has_bytes; i++) has_bytes = u->bytes[(uint8_t)part[i]] != NO_ID;
    if (!has_bytes) put(out, id == NO_ID ? u->unknown : id);
    for (size_t i = size; i > 0 && has_bytes; i--) put(out, u->bytes[(uint8_t)part[i - 1]]);
}

status unigram_encode(const struct unigram *unigram, struct unigram_search *search, const char *word, size_t size,
                      struct token_list *out) {
    size_t first = out->count;
    if (size > MAX_WORD) return bad("the text has a word of more than 1 GiB");
    TRY(reserve_nodes(search, size + 1));
    const struct unigram_node *nodes = search->nodes;
    TRY(search_best(unigram, word, size, search->nodes));
    for (size_t end = size, start; end > 0; end = start) {
        start = nodes[end].start;
        bool is_unknown = unigram->unknown != NO_ID && nodes[end].id == unigram->unknown;
        while (is_unknown && start > 0 && nodes[start].id == unigram->unknown) start = nodes[start].start;
        put_part(unigram, word + start, end - start, out);
    }
    for (size_t low = first, high = out->count; low + 1 < high; low++) {
        int32_t id = out->ids[--high];
        out->ids[high] = out->ids[low];
        out->ids[low] = id;
    }
    return OK;
}

/* ---- decoding ---- */

/* The byte of <0x41>; -1: another token. */
static int byte_of_token(const char *token, size_t size) {
    static const char digits[] = "0123456789ABCDEF";
    if (size != 6 || memcmp(token, "<0x", 3) != 0 || token[5] != '>') return -1;
    const char *high = token[3] ? strchr(digits, token[3]) : NULL, *low = token[4] ? strchr(digits, token[4]) : NULL;
    return high && low ? (int)(16 * (high - digits) + (low - digits)) : -1;
}

void unigram_decode(const struct unigram *unigram, const char *token, size_t size, bool is_first, struct text *out) {
    const struct blank *b = &unigram->decoded_blank;
    int byte = unigram->decodes_bytes ? byte_of_token(token, size) : -1;
    if (byte >= 0) {
        text_add_bytes(out, (const char[]){(char)byte}, 1);
        return;
    }
    if (unigram->joins_by_blanks && !is_first) text_add(out, " ");
    for (size_t at = 0, length; at < size; at += length) {
        bool is_blank = b->length && size - at >= b->length && memcmp(token + at, b->bytes, b->length) == 0;
        length = is_blank ? b->length : 1;
        bool is_stripped = unigram->strips_blank && at == 0 && (is_blank || token[at] == ' ');
        bool drops = is_first && (is_stripped || (is_blank && unigram->drops_first_blanks));
        if (!drops) text_add_bytes(out, is_blank ? " " : token + at, is_blank ? 1 : length);
    }
}

/* ---- reading ---- */

static status read_piece(struct unigram *u, size_t index, const json_t *pair, double *lowest) {
    const char *piece = json_string_value(json_array_get(pair, 0));
    const json_t *score = json_array_get(pair, 1);
    size_t size = piece ? strlen(piece) : 0;
    if (json_array_size(pair) != 2 || !piece || !json_is_number(score))
        return bad("model.vocab: item %zu is not a piece and its score, a finite number", index);
    if (size == 0) return bad("the token %zu has no characters", index);
    if (size > MAX_PIECE)
        return bad("model.vocab: the piece %zu has %zu bytes; at most %d are supported", index, size, MAX_PIECE);
    u->scores[index] = json_number_value(score);
    if (!isfinite(u->scores[index])) return bad("model.vocab: the score of the piece %zu is not finite", index);
    if (u->scores[index] < *lowest) *lowest = u->scores[index];
    return add_piece(u, piece, size, (uint32_t)index);
}

static status read_pieces(struct unigram *u, const json_t *model) {
    const json_t *vocabulary = json_object_get(model, "vocab"), *pair;
    double lowest = INFINITY;
    size_t i;
    if (!json_is_array(vocabulary)) return bad("model.vocab of a Unigram model is not a list of pieces and scores");
    u->size = json_array_size(vocabulary);
    if (u->size == 0) return bad("the vocabulary is empty");
    if (u->size > TOKENIZER_MAX_TOKENS)
        return bad("model.vocab has %zu pieces; at most %d are supported", u->size, TOKENIZER_MAX_TOKENS);
    u->scores = calloc(u->size, sizeof *u->scores);
    if (!u->scores) return status_memory("the tokenizer");
    TRY(add_node(u));
    TRY(grow_edges(u));
    json_array_foreach(vocabulary, i, pair) TRY(read_piece(u, i, pair, &lowest));
    u->unknown_score = lowest - UNKNOWN_PENALTY;
    return OK;
}

static status read_model(struct unigram *u, const json_t *model) {
    const json_t *unknown = json_object_get(model, "unk_id");
    static const char *const random[] = {"alpha", "nbest_size"};
    for (size_t i = 0; i < 2; i++)
        if (!is_absent(json_object_get(model, random[i])))
            return bad("model.%s makes tokens random, which is not supported", random[i]);
    TRY(read_pieces(u, model));
    u->unknown = NO_ID;
    if (!is_absent(unknown)) {
        json_int_t id = json_integer_value(unknown);
        if (!json_is_integer(unknown) || id < 0 || (size_t)id >= u->size)
            return bad("model.unk_id is not the number of a piece, 0 to %zu", u->size - 1);
        u->unknown = (uint32_t)id;
    }
    u->has_byte_pieces = flag_of(model, "byte_fallback", false);
    for (unsigned byte = 0; byte < 256; byte++) {
        const char *digits = "0123456789ABCDEF";
        char piece[] = {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>'};
        u->bytes[byte] = find_piece(u, piece, sizeof piece);
    }
    return OK;
}

/* The replacement of a Metaspace and its scheme; add_prefix_space is that of old files. */
static status read_metaspace(const json_t *json, const char *part, struct blank *blank, enum prepend *prepend) {
    static const char *const schemes[] = {"never", "first", "always"};
    const char *text = json_string_value(json_object_get(json, "replacement"));
    const char *scheme = json_string_value(json_object_get(json, "prepend_scheme"));
    uint32_t code;
    size_t size = text ? strlen(text) : 0;
    if (size == 0 || utf8_decode(text, size, &code) != size || unicode_class(code) == UNICODE_SPACE)
        return bad("%s: the replacement of Metaspace is not one character other than white space", part);
    blank->length = size;
    memcpy(blank->bytes, text, size);
    *prepend = flag_of(json, "add_prefix_space", true) ? PREPEND_ALWAYS : PREPEND_NEVER;
    if (!scheme) return OK;
    for (size_t i = 0; i < 3; i++) {
        *prepend = (enum prepend)i;
        if (strcmp(scheme, schemes[i]) == 0) return OK;
    }
    return bad("%s: the prepend_scheme '%s' of Metaspace is not always, first or never", part, scheme);
}

static status read_words(struct unigram *u, const json_t *json) {
    const json_t *list = json_object_get(json, "pretokenizers");
    if (is_absent(json)) return OK;
    if (is_type(json, "Sequence")) {
        u->cuts_at_spaces = is_type(json_array_get(list, 0), "WhitespaceSplit");
        if (json_array_size(list) == (size_t)u->cuts_at_spaces + 1) json = json_array_get(list, u->cuts_at_spaces);
    }
    if (!is_type(json, "Metaspace"))
        return bad("pre_tokenizer of a Unigram model must be null, Metaspace or a Sequence of WhitespaceSplit and "
                   "Metaspace; others are not supported");
    u->cuts_at_blanks = flag_of(json, "split", true);
    TRY(read_metaspace(json, "pre_tokenizer", &u->blank, &u->prepend));
    if (u->prepend == PREPEND_FIRST && (u->cuts_at_spaces || normalizer_removes_start(u->normalizer)))
        return bad(
            "pre_tokenizer: the prepend_scheme first is not supported with WhitespaceSplit, or with a normalizer that "
            "removes or replaces the start of a text (Strip at the left, StripAccents, Replace of a text)");
    return OK;
}

/* Strip needs the tokens as one text, ByteFallback and Metaspace need them as they are. */
static status read_decoder_part(struct unigram *u, const json_t *json, bool is_fused) {
    const char *from = json_string_value(json_object_get(json_object_get(json, "pattern"), "String"));
    const char *to = json_string_value(json_object_get(json, "content"));
    const json_t *start = json_object_get(json, "start"), *stop = json_object_get(json, "stop");
    bool is_new = u->decoded_blank.length == 0, is_by_blank = to && strcmp(to, " ") == 0;
    if (is_type(json, "Fuse")) return OK;
    if (is_type(json, "ByteFallback") && !is_fused) {
        u->decodes_bytes = true;
        return OK;
    }
    if (is_type(json, "Metaspace") && is_new && !is_fused) {
        enum prepend prepend;
        TRY(read_metaspace(json, "decoder", &u->decoded_blank, &prepend));
        u->drops_first_blanks = prepend != PREPEND_NEVER;
        return OK;
    }
    if (is_type(json, "Replace") && is_new && from && *from && strlen(from) <= 4 && is_by_blank) {
        u->decoded_blank.length = strlen(from);
        memcpy(u->decoded_blank.bytes, from, strlen(from));
        return OK;
    }
    if (is_type(json, "Strip") && !is_new && is_fused && is_by_blank && json_is_integer(start) &&
        json_is_integer(stop) && json_integer_value(start) >= 0 && json_integer_value(start) <= 1 &&
        json_integer_value(stop) == 0) {
        u->strips_blank = json_integer_value(start) == 1;
        return OK;
    }
    return bad("the decoder of a Unigram model must be null, Metaspace or a Sequence of one Metaspace or Replace by a "
               "blank, ByteFallback, Fuse and then Strip of a blank at the start; others are not supported");
}

static status read_decoder(struct unigram *u, const json_t *json) {
    const json_t *part;
    size_t i;
    bool is_fused = false;
    u->joins_by_blanks = is_absent(json);
    if (u->joins_by_blanks) return OK;
    if (!is_type(json, "Sequence")) return read_decoder_part(u, json, false);
    json_array_foreach(json_object_get(json, "decoders"), i, part) {
        TRY(read_decoder_part(u, part, is_fused));
        is_fused = is_fused || is_type(part, "Fuse");
    }
    return OK;
}

status unigram_read(const json_t *root, struct unigram **out) {
    struct unigram *u = calloc(1, sizeof *u);
    *out = u;
    if (!u) return status_memory("the tokenizer");
    TRY(normalizer_read(json_object_get(root, "normalizer"), &u->normalizer));
    TRY(read_words(u, json_object_get(root, "pre_tokenizer")));
    TRY(read_decoder(u, json_object_get(root, "decoder")));
    return read_model(u, json_object_get(root, "model"));
}

void unigram_destroy(struct unigram *unigram) {
    if (!unigram) return;
    normalizer_destroy(unigram->normalizer);
    free(unigram->scores);
    free(unigram->edges);
    free(unigram->node_ids);
    free(unigram);
}
