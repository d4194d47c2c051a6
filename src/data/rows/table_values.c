/* table_values: reads chunks of rows and converts them from the doubles of a format to float32 and int64. */
#include <math.h>
#include <stdlib.h>

#include "base/system/thread.h"
#include "data/rows/table_internal.h"

#define MAX_CLASSES 2147483647.0

status table_reject(const struct table *table, bool is_target, size_t row, size_t element, double value,
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
            return table_reject(table, is_target, first + i / size, i % size, table->chunk[i],
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

status table_read_inputs(struct table *table, size_t first, size_t count) {
    double divide = table->source->divide;
    if (table->preparation) return read_features(table, first, count);
    TRY(table->source->format->read(table->source, first, count, table->chunk, NULL));
    for (size_t i = 0; divide != 1 && i < count * table->input_size; i++) table->chunk[i] /= divide;
    return check_finite(table, false, first, count, table->input_size);
}

status table_check_inputs(struct table *table, size_t row, bool (*is_wrong)(double), const char *why) {
    TRY(table_read_inputs(table, row, 1));
    for (size_t i = 0; i < table->input_size; i++)
        if (is_wrong(table->chunk[i])) return table_reject(table, false, row, i, table->chunk[i], why);
    return OK;
}

status table_scale_inputs(const struct table *table, size_t first, const double *rows, size_t count, float *out) {
    size_t size = table->input_size;
    scaler_apply(table->scaler, rows, count, size, out);
    for (size_t i = 0; i < count * size; i++)
        if (!isfinite(out[i]))
            return table_reject(table, false, first + i / size, i % size, rows[i],
                                table->scaler->features ? "is too large for float32 after scaling"
                                                        : "is too large for float32");
    return OK;
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

status table_read_targets(struct table *table, size_t first, size_t count) {
    if (table->target_size == 0) return OK;
    TRY(table->source->format->read(table->source, first, count, NULL, table->chunk));
    TRY(check_finite(table, true, first, count, table->target_size));
    return table->class_count ? number_classes(table, first, count) : OK;
}

bool table_is_ignored(const struct table *table, double value) {
    return table->ignored.is_set && value == (double)table->ignored.value;
}

status table_check_class(const struct table *table, size_t row, size_t element, double value) {
    if (table_is_ignored(table, value) || (value >= 0 && value == floor(value) && value <= MAX_CLASSES)) return OK;
    struct text sentence = {0};
    text_add(&sentence, "is not a class; classes are integers from 0");
    if (value > 0 && value < 1)
        text_add(&sentence, "; for targets that are probabilities of classes, let the model end in log_softmax and use "
                            "the loss {type: kl_div, reduction: batchmean}");
    if (value < 0 && table->ignored.is_set && table->ignored.key)
        text_printf(&sentence, ", and targets that do not count, such as those of padding, are %lld (%s of the loss)",
                    (long long)table->ignored.value, table->ignored.key);
    status s = table_reject(table, true, row, element, value, text_string(&sentence));
    text_free(&sentence);
    return s;
}

status table_convert_targets(const struct table *table, size_t first, const double *targets, size_t count, void *out) {
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

status table_read_bytes(struct table *table, size_t first, size_t count, uint8_t *out) {
    const struct dataset_format *format = table->source->format;
    if (!format->decode) return format->read_bytes(table->source, first, count, out);
    return workers_run(table->workers, count, decode_row, &(struct decoding){table, first, out});
}

size_t table_byte_chunk_at(const struct table *table, size_t row) {
    size_t count = table->chunk_rows * (table->workers ? sizeof(double) : 1);
    return table->rows - row < count ? table->rows - row : count;
}
