/* scaler: scaling of inputs by statistics of the training rows or by numbers of the config, and its lookup table for
 * inputs that are bytes. table.h fits it. */
#pragma once

#include "data/source/source.h"

struct scaler {
    bool is_given;          /* by the config, not fitted */
    size_t features;        /* 0: nothing is scaled */
    size_t block;           /* element i of a row uses mean[i / block] and scale[i / block] */
    size_t period;          /* elements f and f + period have the same mean and scale; features: all have their own */
    double *mean, *scale;   /* (features) */
    enum scale_type *types; /* (features) of the fit */
};

/* Sets features and the numbers of the config; before scaler_fit mean is 0 and scale is 1. [preparation]: of the
 * source, whose features are scaled; NULL: none. */
status scaler_create(const struct scale_config *config, const struct source *source,
                     const struct preparation *preparation, struct scaler *scaler);
void scaler_free(struct scaler *scaler);

/* out (count, size) = float32 of (rows (count, size) - mean) / scale, computed in double. */
void scaler_apply(const struct scaler *scaler, const double *rows, size_t count, size_t size, float *out);

/* StandardScaler: the population standard deviation from the sums of d and d^2 of n values, d = x - mean:
 * var = (sum d^2 - (sum d)^2 / n) / n; 1 for a constant feature. */
double standard_deviation(double mean, double correction, double deviation, double n);

/* A lookup table: the float32 value of each byte after division and scaling. */
struct byte_table {
    size_t features, block; /* element i of a row uses feature i / block */
    float *values;          /* (features, 256) */
};
float byte_table_value(const struct scaler *scaler, size_t feature, double divide, int byte);
status byte_table_create(const struct scaler *scaler, double divide, size_t size, struct byte_table *table);
void byte_table_free(struct byte_table *table);
/* Converts a row: bytes (features * block) to out (features * block). */
void byte_table_apply(const struct byte_table *table, const uint8_t *bytes, float *out);
