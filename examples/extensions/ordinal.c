/* ordinal: classes with an order, such as stars or stages (Cao et al., "Rank consistent ordinal regression", 2020). The
 * model has one output, the score; the loss has a threshold between neighbouring classes, all [width] apart. */
#include "extension.h"

struct ordinal_config {
    int64_t classes;
    double width;
};

static const struct schema_row keys[] = {
    SCHEMA_ROW(INT, struct ordinal_config, classes, .fallback = "5", .min = 2, .max = 1000,
               .doc = "Number of classes."),
    SCHEMA_ROW(REAL, struct ordinal_config, width, .fallback = "1", .min = 0, .max = INFINITY, .excludes_min = true,
               .doc = "Distance of the thresholds."),
    {0},
};
static const struct schema schema = {
    .name = "loss.ordinal", .size = sizeof(struct ordinal_config), .rows = keys, .shorthand = "classes"};

/* log(1 + exp(x)) */
static double softplus(double x) { return (x > 0 ? x : 0) + log1p(exp(-fabs(x))); }

static double row_loss(const void *config, const float *y, size_t size, const float *t, size_t targets, float *dy) {
    const struct ordinal_config *c = config;
    double loss = 0, slope = 0;
    (void)size, (void)targets;
    for (int64_t k = 1; k < c->classes; k++) { /* whether the class is at least k */
        double x = (double)y[0] - ((double)k - (double)c->classes / 2) * c->width, is_above = (double)t[0] >= (double)k;
        loss += softplus(x) - is_above * x;
        slope += 1 / (1 + exp(-x)) - is_above;
    }
    if (dy) dy[0] = (float)slope;
    return loss;
}

static void run(const void *config, const struct loss_batch *b) { extension_run_rows(row_loss, config, b); }

static const struct loss_type ordinal = {
    .variant = {"ordinal", &schema, "Classes with an order, 0, 1, ...: a score with equal thresholds."},
    .targets = "classes as numbers",
    .check = loss_check_values,
    .run = run,
    .without_lengths = "it is of one value for each row",
};

DDPTRAIN_EXTENSION(.loss = &ordinal);
