/* table: the memory of a table and of the buffers it reads with. Rows that fit into memory are read once, in large
 * chunks (table_load.c), and then only copied; other rows are read for each batch (table_batch.c). All values pass the
 * same checks when they are converted from the doubles of a format to float32 and int64 (table_values.c). */
#include <stdlib.h>

#include "base/system/thread.h"
#include "data/rows/table_internal.h"

#define CHUNK_BYTES ((size_t)4 << 20)

status table_alloc_chunk(struct table *table) {
    size_t raw_size = table->preparation ? table->source->input_size : 0;
    size_t widest = table->input_size > table->target_size ? table->input_size : table->target_size;
    void *chunk, *raw;
    buffer_free(table->chunk);
    buffer_free(table->raw);
    table->chunk = table->raw = NULL;
    size_t largest = widest > raw_size ? widest : raw_size;
    table->chunk_rows = CHUNK_BYTES / sizeof(double) / (largest > 0 ? largest : 1);
    if (table->chunk_rows < 1) table->chunk_rows = 1;
    if (table->chunk_rows > table->rows)
        table->chunk_rows = table->rows; /* with 0 rows the sizes of a header are not checked */
    TRY(rows_alloc(table->chunk_rows * widest, sizeof(double), "rows of the dataset", &chunk));
    table->chunk = chunk;
    if (!raw_size) return OK;
    TRY(rows_alloc(table->chunk_rows * raw_size, sizeof(double), "rows of the dataset", &raw));
    table->raw = raw;
    return OK;
}

static status start_workers(struct table *table) {
    void *decoded;
    TRY(rows_alloc(table->source->threads, table->input_size, "decoded rows", &decoded));
    table->decoded = decoded;
    return workers_create(table->source->threads, "decoder", &table->workers);
}

status table_create(struct source *source, enum target_kind target_kind, const struct scaler *scaler,
                    struct table *table) {
    *table = (struct table){.source = source,
                            .scaler = scaler,
                            .rows = source->rows,
                            .input_size = source->input_size,
                            .target_size = source->target_size,
                            .target_kind = target_kind};
    if (source->input_kind == INPUT_TOKENS) return OK;
    TRY(table_alloc_chunk(table));
    return source->format->decode ? start_workers(table) : OK;
}

void table_release_source(struct table *table) {
    workers_destroy(table->workers);
    buffer_free(table->decoded);
    table->workers = NULL;
    table->decoded = NULL;
    if (table->source) table->source->format->close(table->source);
    buffer_free(table->chunk);
    buffer_free(table->raw);
    table->raw = NULL;
    table->source = NULL;
    table->chunk = NULL;
}

void table_free(struct table *table) {
    table_release_source(table);
    buffer_free(table->inputs);
    buffer_free(table->exact);
    buffer_free(table->bytes);
    buffer_free(table->targets);
    buffer_free(table->file_targets);
    buffer_free(table->weights);
    byte_table_free(&table->values);
    free(table->order);
    *table = (struct table){0};
}

double table_bytes(const struct table *table) {
    double size = table->source->is_bytes ? 1 : sizeof(float);
    return (double)table->rows * ((double)table->input_size * size + (double)table_target_bytes(table));
}

double table_file_target_bytes(const struct table *table) {
    return table->target_scale ? (double)table->rows * (double)(table->target_size * sizeof *table->file_targets) : 0;
}
