/* What a schema writes: a tree and a config as YAML, and the differences of two configs, whose values are compared in
 * their YAML form. A config has one key per line, short flat mappings in one line `{...}`. Keys with present_offset
 * that were not given are omitted, so that the output binds to the same struct. */
#include <stdio.h>
#include <string.h>

#include "base/schema/schema_internal.h"
#include "base/scoped.h"

/* ---- a tree as YAML ---- */

/* Plain scalars stay plain, so that a number stays a number; all others are strings. */

#define PLAIN "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.+-/~"

static void write_scalar(const struct node *node, struct text *out) {
    size_t length = strlen(node->text);
    if (!node->is_quoted && length > 0 && strspn(node->text, PLAIN) == length)
        text_add(out, node->text);
    else if (node_is_null(node))
        text_add(out, "null");
    else
        value_add_string(out, node->text);
}

void node_write(const struct node *node, struct text *out) {
    bool is_mapping = node->kind == NODE_MAPPING;
    if (node->kind == NODE_SCALAR) {
        write_scalar(node, out);
        return;
    }
    text_add(out, is_mapping ? "{" : "[");
    for (size_t i = 0; i < node->count; i++) {
        if (i > 0) text_add(out, ", ");
        if (is_mapping) value_add_string(out, node->keys[i]);
        if (is_mapping) text_add(out, ": ");
        node_write(node->items[i], out);
    }
    text_add(out, is_mapping ? "}" : "]");
}

/* ---- a config as YAML ---- */

#define LINE_MAX 100 /* columns */

/* ---- a config as YAML: values ---- */

static size_t count_of(const struct schema_row *row, const void *field) {
    switch (row->type) {
    case SCHEMA_INT_LIST:
        return ((const struct int_list *)field)->count;
    case SCHEMA_REAL_LIST:
        return ((const struct real_list *)field)->count;
    default:
        return ((const struct string_list *)field)->count;
    }
}

/* Adds "a, b" of a list. */
static void add_items(const struct schema_row *row, const void *field, bool is_python, struct text *out) {
    for (size_t i = 0; i < count_of(row, field); i++) {
        text_add(out, i ? ", " : "");
        if (row->type == SCHEMA_INT_LIST)
            text_add_int(out, ((const struct int_list *)field)->items[i]);
        else if (row->type == SCHEMA_REAL_LIST)
            text_add_double(out, ((const struct real_list *)field)->items[i]);
        else if (is_python)
            text_add_json(out, ((const struct string_list *)field)->items[i]);
        else
            value_add_string(out, ((const struct string_list *)field)->items[i]);
    }
}

/* "[a, b]", or "{one: [a], other: [b]}" */
static void add_list(struct text *out, const struct schema_row *row, const void *field) {
    const struct string_groups *groups = row_groups(row, field);
    const struct string_list *list = field;
    size_t at = 0, count = groups ? groups->count : 0;
    text_add(out, count ? "{" : "[");
    if (count == 0) add_items(row, field, false, out);
    for (size_t i = 0; i < count; i++) {
        const struct string_list group = {list->items + at, groups->items[i].count};
        text_add(out, i ? ", " : "");
        value_add_string(out, groups->items[i].name);
        text_add(out, ": [");
        add_items(row, &group, false, out);
        text_add(out, "]");
        at += group.count;
    }
    text_add(out, count ? "}" : "]");
}

/* "a", or "[a, b]" */
static void add_string(struct text *out, const struct schema_row *row, const char *const *field) {
    const struct string_list *others = row_others(row, field);
    size_t count = others ? others->count : 0;
    text_add(out, count ? "[" : "");
    value_add_string(out, *field);
    for (size_t i = 0; i < count; i++) {
        text_add(out, ", ");
        value_add_string(out, others->items[i]);
    }
    text_add(out, count ? "]" : "");
}

static bool is_null(const struct schema_row *row, const void *field) {
    switch (row->type) {
    case SCHEMA_INT:
        return *(const int64_t *)field == SCHEMA_NO_INT;
    case SCHEMA_REAL:
        return isnan(*(const double *)field);
    case SCHEMA_STRING:
        return !*(const char *const *)field;
    case SCHEMA_CHOICE:
        return *(const int *)field < 0;
    case SCHEMA_INT_LIST:
        return !((const struct int_list *)field)->items;
    case SCHEMA_REAL_LIST:
        return !((const struct real_list *)field)->items;
    case SCHEMA_STRING_LIST:
        return !((const struct string_list *)field)->items;
    default:
        return false;
    }
}

/* Of a list of numbers, the word in its place; 0: none. */
static int word_of(const struct schema_row *row, const void *field) {
    if (row->type == SCHEMA_INT_LIST) return ((const struct int_list *)field)->word;
    return row->type == SCHEMA_REAL_LIST ? ((const struct real_list *)field)->word : 0;
}

/* Adds a field as YAML. Not for sections and variants and their lists. */
static void value_add_yaml(const struct schema_row *row, const void *field, struct text *out) {
    int word = word_of(row, field);
    if (word)
        value_add_string(out, row->choices[word - 1]);
    else if (is_null(row, field))
        text_add(out, row->type >= SCHEMA_INT_LIST && !row_is_nullable(row) ? "[]" : "null");
    else if (row->type == SCHEMA_BOOL)
        text_add(out, *(const bool *)field ? "true" : "false");
    else if (row->type == SCHEMA_INT)
        text_add_int(out, *(const int64_t *)field);
    else if (row->type == SCHEMA_REAL)
        text_add_double(out, *(const double *)field);
    else if (row->type == SCHEMA_STRING)
        add_string(out, row, field);
    else if (row->type == SCHEMA_CHOICE)
        value_add_string(out, row->choices[*(const int *)field]);
    else if (row->type == SCHEMA_INT_LIST || row->type == SCHEMA_REAL_LIST || row->type == SCHEMA_STRING_LIST)
        add_list(out, row, field);
}

/* ---- a config as YAML: keys ---- */

/* The keys of one mapping: those of a section, or of a type with the common ones. */
struct group {
    const char *type; /* written first, as `type: adam`; NULL: none */
    const struct schema *own, *common;
    const void *own_config, *common_config;
};

static const struct schema_row *written_row(const struct schema *schema, const void *config, size_t *i) {
    for (; schema && schema->rows[*i].key; ++*i)
        if (!row_is_absent(&schema->rows[*i], config)) return &schema->rows[(*i)++];
    return NULL;
}

static bool has_keys(const struct schema *schema, const void *config) {
    size_t i = 0;
    return written_row(schema, config, &i) != NULL;
}

static struct group group_of(const struct schema_row *row, const struct variant *variant) {
    const struct schema_variant *type = row->variants->at((size_t)variant->index);
    return (struct group){
        .type = row->variants->is_keyed ? NULL : type->name,
        .own = type->schema,
        .common = row->variants->common,
        .own_config = variant->config,
        .common_config = variant->common,
    };
}

static bool is_bare(const struct group *group) {
    return !has_keys(group->own, group->own_config) && !has_keys(group->common, group->common_config);
}

/* Adds "key: value, ..." of one struct when all its values fit a line. */
static bool add_flow_rows(const struct schema *schema, const void *config, struct text *out) {
    const struct schema_row *row;
    for (size_t i = 0; (row = written_row(schema, config, &i)) != NULL;) {
        bool is_map = row->type == SCHEMA_SECTION_MAP, is_list = is_map || row->type == SCHEMA_SECTION_LIST;
        bool is_empty_list = is_list && ((const struct section_list *)row_field(row, config))->count == 0;
        if (row->type == SCHEMA_SECTION || row->type == SCHEMA_VARIANT_LIST) return false;
        if (is_list && !is_empty_list) return false;
        if (out->length > 0) text_add(out, ", ");
        text_add(out, row->key);
        text_add(out, ": ");
        if (is_empty_list) {
            text_add(out, is_map ? "{}" : "[]");
            continue;
        }
        if (row->type != SCHEMA_VARIANT) {
            value_add_yaml(row, row_field(row, config), out);
            continue;
        }
        const struct variant *variant = row_field(row, config);
        struct group inner = variant->index < 0 ? (struct group){0} : group_of(row, variant);
        if (!is_bare(&inner)) return false;
        text_add(out, variant->index < 0 ? "null" : variant->name);
    }
    return true;
}

/* Adds " {key: value}" and a newline when the group is flat and at most [max_columns] wide. */
static bool add_flow(const struct group *group, size_t max_columns, struct text *out) {
    SCOPED_TEXT line = {0};
    if (group->type) text_printf(&line, "type: %s", group->type);
    bool fits = add_flow_rows(group->own, group->own_config, &line) &&
                add_flow_rows(group->common, group->common_config, &line) && line.length + 3 <= max_columns;
    if (fits) {
        text_add(out, " {");
        text_add_bytes(out, text_string(&line), line.length);
        text_add(out, "}\n");
    }
    return fits;
}

static void add_rows(const struct schema *schema, const void *config, size_t indent, struct text *out);

static void add_indent(struct text *out, size_t indent) {
    for (size_t i = 0; i < indent; i++) text_add_bytes(out, " ", 1);
}

static void add_block(const struct group *group, size_t indent, struct text *out) {
    text_add(out, "\n");
    if (group->type) {
        add_indent(out, indent);
        text_printf(out, "type: %s\n", group->type);
    }
    add_rows(group->own, group->own_config, indent, out);
    add_rows(group->common, group->common_config, indent, out);
}

static void add_variant(const struct schema_row *row, const struct variant *variant, size_t indent, size_t column,
                        struct text *out) {
    if (variant->index < 0) {
        text_add(out, " null\n");
        return;
    }
    struct group group = group_of(row, variant);
    if (is_bare(&group)) {
        text_printf(out, " %s\n", variant->name);
        return;
    }
    if (!row->variants->is_keyed) {
        if (!add_flow(&group, LINE_MAX - column, out)) add_block(&group, indent + 2, out);
        return;
    }
    text_add(out, "\n");
    add_indent(out, indent + 2);
    text_printf(out, "%s:", variant->name);
    if (!add_flow(&group, LINE_MAX - indent - strlen(variant->name), out)) add_block(&group, indent + 4, out);
}

static void add_variant_list(const struct schema_row *row, const struct variant_list *list, size_t indent,
                             struct text *out) {
    if (list->count == 0) {
        text_add(out, !list->items && row_is_nullable(row) ? " null\n" : " []\n");
        return;
    }
    text_add(out, "\n");
    for (size_t i = 0; i < list->count; i++) {
        const struct variant *variant = &list->items[i];
        struct group group = group_of(row, variant);
        add_indent(out, indent + 2);
        if (is_bare(&group)) {
            text_printf(out, "- %s\n", variant->name);
        } else if (row->variants->is_keyed) {
            text_printf(out, "- %s:", variant->name);
            if (!add_flow(&group, LINE_MAX - indent - strlen(variant->name), out)) add_block(&group, indent + 6, out);
        } else {
            text_add(out, "-");
            if (add_flow(&group, LINE_MAX - indent, out)) continue;
            text_printf(out, " type: %s\n", group.type);
            group.type = NULL;
            add_rows(group.own, group.own_config, indent + 4, out);
            add_rows(group.common, group.common_config, indent + 4, out);
        }
    }
}

static void add_section(const struct schema_row *row, const void *config, size_t indent, struct text *out) {
    struct group group = {.own = row->section, .own_config = config};
    if (is_bare(&group))
        text_add(out, " {}\n");
    else if (indent == 0 || !add_flow(&group, LINE_MAX - indent - strlen(row->key), out))
        add_block(&group, indent + 2, out);
}

static void add_section_list(const struct schema_row *row, const struct section_list *list, size_t indent,
                             struct text *out) {
    text_add(out, list->count == 0 ? " []\n" : "\n");
    for (size_t i = 0; i < list->count; i++) {
        struct group group = {.own = row->section, .own_config = (const char *)list->items + i * row->section->size};
        add_indent(out, indent + 2);
        text_add(out, "-");
        if (is_bare(&group))
            text_add(out, " {}\n");
        else if (!add_flow(&group, LINE_MAX - indent, out))
            add_block(&group, indent + 4, out);
    }
}

static void add_section_map(const struct schema_row *row, const struct section_list *list, size_t indent,
                            struct text *out) {
    text_add(out, list->count == 0 ? " {}\n" : "\n");
    for (size_t i = 0; i < list->count; i++) {
        const char *item = (const char *)list->items + i * row->section->size, *name = *(const char *const *)item;
        struct group group = {.own = row->section, .own_config = item};
        SCOPED_TEXT key = {0};
        value_add_string(&key, name);
        add_indent(out, indent + 2);
        text_printf(out, "%s:", text_string(&key));
        if (is_bare(&group))
            text_add(out, " {}\n");
        else if (!add_flow(&group, LINE_MAX - indent - key.length, out))
            add_block(&group, indent + 4, out);
    }
}

static void add_rows(const struct schema *schema, const void *config, size_t indent, struct text *out) {
    const struct schema_row *row;
    for (size_t i = 0; (row = written_row(schema, config, &i)) != NULL;) {
        const void *field = row_field(row, config);
        add_indent(out, indent);
        text_add(out, row->key);
        text_add(out, ":");
        if (row->type == SCHEMA_SECTION) {
            add_section(row, field, indent, out);
        } else if (row->type == SCHEMA_SECTION_LIST) {
            add_section_list(row, field, indent, out);
        } else if (row->type == SCHEMA_SECTION_MAP) {
            add_section_map(row, field, indent, out);
        } else if (row->type == SCHEMA_VARIANT) {
            add_variant(row, field, indent, indent + strlen(row->key), out);
        } else if (row->type == SCHEMA_VARIANT_LIST) {
            add_variant_list(row, field, indent, out);
        } else {
            text_add(out, " ");
            value_add_yaml(row, field, out);
            text_add(out, "\n");
        }
    }
}

void schema_write_yaml(const struct schema *schema, const void *config, struct text *out) {
    add_rows(schema, config, 0, out);
}

/* ---- templates of Python ---- */

static void add_python(const struct schema_row *row, const void *field, bool is_list, struct text *out) {
    int word = word_of(row, field);
    if (word) {
        text_add_json(out, row->choices[word - 1]);
    } else if (is_null(row, field)) {
        text_add(out, "None");
    } else if (row->type == SCHEMA_BOOL) {
        text_add(out, *(const bool *)field ? "True" : "False");
    } else if (row->type == SCHEMA_STRING) {
        text_add_json(out, *(const char *const *)field);
    } else if (row->type == SCHEMA_CHOICE) {
        text_add_json(out, row->choices[*(const int *)field]);
    } else if (row->type == SCHEMA_INT_LIST || row->type == SCHEMA_REAL_LIST || row->type == SCHEMA_STRING_LIST) {
        bool is_one = count_of(row, field) == 1 && !is_list;
        text_add(out, is_one ? "" : is_list ? "[" : "(");
        add_items(row, field, true, out);
        text_add(out, is_one ? "" : is_list ? "]" : ")");
    } else {
        value_add_yaml(row, field, out);
    }
}

static bool is_default(const struct schema_row *row, const void *field) {
    SCOPED_TEXT value = {0};
    double number;
    const char *hint = NULL;
    if (row->type == SCHEMA_REAL && row->fallback && value_parse_real(row->fallback, &number, &hint))
        return *(const double *)field >= number && *(const double *)field <= number;
    value_add_yaml(row, field, &value);
    return row->fallback && strcmp(text_string(&value), row->fallback) == 0;
}

/* One place, [name] with its mark. */
static status fill_place(const struct schema *schema, const void *config, char *name, struct text *out) {
    char mark = *name == '*' || *name == ',' || *name == '!' ? *name++ : 0, *other = strpbrk(name, "|:");
    bool is_null_text = other && *other == '|';
    if (other) *other++ = 0;
    const struct schema_row *row = schema_row(schema, name);
    if (!row) return status_new(STATUS_BUG, "a template names '%s', which is no key", name);
    const void *field = row_field(row, config);
    if (mark == '!' && !is_default(row, field))
        return status_usage("%s.%s cannot be expressed in a PyTorch script", schema->name, name);
    if (mark == '!' || (mark == ',' && is_default(row, field))) return OK;
    if (mark == ',')
        text_printf(out, "%s%s=", text_string(out)[out->length - 1] == '(' ? "" : ", ", other ? other : name);
    if (is_null_text && is_null(row, field))
        text_add(out, other);
    else
        add_python(row, field, mark == '*', out);
    return OK;
}

status schema_fill(const struct schema *schema, const void *config, const char *code, schema_place *place,
                   void *context, struct text *out) {
    for (const char *end; *code; code = end + 1) {
        char name[64];
        size_t length = strcspn(code, "{");
        text_add_bytes(out, code, length);
        code += length;
        if (!*code) return OK;
        end = strchr(code, '}');
        snprintf(name, sizeof name, "%.*s", (int)(end - code - 1), code + 1);
        if (!place || !place(context, name, out)) TRY(fill_place(schema, config, name, out));
    }
    return OK;
}

/* ---- differences of two configs ---- */

/* Compares two configs of one schema. Values are compared in their YAML form, so every reported difference is visible.
 * A default is the same value whether it was written or not, also that of each key in a section. */

struct differ {
    struct text *out;
    struct text path;
    size_t count;
    unsigned skipped; /* flags of rows that are not compared */
};

static void add_difference(struct differ *d, const char *before, const char *after) {
    text_printf(d->out, "  %s: %s -> %s\n", text_string(&d->path), before, after);
    d->count++;
}

/* Appends a step to the path; returns the previous length, for leave(). */
static size_t enter(struct differ *d, const char *step) {
    size_t length = d->path.length;
    text_printf(&d->path, "%s%s", length ? "." : "", step);
    return length;
}

static void leave(struct differ *d, size_t length) {
    d->path.length = length;
    d->path.data[length] = 0;
}

static void diff_rows(struct differ *d, const struct schema *schema, const void *before, const void *after);

static const char *name_of(const struct variant *variant) { return variant->index < 0 ? "null" : variant->name; }

static void diff_variants(struct differ *d, const struct schema_row *row, const struct variant *before,
                          const struct variant *after) {
    if (before->index != after->index) {
        add_difference(d, name_of(before), name_of(after));
        return;
    }
    if (before->index < 0) return;
    size_t length = d->path.length;
    if (row->variants->is_keyed) enter(d, before->name);
    diff_rows(d, row->variants->at((size_t)before->index)->schema, before->config, after->config);
    diff_rows(d, row->variants->common, before->common, after->common);
    leave(d, length);
}

/* Items of lists of variants or sections, by their place. */
static void diff_lists(struct differ *d, const struct schema_row *row, const char *before, size_t old_count,
                       const char *after, size_t new_count) {
    bool are_variants = row->type == SCHEMA_VARIANT_LIST;
    size_t size = are_variants ? sizeof(struct variant) : row->section->size;
    for (size_t i = 0; i < old_count || i < new_count; i++) {
        char index[24];
        snprintf(index, sizeof index, "%zu", i);
        size_t length = enter(d, index);
        const void *x = i < old_count ? before + i * size : NULL;
        const void *y = i < new_count ? after + i * size : NULL;
        if (!x || !y)
            add_difference(d,
                           !x             ? "(none)"
                           : are_variants ? name_of(x)
                                          : "(given)",
                           !y             ? "(none)"
                           : are_variants ? name_of(y)
                                          : "(given)");
        else if (are_variants)
            diff_variants(d, row, x, y);
        else
            diff_rows(d, row->section, x, y);
        leave(d, length);
    }
}

static const void *find_item(const struct schema_row *row, const struct section_list *list, const char *name) {
    for (size_t i = 0; i < list->count; i++) {
        const char *item = (const char *)list->items + i * row->section->size;
        if (strcmp(*(const char *const *)item, name) == 0) return item;
    }
    return NULL;
}

/* By name; the order has no meaning. */
static void diff_section_maps(struct differ *d, const struct schema_row *row, const struct section_list *before,
                              const struct section_list *after) {
    const struct section_list *lists[] = {before, after};
    for (size_t l = 0; l < 2; l++)
        for (size_t i = 0; i < lists[l]->count; i++) {
            const void *item = (const char *)lists[l]->items + i * row->section->size;
            const char *name = *(const char *const *)item;
            const void *other = find_item(row, lists[1 - l], name);
            size_t length = enter(d, name);
            if (!other)
                add_difference(d, l ? "(none)" : "(given)", l ? "(given)" : "(none)");
            else if (l == 0)
                diff_rows(d, row->section, item, other);
            leave(d, length);
        }
}

static void diff_values(struct differ *d, const struct schema_row *row, const void *before, const void *after) {
    SCOPED_TEXT old = {0}, new = {0};
    value_add_yaml(row, before, &old);
    value_add_yaml(row, after, &new);
    if (strcmp(text_string(&old), text_string(&new)) != 0) add_difference(d, text_string(&old), text_string(&new));
}

static void diff_row(struct differ *d, const struct schema_row *row, const void *before, const void *after) {
    const void *old = row_field(row, before), *new = row_field(row, after);
    if (row->type == SCHEMA_SECTION) {
        diff_rows(d, row->section, old, new);
    } else if (row->type == SCHEMA_SECTION_LIST) {
        const struct section_list *a = old, *b = new;
        diff_lists(d, row, a->items, a->count, b->items, b->count);
    } else if (row->type == SCHEMA_VARIANT_LIST) {
        const struct variant_list *a = old, *b = new;
        diff_lists(d, row, (const char *)a->items, a->count, (const char *)b->items, b->count);
    } else if (row->type == SCHEMA_SECTION_MAP) {
        diff_section_maps(d, row, old, new);
    } else if (row->type == SCHEMA_VARIANT) {
        diff_variants(d, row, old, new);
    } else {
        diff_values(d, row, old, new);
    }
}

static void diff_rows(struct differ *d, const struct schema *schema, const void *before, const void *after) {
    for (const struct schema_row *row = schema ? schema->rows : NULL; row && row->key; row++) {
        if (row->flags & d->skipped) continue;
        size_t length = enter(d, row->key);
        diff_row(d, row, before, after);
        leave(d, length);
    }
}

size_t schema_diff_keys(const struct schema *schema, const char *const *names, unsigned skipped, const void *before,
                        const void *after, struct text *out) {
    struct differ d = {.out = out, .skipped = skipped};
    if (!names) diff_rows(&d, schema, before, after);
    for (size_t i = 0; names && names[i]; i++) {
        size_t length = enter(&d, names[i]);
        diff_row(&d, schema_row(schema, names[i]), before, after);
        leave(&d, length);
    }
    text_free(&d.path);
    return d.count;
}

size_t schema_diff(const struct schema *schema, const void *before, const void *after, struct text *out) {
    return schema_diff_keys(schema, NULL, SCHEMA_EXTENDS, before, after, out);
}
