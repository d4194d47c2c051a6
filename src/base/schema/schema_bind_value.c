/* The values that are no mappings: scalars and lists, and the sentences about those that are wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/schema/schema_binder.h"

void binder_add_path(const struct path *path, struct text *out) {
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
bool binder_is_full(struct binder *b) {
    if (b->problems->count < PROBLEMS_MAX) return false;
    b->problems->left_out++;
    return true;
}

void binder_report_text(struct binder *b, struct place place, const struct path *path, const struct text *sentence) {
    struct text key = {0};
    binder_add_path(path, &key);
    problems_add(b->problems, place, text_string(&key), "%s", text_string(sentence));
    text_free(&key);
}

void binder_report(struct binder *b, struct place place, const struct path *path, const char *format, ...) {
    if (binder_is_full(b)) return;
    va_list arguments;
    va_start(arguments, format);
    struct text sentence = {0};
    char *formatted = NULL;
    if (vasprintf(&formatted, format, arguments) >= 0) text_add(&sentence, formatted);
    va_end(arguments);
    binder_report_text(b, place, path, &sentence);
    free(formatted);
    text_free(&sentence);
}

size_t binder_problem_count(const struct binder *b) { return b->problems->count + b->problems->left_out; }

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

/* "expected an integer, got 'abc'; hint" */
void binder_report_wrong_type(struct binder *b, const struct schema_row *row, const struct node *node,
                              const struct path *path, const char *hint) {
    if (binder_is_full(b)) return;
    struct text sentence = {0}, where = {0}, meant = {0};
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
    text_free(&meant);
    text_free(&where);
    text_free(&sentence);
}

void binder_report_null(struct binder *b, const struct schema_row *row, const struct node *node,
                        const struct path *path) {
    if (binder_is_full(b)) return;
    struct text sentence = {0};
    text_add(&sentence, "null is not allowed; expected ");
    row_add_expected(row, &sentence);
    if (row->type == SCHEMA_SECTION)
        text_add(&sentence, " (leave the key out for the defaults)");
    else if (row->fallback)
        text_printf(&sentence, " (leave the key out for the default, %s)", row->fallback);
    binder_report_text(b, node->place, path, &sentence);
    text_free(&sentence);
}

static void check_limits(struct binder *b, const struct schema_row *row, double value, const struct node *node,
                         const struct path *path) {
    if (row_is_within_limits(row, value) || binder_is_full(b)) return;
    struct text sentence = {0};
    text_add(&sentence, "must be ");
    row_add_limits(row, &sentence);
    text_printf(&sentence, ", got %s", short_text(node->text).s);
    binder_report_text(b, node->place, path, &sentence);
    text_free(&sentence);
}

/* ---- scalars ---- */

/* Whether the node is an unquoted scalar; else reports it. [is_valid]: its text is a value of the row's type. */
static bool is_plain(struct binder *b, const struct schema_row *row, const struct node *node, const struct path *path,
                     bool is_valid) {
    if (node->kind == NODE_SCALAR && !node->is_quoted) return true;
    binder_report_wrong_type(b, row, node, path, node->kind == NODE_SCALAR && is_valid ? "remove the quotes" : NULL);
    return false;
}

void bind_bool(struct binder *b, const struct schema_row *row, const struct node *node, const struct path *path,
               void *field) {
    bool value = false;
    const char *hint = NULL;
    bool fits = node->kind == NODE_SCALAR && value_parse_bool(node->text, &value, &hint);
    if (!is_plain(b, row, node, path, fits)) return;
    if (!fits) binder_report_wrong_type(b, row, node, path, hint);
    *(bool *)field = value;
}

void bind_int(struct binder *b, const struct schema_row *row, const struct node *node, const struct path *path,
              void *field) {
    int64_t value = 0;
    const char *hint = NULL;
    bool fits = node->kind == NODE_SCALAR && value_parse_int(node->text, &value, &hint);
    if (!is_plain(b, row, node, path, fits)) return;
    if (fits)
        check_limits(b, row, (double)value, node, path);
    else
        binder_report_wrong_type(b, row, node, path, hint);
    *(int64_t *)field = value;
}

void bind_real(struct binder *b, const struct schema_row *row, const struct node *node, const struct path *path,
               void *field) {
    double value = 0;
    const char *hint = NULL;
    bool fits = node->kind == NODE_SCALAR && value_parse_real(node->text, &value, &hint);
    if (!is_plain(b, row, node, path, fits)) return;
    if (fits)
        check_limits(b, row, value, node, path);
    else
        binder_report_wrong_type(b, row, node, path, hint);
    *(double *)field = value;
}

void bind_choice(struct binder *b, const struct schema_row *row, const struct node *node, const struct path *path,
                 void *field) {
    for (int i = 0; node->kind == NODE_SCALAR && row->choices[i]; i++) {
        if (strcmp(node->text, row->choices[i]) != 0) continue;
        *(int *)field = i;
        return;
    }
    struct text hint = {0}, where = {0};
    binder_add_path(path, &where);
    if (node->kind == NODE_SCALAR) schema_suggest_value(b->root, text_string(&where), node->text, row->choices, &hint);
    binder_report_wrong_type(b, row, node, path, hint.length ? text_string(&hint) : NULL);
    text_free(&where);
    text_free(&hint);
}

/* ---- texts and lists ---- */

static void bind_strings(struct binder *b, const struct schema_row *row, const struct node *node,
                         const struct path *path, const char **first, struct string_list *others);

void bind_string(struct binder *b, const struct schema_row *row, const struct node *node, const struct path *path,
                 void *field) {
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

void bind_int_list(struct binder *b, const struct schema_row *row, const struct node *node, const struct path *path,
                   void *field) {
    struct int_list *list = field;
    void *items = NULL;
    if (bind_word(b, row, node, path, &list->word)) return;
    bind_list(b, row, node, path, sizeof *list->items, SCHEMA_INT, bind_int, &items, &list->count);
    list->items = items;
}

void bind_real_list(struct binder *b, const struct schema_row *row, const struct node *node, const struct path *path,
                    void *field) {
    struct real_list *list = field;
    void *items = NULL;
    if (bind_word(b, row, node, path, &list->word)) return;
    bind_list(b, row, node, path, sizeof *list->items, SCHEMA_REAL, bind_real, &items, &list->count);
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

void bind_string_list(struct binder *b, const struct schema_row *row, const struct node *node, const struct path *path,
                      void *field) {
    struct string_list *list = field;
    void *items = NULL;
    if (row->groups_offset && node->kind == NODE_MAPPING) {
        bind_groups(b, row, node, path, list);
        return;
    }
    bind_list(b, row, node, path, sizeof *list->items, SCHEMA_STRING, bind_string, &items, &list->count);
    list->items = items;
}
