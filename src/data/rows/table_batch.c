/* table_batch: reads the rows of a batch: copies of rows in memory, or rows of the file sorted by their position in it,
 * adjacent ones with one read. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/system/thread.h"
#include "data/rows/table_internal.h"

struct pick {
    int64_t row;  /* of the file */
    size_t index; /* in the batch */
};

static int by_row(const void *left, const void *right) {
    const struct pick *a = left, *b = right;
    if (a->row != b->row) return a->row < b->row ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

/* Sets table->order to the rows of a batch, sorted. */
static status sort_rows(struct table *table, const struct selection *rows, const int64_t *positions, size_t count) {
    if (count > table->order_capacity) {
        struct pick *order = realloc(table->order, count * sizeof *order);
        if (!order) return status_memory("the order of %zu rows", count);
        table->order = order;
        table->order_capacity = count;
    }
    for (size_t i = 0; i < count; i++)
        table->order[i] = (struct pick){(int64_t)selection_row(rows, positions ? (size_t)positions[i] : i), i};
    qsort(table->order, count, sizeof *table->order, by_row);
    return OK;
}

/* The number of entries of order from [at] on that are adjacent in the file and fit into a chunk; *rows: the rows from
 * the first to the last of them. */
static size_t run_at(const struct table *table, size_t at, size_t count, size_t *rows) {
    const struct pick *order = table->order;
    size_t end = at + 1;
    while (end < count && order[end].row - order[end - 1].row <= 1 &&
           (size_t)(order[end].row - order[at].row) < table->chunk_rows)
        end++;
    *rows = (size_t)(order[end - 1].row - order[at].row) + 1;
    return end - at;
}

/* An unscaled row in memory as doubles. */
static const double *raw_row(const struct table *table, size_t row) {
    size_t size = table->input_size, first = row * size;
    if (table->exact) return table->exact + first;
    double divide = table->source->divide;
    for (size_t i = 0; i < size; i++)
        table->chunk[i] = table->bytes ? (double)table->bytes[first + i] / divide : (double)table->inputs[first + i];
    return table->chunk;
}

status table_each(struct table *table, const struct selection *rows, size_t count,
                  void (*visit)(void *, const double *), void *context) {
    size_t size = table->input_size;
    if (table->targets) {
        for (size_t i = 0; i < count; i++) visit(context, raw_row(table, selection_row(rows, i)));
        return OK;
    }
    TRY(sort_rows(table, rows, NULL, count));
    for (size_t i = 0, run, run_rows; i < count; i += run) {
        run = run_at(table, i, count, &run_rows);
        TRY(table_read_inputs(table, (size_t)table->order[i].row, run_rows));
        for (size_t k = i; k < i + run; k++)
            visit(context, table->chunk + (size_t)(table->order[k].row - table->order[i].row) * size);
    }
    free(table->order); /* batches need less */
    table->order = NULL;
    table->order_capacity = 0;
    return OK;
}

/* Reads the row of each of [run] picks to its place in the batch; read_inputs reports a row that is not finite. */
static status read_floats(struct table *table, const struct pick *order, size_t run, float *inputs) {
    for (size_t k = 0; k < run; k++) {
        size_t row = (size_t)order[k].row;
        bool is_finite;
        TRY(table_read_floats(table, row, inputs + order[k].index * table->input_size, &is_finite));
        if (!is_finite) TRY(table_read_inputs(table, row, 1));
    }
    return OK;
}

/* Reads [rows] adjacent rows of the file, which include order[0 .. run - 1]. */
static status read_run(struct table *table, const struct pick *order, size_t run, size_t rows, float *inputs,
                       void *targets) {
    size_t first = (size_t)order[0].row, size = table->input_size, bytes = table_target_bytes(table);
    struct source *source = table->source;
    const uint8_t *images = (const uint8_t *)table->chunk;
    bool has_floats = table_has_floats(table);
    if (has_floats)
        TRY(read_floats(table, order, run, inputs));
    else
        TRY(source->is_bytes ? table_read_bytes(table, first, rows, (uint8_t *)table->chunk)
                             : table_read_inputs(table, first, rows));
    for (size_t k = 0; k < run && !has_floats; k++) {
        size_t row = (size_t)order[k].row;
        float *out = inputs + order[k].index * size;
        if (source->is_bytes)
            byte_table_apply(&table->values, images + (row - first) * size, out);
        else
            TRY(table_scale_inputs(table, row, table->chunk + (row - first) * size, 1, out));
    }
    TRY(table_read_targets(table, first, rows));
    for (size_t k = 0; k < run; k++) {
        size_t row = (size_t)order[k].row;
        const double *values = table->chunk + (row - first) * table->target_size;
        TRY(table_convert_targets(table, row, values, 1, (char *)targets + order[k].index * bytes));
    }
    return OK;
}

static void copy_row(const struct table *table, size_t row, void *inputs, void *targets) {
    size_t input_bytes = table->input_size * sizeof(float), bytes = table_target_bytes(table);
    if (table->bytes)
        byte_table_apply(&table->values, table->bytes + row * table->input_size, inputs);
    else
        memcpy(inputs, (const char *)table->inputs + row * input_bytes, input_bytes);
    const char *target = (const char *)table->targets + row * bytes;
    if (bytes == sizeof(int64_t)) /* one class: without a call */
        memcpy(targets, target, sizeof(int64_t));
    else
        memcpy(targets, target, bytes);
}

/* Reads one row of a batch. */
static status read_row(const struct table *table, size_t row, void *inputs, void *targets) {
    assert(row < table->rows);
    if (!table->targets) return table->source->format->read_tokens(table->source, row, inputs, targets);
    copy_row(table, row, inputs, targets);
    return OK;
}

/* A batch whose rows workers decode. */
struct decoded_batch {
    const struct table *table;
    const struct selection *rows;
    const int64_t *positions;
    float *inputs;
};

static status decode_position(void *context, size_t index, size_t worker) {
    const struct decoded_batch *batch = context;
    const struct table *table = batch->table;
    size_t size = table->input_size, row = selection_row(batch->rows, (size_t)batch->positions[index]);
    uint8_t *bytes = table->decoded + worker * size;
    TRY(table->source->format->decode(table->source, row, worker, bytes));
    byte_table_apply(&table->values, bytes, batch->inputs + index * size);
    return OK;
}

static status decode_rows(struct table *table, const struct selection *rows, const int64_t *positions, size_t count,
                          float *inputs, char *targets) {
    struct decoded_batch batch = {table, rows, positions, inputs};
    TRY(workers_run(table->workers, count, decode_position, &batch));
    for (size_t i = 0; i < count; i++) {
        size_t row = selection_row(rows, (size_t)positions[i]);
        TRY(table_read_targets(table, row, 1));
        TRY(table_convert_targets(table, row, table->chunk, 1, targets + i * table_target_bytes(table)));
    }
    return OK;
}

void table_will_read(struct table *table, const struct selection *rows, const int64_t *positions, size_t count) {
    if (!table->source || !table->source->format->will_read) return;
    status s = sort_rows(table, rows, positions, count);
    for (size_t i = 0; !s && i < count; i++)
        table->source->format->will_read(table->source, (size_t)table->order[i].row);
    status_free(s); /* without memory for the order table_read fails, too */
}

status table_read(struct table *table, const struct selection *rows, const int64_t *positions, size_t count,
                  void *inputs, void *targets) {
    if (table->targets || table->source->input_kind == INPUT_TOKENS) {
        for (size_t i = 0; i < count; i++)
            TRY(read_row(table, selection_row(rows, (size_t)positions[i]),
                         (char *)inputs + i * table->input_size * sizeof(float),
                         (char *)targets + i * table_target_bytes(table)));
        return OK;
    }
    if (table->workers && table->source->is_bytes) return decode_rows(table, rows, positions, count, inputs, targets);
    TRY(sort_rows(table, rows, positions, count));
    for (size_t i = 0, run, run_rows; i < count; i += run) {
        run = run_at(table, i, count, &run_rows);
        TRY(read_run(table, table->order + i, run, run_rows, inputs, targets));
    }
    return OK;
}
