/* Every alias means a key or value that a config can contain, and every suggested key exists in the schema at that
 * place, so that no suggestion is itself a mistake. ctest-labels: unit */
#include <check.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../check_main.h"
#include "base/schema/schema_internal.h"
#include "train/config/config.h"

static void assert_known(const char *path, const struct schema_alias *alias) {
    SCOPED_TEXT out = {0};
    status s = schema_help(&config_schema, path, &out);
    ck_assert_msg(!s, "alias '%s': %s", alias->names, s ? status_message(s) : "");
}

/* The path of the section with the types of [what]. */
static const char *path_of(const char *what) {
    return strcmp(what, "layer") == 0 ? "model.layers" : strcmp(what, "init") == 0 ? "model.init" : what;
}

TEST(keys_exist) {
    size_t count = 0;
    char path[200];
    struct alias_cursor cursor = {0};
    for (const struct schema_alias *a; (a = alias_next(&config_schema, &cursor)) != NULL;) {
        if (a->kind != ALIAS_KEY || !a->meant) continue;
        bool is_layer = a->place && strncmp(a->place, "layer.", 6) == 0;
        if (*a->meant != '.')
            snprintf(path, sizeof path, "%s", a->meant);
        else if (is_layer && strcmp(a->place, "layer.*") != 0)
            snprintf(path, sizeof path, "model.layers.%s%s", a->place + 6, a->meant);
        else
            snprintf(path, sizeof path, "%s", a->meant + 1);
        if (strcmp(path, "type") != 0) assert_known(path, a);
        ck_assert(*a->meant != '.' || a->place);
        count++;
    }
    ck_assert_uint_gt(count, 100);
}

/* The type that a call of this name creates. */
static const char *type_of_call(const struct schema_alias *call, const struct sections *all) {
    const struct schema_alias *named = alias_find(&config_schema, ALIAS_VALUE, call->place, call->names);
    for (size_t i = 0; i < all->count; i++) {
        const struct section *s = &all->items[i];
        if (s->type && strcmp(s->variants->what, call->place) == 0 &&
            alias_is_same(named ? named->meant : call->names, s->type->name))
            return s->type->name;
    }
    ck_abort_msg("no type is meant by '%s'", call->names);
}

TEST(types_exist) {
    size_t count = 0;
    char path[200];
    struct arena *arena = arena_create();
    struct sections all = sections_list(&config_schema, arena);
    struct alias_cursor cursor = {0};
    for (const struct schema_alias *a; (a = alias_next(&config_schema, &cursor)) != NULL;) {
        if (a->kind == ALIAS_KEY || !a->meant || strchr(a->place, '.')) continue;
        const char *type = a->kind == ALIAS_CALL ? type_of_call(a, &all) : a->meant;
        snprintf(path, sizeof path, "%s.%s", path_of(a->place), type);
        assert_known(path, a);
        for (const char *key = a->meant; a->kind == ALIAS_CALL && *key;) {
            size_t length = strcspn(key, " ");
            snprintf(path, sizeof path, "%s.%s.%.*s", path_of(a->place), type, (int)length, key);
            char *name = arena_printf(arena, "%.*s", (int)length, key);
            bool is_alias = alias_find(&config_schema, ALIAS_KEY, a->place, name) ||
                            alias_find(&config_schema, ALIAS_KEY, arena_printf(arena, "%s.%s", a->place, type), name) ||
                            strcmp(name, "initial_learning_rate") == 0;
            if (!strchr("-~?", *key) && !is_alias) assert_known(path, a);
            key += length + (key[length] == ' ');
        }
        count++;
    }
    arena_destroy(arena);
    ck_assert_uint_gt(count, 60);
}

/* ---- every name at every place ---- */

struct walk {
    struct arena *arena;
    struct sections all;
    struct key_scope scope;
    const char *name, *message;
    size_t count, hints;
};

static bool has_type_key(const struct schema_variants *variants, const char *key) {
    return variants && !variants->is_keyed && strcmp(key, "type") == 0;
}

static bool is_key_of_scope(const struct key_scope *scope, const char *key) {
    return schema_row(scope->own, key) || schema_row(scope->common, key) || has_type_key(scope->variants, key);
}

/* [types]: "cosine, step"; NULL: all of them. */
static bool types_have(const struct schema_variants *variants, const char *types, const char *key) {
    const struct schema_variant *type;
    size_t listed = 0, commas = 0;
    for (const char *c = types; c && *c; c++) commas += *c == ',';
    for (size_t i = 0; (type = variants->at(i)) != NULL; i++) {
        char pattern[100], list[400];
        snprintf(pattern, sizeof pattern, ", %s,", type->name);
        snprintf(list, sizeof list, ", %s,", types ? types : "");
        if (types && !strstr(list, pattern)) continue;
        listed++;
        if (!schema_row(type->schema, key) && !schema_row(variants->common, key) && !has_type_key(variants, key))
            return false;
    }
    return !types || listed == commas + 1;
}

/* Whether the schema has the key of the dotted [path]; for a key of types, whether each of [types] has it. */
static bool is_path(const struct walk *w, const char *path, const char *types) {
    const char *dot = strrchr(path, '.'), *key = dot ? dot + 1 : path;
    size_t length = dot ? (size_t)(dot - path) : 0;
    for (size_t i = 0; i < w->all.count; i++) {
        const struct section *s = &w->all.items[i];
        if (strlen(s->path) != length || strncmp(s->path, path, length) != 0) continue;
        if (s->choice) return types_have(s->choice, types, key);
        return !types && (schema_row(s->own, key) || schema_row(s->common, key));
    }
    return false;
}

static char *copy_until(struct walk *w, const char *text, const char *end) {
    char *copy = arena_copy(w->arena, text);
    copy[strcspn(copy, end)] = 0;
    return copy;
}

#define ASSERT_HINT(w, condition)                                                                                      \
    ck_assert_msg(condition, "'%s' in '%s' (%s): %s", (w)->name, (w)->scope.path,                                      \
                  (w)->scope.type ? (w)->scope.type : "", (w)->message)

/* "did you mean 'schedule.t_max' (schedule: line 1, column 1; for cosine)?" */
static void check_meant(struct walk *w) {
    for (const char *at = w->message; (at = strstr(at, "did you mean '")) != NULL; w->hints++) {
        const char *path = copy_until(w, at += strlen("did you mean '"), "'"), *rest = at + strlen(path) + 1;
        const char *types = strstr(copy_until(w, rest, "?"), "for ");
        if (strchr(path, '.'))
            ASSERT_HINT(w, is_path(w, path, types ? copy_until(w, types + strlen("for "), ")") : NULL));
        else if (strncmp(rest, " at the top level", strlen(" at the top level")) == 0)
            ASSERT_HINT(w, is_path(w, path, NULL));
        else
            ASSERT_HINT(w, is_key_of_scope(&w->scope, path));
    }
}

/* "it is 'alpha', a key of the optimizer rmsprop, not of adam" */
static void check_other_types(struct walk *w) {
    const char *at = strstr(w->message, "a key of the "), *quoted = strstr(w->message, "it is '");
    if (!at) return;
    const char *key = quoted ? copy_until(w, quoted + strlen("it is '"), "'") : w->name,
               *not_of = strstr(at, ", not of");
    at += strlen("a key of the ");
    if (at[strcspn(at, " :")] == ':') return; /* the note of an alias */
    char *what = copy_until(w, at, " "), *types = copy_until(w, at + strlen(what) + 1, "(;.");
    if (not_of) types[(size_t)(not_of - at) - strlen(what) - 1] = 0;
    for (size_t end = strlen(types); end > 0 && types[end - 1] == ' ';) types[--end] = 0;
    for (size_t i = 0; i < w->all.count; i++) {
        const struct section *s = &w->all.items[i];
        if (!s->choice || strcmp(s->choice->what, what) != 0) continue;
        ASSERT_HINT(w, types_have(s->choice, types, key));
        w->hints++;
        return;
    }
    ASSERT_HINT(w, false);
}

/* In notes: "Set sampler.shuffle: false" */
static void check_sentences(struct walk *w) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_.";
    for (const char *at = w->message; *at; at += !*at ? 0 : 1) {
        size_t length = strspn(at, letters);
        if (length == 0 || (at > w->message && (isalnum((unsigned char)at[-1]) || at[-1] == '\''))) continue;
        char *path = arena_copy(w->arena, at);
        while (length > 0 && path[length - 1] == '.') length--;
        path[length] = 0;
        const char *dot = strchr(path, '.');
        bool is_key = dot && schema_row(&config_schema, copy_until(w, path, "."));
        struct text help = {0};
        status s = is_key && strcmp(dot, ".yaml") != 0 ? schema_help(&config_schema, path, &help) : OK;
        ASSERT_HINT(w, !s);
        text_free(&help);
        at += length > 0 ? length - 1 : 0;
    }
}

static void check_name(struct walk *w, const char *name) {
    if (is_key_of_scope(&w->scope, name)) return;
    SCOPED_TEXT message = {0};
    suggest_key(name, &w->scope, &config_schema, NULL, &message);
    w->name = name;
    w->message = text_string(&message);
    check_meant(w);
    check_other_types(w);
    check_sentences(w);
    w->count++;
}

struct names {
    const char *items[2000];
    size_t count;
};

static void add_name(struct names *names, const char *name) {
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->items[i], name) == 0) return;
    ck_assert_uint_lt(names->count, sizeof names->items / sizeof *names->items);
    names->items[names->count++] = name;
}

/* Every name of an alias, and every key of the schema. */
static void collect(struct names *names, const struct sections *all, struct arena *arena) {
    struct alias_cursor cursor = {0};
    for (const struct schema_alias *a; (a = alias_next(&config_schema, &cursor)) != NULL;) {
        char *copy = arena_copy(arena, a->names);
        for (char *name = strtok(copy, " "); name && a->kind == ALIAS_KEY; name = strtok(NULL, " "))
            add_name(names, name);
    }
    for (size_t i = 0; i < all->count; i++) {
        const struct schema *schemas[] = {all->items[i].own, all->items[i].common};
        for (size_t k = 0; k < 2; k++)
            for (const struct schema_row *row = schemas[k] ? schemas[k]->rows : NULL; row && row->key; row++)
                add_name(names, row->key);
    }
}

TEST(every_hint_names_a_key_of_its_place) {
    SCOPED_ARENA arena = arena_create();
    struct walk w = {.all = sections_list(&config_schema, arena)};
    struct names names = {0};
    collect(&names, &w.all, arena);
    for (size_t i = 0; i < w.all.count; i++) {
        const struct section *s = &w.all.items[i];
        if (s->choice) continue;
        bool is_typed = s->type && !s->variants->is_keyed;
        w.scope = (struct key_scope){.own = s->own,
                                     .common = s->common,
                                     .variants = s->variants,
                                     .type = s->type ? s->type->name : NULL,
                                     .path = is_typed ? s->parent : s->path};
        w.arena = arena_create();
        for (size_t k = 0; k < names.count; k++) check_name(&w, names.items[k]);
        arena_destroy(w.arena);
    }
    ck_assert_uint_gt(w.count, 30000);
    ck_assert_uint_gt(w.hints, 20000);
}

CHECK_MAIN("config aliases")
