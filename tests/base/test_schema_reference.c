/* schema_help, the reference page and the JSON schema describe what schema_bind accepts. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "check_main.h"
#include "schema_bound.h"

/* ---- help and reference ---- */

static const struct {
    const char *section, *expected; /* part of the help */
} helps[] = {
    {NULL, "  sampler     section\n              Which rows each rank sees.\n"},
    {NULL, "  seed        integer >= 0, required\n"},
    {"sampler", "sampler: Which rows each rank sees.\n\n  batch_size  integer >= 1, default 32\n"},
    {"sampler.fraction", "  fraction  number > 0 and < 1, default 0.5\n"},
    {NULL, "  optimizer   one of adam, sgd, none, default adam\n"},
    {"optimizer", "  adam  Adam, as torch.optim.Adam.\n"},
    {"optimizer", "Keys of every optimizer:\n\n  weight_decay  "},
    {"optimizer", "Written as NAME or {type: NAME, KEY: VALUE, ...}; the keys of one: --help-config optimizer.adam\n"},
    {"optimizer.adam", "  betas  list of numbers >= 0 and < 1, default [0.9, 0.999]\n"},
    {"optimizer.lr", "  lr  number >= 0, default 1e-3\n"},
    {"optimizer.none", "Keys of every optimizer:"},
    {"schedule.cosine", "schedule.cosine: Falls.\n\n  It has no keys.\n"},
    {"model.layers", "Written as NAME or NAME: {KEY: VALUE, ...}"},
    {"model.layers.linear", "  out   integer >= 1, required\n"},
    {"model.layers.2.sequential.layers.0.linear.init.normal.std", "  std  number, default 0.02\n"},
    {"linear", "model.layers.linear: x W^T + b.\n"},
    {"adam", "optimizer.adam: "},
    {"checkpoint.save_every", "A single value means {epochs: VALUE}.\n"},
    {"batch_size", "sampler.batch_size:\n\n  batch_size  integer"},
    {"train", "  device  one of auto, cpu, cuda or null, default auto\n"},
};

TEST_EACH(help_explains_every_section, helps) {
    SCOPED_TEXT text = {0};
    status s = schema_help(&example_schema, helps[_i].section, &text);
    ck_assert_msg(!s, "%s", status_message(s));
    ck_assert_msg(strstr(text_string(&text), helps[_i].expected), "%s", text_string(&text));
    for (const char *line = text_string(&text); *line; line = strchr(line, '\n') + 1)
        ck_assert_uint_le(strcspn(line, "\n"), 100);
}

TEST(help_is_wrapped) {
    static const struct schema_row rows[] = {
        {.key = "key",
         .type = SCHEMA_INT,
         .fallback = "1",
         .doc = "One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
                "seventeen eighteen nineteen twenty."},
        {0}};
    static const struct schema schema = {.name = "s", .size = 8, .rows = rows};
    SCOPED_TEXT text = {0};
    ck_assert_ptr_null(schema_help(&schema, NULL, &text));
    ck_assert_ptr_nonnull(
        strstr(text_string(&text),
               "       One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen\n"
               "       sixteen seventeen eighteen nineteen twenty.\n"));
}

TEST(help_for_nothing_known_lists_the_sections) {
    struct text text = {0};
    status s = schema_help(&example_schema, "optimiser", &text);
    ck_assert_int_eq(status_code(s), STATUS_USAGE);
    ck_assert_str_eq(status_message(s),
                     "unknown section 'optimiser'; did you mean 'optimizer'? (known: sampler, model, "
                     "model.layers, model.layers.linear.init, optimizer, schedule, checkpoint, "
                     "checkpoint.save_every, train, validation)");
    ck_assert_str_eq(text_string(&text), "");
    status_free(s);
    static const char *const nonsense[] = {"sampler.", ".", "sampler.batch_size.x", "optimizer..lr",
                                           "optimizer.adam.q"};
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
        s = schema_help(&example_schema, nonsense[i], &text);
        ck_assert_msg(status_code(s) == STATUS_USAGE, "%s", nonsense[i]);
        status_free(s);
    }
}

TEST(the_reference_page_is_complete) {
    SCOPED_TEXT page = {0};
    schema_write_markdown(&example_schema, &page);
    static const char *const parts[] = {
        "# Config reference\n",
        "| `sampler` | [section](#sampler) |  |  | Which rows each rank sees. |\n",
        "| `seed` | integer | required | >= 0 | Of every random draw. |\n",
        "<a id=\"sampler\"></a>\n\n## `sampler`\n",
        "| `fraction` | number | `0.5` | > 0 and < 1 | Part of the rows \\| of each epoch. |\n",
        "| `scale` | choice | `none` | `none`, `standard`, `minmax` | How inputs are scaled. |\n",
        "## `optimizer`\n\nHow weights change. Written as `NAME` or `{type: NAME, KEY: VALUE}`. One of:\n\n- [`adam`]",
        "\n\nKeys of every optimizer:\n\n| Key |",
        "<a id=\"optimizer.adam\"></a>\n\n### `optimizer.adam`\n",
        "<a id=\"model.layers.sequential\"></a>",
        "| `layers` | [list of layers](#model.layers) | required |  | In their order. |\n",
        "| `tags` | list of texts or null | `null` |  | . |\n",
        "### `model.layers.relu`\n\nmax(x, 0).\n\nNo keys of its own.\n",
        "### `schedule.constant`\n\nStays.\n\nNo keys.\n",
        "| How many are kept. *May differ on a resume.* |\n",
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        ck_assert_msg(strstr(text_string(&page), parts[i]), "missing: %s\n%s", parts[i], text_string(&page));
    for (const char *link = text_string(&page); (link = strstr(link, "](#")) != NULL; link++) {
        char anchor[256];
        snprintf(anchor, sizeof anchor, "<a id=\"%.*s\">", (int)strcspn(link + 3, ")"), link + 3);
        ck_assert_msg(strstr(text_string(&page), anchor), "no %s", anchor);
    }
}

TEST(the_reference_page_shows_text_as_it_is) {
    static const char *const choices[] = {"a|b", "<c>", NULL};
    static const struct schema_row rows[] = {
        {.key = "key", .type = SCHEMA_CHOICE, .fallback = "<c>", .choices = choices, .doc = "In <folder> `<x>`."}, {0}};
    static const struct schema schema = {.name = "s", .size = sizeof(int), .rows = rows};
    SCOPED_TEXT page = {0};
    schema_write_markdown(&schema, &page);
    ck_assert_ptr_nonnull(
        strstr(text_string(&page), "| `key` | choice | `<c>` | `a\\|b`, `<c>` | In &lt;folder> `<x>`. |\n"));
}

/* ---- the JSON schema, by a validator of the part of draft-07 that it uses ---- */

static bool is_valid(const json_t *root, const json_t *schema, const json_t *value);

static bool has_type(const char *type, const json_t *value) {
    return (strcmp(type, "object") == 0 && json_is_object(value)) ||
           (strcmp(type, "array") == 0 && json_is_array(value)) ||
           (strcmp(type, "string") == 0 && json_is_string(value)) ||
           (strcmp(type, "integer") == 0 && json_is_integer(value)) ||
           (strcmp(type, "number") == 0 && json_is_number(value)) ||
           (strcmp(type, "boolean") == 0 && json_is_boolean(value)) ||
           (strcmp(type, "null") == 0 && json_is_null(value));
}

static bool is_valid_type(const json_t *type, const json_t *value) {
    if (json_is_string(type)) return has_type(json_string_value(type), value);
    for (size_t i = 0; i < json_array_size(type); i++)
        if (has_type(json_string_value(json_array_get(type, i)), value)) return true;
    return false;
}

static bool is_valid_object(const json_t *root, const json_t *schema, json_t *value) {
    const json_t *properties = json_object_get(schema, "properties"), *required = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(required); i++)
        if (!json_object_get(value, json_string_value(json_array_get(required, i)))) return false;
    const char *key;
    json_t *member;
    json_object_foreach(value, key, member) {
        const json_t *property = json_object_get(properties, key);
        if (!property && json_is_false(json_object_get(schema, "additionalProperties"))) return false;
        if (property && !is_valid(root, property, member)) return false;
    }
    return true;
}

static bool is_valid_number(const json_t *schema, double value) {
    static const char *const keys[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};
    for (int i = 0; i < 4; i++) {
        const json_t *limit = json_object_get(schema, keys[i]);
        double bound = json_number_value(limit);
        bool fits[] = {value >= bound, value <= bound, value > bound, value < bound};
        if (limit && !fits[i]) return false;
    }
    return true;
}

/* The number of alternatives of [key] that the value matches; -1 when there are none. */
static int count_valid(const json_t *root, const json_t *schema, const char *key, const json_t *value) {
    const json_t *alternatives = json_object_get(schema, key);
    if (!alternatives) return -1;
    int count = 0;
    for (size_t i = 0; i < json_array_size(alternatives); i++)
        count += is_valid(root, json_array_get(alternatives, i), value);
    return count;
}

static bool is_listed(const json_t *list, const json_t *value) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_equal(json_array_get(list, i), value)) return true;
    return false;
}

static bool is_valid(const json_t *root, const json_t *schema, const json_t *value) {
    const char *reference = json_string_value(json_object_get(schema, "$ref"));
    if (reference) {
        ck_assert_int_eq(strncmp(reference, "#/$defs/", 8), 0);
        const json_t *target = json_object_get(json_object_get(root, "$defs"), reference + 8);
        ck_assert_msg(target, "%s", reference);
        return is_valid(root, target, value);
    }
    const json_t *type = json_object_get(schema, "type"), *constant = json_object_get(schema, "const");
    const json_t *items = json_object_get(schema, "items"), *listed = json_object_get(schema, "enum");
    if (type && !is_valid_type(type, value)) return false;
    if (constant && !json_equal(constant, value)) return false;
    if (listed && !is_listed(listed, value)) return false;
    if (count_valid(root, schema, "anyOf", value) == 0) return false;
    if (count_valid(root, schema, "allOf", value) == 0) return false;
    if (json_is_number(value) && !is_valid_number(schema, json_number_value(value))) return false;
    for (size_t i = 0; items && i < json_array_size(value); i++)
        if (!is_valid(root, items, json_array_get(value, i))) return false;
    return !json_is_object(value) || is_valid_object(root, schema, (json_t *)value);
}

static const struct {
    const char *json; /* also YAML */
    bool is_good;
} documents[] = {
    {"{\"seed\": 1}", true},
    {"{}", false},
    {"{\"seed\": 1, \"sede\": 1}", false},
    {"{\"seed\": -1}", false},
    {"{\"seed\": 1.5}", false},
    {"{\"seed\": \"1\"}", false},
    {"{\"seed\": null}", false},
    {"{\"seed\": 1, \"name\": null}", true},
    {"{\"seed\": 1, \"name\": 42}", true},
    {"{\"seed\": 1, \"name\": [\"a\"]}", false},
    {"{\"seed\": 1, \"sampler\": {\"shuffle\": true, \"fraction\": 0.25, \"scale\": \"minmax\"}}", true},
    {"{\"seed\": 1, \"sampler\": {\"fraction\": 1}}", false},
    {"{\"seed\": 1, \"sampler\": {\"scale\": \"max\"}}", false},
    {"{\"seed\": 1, \"sampler\": {\"shuffle\": 1}}", false},
    {"{\"seed\": 1, \"sampler\": null}", false},
    {"{\"seed\": 1, \"validation\": null}", true},
    {"{\"seed\": 1, \"train\": {\"sizes\": 3, \"tags\": [\"a\", 2], \"device\": null, \"clip\": 3}}", true},
    {"{\"seed\": 1, \"train\": {\"sizes\": [3, 0]}}", false},
    {"{\"seed\": 1, \"optimizer\": \"adam\"}", true},
    {"{\"seed\": 1, \"optimizer\": \"sgd\"}", false},
    {"{\"seed\": 1, \"optimizer\": {\"type\": \"sgd\", \"lr\": 0.1, \"weight_decay\": 1}}", true},
    {"{\"seed\": 1, \"optimizer\": {\"type\": \"sgd\", \"lr\": 0.1, \"betas\": [0, 0]}}", false},
    {"{\"seed\": 1, \"optimizer\": {\"type\": \"adma\"}}", false},
    {"{\"seed\": 1, \"optimizer\": {\"betas\": [0, 0.5]}}", true},
    {"{\"seed\": 1, \"schedule\": {}}", false},
    {"{\"seed\": 1, \"schedule\": null}", true},
    {"{\"seed\": 1, \"checkpoint\": {\"save_every\": 50}}", true},
    {"{\"seed\": 1, \"checkpoint\": {\"save_every\": {\"steps\": 50}}}", true},
    {"{\"seed\": 1, \"checkpoint\": {\"save_every\": 0}}", false},
    {"{\"seed\": 1, \"model\": {\"layers\": [\"relu\", {\"relu\": null}, {\"linear\": {\"out\": 3}}, {\"dropout\": "
     "0.1}]}}",
     true},
    {"{\"seed\": 1, \"model\": {\"layers\": [\"linear\"]}}", false},
    {"{\"seed\": 1, \"model\": {\"layers\": [{\"linear\": null}]}}", false},
    {"{\"seed\": 1, \"model\": {\"layers\": [{\"linear\": {\"out\": 3}, \"relu\": null}]}}", false},
    {"{\"seed\": 1, \"model\": {\"layers\": [{\"sequential\": {\"layers\": [{\"linear\": {\"out\": 3}}]}}]}}", true},
    {"{\"seed\": 1, \"model\": {\"layers\": [{\"sequential\": {\"layers\": [{\"linear\": {\"out\": 0}}]}}]}}", false},
    {"{\"seed\": 1, \"model\": {\"layers\": [{\"linear\": {\"out\": 1, \"init\": {\"normal\": 0.1}, \"name\": "
     "\"a\"}}]}}",
     true},
    {"{\"seed\": 1, \"model\": {\"layers\": [{\"linear\": {\"out\": 1, \"init\": \"zero\"}}]}}", false},
};

/* The JSON schema accepts a config if and only if schema_bind does. */
TEST(the_json_schema_accepts_what_binding_accepts) {
    SCOPED_TEXT text = {0};
    schema_write_json(&example_schema, &text);
    json_t *schema = json_loads(text_string(&text), JSON_REJECT_DUPLICATES, NULL);
    ck_assert_ptr_nonnull(schema);
    ck_assert_str_eq(json_string_value(json_object_get(schema, "$schema")), "http://json-schema.org/draft-07/schema#");
    for (size_t i = 0; i < sizeof documents / sizeof *documents; i++) {
        json_t *value = json_loads(documents[i].json, 0, NULL);
        ck_assert_msg(value, "%s", documents[i].json);
        struct bound b = bind(documents[i].json);
        ck_assert_msg(!*b.problems == documents[i].is_good, "binding %s: %s", documents[i].json, b.problems);
        ck_assert_msg(is_valid(schema, schema, value) == documents[i].is_good, "schema: %s", documents[i].json);
        unbind(&b);
        json_decref(value);
    }
    const json_t *properties =
                     json_object_get(json_object_get(json_object_get(schema, "properties"), "sampler"), "properties"),
                 *batch_size = json_object_get(properties, "batch_size");
    ck_assert_str_eq(json_string_value(json_object_get(batch_size, "description")), "Rows per rank.");
    ck_assert_int_eq(json_integer_value(json_object_get(batch_size, "default")), 32);
    json_decref(schema);
}

/* *count: alternatives below [node] that are the name of a type. */
static void check_described(const json_t *node, size_t *count) {
    const char *key;
    json_t *member;
    size_t i;
    json_array_foreach(node, i, member) check_described(member, count);
    json_object_foreach((json_t *)(uintptr_t)node, key, member) check_described(member, count);
    json_array_foreach(json_object_get(node, "anyOf"), i, member) {
        const char *name = json_string_value(json_object_get(member, "const"));
        if (!name) continue;
        ck_assert_msg(json_string_length(json_object_get(member, "description")) > 0, "%s", name);
        ++*count;
    }
}

/* Editors show the description of a type beside its name. */
TEST(the_json_schema_describes_types) {
    SCOPED_TEXT text = {0};
    size_t count = 0;
    schema_write_json(&example_schema, &text);
    json_t *schema = json_loads(text_string(&text), 0, NULL);
    check_described(schema, &count);
    ck_assert_uint_ge(count, 2);
    json_decref(schema);
}

CHECK_MAIN("schema_reference")
