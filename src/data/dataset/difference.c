/* difference: the first value in which the files of two datasets differ, in the order of their rows, before anything is
 * split, prepared or scaled. The sources of both are read beside each other, a block of rows at a time. */
#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "data/dataset/open_dataset.h"

#define BLOCK_VALUES ((size_t)1 << 16)
#define KINDS (ROW_GROUP + 1)

struct side {
    struct source *source;
    size_t sizes[KINDS];   /* values of a row, by enum row_value */
    double *values[KINDS]; /* (block, sizes[kind]) */
    int32_t *tokens;       /* (sizes[ROW_INPUT]) of a row of tokens; NULL: rows are values */
    int64_t *next;         /* (sizes[ROW_TARGET]) likewise */
    const char *path;
    uint32_t *codes; /* (code_count) of tokens that are characters: values are their code points */
    size_t code_count;
};

/* What a value is an index of; NULL: a number. */
static const char *text_of(const struct source *source, enum row_value kind, size_t element, double value) {
    struct string_list texts = {0};
    if (kind == ROW_INPUT && source->columns) texts = source->columns[element].texts;
    if (kind == ROW_TARGET) texts = source->labels;
    return value >= 0 && value < (double)texts.count ? texts.items[(size_t)value] : NULL;
}

static bool is_equal(const struct side *sides, enum row_value kind, size_t element, double a, double b) {
    const char *x = text_of(sides[0].source, kind, element, a), *y = text_of(sides[1].source, kind, element, b);
    if (x || y) return x && y && strcmp(x, y) == 0;
    return a == b || (isnan(a) && isnan(b));
}

/* Tokens are counted from the first one of the files. */
static void add_place(const struct side *side, enum row_value kind, size_t row, size_t element, struct text *out) {
    const struct source *source = side->source;
    if (source->format->describe) {
        source->format->describe(source, kind, row, element, out);
        if (source->format->decode && kind == ROW_INPUT) text_printf(out, ", value %zu", element); /* of an image */
        return;
    }
    text_printf(out, "'%s': %s %zu", side->path, side->codes ? "character" : "token",
                row * source->stride + element + (kind == ROW_TARGET));
}

static void add_value(const struct side *side, enum row_value kind, size_t row, size_t element, double value,
                      struct text *out) {
    const char *text = text_of(side->source, kind, element, value);
    char character[8] = "";
    if (side->codes) character[utf8_write((uint32_t)value, character)] = 0;
    add_place(side, kind, row, element, out);
    text_add(out, " is ");
    if (text || side->codes) {
        text_add(out, "'");
        text_add_value(out, text ? text : character, TEXT_MAX_NAME);
        text_add(out, "'");
    } else if (isnan(value)) {
        text_add(out, "missing");
    } else {
        text_add_double(out, value);
    }
}

/* What a token is compared by: in another file the same character may have another number. */
static double value_of(const struct side *side, int64_t token) {
    return token >= 0 && (size_t)token < side->code_count ? side->codes[token] : (double)token;
}

static status read_rows(struct side *side, size_t first, size_t count) {
    struct source *source = side->source;
    const struct dataset_format *format = source->format;
    if (!side->tokens) {
        TRY(format->read(source, first, count, side->values[ROW_INPUT], NULL));
        if (source->target_size) TRY(format->read(source, first, count, NULL, side->values[ROW_TARGET]));
        for (enum row_value kind = ROW_WEIGHT; kind < KINDS; kind++)
            if (side->sizes[kind]) TRY(format->read_extra(source, kind, first, count, side->values[kind]));
        return OK;
    }
    TRY(format->read_tokens(source, first, side->tokens, side->next));
    for (size_t i = 0; i < side->sizes[ROW_INPUT]; i++) side->values[ROW_INPUT][i] = value_of(side, side->tokens[i]);
    for (size_t i = 0; i < side->sizes[ROW_TARGET]; i++) side->values[ROW_TARGET][i] = value_of(side, side->next[i]);
    return OK;
}

/* The first difference of rows first .. first + count - 1. */
static status compare_rows(struct side *sides, size_t first, size_t count, struct text *out) {
    for (int i = 0; i < 2; i++) TRY(read_rows(&sides[i], first, count));
    for (size_t row = 0; row < count; row++)
        for (enum row_value kind = 0; kind < KINDS; kind++)
            for (size_t i = 0, size = sides[0].sizes[kind]; i < size; i++) {
                double a = sides[0].values[kind][row * size + i], b = sides[1].values[kind][row * size + i];
                if (is_equal(sides, kind, i, a, b)) continue;
                add_value(&sides[0], kind, first + row, i, a, out);
                text_add(out, ", ");
                add_value(&sides[1], kind, first + row, i, b, out);
                return OK;
            }
    return OK;
}

static status open_side(const struct dataset_config *config, const char *path, bool wants_classes,
                        const struct source *train, struct side *out) {
    TRY(dataset_open_source(config, path, wants_classes, train, &out->source));
    const struct source *source = out->source;
    bool has_extra = source->format->read_extra != NULL;
    out->path = path ? path : "synthetic dataset";
    out->sizes[ROW_INPUT] = source->input_size;
    out->sizes[ROW_TARGET] = source->target_size;
    out->sizes[ROW_WEIGHT] = has_extra && config->weights;
    out->sizes[ROW_GROUP] = has_extra && dataset_group(config);
    return OK;
}

static void close_side(struct side *side) {
    if (side->source) side->source->format->close(side->source);
    for (int i = 0; i < KINDS; i++) buffer_free(side->values[i]);
    buffer_free(side->tokens), buffer_free(side->next), buffer_free(side->codes);
}

static status list_characters(struct side *side) {
    const char *characters = side->source->characters;
    size_t size = characters ? strlen(characters) : 0;
    if (!characters) return OK;
    TRY(buffer_new(size * sizeof *side->codes, "characters", &side->codes));
    for (size_t at = 0, length; at < size; at += length) {
        length = utf8_decode(characters + at, size - at, &side->codes[side->code_count++]);
        if (length == 0) return status_new(STATUS_BUG, "the characters of '%s' are not UTF-8", side->path);
    }
    return OK;
}

static status alloc(struct side *side, size_t rows) {
    static const char what[] = "rows";
    bool has_tokens = side->source->format->read_tokens != NULL;
    for (int i = 0; i < KINDS; i++) TRY(buffer_new(rows * side->sizes[i] * sizeof(double), what, &side->values[i]));
    TRY(list_characters(side));
    if (has_tokens) TRY(buffer_new(side->sizes[ROW_INPUT] * sizeof(int32_t), what, &side->tokens));
    return has_tokens ? buffer_new(side->sizes[ROW_TARGET] * sizeof(int64_t), what, &side->next) : OK;
}

static status compare_sources(struct side *sides, struct text *out) {
    const char *const paths[] = {sides[0].path, sides[1].path};
    const struct source *a = sides[0].source, *b = sides[1].source;
    size_t rows = a->rows < b->rows ? a->rows : b->rows, values = 1, block;
    if (memcmp(sides[0].sizes, sides[1].sizes, sizeof sides[0].sizes) != 0) {
        text_printf(out, "a row of '%s' has %zu inputs and %zu targets, one of '%s' has %zu and %zu", paths[0],
                    a->input_size, a->target_size, paths[1], b->input_size, b->target_size);
        return OK;
    }
    for (int i = 0; i < KINDS; i++) values += sides[0].sizes[i];
    block = a->format->read_tokens || values > BLOCK_VALUES ? 1 : BLOCK_VALUES / values;
    for (int i = 0; i < 2; i++) TRY(alloc(&sides[i], block));
    for (size_t first = 0; first < rows && !out->length; first += block)
        TRY(compare_rows(sides, first, rows - first < block ? rows - first : block, out));
    if (!out->length && a->rows != b->rows)
        text_printf(out, "'%s' has %zu rows, '%s' has %zu, of which the first %zu are equal", paths[0], a->rows,
                    paths[1], b->rows, rows);
    return OK;
}

status dataset_find_difference(const struct dataset_config *const configs[2], const bool wants_classes[2],
                               struct text *out) {
    struct side train[2] = {0}, validation[2] = {0};
    status s = OK;
    for (int i = 0; !s && i < 2; i++) {
        const char *other = configs[i]->validation.path;
        s = open_side(configs[i], configs[i]->path, wants_classes[i], NULL, &train[i]);
        if (!s && other) s = open_side(configs[i], other, wants_classes[i], train[i].source, &validation[i]);
    }
    if (!s) s = compare_sources(train, out);
    if (!s && !out->length && validation[0].source && validation[1].source) s = compare_sources(validation, out);
    for (int i = 0; i < 2; i++) close_side(&validation[i]), close_side(&train[i]);
    return s;
}
