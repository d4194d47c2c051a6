/* my_name: a loss of your own. Here it is the log-cosh of the error: near a squared error below [scale], near an
 * absolute error above. Change row_loss and the keys; `ddptrain extension test my_name.c` compares the derivative with
 * differences. In a config:
 *
 *     extensions: [my_name.c]
 *     loss: {type: my_name, scale: 0.5}
 */
#include "extension.h"

/* The keys of the loss. Every one has a default (.fallback), limits and a sentence. */
struct config {
    double scale;
};

static const struct schema_row keys[] = {
    SCHEMA_ROW(REAL, struct config, scale, .fallback = "1", .min = 0, .max = INFINITY, .excludes_min = true,
               .doc = "The error where the square ends."),
    {0},
};
static const struct schema schema = {.name = "loss.my_name", .size = sizeof(struct config), .rows = keys};

/* The loss of one row: y (size) are the outputs of the model, t (targets) the targets; dy (size), unless NULL, gets the
 * derivative for each output. */
static double row_loss(const void *config, const float *y, size_t size, const float *t, size_t targets, float *dy) {
    double scale = ((const struct config *)config)->scale, sum = 0;
    (void)targets;
    for (size_t i = 0; i < size; i++) {
        double error = fabs((double)y[i] - (double)t[i]) / scale, sign = y[i] < t[i] ? -1 : 1;
        sum += scale * (error + log1p(exp(-2 * error)) - log(2));
        if (dy) dy[i] = (float)(sign * tanh(error) / (double)size);
    }
    return sum / (double)size;
}

/* The mean of the rows of a batch; rows may have weights (dataset.weights). */
static void run(const void *config, struct device *device, const struct shape *output_shape,
                const struct tensor *output, const void *targets, const struct row_weights *weights, size_t rows,
                float scale, const struct tensor *gradient, struct loss_sums *sums) {
    (void)device;
    extension_run_rows(row_loss, config, output_shape, output, targets, weights, rows, scale, gradient, sums);
}

static const struct loss_type my_name = {
    .variant = {"my_name", &schema, "The log-cosh of the error."},
    .is_regression = true,      /* targets are values; leave it out for probabilities or counts */
    .check = loss_check_values, /* one output for each target */
    .run = run,
    .without_lengths = "it is of values, not of positions",
};

DDPTRAIN_EXTENSION(.loss = &my_name);
