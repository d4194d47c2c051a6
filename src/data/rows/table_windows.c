/* table_windows: reads windows of adjacent rows. A row is stored once, however many windows have it. */
#include <string.h>

#include "data/rows/table_internal.h"

/* The inputs of rows first .. first + count - 1 of the file, which fit into a chunk. */
static status read_chunk(struct table *table, size_t first, size_t count, float *out) {
    size_t size = table->input_size;
    if (!table->source->is_bytes) {
        TRY(table_read_inputs(table, first, count));
        return table_scale_inputs(table, first, table->chunk, count, out);
    }
    const uint8_t *bytes = (const uint8_t *)table->chunk;
    TRY(table_read_bytes(table, first, count, (uint8_t *)table->chunk));
    for (size_t i = 0; i < count; i++) byte_table_apply(&table->values, bytes + i * size, out + i * size);
    return OK;
}

static status read_inputs(struct table *table, size_t first, size_t count, float *out) {
    size_t size = table->input_size;
    if (table->inputs) {
        memcpy(out, table->inputs + first * size, count * size * sizeof *out);
        return OK;
    }
    for (size_t i = 0; table->bytes && i < count; i++)
        byte_table_apply(&table->values, table->bytes + (first + i) * size, out + i * size);
    for (size_t done = 0, n; !table->bytes && done < count; done += n) {
        n = count - done < table->chunk_rows ? count - done : table->chunk_rows;
        TRY(read_chunk(table, first + done, n, out + done * size));
    }
    return OK;
}

static status read_targets(struct table *table, size_t first, size_t count, char *out) {
    size_t bytes = table_target_bytes(table);
    if (bytes == 0) return OK;
    if (table->targets) {
        memcpy(out, (const char *)table->targets + first * bytes, count * bytes);
        return OK;
    }
    for (size_t i = 0; i < count; i++) {
        TRY(table_read_targets(table, first + i, 1));
        TRY(table_convert_targets(table, first + i, table->chunk, 1, out + i * bytes));
    }
    return OK;
}

status table_read_windows(struct table *table, const struct dataset_windows *windows, const struct selection *rows,
                          const int64_t *positions, size_t count, float *inputs, void *targets) {
    size_t input_size = windows->steps * table->input_size;
    size_t target_bytes = windows->target_steps * table_target_bytes(table);
    for (size_t i = 0; i < count; i++) {
        size_t first = selection_row(rows, (size_t)positions[i]);
        TRY(read_inputs(table, first, windows->steps, inputs + i * input_size));
        TRY(read_targets(table, first + windows->first_target, windows->target_steps,
                         (char *)targets + i * target_bytes));
    }
    return OK;
}
