/* The preparation of a table's columns as nodes of ONNX: an input for each column, text for categories, double for the
 * others; dates are given as their parts, because ONNX cannot read texts. */
#include <string.h>

#include "data/csv/csv.h"
#include "export/onnx_graph.h"

static const char *doubles(struct onnx_graph *g, const double *values, size_t count) {
    return onnx_tensor(g, NULL, ONNX_DOUBLE, values, 2, (const int64_t[]){1, (int64_t)count});
}

/* Numbers and the parts of a date. */
static const char *numbers(struct onnx_graph *g, const struct prepared_column *column, const char *x,
                           const char *is_missing, size_t count) {
    return column->missing == MISSING_ERROR ? x : onnx_where(g, is_missing, doubles(g, column->fill, count), x);
}

/* (batch, categories) */
static const char *is_category(struct onnx_graph *g, const struct prepared_column *column, const char *x) {
    size_t count = column->categories.count;
    if (!column->are_numbers) return onnx_node2(g, "Equal", x, onnx_string_tensor(g, &column->categories));
    double *values = arena_alloc(g->arena, (count + 1) * sizeof *values);
    for (size_t i = 0; i < count; i++) csv_number(column->categories.items[i], &values[i]);
    return onnx_node2(g, "Equal", x, doubles(g, values, count));
}

static const char *category(struct onnx_graph *g, const struct prepared_column *column, const char *x,
                            const char *is_missing) {
    size_t count = column->categories.count;
    double *values = arena_alloc(g->arena, (count + 1) * sizeof *values);
    const double one = 1;
    const char *y = onnx_cast(g, is_category(g, column, x), ONNX_DOUBLE);
    for (size_t i = 0; i < count; i++) values[i] = column->fill[0] == (double)i ? 1 : 0;
    if (column->missing != MISSING_ERROR && column->fill[0] >= 0)
        y = onnx_where(g, is_missing, doubles(g, values, count), y);
    if (column->encoding == ENCODING_ONE_HOT) return y;
    for (size_t i = 0; i < count; i++) values[i] = (double)i + 1;
    y = onnx_node2(g, "Mul", y, doubles(g, values, count));
    y = onnx_node2(g, "ReduceSum", y, onnx_numbers(g, (const int64_t[]){1}, 1));
    if (column->encoding == ENCODING_EMBEDDING) return y;
    return onnx_node2(g, "Sub", y, onnx_tensor(g, NULL, ONNX_DOUBLE, &one, 0, NULL));
}

static const char *column_features(struct onnx_graph *g, const struct prepared_column *column, struct text *inputs) {
    static const char *nothing[] = {""};
    bool is_text = column->type == COLUMN_CATEGORY && !column->are_numbers;
    size_t width = column->type == COLUMN_DATE ? column->part_count : 1;
    const int64_t size = (int64_t)width;
    const char *x = onnx_input_name(g, "column", column->name);
    onnx_value(inputs, 11, x, is_text ? ONNX_STRING : ONNX_DOUBLE, 1, &size);
    const char *is_missing = is_text
                                 ? onnx_node2(g, "Equal", x, onnx_string_tensor(g, &(struct string_list){nothing, 1}))
                                 : onnx_node1(g, "IsNaN", x, NULL);
    const char *parts[2] = {column->type == COLUMN_CATEGORY ? category(g, column, x, is_missing)
                                                            : numbers(g, column, x, is_missing, width)};
    if (!column->has_indicator) return parts[0];
    parts[1] = onnx_cast(g, width > 1 ? onnx_slice(g, is_missing, 1, 0, 1) : is_missing, ONNX_DOUBLE);
    return onnx_concat_columns(g, parts, 2);
}

const char *onnx_preparation(struct onnx_graph *g, struct text *inputs) {
    const struct preparation *p = g->m->preparation;
    const char **parts = arena_alloc(g->arena, (p->count + 1) * sizeof *parts);
    for (size_t i = 0; i < p->count; i++) parts[i] = column_features(g, &p->items[i], inputs);
    return onnx_concat_columns(g, parts, p->count);
}
