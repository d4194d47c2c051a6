/* Aliases: names of other programs and their equivalents here. A word may be a call in Python syntax
 * (`nn.Linear(13, 64)`): its arguments become keys of the type. */
#include <ctype.h>
#include <string.h>

#include "base/schema/schema_internal.h"

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

/* [alias], or the first of the next table that has one. */
static const struct schema_alias *skip_ends(const struct schema_alias *alias) {
    while (alias && !alias->names) alias = alias->next;
    return alias;
}

const struct schema_alias *alias_first(const struct schema *root) { return root ? skip_ends(root->aliases) : NULL; }
const struct schema_alias *alias_after(const struct schema_alias *alias) { return skip_ends(alias + 1); }

/* The next matching alias after [last]; [last] NULL: the first. */
static const struct schema_alias *find_next(const struct schema *root, const struct schema_alias *last,
                                            enum alias_kind kind, bool is_anywhere, const char *place,
                                            const char *word) {
    size_t length;
    const char *bare = bare_word(word, &length);
    if (length == 0) return NULL;
    for (const struct schema_alias *a = last ? alias_after(last) : alias_first(root); a; a = alias_after(a))
        if (a->kind == kind && is_anywhere == !a->place && matches(a->place, place) &&
            is_listed(a->names, bare, length))
            return a;
    return NULL;
}

const struct schema_alias *alias_find(const struct schema *root, enum alias_kind kind, const char *place,
                                      const char *word) {
    return find_next(root, NULL, kind, false, place, word);
}

/* ---- keys ---- */

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

const struct schema_alias *alias_of_key(const struct schema *root, const struct key_scope *scope, bool is_anywhere,
                                        const char *word, struct arena *arena) {
    const char *place = alias_place(scope, arena);
    bool is_keyed = scope->variants && scope->variants->is_keyed;
    const char *places[] = {scope->type && !is_keyed ? arena_printf(arena, "%s.%s", place, scope->type) : place, place};
    const struct schema_alias *of_other_type = NULL, *a = NULL;
    for (size_t i = 0; i < 2; i++)
        while ((a = find_next(root, a, ALIAS_KEY, is_anywhere, places[i], word)) != NULL) {
            const char *key = alias_key_of_place(a, place);
            if (!key || scope_has_key(scope, key)) return a;
            if (!of_other_type && scope->variants && variants_with_key(scope->variants, key)) of_other_type = a;
        }
    return of_other_type;
}

/* ---- calls ---- */

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
    for (const struct schema_alias *a = alias_first(root); a; a = alias_after(a)) {
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

const char *alias_call(const struct schema *root, const struct schema_variants *variants,
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
