/* Compares two configs of one schema. Values are compared in their YAML form, so every reported difference is visible.
 * A default is the same value whether it was written or not, also that of each key in a section. */
#include <stdio.h>
#include <string.h>

#include "base/schema/schema_internal.h"

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

static void diff_variant_lists(struct differ *d, const struct schema_row *row, const struct variant_list *before,
                               const struct variant_list *after) {
    size_t count = before->count > after->count ? before->count : after->count;
    for (size_t i = 0; i < count; i++) {
        char index[24];
        snprintf(index, sizeof index, "%zu", i);
        size_t length = enter(d, index);
        if (i >= before->count)
            add_difference(d, "(none)", name_of(&after->items[i]));
        else if (i >= after->count)
            add_difference(d, name_of(&before->items[i]), "(none)");
        else
            diff_variants(d, row, &before->items[i], &after->items[i]);
        leave(d, length);
    }
}

static void diff_section_lists(struct differ *d, const struct schema_row *row, const struct section_list *before,
                               const struct section_list *after) {
    size_t count = before->count > after->count ? before->count : after->count, size = row->section->size;
    for (size_t i = 0; i < count; i++) {
        char index[24];
        snprintf(index, sizeof index, "%zu", i);
        size_t length = enter(d, index);
        if (i >= before->count)
            add_difference(d, "(none)", "(given)");
        else if (i >= after->count)
            add_difference(d, "(given)", "(none)");
        else
            diff_rows(d, row->section, (const char *)before->items + i * size, (const char *)after->items + i * size);
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
    struct text old = {0}, new = {0};
    value_add_yaml(row, before, &old);
    value_add_yaml(row, after, &new);
    if (strcmp(text_string(&old), text_string(&new)) != 0) add_difference(d, text_string(&old), text_string(&new));
    text_free(&old);
    text_free(&new);
}

static void diff_row(struct differ *d, const struct schema_row *row, const void *before, const void *after) {
    const void *old = row_field(row, before), *new = row_field(row, after);
    if (row->type == SCHEMA_SECTION) {
        diff_rows(d, row->section, old, new);
    } else if (row->type == SCHEMA_SECTION_LIST) {
        diff_section_lists(d, row, old, new);
    } else if (row->type == SCHEMA_SECTION_MAP) {
        diff_section_maps(d, row, old, new);
    } else if (row->type == SCHEMA_VARIANT) {
        diff_variants(d, row, old, new);
    } else if (row->type == SCHEMA_VARIANT_LIST) {
        diff_variant_lists(d, row, old, new);
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

static const struct schema_row *find_row(const struct schema *schema, const char *key) {
    const struct schema_row *row = schema->rows;
    while (row->key && strcmp(row->key, key) != 0) row++;
    return row;
}

size_t schema_diff_keys(const struct schema *schema, const char *const *names, unsigned skipped, const void *before,
                        const void *after, struct text *out) {
    struct differ d = {.out = out, .skipped = skipped};
    if (!names) diff_rows(&d, schema, before, after);
    for (size_t i = 0; names && names[i]; i++) {
        size_t length = enter(&d, names[i]);
        diff_row(&d, find_row(schema, names[i]), before, after);
        leave(&d, length);
    }
    text_free(&d.path);
    return d.count;
}

size_t schema_diff(const struct schema *schema, const void *before, const void *after, struct text *out) {
    return schema_diff_keys(schema, NULL, SCHEMA_EXTENDS, before, after, out);
}
