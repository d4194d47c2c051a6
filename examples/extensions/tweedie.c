/* tweedie: the deviance of Tweedie's distributions with 1 < power < 2 (insurance claims, rain): many zeros, else values
 * above 0. The output is the logarithm of the mean. */
#include "extension.h"

struct tweedie_config {
    double power;
};

static const struct schema_row keys[] = {
    SCHEMA_ROW(REAL, struct tweedie_config, power, .fallback = "1.5", .min = 1, .max = 2, .excludes_min = true,
               .excludes_max = true, .doc = "Of the variance, which is the mean to this power."),
    {0},
};
static const struct schema schema = {
    .name = "loss.tweedie", .size = sizeof(struct tweedie_config), .rows = keys, .shorthand = "power"};

static double row_loss(const void *config, const float *y, size_t size, const float *t, size_t targets, float *dy) {
    double p = ((const struct tweedie_config *)config)->power, sum = 0;
    (void)targets;
    for (size_t i = 0; i < size; i++) {
        double a = exp((1 - p) * y[i]), b = exp((2 - p) * y[i]);
        sum += -t[i] * a / (1 - p) + b / (2 - p);
        if (dy) dy[i] = (float)((-t[i] * a + b) / (double)size);
    }
    return sum / (double)size;
}

static void run(const void *config, const struct loss_batch *b) { extension_run_rows(row_loss, config, b); }

static const struct loss_type tweedie = {
    .variant = {"tweedie", &schema, "Deviance of Tweedie's distributions, of the logarithm of the mean."},
    .targets = "amounts of 0 or more",
    .check = loss_check_values,
    .run = run,
    .without_lengths = "it is of values, not of positions",
};

DDPTRAIN_EXTENSION(.loss = &tweedie);
