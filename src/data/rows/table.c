/* Rows that fit into memory are read once, in large chunks, and then only copied. Other rows are read for each batch,
 * sorted by their position in the file, adjacent rows with one read. All values pass the same checks when they are
 * converted from the doubles of a format to float32 and int64. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/workers.h"
#include "data/internal.h"

#define CHUNK_BYTES ((size_t)4 << 20)
#define SAMPLED_ROWS 64
#define MAX_CLASSES 2147483647.0

struct pick {
    int64_t row;  /* of the file */
    size_t index; /* in the batch */
};

status rows_alloc(size_t count, size_t size, const char *what, void **out) {
    *out = NULL;
    if (size != 0 && count > PTRDIFF_MAX / size)
        return status_memory("%s: %zu times %zu bytes are more than any machine has", what, count, size);
    return buffer_new(count * size, what, out);
}

static size_t target_bytes(const struct table *table) {
    return table->target_size * (table->target_kind == TARGET_CLASS ? sizeof(int64_t) : sizeof(float));
}

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

static void release_source(struct table *table) {
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
    release_source(table);
    buffer_free(table->inputs);
    buffer_free(table->exact);
    buffer_free(table->bytes);
    buffer_free(table->targets);
    buffer_free(table->weights);
    byte_table_free(&table->values);
    free(table->order);
    *table = (struct table){0};
}

double table_bytes(const struct table *table) {
    double size = table->source->is_bytes ? 1 : sizeof(float);
    return (double)table->rows * ((double)table->input_size * size + (double)target_bytes(table));
}

/* The number of rows of the chunk that starts at [row]. */
static size_t chunk_at(const struct table *table, size_t row) {
    return table->rows - row < table->chunk_rows ? table->rows - row : table->chunk_rows;
}

/* ---- checks ---- */

/* "<place>: <value> <sentence>" */
static status reject(const struct table *table, bool is_target, size_t row, size_t element, double value,
                     const char *sentence) {
    struct text place = {0};
    if (table->preparation && !is_target) element = preparation_column_of(table->preparation, element);
    table->source->format->describe(table->source, is_target, row, element, &place);
    text_add(&place, ": ");
    if (isfinite(value))
        text_add_double(&place, value);
    else
        text_add(&place, isnan(value) ? "NaN" : value > 0 ? "Inf" : "-Inf");
    status s = status_new(STATUS_DATA, "%s %s", text_string(&place), sentence);
    text_free(&place);
    return s;
}

static status check_finite(const struct table *table, bool is_target, size_t first, size_t count, size_t size) {
    for (size_t i = 0; i < count * size; i++)
        if (!isfinite(table->chunk[i]))
            return reject(table, is_target, first + i / size, i % size, table->chunk[i],
                          "is not a finite number; remove the row or replace the value");
    return OK;
}

/* Reads the features of rows first .. first + count - 1, which table_prepare has checked, to table->chunk. */
static status read_features(struct table *table, size_t first, size_t count) {
    size_t raw_size = table->source->input_size;
    TRY(table->source->format->read(table->source, first, count, table->raw, NULL));
    for (size_t i = 0; i < count; i++)
        preparation_encode(table->preparation, table->maps, table->raw + i * raw_size,
                           table->chunk + i * table->input_size);
    return OK;
}

/* Reads rows first .. first + count - 1 to table->chunk. */
static status read_inputs(struct table *table, size_t first, size_t count) {
    double divide = table->source->divide;
    if (table->preparation) return read_features(table, first, count);
    TRY(table->source->format->read(table->source, first, count, table->chunk, NULL));
    for (size_t i = 0; divide != 1 && i < count * table->input_size; i++) table->chunk[i] /= divide;
    return check_finite(table, false, first, count, table->input_size);
}

/* Scales rows (count, input_size) to out (count, input_size). [first]: the row of the file that rows[0] is, for
 * messages.
 */
static status scale_inputs(const struct table *table, size_t first, const double *rows, size_t count, float *out) {
    size_t size = table->input_size;
    scaler_apply(table->scaler, rows, count, size, out);
    for (size_t i = 0; i < count * size; i++)
        if (!isfinite(out[i]))
            return reject(table, false, first + i / size, i % size, rows[i],
                          table->scaler->features ? "is too large for float32 after scaling"
                                                  : "is too large for float32");
    return OK;
}

static status read_targets(struct table *table, size_t first, size_t count) {
    if (table->target_size == 0) return OK;
    TRY(table->source->format->read(table->source, first, count, NULL, table->chunk));
    return check_finite(table, true, first, count, table->target_size);
}

static bool is_ignored(const struct table *table, double value) {
    return table->has_ignored_class && value == (double)table->ignored_class;
}

static status check_class(const struct table *table, size_t row, size_t element, double value) {
    if (is_ignored(table, value) || (value >= 0 && value == floor(value) && value <= MAX_CLASSES)) return OK;
    return reject(table, true, row, element, value, "is not a class; classes are integers from 0");
}

/* Converts targets (count, target_size) to the type of table->targets. [first]: as in scale_inputs. */
static status convert_targets(const struct table *table, size_t first, const double *targets, size_t count, void *out) {
    size_t size = table->target_size;
    int64_t *classes = out;
    float *values = out;
    for (size_t i = 0; i < count * size; i++) {
        if (table->target_kind == TARGET_CLASS) {
            TRY(check_class(table, first + i / size, i % size, targets[i]));
            classes[i] = (int64_t)targets[i];
        } else {
            double value = targets[i];
            if (table->target_scale) value = target_scale_apply(table->target_scale, i % size, value);
            values[i] = (float)value;
            if (!isfinite(values[i]))
                return reject(table, true, first + i / size, i % size, targets[i], "is too large for float32");
        }
    }
    return OK;
}

/* ---- bytes ---- */

/* A call of read_bytes that workers share. */
struct decoding {
    const struct table *table;
    size_t first;
    uint8_t *out;
};

static status decode_row(void *context, size_t index, size_t worker) {
    const struct decoding *d = context;
    struct source *source = d->table->source;
    return source->format->decode(source, d->first + index, worker, d->out + index * source->input_size);
}

/* Reads the inputs of rows first .. first + count - 1 of a source of bytes. */
static status read_bytes(struct table *table, size_t first, size_t count, uint8_t *out) {
    const struct dataset_format *format = table->source->format;
    if (!format->decode) return format->read_bytes(table->source, first, count, out);
    return workers_run(table->workers, count, decode_row, &(struct decoding){table, first, out});
}

/* Rows that read_bytes should get at once, below the bytes of table->chunk. */
static size_t byte_chunk_at(const struct table *table, size_t row) {
    size_t count = table->chunk_rows * (table->workers ? sizeof(double) : 1);
    return table->rows - row < count ? table->rows - row : count;
}

/* ---- fingerprint ---- */

static bool is_float32(const struct source *source) { return source->is_float32 && source->divide == 1; }

/* Digests values with the precision of the file: float or double. */
static void digest_chunk(const struct table *table, size_t values, struct digest *digest) {
    if (!is_float32(table->source)) {
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
        TRY(read_bytes(table, first, count, (uint8_t *)table->chunk));
        digest_add(digest, table->chunk, count * table->input_size);
        return OK;
    }
    TRY(read_inputs(table, first, count));
    digest_chunk(table, count * table->input_size, digest);
    return OK;
}

status table_sample(struct table *table, struct digest *digest) {
    size_t samples = table->rows < SAMPLED_ROWS ? table->rows : SAMPLED_ROWS;
    digest_add(digest, &table->source->file_bytes, sizeof table->source->file_bytes);
    for (size_t i = 0; i < samples; i++) {
        size_t row = samples == 1 ? 0 : (size_t)((double)(table->rows - 1) * (double)i / (double)(samples - 1));
        TRY(digest_inputs(table, row, 1, digest));
        TRY(read_targets(table, row, 1));
        digest_add(digest, table->chunk, table->target_size * sizeof(double));
    }
    return OK;
}

status table_digest(struct table *table, struct digest *digest) {
    for (size_t row = 0, count; row < table->rows; row += count) {
        count = table->source->is_bytes ? byte_chunk_at(table, row) : chunk_at(table, row);
        TRY(digest_inputs(table, row, count, digest));
    }
    for (size_t row = 0, count; row < table->rows; row += count) {
        count = chunk_at(table, row);
        TRY(read_targets(table, row, count));
        digest_add(digest, table->chunk, count * table->target_size * sizeof(double));
    }
    return OK;
}

/* ---- in memory ---- */

status table_count_classes(struct table *table, size_t begin, size_t size, int64_t *classes, int64_t *first) {
    *classes = 0;
    *first = INT64_MAX;
    for (size_t row = 0, count; row < table->rows; row += count) {
        count = chunk_at(table, row);
        TRY(read_targets(table, row, count));
        for (size_t i = 0; i < count * size; i++) {
            size_t element = begin + i % size;
            double value = table->chunk[i / size * table->target_size + element];
            TRY(check_class(table, row + i / size, element, value));
            if (is_ignored(table, value)) continue;
            if ((int64_t)value < *first) *first = (int64_t)value;
            if ((int64_t)value >= *classes) *classes = (int64_t)value + 1;
        }
    }
    return OK;
}

status table_each_target(struct table *table, target_visitor *visit, void *context) {
    for (size_t row = 0, count; row < table->rows; row += count) {
        count = chunk_at(table, row);
        TRY(read_targets(table, row, count));
        for (size_t i = 0; i < count; i++) visit(context, row + i, table->chunk + i * table->target_size);
    }
    return OK;
}

status table_check_targets(struct table *table, size_t first, size_t size, bool (*is_wrong)(double), const char *why) {
    for (size_t row = 0, count; row < table->rows; row += count) {
        count = chunk_at(table, row);
        TRY(read_targets(table, row, count));
        for (size_t i = 0; i < count * size; i++) {
            size_t element = first + i % size;
            double value = table->chunk[i / size * table->target_size + element];
            if (is_wrong(value)) return reject(table, true, row + i / size, element, value, why);
        }
    }
    return OK;
}

static bool has_no_log1p(double target) { return target <= -1; }
static bool is_no_probability(double target) { return target < 0 || target > 1; }
static bool is_no_sign(double target) { return target != 1 && target != -1; }

status table_check_log1p(struct table *table) {
    return table_check_targets(table, 0, table->target_size, has_no_log1p,
                               "has no log1p; dataset.target_scale: log1p needs targets above -1");
}

status table_check_range(struct table *table, enum target_range range, size_t first, size_t size) {
    if (range == TARGETS_ARE_SIGNS)
        return table_check_targets(table, first, size, is_no_sign,
                                   "is neither 1 nor -1; the loss needs 1 for equal pairs, -1 for different ones");
    if (range == TARGETS_ARE_PROBABILITIES)
        return table_check_targets(
            table, first, size, is_no_probability,
            "is not a probability; the loss needs targets from 0 to 1 (for classes use cross_entropy)");
    return OK;
}

status table_classes(struct table *table, int64_t *classes) {
    if (table->targets) {
        memcpy(classes, table->targets, table->rows * sizeof *classes);
        return OK;
    }
    for (size_t row = 0, count; row < table->rows; row += count) {
        count = chunk_at(table, row);
        TRY(read_targets(table, row, count));
        TRY(convert_targets(table, row, table->chunk, count, classes + row));
    }
    return OK;
}

static status load_bytes(struct table *table, struct digest *digest) {
    size_t size = table->input_size;
    void *memory;
    TRY(rows_alloc(table->rows, size, "the inputs of the dataset", &memory));
    table->bytes = memory;
    for (size_t row = 0, count; row < table->rows; row += count) {
        count = byte_chunk_at(table, row);
        TRY(read_bytes(table, row, count, table->bytes + row * size));
        if (digest) digest_add(digest, table->bytes + row * size, count * size);
    }
    return OK;
}

static status load_inputs(struct table *table, struct digest *digest) {
    bool is_exact = table->is_raw && !is_float32(table->source);
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
        count = chunk_at(table, row);
        TRY(read_inputs(table, row, count));
        if (digest) digest_chunk(table, count * size, digest);
        if (is_exact)
            memcpy(table->exact + row * size, table->chunk, count * size * sizeof(double));
        else if (table->is_raw)
            for (size_t i = 0; i < count * size; i++) table->inputs[row * size + i] = (float)table->chunk[i];
        else
            TRY(scale_inputs(table, row, table->chunk, count, table->inputs + row * size));
    }
    return OK;
}

status table_load(struct table *table, bool needs_fit, struct digest *digest) {
    table->is_raw = needs_fit;
    TRY(load_inputs(table, digest));
    TRY(rows_alloc(table->rows, target_bytes(table), "the targets of the dataset", &table->targets));
    for (size_t row = 0, count; row < table->rows; row += count) {
        count = chunk_at(table, row);
        TRY(read_targets(table, row, count));
        if (digest) digest_add(digest, table->chunk, count * table->target_size * sizeof(double));
        TRY(convert_targets(table, row, table->chunk, count, (char *)table->targets + row * target_bytes(table)));
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
        TRY(scale_inputs(table, row, values, 1, table->inputs + row * size));
    }
    table->is_raw = false;
    buffer_free(table->exact);
    table->exact = NULL;
    release_source(table);
    return OK;
}

/* ---- reading ---- */

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
        TRY(read_inputs(table, (size_t)table->order[i].row, run_rows));
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
        if (!is_finite) TRY(read_inputs(table, row, 1));
    }
    return OK;
}

/* Reads [rows] adjacent rows of the file, which include order[0 .. run - 1]. */
static status read_run(struct table *table, const struct pick *order, size_t run, size_t rows, float *inputs,
                       void *targets) {
    size_t first = (size_t)order[0].row, size = table->input_size, bytes = target_bytes(table);
    struct source *source = table->source;
    const uint8_t *images = (const uint8_t *)table->chunk;
    bool has_floats = table_has_floats(table);
    if (has_floats)
        TRY(read_floats(table, order, run, inputs));
    else
        TRY(source->is_bytes ? read_bytes(table, first, rows, (uint8_t *)table->chunk)
                             : read_inputs(table, first, rows));
    for (size_t k = 0; k < run && !has_floats; k++) {
        size_t row = (size_t)order[k].row;
        float *out = inputs + order[k].index * size;
        if (source->is_bytes)
            byte_table_apply(&table->values, images + (row - first) * size, out);
        else
            TRY(scale_inputs(table, row, table->chunk + (row - first) * size, 1, out));
    }
    TRY(read_targets(table, first, rows));
    for (size_t k = 0; k < run; k++) {
        size_t row = (size_t)order[k].row;
        const double *values = table->chunk + (row - first) * table->target_size;
        TRY(convert_targets(table, row, values, 1, (char *)targets + order[k].index * bytes));
    }
    return OK;
}

static void copy_row(const struct table *table, size_t row, void *inputs, void *targets) {
    size_t input_bytes = table->input_size * sizeof(float), bytes = target_bytes(table);
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
        TRY(read_targets(table, row, 1));
        TRY(convert_targets(table, row, table->chunk, 1, targets + i * target_bytes(table)));
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
                         (char *)targets + i * target_bytes(table)));
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
