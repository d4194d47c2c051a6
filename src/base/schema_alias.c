/* Aliases: words that users of other programs write, and what they mean here. A word may be a call, as Python code has
 * it (`nn.Linear(13, 64)`): then its arguments become keys of the type that is meant. */
#include <ctype.h>
#include <string.h>

#include "base/schema_internal.h"

/* The word without a prefix such as "torch.nn." and without arguments in parentheses. */
static const char *bare_word(const char *word, size_t *length) {
    *length = strcspn(word, "(");
    const char *start = word;
    for (size_t i = 0; i < *length; i++)
        if (word[i] == '.' && isalpha((unsigned char)*start)) start = word + i + 1;
    *length -= (size_t)(start - word);
    return start;
}

/* Case, '_', '-' and blanks do not count. */
static bool is_same(const char *a, size_t a_length, const char *b, size_t b_length) {
    static const char *const ignored = "_- ";
    size_t i = 0, j = 0;
    for (;; i++, j++) {
        while (i < a_length && strchr(ignored, a[i])) i++;
        while (j < b_length && strchr(ignored, b[j])) j++;
        if (i == a_length || j == b_length) return i == a_length && j == b_length;
        if (tolower((unsigned char)a[i]) != tolower((unsigned char)b[j])) return false;
    }
}

bool alias_is_same(const char *word, const char *known) {
    size_t length;
    const char *bare = bare_word(word, &length);
    return length > 0 && is_same(bare, length, known, strlen(known));
}

static bool is_listed(const char *words, const char *word, size_t length) {
    while (*words) {
        size_t n = strcspn(words, " ");
        if (is_same(words, n, word, length)) return true;
        words += n + (words[n] == ' ');
    }
    return false;
}

/* "layer.*" holds "layer.conv2d"; NULL holds every place. */
static bool holds(const char *pattern, const char *place) {
    size_t length = pattern ? strlen(pattern) : 0;
    if (!pattern || strcmp(pattern, place) == 0) return true;
    return length > 1 && pattern[length - 1] == '*' && strncmp(pattern, place, length - 1) == 0;
}

const struct schema_alias *alias_find(const struct schema *root, enum alias_kind kind, bool is_anywhere,
                                      const char *place, const char *word) {
    size_t length;
    const char *bare = bare_word(word, &length);
    if (length == 0) return NULL;
    for (const struct schema_alias *a = root ? root->aliases : NULL; a && a->words; a++)
        if (a->kind == kind && is_anywhere == !a->place && holds(a->place, place) && is_listed(a->words, bare, length))
            return a;
    return NULL;
}

/* ---- calls ---- */

#define ARGUMENTS_MAX 12

struct argument {
    const char *name, *value; /* name NULL: by position */
};

/* Splits "(13, out_features=64)" at the commas outside of brackets, in place of a copy in [arena]. */
static size_t split_arguments(const char *word, struct argument *arguments, struct arena *arena) {
    const char *open = strchr(word, '(');
    char *text = arena_copy(arena, open ? open + 1 : "");
    size_t count = 0;
    int depth = 0;
    for (char *start = text, *c = text; count < ARGUMENTS_MAX; c++) {
        bool is_end = !*c || (*c == ')' && depth == 0);
        if (is_end || (*c == ',' && depth == 0)) {
            *c = 0;
            start += strspn(start, " ");
            char *equals = strchr(start, '=');
            if (*start) arguments[count++] = (struct argument){equals ? start : NULL, equals ? equals + 1 : start};
            if (*start && equals) *equals = 0;
            if (is_end) return count;
            start = c + 1;
        } else if (*c == '(') {
            *c = '[';
            depth++;
        } else if (*c == ')') {
            *c = ']';
            depth--;
        }
    }
    return count;
}

/* The key that the argument at [position] or of this name is; NULL when it has none here. */
static const char *key_of(const struct argument *argument, const char *positions, size_t position, const char *place,
                          const struct schema *root, const struct schema *type, struct arena *arena) {
    if (argument->name) {
        for (const struct schema_row *row = type ? type->rows : NULL; row && row->key; row++)
            if (alias_is_same(argument->name, row->key)) return row->key;
        const struct schema_alias *alias = alias_find(root, ALIAS_KEY, false, place, argument->name);
        return alias && alias->meant && alias->meant[0] == '.' ? alias->meant + 1 : NULL;
    }
    for (; positions && position > 0; position--) {
        positions += strcspn(positions, " ");
        positions += *positions == ' ';
    }
    size_t length = positions ? strcspn(positions, " ") : 0;
    if (length == 0 || *positions == '-') return NULL;
    char *key = arena_alloc(arena, length + 1);
    memcpy(key, positions, length);
    return key;
}

const char *alias_call(const struct schema *root, const struct schema_variants *variants,
                       const struct schema_variant *type, const char *word, struct arena *arena) {
    struct argument arguments[ARGUMENTS_MAX];
    size_t count = split_arguments(word, arguments, arena);
    const char *place = arena_printf(arena, "%s.%s", variants->what, type->name), *keys = "";
    const struct schema_alias *call = alias_find(root, ALIAS_CALL, false, variants->what, type->name);
    for (size_t i = 0; i < count; i++) {
        const char *key = key_of(&arguments[i], call ? call->meant : NULL, i, place, root, type->schema, arena);
        if (key && schema_row(type->schema, key))
            keys = arena_printf(arena, "%s%s%s: %s", keys, *keys ? ", " : "", key, arguments[i].value);
    }
    const char *shorthand = type->schema ? type->schema->shorthand : NULL;
    if (!*keys && count == 1 && !arguments[0].name && shorthand)
        keys = arena_printf(arena, "%s: %s", shorthand, arguments[0].value);
    if (!*keys) return type->name;
    return variants->is_keyed ? arena_printf(arena, "%s: {%s}", type->name, keys)
                              : arena_printf(arena, "{type: %s, %s}", type->name, keys);
}
