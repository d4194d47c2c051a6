/* A list of sections: bound entry by entry, written, compared and explained like any other key. ctest-labels: unit */
#include <jansson.h>

#include "base/schema/schema.h"
#include "check_main.h"

struct group {
    struct string_list match;
    double lr;
};
struct every {
    int64_t count;
    struct section_list groups;
};
struct config {
    struct variant optimizer;
};

static const struct schema_row group_rows[] = {
    {.key = "match",
     .type = SCHEMA_STRING_LIST,
     .offset = FIELD(struct group, match),
     .flags = SCHEMA_REQUIRED,
     .doc = "Patterns."},
    {.key = "lr", .type = SCHEMA_REAL, .offset = FIELD(struct group, lr), .fallback = "null", .max = 1, .doc = "Rate."},
    {0},
};
static void check_group(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct group *g = config;
    if (g->match.count == 0) problems_add(problems, where->place, path, "matches nothing");
}
static const struct schema group_schema = {
    .name = "group", .size = sizeof(struct group), .rows = group_rows, .check = check_group};

static const struct schema_row every_rows[] = {
    {.key = "count", .type = SCHEMA_INT, .offset = FIELD(struct every, count), .fallback = "1", .doc = "Number."},
    {.key = "groups",
     .type = SCHEMA_SECTION_LIST,
     .offset = FIELD(struct every, groups),
     .fallback = "[]",
     .section = &group_schema,
     .doc = "Groups."},
    {0},
};
static const struct schema every_schema = {.name = "every", .size = sizeof(struct every), .rows = every_rows};

static const struct schema_variant *type_at(size_t index) {
    static const struct schema_variant adam = {"adam", NULL, "Adam."};
    return index == 0 ? &adam : NULL;
}
static const struct schema_variants optimizers = {.what = "optimizer", .at = type_at, .common = &every_schema};
static const struct schema_row rows[] = {
    {.key = "optimizer",
     .type = SCHEMA_VARIANT,
     .offset = FIELD(struct config, optimizer),
     .fallback = "adam",
     .variants = &optimizers,
     .doc = "Rule."},
    {0},
};
static const struct schema schema = {.name = "config", .size = sizeof(struct config), .rows = rows};

/* The failure's sentence, or NULL with *out filled; free it. */
static char *bind(const char *yaml, struct document **document, struct config *out) {
    struct problems problems = {0};
    status s = document_parse("t", yaml, strlen(yaml), &problems, document);
    ck_assert(!s);
    if (*document)
        schema_bind(&schema, document_root(*document), "", &schema, out, document_arena(*document), &problems);
    s = problems_status(&problems, STATUS_USAGE);
    problems_free(&problems);
    char *message = s ? strdup(status_message(s)) : NULL;
    status_free(s);
    return message;
}

static void accepts(const char *yaml, const char *written) {
    struct document *document = NULL, *again = NULL;
    struct config config, second;
    struct text text = {0}, difference = {0};
    char *message = bind(yaml, &document, &config);
    ck_assert_msg(!message, "%s", message);
    schema_write_yaml(&schema, &config, &text);
    ck_assert_str_eq(text_string(&text), written);
    message = bind(written, &again, &second);
    ck_assert_msg(!message, "%s", message);
    ck_assert_uint_eq(schema_diff(&schema, &config, &second, &difference), 0);
    text_free(&text);
    document_destroy(document);
    document_destroy(again);
}

static void rejects(const char *yaml, const char *sentence) {
    struct document *document = NULL;
    struct config config;
    char *message = bind(yaml, &document, &config);
    ck_assert_msg(message && strstr(message, sentence), "%s: %s", yaml, message ? message : "accepted");
    free(message);
    document_destroy(document);
}

TEST(entries_are_bound_and_written) {
    accepts("{}", "optimizer: {type: adam, count: 1, groups: []}\n");
    accepts("optimizer: {groups: [{match: '*.bias', lr: 0.5}, {match: [a, b]}]}",
            "optimizer:\n  type: adam\n  count: 1\n  groups:\n    - {match: [\"*.bias\"], lr: 0.5}\n"
            "    - {match: [a, b], lr: null}\n");
    struct document *document = NULL;
    struct config config;
    ck_assert_ptr_null(bind("optimizer: {groups: [{match: x}, {match: [a, b], lr: 0.25}]}", &document, &config));
    const struct every *every = config.optimizer.common;
    const struct group *groups = every->groups.items;
    ck_assert_uint_eq(every->groups.count, 2);
    ck_assert_str_eq(groups[0].match.items[0], "x");
    ck_assert_str_eq(groups[1].match.items[1], "b");
    ck_assert(isnan(groups[0].lr) && groups[1].lr == 0.25);
    document_destroy(document);
}

struct item {
    int64_t size;
    bool has_size;
};
struct list {
    struct section_list items;
    struct item first;
};

static const struct schema_row item_rows[] = {{.key = "size",
                                               .type = SCHEMA_INT,
                                               .offset = FIELD(struct item, size),
                                               .present_offset = FIELD(struct item, has_size),
                                               .fallback = "1",
                                               .doc = "Size."},
                                              {0}};
static const struct schema item_schema = {.name = "item", .size = sizeof(struct item), .rows = item_rows};
static const struct schema_row list_rows[] = {{.key = "items",
                                               .type = SCHEMA_SECTION_LIST,
                                               .offset = FIELD(struct list, items),
                                               .fallback = "[]",
                                               .section = &item_schema,
                                               .doc = "Items."},
                                              {.key = "first",
                                               .type = SCHEMA_SECTION,
                                               .offset = FIELD(struct list, first),
                                               .section = &item_schema,
                                               .doc = "First item."},
                                              {0}};
static const struct schema list_schema = {.name = "list", .size = sizeof(struct list), .rows = list_rows};

/* A section without keys is written as {}, so that the written config can be read and lists keep their length. */
TEST(empty_sections_are_written) {
    static const char *const texts[] = {"items:\n  - {}\n  - {size: 2}\n  - {}\nfirst: {}\n",
                                        "items: []\nfirst:\n  size: 3\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct problems problems = {0};
        struct document *document;
        struct list list;
        struct text written = {0};
        ck_assert(!document_parse("t", texts[i], strlen(texts[i]), &problems, &document));
        schema_bind(&list_schema, document_root(document), "", &list_schema, &list, document_arena(document),
                    &problems);
        ck_assert_uint_eq(problems.count, 0);
        schema_write_yaml(&list_schema, &list, &written);
        ck_assert_str_eq(text_string(&written), texts[i]);
        text_free(&written);
        document_destroy(document);
    }
}

struct named {
    const char *name;
    int64_t size;
};
struct map {
    struct section_list entries;
};
static const struct schema_row named_rows[] = {
    {.key = "size", .type = SCHEMA_INT, .offset = FIELD(struct named, size), .fallback = "1", .doc = "Size."}, {0}};
static const struct schema named_schema = {
    .name = "entries", .size = sizeof(struct named), .rows = named_rows, .shorthand = "size"};
static const struct schema_row map_rows[] = {{.key = "entries",
                                              .type = SCHEMA_SECTION_MAP,
                                              .offset = FIELD(struct map, entries),
                                              .section = &named_schema,
                                              .doc = "Entries."},
                                             {0}};
static const struct schema map_schema = {.name = "map", .size = sizeof(struct map), .rows = map_rows};

static status bind_map(const char *text, struct document **document, struct map *map) {
    struct problems problems = {0};
    status s = document_parse("t", text, strlen(text), &problems, document);
    if (!s)
        schema_bind(&map_schema, document_root(*document), "", &map_schema, map, document_arena(*document), &problems);
    if (!s) s = problems_status(&problems, STATUS_USAGE);
    problems_free(&problems);
    return s;
}

static const struct {
    const char *yaml, *assignment, *expected;
} names[] = {
    {"entries: {a: 1}", "entries.b=2", "{entries: {a: 1, b: 2}}"},
    {"entries: {a: 1}", "entries.b.c=2", "{entries: {a: 1, b.c: 2}}"},
    {"entries: {a: 1}", "entries.b.c.size=2", "{entries: {a: 1, b.c: {size: 2}}}"},
    {"entries: {b.c: 1}", "entries.b.c.size=2", "{entries: {b.c: {size: 2}}}"},
    {"entries: {b.c: {size: 1}}", "entries.b.c.sise=2", "{entries: {b.c: {size: 1, sise: 2}}}"},
    {"", "entries.size.size=2", "{entries: {size: {size: 2}}}"},
};

TEST_EACH(overrides_name_keys_with_dots, names) {
    struct problems problems = {0};
    struct document *document;
    struct text out = {0};
    ck_assert_ptr_null(document_parse("t", names[_i].yaml, strlen(names[_i].yaml), &problems, &document));
    schema_override(&map_schema, document, names[_i].assignment, &problems);
    ck_assert_uint_eq(problems.count, 0);
    node_write(document_root(document), &out);
    ck_assert_str_eq(text_string(&out), names[_i].expected);
    text_free(&out);
    document_destroy(document);
}

/* A mapping with keys of the user's: bound in their order, written so that it can be read, compared by name. */
TEST(maps_are_bound_and_written) {
    struct document *a = NULL, *b = NULL;
    struct map before, after;
    struct text out = {0};
    ck_assert_ptr_null(bind_map("entries: {b: 3, \"a: x\": {size: 2}, c: {}}", &a, &before));
    const struct named *entries = before.entries.items;
    ck_assert_uint_eq(before.entries.count, 3);
    ck_assert(strcmp(entries[1].name, "a: x") == 0 && entries[0].size == 3 && entries[2].size == 1);
    schema_write_yaml(&map_schema, &before, &out);
    ck_assert_str_eq(text_string(&out), "entries:\n  b: {size: 3}\n  \"a: x\": {size: 2}\n  c: {size: 1}\n");
    ck_assert_ptr_null(bind_map(text_string(&out), &b, &after));
    text_clear(&out);
    ck_assert_uint_eq(schema_diff(&map_schema, &before, &after, &out), 0);
    document_destroy(b);
    ck_assert_ptr_null(bind_map("entries: {c: 1, d: 1, b: 4}", &b, &after));
    ck_assert_uint_eq(schema_diff(&map_schema, &before, &after, &out), 3);
    ck_assert_str_eq(text_string(&out), "  entries.b.size: 3 -> 4\n  entries.a: x: (given) -> (none)\n"
                                        "  entries.d: (none) -> (given)\n");
    text_clear(&out);
    document_destroy(b);
    ck_assert_ptr_null(bind_map("{}", &b, &after));
    ck_assert_uint_eq(after.entries.count, 0);
    schema_write_yaml(&map_schema, &after, &out);
    ck_assert_str_eq(text_string(&out), "entries: {}\n");
    document_destroy(b);
    static const char *const wrongs[][2] = {
        {"entries: [1]", "t:1:10: entries: expected a mapping from names to mappings, got a list"},
        {"entries: {a: null}", "t:1:14: entries.a: null is not allowed; expected a mapping with the keys size"},
        {"entries: {a: {sise: 1}}", "t:1:15: entries.a.sise: unknown key; did you mean 'size'?"},
        {"entries: {a: x}", "t:1:14: entries.a.size: expected an integer, got 'x'"}};
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        status s = bind_map(wrongs[i][0], &b, &after);
        ck_assert_msg(s && strstr(status_message(s), wrongs[i][1]), "%s", s ? status_message(s) : "accepted");
        status_free(s);
        document_destroy(b);
    }
    text_free(&out);
    document_destroy(a);
}

TEST(problems_have_their_place) {
    rejects("optimizer: {groups: [{match: a}, {match: a, lr: 2}]}", "t:1:49: optimizer.groups.1.lr: must be");
    rejects("optimizer: {groups: [{match: a, rate: 2}]}", "optimizer.groups.0.rate: unknown key");
    rejects("optimizer: {groups: [{lr: 1}]}", "optimizer.groups.0.match: missing");
    rejects("optimizer: {groups: [{match: []}]}", "optimizer.groups.0: matches nothing");
    rejects("optimizer: {groups: [a]}", "optimizer.groups.0: expected a mapping with the keys match, lr");
    rejects("optimizer: {groups: [null]}", "optimizer.groups.0: null is not allowed");
    rejects("optimizer: {groups: {match: a}}", "optimizer.groups: expected a list of mappings, got a mapping");
    rejects("optimizer: {groups: null}", "null is not allowed; expected a list of mappings");
    rejects("match: a", "did you mean 'optimizer.groups.match'?");
    rejects("optimizer: {groups: [{match: a, lr: 0,25}]}", "t:1:37: optimizer.groups.0.lr: '0,25' has a decimal comma");
    rejects("optimizer: {groups: [{lr: (0.5, 0.25)}]}",
            "t:1:27: optimizer.groups.0.lr: '(0.5, 0.25)' is not a list here; write [0.5, 0.25]");
}

TEST(differences_are_listed) {
    struct document *a = NULL, *b = NULL;
    struct config before, after;
    struct text out = {0};
    ck_assert_ptr_null(bind("optimizer: {groups: [{match: a, lr: 0.5}]}", &a, &before));
    ck_assert_ptr_null(bind("optimizer: {groups: [{match: a, lr: 0.25}, {match: b}]}", &b, &after));
    ck_assert_uint_eq(schema_diff(&schema, &before, &after, &out), 2);
    ck_assert_str_eq(text_string(&out),
                     "  optimizer.groups.0.lr: 0.5 -> 0.25\n  optimizer.groups.1: (none) -> (given)\n");
    text_clear(&out);
    ck_assert_uint_eq(schema_diff(&schema, &after, &before, &out), 2);
    text_free(&out);
    document_destroy(a);
    document_destroy(b);
}

TEST(reference_explains_it) {
    static const char *const asked[] = {"optimizer.groups", "optimizer.groups.match", "optimizer.adam.groups.lr",
                                        "optimizer.groups.0.match"};
    SCOPED_TEXT out = {0};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        text_clear(&out);
        ck_assert_msg(!schema_help(&schema, asked[i], &out), "%s", asked[i]);
    }
    ck_assert(strstr(text_string(&out), "Patterns."));
    text_clear(&out);
    schema_write_markdown(&schema, &out);
    ck_assert(strstr(text_string(&out), "[list of sections](#optimizer.groups) | `[]`"));
    ck_assert(strstr(text_string(&out), "## `optimizer.groups`"));
    text_clear(&out);
    schema_write_json(&schema, &out);
    json_t *root = json_loads(text_string(&out), 0, NULL);
    ck_assert_ptr_nonnull(root);
    ck_assert(strstr(text_string(&out), "\"type\": \"array\""));
    json_decref(root);
}

CHECK_MAIN("schema lists")
