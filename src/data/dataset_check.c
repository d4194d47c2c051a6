/* dataset_check: which keys of `dataset:` fit together, and the format. */
#include <stdio.h>

#include "data/dataset_sections.h"
#include "data/internal.h"
#include "data/sampling/split.h"
#include "data/tables/row_filter.h"
#include "data/text_columns.h"

struct place dataset_place(const struct node *where, const char *key) {
    const struct node *value = node_get(where, key);
    return value ? value->place : where ? where->place : (struct place){0};
}

static void check_format(const struct dataset_config *dataset, const char *path, struct place place, const char *key,
                         struct problems *problems) {
    if (!path || dataset_format_of(dataset, path)) return;
    struct text names = {0};
    dataset_format_names(&names);
    problems_add(problems, place, key,
                 "'%s': unknown file extension%s; set dataset.format to one of: %s; a folder of images needs "
                 "dataset.image: {size: [height, width]}",
                 path, dataset_format_advice(path), text_string(&names));
    text_free(&names);
}

/* The format of all files of a list, that of the first. */
static void check_others(const struct dataset_config *dataset, const char *path, const struct string_list *others,
                         struct place place, const char *key, struct problems *problems) {
    const struct dataset_format *format = dataset_format_of(dataset, path);
    for (size_t i = 0; format && i < others->count; i++) {
        const char *file = others->items[i];
        const struct dataset_format *other = dataset_format_of(dataset, file);
        check_format(dataset, file, place, key, problems);
        if (other && other != format)
            problems_add(problems, place, key, "'%s' has format %s, but '%s' has format %s; all must have the same",
                         path, format->name, file, other->name);
    }
}

static void check_validation(const struct dataset_config *dataset, bool is_synthetic, const struct node *where,
                             const char *path, struct problems *problems) {
    const char *file = dataset->validation.path;
    if (!file) return;
    char key[256];
    snprintf(key, sizeof key, "%s.validation", path);
    struct place place = dataset_place(where, "validation");
    if (is_synthetic) {
        problems_add(problems, place, key, "format synthetic has no validation file; use split");
        return;
    }
    check_format(dataset, file, place, key, problems);
    check_others(dataset, file, &dataset->validation.others, place, key, problems);
    const struct dataset_format *format = dataset_format_of(dataset, dataset->path);
    const struct dataset_format *other = dataset_format_of(dataset, file);
    if (format && other && format != other)
        problems_add(problems, place, key, "'%s' has format %s, but '%s' has format %s; both must have the same",
                     dataset->path, format->name, file, other->name);
    if (split_is_given(&dataset->split))
        problems_add(problems, place, key, "split and validation exclude each other; give one");
}

static void check_query(const struct dataset_config *dataset, const struct dataset_format *format,
                        const struct node *where, const char *path, struct problems *problems) {
    bool is_given = dataset->query || dataset->table || dataset->validation.query;
    if (dataset->query && dataset->table)
        problems_add(problems, dataset_place(where, "query"), path, "query and table exclude each other; give one");
    if (is_given && format && !format->has_queries)
        problems_add(problems, dataset_place(where, dataset->query ? "query" : "table"), path,
                     "query and table need a database (format sqlite), not %s", format->name);
}

static void check_group(const struct dataset_config *dataset, const struct dataset_format *format,
                        const struct node *where, const char *path, struct problems *problems) {
    if (!dataset->split.group || !format || format->read_groups) return;
    problems_add(problems, dataset_place(node_get(where, "split"), "group"), path,
                 "split.group: format %s has no names for groups; hdf5, csv, sqlite and npz have", format->name);
}

static void check_tokenizer(const struct dataset_config *dataset, const struct dataset_format *format,
                            const struct node *where, const char *path, struct problems *problems) {
    if (!dataset->tokens.tokenizer || !format) return;
    struct place place = dataset_place(node_get(where, "tokens"), "tokenizer");
    if (format != &dataset_tokens && format != &dataset_tokenized)
        problems_add(problems, place, path, "tokens.tokenizer needs a text or tokens, not format %s", format->name);
    else if (format == &dataset_tokenized && text_config_is_given(&dataset->text))
        problems_add(problems, dataset_place(where, "text"), path,
                     "text describes rows of characters; with tokens.tokenizer give block_size and stride in tokens");
}

/* Keys that only some formats use, and how it is known that one was given: the length of its list, a flag of the
 * schema, or a section that differs from its defaults. */
static const struct {
    const char *key;
    enum format_key bit;
    size_t count_offset, present_offset, offset; /* offset: of [section]; 0: not this way */
    const struct schema *section;
} format_keys[] = {
    {"inputs", KEY_INPUTS, .count_offset = FIELD(struct dataset_config, inputs.count)},
    {"targets", KEY_TARGETS, .count_offset = FIELD(struct dataset_config, targets.count)},
    {"columns", KEY_COLUMNS, .present_offset = FIELD(struct dataset_config, has_rules)},
    {"missing", KEY_COLUMNS, .present_offset = FIELD(struct dataset_config, has_missing)},
    {"csv", KEY_CSV, .present_offset = FIELD(struct dataset_config, has_csv)},
    {"image", KEY_IMAGE, .offset = FIELD(struct dataset_config, image), .section = &image_schema},
    {"text", KEY_TEXT, .offset = FIELD(struct dataset_config, text), .section = &text_section},
    {"tokens", KEY_TOKENS, .offset = FIELD(struct dataset_config, tokens), .section = &tokens_section},
    {"synthetic", KEY_SYNTHETIC, .offset = FIELD(struct dataset_config, synthetic), .section = &synthetic_section},
};
#define FORMAT_KEYS (sizeof format_keys / sizeof *format_keys)

/* Whether [config], a section of the schema, was given as something else than its defaults. */
static bool differs_from_defaults(const struct schema *section, const void *config) {
    struct arena *arena = arena_create();
    struct problems problems = {0};
    struct text differences = {0};
    void *defaults = arena_alloc(arena, section->size);
    schema_bind(section, NULL, "", section, defaults, arena, &problems);
    bool differs = schema_diff(section, defaults, config, &differences) > 0;
    text_free(&differences);
    problems_free(&problems);
    arena_destroy(arena);
    return differs;
}

static bool is_given(const struct dataset_config *dataset, size_t index) {
    const char *base = (const char *)dataset;
    if (format_keys[index].section)
        return differs_from_defaults(format_keys[index].section, base + format_keys[index].offset);
    if (format_keys[index].count_offset) return *(const size_t *)(base + format_keys[index].count_offset) > 0;
    return *(const bool *)(base + format_keys[index].present_offset);
}

bool dataset_ignored_key(const struct dataset_config *dataset, size_t index, struct text *out) {
    const struct dataset_format *format = dataset_format_of(dataset, dataset->path);
    for (size_t i = 0; format && i < FORMAT_KEYS; i++) {
        if (format->keys & format_keys[i].bit || !is_given(dataset, i) || index-- > 0) continue;
        text_printf(out, "dataset.%s, which format %s does not use (for", format_keys[i].key, format->name);
        const char *before = " ";
        for (size_t k = 0; dataset_format_at(k); k++) {
            if (!(dataset_format_at(k)->keys & format_keys[i].bit)) continue;
            text_printf(out, "%s%s", before, dataset_format_at(k)->name);
            before = ", ";
        }
        text_add(out, ")");
        return true;
    }
    return false;
}

static void check_dropped(const struct dataset_config *dataset, const struct dataset_format *format,
                          const struct node *where, const char *path, struct problems *problems) {
    struct place place = dataset_place(where, "drop_missing_targets");
    if (!dataset->drops_missing_targets) return;
    if (format && !(format->keys & KEY_COLUMNS))
        problems_add(problems, place, path, "drop_missing_targets is for formats csv and sqlite, not %s", format->name);
    if (dataset->window.steps > 0)
        problems_add(
            problems, place, path,
            "drop_missing_targets and window exclude each other, because the rows of a window are adjacent; fill "
            "the targets in the file");
}

static void check_filter(const struct dataset_config *dataset, const struct dataset_format *format,
                         const struct node *where, struct problems *problems) {
    struct place place = dataset_place(where, "filter");
    if (!dataset->filter) return;
    if (format && !(format->keys & KEY_COLUMNS))
        problems_add(problems, place, "dataset.filter", "it is for formats csv and sqlite, not %s", format->name);
    struct arena *arena = arena_create();
    struct row_filter *filter;
    status s = row_filter_parse(dataset->filter, arena, &filter);
    if (s) problems_add(problems, place, "dataset.filter", "%s", status_message(s));
    status_free(s);
    arena_destroy(arena);
}

void dataset_check_config(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct dataset_config *dataset = config;
    char key[256];
    snprintf(key, sizeof key, "%s.path", path);
    bool is_synthetic = dataset->format > 0 && !dataset_format_of(dataset, NULL)->extensions;
    if (is_synthetic && dataset->path)
        problems_add(problems, dataset_place(where, "path"), key,
                     "format synthetic generates its rows; remove the path");
    else if (!is_synthetic && !dataset->path)
        problems_add(problems, where ? where->place : (struct place){0}, key,
                     "is missing: give the file of the rows, or format: synthetic");
    check_format(dataset, dataset->path, dataset_place(where, "path"), key, problems);
    check_others(dataset, dataset->path, &dataset->others, dataset_place(where, "path"), key, problems);
    check_validation(dataset, is_synthetic, where, path, problems);
    const struct dataset_format *format = dataset_format_of(dataset, dataset->path);
    check_query(dataset, format, where, path, problems);
    check_tokenizer(dataset, format, where, path, problems);
    check_group(dataset, format, where, path, problems);
    check_dropped(dataset, format, where, path, problems);
    check_filter(dataset, format, where, problems);
    window_check(config, format, where, problems);
    text_columns_check(dataset, where, problems);
    if (format && format->is_folder && !dataset->image.size.count)
        problems_add(problems, dataset_place(where, "path"), key,
                     "a folder of images needs dataset.image.size: [height, width] of the rows");
    snprintf(key, sizeof key, "%s.layout", path);
    if (format && dataset->layout == LAYOUT_NHWC && !format->has_layout)
        problems_add(problems, dataset_place(where, "layout"), key, "nhwc needs format hdf5, npy or npz, not %s",
                     format->name);
}
