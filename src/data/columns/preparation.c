/* A preparation: the texts of columns as tokens, its use for a row, how it is fitted to the training rows, and the
 * lines of `check` about it. */
#include "data/columns/preparation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/numbers/statistics.h"
#include "base/scoped.h"
#include "data/csv/csv.h"
#include "data/files/files.h"

/* ---- one value by its rank ---- */

/* Hoare's algorithm FIND with the median of three as pivot; after too many bad pivots the rest is sorted, so that no
 * order of the values takes quadratic time. */

#define MAX_ROUNDS 128 /* a good pivot halves the rest */

static double middle_of(double a, double b, double c) {
    double low = a < b ? a : b, high = a < b ? b : a;
    return c < low ? low : c > high ? high : c;
}

/* Afterwards values first .. *right are at most the pivot, *left .. last at least, and those between are the pivot. */
static void part(double *values, ptrdiff_t first, ptrdiff_t last, ptrdiff_t *left, ptrdiff_t *right) {
    double pivot = middle_of(values[first], values[first + (last - first) / 2], values[last]);
    ptrdiff_t i = first, j = last;
    while (i <= j) {
        while (values[i] < pivot) i++;
        while (values[j] > pivot) j--;
        if (i > j) break;
        double other = values[i];
        values[i++] = values[j];
        values[j--] = other;
    }
    *left = i;
    *right = j;
}

double select_value(double *values, size_t count, size_t index) {
    ptrdiff_t first = 0, last = (ptrdiff_t)count - 1, wanted = (ptrdiff_t)index, left, right;
    for (int rounds = 0; first < last; rounds++) {
        if (rounds == MAX_ROUNDS) {
            qsort(values + first, (size_t)(last - first + 1), sizeof *values, statistics_compare);
            break;
        }
        part(values, first, last, &left, &right);
        if (right < wanted) first = left;
        if (wanted < left) last = right;
    }
    return values[index];
}

/* ---- texts ---- */

/* Each text is encoded as a whole and then cut: where a token ends depends on what follows. */

/* For each of [texts] its first [length] tokens, then [padding]: ids (texts, length). STATUS_DATA for a byte that has
 * no token, STATUS_MEMORY. */
static status text_tokens(const struct tokenizer *tokenizer, const struct string_list *texts, size_t length,
                          int32_t padding, int32_t *ids) {
    struct token_list list = {0};
    status s = OK;
    for (size_t i = 0; !s && i < texts->count; i++) {
        list.count = 0;
        s = tokenizer_encode(tokenizer, texts->items[i], strlen(texts->items[i]), &list);
        for (size_t k = 0; !s && k < length; k++) ids[i * length + k] = k < list.count ? list.ids[k] : padding;
    }
    free(list.ids);
    return s;
}

static status make_tokenizer(const struct text_pool *pool, struct tokenizer **out) {
    struct word_counts *words;
    SCOPED_TEXT json = {0};
    status s = word_counts_create(&words);
    for (size_t i = 0; !s && i < pool->count; i++)
        s = word_counts_add(words, pool->items[i].text, pool->items[i].count);
    if (!s) s = word_counts_write(words, &json);
    if (!s) s = tokenizer_parse("the words of the texts", text_string(&json), json.length, out);
    word_counts_destroy(words);
    return s;
}

status text_usual_length(const struct text_pool *pool, size_t *out) {
    struct tokenizer *tokenizer = NULL;
    struct token_list list = {0};
    double *lengths = malloc((pool->count + 1) * sizeof *lengths);
    status s = lengths ? make_tokenizer(pool, &tokenizer) : status_memory("the lengths of the texts");
    *out = 0;
    for (size_t i = 0; !s && i < pool->count; i++) {
        list.count = 0;
        s = tokenizer_encode(tokenizer, pool->items[i].text, strlen(pool->items[i].text), &list);
        lengths[i] = (double)list.count;
    }
    if (!s && pool->count > 0) *out = (size_t)select_value(lengths, pool->count, (pool->count - 1) * 95 / 100);
    tokenizer_destroy(tokenizer);
    free(list.ids);
    free(lengths);
    return s;
}

/* ---- applying ---- */

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

/* Texts that are sorted as the categories are compared with those around the last one. */
static int32_t *map_categories(const struct prepared_column *column, const struct raw_column *raw,
                               struct arena *arena) {
    const struct string_list *texts = &raw->texts, *categories = &column->categories;
    bool is_same_order = raw->are_numbers == column->are_numbers;
    int32_t *map = arena_alloc(arena, (texts->count + 1) * sizeof *map);
    for (size_t i = 0, at = 0; i < texts->count; i++) {
        const char *text = texts->items[i];
        int order = -1;
        for (; is_same_order && at < categories->count; at++) {
            const char *category = categories->items[at];
            order = category == text ? 0 : category_compare(column->are_numbers, category, text);
            if (order >= 0) break;
        }
        size_t found = order == 0 ? at : SIZE_MAX;
        if (!is_same_order) found = category_find(categories, column->are_numbers, text);
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
        if (column->type == COLUMN_CATEGORY) maps[i] = map_categories(column, &columns[i], arena);
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
    size_t count = column->categories.count;
    memset(out, 0, count * sizeof *out);
    if (index >= 0 && index < (double)count) out[(size_t)index] = 1;
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

#define MIN_INDEXED 16 /* categories; fewer are copied as fast as an index is read */

/* The categories of a column that is stored as an index; 0: it is stored as its features. */
static size_t indexed(const struct prepared_column *column) {
    bool is_one_hot = column->type == COLUMN_CATEGORY && column->encoding == ENCODING_ONE_HOT;
    return is_one_hot && column->categories.count >= MIN_INDEXED ? column->categories.count : 0;
}

size_t preparation_stored_size(const struct preparation *preparation) {
    size_t size = preparation->features;
    for (size_t i = 0; i < preparation->count; i++) {
        size_t categories = indexed(&preparation->items[i]);
        if (categories) size -= categories - 1;
    }
    return size;
}

/* The bits of an index are kept in a float; -1: no feature is 1. */
void preparation_store(const struct preparation *preparation, const float *features, float *stored) {
    for (size_t i = 0; i < preparation->count; i++) {
        const struct prepared_column *column = &preparation->items[i];
        size_t categories = indexed(column);
        int32_t index = -1;
        for (size_t k = 0; k < categories; k++)
            if (features[k] != 0) index = (int32_t)k;
        if (categories) memcpy(stored++, &index, sizeof index);
        features += categories;
        memcpy(stored, features, (column->width - categories) * sizeof *stored);
        features += column->width - categories;
        stored += column->width - categories;
    }
}

void preparation_restore(const struct preparation *preparation, const float *stored, float *features) {
    for (size_t i = 0; i < preparation->count; i++) {
        const struct prepared_column *column = &preparation->items[i];
        size_t categories = indexed(column);
        if (categories) {
            int32_t index;
            memcpy(&index, stored++, sizeof index);
            memset(features, 0, categories * sizeof *features);
            if (index >= 0) features[index] = 1;
            features += categories;
        }
        memcpy(features, stored, (column->width - categories) * sizeof *features);
        features += column->width - categories;
        stored += column->width - categories;
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

/* ---- fitting ---- */

/* Statistics of the training rows, column by column, with scikit-learn's rules: the median of an even number of values
 * is the mean of the middle two, the most frequent of equally frequent values is the smallest, and an indicator is
 * added only where a training row has a missing value. */

#define CHUNK_BYTES ((size_t)1 << 20)

/* The training rows of one column. */
struct values {
    double *present; /* (count) without the missing ones, in the order of the training rows */
    size_t count, missing;
};

struct fitter {
    const struct raw_column *columns;
    const struct fit_rows *rows;
    size_t column_count;
    enum scale_type scale;
    struct arena *arena;
    struct values values; /* of the current column; its memory is (rows->count) */
    bool *marks;          /* (rows of the source) whether it is a training row; NULL: they are consecutive */
    double *chunk;        /* (chunk_rows) of a column */
    size_t chunk_rows;
};

static status fail(enum status_code code, const char *name, const char *sentence) {
    return status_new(code, "dataset.columns.%s: %s", text_name(name).s, sentence);
}

static void add_value(struct values *v, double value) {
    if (isnan(value))
        v->missing++;
    else
        v->present[v->count++] = value;
}

/* Marks the training rows, if they are not consecutive. */
static status mark_rows(const struct fit_rows *rows, bool **marks) {
    TRY(rows_alloc(rows->source_rows, 1, "the training rows", marks));
    for (size_t i = 0; i < rows->count; i++) (*marks)[rows->row(rows->selection, i)] = true;
    return OK;
}

/* Adds the values of a column in the order of the file. */
static status gather_in_file_order(struct fitter *fitter, size_t column) {
    const struct fit_rows *rows = fitter->rows;
    const bool *marks = fitter->marks;
    size_t total = rows->source_rows;
    for (size_t first = 0, count; first < total; first += count) {
        count = total - first < fitter->chunk_rows ? total - first : fitter->chunk_rows;
        TRY(rows->read_column(rows->source, column, first, count, fitter->chunk));
        for (size_t i = 0; i < count; i++) {
            bool is_training =
                marks ? marks[first + i] : first + i >= rows->first && first + i - rows->first < rows->count;
            if (is_training) add_value(&fitter->values, fitter->chunk[i]);
        }
    }
    return OK;
}

/* Whether all values of a column are read before they are added. */
static bool needs_column(const struct fit_rows *rows) { return rows->row && !rows->is_in_file_order; }

static status gather(struct fitter *fitter, size_t column) {
    const struct fit_rows *rows = fitter->rows;
    fitter->values.count = fitter->values.missing = 0;
    if (!needs_column(rows)) return gather_in_file_order(fitter, column);
    TRY(rows->read_column(rows->source, column, 0, rows->source_rows, fitter->chunk));
    for (size_t i = 0; i < rows->count; i++) add_value(&fitter->values, fitter->chunk[rows->row(rows->selection, i)]);
    return OK;
}

static double mean_of(const struct values *v) {
    double sum = 0;
    for (size_t i = 0; i < v->count; i++) sum += v->present[i];
    return sum / (double)v->count;
}

/* Both change the order of the values. Zeros have no sign in a median. */
static double median_of(struct values *v) {
    size_t middle = v->count / 2;
    double upper = select_value(v->present, v->count, middle), lower = v->present[0];
    if (v->count % 2) return upper + 0.0;
    for (size_t i = 1; i < middle; i++) lower = v->present[i] > lower ? v->present[i] : lower;
    return (lower + upper) / 2 + 0.0;
}

static double most_frequent_of(struct values *v) {
    size_t best = 0;
    double value = v->present[0];
    qsort(v->present, v->count, sizeof *v->present, statistics_compare);
    for (size_t i = 0, end; i < v->count; i = end) {
        for (end = i + 1; end < v->count && v->present[end] == v->present[i]; end++) {
        }
        if (end - i <= best) continue;
        best = end - i;
        value = v->present[i];
    }
    return value;
}

static double fill_of(enum missing_rule rule, struct values *v) {
    if (v->count == 0 || rule == MISSING_ERROR) return 0;
    if (rule == MISSING_MEDIAN) return median_of(v);
    return rule == MISSING_MOST_FREQUENT ? most_frequent_of(v) : mean_of(v);
}

/* The same of the indices of [texts] texts. */
static size_t most_frequent_text(const struct fitter *fitter, size_t texts) {
    size_t best = 0, *counts = arena_alloc(fitter->arena, texts * sizeof *counts);
    for (size_t i = 0; i < fitter->values.count; i++) counts[(size_t)fitter->values.present[i]]++;
    for (size_t i = 1; i < texts; i++)
        if (counts[i] > counts[best]) best = i;
    return best;
}

/* ---- numbers and dates ---- */

static status fit_number(struct fitter *fitter, const struct column_rule *rule, struct prepared_column *out) {
    out->fill = arena_alloc(fitter->arena, sizeof *out->fill);
    if (rule->missing != MISSING_CONSTANT)
        *out->fill = fill_of(out->missing, &fitter->values);
    else if (rule->fill && !csv_number(rule->fill, out->fill))
        return fail(STATUS_USAGE, out->name, "fill must be a number, as the column has numbers");
    if (isfinite(*out->fill)) return OK;
    return fail(STATUS_DATA, out->name, "the values are too large for a mean");
}

static bool has_time(const struct values *v) {
    for (size_t i = 0; i < v->count; i++)
        if (fmod(v->present[i], 86400) != 0) return true;
    return false;
}

static void choose_parts(const struct fitter *fitter, const struct column_rule *rule, struct prepared_column *out) {
    enum date_part usual[DATE_PARTS];
    size_t given = rule->parts.count;
    out->part_count = given ? given : date_default_parts(out->date_format, has_time(&fitter->values), usual);
    out->parts = arena_alloc(fitter->arena, out->part_count * sizeof *out->parts);
    if (!given) memcpy(out->parts, usual, out->part_count * sizeof *usual);
    for (size_t i = 0; i < given; i++) date_part_find(rule->parts.items[i], &out->parts[i]);
}

/* Missing values are replaced in each part, as if the parts were the columns. */
static status fit_date(struct fitter *fitter, const struct column_rule *rule, size_t column,
                       struct prepared_column *out) {
    double constant = 0;
    struct values *v = &fitter->values;
    out->date_format = fitter->columns[column].date_format;
    choose_parts(fitter, rule, out);
    out->fill = arena_alloc(fitter->arena, out->part_count * sizeof *out->fill);
    if (rule->missing == MISSING_CONSTANT && rule->fill && !date_parse(rule->fill, out->date_format, &constant))
        return fail(STATUS_USAGE, out->name, "fill must be a date, written as those of the column");
    for (size_t part = 0; part < out->part_count; part++) {
        if (rule->missing == MISSING_CONSTANT) {
            out->fill[part] = rule->fill ? date_part_of(constant, out->parts[part]) : 0;
            continue;
        }
        TRY(gather(fitter, column));
        for (size_t i = 0; i < v->count; i++) v->present[i] = date_part_of(v->present[i], out->parts[part]);
        out->fill[part] = fill_of(out->missing, v);
    }
    return OK;
}

/* ---- categories ---- */

/* The categories of the training rows and, if a value is missing there, the constant. */
static void choose_categories(struct fitter *fitter, const struct raw_column *raw, const char *constant,
                              struct prepared_column *out) {
    const struct values *v = &fitter->values;
    size_t count = 0;
    bool *used = arena_alloc(fitter->arena, raw->texts.count + 1);
    const char **texts = arena_alloc(fitter->arena, (raw->texts.count + 2) * sizeof *texts);
    for (size_t i = 0; i < v->count; i++) used[(size_t)v->present[i]] = true;
    out->are_numbers = raw->are_numbers && (!constant || category_is_number(constant));
    for (size_t i = 0; i < raw->texts.count; i++)
        if (used[i]) texts[count++] = raw->texts.items[i];
    if (constant) texts[count++] = constant;
    if (constant || out->are_numbers != raw->are_numbers) count = category_sort(texts, count, out->are_numbers, NULL);
    out->categories = (struct string_list){texts, count};
}

static status fit_category(struct fitter *fitter, const struct column_rule *rule, size_t column,
                           struct prepared_column *out) {
    const struct raw_column *raw = &fitter->columns[column];
    struct values *v = &fitter->values;
    const char *constant = rule->missing == MISSING_CONSTANT ? rule->fill ? rule->fill : "missing_value" : NULL;
    bool is_own_category = rule->missing == MISSING_INDICATOR && rule->encoding == ENCODING_ONE_HOT;
    if (rule->missing == MISSING_MEAN || rule->missing == MISSING_MEDIAN)
        return fail(STATUS_USAGE, out->name,
                    "mean and median are for numbers; a category has missing: most_frequent, constant or indicator");
    out->encoding = (enum column_encoding)rule->encoding;
    out->unknown = (enum unknown_rule)rule->unknown;
    choose_categories(fitter, raw, v->missing ? constant : NULL, out);
    out->fill = arena_alloc(fitter->arena, sizeof *out->fill);
    *out->fill = -1;
    const char *fill = constant;
    if (!constant && out->missing != MISSING_ERROR && !is_own_category && v->count > 0)
        fill = raw->texts.items[most_frequent_text(fitter, raw->texts.count)];
    size_t index = fill ? category_find(&out->categories, out->are_numbers, fill) : SIZE_MAX;
    if (index != SIZE_MAX) *out->fill = (double)index;
    if (out->encoding != ENCODING_ORDINAL) out->scale = SCALE_NONE;
    bool has_constant =
        constant && raw->missing > 0 && category_find(&raw->texts, raw->are_numbers, constant) == SIZE_MAX;
    if (out->encoding == ENCODING_EMBEDDING) out->tokens = (int64_t)raw->texts.count + 1 + has_constant;
    if (out->encoding == ENCODING_ONE_HOT && rule->scale > 0)
        return fail(STATUS_USAGE, out->name, "one-hot features are 0 and 1 and are not scaled; remove scale");
    return OK;
}

/* ---- texts ---- */

static status fail_padding(const char *name, const char *sentence, size_t tokens) {
    SCOPED_TEXT shown = {0};
    text_printf(&shown, "%s; %zu is the first id that no token has (num_embeddings: %zu)", sentence, tokens,
                tokens + 1);
    return fail(STATUS_USAGE, name, text_string(&shown));
}

static status fit_text(struct fitter *fitter, const struct column_rule *rule, struct prepared_column *out) {
    const struct tokenizer *tokenizer = fitter->rows->tokenizer;
    size_t tokens = tokenizer_size(tokenizer);
    const char *fill = rule->fill ? rule->fill : "";
    out->scale = SCALE_NONE;
    out->length = (size_t)rule->length;
    out->padding = rule->padding == SCHEMA_NO_INT ? tokenizer_padding(tokenizer) : (int32_t)rule->padding;
    if (out->padding < 0)
        return fail_padding(
            out->name, "the tokenizer has no padding token; write padding: ID, of a token that no text has", tokens);
    if ((size_t)out->padding > tokens) return fail_padding(out->name, "padding is not the id of a token", tokens);
    out->tokens = (int64_t)tokens + ((size_t)out->padding == tokens);
    out->fill = arena_alloc(fitter->arena, out->length * sizeof *out->fill);
    int32_t *ids = arena_alloc(fitter->arena, out->length * sizeof *ids);
    TRY(text_tokens(tokenizer, &(struct string_list){&fill, 1}, out->length, out->padding, ids));
    for (size_t i = 0; i < out->length; i++) out->fill[i] = ids[i];
    return OK;
}

/* ---- columns ---- */

static status check_type(const struct raw_column *raw, const struct column_rule *rule) {
    bool is_category = raw->type == COLUMN_CATEGORY;
    if (!is_category && (rule->encoding != ENCODING_ONE_HOT || rule->unknown != UNKNOWN_IGNORE))
        return fail(STATUS_USAGE, raw->name, "encoding and unknown are for categories; write type: category");
    return OK;
}

static status fit_column(struct fitter *fitter, const struct column_rules *rules, size_t column,
                         struct prepared_column *out) {
    static const struct column_rule none = {.scale = -1};
    const struct raw_column *raw = &fitter->columns[column];
    const struct column_rule *rule = column_rule_find(rules, raw->name);
    if (!rule) rule = &none;
    TRY(check_type(raw, rule));
    TRY(gather(fitter, column));
    out->name = arena_copy(fitter->arena, raw->name);
    out->type = raw->type;
    out->missing = (enum missing_rule)rule->missing;
    out->scale = rule->scale < 0 ? fitter->scale : (enum scale_type)rule->scale;
    out->has_indicator = (rule->indicator || rule->missing == MISSING_INDICATOR) && fitter->values.missing > 0;
    if (fitter->values.count == 0 && rule->missing != MISSING_CONSTANT)
        return fail(STATUS_DATA, raw->name, "no training row has a value; write ignore");
    if (raw->type == COLUMN_CATEGORY) return fit_category(fitter, rule, column, out);
    if (raw->type == COLUMN_TEXT) return fit_text(fitter, rule, out);
    return raw->type == COLUMN_DATE ? fit_date(fitter, rule, column, out) : fit_number(fitter, rule, out);
}

/* Allocates the values of a column, and what reading them needs. */
static status allocate(struct fitter *fitter) {
    const struct fit_rows *rows = fitter->rows;
    TRY(rows_alloc(rows->count, sizeof(double), "the values of a column", &fitter->values.present));
    fitter->chunk_rows = needs_column(rows) ? rows->source_rows : CHUNK_BYTES / sizeof(double);
    TRY(rows_alloc(fitter->chunk_rows, sizeof(double), "the values of a column", &fitter->chunk));
    return rows->row && !needs_column(rows) ? mark_rows(rows, &fitter->marks) : OK;
}

static void free_rows(struct fitter *fitter) {
    buffer_free(fitter->values.present);
    buffer_free(fitter->chunk);
    buffer_free(fitter->marks);
}

static status count_words(struct fitter *fitter, size_t column, struct word_counts *words) {
    const struct string_list *texts = &fitter->columns[column].texts;
    TRY(gather(fitter, column));
    size_t *times = arena_alloc(fitter->arena, (texts->count + 1) * sizeof *times);
    for (size_t i = 0; i < fitter->values.count; i++) times[(size_t)fitter->values.present[i]]++;
    for (size_t i = 0; i < texts->count; i++)
        if (times[i]) TRY(word_counts_add(words, texts->items[i], times[i]));
    return OK;
}

status preparation_make_tokenizer(const struct raw_column *columns, size_t count, const struct fit_rows *rows,
                                  struct text *json) {
    struct word_counts *words = NULL;
    struct fitter fitter = {.columns = columns, .rows = rows, .column_count = count, .arena = arena_create()};
    status s = allocate(&fitter);
    if (!s) s = word_counts_create(&words);
    for (size_t i = 0; !s && i < count; i++)
        if (columns[i].type == COLUMN_TEXT) s = count_words(&fitter, i, words);
    if (!s) s = word_counts_write(words, json);
    word_counts_destroy(words);
    free_rows(&fitter);
    arena_destroy(fitter.arena);
    return s;
}

status preparation_fit(const struct raw_column *columns, size_t count, const struct fit_rows *rows,
                       const struct section_list *rules, enum scale_type scale, struct arena *arena,
                       struct preparation *out) {
    struct fitter fitter = {.columns = columns, .rows = rows, .column_count = count, .scale = scale, .arena = arena};
    *out = (struct preparation){.items = arena_alloc(arena, (count + 1) * sizeof *out->items), .count = count};
    struct column_rules by_name = column_rules_index(arena, rules);
    status s = allocate(&fitter);
    for (size_t i = 0; !s && i < count; i++) s = fit_column(&fitter, &by_name, i, &out->items[i]);
    free_rows(&fitter);
    preparation_number_features(out);
    return s;
}

/* ---- describing ---- */

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
        SCOPED_TEXT missing = {0}, features = {0};
        add_missing(column, raw[i].missing, &missing);
        add_features(column, &features);
        add_line(column->name, column_types[column->type], text_string(&missing), text_string(&features), out);
    }
    for (size_t i = 0; i < rules->count; i++)
        if (items[i].type == COLUMN_IGNORED) add_line(items[i].name, "ignored", "", "", out);
}
