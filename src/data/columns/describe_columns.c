/* The lines of `check` about the columns of a table: how each becomes features. */
#include "data/columns/preparation.h"

static void add_missing(const struct prepared_column *column, size_t missing, struct text *out) {
    text_printf(out, "%zu, %s", missing, missing_rules[column->missing]);
    if (column->missing == MISSING_ERROR || column->type == COLUMN_DATE || column->type == COLUMN_TEXT) return;
    bool is_category = column->type == COLUMN_CATEGORY;
    if (is_category && column->fill[0] < 0) return;
    text_add(out, " ");
    if (is_category) {
        text_add_value(out, column->categories.items[(size_t)column->fill[0]], 20);
        return;
    }
    text_printf(out, "%.6g", column->fill[0]);
}

static void add_features(const struct prepared_column *column, struct text *out) {
    static const char *const scales[] = {
        [SCALE_NONE] = "", [SCALE_STANDARD] = ", standard", [SCALE_MINMAX] = ", minmax"};
    text_printf(out, "%zu", column->width);
    if (column->type == COLUMN_CATEGORY)
        text_printf(out, " %s of %zu categor%s", column_encodings[column->encoding], column->categories.count,
                    column->categories.count == 1 ? "y" : "ies");
    if (column->type == COLUMN_CATEGORY && column->encoding == ENCODING_EMBEDDING)
        text_printf(out, ", num_embeddings: %lld", (long long)column->tokens);
    if (column->type == COLUMN_TEXT)
        text_printf(out, " tokens, num_embeddings: %lld, padding_idx: %d", (long long)column->tokens, column->padding);
    for (size_t i = 0; column->type == COLUMN_DATE && i < column->part_count; i++)
        text_printf(out, " %s", date_parts[column->parts[i]]);
    text_add(out, scales[column->scale]);
    if (column->has_indicator) text_add(out, ", with an indicator");
}

static void add_line(const char *name, const char *type, const char *missing, const char *features, struct text *out) {
    size_t start = out->length;
    text_add_value(out, name, TEXT_MAX_NAME);
    text_pad(out, start, 18);
    text_printf(out, " %-9s ", type);
    start = out->length;
    text_add(out, missing);
    text_pad(out, start, 24);
    text_printf(out, " %s\n", features);
}

void columns_describe(const struct preparation *preparation, const struct raw_column *raw,
                      const struct section_list *rules, struct text *out) {
    const struct column_rule *items = rules->items;
    add_line("column", "type", "missing", "features", out);
    for (size_t i = 0; i < preparation->count; i++) {
        const struct prepared_column *column = &preparation->items[i];
        struct text missing = {0}, features = {0};
        add_missing(column, raw[i].missing, &missing);
        add_features(column, &features);
        add_line(column->name, column_types[column->type], text_string(&missing), text_string(&features), out);
        text_free(&missing);
        text_free(&features);
    }
    for (size_t i = 0; i < rules->count; i++)
        if (items[i].type == COLUMN_IGNORED) add_line(items[i].name, "ignored", "", "", out);
}
