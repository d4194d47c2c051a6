/* "Did you mean": the nearest known word by Damerau-Levenshtein distance, or the section that has the key. */
#include <ctype.h>
#include <string.h>

#include "base/schema/schema_internal.h"
#include "base/scoped.h"

/* ---- aliases ---- */

/* Names of other programs and their equivalents here. A word may be a call in Python syntax
 * (`nn.Linear(13, 64)`): its arguments become keys of the type. */

/* The word without a prefix such as "torch.nn." and without arguments in parentheses. */
static const char *bare_word(const char *word, size_t *length) {
    *length = strcspn(word, "(");
    const char *start = word;
    for (size_t i = 0; i < *length; i++)
        if (word[i] == '.' && isalpha((unsigned char)*start)) start = word + i + 1;
    *length -= (size_t)(start - word);
    return start;
}

/* Ignores case, '_', '-' and spaces. */
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

/* "layer.*" matches "layer.conv2d", "*.padding" every place with that end; NULL matches every place. */
static bool matches(const char *pattern, const char *place) {
    size_t length = pattern ? strlen(pattern) : 0, n = strlen(place);
    if (!pattern || strcmp(pattern, place) == 0) return true;
    if (*pattern == '*') return n >= length && strcmp(place + n - (length - 1), pattern + 1) == 0;
    return length > 1 && pattern[length - 1] == '*' && strncmp(pattern, place, length - 1) == 0;
}

const struct schema_alias *alias_next(const struct schema *root, struct alias_cursor *cursor) {
    const struct schema_alias *table;
    if (!root || !root->alias_table) return NULL;
    if (cursor->alias && cursor->alias[1].names) return ++cursor->alias;
    if (cursor->alias) cursor->table++;
    while ((table = root->alias_table(cursor->table)) != NULL && !table->names) cursor->table++;
    return cursor->alias = table;
}

/* The next matching alias. */
static const struct schema_alias *find_next(const struct schema *root, struct alias_cursor *cursor,
                                            enum alias_kind kind, bool is_anywhere, const char *place,
                                            const char *word) {
    size_t length;
    const char *bare = bare_word(word, &length);
    if (length == 0) return NULL;
    for (const struct schema_alias *a; (a = alias_next(root, cursor)) != NULL;)
        if (a->kind == kind && is_anywhere == !a->place && matches(a->place, place) &&
            is_listed(a->names, bare, length))
            return a;
    return NULL;
}

const struct schema_alias *alias_find(const struct schema *root, enum alias_kind kind, const char *place,
                                      const char *word) {
    return find_next(root, &(struct alias_cursor){0}, kind, false, place, word);
}

/* ---- aliases: keys ---- */

const char *alias_place(const struct key_scope *scope, struct arena *arena) {
    if (scope->variants && scope->variants->is_keyed)
        return arena_printf(arena, "%s.%s", scope->variants->what, scope->type);
    char *place = arena_copy(arena, scope->path), *to = place;
    for (const char *from = scope->path; *from;) {
        size_t length = strcspn(from, "."), digits = strspn(from, "0123456789");
        if (digits < length || length == 0) {
            if (to > place) *to++ = '.';
            memmove(to, from, length);
            to += length;
        }
        from += length + (from[length] == '.');
    }
    *to = 0;
    return place;
}

bool scope_has_key(const struct key_scope *scope, const char *key) {
    bool may_have_type = scope->variants && !scope->variants->is_keyed;
    return schema_row(scope->own, key) || schema_row(scope->common, key) || (may_have_type && strcmp(key, "type") == 0);
}

const char *alias_key_of_place(const struct schema_alias *alias, const char *place) {
    size_t length = strlen(place);
    if (!alias->meant || alias->meant[0] == '.') return alias->meant ? alias->meant + 1 : NULL;
    bool is_here = strncmp(alias->meant, place, length) == 0 && alias->meant[length] == '.';
    return is_here && !strchr(alias->meant + length + 1, '.') ? alias->meant + length + 1 : NULL;
}

/* The alias for the key [word] in [scope]: one for this place or, with [is_anywhere], one for any place. An alias of a
 * key of [scope] has priority over one of a key of other types. NULL: none. */
static const struct schema_alias *alias_of_key(const struct schema *root, const struct key_scope *scope,
                                               bool is_anywhere, const char *word, struct arena *arena) {
    const char *place = alias_place(scope, arena);
    bool is_keyed = scope->variants && scope->variants->is_keyed;
    const char *places[] = {scope->type && !is_keyed ? arena_printf(arena, "%s.%s", place, scope->type) : place, place};
    const struct schema_alias *of_other_type = NULL, *a;
    for (size_t i = 0; i < 2; i++) {
        struct alias_cursor cursor = {0};
        while ((a = find_next(root, &cursor, ALIAS_KEY, is_anywhere, places[i], word)) != NULL) {
            const char *key = alias_key_of_place(a, place);
            if (!key || scope_has_key(scope, key)) return a;
            if (!of_other_type && scope->variants && variants_with_key(scope->variants, key)) of_other_type = a;
        }
    }
    return of_other_type;
}

/* ---- aliases: calls ---- */

#define ARGUMENTS_MAX 12

struct argument {
    const char *name, *value; /* name NULL: positional */
    const char *written;      /* as in the config */
};

static void trim_end(char *text) {
    for (size_t length = strlen(text); length > 0 && text[length - 1] == ' '; length--) text[length - 1] = 0;
}

/* Splits "(13, out_features=64)" at the commas outside of brackets, in a copy in [arena]; () inside become [], for
 * YAML. Those after the first ARGUMENTS_MAX are left out. */
static size_t split_arguments(const char *word, struct argument *arguments, struct arena *arena) {
    const char *open = strchr(word, '(');
    char *text = arena_copy(arena, open ? open + 1 : ""), *whole = arena_copy(arena, text);
    size_t count = 0;
    int depth = 0;
    for (char *start = text, *c = text; count < ARGUMENTS_MAX; c++) {
        bool is_end = !*c || (*c == ')' && depth == 0);
        if (is_end || (*c == ',' && depth == 0)) {
            *c = whole[c - text] = 0;
            start += strspn(start, " ");
            char *equals = strchr(start, '=');
            if (equals) *equals = 0;
            if (equals) start[strcspn(start, " ")] = 0;
            char *value = equals ? equals + 1 + strspn(equals + 1, " ") : start;
            trim_end(value);
            if (*start) arguments[count++] = (struct argument){equals ? start : NULL, value, whole + (start - text)};
            if (is_end) return count;
            start = c + 1;
        } else if (strchr("([{", *c)) {
            if (*c == '(') *c = '[';
            depth++;
        } else if (strchr(")]}", *c)) {
            if (*c == ')') *c = ']';
            depth--;
        }
    }
    return count;
}

/* Translates a Python constant to YAML; NULL: an expression. */
static const char *yaml_value(const char *value) {
    if (strcmp(value, "True") == 0) return "true";
    if (strcmp(value, "False") == 0) return "false";
    if (isalpha((unsigned char)*value) && strpbrk(value, "[.")) return NULL;
    return strcmp(value, "None") == 0 ? "null" : value;
}

static bool is_number(const char *value) {
    value += strspn(value, "+-.[ ");
    return isdigit((unsigned char)*value);
}

/* The key of the type that [name] equals or is an alias of; else NULL. *alias: the alias, if any. */
static const char *key_of_name(const char *name, const struct schema *root, const struct key_scope *scope,
                               const struct schema_alias **alias, struct arena *arena) {
    const struct schema *schemas[] = {scope->own, scope->common};
    for (size_t i = 0; i < 2; i++)
        for (const struct schema_row *row = schemas[i] ? schemas[i]->rows : NULL; row && row->key; row++)
            if (alias_is_same(name, row->key)) return row->key;
    *alias = alias_of_key(root, scope, false, name, arena);
    if (!*alias) *alias = alias_of_key(root, scope, true, name, arena);
    const char *key = *alias ? alias_key_of_place(*alias, alias_place(scope, arena)) : NULL;
    return key && scope_has_key(scope, key) ? key : NULL;
}

/* The names of the positional arguments: those of this exact spelling ("Conv2D" is Keras), or those of the type. */
static const char *positions_of(const struct schema *root, const struct key_scope *scope, const char *word) {
    size_t length;
    const char *bare = bare_word(word, &length), *what = scope->variants->what, *of_type = NULL;
    struct alias_cursor cursor = {0};
    for (const struct schema_alias *a; (a = alias_next(root, &cursor)) != NULL;) {
        if (a->kind != ALIAS_CALL || strcmp(a->place, what) != 0) continue;
        bool is_type = strcmp(a->names, scope->type) == 0;
        if (!is_type && strlen(a->names) == length && strncmp(a->names, bare, length) == 0) return a->meant;
        if (is_type) of_type = a->meant;
    }
    return of_type ? of_type : scope->own && scope->own->shorthand ? scope->own->shorthand : "";
}

/* Removes and returns the first of [positions]; NULL when it is empty. */
static const char *next_position(const char **positions, struct arena *arena) {
    size_t length = strcspn(*positions, " ");
    if (length == 0) return NULL;
    char *name = arena_alloc(arena, length + 1);
    memcpy(name, *positions, length);
    *positions += length + ((*positions)[length] == ' ');
    return name;
}

/* Names the positional arguments; '-': no equivalent. A position '~' is often omitted: a single argument is the next
 * position, unless that is given by name. A position '?' is an object: a number is the next position. */
static void name_arguments(struct argument *arguments, size_t count, const char *positions, const struct schema *root,
                           const struct key_scope *scope, struct arena *arena) {
    const struct schema_alias *alias;
    size_t by_position = 0;
    const char *given = "";
    for (size_t i = 0; i < count; i++) {
        const char *key = arguments[i].name ? key_of_name(arguments[i].name, root, scope, &alias, arena) : NULL;
        by_position += !arguments[i].name;
        if (key) given = arena_printf(arena, "%s %s", given, key);
    }
    for (size_t i = 0; i < count; i++) {
        if (arguments[i].name) continue;
        const char *name = next_position(&positions, arena), *after = positions;
        if (name && strchr("~?", *name)) {
            const char *next = next_position(&after, arena);
            bool is_next = *name == '?' ? is_number(arguments[i].value) : by_position == 1;
            bool is_left_out = is_next && next && !is_listed(given + (*given == ' '), next, strlen(next));
            if (is_left_out) positions = after;
            name = is_left_out ? next : "-";
        }
        arguments[i].name = name;
    }
}

/* Adds a sentence about an argument that cannot be translated. */
static void add_left_out(const struct argument *argument, const char *key, const struct schema_alias *alias,
                         const struct key_scope *scope, struct text *left_out) {
    struct short_text written = short_text(argument->written);
    bool is_elsewhere = !key && alias && alias->meant && alias->meant[0] != '.';
    if (key || is_elsewhere)
        text_printf(left_out, " For '%s' there is the key '%s'.", written.s, key ? key : alias->meant);
    else if (alias && !alias->meant && alias->note)
        text_printf(left_out, " For '%s': %s.", written.s, alias->note);
    else
        text_printf(left_out, " For '%s' %s has no key.", written.s, scope->type);
    if (is_elsewhere && alias->note) text_printf(left_out, " %s.", alias->note);
}

/* Whether the argument is a Python object, which a config does not have. */
static bool is_object(const struct argument *argument) {
    return argument->name && (strcmp(argument->name, "-") == 0 || strcmp(argument->name, "params") == 0 ||
                              strcmp(argument->name, "optimizer") == 0);
}

/* The type with the arguments of the call [word] as keys: "linear: {out: 64}" for "nn.Linear(13, 64)". What becomes of
 * arguments that have no key is added to [left_out] as sentences, each with a blank before it. */
static const char *alias_call(const struct schema *root, const struct schema_variants *variants,
                              const struct schema_variant *type, const char *word, struct text *left_out,
                              struct arena *arena) {
    struct argument arguments[ARGUMENTS_MAX];
    size_t count = split_arguments(word, arguments, arena);
    struct key_scope scope = {.own = type->schema,
                              .common = variants->common,
                              .variants = variants,
                              .type = type->name,
                              .path = variants->what};
    const char *keys = "";
    name_arguments(arguments, count, positions_of(root, &scope, word), root, &scope, arena);
    for (size_t i = 0; i < count; i++) {
        const struct argument *argument = &arguments[i];
        if (is_object(argument)) continue;
        const struct schema_alias *alias = NULL;
        const char *key = argument->name ? key_of_name(argument->name, root, &scope, &alias, arena) : NULL;
        const char *value = yaml_value(argument->value);
        if (key && value)
            keys = arena_printf(arena, "%s%s%s: %s", keys, *keys ? ", " : "", key, value);
        else
            add_left_out(argument, key, alias, &scope, left_out);
        if (key && value && alias && alias->note) text_printf(left_out, " %s.", alias->note);
    }
    if (!*keys) return type->name;
    return variants->is_keyed ? arena_printf(arena, "%s: {%s}", type->name, keys)
                              : arena_printf(arena, "{type: %s, %s}", type->name, keys);
}

/* ---- suggestions ---- */

#define WORD_MAX 64 /* no suggestions for longer words */

static size_t min(size_t a, size_t b) { return a < b ? a : b; }

/* Insertions, deletions, replacements and transpositions count one each; ignores case. */
static size_t distance(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b), rows[3][WORD_MAX + 1];
    size_t *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= m; j++) last[j] = j;
    for (size_t i = 1; i <= n; i++) {
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            now[j] = min(min(last[j] + 1, now[j - 1] + 1), last[j - 1] + (x != y));
            if (i > 1 && j > 1 && x != y && x == tolower((unsigned char)b[j - 2]) &&
                y == tolower((unsigned char)a[i - 2]))
                now[j] = min(now[j], before[j - 2] + 1);
        }
        size_t *free_row = before;
        before = last;
        last = now;
        now = free_row;
    }
    return last[m];
}

/* The nearest entry with at most [limit] edits. */
static const char *nearest_within(const char *word, const char *const *known, size_t limit) {
    size_t length = strnlen(word, WORD_MAX + 1), best = limit + 1;
    if (length > WORD_MAX) return NULL;
    const char *nearest = NULL;
    for (; *known; known++) {
        size_t other = strnlen(*known, WORD_MAX + 1);
        if (other > WORD_MAX || (other > length ? other - length : length - other) >= best) continue;
        size_t d = distance(word, *known);
        if (d >= best || d >= (length > other ? length : other)) continue; /* at least one letter must match */
        best = d;
        nearest = *known;
    }
    return nearest;
}

const char *schema_nearest(const char *word, const char *const *known) {
    size_t length = strnlen(word, WORD_MAX + 1);
    return nearest_within(word, known, length <= 4 ? 1 : length <= 8 ? 2 : 3);
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

/* The keys of [scope], NULL-terminated. */
static const char *const *known_keys(const struct key_scope *scope, struct arena *arena) {
    size_t own = row_count(scope->own), common = row_count(scope->common), count = 0;
    const char **keys = arena_alloc(arena, (own + common + 2) * sizeof *keys);
    if (scope->variants && !scope->variants->is_keyed) keys[count++] = "type";
    for (size_t i = 0; i < own; i++) keys[count++] = scope->own->rows[i].key;
    for (size_t i = 0; i < common; i++) keys[count++] = scope->common->rows[i].key;
    return keys;
}

/* ---- suggestions: keys ---- */

/* Adds the place of the longest part of [path] that exists in the file: " (optimizer: line 6, column 1". */
static bool add_place(const char *path, const struct node *document, struct text *out) {
    const struct node *node = document;
    struct place place = {0};
    size_t known = 0;
    for (size_t at = 0; node && node->kind == NODE_MAPPING && path[at];) {
        size_t length = strcspn(path + at, "."), i = 0;
        while (i < node->count && (strncmp(node->keys[i], path + at, length) != 0 || node->keys[i][length])) i++;
        if (i == node->count) break;
        place = node->key_places[i];
        node = node->items[i];
        known = at + length;
        at = known + (path[known] == '.');
    }
    if (place.line == 0) return false;
    text_printf(out, " (%.*s: line %d, column %d", (int)known, path, place.line, place.column);
    return true;
}

/* The types that have [key]; "" when all of them have it. */
static const char *types_with(const struct schema_variants *variants, const char *key, struct arena *arena) {
    const struct schema_variant *type;
    const char *types = "";
    bool has_all = true, is_typed = !variants->is_keyed && strcmp(key, "type") == 0;
    for (size_t i = 0; (type = variants->at(i)) != NULL; i++) {
        if (schema_row(type->schema, key))
            types = arena_printf(arena, "%s%s%s", types, *types ? ", " : "", type->name);
        else
            has_all = false;
    }
    return !has_all && !is_typed && !schema_row(variants->common, key) ? types : "";
}

/* An unknown key and what its suggestion depends on. */
struct question {
    const char *key;
    const struct key_scope *scope;
    const char *place; /* of the scope */
    struct sections all;
    const struct node *document;
    struct arena *arena;
};

/* Adds "; it is 'alpha', a key of the optimizer rmsprop, not of adam". */
static void add_other_types(const struct question *q, const char *key, struct text *out) {
    text_add(out, "; it is ");
    if (strcmp(key, q->key) != 0) text_printf(out, "'%s', ", key);
    text_printf(out, "a key of the %s %s, not of %s", q->scope->variants->what,
                types_with(q->scope->variants, key, q->arena), q->scope->type);
}

/* Adds "; did you mean 'optimizer.momentum' (optimizer: line 6, column 1; for sgd, rmsprop)?" for a dotted path, whose
 * key is one of [owner]. */
static void add_meant(const struct question *q, const char *path, const struct section *owner, struct text *out) {
    const char *dot = strrchr(path, '.'), *key = dot ? dot + 1 : path;
    const char *types = owner->choice ? types_with(owner->choice, key, q->arena) : "";
    text_printf(out, "; did you mean '%s'%s", path, dot || !*q->place ? "" : " at the top level");
    bool is_open = add_place(path, q->document, out);
    if (*types) text_printf(out, "%s%s", is_open ? "; for " : " (for ", types);
    text_add(out, is_open || *types ? ")?" : "?");
}

/* Suggests the section [owner], which has the key. */
static void add_owner(const struct question *q, const struct section *owner, struct text *out) {
    bool is_common = schema_row(owner->common, q->key) != NULL;
    if (owner->type && owner->variants->is_keyed && !is_common) {
        text_printf(out, "; it is a key of the %s %s", owner->variants->what,
                    types_with(owner->variants, q->key, q->arena));
        return;
    }
    const char *parent = owner->type ? owner->parent : owner->path;
    const char *path = *parent ? arena_printf(q->arena, "%s.%s", parent, q->key) : q->key;
    const struct section *at = sections_at_key(&q->all, path);
    if (at) add_meant(q, path, at, out);
}

/* Adds the suggestion of an alias; false: its key does not exist in the schema. */
static bool add_alias(const struct question *q, const struct schema_alias *alias, struct text *out) {
    const char *key = alias_key_of_place(alias, q->place);
    const struct section *owner = alias->meant && !key ? sections_at_key(&q->all, alias->meant) : NULL;
    bool is_other_type = key && !scope_has_key(q->scope, key);
    if (alias->meant && !key && !owner) return false;
    if (is_other_type && !(q->scope->variants && variants_with_key(q->scope->variants, key))) return false;
    if (is_other_type)
        add_other_types(q, key, out);
    else if (key)
        text_printf(out, "; did you mean '%s'?", key);
    else if (owner)
        add_meant(q, alias->meant, owner, out);
    if (alias->note) text_printf(out, "%s%s", is_other_type ? ". " : alias->meant ? " " : "; ", alias->note);
    return true;
}

static const char *same_word(const char *word, const char *const *known) {
    for (; *known; known++)
        if (alias_is_same(word, *known)) return *known;
    return NULL;
}

/* "path:x" instead of "path: x", if the part before the colon is a known key. */
static bool add_missing_space(const char *key, const char *const *known, struct text *out) {
    size_t length = strcspn(key, ":");
    for (; key[length] && *known; known++) {
        if (strncmp(key, *known, length) != 0 || (*known)[length]) continue;
        text_printf(out, "; a space is missing after the ':': write '%s: %s'", *known, short_text(key + length + 1).s);
        return true;
    }
    return false;
}

/* "train.epochs" in a file: the syntax of the command line. */
static bool add_dotted(const char *key, const struct schema *root, struct text *out) {
    size_t length = strcspn(key, ".");
    const struct schema_row *row = root && key[length] ? root->rows : NULL;
    for (; row && row->key; row++) {
        if (strncmp(key, row->key, length) != 0 || row->key[length]) continue;
        text_printf(out, "; dotted keys are for the command line: write '%s: {%s: ...}'", row->key,
                    short_text(key + length + 1).s);
        return true;
    }
    return false;
}

/* Adds the suggestion for an alias or a wrong syntax; false: neither matches, or the key is a typo. */
static bool add_meaning(const struct question *q, const char *const *known, const struct schema *root,
                        struct text *out) {
    if (same_word(q->key, known)) return false;
    if (add_dotted(q->key, root, out)) return true;
    const struct schema_alias *alias = alias_of_key(root, q->scope, false, q->key, q->arena);
    const char *typo = alias ? NULL : nearest_within(q->key, known, 1);
    if (!alias && !typo) alias = alias_of_key(root, q->scope, true, q->key, q->arena);
    return alias ? add_alias(q, alias, out) : add_missing_space(q->key, known, out);
}

/* Suggests a key of another type or section, else the nearest key and the list of keys of this section. */
static void add_nearest_key(const struct question *q, const char *const *known, struct text *out) {
    const char *typo = same_word(q->key, known);
    if (!typo) typo = nearest_within(q->key, known, 1);
    bool is_of_other_type = !typo && q->scope->variants && variants_with_key(q->scope->variants, q->key);
    const struct section *owner = typo || is_of_other_type ? NULL : sections_with_key(&q->all, q->key);
    if (is_of_other_type)
        add_other_types(q, q->key, out);
    else if (owner)
        add_owner(q, owner, out);
    else if (typo)
        text_printf(out, "; did you mean '%s'?", typo);
    else
        suggest_nearest(q->key, known, out);
    if (owner || is_of_other_type) return;
    text_add(out, known[0] ? " (keys here: " : "; there are none here");
    add_joined(out, known);
    if (known[0]) text_add(out, ")");
}

void suggest_key(const char *key, const struct key_scope *scope, const struct schema *root, const struct node *document,
                 struct text *out) {
    SCOPED_ARENA arena = arena_create();
    struct question q = {.key = key,
                         .scope = scope,
                         .place = alias_place(scope, arena),
                         .all = root ? sections_list(root, arena) : (struct sections){0},
                         .document = document,
                         .arena = arena};
    const char *const *known = known_keys(scope, arena);
    text_add(out, "unknown key");
    if (!add_meaning(&q, known, root, out)) add_nearest_key(&q, known, out);
}

/* The dotted path of the key that [word] is somewhere in the config; NULL: it is none, or one in a list. */
static const char *path_of_key(const struct sections *all, const char *word, struct arena *arena) {
    char *key = arena_copy(arena, word);
    for (char *c = key; *c; c++) *c = *c == '-' ? '_' : (char)tolower((unsigned char)*c);
    if (strchr(key, '.')) return sections_at_key(all, key) ? key : NULL;
    const struct section *home = sections_with_key(all, key);
    if (!home || (home->type && home->variants->is_keyed)) return NULL;
    const char *parent = home->type ? home->parent : home->path;
    return *parent ? arena_printf(arena, "%s.%s", parent, key) : key;
}

void schema_suggest_override(const struct schema *root, const char *word, const char *value, struct text *out) {
    SCOPED_ARENA arena = arena_create();
    struct key_scope scope = {.own = root, .path = ""};
    struct sections all = sections_list(root, arena);
    const struct schema_alias *alias = alias_of_key(root, &scope, false, word, arena);
    if (!alias) alias = alias_of_key(root, &scope, true, word, arena);
    const char *path = alias ? alias->meant : path_of_key(&all, word, arena), *dot = path ? strrchr(path, '.') : NULL;
    const char *key = dot ? dot + 1 : path;
    const struct section *home = path ? sections_at_key(&all, path) : NULL;
    const struct schema_row *row = home ? schema_row(home->own, key) : NULL;
    const char *types = home && home->choice ? types_with(home->choice, key, arena) : "";
    bool is_section = row && row->type == SCHEMA_SECTION && !row->section->shorthand;
    bool is_list = row && (row->type == SCHEMA_VARIANT_LIST || row->type == SCHEMA_SECTION_LIST);
    if (is_section || is_list)
        text_printf(out, "'%s' is a %s of the config: ddptrain --help-config %s%s", path, is_list ? "list" : "section",
                    path, alias && alias->note ? ". " : "");
    else if (home)
        text_printf(out, "did you mean '%s=%s'%s%s%s?%s", path, value ? short_text(value).s : "VALUE",
                    *types ? " (for " : "", types, *types ? ")" : "", alias && alias->note ? " " : "");
    if (alias && alias->note) text_add(out, alias->note);
}

/* ---- suggestions: types and values ---- */

static const char *const *type_names(const struct schema_variants *variants, struct arena *arena) {
    size_t count = 0;
    while (variants->at(count)) count++;
    const char **names = arena_alloc(arena, (count + 1) * sizeof *names);
    for (size_t i = 0; i < count; i++) names[i] = variants->at(i)->name;
    return names;
}

/* "64)": the end of a call that a list in brackets split at its commas. */
static bool is_part_of_call(const char *name) { return !strchr(name, '(') && strchr(name, ')'); }

void suggest_type(const char *name, const struct schema_variants *variants, const struct schema *root,
                  struct text *out) {
    SCOPED_ARENA arena = arena_create();
    SCOPED_TEXT left_out = {0};
    const char *const *known = type_names(variants, arena), *meant = same_word(name, known);
    const struct schema_alias *alias = meant ? NULL : alias_find(root, ALIAS_VALUE, variants->what, name);
    int index;
    text_printf(out, "unknown %s '%s'", variants->what, short_text(name).s);
    if (alias) meant = alias->meant;
    const struct schema_variant *type = meant ? variants_find(variants, meant, &index) : NULL;
    if (type) text_printf(out, "; did you mean '%s'?", alias_call(root, variants, type, name, &left_out, arena));
    if (meant && !type) text_printf(out, "; did you mean '%s'?", meant);
    if (alias && alias->note && !strstr(text_string(&left_out), alias->note))
        text_printf(out, "%s%s%s", meant ? " " : "; ", alias->note, left_out.length ? "." : "");
    text_add(out, text_string(&left_out));
    if (strspn(name, "0123456789.") == strlen(name) && *name)
        text_printf(out, "; a number is not %s %s: write NAME or NAME: {KEY: VALUE}", article(variants->what),
                    variants->what);
    if (is_part_of_call(name)) text_printf(out, "; it looks like the end of a call; write NAME: {KEY: VALUE}");
    if (!meant) {
        if (!alias) suggest_nearest(name, known, out);
        text_add(out, *known ? " (known: " : " (there is none; an extension can define one");
        add_joined(out, known);
        text_add(out, ")");
    }
}

void schema_suggest_value(const struct schema *root, const char *path, const char *word, const char *const *known,
                          struct text *out) {
    const struct schema_alias *alias = alias_find(root, ALIAS_VALUE, path, word);
    const char *meant = alias ? alias->meant : same_word(word, known);
    if (!alias && !meant) meant = schema_nearest(word, known);
    if (meant) text_printf(out, "did you mean '%s'?", meant);
    if (alias && alias->note) text_printf(out, "%s%s", meant ? " " : "", alias->note);
}
