/* Applying a preparation. */
#include "data/columns/preparation.h"

#include <math.h>
#include <string.h>

#include "data/columns/text_tokens.h"

static size_t width_of(const struct prepared_column *column) {
    size_t width = 1;
    if (column->type == COLUMN_DATE) width = column->part_count;
    if (column->type == COLUMN_TEXT) width = column->length;
    if (column->type == COLUMN_CATEGORY && column->encoding == ENCODING_ONE_HOT) width = column->categories.count;
    return width + column->has_indicator;
}

size_t preparation_fill_count(const struct prepared_column *column) {
    if (column->type == COLUMN_TEXT) return column->length;
    return column->type == COLUMN_DATE ? column->part_count : 1;
}

int64_t preparation_tokens(const struct preparation *preparation, size_t first, size_t count) {
    int64_t tokens = 0;
    for (size_t i = first; i < first + count && i < preparation->count; i++) {
        const struct prepared_column *column = &preparation->items[i];
        if (column->tokens == 0 || column->has_indicator) return 0;
        if (column->tokens > tokens) tokens = column->tokens;
    }
    return tokens;
}

void preparation_number_features(struct preparation *preparation) {
    preparation->features = 0;
    for (size_t i = 0; i < preparation->count; i++) {
        struct prepared_column *column = &preparation->items[i];
        column->first = preparation->features;
        column->width = width_of(column);
        preparation->features += column->width;
    }
}

static void *copy_array(struct arena *arena, const void *from, size_t count, size_t size) {
    void *to = arena_alloc(arena, count * size + 1);
    if (count && from) memcpy(to, from, count * size);
    return to;
}

struct preparation preparation_copy(const struct preparation *preparation, struct arena *arena) {
    struct preparation copy = *preparation;
    copy.items = copy_array(arena, preparation->items, preparation->count, sizeof *copy.items);
    for (size_t i = 0; i < copy.count; i++) {
        struct prepared_column *column = &copy.items[i];
        column->name = arena_copy(arena, column->name);
        if (column->date_format) column->date_format = arena_copy(arena, column->date_format);
        column->fill = copy_array(arena, column->fill, preparation_fill_count(column), sizeof *column->fill);
        column->parts = copy_array(arena, column->parts, column->part_count, sizeof *column->parts);
        const char **texts = copy_array(arena, column->categories.items, column->categories.count, sizeof *texts);
        for (size_t k = 0; k < column->categories.count; k++) texts[k] = arena_copy(arena, texts[k]);
        column->categories.items = texts;
    }
    return copy;
}

static int32_t *map_categories(const struct prepared_column *column, const struct string_list *texts,
                               struct arena *arena) {
    int32_t *map = arena_alloc(arena, (texts->count + 1) * sizeof *map);
    for (size_t i = 0; i < texts->count; i++) {
        size_t found = category_find(&column->categories, column->are_numbers, texts->items[i]);
        map[i] = found == SIZE_MAX ? -1 : (int32_t)found;
    }
    return map;
}

static status map_texts(const struct prepared_column *column, const struct string_list *texts,
                        const struct tokenizer *tokenizer, struct arena *arena, int32_t **map) {
    *map = arena_alloc(arena, (texts->count * column->length + 1) * sizeof **map);
    return status_prefix(text_tokens(tokenizer, texts, column->length, column->padding, *map), "column '%.60s'",
                         column->name);
}

status preparation_map(const struct preparation *preparation, const struct raw_column *columns,
                       const struct tokenizer *tokenizer, struct arena *arena, int32_t ***out) {
    int32_t **maps = *out = arena_alloc(arena, (preparation->count + 1) * sizeof *maps);
    for (size_t i = 0; i < preparation->count; i++) {
        const struct prepared_column *column = &preparation->items[i];
        if (column->type == COLUMN_CATEGORY) maps[i] = map_categories(column, &columns[i].texts, arena);
        if (column->type == COLUMN_TEXT) TRY(map_texts(column, &columns[i].texts, tokenizer, arena, &maps[i]));
    }
    return OK;
}

static void encode_category(const struct prepared_column *column, const int32_t *map, double raw, double *out) {
    double index = isnan(raw) ? column->fill[0] : map ? (double)map[(size_t)raw] : raw;
    if (column->encoding != ENCODING_ONE_HOT) {
        out[0] = column->encoding == ENCODING_EMBEDDING ? index + 1 : index;
        return;
    }
    for (size_t i = 0; i < column->categories.count; i++) out[i] = index == (double)i ? 1 : 0;
}

void preparation_encode(const struct preparation *preparation, int32_t *const *maps, const double *raw,
                        double *features) {
    for (size_t i = 0; i < preparation->count; i++) {
        const struct prepared_column *column = &preparation->items[i];
        double *out = features + column->first;
        bool is_missing = isnan(raw[i]);
        if (column->type == COLUMN_CATEGORY)
            encode_category(column, maps ? maps[i] : NULL, raw[i], out);
        else if (column->type != COLUMN_DATE && column->type != COLUMN_TEXT)
            out[0] = is_missing ? column->fill[0] : raw[i];
        for (size_t k = 0; column->type == COLUMN_DATE && k < column->part_count; k++)
            out[k] = is_missing ? column->fill[k] : date_part_of(raw[i], column->parts[k]);
        for (size_t k = 0; column->type == COLUMN_TEXT && k < column->length; k++)
            out[k] = is_missing ? column->fill[k] : maps[i][(size_t)raw[i] * column->length + k];
        if (column->has_indicator) out[column->width - 1] = is_missing;
    }
}

bool preparation_scales(const struct preparation *preparation, enum scale_type *out) {
    bool is_scaled = false;
    for (size_t i = 0; i < preparation->count; i++) {
        const struct prepared_column *column = &preparation->items[i];
        for (size_t k = 0; k < column->width; k++) {
            bool is_indicator = column->has_indicator && k + 1 == column->width;
            enum scale_type scale = is_indicator ? SCALE_NONE : column->scale;
            out[column->first + k] = scale;
            is_scaled = is_scaled || scale != SCALE_NONE;
        }
    }
    return is_scaled;
}

size_t preparation_column_of(const struct preparation *preparation, size_t feature) {
    size_t column = 0;
    while (column + 1 < preparation->count && preparation->items[column + 1].first <= feature) column++;
    return column;
}
