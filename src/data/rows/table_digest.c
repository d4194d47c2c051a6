/* table_digest: the fingerprint of the rows. */
#include "data/rows/table_internal.h"

#define SAMPLED_ROWS 64

void table_digest_chunk(const struct table *table, size_t values, struct digest *digest) {
    if (!table_is_float32(table->source)) {
        digest_add(digest, table->chunk, values * sizeof(double));
        return;
    }
    float floats[1024];
    for (size_t i = 0; i < values;) {
        size_t n = 0;
        while (n < 1024 && i < values) floats[n++] = (float)table->chunk[i++];
        digest_add(digest, floats, n * sizeof(float));
    }
}

/* Digests the inputs of rows first .. first + count - 1; bytes as bytes. */
static status digest_inputs(struct table *table, size_t first, size_t count, struct digest *digest) {
    struct source *source = table->source;
    if (source->is_bytes) {
        TRY(table_read_bytes(table, first, count, (uint8_t *)table->chunk));
        digest_add(digest, table->chunk, count * table->input_size);
        return OK;
    }
    TRY(table_read_inputs(table, first, count));
    table_digest_chunk(table, count * table->input_size, digest);
    return OK;
}

status table_sample(struct table *table, struct digest *digest) {
    size_t samples = table->rows < SAMPLED_ROWS ? table->rows : SAMPLED_ROWS;
    digest_add(digest, &table->source->file_bytes, sizeof table->source->file_bytes);
    for (size_t i = 0; i < samples; i++) {
        size_t row = samples == 1 ? 0 : (size_t)((double)(table->rows - 1) * (double)i / (double)(samples - 1));
        TRY(digest_inputs(table, row, 1, digest));
        TRY(table_read_targets(table, row, 1));
        digest_add(digest, table->chunk, table->target_size * sizeof(double));
    }
    return OK;
}

status table_digest(struct table *table, struct digest *digest) {
    for (size_t row = 0, count; row < table->rows; row += count) {
        count = table->source->is_bytes ? table_byte_chunk_at(table, row) : table_chunk_at(table, row);
        TRY(digest_inputs(table, row, count, digest));
    }
    for (size_t row = 0, count; row < table->rows; row += count) {
        count = table_chunk_at(table, row);
        TRY(table_read_targets(table, row, count));
        digest_add(digest, table->chunk, count * table->target_size * sizeof(double));
    }
    return OK;
}
