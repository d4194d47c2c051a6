/* "Did you mean": the nearest known word by Damerau-Levenshtein distance, or the section a key belongs in. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/schema_internal.h"

#define WORD_MAX 64 /* longer words are no typos of ours */

static size_t least_of(size_t a, size_t b) { return a < b ? a : b; }

/* Insertions, deletions, replacements and swaps of neighbours count one each; case does not count. */
static size_t distance(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b), rows[3][WORD_MAX + 1];
    size_t *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= m; j++) last[j] = j;
    for (size_t i = 1; i <= n; i++) {
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            now[j] = least_of(least_of(last[j] + 1, now[j - 1] + 1), last[j - 1] + (x != y));
            if (i > 1 && j > 1 && x != y && x == tolower((unsigned char)b[j - 2]) &&
                y == tolower((unsigned char)a[i - 2]))
                now[j] = least_of(now[j], before[j - 2] + 1);
        }
        size_t *free_row = before;
        before = last;
        last = now;
        now = free_row;
    }
    return last[m];
}

const char *schema_nearest(const char *word, const char *const *known) {
    size_t length = strnlen(word, WORD_MAX + 1);
    if (length > WORD_MAX) return NULL;
    size_t best = (length <= 4 ? 1 : length <= 8 ? 2 : 3) + 1;
    const char *nearest = NULL;
    for (; *known; known++) {
        size_t other = strnlen(*known, WORD_MAX + 1);
        if (other > WORD_MAX || (other > length ? other - length : length - other) >= best) continue;
        size_t d = distance(word, *known);
        if (d >= best || d >= (length > other ? length : other)) continue; /* at least one letter is the same */
        best = d;
        nearest = *known;
    }
    return nearest;
}

void suggest_nearest(const char *word, const char *const *known, struct text *out) {
    const char *nearest = schema_nearest(word, known);
    if (nearest) text_printf(out, "; did you mean '%s'?", nearest);
}

static size_t row_count(const struct schema *schema) {
    size_t count = 0;
    while (schema && schema->rows[count].key) count++;
    return count;
}

static void add_joined(struct text *out, const char *const *words) {
    for (size_t i = 0; words[i]; i++) text_printf(out, "%s%s", i ? ", " : "", words[i]);
}

/* The keys that may stand in [scope], NULL-terminated. */
static const char *const *known_keys(const struct key_scope *scope, struct arena *arena) {
    size_t own = row_count(scope->own), common = row_count(scope->common), count = 0;
    const char **keys = arena_alloc(arena, (own + common + 2) * sizeof *keys);
    if (scope->variants && !scope->variants->is_keyed) keys[count++] = "type";
    for (size_t i = 0; i < own; i++) keys[count++] = scope->own->rows[i].key;
    for (size_t i = 0; i < common; i++) keys[count++] = scope->common->rows[i].key;
    return keys;
}

static void add_where_it_belongs(const struct section *s, const char *key, const struct key_scope *scope,
                                 struct text *out) {
    if (!*s->path)
        text_printf(out, "; it belongs at the top level");
    else if (!s->type)
        text_printf(out, "; it belongs in '%s' (%s.%s)", s->path, s->path, key);
    else if (s->variants->is_keyed)
        text_printf(out, "; it is a key of the %s '%s'", s->variants->what, s->type->name);
    else if (strcmp(s->parent, scope->path) == 0)
        text_printf(out, "; it is a key of the %s '%s', not of '%s'", s->variants->what, s->type->name, scope->type);
    else
        text_printf(out, "; it belongs in '%s' (%s.%s)", s->parent, s->parent, key);
}

void suggest_key(const char *key, const struct key_scope *scope, const struct schema *root, struct text *out) {
    struct arena *arena = arena_create();
    const char *const *known = known_keys(scope, arena);
    text_add(out, "unknown key");
    const char *nearest = schema_nearest(key, known);
    struct sections all = nearest || !root ? (struct sections){0} : sections_list(root, arena);
    const struct section *home = sections_with_key(&all, key);
    if (home)
        add_where_it_belongs(home, key, scope, out);
    else
        suggest_nearest(key, known, out);
    if (!home && known[0]) {
        text_add(out, " (keys here: ");
        add_joined(out, known);
        text_add(out, ")");
    } else if (!home) {
        text_add(out, "; there are none here");
    }
    arena_destroy(arena);
}

void suggest_type(const char *name, const struct schema_variants *variants, struct text *out) {
    struct arena *arena = arena_create();
    size_t count = 0;
    while (variants->at(count)) count++;
    const char **known = arena_alloc(arena, (count + 1) * sizeof *known);
    for (size_t i = 0; i < count; i++) known[i] = variants->at(i)->name;
    text_printf(out, "unknown %s '%s'", variants->what, short_text(name).s);
    suggest_nearest(name, known, out);
    text_add(out, " (known: ");
    add_joined(out, known);
    text_add(out, ")");
    arena_destroy(arena);
}
