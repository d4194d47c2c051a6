/* The columns of a table as its file has them. The type of a column of texts is decided when all of them are known;
 * each different text is examined once. */
#include "data/columns/raw_columns.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buffer.h"
#include "base/files/digest.h"
#include "base/scoped.h"
#include "data/columns/date.h"
#include "data/csv/csv.h"

/* ---- different texts ---- */

/* Open addressing with linear probing; at most half of the slots are used. What is known of most texts by their first
 * and last 8 bytes is kept beside their counts, so that a lookup in a pool that is larger than the caches reads two
 * lines of memory, the slot's and the item's, and not the text. */

struct text_slot {
    uint32_t tag;  /* of the text */
    uint32_t item; /* 1 + index into items; 0: the slot is free */
};

#define SHORT_TEXT 16 /* bytes: their first and last 8 bytes are all of a text */
#define LENGTH_BITS 5 /* of a tag: the length, or more than SHORT_TEXT */

/* What identifies a short text, and for others what they need to have in common. */
struct text_key {
    uint64_t first, last; /* 8 bytes; first: a hash of a text that is not short */
    uint64_t hash;
    uint32_t tag;
};

static struct text_key key_of(const char *text) {
    const uint64_t odd = 0x9e3779b97f4a7c15u;
    size_t length = strlen(text);
    struct text_key key = {0};
    if (length >= 8) {
        memcpy(&key.first, text, 8);
        memcpy(&key.last, text + length - 8, 8);
        if (length > SHORT_TEXT) key.first = hash_add(0, text, length);
    } else {
        for (size_t i = 0; i < length; i++) key.first = key.first << 8 | (unsigned char)text[i];
    }
    uint64_t h = (key.first ^ length) * odd;
    h = ((h << 29 | h >> 35) ^ key.last) * odd;
    h = (h ^ h >> 32) * odd;
    key.hash = h ^ h >> 29;
    key.tag = (uint32_t)(h >> 32) << LENGTH_BITS | (uint32_t)(length > SHORT_TEXT ? SHORT_TEXT + 1 : length);
    return key;
}

static bool has_key(const struct pooled_text *item, const struct text_key *key, const char *text) {
    if (item->first != key->first || item->last != key->last) return false;
    return (key->tag & ((1u << LENGTH_BITS) - 1)) <= SHORT_TEXT || strcmp(item->text, text) == 0;
}

/* The slot of the text with the key, or the free one where it belongs. */
static struct text_slot *slot_of(const struct text_pool *pool, const char *text, const struct text_key *key) {
    size_t at = (size_t)key->hash & (pool->slot_count - 1);
    for (; pool->slots[at].item; at = (at + 1) & (pool->slot_count - 1))
        if (pool->slots[at].tag == key->tag && has_key(&pool->items[pool->slots[at].item - 1], key, text)) break;
    return &pool->slots[at];
}

static status grow(struct text_pool *pool) {
    size_t capacity = pool->capacity ? pool->capacity * 2 : 16, mask = 2 * capacity - 1;
    if (capacity > UINT32_MAX / 4) return status_memory("more than %zu different texts of a column", pool->count);
    struct text_slot *slots;
    struct pooled_text *items;
    TRY(buffer_new(capacity * sizeof *pool->items, "the different texts of a column", &items));
    status s = buffer_new(2 * capacity * sizeof *pool->slots, "the different texts of a column", &slots);
    if (s) {
        buffer_free(items);
        return s;
    }
    if (pool->count) memcpy(items, pool->items, pool->count * sizeof *items);
    buffer_free(pool->items);
    pool->items = items;
    for (size_t i = 0; i < pool->count; i++) {
        struct text_key key = key_of(items[i].text);
        size_t at = (size_t)key.hash & mask;
        while (slots[at].item) at = (at + 1) & mask;
        slots[at] = (struct text_slot){key.tag, (uint32_t)i + 1};
    }
    buffer_free(pool->slots);
    pool->slots = slots;
    pool->capacity = capacity;
    pool->slot_count = 2 * capacity;
    return OK;
}

status text_pool_add(struct text_pool *pool, const char *text, size_t row, size_t *index) {
    if (pool->count == pool->capacity) TRY(grow(pool));
    struct text_key key = key_of(text);
    struct text_slot *slot = slot_of(pool, text, &key);
    if (!slot->item) {
        const char *kept = pool->arena ? arena_copy(pool->arena, text) : text;
        pool->items[pool->count++] = (struct pooled_text){kept, 0, row, key.first, key.last};
        *slot = (struct text_slot){key.tag, (uint32_t)pool->count};
    }
    *index = slot->item - 1;
    pool->items[*index].count++;
    return OK;
}

bool text_pool_has(const struct text_pool *pool, const char *text) {
    struct text_key key = key_of(text);
    return pool->slots && slot_of(pool, text, &key)->item;
}

void text_pool_free(struct text_pool *pool) {
    buffer_free(pool->items);
    buffer_free(pool->slots);
    *pool = (struct text_pool){0};
}

/* ---- columns ---- */

#define MAX_EXACT 9007199254740992.0 /* 2^53: larger integers are not exact as doubles */
#define MAX_CATEGORIES 100           /* of a column whose type is inferred */

/* ---- categories ---- */

int category_compare(bool are_numbers, const char *a, const char *b) {
    double x, y;
    if (!are_numbers || !csv_number(a, &x) || !csv_number(b, &y)) return strcmp(a, b);
    if (x != y) return x > y ? 1 : -1;
    return fabs(x) < MAX_EXACT ? 0 : strcmp(a, b);
}

size_t category_find(const struct string_list *texts, bool are_numbers, const char *text) {
    double number;
    size_t first = 0, end = texts->count;
    if (are_numbers && !csv_number(text, &number)) return SIZE_MAX;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        int order = category_compare(are_numbers, texts->items[middle], text);
        if (order == 0) return middle;
        if (order < 0)
            first = middle + 1;
        else
            end = middle;
    }
    return SIZE_MAX;
}

bool category_is_number(const char *text) {
    double number;
    return csv_number(text, &number) && isfinite(number) && !csv_is_code(text);
}

bool category_are_numbers(const struct text_pool *pool) {
    for (size_t i = 0; i < pool->count; i++)
        if (!category_is_number(pool->items[i].text)) return false;
    return pool->count > 0;
}

/* A text with a number that has its order, except among texts of the same key. */
struct sort_key {
    uint64_t key;
    const char *text;
    size_t index;
};

/* Equal keys by all bytes, so that the first of equal numbers does not depend on the sort. */
static int by_key(const void *a, const void *b) {
    const struct sort_key *x = a, *y = b;
    return x->key != y->key ? (x->key > y->key) - (x->key < y->key) : strcmp(x->text, y->text);
}

/* The bits of numbers have their order, those of negative ones its reverse; 0 and -0 are one. */
static uint64_t key_of_number(const char *text) {
    double number;
    uint64_t bits, sign = UINT64_C(1) << 63;
    if (!csv_number(text, &number)) return 0;
    number += 0.0;
    memcpy(&bits, &number, sizeof bits);
    return bits & sign ? ~bits : bits | sign;
}

/* Eight bytes, the first of which is highest. */
static uint64_t key_of_text(const char *text) {
    uint64_t key = 0;
    size_t i = 0;
    for (; i < sizeof key && text[i]; i++) key = key << 8 | (unsigned char)text[i];
    return i == 0 ? 0 : key << 8 * (sizeof key - i);
}

/* The bytes with which all texts begin. */
static size_t common_bytes(const char *const *texts, size_t count) {
    size_t common = count > 0 ? strlen(texts[0]) : 0;
    for (size_t i = 1; i < count && common > 0; i++) {
        size_t same = 0;
        while (same < common && texts[i][same] == texts[0][same]) same++;
        common = same;
    }
    return common;
}

#define MIN_DIGITS 1024 /* texts; fewer are sorted by comparisons */

/* Sorts (count) by their keys, byte by byte from the lowest on, each time in the order of the bytes before. [other]:
 * (count) of memory. Bytes that all keys have in common take no time. */
static void sort_by_bytes(struct sort_key *keys, struct sort_key *other, size_t count) {
    size_t counts[8][256] = {0};
    struct sort_key *from = keys, *to = other;
    for (size_t i = 0; i < count; i++)
        for (size_t byte = 0; byte < 8; byte++) counts[byte][keys[i].key >> 8 * byte & 0xff]++;
    for (size_t byte = 0; byte < 8; byte++) {
        size_t *ends = counts[byte], end = 0;
        if (ends[from[0].key >> 8 * byte & 0xff] == count) continue;
        for (size_t value = 0; value < 256; value++) {
            size_t here = ends[value];
            ends[value] = end;
            end += here;
        }
        for (size_t i = 0; i < count; i++) to[ends[from[i].key >> 8 * byte & 0xff]++] = from[i];
        struct sort_key *sorted = to;
        to = from;
        from = sorted;
    }
    if (from != keys) memcpy(keys, from, count * sizeof *keys);
}

/* Sorts (count) as by_key orders them. */
static void sort_keys(struct sort_key *keys, size_t count) {
    struct sort_key *other = count < MIN_DIGITS ? NULL : malloc(count * sizeof *other);
    if (!other) {
        qsort(keys, count, sizeof *keys, by_key);
        return;
    }
    sort_by_bytes(keys, other, count);
    free(other);
    for (size_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && keys[end].key == keys[i].key;) end++;
        if (end - i > 1) qsort(keys + i, end - i, sizeof *keys, by_key);
    }
}

size_t category_sort(const char **texts, size_t count, bool are_numbers, double *ranks) {
    size_t kept = 0, common = are_numbers ? 0 : common_bytes(texts, count);
    struct sort_key *keys = malloc((count + 1) * sizeof *keys);
    if (!keys) status_exit_without_memory();
    for (size_t i = 0; i < count; i++)
        keys[i] =
            (struct sort_key){are_numbers ? key_of_number(texts[i]) : key_of_text(texts[i] + common), texts[i], i};
    sort_keys(keys, count);
    for (size_t i = 0; i < count; i++) {
        bool may_be_same = i > 0 && keys[i].key == keys[i - 1].key;
        if (!may_be_same || category_compare(are_numbers, keys[i].text, texts[kept - 1]) != 0)
            texts[kept++] = keys[i].text;
        if (ranks) ranks[keys[i].index] = (double)(kept - 1);
    }
    free(keys);
    return kept;
}

static void keep_texts(const struct text_pool *pool, struct arena *arena, struct raw_column *out) {
    const char **texts = arena_alloc(arena, (pool->count + 1) * sizeof *texts);
    for (size_t i = 0; i < pool->count; i++) texts[i] = pool->items[i].text;
    out->texts = (struct string_list){texts, pool->count};
}

static void sort_categories(const struct text_pool *pool, struct arena *arena, struct raw_column *out, double *map) {
    const char **texts = arena_alloc(arena, (pool->count + 1) * sizeof *texts);
    out->are_numbers = category_are_numbers(pool);
    for (size_t i = 0; i < pool->count; i++) texts[i] = pool->items[i].text;
    out->texts = (struct string_list){texts, category_sort(texts, pool->count, out->are_numbers, map)};
}

/* ---- booleans ---- */

static const char *const pairs[][2] = {{"false", "true"}, {"no", "yes"}, {"0", "1"}};
enum { PAIRS = 3 };

bool boolean_read(const char *text, size_t pair, double *value) {
    for (int i = 0; i < 2; i++)
        if (strcasecmp(text, pairs[pair][i]) == 0) {
            *value = i;
            return true;
        }
    return false;
}

bool labels_as_numbers(const struct string_list *labels, double *numbers) {
    size_t count = 0;
    while (count < labels->count && category_is_number(labels->items[count])) count++;
    for (size_t i = 0; count == labels->count && i < count; i++)
        if (!csv_number(labels->items[i], &numbers[i]) || csv_is_inexact(labels->items[i], numbers[i])) return false;
    if (count == labels->count) return count > 0;
    for (size_t pair = 0; labels->count == 2 && pair < BOOLEAN_PAIRS; pair++)
        if (boolean_read(labels->items[0], pair, &numbers[0]) && boolean_read(labels->items[1], pair, &numbers[1]))
            return numbers[0] != numbers[1];
    return false;
}

static bool are_booleans(const struct text_pool *pool) {
    double value;
    for (size_t pair = 0; pair < BOOLEAN_PAIRS; pair++) {
        size_t count = 0;
        while (count < pool->count && boolean_read(pool->items[count].text, pair, &value)) count++;
        if (count == pool->count) return true;
    }
    return false;
}

/* ---- the builder ---- */

void column_builder_start(struct column_builder *builder, const char *name, const struct column_rule *rule,
                          const struct raw_column *known, struct arena *arena) {
    *builder = (struct column_builder){.name = name, .pool.arena = arena};
    if (known) {
        builder->type = known->type;
        builder->date_format = known->date_format;
    } else if (rule) {
        builder->type = (enum column_type)rule->type;
        builder->date_format = rule->format;
    }
    builder->is_given = builder->type != COLUMN_AUTO;
    builder->holds_texts = builder->is_given && builder->type != COLUMN_NUMBER;
}

void column_builder_free(struct column_builder *builder) { text_pool_free(&builder->pool); }

status column_builder_add_text(struct column_builder *builder, const char *text, size_t row, double *value,
                               bool *fits) {
    *fits = builder->holds_texts || (!builder->is_given && builder->values == 0);
    if (!*fits) return OK;
    size_t index;
    builder->holds_texts = true;
    builder->values++;
    TRY(text_pool_add(&builder->pool, text, row, &index));
    *value = (double)index;
    return OK;
}

/* Adds "dataset.columns: {name: <what>}". */
static void add_advice(const char *name, const char *what, struct text *out) {
    text_add(out, "dataset.columns: {");
    text_add_value(out, name, TEXT_MAX_NAME);
    text_printf(out, ": %s}", what);
}

#define TARGET_ADVICE                                                                                                  \
    "Correct the value, or name another column in dataset.targets; a target that is a class needs a loss for classes " \
    "and must not be in dataset.inputs"

void column_builder_explain_text(const struct column_builder *builder, struct text *out) {
    if (builder->is_given) return;
    if (builder->is_target) {
        text_add(out, "; the column is a target and an input, and its values before are numbers. " TARGET_ADVICE);
        return;
    }
    text_add(out, "; its values before are numbers. Write ");
    add_advice(builder->name, "category", out);
    text_add(out, " or ignore, or list the text in dataset.missing if it means a missing value");
}

static status wrong_text(const struct column_builder *builder, size_t index, const char *sentence, size_t *row) {
    *row = builder->pool.items[index].first_row;
    return status_data("column '%s': '%s' %s", text_name(builder->name).s, text_name(builder->pool.items[index].text).s,
                       sentence);
}

static status map_booleans(const struct column_builder *builder, double *map, size_t *row) {
    for (size_t i = 0; i < builder->pool.count; i++) {
        bool is_boolean = false;
        for (size_t pair = 0; !is_boolean && pair < PAIRS; pair++)
            is_boolean = boolean_read(builder->pool.items[i].text, pair, &map[i]);
        if (!is_boolean) return wrong_text(builder, i, "is not true, false, yes, no, 1 or 0", row);
    }
    return OK;
}

static status map_dates(const struct column_builder *builder, double *map, size_t *row) {
    for (size_t i = 0; i < builder->pool.count; i++)
        if (!date_parse(builder->pool.items[i].text, builder->date_format, &map[i]))
            return wrong_text(builder, i,
                              builder->date_format ? "is not a date of this format"
                                                   : "is not a date such as 2024-05-31 or 2024-05-31 14:30:00; give "
                                                     "its format, such as format: '%d.%m.%Y'",
                              row);
    return OK;
}

static bool are_dates(const struct text_pool *pool) {
    double seconds;
    for (size_t i = 0; i < pool->count; i++)
        if (!date_parse(pool->items[i].text, NULL, &seconds)) return false;
    return true;
}

/* Texts that are few and occur twice or more on average; others are probably names or identifiers. */
static bool are_categories(const struct column_builder *builder) {
    return builder->pool.count <= MAX_CATEGORIES && builder->pool.count * 2 <= builder->values;
}

/* The index of the first text that is no finite number, if at least half of the values are numbers; else count. A code
 * such as 007 is neither. */
static size_t text_among_numbers(const struct column_builder *builder) {
    const struct text_pool *pool = &builder->pool;
    size_t numbers = 0, first = pool->count;
    for (size_t i = 0; i < pool->count; i++) {
        const char *text = pool->items[i].text;
        double number;
        if (category_is_number(text)) numbers += pool->items[i].count;
        if (first == pool->count && (!csv_number(text, &number) || !isfinite(number))) first = i;
    }
    return numbers * 2 < builder->values ? pool->count : first;
}

const char *column_builder_text_among_numbers(const struct column_builder *builder) {
    if (builder->is_given || builder->type != COLUMN_CATEGORY) return NULL;
    size_t index = text_among_numbers(builder);
    return index < builder->pool.count ? builder->pool.items[index].text : NULL;
}

const char *column_builder_decimal_comma(const struct column_builder *builder) {
    const char *found = NULL;
    if (builder->is_given || builder->type != COLUMN_CATEGORY) return NULL;
    for (size_t i = 0; i < builder->pool.count; i++) {
        const char *text = builder->pool.items[i].text;
        char decimal = ',';
        double number;
        if (!csv_decimal(text, &decimal, &number)) return NULL;
        if (!found && strchr(text, ',')) found = text;
    }
    return found;
}

static status reject_text_among_numbers(const struct column_builder *builder, size_t index, size_t *row) {
    SCOPED_TEXT sentence = {0};
    text_add(&sentence, "is not a finite number, but other values of the column are numbers; correct it, write ");
    add_advice(builder->name, "category", &sentence);
    text_add(&sentence, " or ignore, or list the text in dataset.missing if it means a missing value");
    return wrong_text(builder, index, text_string(&sentence), row);
}

/* A format of date_parse that all texts have; NULL: there is none. */
static const char *date_format_of(const struct text_pool *pool) {
    const char *formats[DATE_MAX_FORMATS];
    size_t count = date_find_formats(pool->items[0].text, pool->arena, formats);
    for (size_t i = 0, k; i < count; i++) {
        double seconds;
        for (k = 1; k < pool->count && date_parse(pool->items[k].text, formats[i], &seconds);) k++;
        if (k >= pool->count) return formats[i];
    }
    return NULL;
}

#define MIN_LISTED 4 /* numbers without brackets; fewer may be a decimal comma, or parts of a code */

/* The numbers of a list such as "[1, 2.5]", "[1. 2.]" or "70 80 82 72"; SIZE_MAX: it is none. */
static size_t count_listed(const char *text) {
    static const char between[] = "[](), \t\n";
    bool has_brackets = *text == '[' || *text == '(';
    char number[40];
    size_t count = 0;
    double value;
    for (text += strspn(text, between); *text; text += strspn(text, between)) {
        size_t length = strcspn(text, between);
        snprintf(number, sizeof number, "%.*s", (int)length, text);
        if (length >= sizeof number || !csv_number(number, &value)) return SIZE_MAX;
        text += length;
        count++;
    }
    return has_brackets || count >= MIN_LISTED ? count : SIZE_MAX;
}

bool text_pool_lists(const struct text_pool *pool, size_t *min, size_t *max) {
    *min = SIZE_MAX;
    *max = 0;
    for (size_t i = 0; i < pool->count; i++) {
        size_t count = count_listed(pool->items[i].text);
        if (count == SIZE_MAX) return false;
        if (count < *min) *min = count;
        if (count > *max) *max = count;
    }
    return *max > 1;
}

static status reject_lists(const struct column_builder *builder, size_t min, size_t max) {
    struct name_text name = text_name(builder->name), first = text_name(builder->pool.items[0].text);
    if (min < max)
        return status_data("column '%s': its values are lists of %zu to %zu numbers, such as '%s', but a value is one "
                           "number; write them as the rows of an array, each filled up to %zu (docs/arrays.md; "
                           "docs/models.md, Rows of different lengths)",
                           name.s, min, max, first.s, max);
    return status_new(
        STATUS_DATA,
        "column '%s': its values are lists of %zu numbers, such as '%s', but a value is one number; write "
        "them to %zu columns, or as the rows of an array (docs/arrays.md)",
        name.s, max, first.s, max);
}

static status reject_texts(const struct column_builder *builder, size_t *row) {
    size_t index = text_among_numbers(builder), min, max;
    if (index < builder->pool.count) return reject_text_among_numbers(builder, index, row);
    if (text_pool_lists(&builder->pool, &min, &max)) return reject_lists(builder, min, max);
    const char *format = date_format_of(&builder->pool);
    SCOPED_TEXT advice = {0};
    if (format) text_printf(&advice, "{type: date, format: \"%s\"} (or another format) if they are dates, or ", format);
    add_advice(builder->name, "ignore", &advice);
    return status_new(
        STATUS_DATA,
        "column '%s': it has %zu different texts in %zu rows, such as names or identifiers; write %s, or category if "
        "they are categories; a model reads sentences with {type: text} (docs/text.md, Sentences)",
        text_name(builder->name).s, builder->pool.count, builder->values, text_string(&advice));
}

/* Texts in a column that is a target, too. */
static status reject_target(const struct column_builder *builder, size_t *row) {
    if (!builder->is_given)
        return wrong_text(builder, 0, "is not a number, and the column is a target and an input. " TARGET_ADVICE, row);
    return status_data("column '%s': it is a target and an input, whose values are numbers; remove its rule from "
                       "dataset.columns, or for a class name the other columns in dataset.inputs",
                       text_name(builder->name).s);
}

static status infer(struct column_builder *builder, size_t *row) {
    if (builder->is_target && builder->holds_texts) return reject_target(builder, row);
    if (builder->is_given) return OK;
    if (!builder->holds_texts)
        builder->type = COLUMN_NUMBER;
    else if (are_booleans(&builder->pool))
        builder->type = COLUMN_BOOLEAN;
    else if (are_dates(&builder->pool))
        builder->type = COLUMN_DATE;
    else if (are_categories(builder))
        builder->type = COLUMN_CATEGORY;
    else
        return reject_texts(builder, row);
    return OK;
}

status column_builder_finish(struct column_builder *builder, struct arena *arena, struct raw_column *out, double **map,
                             size_t *row) {
    *map = NULL;
    *row = SIZE_MAX;
    TRY(infer(builder, row));
    *out = (struct raw_column){
        .name = builder->name, .type = builder->type, .date_format = builder->date_format, .missing = builder->missing};
    if (!builder->holds_texts) return OK;
    if (builder->type == COLUMN_TEXT) {
        keep_texts(&builder->pool, arena, out);
        return OK;
    }
    double *values = calloc(builder->pool.count + 1, sizeof *values);
    if (!values) return status_memory("the texts of a column");
    status s = OK;
    if (builder->type == COLUMN_CATEGORY)
        sort_categories(&builder->pool, arena, out, values);
    else
        s = builder->type == COLUMN_DATE ? map_dates(builder, values, row) : map_booleans(builder, values, row);
    if (s) free(values);
    if (!s) *map = values;
    return s;
}
