/* The rows of a table, and the buffers it reads with. Rows that fit into memory are read once, in large chunks, and
 * then only copied; other rows are read for each batch. All values pass the same checks when they are converted from
 * the doubles of a format to float32 and int64. */
#include "data/rows/table.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/digest.h"
#include "base/scoped.h"
#include "base/system/thread.h"

/* Bytes of a row of table->targets. */
static inline size_t table_target_bytes(const struct table *table) {
    return table->target_size * (table->target_kind == TARGET_CLASS ? sizeof(int64_t) : sizeof(float));
}

/* The number of rows of the chunk that starts at [row]. */
static inline size_t table_chunk_at(const struct table *table, size_t row) {
    return table->rows - row < table->chunk_rows ? table->rows - row : table->chunk_rows;
}

/* Whether float32 holds each input exactly. */
static inline bool table_is_float32(const struct source *source) { return source->is_float32 && source->divide == 1; }

/* ---- memory ---- */

#define CHUNK_BYTES ((size_t)4 << 20)

/* Allocates the read buffers for the input_size, the target_size and the preparation of the table. */
static status table_alloc_chunk(struct table *table) {
    size_t raw_size = table->preparation ? table->source->input_size : 0;
    size_t widest = table->input_size > table->target_size ? table->input_size : table->target_size;
    buffer_free(table->chunk);
    buffer_free(table->raw);
    table->chunk = table->raw = NULL;
    size_t largest = widest > raw_size ? widest : raw_size;
    table->chunk_rows = CHUNK_BYTES / sizeof(double) / (largest > 0 ? largest : 1);
    if (table->chunk_rows < 1) table->chunk_rows = 1;
    if (table->chunk_rows > table->rows)
        table->chunk_rows = table->rows; /* with 0 rows the sizes of a header are not checked */
    TRY(rows_alloc(table->chunk_rows * widest, sizeof(double), "rows of the dataset", &table->chunk));
    if (!raw_size) return OK;
    TRY(rows_alloc(table->chunk_rows * raw_size, sizeof(double), "rows of the dataset", &table->raw));
    return OK;
}

static status start_workers(struct table *table) {
    TRY(rows_alloc(table->source->threads, table->input_size, "decoded rows", &table->decoded));
    return workers_create(table->source->threads, "decoder", &table->workers);
}

status table_create(struct source *source, enum target_kind target_kind, const struct scaler *scaler,
                    struct table *table) {
    *table = (struct table){.source = source,
                            .scaler = scaler,
                            .rows = source->rows,
                            .input_size = source->input_size,
                            .stored_size = source->input_size,
                            .target_size = source->target_size,
                            .target_kind = target_kind};
    if (source->input_kind == INPUT_TOKENS) return OK;
    TRY(table_alloc_chunk(table));
    return source->format->decode ? start_workers(table) : OK;
}

/* Closes the source and frees the buffers it is read with. */
static void table_release_source(struct table *table) {
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
    buffer_free(table->group);
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

double table_memory_bytes(const struct table *table) {
    double unused = (double)(table->input_size - table->stored_size) * sizeof(float);
    return table_bytes(table) - (double)table->rows * unused;
}

double table_file_target_bytes(const struct table *table) {
    return table->target_scale ? (double)table->rows * (double)(table->target_size * sizeof *table->file_targets) : 0;
}

/* ---- reading ---- */

/* Chunks of rows are read and converted from the doubles of a format to float32 and int64. */

#define MAX_CLASSES 2147483647.0

/* STATUS_DATA: "<place>: <value> <sentence>" */
static status table_reject(const struct table *table, bool is_target, size_t row, size_t element, double value,
                           const char *sentence) {
    SCOPED_TEXT place = {0};
    if (table->preparation && !is_target) element = preparation_column_of(table->preparation, element);
    table->source->format->describe(table->source, is_target ? ROW_TARGET : ROW_INPUT, row, element, &place);
    text_add(&place, ": ");
    if (isfinite(value))
        text_add_double(&place, value);
    else
        text_add(&place, isnan(value) ? "NaN" : value > 0 ? "Inf" : "-Inf");
    return status_data("%s %s", text_string(&place), sentence);
}

static status check_finite(const struct table *table, bool is_target, size_t first, const double *values, size_t count,
                           size_t size) {
    for (size_t i = 0; i < count * size; i++)
        if (!isfinite(values[i]))
            return table_reject(table, is_target, first + i / size, i % size, values[i],
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

/* Reads the inputs of rows first .. first + count - 1 to table->chunk, whatever their values are. */
static status read_unchecked(struct table *table, size_t first, size_t count) {
    double divide = table->source->divide;
    if (table->preparation) return read_features(table, first, count);
    TRY(table->source->format->read(table->source, first, count, table->chunk, NULL));
    for (size_t i = 0; divide != 1 && i < count * table->input_size; i++) table->chunk[i] /= divide;
    return OK;
}

/* Checks rows i .. i + count - 1 of a chunk that was read from row [first] on. */
static status check_inputs(const struct table *table, size_t first, size_t i, size_t count) {
    size_t size = table->input_size;
    if (table->preparation) return OK;
    return check_finite(table, false, first + i, table->chunk + i * size, count, size);
}

/* Reads the inputs, or the targets, of rows first .. first + count - 1 to table->chunk. STATUS_DATA with the place of a
 * value that is not finite. */
static status table_read_inputs(struct table *table, size_t first, size_t count) {
    TRY(read_unchecked(table, first, count));
    return check_inputs(table, first, 0, count);
}

status table_check_inputs(struct table *table, size_t row, bool (*is_wrong)(double), const char *why) {
    TRY(table_read_inputs(table, row, 1));
    for (size_t i = 0; i < table->input_size; i++)
        if (is_wrong(table->chunk[i])) return table_reject(table, false, row, i, table->chunk[i], why);
    return OK;
}

/* Scales rows (count, input_size) to out (count, input_size). [first]: the row of the file that rows[0] is, for
 * messages. */
static status table_scale_inputs(const struct table *table, size_t first, const double *rows, size_t count,
                                 float *out) {
    size_t size = table->input_size;
    scaler_apply(table->scaler, rows, count, size, out);
    for (size_t i = 0; i < count * size; i++)
        if (!isfinite(out[i]))
            return table_reject(table, false, first + i / size, i % size, rows[i],
                                table->scaler->features ? "is too large for float32 after scaling"
                                                        : "is too large for float32");
    return OK;
}

/* Whether [value] is the class that the loss ignores. */
static bool table_is_ignored(const struct table *table, double value) {
    return table->ignored.is_set && value == (double)table->ignored.value;
}

static int by_number(const void *a, const void *b) {
    double x = *(const double *)a, y = ((const struct numbered_class *)b)->number;
    return (x > y) - (x < y);
}

/* Replaces the numbers of table->chunk by the classes that they stand for. */
static status number_classes(struct table *table, size_t first, size_t count) {
    for (size_t i = 0; i < count * table->target_size; i++) {
        double *value = &table->chunk[i];
        if (table_is_ignored(table, *value)) continue;
        const struct numbered_class *class =
            bsearch(value, table->classes, table->class_count, sizeof *table->classes, by_number);
        if (!class)
            return table_reject(table, true, first + i / table->target_size, i % table->target_size, *value,
                                "is no class of the data that the model was trained with");
        *value = class->index;
    }
    return OK;
}

static status table_read_targets(struct table *table, size_t first, size_t count) {
    if (table->target_size == 0) return OK;
    TRY(table->source->format->read(table->source, first, count, NULL, table->chunk));
    TRY(check_finite(table, true, first, table->chunk, count, table->target_size));
    return table->class_count ? number_classes(table, first, count) : OK;
}

/* STATUS_DATA with the place unless [value] is a class, or ignored. */
static status table_check_class(const struct table *table, size_t row, size_t element, double value) {
    if (table_is_ignored(table, value) || (value >= 0 && value == floor(value) && value <= MAX_CLASSES)) return OK;
    SCOPED_TEXT sentence = {0};
    text_add(&sentence, "is not a class; classes are integers from 0");
    if (value > 0 && value < 1)
        text_add(&sentence, "; for targets that are probabilities of classes, let the model end in log_softmax and use "
                            "the loss {type: kl_div, reduction: batchmean}");
    if (value < 0 && table->ignored.is_set && table->ignored.key)
        text_printf(&sentence, ", and targets that do not count, such as those of padding, are %lld (%s of the loss)",
                    (long long)table->ignored.value, table->ignored.key);
    return table_reject(table, true, row, element, value, text_string(&sentence));
}

/* Converts targets (count, target_size) to the type of table->targets. [first]: as in table_scale_inputs. */
static status table_convert_targets(const struct table *table, size_t first, const double *targets, size_t count,
                                    void *out) {
    size_t size = table->target_size;
    int64_t *classes = out;
    float *values = out;
    for (size_t i = 0; i < count * size; i++) {
        if (table->target_kind == TARGET_CLASS) {
            TRY(table_check_class(table, first + i / size, i % size, targets[i]));
            classes[i] = (int64_t)targets[i];
        } else {
            double value = targets[i];
            if (table->target_scale) value = target_scale_apply(table->target_scale, i % size, value);
            values[i] = (float)value;
            if (!isfinite(values[i]))
                return table_reject(table, true, first + i / size, i % size, targets[i], "is too large for float32");
        }
    }
    return OK;
}

/* ---- bytes ---- */

/* A call of decode for several rows, which workers share. */
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

/* Reads the inputs of the same rows of a source of bytes to out (count, input_size). */
static status table_read_bytes(struct table *table, size_t first, size_t count, uint8_t *out) {
    const struct dataset_format *format = table->source->format;
    if (!format->decode) return format->read_stored(table->source, false, first, count, out);
    return workers_run(table->workers, count, decode_row, &(struct decoding){table, first, out});
}

/* Rows that table_read_bytes should get at once, below the bytes of table->chunk. */
static size_t table_byte_chunk_at(const struct table *table, size_t row) {
    size_t count = table->chunk_rows * (table->workers ? sizeof(double) : 1);
    return table->rows - row < count ? table->rows - row : count;
}

/* ---- floats ---- */

/* Inputs that are float32 in the file and are not scaled are read to the batch directly. */

#define MIN_ROW 1024 /* values; shorter rows are read together */

/* Whether table_read_floats may be called. */
static bool table_has_floats(const struct table *table) {
    const struct source *source = table->source;
    return source->has_floats && !source->is_bytes && source->divide == 1 && !table->preparation &&
           table->scaler->features == 0 && table->input_size >= MIN_ROW;
}

/* All bits of the exponent are set in infinities and NaN. */
static bool are_finite(const float *values, size_t count) {
    const uint32_t exponent = 0x7f800000;
    uint32_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        bits &= exponent;
        largest = bits > largest ? bits : largest;
    }
    return largest != exponent;
}

/* Reads the inputs of a row of the file. */
static status table_read_floats(const struct table *table, size_t row, float *inputs, bool *is_finite) {
    *is_finite = false;
    TRY(table->source->format->read_stored(table->source, true, row, 1, inputs));
    *is_finite = are_finite(inputs, table->input_size);
    return OK;
}

/* ---- fingerprints ---- */

#define SAMPLED_ROWS 64

/* Digests the first [values] of table->chunk with the precision of the file: float or double. */
static void table_digest_chunk(const struct table *table, size_t values, struct digest *digest) {
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

/* ---- targets ---- */

/* Passes over the targets of all rows: their classes, and whether a loss can take them. */

int64_t class_count_absent(const struct class_count *count) {
    for (int64_t class = count->first; class < count->classes && class < CLASS_COUNT_SEEN; class ++)
        if (!count->seen[class]) return class;
    return 0;
}

status table_count_classes(struct table *table, size_t begin, size_t size, struct class_count *out) {
    for (size_t row = 0, count; row < table->rows; row += count) {
        count = table_chunk_at(table, row);
        TRY(table_read_targets(table, row, count));
        for (size_t i = 0; i < count * size; i++) {
            size_t element = begin + i % size;
            double value = table->chunk[i / size * table->target_size + element];
            TRY(table_check_class(table, row + i / size, element, value));
            out->has_ignored |= table_is_ignored(table, value);
            if (table_is_ignored(table, value)) continue;
            int64_t class = (int64_t)value;
            if (class < out->first) out->first = class;
            if (class >= out->classes) out->classes = class + 1;
            if (class >= 0 && class < CLASS_COUNT_SEEN) out->seen[class] = true;
        }
    }
    return OK;
}

status table_each_target(struct table *table, target_visitor *visit, void *context) {
    for (size_t row = 0, count; row < table->rows; row += count) {
        count = table_chunk_at(table, row);
        TRY(table_read_targets(table, row, count));
        for (size_t i = 0; i < count; i++) visit(context, row + i, table->chunk + i * table->target_size);
    }
    return OK;
}

/* Reads all targets; STATUS_DATA with the place of the first of the values first .. first + size - 1 of a row that
 * is_wrong; [why]: the end of the sentence. */
static status table_check_targets(struct table *table, size_t first, size_t size, bool (*is_wrong)(double),
                                  const char *why) {
    for (size_t row = 0, count; row < table->rows; row += count) {
        count = table_chunk_at(table, row);
        TRY(table_read_targets(table, row, count));
        for (size_t i = 0; i < count * size; i++) {
            size_t element = first + i % size;
            double value = table->chunk[i / size * table->target_size + element];
            if (is_wrong(value)) return table_reject(table, true, row + i / size, element, value, why);
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

static bool is_no_listed_class(double target) {
    return target != floor(target) || fabs(target) > TABLE_MAX_FLOAT_CLASS;
}

static status count_listed(struct table *table, size_t first, size_t size, int64_t *classes) {
    TRY(table_check_targets(table, first, size, is_no_listed_class,
                            "is not a class; classes are integers from 0, and a negative one ends those of a row"));
    for (size_t row = 0, count; row < table->rows; row += count) {
        count = table_chunk_at(table, row);
        TRY(table_read_targets(table, row, count));
        for (size_t i = 0; i < count * size; i++) {
            double class = table->chunk[i / size * table->target_size + first + i % size];
            if (class >= (double)*classes) *classes = (int64_t) class + 1;
        }
    }
    return OK;
}

status table_check_range(struct table *table, enum target_range range, size_t first, size_t size, int64_t *classes) {
    if (range == TARGETS_ARE_CLASS_LISTS) return count_listed(table, first, size, classes);
    if (range == TARGETS_ARE_SIGNS)
        return table_check_targets(table, first, size, is_no_sign, "is neither 1 nor -1, which the loss needs");
    if (range == TARGETS_ARE_PROBABILITIES)
        return table_check_targets(
            table, first, size, is_no_probability,
            "is not a probability; the loss needs targets from 0 to 1 (for classes use cross_entropy)");
    return OK;
}

/* The source of rows in memory may be closed: then the place is only the number of the row. */
static status add_decision(const struct table *table, size_t row, double value, int64_t *classes) {
    static const char why[] = "is not one of the two classes 0 and 1";
    classes[row] = value == 1;
    if (value == 0 || value == 1) return OK;
    return table->source ? table_reject(table, true, row, 0, value, why)
                         : status_data("row %zu: the target %g %s", row, value, why);
}

/* The classes of targets that are values. */
static status decisions(struct table *table, int64_t *classes) {
    const float *loaded = table->targets;
    for (size_t row = 0; loaded && row < table->rows; row++)
        TRY(add_decision(table, row, (double)loaded[row], classes));
    for (size_t row = 0, count; !loaded && row < table->rows; row += count) {
        count = table_chunk_at(table, row);
        TRY(table_read_targets(table, row, count));
        for (size_t i = 0; i < count; i++) TRY(add_decision(table, row + i, table->chunk[i], classes));
    }
    return OK;
}

status table_classes(struct table *table, int64_t *classes) {
    if (table->target_kind != TARGET_CLASS) return decisions(table, classes);
    if (table->targets) {
        memcpy(classes, table->targets, table->rows * sizeof *classes);
        return OK;
    }
    for (size_t row = 0, count; row < table->rows; row += count) {
        count = table_chunk_at(table, row);
        TRY(table_read_targets(table, row, count));
        TRY(table_convert_targets(table, row, table->chunk, count, classes + row));
    }
    return OK;
}

/* ---- rows in memory ---- */

static status load_bytes(struct table *table, struct digest *digest) {
    size_t size = table->input_size;
    TRY(rows_alloc(table->rows, size, "the inputs of the dataset", &table->bytes));
    for (size_t row = 0, count; row < table->rows; row += count) {
        count = table_byte_chunk_at(table, row);
        TRY(table_read_bytes(table, row, count, table->bytes + row * size));
        if (digest) digest_add(digest, table->bytes + row * size, count * size);
    }
    return OK;
}

/* Digests rows that table_finish reads again. */
static status stream_inputs(struct table *table, struct digest *digest) {
    table->is_streamed = true;
    for (size_t row = 0, count; digest && row < table->rows; row += count) {
        count = table_chunk_at(table, row);
        TRY(digest_inputs(table, row, count, digest));
    }
    return OK;
}

static status load_inputs(struct table *table, struct digest *digest) {
    bool is_exact = table->is_raw && !table_is_float32(table->source);
    if (table->source->is_bytes) return load_bytes(table, digest);
    if (table->source->access != ROWS_OF_FILE) return stream_inputs(table, digest);
    size_t size = table->input_size;
    TRY(rows_alloc(table->rows, size * (is_exact ? sizeof(double) : sizeof(float)), "the inputs of the dataset",
                   is_exact ? (void *)&table->exact : &table->inputs));
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
    if (table->target_scale)
        TRY(rows_alloc(table->rows, table->target_size * sizeof *table->file_targets,
                       "the unscaled targets of the dataset", &table->file_targets));
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

/* Scales rows of table->chunk to their place in memory. [scaled]: (input_size), for a row that is stored otherwise. */
static status store_chunk(struct table *table, size_t first, size_t count, float *scaled) {
    size_t size = table->input_size, stored = table->stored_size;
    if (stored == size) return table_scale_inputs(table, first, table->chunk, count, table->inputs + first * size);
    for (size_t i = 0; i < count; i++) {
        TRY(table_scale_inputs(table, first + i, table->chunk + i * size, 1, scaled));
        preparation_store(table->preparation, scaled, table->inputs + (first + i) * stored);
    }
    return OK;
}

/* Reads the inputs, scaled, and frees each row of the source behind them. */
static status read_scaled_inputs(struct table *table) {
    struct source *source = table->source;
    SCOPED_BUFFER float *scaled = NULL;
    TRY(rows_alloc(table->rows, table->stored_size * sizeof(float), "the inputs of the dataset", &table->inputs));
    TRY(rows_alloc(table->input_size, sizeof(float), "a row of the dataset", &scaled));
    for (size_t row = 0, count; row < table->rows; row += count) {
        count = table_chunk_at(table, row);
        TRY(table_read_inputs(table, row, count));
        TRY(store_chunk(table, row, count, scaled));
        if (source->format->release) source->format->release(source, row + count);
    }
    return OK;
}

/* Scales the inputs in their place: a row of floats ends before its doubles do, and only rows behind them are read. */
static status scale_in_place(struct table *table) {
    size_t size = table->input_size;
    bool is_exact = table->exact != NULL;
    if (is_exact) {
        table->inputs = (float *)(void *)table->exact;
        table->exact = NULL;
    }
    for (size_t row = 0, count; row < table->rows; row += count) {
        count = table_chunk_at(table, row);
        const double *exact = (const double *)(void *)table->inputs + row * size;
        if (is_exact) memcpy(table->chunk, exact, count * size * sizeof *exact);
        for (size_t i = 0; i < count * size && !is_exact; i++) table->chunk[i] = (double)table->inputs[row * size + i];
        TRY(table_scale_inputs(table, row, table->chunk, count, table->inputs + row * size));
    }
    size_t values = table->rows * size;
    if (is_exact) buffer_discard(table->inputs + values, values * sizeof *table->inputs);
    return OK;
}

status table_finish(struct table *table) {
    const struct source *source = table->source;
    if (source->is_bytes) TRY(byte_table_create(table->scaler, source->divide, table->input_size, &table->values));
    if (!table->targets) return OK;
    if (table->is_streamed)
        TRY(read_scaled_inputs(table));
    else if (table->is_raw && !table->bytes)
        TRY(scale_in_place(table));
    table->is_raw = false;
    table_release_source(table);
    return OK;
}

/* ---- preparation ---- */

/* Tables whose inputs are features of a preparation. All raw values are checked before the first of them is encoded. */

/* "<place>: <sentence>" */
static status reject(const struct table *table, size_t row, size_t column, const char *sentence) {
    SCOPED_TEXT place = {0};
    table->source->format->describe(table->source, ROW_INPUT, row, column, &place);
    return status_data("%s: %s", text_string(&place), sentence);
}

/* Rows first .. first + count - 1; NaN is a missing value. */
static status check_raw(const struct table *table, const double *raw, size_t first, size_t count) {
    size_t size = table->source->input_size;
    for (size_t i = 0; i < count * size; i++)
        if (isinf(raw[i]))
            return reject(table, first + i / size, i % size,
                          raw[i] > 0 ? "Inf is not a finite number; remove the row or replace the value"
                                     : "-Inf is not a finite number; remove the row or replace the value");
    return OK;
}

status table_check_raw(struct table *table) {
    size_t size = table->source->input_size, at_once = ((size_t)1 << 17) / (size + 1) + 1;
    SCOPED_BUFFER double *raw = NULL;
    TRY(rows_alloc(at_once, size * sizeof(double), "the columns of the dataset", &raw));
    for (size_t row = 0, count; row < table->rows; row += count) {
        count = table->rows - row < at_once ? table->rows - row : at_once;
        TRY(table->source->format->read(table->source, row, count, raw, NULL));
        TRY(check_raw(table, raw, row, count));
    }
    return OK;
}

/* Adds the other columns with missing values and without a rule. */
static void add_others(const struct table *table, size_t column, struct text *out) {
    size_t count = 0;
    for (size_t i = 0; i < table->source->input_size; i++) {
        const struct raw_column *raw = &table->source->columns[i];
        if (i == column || raw->missing == 0 || table->preparation->items[i].missing != MISSING_ERROR) continue;
        if (++count > 10) continue;
        text_add(out, count == 1 ? "; the same holds for '" : ", '");
        text_add_value(out, raw->name, TEXT_MAX_NAME);
        text_add(out, "'");
    }
    if (count > 10) text_printf(out, " and %zu more", count - 10);
}

static status reject_missing(const struct table *table, size_t row, size_t column, bool is_trained) {
    const struct raw_column *raw = &table->source->columns[column];
    SCOPED_TEXT sentence = {0};
    if (is_trained) {
        text_add(
            &sentence,
            "missing value; the model was trained without a rule for missing values of this column (dataset.columns)");
    } else {
        bool is_category = raw->type == COLUMN_CATEGORY, is_text = raw->type == COLUMN_TEXT;
        text_add(&sentence, "missing value; remove the row, or write dataset.columns: {");
        text_add_value(&sentence, raw->name, TEXT_MAX_NAME);
        text_printf(&sentence, ": {missing: %s}}%s",
                    is_text       ? "constant, fill: TEXT"
                    : is_category ? "most_frequent"
                                  : "median",
                    is_text       ? ""
                    : is_category ? ", or constant or indicator"
                                  : ", or mean, most_frequent, constant or indicator");
        add_others(table, column, &sentence);
    }
    return reject(table, row, column, text_string(&sentence));
}

static status reject_unknown(const struct table *table, size_t row, size_t column, size_t text) {
    SCOPED_TEXT sentence = {0};
    text_add(&sentence, "'");
    text_add_value(&sentence, table->source->columns[column].texts.items[text], TEXT_MAX_NAME);
    text_add(&sentence, "' is not a category of the training rows, and the column has unknown: error");
    return reject(table, row, column, text_string(&sentence));
}

static status check_value(const struct table *table, size_t row, size_t column, double value, bool is_trained) {
    const struct prepared_column *prepared = &table->preparation->items[column];
    if (isnan(value)) return prepared->missing == MISSING_ERROR ? reject_missing(table, row, column, is_trained) : OK;
    bool is_unknown = prepared->type == COLUMN_CATEGORY && table->maps[column][(size_t)value] < 0;
    if (is_unknown && prepared->unknown == UNKNOWN_ERROR) return reject_unknown(table, row, column, (size_t)value);
    return OK;
}

/* The unknown categories of a column. */
struct unknown {
    size_t count, first; /* first: the text of the first one */
};

static void count_unknown(const struct table *table, const double *row, struct unknown *unknown) {
    for (size_t column = 0; column < table->source->input_size; column++) {
        const int32_t *map = table->maps[column];
        if (table->preparation->items[column].type != COLUMN_CATEGORY || isnan(row[column]) ||
            map[(size_t)row[column]] >= 0)
            continue;
        if (unknown[column].count++ == 0) unknown[column].first = (size_t)row[column];
    }
}

/* Adds "column 'a': 3 values ..." for a column with unknown categories; [path]: before the first. */
static void note_unknown(const struct table *table, size_t column, const struct unknown *unknown, const char *path,
                         struct text *note) {
    size_t count = unknown->count;
    if (count == 0 || note->length > 400) return;
    text_printf(note, "%s%s column '", note->length ? ";" : path, note->length ? "" : ":");
    text_add_value(note, table->source->columns[column].name, TEXT_MAX_NAME);
    text_printf(note, "': %zu value%s %s no category of the training rows, such as '", count, text_plural(count, "s"),
                count == 1 ? "is" : "are");
    text_add_value(note, table->source->columns[column].texts.items[unknown->first], TEXT_MAX_NAME);
    text_add(note, "'");
}

static status check_rows(struct table *table, bool is_trained, struct unknown *unknown) {
    size_t size = table->source->input_size;
    for (size_t first = 0, count; first < table->rows; first += count) {
        count = table->rows - first < table->chunk_rows ? table->rows - first : table->chunk_rows;
        TRY(table->source->format->read(table->source, first, count, table->raw, NULL));
        for (size_t i = 0; i < count; i++) {
            const double *row = table->raw + i * size;
            for (size_t column = 0; column < size; column++)
                TRY(check_value(table, first + i, column, row[column], is_trained));
            count_unknown(table, row, unknown);
        }
    }
    return OK;
}

status table_prepare(struct table *table, const struct preparation *preparation, const struct tokenizer *tokenizer,
                     bool is_trained, const char *path, struct arena *arena) {
    size_t size = table->source->input_size;
    struct unknown *unknown = arena_alloc(arena, (size + 1) * sizeof *unknown);
    SCOPED_TEXT note = {0};
    table->preparation = preparation;
    TRY(status_prefix(preparation_map(preparation, table->source->columns, tokenizer, arena, &table->maps), "%s",
                      path));
    table->input_size = preparation->features;
    table->stored_size = preparation_stored_size(preparation);
    TRY(table_alloc_chunk(table));
    TRY(check_rows(table, is_trained, unknown));
    for (size_t column = 0; column < size; column++) note_unknown(table, column, &unknown[column], path, &note);
    if (note.length) table->note = arena_copy(arena, text_string(&note));
    return OK;
}

/* ---- batches ---- */

/* Copies of rows in memory, or rows of the file sorted by their position in it, adjacent ones with one read. */

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
    TRY(array_grow(&table->order, &table->order_capacity, count, sizeof *table->order, "the order of the rows"));
    for (size_t i = 0; i < count; i++)
        table->order[i] = (struct pick){(int64_t)selection_row(rows, (size_t)positions[i]), i};
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
    if (table->group) return table->group + row * table->group_size;
    if (table->exact) return table->exact + first;
    double divide = table->source->divide;
    for (size_t i = 0; i < size; i++)
        table->chunk[i] = table->bytes ? (double)table->bytes[first + i] / divide : (double)table->inputs[first + i];
    return table->chunk;
}

size_t table_feature_group(const struct table *table) {
    bool is_divided = table->targets && table->is_streamed && table->source->access == ROWS_STORED;
    is_divided = is_divided && !table->is_in_file_order;
    size_t group = table->stored_size / 2 + 1; /* as doubles they need as much as all in memory */
    return is_divided && group < table->input_size ? group : table->input_size;
}

status table_load_features(struct table *table, size_t first, size_t count) {
    size_t size = table->input_size;
    buffer_free(table->group);
    table->group = NULL;
    if (count == size) return OK;
    TRY(rows_alloc(table->rows, count * sizeof *table->group, "the inputs of the dataset", &table->group));
    table->group_size = count;
    for (size_t row = 0, n; row < table->rows; row += n) {
        n = table_chunk_at(table, row);
        TRY(table_read_inputs(table, row, n));
        for (size_t i = 0; i < n; i++)
            memcpy(table->group + (row + i) * count, table->chunk + i * size + first, count * sizeof *table->group);
    }
    return OK;
}

static bool is_marked(const uint8_t *marks, size_t row) { return marks[row / 8] >> row % 8 & 1; }

/* Visits the given rows, each once, in the order of the file. Rows between them are read, but may have any values. */
static status each_of_file(struct table *table, const struct selection *rows, size_t count,
                           void (*visit)(void *, const double *), void *context) {
    SCOPED_BUFFER uint8_t *marks = NULL;
    TRY(rows_alloc(table->rows / 8 + 1, 1, "the rows that are read", &marks));
    for (size_t i = 0, row; i < count; i++) row = selection_row(rows, i), marks[row / 8] |= (uint8_t)(1 << row % 8);
    for (size_t first = 0, n; first < table->rows; first += n) {
        n = 1;
        if (!is_marked(marks, first)) continue;
        n = table_chunk_at(table, first);
        while (!is_marked(marks, first + n - 1)) n--;
        TRY(read_unchecked(table, first, n));
        for (size_t i = 0; i < n; i++) {
            if (!is_marked(marks, first + i)) continue;
            TRY(check_inputs(table, first, i, 1));
            visit(context, table->chunk + i * table->input_size);
        }
    }
    return OK;
}

status table_each(struct table *table, const struct selection *rows, size_t count,
                  void (*visit)(void *, const double *), void *context) {
    if (table->targets && !table->is_in_file_order) {
        for (size_t i = 0; i < count; i++) {
            size_t row = selection_row(rows, i);
            bool is_read = table->is_streamed && !table->group;
            if (is_read) TRY(table_read_inputs(table, row, 1));
            visit(context, is_read ? table->chunk : raw_row(table, row));
        }
        return OK;
    }
    return each_of_file(table, rows, count, visit, context);
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

#define VECTOR 16      /* bytes that a processor copies at once */
#define SHORT_COPY 256 /* bytes that take less time than a call */

/* memcpy */
static void copy_values(char *to, const char *from, size_t bytes) {
    if (bytes < VECTOR || bytes > SHORT_COPY) {
        memcpy(to, from, bytes);
        return;
    }
    for (size_t i = 0; i + VECTOR <= bytes; i += VECTOR) memcpy(to + i, from + i, VECTOR);
    memcpy(to + bytes - VECTOR, from + bytes - VECTOR, VECTOR);
}

/* A batch of rows that are in memory as the model gets them. What a row needs is in variables, because the rows that
 * are written could be the table. */
static void copy_rows(const struct table *table, const struct selection *rows, const int64_t *positions, size_t count,
                      char *inputs, char *targets) {
    const char *from = (const char *)table->inputs, *from_targets = table->targets;
    size_t bytes = table->input_size * sizeof(float), target_bytes = table_target_bytes(table);
    struct selection selection = *rows;
    for (size_t i = 0; i < count; i++, inputs += bytes, targets += target_bytes) {
        size_t row = selection_row(&selection, (size_t)positions[i]);
        copy_values(inputs, from + row * bytes, bytes);
        if (target_bytes == sizeof(int64_t)) /* one class: without a call */
            memcpy(targets, from_targets + row * sizeof(int64_t), sizeof(int64_t));
        else
            memcpy(targets, from_targets + row * target_bytes, target_bytes);
    }
}

/* Reads one row of a batch. */
static status read_row(const struct table *table, size_t row, void *inputs, void *targets) {
    assert(row < table->rows);
    if (!table->targets) return table->source->format->read_tokens(table->source, row, inputs, targets);
    if (table->bytes)
        byte_table_apply(&table->values, table->bytes + row * table->input_size, inputs);
    else
        preparation_restore(table->preparation, table->inputs + row * table->stored_size, inputs);
    size_t bytes = table_target_bytes(table);
    memcpy(targets, (const char *)table->targets + row * bytes, bytes);
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
    if (table->targets && !table->bytes && table->stored_size == table->input_size) {
        copy_rows(table, rows, positions, count, inputs, targets);
        return OK;
    }
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

/* ---- windows ---- */

/* Windows of adjacent rows. A row is stored once, however many windows have it. */

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
    if (table->inputs && table->stored_size != size) {
        for (size_t i = 0; i < count; i++)
            preparation_restore(table->preparation, table->inputs + (first + i) * table->stored_size, out + i * size);
        return OK;
    }
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
