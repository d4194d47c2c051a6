/* The JSON schema (draft-07) for editors. Each table of types is a definition, so that layers may contain layers. It
 * accepts what schema_bind accepts, as far as JSON schema can express it. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/schema/schema_internal.h"

struct writer {
    struct sections all;
};

static json_t *number_of(double value) {
    return value == floor(value) && fabs(value) < 1e15 ? json_integer((json_int_t)value) : json_real(value);
}

static void set_limits(json_t *object, const struct schema_row *row) {
    if (!row_has_limits(row)) return;
    if (isfinite(row->min))
        json_object_set_new(object, row->excludes_min ? "exclusiveMinimum" : "minimum", number_of(row->min));
    if (isfinite(row->max))
        json_object_set_new(object, row->excludes_max ? "exclusiveMaximum" : "maximum", number_of(row->max));
}

/* {"anyOf": [a, b]} */
static json_t *either(json_t *a, json_t *b) { return json_pack("{s:[o,o]}", "anyOf", a, b); }

/* "#/$defs/layer"; a second table of the same name gets a number. */
static void add_definition_name(const struct writer *w, const struct schema_variants *variants, struct text *out) {
    size_t earlier = 0;
    for (size_t i = 0; i < w->all.count && w->all.items[i].choice != variants; i++) {
        const struct section *s = &w->all.items[i];
        if (s->choice && !s->repeats && strcmp(s->choice->what, variants->what) == 0) earlier++;
    }
    for (const char *c = variants->what; *c; c++) text_add_bytes(out, *c == ' ' ? "_" : c, 1);
    if (earlier > 0) text_printf(out, "_%zu", earlier + 1);
}

static json_t *reference_to(const struct writer *w, const struct schema_variants *variants) {
    struct text pointer = {0};
    text_add(&pointer, "#/$defs/");
    add_definition_name(w, variants, &pointer);
    json_t *reference = json_pack("{s:s}", "$ref", text_string(&pointer));
    text_free(&pointer);
    return reference;
}

/* ---- defaults ---- */

static json_t *default_value(const struct schema_row *row, const struct node *node) {
    bool flag;
    int64_t integer;
    double real;
    const char *hint = NULL;
    if (node_is_null(node)) return json_null();
    if (node->kind == NODE_SEQUENCE && (row->type < SCHEMA_SECTION || node->count == 0)) {
        json_t *list = json_array();
        for (size_t i = 0; i < node->count; i++) json_array_append_new(list, default_value(row, node->items[i]));
        return list;
    }
    if (node->kind != NODE_SCALAR) return NULL;
    switch (row->type) {
    case SCHEMA_BOOL:
        return value_parse_bool(node->text, &flag, &hint) ? json_boolean(flag) : NULL;
    case SCHEMA_INT:
    case SCHEMA_INT_LIST:
        return value_parse_int(node->text, &integer, &hint) ? json_integer(integer) : NULL;
    case SCHEMA_REAL:
    case SCHEMA_REAL_LIST:
        return value_parse_real(node->text, &real, &hint) ? number_of(real) : NULL;
    default:
        return json_string(node->text);
    }
}

static void set_default(json_t *object, const struct schema_row *row) {
    if (!row->fallback) return;
    struct arena *arena = arena_create();
    const struct node *node = row_fallback(row, (struct place){"default", 0, 0}, arena);
    json_t *value = node ? default_value(row, node) : NULL;
    if (value) json_object_set_new(object, "default", value);
    arena_destroy(arena);
}

/* ---- values ---- */

static json_t *object_of(const struct writer *w, const struct schema *own, const struct schema *common,
                         const char *type);

static bool needs_keys(const struct schema *schema) {
    for (const struct schema_row *row = schema ? schema->rows : NULL; row && row->key; row++)
        if ((row->flags & SCHEMA_REQUIRED) || (row->type == SCHEMA_SECTION && needs_keys(row->section))) return true;
    return false;
}

static json_t *choice_of(const struct schema_row *row) {
    json_t *values = json_array();
    for (size_t i = 0; row->choices[i]; i++) {
        bool flag;
        const char *hint = NULL;
        json_array_append_new(values, json_string(row->choices[i]));
        if (value_parse_bool(row->choices[i], &flag, &hint)) json_array_append_new(values, json_boolean(flag));
    }
    return json_pack("{s:o}", "enum", values);
}

static json_t *scalar_of(const struct schema_row *row) {
    static const char *const types[] = {
        [SCHEMA_BOOL] = "boolean",     [SCHEMA_INT] = "integer",      [SCHEMA_REAL] = "number",
        [SCHEMA_INT_LIST] = "integer", [SCHEMA_REAL_LIST] = "number",
    };
    if (row->type == SCHEMA_CHOICE) return choice_of(row);
    if (row->type == SCHEMA_STRING || row->type == SCHEMA_STRING_LIST)
        return json_pack("{s:[s,s,s]}", "type", "string", "number", "boolean");
    json_t *scalar = json_pack("{s:s}", "type", types[row->type]);
    set_limits(scalar, row);
    return scalar;
}

static json_t *value_of(const struct writer *w, const struct schema_row *row);

static json_t *section_of(const struct writer *w, const struct schema *schema) {
    json_t *object = object_of(w, schema, NULL, NULL);
    const struct schema_row *shorthand = schema->shorthand ? schema_row(schema, schema->shorthand) : NULL;
    return shorthand ? either(object, value_of(w, shorthand)) : object;
}

/* A type by name or mapping; a mapping without `type:` has the type of the default. */
static json_t *variant_of(const struct writer *w, const struct schema_row *row) {
    int index;
    const struct schema_variant *type =
        row->fallback && !row->variants->is_keyed ? variants_find(row->variants, row->fallback, &index) : NULL;
    json_t *reference = reference_to(w, row->variants);
    return type ? either(reference, object_of(w, type->schema, row->variants->common, NULL)) : reference;
}

static json_t *value_of(const struct writer *w, const struct schema_row *row) {
    json_t *value;
    if (row->type == SCHEMA_SECTION) {
        value = section_of(w, row->section);
    } else if (row->type == SCHEMA_SECTION_LIST) {
        value = json_pack("{s:s,s:o}", "type", "array", "items", section_of(w, row->section));
    } else if (row->type == SCHEMA_SECTION_MAP) {
        value = json_pack("{s:s,s:o}", "type", "object", "additionalProperties", section_of(w, row->section));
    } else if (row->type == SCHEMA_VARIANT) {
        value = variant_of(w, row);
    } else if (row->type == SCHEMA_VARIANT_LIST) {
        value = json_pack("{s:s,s:o}", "type", "array", "items", reference_to(w, row->variants));
    } else {
        value = scalar_of(row);
        if (row->type >= SCHEMA_INT_LIST)
            value = either(value, json_pack("{s:s,s:O}", "type", "array", "items", value));
        if (row->type != SCHEMA_STRING_LIST && row->type >= SCHEMA_INT_LIST && row->choices)
            value = either(value, choice_of(row));
        if (row->others_offset)
            value = either(value, json_pack("{s:s,s:i,s:O}", "type", "array", "minItems", 1, "items", value));
        if (row->groups_offset)
            value = either(value, json_pack("{s:s,s:O}", "type", "object", "additionalProperties", value));
    }
    return row_is_nullable(row) ? either(value, json_pack("{s:s}", "type", "null")) : value;
}

/* A value with its description and default. JSON schema ignores keywords beside a $ref, so a reference is wrapped. */
static json_t *property_of(const struct writer *w, const struct schema_row *row) {
    json_t *value = value_of(w, row);
    if (json_object_get(value, "$ref")) value = json_pack("{s:[o]}", "allOf", value);
    if (row->doc) json_object_set_new(value, "description", json_string(row->doc));
    set_default(value, row);
    return value;
}

static void set_properties(const struct writer *w, const struct schema *schema, json_t *properties, json_t *required) {
    for (const struct schema_row *row = schema ? schema->rows : NULL; row && row->key; row++) {
        json_object_set_new(properties, row->key, property_of(w, row));
        bool is_needed = (row->flags & SCHEMA_REQUIRED) || (row->type == SCHEMA_SECTION && needs_keys(row->section));
        if (is_needed) json_array_append_new(required, json_string(row->key));
    }
}

/* A mapping with the keys of [own] and [common] and, unless [type] is NULL, the required key `type: <type>`. */
static json_t *object_of(const struct writer *w, const struct schema *own, const struct schema *common,
                         const char *type) {
    json_t *properties = json_object(), *required = json_array();
    if (type) {
        json_object_set_new(properties, "type", json_pack("{s:s}", "const", type));
        json_array_append_new(required, json_string("type"));
    }
    set_properties(w, common, properties, required);
    set_properties(w, own, properties, required);
    return json_pack("{s:s,s:o,s:o,s:b}", "type", "object", "properties", properties, "required", required,
                     "additionalProperties", 0);
}

/* ---- types ---- */

/* {linear: {out: 3}}; the options may be null or a shorthand's value. */
static json_t *keyed_of(const struct writer *w, const struct schema_variant *type, const struct schema *common) {
    json_t *options = object_of(w, type->schema, common, NULL);
    const char *shorthand = type->schema ? type->schema->shorthand : NULL;
    if (shorthand) options = either(options, value_of(w, schema_row(type->schema, shorthand)));
    if (!needs_keys(type->schema) && !needs_keys(common)) options = either(options, json_pack("{s:s}", "type", "null"));
    if (type->doc) json_object_set_new(options, "description", json_string(type->doc));
    return json_pack("{s:s,s:{s:o},s:[s],s:b}", "type", "object", "properties", type->name, options, "required",
                     type->name, "additionalProperties", 0);
}

static json_t *definition_of(const struct writer *w, const struct schema_variants *variants) {
    json_t *alternatives = json_array();
    const struct schema_variant *type;
    for (size_t i = 0; (type = variants->at(i)) != NULL; i++) {
        if (!needs_keys(type->schema) && !needs_keys(variants->common)) {
            json_t *name = json_pack("{s:s}", "const", type->name);
            if (type->doc) json_object_set_new(name, "description", json_string(type->doc));
            json_array_append_new(alternatives, name);
        }
        json_array_append_new(alternatives, variants->is_keyed
                                                ? keyed_of(w, type, variants->common)
                                                : object_of(w, type->schema, variants->common, type->name));
    }
    return json_pack("{s:o}", "anyOf", alternatives);
}

void schema_write_json(const struct schema *schema, struct text *out) {
    struct arena *arena = arena_create();
    struct writer w = {.all = sections_list(schema, arena)};
    json_t *root = object_of(&w, schema, NULL, NULL), *definitions = json_object();
    for (size_t i = 0; i < w.all.count; i++) {
        const struct section *s = &w.all.items[i];
        if (!s->choice || s->repeats) continue;
        struct text name = {0};
        add_definition_name(&w, s->choice, &name);
        json_object_set_new(definitions, text_string(&name), definition_of(&w, s->choice));
        text_free(&name);
    }
    json_t *page = json_pack("{s:s,s:s}", "$schema", "http://json-schema.org/draft-07/schema#", "title", schema->name);
    json_object_update(page, root);
    json_object_set_new(page, "$defs", definitions);
    char *text = json_dumps(page, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    text_printf(out, "%s\n", text ? text : "{}");
    free(text);
    json_decref(page);
    json_decref(root);
    arena_destroy(arena);
}
