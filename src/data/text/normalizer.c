/* Normalizers of tokenizer.json: a list of steps, each of which writes a new text. Files are not trusted: a table of
 * characters is checked at each step of a search. */
#include "data/text/normalizer.h"

#include <stdlib.h>
#include <utf8proc.h>

#include "base/scoped.h"
#include "base/utf8.h"

/* ---- Unicode forms ---- */

/* By utf8proc. Lines are normalized one by one: a line end composes with nothing, and utf8proc needs four bytes for
 * each character of its argument. */

bool is_ascii_text(const char *text, size_t size) {
    for (size_t i = 0; i < size; i++)
        if ((uint8_t)text[i] >= 0x80) return false;
    return true;
}

status normalized_add(struct normalized *to, const void *bytes, size_t size) {
    TRY(array_grow(&to->text, &to->capacity, to->size + size, 1, "a normalized text"));
    if (size) memcpy(to->text + to->size, bytes, size);
    to->size += size;
    return OK;
}

static status add_line(enum normal_form form, const char *line, size_t size, struct normalized *to) {
    static const utf8proc_option_t options[] = {
        [NORMAL_NFC] = UTF8PROC_COMPOSE,
        [NORMAL_NFD] = UTF8PROC_DECOMPOSE,
        [NORMAL_NFKC] = UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [NORMAL_NFKD] = UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    uint8_t *composed;
    if (is_ascii_text(line, size)) return normalized_add(to, line, size);
    utf8proc_ssize_t length =
        utf8proc_map((const uint8_t *)line, (utf8proc_ssize_t)size, &composed, UTF8PROC_STABLE | options[form]);
    if (length == UTF8PROC_ERROR_NOMEM || length == UTF8PROC_ERROR_OVERFLOW)
        return status_memory("the Unicode form of a line of text");
    if (length < 0) return status_new(STATUS_BUG, "a text cannot be normalized: %s", utf8proc_errmsg(length));
    status s = normalized_add(to, composed, (size_t)length);
    free(composed);
    return s;
}

status normalize_form(enum normal_form form, const char *text, size_t size, struct normalized *out) {
    status s = OK;
    for (size_t at = 0; at < size && !s;) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t length = end ? (size_t)(end - (text + at)) + 1 : size - at;
        s = add_line(form, text + at, length, out);
        at += length;
    }
    return s;
}

/* ---- steps ---- */

#define MAX_STEPS 32

struct step {
    status (*run)(const struct step *step, const char *text, size_t size, struct normalized *out);
    enum normal_form form;
    char *from, *to;        /* Replace; from NULL: two or more blanks */
    bool is_left, is_right; /* Strip */
    /* Precompiled: a trie of characters as a double array, as in the library Darts, whose values are offsets of strings
     * that end with a zero. */
    uint32_t *units; /* (unit_count) */
    size_t unit_count, string_size;
    char *strings; /* (string_size) */
};

struct normalizer {
    struct step steps[MAX_STEPS];
    size_t count;
};

static status run_form(const struct step *step, const char *text, size_t size, struct normalized *out) {
    return normalize_form(step->form, text, size, out);
}

/* ---- Replace ---- */

/* The first of two or more blanks, and their number; NULL: there are none. */
static const char *find_blanks(const char *text, size_t size, size_t *length) {
    const char *found = memmem(text, size, "  ", 2);
    for (*length = 2; found && found + *length < text + size && found[*length] == ' ';) ++*length;
    return found;
}

static status run_replace(const struct step *step, const char *text, size_t size, struct normalized *out) {
    size_t length = step->from ? strlen(step->from) : 0, added = strlen(step->to);
    for (size_t at = 0; at < size;) {
        const char *found =
            step->from ? memmem(text + at, size - at, step->from, length) : find_blanks(text + at, size - at, &length);
        size_t before = found ? (size_t)(found - text) - at : size - at;
        TRY(normalized_add(out, text + at, before));
        if (!found) break;
        TRY(normalized_add(out, step->to, added));
        at += before + length;
    }
    return OK;
}

/* ---- Strip, StripAccents, Lowercase ---- */

/* The length of the character before the end of text (size > 0), and its code point. */
static size_t last_character(const char *text, size_t size, uint32_t *code) {
    size_t start = size - 1;
    while (start > 0 && ((uint8_t)text[start] & 0xc0) == 0x80) start--;
    return utf8_decode(text + start, size - start, code);
}

static status run_strip(const struct step *step, const char *text, size_t size, struct normalized *out) {
    size_t start = 0, length;
    uint32_t code;
    while (step->is_left && start < size && (length = utf8_decode(text + start, size - start, &code)) > 0 &&
           unicode_class(code) == UNICODE_SPACE)
        start += length;
    while (step->is_right && size > start && (length = last_character(text + start, size - start, &code)) > 0 &&
           unicode_class(code) == UNICODE_SPACE)
        size -= length;
    return normalized_add(out, text + start, size - start);
}

static status run_strip_accents(const struct step *step, const char *text, size_t size, struct normalized *out) {
    uint32_t code;
    (void)step;
    for (size_t at = 0, length; at < size; at += length) {
        length = utf8_decode(text + at, size - at, &code);
        utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)code);
        bool is_mark = c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ME;
        if (!is_mark) TRY(normalized_add(out, text + at, length));
    }
    return OK;
}

#define DOTTED_I 0x130 /* its lower case is two characters */

static status run_lowercase(const struct step *step, const char *text, size_t size, struct normalized *out) {
    uint32_t code;
    char bytes[4];
    (void)step;
    for (size_t at = 0, length; at < size; at += length) {
        length = utf8_decode(text + at, size - at, &code);
        size_t count = utf8_write((uint32_t)utf8proc_tolower((utf8proc_int32_t)code), bytes);
        TRY(normalized_add(out, bytes, count));
        if (code == DOTTED_I) TRY(normalized_add(out, "\u0307", 2));
    }
    return OK;
}

/* ---- Precompiled ---- */

static bool unit_has_leaf(uint32_t unit) { return unit >> 8 & 1; }
static uint32_t unit_label(uint32_t unit) { return unit & 0x800000ff; }
static uint32_t unit_offset(uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }
static uint32_t unit_value(uint32_t unit) { return unit & 0x7fffffff; }

/* What stands for text (size): that of the shortest part from its start in the table, as in the tokenizers package;
 * NULL: nothing does. */
static const char *table_find(const struct step *step, const char *text, size_t size) {
    size_t node = unit_offset(step->units[0]);
    for (size_t i = 0; i < size && text[i]; i++) {
        node ^= (uint8_t)text[i];
        if (node >= step->unit_count || unit_label(step->units[node]) != (uint8_t)text[i]) return NULL;
        uint32_t unit = step->units[node];
        node ^= unit_offset(unit);
        if (!unit_has_leaf(unit)) continue;
        if (node >= step->unit_count) return NULL;
        size_t value = unit_value(step->units[node]);
        return value < step->string_size && ((uint8_t)step->strings[value] & 0xc0) != 0x80 ? step->strings + value
                                                                                           : NULL;
    }
    return NULL;
}

#define MAX_GRAPHEME 6 /* bytes; longer ones are replaced character by character */

static status add_grapheme(const struct step *step, const char *text, size_t size, struct normalized *out) {
    const char *found = size < MAX_GRAPHEME ? table_find(step, text, size) : NULL;
    uint32_t code;
    if (found) return normalized_add(out, found, strlen(found));
    for (size_t at = 0, length; at < size; at += length) {
        length = utf8_decode(text + at, size - at, &code);
        found = table_find(step, text + at, length);
        TRY(normalized_add(out, found ? found : text + at, found ? strlen(found) : length));
    }
    return OK;
}

/* The length of the grapheme at the start of text (size > 0). */
static size_t grapheme_length(const char *text, size_t size) {
    uint32_t code, next;
    utf8proc_int32_t state = 0;
    size_t at = utf8_decode(text, size, &code), length;
    for (; at < size; at += length, code = next) {
        length = utf8_decode(text + at, size - at, &next);
        bool is_plain = code < 0x80 && next < 0x80 && code != '\r';
        if (is_plain || utf8proc_grapheme_break_stateful((utf8proc_int32_t)code, (utf8proc_int32_t)next, &state)) break;
    }
    return at;
}

static status run_table(const struct step *step, const char *text, size_t size, struct normalized *out) {
    for (size_t at = 0, length; at < size; at += length) {
        length = grapheme_length(text + at, size - at);
        TRY(add_grapheme(step, text + at, length, out));
    }
    return OK;
}

/* ---- reading ---- */

static int base64_digit(char c) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *found = c ? strchr(digits, c) : NULL;
    return found ? (int)(found - digits) : -1;
}

/* Decodes base64 with its padding to bytes (3 / 4 of its length) and sets their number; false: this is none. */
static bool base64_decode(const char *text, size_t size, uint8_t *bytes, size_t *count) {
    size_t padding = 0;
    *count = 0;
    if (size % 4 != 0) return false;
    while (padding < 2 && padding < size && text[size - padding - 1] == '=') padding++;
    for (size_t i = 0; i < size; i += 4) {
        uint32_t group = 0;
        for (size_t k = 0; k < 4; k++) {
            int digit = i + k >= size - padding ? 0 : base64_digit(text[i + k]);
            if (digit < 0) return false;
            group = group << 6 | (uint32_t)digit;
        }
        for (size_t k = 0; k < 3; k++) bytes[(*count)++] = (uint8_t)(group >> (16 - 8 * k));
    }
    *count -= padding;
    return true;
}

static uint32_t read_u32(const uint8_t *bytes) {
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* The size of the trie in bytes, the trie as little-endian numbers of 32 bits, the strings. */
static status read_table_bytes(const uint8_t *bytes, size_t size, struct step *step) {
    if (size < 4) return bad("normalizer: precompiled_charsmap has %zu bytes; it begins with a size of 4", size);
    step->unit_count = read_u32(bytes) / 4;
    if (step->unit_count == 0 || step->unit_count > (size - 4) / 4)
        return bad("normalizer: precompiled_charsmap is truncated: a trie of %zu numbers, but %zu bytes follow",
                   step->unit_count, size - 4);
    const uint8_t *strings = bytes + 4 + 4 * step->unit_count;
    step->string_size = size - 4 - 4 * step->unit_count;
    step->units = malloc(step->unit_count * sizeof *step->units);
    step->strings = malloc(step->string_size + 1);
    if (!step->units || !step->strings) return status_memory("the tokenizer");
    for (size_t i = 0; i < step->unit_count; i++) step->units[i] = read_u32(bytes + 4 + 4 * i);
    memcpy(step->strings, strings, step->string_size);
    step->strings[step->string_size] = '\0';
    for (size_t at = 0, length; at < step->string_size; at += length) {
        uint32_t code;
        length = utf8_decode(step->strings + at, step->string_size - at, &code);
        if (length == 0) return bad("normalizer: the strings of precompiled_charsmap are not valid UTF-8");
    }
    return OK;
}

static status read_table(const json_t *json, struct step *step) {
    const json_t *map = json_object_get(json, "precompiled_charsmap");
    const char *text = json_string_value(map);
    size_t size = json_string_length(map), count;
    if (!text) return bad("normalizer: Precompiled has no precompiled_charsmap");
    SCOPED_BUFFER uint8_t *bytes = NULL;
    TRY(buffer_new(size, "the tokenizer", &bytes));
    step->run = run_table;
    return base64_decode(text, size, bytes, &count) ? read_table_bytes(bytes, count, step)
                                                    : bad("normalizer: precompiled_charsmap is not base64");
}

static status read_replace(const json_t *json, struct step *step) {
    const json_t *pattern = json_object_get(json, "pattern");
    const char *from = json_string_value(json_object_get(pattern, "String"));
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    const char *to = json_string_value(json_object_get(json, "content"));
    bool is_blanks = regex && strcmp(regex, " {2,}") == 0;
    if (!to || (!is_blanks && (!from || !*from)))
        return bad("normalizer: Replace is supported for a text and for the regular expression ' {2,}' only");
    step->run = run_replace;
    step->from = is_blanks ? NULL : strdup(from);
    step->to = strdup(to);
    return step->to && (is_blanks || step->from) ? OK : status_memory("the tokenizer");
}

static const struct {
    const char *type;
    struct step step;
} simple_steps[] = {
    {"NFC", {.run = run_form, .form = NORMAL_NFC}},
    {"NFD", {.run = run_form, .form = NORMAL_NFD}},
    {"NFKC", {.run = run_form, .form = NORMAL_NFKC}},
    {"NFKD", {.run = run_form, .form = NORMAL_NFKD}},
    {"StripAccents", {.run = run_strip_accents}},
    {"Lowercase", {.run = run_lowercase}},
    {"Strip", {.run = run_strip}},
};

static status read_step(struct normalizer *n, const json_t *json) {
    const char *type = json_string_value(json_object_get(json, "type"));
    if (n->count == MAX_STEPS) return bad("normalizer: at most %d steps are supported", MAX_STEPS);
    struct step *step = &n->steps[n->count++];
    if (is_type(json, "Precompiled")) return read_table(json, step);
    if (is_type(json, "Replace")) return read_replace(json, step);
    for (size_t i = 0; type && i < sizeof simple_steps / sizeof *simple_steps; i++) {
        if (strcmp(simple_steps[i].type, type) != 0) continue;
        *step = simple_steps[i].step;
        step->is_left = flag_of(json, "strip_left", true);
        step->is_right = flag_of(json, "strip_right", true);
        return OK;
    }
    n->count--;
    return bad("the normalizer '%s' is not supported with this model; Precompiled, NFC, NFD, NFKC, NFKD, Replace, "
               "Strip, StripAccents, Lowercase and a Sequence of these are",
               type ? type : "?");
}

static status read_steps(struct normalizer *n, const json_t *json) {
    const json_t *list = json_object_get(json, "normalizers"), *part;
    size_t i;
    if (is_absent(json)) return OK;
    if (!is_type(json, "Sequence")) return read_step(n, json);
    if (!json_is_array(list)) return bad("normalizer: Sequence has no list normalizers");
    json_array_foreach(list, i, part) TRY(read_step(n, part));
    return OK;
}

status normalizer_read(const json_t *json, struct normalizer **out) {
    struct normalizer *n = calloc(1, sizeof *n);
    *out = NULL;
    if (!n) return status_memory("the tokenizer");
    status s = read_steps(n, json);
    if (s) normalizer_destroy(n);
    if (!s) *out = n;
    return s;
}

static bool is_blank(const char *text) { return strcmp(text, " ") == 0 || strcmp(text, "\u2581") == 0; }

bool normalizer_removes_start(const struct normalizer *normalizer) {
    bool removes = false;
    for (size_t i = 0; i < normalizer->count; i++) {
        const struct step *step = &normalizer->steps[i];
        removes = removes || step->run == run_strip_accents || (step->run == run_strip && step->is_left) ||
                  (step->run == run_replace && (step->from || !is_blank(step->to)));
    }
    return removes;
}

void normalizer_destroy(struct normalizer *normalizer) {
    if (!normalizer) return;
    for (size_t i = 0; i < normalizer->count; i++) {
        struct step *step = &normalizer->steps[i];
        free(step->from), free(step->to);
        free(step->units), free(step->strings);
    }
    free(normalizer);
}

status normalizer_run(const struct normalizer *normalizer, const char *text, size_t size, struct normalized *out) {
    *out = (struct normalized){0};
    if (normalizer->count == 0) return normalized_add(out, text, size);
    for (size_t i = 0; i < normalizer->count; i++) {
        struct normalized next = {0};
        status s = normalizer->steps[i].run(&normalizer->steps[i], i ? out->text : text, i ? out->size : size, &next);
        free(out->text);
        *out = next;
        if (s) return s;
    }
    return OK;
}
