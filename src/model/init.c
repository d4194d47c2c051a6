/* The formulas are computed in double as in torch/nn/init.py, so that the bounds have the same bits. */
#include "model/init.h"

#include <math.h>

void init_kaiming_uniform(struct rng *rng, float *values, size_t count, size_t fan_in) {
    double slope = sqrt(5.0), gain = sqrt(2.0 / (1 + slope * slope)), std = gain / sqrt((double)fan_in);
    double bound = sqrt(3.0) * std;
    rng_uniform(rng, values, count, -bound, bound);
}

void init_fan_in_uniform(struct rng *rng, float *values, size_t count, size_t fan_in) {
    double bound = 1 / sqrt((double)fan_in);
    rng_uniform(rng, values, count, -bound, bound);
}

void init_xavier_uniform(struct rng *rng, float *values, size_t count, size_t fan_in, size_t fan_out) {
    double bound = sqrt(3.0) * sqrt(2.0 / (double)(fan_in + fan_out));
    rng_uniform(rng, values, count, -bound, bound);
}
