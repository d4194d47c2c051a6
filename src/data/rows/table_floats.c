/* Inputs that are float32 in the file and are not scaled are read to the batch directly. */
#include <string.h>

#include "data/rows/table.h"

#define MIN_ROW 1024 /* values; shorter rows are read together */

bool table_has_floats(const struct table *table) {
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

status table_read_floats(const struct table *table, size_t row, float *inputs, bool *is_finite) {
    *is_finite = false;
    TRY(table->source->format->read_floats(table->source, row, 1, inputs));
    *is_finite = are_finite(inputs, table->input_size);
    return OK;
}
