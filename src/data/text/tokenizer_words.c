/* The regular expressions that cut a text into words, as functions: there are three in use, and a function for one is
 * an order of magnitude faster than a general matcher. None looks behind, so a word depends on what follows only. */
#include <assert.h>
#include <string.h>

#include "base/utf8.h"
#include "data/text/tokenizer_internal.h"

/* The class of the first character of text (size > 0), and its length. */
static enum unicode_class class_at(const char *text, size_t size, size_t *length) {
    uint8_t first = (uint8_t)text[0];
    uint32_t code = first;
    *length = 1;
    if ((uint8_t)((first | 0x20) - 'a') < 26) return UNICODE_LETTER;
    if (first >= 0x80) *length = utf8_decode(text, size, &code);
    assert(*length > 0);
    return unicode_class(code);
}

/* The end of the characters of [class] from [at] on. */
static size_t run_end(const char *text, size_t size, size_t at, enum unicode_class class) {
    size_t length;
    for (; at < size && class_at(text + at, size - at, &length) == class; at += length) {
    }
    return at;
}

/* 's|'t|'re|'ve|'m|'ll|'d at an apostrophe; 0: none of them. U+017F is another lower case of S. */
static size_t contraction_end(const char *text, size_t size, bool ignores_case) {
    static const char *const endings[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t length = strlen(endings[i]), same = 0;
        if (size <= length) continue;
        while (same < length && (text[1 + same] | (ignores_case ? 0x20 : 0)) == endings[i][same]) same++;
        if (same == length) return 1 + length;
    }
    return ignores_case && size > 2 && memcmp(text + 1, "\u017f", 2) == 0 ? 3 : 0;
}

/* \s+(?!\S)|\s+ at white space: without the last character where a word follows, unless it is the only one. */
static size_t spaces_end(const char *text, size_t size) {
    size_t last = 0, at = 0, length;
    for (; at < size && class_at(text + at, size - at, &length) == UNICODE_SPACE; at += length) last = at;
    return at == size || last == 0 ? at : last;
}

/* '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
size_t words_gpt2(const char *text, size_t size) {
    size_t end = text[0] == '\'' ? contraction_end(text, size, false) : 0, length;
    if (end) return end;
    size_t start = text[0] == ' ' && size > 1;
    enum unicode_class class = class_at(text + start, size - start, &length);
    return class == UNICODE_SPACE ? spaces_end(text, size) : run_end(text, size, start + length, class);
}

static bool is_newline(char c) { return c == '\n' || c == '\r'; }

/* \s*[\r\n]+ at white space; 0: there is no newline. */
static size_t newlines_end(const char *text, size_t size) {
    size_t end = 0, length;
    for (size_t at = 0; at < size && class_at(text + at, size - at, &length) == UNICODE_SPACE; at += length)
        if (is_newline(text[at])) end = at + 1;
    return end;
}

/* [^\r\n\p{L}\p{N}]?\p{L}+; 0: it does not match. */
static size_t letters_end(const char *text, size_t size) {
    size_t length, next = 0;
    enum unicode_class class = class_at(text, size, &length);
    if (class == UNICODE_LETTER) return run_end(text, size, length, class);
    if (class == UNICODE_NUMBER || is_newline(text[0]) || length == size) return 0;
    if (class_at(text + length, size - length, &next) != UNICODE_LETTER) return 0;
    return run_end(text, size, length + next, UNICODE_LETTER);
}

/* \p{N}{1,max} at a number. */
static size_t numbers_end(const char *text, size_t size, size_t max) {
    size_t at = 0, length;
    for (size_t n = 0; n < max && at < size && class_at(text + at, size - at, &length) == UNICODE_NUMBER; n++)
        at += length;
    return at;
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,max}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|
 * \s+(?!\S)|\s+ */
static size_t with_max_numbers(const char *text, size_t size, size_t max) {
    size_t end = text[0] == '\'' ? contraction_end(text, size, true) : 0, length;
    if (!end) end = letters_end(text, size);
    if (end) return end;
    if (class_at(text, size, &length) == UNICODE_NUMBER) return numbers_end(text, size, max);
    size_t start = text[0] == ' ' && size > 1;
    if (class_at(text + start, size - start, &length) == UNICODE_OTHER) {
        end = run_end(text, size, start + length, UNICODE_OTHER);
        while (end < size && is_newline(text[end])) end++;
        return end;
    }
    end = newlines_end(text, size);
    return end ? end : spaces_end(text, size);
}

static size_t words_llama3(const char *text, size_t size) { return with_max_numbers(text, size, 3); }
static size_t words_qwen2(const char *text, size_t size) { return with_max_numbers(text, size, 1); }

#define CONTRACTIONS "'s|'t|'re|'ve|'m|'ll|'d"
#define REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct {
    const char *pattern;
    word_end *end;
} patterns[] = {
    {CONTRACTIONS "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", words_gpt2},
    {"(?i:" CONTRACTIONS ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" REST, words_llama3},
    {"(?i:" CONTRACTIONS ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" REST, words_qwen2},
};

word_end *words_of_pattern(const char *pattern) {
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (strcmp(patterns[i].pattern, pattern) == 0) return patterns[i].end;
    return NULL;
}
