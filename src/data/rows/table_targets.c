/* table_targets: passes over the targets of all rows: their classes, and whether a loss can take them. */
#include <string.h>

#include "data/rows/table_internal.h"

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

status table_check_targets(struct table *table, size_t first, size_t size, bool (*is_wrong)(double), const char *why) {
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

/* The source of rows in memory may be closed: then the place is only the number of the row. */
static status add_decision(const struct table *table, size_t row, double value, int64_t *classes) {
    static const char why[] = "is not one of the two classes 0 and 1";
    classes[row] = value == 1;
    if (value == 0 || value == 1) return OK;
    return table->source ? table_reject(table, true, row, 0, value, why)
                         : status_new(STATUS_DATA, "row %zu: the target %g %s", row, value, why);
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
