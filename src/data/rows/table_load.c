/* table_load: reads all rows into memory, and scales them there. */
#include <assert.h>
#include <string.h>

#include "data/rows/table_internal.h"

static status load_bytes(struct table *table, struct digest *digest) {
    size_t size = table->input_size;
    void *memory;
    TRY(rows_alloc(table->rows, size, "the inputs of the dataset", &memory));
    table->bytes = memory;
    for (size_t row = 0, count; row < table->rows; row += count) {
        count = table_byte_chunk_at(table, row);
        TRY(table_read_bytes(table, row, count, table->bytes + row * size));
        if (digest) digest_add(digest, table->bytes + row * size, count * size);
    }
    return OK;
}

static status load_inputs(struct table *table, struct digest *digest) {
    bool is_exact = table->is_raw && !table_is_float32(table->source);
    void *memory;
    if (table->source->is_bytes) return load_bytes(table, digest);
    TRY(rows_alloc(table->rows, table->input_size * (is_exact ? sizeof(double) : sizeof(float)),
                   "the inputs of the dataset", &memory));
    assert(memory);
    if (is_exact)
        table->exact = memory;
    else
        table->inputs = memory;
    size_t size = table->input_size;
    for (size_t row = 0, count; row < table->rows; row += count) {
        count = table_chunk_at(table, row);
        TRY(table_read_inputs(table, row, count));
        if (digest) table_digest_chunk(table, count * size, digest);
        if (is_exact)
            memcpy(table->exact + row * size, table->chunk, count * size * sizeof(double));
        else if (table->is_raw)
            for (size_t i = 0; i < count * size; i++) table->inputs[row * size + i] = (float)table->chunk[i];
        else
            TRY(table_scale_inputs(table, row, table->chunk, count, table->inputs + row * size));
    }
    return OK;
}

/* ---- targets ---- */

static status alloc_file_targets(struct table *table) {
    void *memory;
    TRY(rows_alloc(table->rows, table->target_size * sizeof *table->file_targets, "the unscaled targets of the dataset",
                   &memory));
    table->file_targets = memory;
    return OK;
}

status table_read_file_targets(struct table *table, size_t first, size_t count, double *targets) {
    size_t size = table->target_size;
    if (table->file_targets) {
        memcpy(targets, table->file_targets + first * size, count * size * sizeof *targets);
        return OK;
    }
    for (size_t i = 0; i < count; i++) {
        TRY(table_read_targets(table, first + i, 1));
        memcpy(targets + i * size, table->chunk, size * sizeof *targets);
    }
    return OK;
}

status table_load(struct table *table, bool needs_fit, struct digest *digest) {
    table->is_raw = needs_fit;
    TRY(load_inputs(table, digest));
    TRY(rows_alloc(table->rows, table_target_bytes(table), "the targets of the dataset", &table->targets));
    if (table->target_scale) TRY(alloc_file_targets(table));
    for (size_t row = 0, count; row < table->rows; row += count) {
        count = table_chunk_at(table, row);
        TRY(table_read_targets(table, row, count));
        if (digest) digest_add(digest, table->chunk, count * table->target_size * sizeof(double));
        if (table->file_targets)
            memcpy(table->file_targets + row * table->target_size, table->chunk,
                   count * table->target_size * sizeof *table->file_targets);
        TRY(table_convert_targets(table, row, table->chunk, count,
                                  (char *)table->targets + row * table_target_bytes(table)));
    }
    return OK;
}

status table_finish(struct table *table) {
    const struct source *source = table->source;
    size_t size = table->input_size;
    if (source->is_bytes) TRY(byte_table_create(table->scaler, source->divide, size, &table->values));
    if (!table->targets) return OK;
    if (table->exact) {
        void *inputs;
        TRY(rows_alloc(table->rows, size * sizeof(float), "the inputs of the dataset", &inputs));
        table->inputs = inputs;
    }
    for (size_t row = 0; row < table->rows && table->is_raw && !table->bytes; row++) {
        const double *values = table->exact ? table->exact + row * size : table->chunk;
        for (size_t i = 0; i < size && !table->exact; i++) table->chunk[i] = (double)table->inputs[row * size + i];
        TRY(table_scale_inputs(table, row, values, 1, table->inputs + row * size));
    }
    table->is_raw = false;
    buffer_free(table->exact);
    table->exact = NULL;
    table_release_source(table);
    return OK;
}
