/* Binds a tree to a struct, row by row: the key's value, or else its default, is converted by the function of its
 * type. Binding continues after an error, so that one run reports every mistake. The recursion depth is that of the
 * tree, which is limited. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/schema/schema_internal.h"
#include "base/scoped.h"

struct binder {
    const struct schema *root;
    const struct node *document; /* the root of the tree; NULL when only a section is bound */
    struct arena *arena;
    struct problems *problems;
};

/* The path to a value as a list on the stack; it becomes text only for a problem. */
struct path {
    const struct path *parent;
    const char *key; /* NULL: an entry of a list */
    size_t index;
};

/* Binds the value [node], not null, to the row's [field], or reports why it does not fit. */
typedef void bind_function(struct binder *b, const struct schema_row *row, const struct node *node,
                           const struct path *path, void *field);

/* ---- problems and values ---- */

/* The values that are no mappings: scalars and lists, and the sentences about those that are wrong. */

/* Adds "optimizer.groups.0.lr". */
static void binder_add_path(const struct path *path, struct text *out) {
    if (path->parent) binder_add_path(path->parent, out);
    if (path->key && !*path->key) return;
    if (out->length > 0) text_add(out, ".");
    if (path->key && path->parent)
        text_add(out, short_text(path->key).s);
    else if (path->key)
        text_add(out, path->key);
    else
        text_printf(out, "%zu", path->index);
}

/* Whether the list of problems is full; then counts one more. */
static bool binder_is_full(struct binder *b) {
    if (b->problems->count < PROBLEMS_MAX) return false;
    b->problems->left_out++;
    return true;
}

static void binder_report_text(struct binder *b, struct place place, const struct path *path,
                               const struct text *sentence) {
    SCOPED_TEXT key = {0};
    binder_add_path(path, &key);
    problems_add(b->problems, place, text_string(&key), "%s", text_string(sentence));
}

static void binder_report(struct binder *b, struct place place, const struct path *path, const char *format, ...) {
    if (binder_is_full(b)) return;
    va_list arguments;
    va_start(arguments, format);
    SCOPED_TEXT sentence = {0};
    SCOPED_STRING formatted = NULL;
    if (vasprintf(&formatted, format, arguments) >= 0) text_add(&sentence, formatted);
    va_end(arguments);
    binder_report_text(b, place, path, &sentence);
}

/* Problems so far, also those that were only counted. */
static size_t binder_problem_count(const struct binder *b) { return b->problems->count + b->problems->left_out; }

/* The hint for a value in the syntax of another language; NULL: none. */
static const char *hint_of(const struct schema_row *row, const struct node *node) {
    if (node->kind != NODE_SCALAR || node->is_quoted) return NULL;
    if (row->type == SCHEMA_SECTION && strchr(node->text, ':')) return "a space is missing after the ':'";
    if (node->text[0] == '(') return "write a list in brackets, such as [1, 2]";
    if (row_is_nullable(row) && strcmp(node->text, "None") == 0) return "write null";
    return NULL;
}

/* The key of a section that a value in its place is meant for: a list of layers, a number without a default such as the
 * epochs, a path; NULL: none. */
static const char *key_of_value(const struct schema_row *row, const struct node *node) {
    int64_t number;
    const char *hint;
    if (row->type != SCHEMA_SECTION || node->kind == NODE_MAPPING) return NULL;
    bool is_list = node->kind == NODE_SEQUENCE, is_int = !is_list && value_parse_int(node->text, &number, &hint);
    for (const struct schema_row *key = row->section->rows; key->key; key++) {
        bool fits = is_list  ? key->type == SCHEMA_VARIANT_LIST
                    : is_int ? key->type == SCHEMA_INT && row_is_nullable(key)
                             : strcmp(key->key, "path") == 0;
        if (fits) return key->key;
    }
    return NULL;
}

/* "expected an integer, got 'abc'; hint"; [hint]: NULL: one that is found. */
static void binder_report_wrong_type(struct binder *b, const struct schema_row *row, const struct node *node,
                                     const struct path *path, const char *hint) {
    if (binder_is_full(b)) return;
    SCOPED_TEXT sentence = {0}, where = {0}, meant = {0};
    if (!hint) hint = hint_of(row, node);
    if (!hint && node->kind == NODE_SCALAR) {
        static const char *const none[] = {NULL};
        binder_add_path(path, &where);
        schema_suggest_value(b->root, text_string(&where), node->text, none, &meant);
        if (meant.length) hint = text_string(&meant);
    }
    text_add(&sentence, "expected ");
    row_add_expected(row, &sentence);
    if (node->kind == NODE_SCALAR)
        text_printf(&sentence, ", got '%s'", short_text(node->text).s);
    else
        text_add(&sentence, node->kind == NODE_SEQUENCE ? ", got a list" : ", got a mapping");
    const char *key = hint ? NULL : key_of_value(row, node);
    if (key)
        text_printf(&sentence, "; write %s: {%s: %s}", row->key, key,
                    node->kind == NODE_SCALAR ? short_text(node->text).s : "[...]");
    if (hint) text_printf(&sentence, "; %s", hint);
    binder_report_text(b, node->place, path, &sentence);
}

/* "null is not allowed; ..." */
static void binder_report_null(struct binder *b, const struct schema_row *row, const struct node *node,
                               const struct path *path) {
    if (binder_is_full(b)) return;
    SCOPED_TEXT sentence = {0};
    text_add(&sentence, "null is not allowed; expected ");
    row_add_expected(row, &sentence);
    if (row->type == SCHEMA_SECTION)
        text_add(&sentence, " (leave the key out for the defaults)");
    else if (row->fallback)
        text_printf(&sentence, " (leave the key out for the default, %s)", row->fallback);
    binder_report_text(b, node->place, path, &sentence);
}

static void check_limits(struct binder *b, const struct schema_row *row, double value, const struct node *node,
                         const struct path *path) {
    if (row_is_within_limits(row, value) || binder_is_full(b)) return;
    SCOPED_TEXT sentence = {0};
    text_add(&sentence, "must be ");
    row_add_limits(row, &sentence);
    text_printf(&sentence, ", got %s", short_text(node->text).s);
    binder_report_text(b, node->place, path, &sentence);
}

/* ---- scalars ---- */

/* Whether the node is an unquoted scalar; else reports it. [is_valid]: its text is a value of the row's type. */
static bool is_plain(struct binder *b, const struct schema_row *row, const struct node *node, const struct path *path,
                     bool is_valid) {
    if (node->kind == NODE_SCALAR && !node->is_quoted) return true;
    binder_report_wrong_type(b, row, node, path, node->kind == NODE_SCALAR && is_valid ? "remove the quotes" : NULL);
    return false;
}

/* A bool, an integer or a number. */
static void bind_scalar(struct binder *b, const struct schema_row *row, const struct node *node,
                        const struct path *path, void *field) {
    const char *hint = NULL;
    bool fits = node->kind == NODE_SCALAR && (row->type == SCHEMA_BOOL  ? value_parse_bool(node->text, field, &hint)
                                              : row->type == SCHEMA_INT ? value_parse_int(node->text, field, &hint)
                                                                        : value_parse_real(node->text, field, &hint));
    if (!is_plain(b, row, node, path, fits)) return;
    if (!fits)
        binder_report_wrong_type(b, row, node, path, hint);
    else if (row->type != SCHEMA_BOOL)
        check_limits(b, row, row->type == SCHEMA_INT ? (double)*(int64_t *)field : *(double *)field, node, path);
}

static void bind_choice(struct binder *b, const struct schema_row *row, const struct node *node,
                        const struct path *path, void *field) {
    for (int i = 0; node->kind == NODE_SCALAR && row->choices[i]; i++) {
        if (strcmp(node->text, row->choices[i]) != 0) continue;
        *(int *)field = i;
        return;
    }
    SCOPED_TEXT hint = {0}, where = {0};
    binder_add_path(path, &where);
    if (node->kind == NODE_SCALAR) schema_suggest_value(b->root, text_string(&where), node->text, row->choices, &hint);
    binder_report_wrong_type(b, row, node, path, hint.length ? text_string(&hint) : NULL);
}

/* ---- texts and lists ---- */

static void bind_strings(struct binder *b, const struct schema_row *row, const struct node *node,
                         const struct path *path, const char **first, struct string_list *others);

static void bind_string(struct binder *b, const struct schema_row *row, const struct node *node,
                        const struct path *path, void *field) {
    struct string_list *others = row_others(row, field);
    if (node->kind == NODE_SCALAR)
        *(const char **)field = arena_copy(b->arena, node->text);
    else if (node->kind == NODE_SEQUENCE && others)
        bind_strings(b, row, node, path, field, others);
    else
        binder_report_wrong_type(b, row, node, path, NULL);
}

/* Fills the [items] and [count] of a struct int_list, real_list or string_list. */
static void bind_list(struct binder *b, const struct schema_row *row, const struct node *node, const struct path *path,
                      size_t item_size, enum schema_type item_type, bind_function *bind_item, void **items,
                      size_t *count) {
    if (node->kind == NODE_MAPPING) {
        binder_report_wrong_type(b, row, node, path, NULL);
        return;
    }
    struct schema_row item_row = *row;
    item_row.type = item_type;
    item_row.choices = NULL;
    bool is_list = node->kind == NODE_SEQUENCE;
    *count = is_list ? node->count : 1;
    *items = arena_alloc(b->arena, *count ? *count * item_size : 1);
    for (size_t i = 0; i < *count; i++) {
        const struct node *item = is_list ? node->items[i] : node;
        struct path item_path = {path, NULL, i};
        const struct path *where = is_list ? &item_path : path;
        if (node_is_null(item))
            binder_report(b, item->place, where, "null is not allowed in a list");
        else
            bind_item(b, &item_row, item, where, (char *)*items + i * item_size);
    }
}

static bool is_number(const struct node *node) {
    double value;
    const char *hint = NULL;
    return value_parse_real(node->text, &value, &hint);
}

/* Binds one of the words that a list of numbers may be; false: it is none. */
static bool bind_word(struct binder *b, const struct schema_row *row, const struct node *node, const struct path *path,
                      int *word) {
    int index = -1;
    if (!row->choices || node->kind != NODE_SCALAR || is_number(node)) return false;
    bind_choice(b, row, node, path, &index);
    *word = index + 1;
    return true;
}

static void bind_int_list(struct binder *b, const struct schema_row *row, const struct node *node,
                          const struct path *path, void *field) {
    struct int_list *list = field;
    void *items = NULL;
    if (bind_word(b, row, node, path, &list->word)) return;
    bind_list(b, row, node, path, sizeof *list->items, SCHEMA_INT, bind_scalar, &items, &list->count);
    list->items = items;
}

static void bind_real_list(struct binder *b, const struct schema_row *row, const struct node *node,
                           const struct path *path, void *field) {
    struct real_list *list = field;
    void *items = NULL;
    if (bind_word(b, row, node, path, &list->word)) return;
    bind_list(b, row, node, path, sizeof *list->items, SCHEMA_REAL, bind_scalar, &items, &list->count);
    list->items = items;
}

static void bind_strings(struct binder *b, const struct schema_row *row, const struct node *node,
                         const struct path *path, const char **first, struct string_list *others) {
    struct schema_row item_row = *row;
    struct string_list all = {0};
    void *items = NULL;
    item_row.others_offset = 0; /* a list within the list is an error */
    bind_list(b, &item_row, node, path, sizeof *all.items, SCHEMA_STRING, bind_string, &items, &all.count);
    all.items = items;
    if (all.count == 0) {
        binder_report(b, node->place, path, "the list is empty");
        return;
    }
    *first = all.items[0];
    *others = (struct string_list){all.items + 1, all.count - 1};
}

/* Binds a mapping from names to lists of texts. */
static void bind_groups(struct binder *b, const struct schema_row *row, const struct node *node,
                        const struct path *path, struct string_list *list) {
    struct string_groups *groups = row_groups(row, list);
    groups->items = arena_alloc(b->arena, (node->count + 1) * sizeof *groups->items);
    if (node->count == 0) binder_report(b, node->place, path, "expected at least one name");
    for (size_t i = 0; i < node->count; i++) {
        struct path item_path = {path, node->keys[i], 0};
        void *items = NULL;
        size_t count = 0;
        if (node_is_null(node->items[i]))
            binder_report(b, node->items[i]->place, &item_path, "missing value");
        else
            bind_list(b, row, node->items[i], &item_path, sizeof *list->items, SCHEMA_STRING, bind_string, &items,
                      &count);
        if (items && count == 0) binder_report(b, node->items[i]->place, &item_path, "the list is empty");
        const char **all = arena_alloc(b->arena, (list->count + count + 1) * sizeof *all);
        if (list->count) memcpy(all, list->items, list->count * sizeof *all);
        if (count) memcpy(all + list->count, items, count * sizeof *all);
        *list = (struct string_list){all, list->count + count};
        groups->items[groups->count++] = (struct string_group){arena_copy(b->arena, node->keys[i]), count};
    }
}

static void bind_string_list(struct binder *b, const struct schema_row *row, const struct node *node,
                             const struct path *path, void *field) {
    struct string_list *list = field;
    void *items = NULL;
    if (row->groups_offset && node->kind == NODE_MAPPING) {
        bind_groups(b, row, node, path, list);
        return;
    }
    bind_list(b, row, node, path, sizeof *list->items, SCHEMA_STRING, bind_string, &items, &list->count);
    list->items = items;
}

/* ---- mappings ---- */

/* A mapping whose keys are bound to one struct or, for a type with common keys, to two. */
struct target {
    struct key_scope scope;     /* its path is set only for a problem */
    void *own, *common;         /* the structs of scope.own and scope.common */
    const struct node *mapping; /* NULL: all defaults */
    struct place place;         /* of missing keys */
    const struct path *path;
};

static void bind_row(struct binder *b, const struct schema_row *row, const struct target *target, void *config);

static void report_unknown_key(struct binder *b, const struct target *target, size_t index) {
    if (binder_is_full(b)) return;
    SCOPED_TEXT sentence = {0}, path = {0};
    binder_add_path(target->path, &path);
    struct key_scope scope = target->scope;
    scope.path = text_string(&path);
    const char *key = target->mapping->keys[index];
    struct path key_path = {target->path, key, 0};
    suggest_key(key, &scope, b->root, b->document, &sentence);
    binder_report_text(b, target->mapping->key_places[index], &key_path, &sentence);
}

/* Reports a value that was split at its comma: in `{lr: 0,001}` and `{betas: (0.9, 0.999)}` the last part is a key. */
static bool report_split_value(struct binder *b, const struct target *target, size_t i) {
    const struct node *mapping = target->mapping, *before = i > 0 ? mapping->items[i - 1] : NULL;
    const char *key = mapping->keys[i];
    if (!before || before->kind != NODE_SCALAR || before->is_quoted || !node_is_null(mapping->items[i])) return false;
    struct path path = {target->path, mapping->keys[i - 1], 0};
    const char *whole = before->text + strspn(before->text, "+-"), *tail = key + strspn(key, "0123456789");
    bool is_number =
        *whole && !whole[strspn(whole, "0123456789")] && tail > key && (!*tail || *tail == 'e' || *tail == 'E');
    if (is_number)
        binder_report(b, before->place, &path,
                      "'%s,%s' has a decimal comma, but a comma ends a value here; write %s.%s",
                      short_text(before->text).s, short_text(key).s, short_text(before->text).s, short_text(key).s);
    else if (before->text[0] == '(' && strchr(key, ')'))
        binder_report(b, before->place, &path, "'%s, %s' is not a list here; write [%s, %.*s]",
                      short_text(before->text).s, short_text(key).s, short_text(before->text + 1).s,
                      (int)strcspn(key, ")") < 60 ? (int)strcspn(key, ")") : 60, key);
    else
        return false;
    return true;
}

static void check_keys(struct binder *b, const struct target *target) {
    const struct key_scope *scope = &target->scope;
    for (size_t i = 0; target->mapping && i < target->mapping->count; i++) {
        if (scope_has_key(scope, target->mapping->keys[i])) continue;
        if (!report_split_value(b, target, i)) report_unknown_key(b, target, i);
    }
}

static void run_check(struct binder *b, const struct schema *schema, void *config, const struct target *target) {
    if (!schema || !schema->check) return;
    SCOPED_TEXT path = {0};
    binder_add_path(target->path, &path);
    struct node empty = {.kind = NODE_MAPPING, .place = target->place};
    schema->check(config, target->mapping ? target->mapping : &empty, text_string(&path), b->problems);
}

static void bind_target(struct binder *b, const struct target *target) {
    size_t problems_before = binder_problem_count(b);
    check_keys(b, target);
    const struct schema *own = target->scope.own, *common = target->scope.common;
    for (size_t i = 0; own && own->rows[i].key; i++) bind_row(b, &own->rows[i], target, target->own);
    for (size_t i = 0; common && common->rows[i].key; i++) bind_row(b, &common->rows[i], target, target->common);
    if (binder_problem_count(b) != problems_before) return;
    run_check(b, own, target->own, target);
    run_check(b, common, target->common, target);
}

/* The mapping {[key]: [value]} of a shorthand. */
static const struct node *mapping_of(struct binder *b, const char *key, const struct node *value) {
    struct node *mapping = arena_alloc(b->arena, sizeof *mapping);
    struct node **items = arena_alloc(b->arena, sizeof(struct node *));
    const char **keys = arena_alloc(b->arena, sizeof *keys);
    struct place *places = arena_alloc(b->arena, sizeof *places);
    *items = (struct node *)value;
    *keys = key;
    *places = value->place;
    *mapping = (struct node){
        .kind = NODE_MAPPING, .place = value->place, .count = 1, .items = items, .keys = keys, .key_places = places};
    return mapping;
}

static void bind_section(struct binder *b, const struct schema_row *row, const struct node *node,
                         const struct path *path, void *field) {
    const char *shorthand = row->section->shorthand;
    if (node->kind != NODE_MAPPING && shorthand) node = mapping_of(b, shorthand, node);
    if (node->kind != NODE_MAPPING) {
        binder_report_wrong_type(b, row, node, path, NULL);
        return;
    }
    struct target target = {
        .scope = {.own = row->section}, .own = field, .mapping = node, .place = node->place, .path = path};
    bind_target(b, &target);
}

static void bind_section_list(struct binder *b, const struct schema_row *row, const struct node *node,
                              const struct path *path, void *field) {
    struct section_list *list = field;
    if (node->kind != NODE_SEQUENCE) {
        binder_report_wrong_type(b, row, node, path, "start each entry with '- '");
        return;
    }
    struct schema_row entry = *row;
    entry.type = SCHEMA_SECTION;
    list->count = node->count;
    list->items = arena_alloc(b->arena, node->count ? node->count * row->section->size : 1);
    for (size_t i = 0; i < node->count; i++) {
        struct path item_path = {path, NULL, i};
        if (node_is_null(node->items[i]))
            binder_report_null(b, &entry, node->items[i], &item_path);
        else
            bind_section(b, &entry, node->items[i], &item_path, (char *)list->items + i * row->section->size);
    }
}

/* The keys are names of the user's, each with one section. */
static void bind_section_map(struct binder *b, const struct schema_row *row, const struct node *node,
                             const struct path *path, void *field) {
    struct section_list *list = field;
    if (node->kind != NODE_MAPPING) {
        binder_report_wrong_type(b, row, node, path, NULL);
        return;
    }
    struct schema_row entry = *row;
    entry.type = SCHEMA_SECTION;
    list->count = node->count;
    list->items = arena_alloc(b->arena, node->count ? node->count * row->section->size : 1);
    for (size_t i = 0; i < node->count; i++) {
        struct path item_path = {path, node->keys[i], 0};
        void *item = (char *)list->items + i * row->section->size;
        if (node_is_null(node->items[i]))
            binder_report_null(b, &entry, node->items[i], &item_path);
        else
            bind_section(b, &entry, node->items[i], &item_path, item);
        *(const char **)item = arena_copy(b->arena, node->keys[i]);
    }
}

/* ---- types ---- */

/* Binds *variant to the type [name] with the keys of [mapping] (NULL: defaults). */
static void bind_type(struct binder *b, const struct schema_variants *variants, const char *name,
                      const struct node *name_node, const struct node *mapping, const struct path *path,
                      struct variant *variant) {
    int index = -1;
    const struct schema_variant *type = variants_find(variants, name, &index);
    if (!type) {
        if (binder_is_full(b)) return;
        SCOPED_TEXT sentence = {0};
        suggest_type(name, variants, b->root, &sentence);
        binder_report_text(b, name_node->place, path, &sentence);
        return;
    }
    variant->index = index;
    variant->name = type->name;
    variant->config = type->schema ? arena_alloc(b->arena, type->schema->size) : NULL;
    variant->common = variants->common ? arena_alloc(b->arena, variants->common->size) : NULL;
    struct target target = {
        .scope = {.own = type->schema, .common = variants->common, .variants = variants, .type = type->name},
        .own = variant->config,
        .common = variant->common,
        .mapping = mapping,
        .place = mapping ? mapping->place : name_node->place,
        .path = path,
    };
    bind_target(b, &target);
}

/* Reports a missing `type`; keys that are a typo or an alias of it are reported instead. */
static void report_missing_type(struct binder *b, const struct node *node, const struct path *path, const char *what) {
    static const char *const known[] = {"type", NULL};
    size_t typos = 0;
    for (size_t i = 0; i < node->count; i++) {
        const struct schema_alias *alias = alias_find(b->root, ALIAS_KEY, what, node->keys[i]);
        bool is_alias = alias && alias->meant && strcmp(alias->meant, ".type") == 0;
        if (!is_alias && !schema_nearest(node->keys[i], known)) continue;
        struct path key_path = {path, node->keys[i], 0};
        binder_report(b, node->key_places[i], &key_path, "unknown key; did you mean 'type'?");
        typos++;
    }
    struct path type_path = {path, "type", 0};
    if (!typos) binder_report(b, node->place, &type_path, "missing; the name of the %s", what);
}

/* `adam`, or {type: adam, lr: 0.1}, or {lr: 0.1} when the default names a type. */
static void bind_typed(struct binder *b, const struct schema_row *row, const struct node *node, const struct path *path,
                       struct variant *variant) {
    if (node->kind == NODE_SCALAR) {
        bind_type(b, row->variants, node->text, node, NULL, path, variant);
        return;
    }
    if (node->kind == NODE_SEQUENCE) {
        binder_report_wrong_type(b, row, node, path, NULL);
        return;
    }
    const struct node *type = node_get(node, "type");
    const char *implied = row->variants->implied;
    struct node of_key = {.kind = NODE_SCALAR, .place = node->place, .text = implied};
    if (!type && implied && node_get(node, implied)) type = &of_key;
    if (!type && row->fallback) {
        const struct node *fallback = row_fallback(row, node->place, b->arena);
        type = fallback && fallback->kind == NODE_MAPPING ? node_get(fallback, "type") : fallback;
        if (type && node_is_null(type)) type = NULL;
    }
    struct path type_path = {path, "type", 0};
    if (!type) {
        report_missing_type(b, node, path, row->variants->what);
        return;
    }
    if (node_is_null(type)) {
        binder_report(b, type->place, &type_path, "missing; the name of the %s", row->variants->what);
        return;
    }
    if (type->kind != NODE_SCALAR) {
        binder_report(b, type->place, &type_path, "expected the name of the %s, got %s", row->variants->what,
                      type->kind == NODE_SEQUENCE ? "a list" : "a mapping");
        return;
    }
    bind_type(b, row->variants, type->text, type, node, path, variant);
}

/* `relu`, or {linear: {out: 3}}. */
static void bind_keyed(struct binder *b, const struct schema_row *row, const struct node *node, const struct path *path,
                       struct variant *variant) {
    const char *what = row->variants->what;
    if (node->kind == NODE_SCALAR && !node_is_null(node)) {
        bind_type(b, row->variants, node->text, node, NULL, path, variant);
        return;
    }
    if (node->kind != NODE_MAPPING) {
        binder_report(b, node->place, path, "expected %s %s, got %s", article(what), what,
                      node->kind == NODE_SEQUENCE ? "a list" : "null");
        return;
    }
    if (node->count != 1) {
        SCOPED_TEXT keys = {0};
        for (size_t i = 0; i < node->count && i < 5; i++)
            text_printf(&keys, "%s%s", i ? ", " : "", short_text(node->keys[i]).s);
        binder_report(b, node->place, path,
                      "expected one key, the type of the %s, got %zu%s%s%s; its options go inside it: %s: {...}", what,
                      node->count, node->count ? " (" : "", text_string(&keys), node->count ? ")" : "",
                      node->count ? short_text(node->keys[0]).s : "TYPE");
        return;
    }
    int index;
    const struct schema_variant *type = variants_find(row->variants, node->keys[0], &index);
    const struct node *options = node_is_null(node->items[0]) ? NULL : node->items[0];
    struct node name = {.kind = NODE_SCALAR, .place = node->key_places[0], .text = node->keys[0]};
    struct path type_path = {path, node->keys[0], 0};
    if (type && options && options->kind != NODE_MAPPING) {
        if (!type->schema || !type->schema->shorthand) {
            binder_report(b, options->place, &type_path, "expected a mapping with the options of the %s, got %s", what,
                          options->kind == NODE_SEQUENCE ? "a list" : "a single value");
            return;
        }
        options = mapping_of(b, type->schema->shorthand, options);
    }
    bind_type(b, row->variants, name.text, &name, options, type ? &type_path : path, variant);
}

static void bind_variant(struct binder *b, const struct schema_row *row, const struct node *node,
                         const struct path *path, void *field) {
    struct variant *variant = field;
    *variant = (struct variant){.index = -1, .place = node->place};
    (row->variants->is_keyed ? bind_keyed : bind_typed)(b, row, node, path, variant);
}

/* A list in brackets splits `Linear(13, 64)` at its comma. Returns the entries of the call, from *i on, as one scalar
 * and advances *i to the last of them. */
static const struct node *joined_call(struct binder *b, const struct node *list, size_t *i) {
    const struct node *node = list->items[*i];
    if (node->kind != NODE_SCALAR || !strchr(node->text, '(') || strchr(node->text, ')')) return node;
    struct node *call = arena_alloc(b->arena, sizeof *call);
    *call = *node;
    for (size_t last = *i + 1; last < list->count && list->items[last]->kind == NODE_SCALAR; last++) {
        call->text = arena_printf(b->arena, "%s, %s", call->text, list->items[last]->text);
        if (!strchr(list->items[last]->text, ')')) continue;
        *i = last;
        return call;
    }
    return node;
}

static void bind_variant_list(struct binder *b, const struct schema_row *row, const struct node *node,
                              const struct path *path, void *field) {
    struct variant_list *list = field;
    if (node->kind != NODE_SEQUENCE) {
        binder_report_wrong_type(b, row, node, path, "start each entry with '- '");
        return;
    }
    struct schema_row entry = *row;
    entry.type = SCHEMA_VARIANT;
    entry.fallback = NULL;
    list->count = node->count;
    list->items = arena_alloc(b->arena, node->count ? node->count * sizeof *list->items : 1);
    for (size_t i = 0; i < node->count; i++) {
        struct path item_path = {path, NULL, i};
        struct variant *item = &list->items[i];
        bind_variant(b, &entry, joined_call(b, node, &i), &item_path, item);
    }
}

/* ---- rows ---- */

static bind_function *const bind_functions[] = {
    [SCHEMA_BOOL] = bind_scalar,
    [SCHEMA_INT] = bind_scalar,
    [SCHEMA_REAL] = bind_scalar,
    [SCHEMA_STRING] = bind_string,
    [SCHEMA_CHOICE] = bind_choice,
    [SCHEMA_INT_LIST] = bind_int_list,
    [SCHEMA_REAL_LIST] = bind_real_list,
    [SCHEMA_STRING_LIST] = bind_string_list,
    [SCHEMA_SECTION] = bind_section,
    [SCHEMA_SECTION_LIST] = bind_section_list,
    [SCHEMA_SECTION_MAP] = bind_section_map,
    [SCHEMA_VARIANT] = bind_variant,
    [SCHEMA_VARIANT_LIST] = bind_variant_list,
};

static void set_null(const struct schema_row *row, void *field, struct place place) {
    if (row->type == SCHEMA_INT) *(int64_t *)field = SCHEMA_NO_INT;
    if (row->type == SCHEMA_REAL) *(double *)field = NAN;
    if (row->type == SCHEMA_CHOICE) *(int *)field = -1;
    if (row->type == SCHEMA_VARIANT) *(struct variant *)field = (struct variant){.index = -1, .place = place};
}

/* The value of a row's key. NULL: none, also where an argument KEY=null, or null over a value of a base, removes a key
 * that cannot be null. */
static const struct node *given_value(const struct schema_row *row, const struct node *mapping) {
    const struct node *node = node_get(mapping, row->key);
    bool is_removed =
        node && node_is_null(node) && (node->place.line == 0 || node->is_over_base) && !row_is_nullable(row);
    return is_removed ? NULL : node;
}

static void bind_row(struct binder *b, const struct schema_row *row, const struct target *target, void *config) {
    const struct node *node = given_value(row, target->mapping);
    struct path path = {target->path, row->key, 0};
    void *field = (char *)config + row->offset;
    bool is_section = row->type == SCHEMA_SECTION;
    bool is_null = node && node_is_null(node);
    if (row->present_offset) *(bool *)((char *)config + row->present_offset) = node && !(is_section && is_null);

    if (!node && (row->flags & SCHEMA_REQUIRED)) {
        binder_report(b, target->place, &path, "missing; %s", row->doc);
        return;
    }
    if (is_null && !row_is_nullable(row)) {
        binder_report_null(b, row, node, &path);
        return;
    }
    if (is_section && (!node || is_null)) {
        struct target section = {.scope = {.own = row->section}, .own = field, .place = target->place, .path = &path};
        bind_target(b, &section);
        return;
    }
    if (!node) node = row_fallback(row, target->place, b->arena);
    if (!node || node_is_null(node))
        set_null(row, field, target->place);
    else
        bind_functions[row->type](b, row, node, &path, field);
}

void schema_bind(const struct schema *schema, const struct node *mapping, const char *path, const struct schema *root,
                 void *config, struct arena *arena, struct problems *problems) {
    memset(config, 0, schema->size);
    struct binder b = {.root = root, .arena = arena, .problems = problems, .document = *path ? NULL : mapping};
    struct path base = {.key = path};
    struct schema_row row = {.key = path, .type = SCHEMA_SECTION, .section = schema};
    struct target target = {.scope = {.own = schema}, .own = config, .path = &base};
    if (mapping)
        bind_section(&b, &row, mapping, &base, config);
    else
        bind_target(&b, &target);
}

void schema_bind_key(const struct schema *schema, const struct node *mapping, const char *key, void *config,
                     struct arena *arena, struct problems *problems) {
    struct binder b = {.root = schema, .arena = arena, .problems = problems, .document = mapping};
    struct path base = {.key = ""};
    struct target target = {
        .scope = {.own = schema}, .own = config, .mapping = mapping, .place = mapping->place, .path = &base};
    bind_row(&b, schema_row(schema, key), &target, config);
}

/* ---- overrides ---- */

/* Overrides know from the schema which values of their path are short forms. */

/* The section of a value of [row], which the steps after *at may describe: an index or a name, the type of a layer;
 * NULL: it has none, or its type cannot be seen from the path (an optimizer's). Advances *at to the last of these
 * steps. */
static const struct schema *section_of_steps(const struct schema_row *row, char *const *steps, size_t count,
                                             size_t *at) {
    bool is_list = row->type == SCHEMA_SECTION_LIST || row->type == SCHEMA_SECTION_MAP;
    int index;
    if ((is_list || row->type == SCHEMA_VARIANT_LIST) && ++*at >= count) return NULL;
    if (is_list || row->type == SCHEMA_SECTION) return row->section;
    if (row->type < SCHEMA_VARIANT || !row->variants->is_keyed || ++*at >= count) return NULL;
    const struct schema_variant *type = variants_find(row->variants, steps[*at], &index);
    return type ? type->schema : NULL;
}

/* The section at the path [steps] (count); NULL: there is none. *of_names: of the values of the mapping at the path,
 * whose keys are names of the user's; NULL: they are not. */
static const struct schema *section_of_path(const struct schema *root, char *const *steps, size_t count,
                                            const struct schema **of_names) {
    const struct schema *section = root;
    *of_names = NULL;
    for (size_t i = 0; section && i < count; i++) {
        const struct schema_row *row = schema_row(section, steps[i]);
        if (!row && section->shorthand && isdigit((unsigned char)steps[i][0])) { /* an index of a list that is one */
            if (i == 0) return NULL;
            row = schema_row(section, section->shorthand);
            i--;
        }
        if (row && row->type == SCHEMA_SECTION_MAP && i + 1 == count) *of_names = row->section;
        section = row ? section_of_steps(row, steps, count, &i) : NULL;
    }
    return section;
}

static const char *short_form(const void *root, char *const *steps, size_t count) {
    const struct schema *of_names, *section = section_of_path(root, steps, count, &of_names);
    return section ? section->shorthand : NULL;
}

static size_t new_key(const void *root, char *const *steps, size_t count, size_t depth) {
    const struct schema *schema = root, *of_names;
    size_t end = depth + 1;
    if (schema->has_path_keys && schema->has_path_keys(steps, depth)) return count - depth;
    section_of_path(schema, steps, depth, &of_names);
    while (of_names && end < count && !schema_row(of_names, steps[end])) end++;
    return end - depth;
}

void schema_override(const struct schema *root, struct document *document, const char *assignment,
                     struct problems *problems) {
    struct document_paths paths = {short_form, new_key, root};
    document_override(document, assignment, &paths, problems);
}
