/* What each byte of an image becomes: 256 numbers per channel, looked up when a row is read, so that images stay bytes
 * in memory. */
#include <math.h>

#include "data/internal.h"

/* With given numbers as torchvision does it, in float32: ToTensor, then Normalize. Fitted ones, as scikit-learn: in
 * double, rounded once. */
float levels_value(const struct scaler *scaler, size_t feature, double divide, int byte) {
    float value = (float)byte / (float)divide;
    if (scaler->features == 0) return value;
    double mean = scaler->mean[feature], scale = scaler->scale[feature];
    if (scaler->is_given) return (value - (float)mean) / (float)scale;
    return (float)(((double)byte / divide - mean) / scale);
}

status levels_create(const struct scaler *scaler, double divide, size_t size, struct levels *levels) {
    size_t features = scaler->features ? scaler->features : 1;
    void *values;
    *levels = (struct levels){.features = features, .block = size / features};
    TRY(rows_alloc(features, 256 * sizeof(float), "the scaler", &values));
    levels->values = values;
    for (size_t f = 0; f < features; f++)
        for (int byte = 0; byte < 256; byte++) {
            float value = levels->values[f * 256 + (size_t)byte] = levels_value(scaler, f, divide, byte);
            if (!isfinite(value))
                return status_new(STATUS_USAGE, "dataset.scale: a byte of %d is too large for float32 once scaled",
                                  byte);
        }
    return OK;
}

void levels_free(struct levels *levels) {
    buffer_free(levels->values);
    *levels = (struct levels){0};
}

void levels_apply(const struct levels *levels, const uint8_t *bytes, float *out) {
    for (size_t f = 0; f < levels->features; f++) {
        const float *level = levels->values + f * 256;
        for (size_t i = f * levels->block; i < (f + 1) * levels->block; i++) out[i] = level[bytes[i]];
    }
}
