/* Lookup tables of 256 float32 values per channel, so that images can be stored as bytes in memory. */
#include <math.h>

#include "data/rows/table.h"

/* Numbers of the config are applied in float32, as torchvision's ToTensor and Normalize; fitted numbers in double and
 * rounded once, as scikit-learn. */
float byte_table_value(const struct scaler *scaler, size_t feature, double divide, int byte) {
    float value = (float)byte / (float)divide;
    if (scaler->features == 0) return value;
    double mean = scaler->mean[feature], scale = scaler->scale[feature];
    if (scaler->is_given) return (value - (float)mean) / (float)scale;
    return (float)(((double)byte / divide - mean) / scale);
}

status byte_table_create(const struct scaler *scaler, double divide, size_t size, struct byte_table *table) {
    size_t features = scaler->features ? scaler->features : 1;
    void *values;
    *table = (struct byte_table){.features = features, .block = size / features};
    TRY(rows_alloc(features, 256 * sizeof(float), "the scaler", &values));
    table->values = values;
    for (size_t f = 0; f < features; f++)
        for (int byte = 0; byte < 256; byte++) {
            float value = table->values[f * 256 + (size_t)byte] = byte_table_value(scaler, f, divide, byte);
            if (!isfinite(value))
                return status_new(STATUS_USAGE, "dataset.scale: the scaled value of byte %d is too large for float32",
                                  byte);
        }
    return OK;
}

void byte_table_free(struct byte_table *table) {
    buffer_free(table->values);
    *table = (struct byte_table){0};
}

void byte_table_apply(const struct byte_table *table, const uint8_t *bytes, float *out) {
    for (size_t f = 0; f < table->features; f++) {
        const float *values = table->values + f * 256;
        for (size_t i = f * table->block; i < (f + 1) * table->block; i++) out[i] = values[bytes[i]];
    }
}
