/* table_internal: what the files of a table share: chunks of rows, read, checked and converted. */
#ifndef DATA_TABLE_INTERNAL_H
#define DATA_TABLE_INTERNAL_H

#include "data/rows/table.h"

/* Bytes of a row of table->targets. */
static inline size_t table_target_bytes(const struct table *table) {
    return table->target_size * (table->target_kind == TARGET_CLASS ? sizeof(int64_t) : sizeof(float));
}

/* The number of rows of the chunk that starts at [row]. */
static inline size_t table_chunk_at(const struct table *table, size_t row) {
    return table->rows - row < table->chunk_rows ? table->rows - row : table->chunk_rows;
}

/* Rows that table_read_bytes should get at once, below the bytes of table->chunk. */
size_t table_byte_chunk_at(const struct table *table, size_t row);

/* Whether float32 holds each input exactly. */
static inline bool table_is_float32(const struct source *source) { return source->is_float32 && source->divide == 1; }

/* STATUS_DATA: "<place>: <value> <sentence>" */
status table_reject(const struct table *table, bool is_target, size_t row, size_t element, double value,
                    const char *sentence);

/* Reads the inputs, or the targets, of rows first .. first + count - 1 to table->chunk. STATUS_DATA with the place of a
 * value that is not finite. */
status table_read_inputs(struct table *table, size_t first, size_t count);
status table_read_targets(struct table *table, size_t first, size_t count);

/* Reads the inputs of the same rows of a source of bytes to out (count, input_size). */
status table_read_bytes(struct table *table, size_t first, size_t count, uint8_t *out);

/* Scales rows (count, input_size) to out (count, input_size). [first]: the row of the file that rows[0] is, for
 * messages. */
status table_scale_inputs(const struct table *table, size_t first, const double *rows, size_t count, float *out);

/* Converts targets (count, target_size) to the type of table->targets. [first]: as in table_scale_inputs. */
status table_convert_targets(const struct table *table, size_t first, const double *targets, size_t count, void *out);

/* Whether [value] is the class that the loss ignores. */
bool table_is_ignored(const struct table *table, double value);

/* STATUS_DATA with the place unless [value] is a class, or ignored. */
status table_check_class(const struct table *table, size_t row, size_t element, double value);

/* Digests the first [values] of table->chunk with the precision of the file: float or double. */
void table_digest_chunk(const struct table *table, size_t values, struct digest *digest);

/* Closes the source and frees the buffers it is read with. */
void table_release_source(struct table *table);

#endif
