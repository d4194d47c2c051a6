/* kalman: each number is a scalar Kalman filter (Vuckovic, "Kalman gradient descent", 2018, with a constant state): the
 * gradient is a noisy measurement of the true slope, whose estimate and uncertainty are the state. */
#include "extension.h"

struct kalman_config {
    double lr, weight_decay, drift, noise;
};

static const struct schema_row keys[] = {
    OPTIMIZER_REAL(kalman_config, lr, "0.1", "Learning rate of the estimated slope."),
    OPTIMIZER_REAL(kalman_config, weight_decay, "0", "Values are multiplied by 1 - lr * weight_decay."),
    OPTIMIZER_REAL(kalman_config, drift, "0.01", "Variance by which the true slope changes in a step."),
    SCHEMA_ROW(REAL, struct kalman_config, noise, .fallback = "1", .min = 0, .max = INFINITY, .excludes_min = true,
               .doc = "Variance of a measured gradient around the true slope."),
    {0},
};
static const struct schema schema = {.name = "optimizer.kalman", .size = sizeof(struct kalman_config), .rows = keys};

static struct optimizer_settings settings(const void *config) {
    const struct kalman_config *c = config;
    return (struct optimizer_settings){.lr = c->lr, .weight_decay = c->weight_decay, .momentum = NAN};
}

static float start(const void *config) {
    (void)config;
    return 0; /* of both buffers */
}

static void update(const float *numbers, struct rule_number *n) {
    float rate = numbers[0], decay = numbers[1], drift = numbers[2], noise = numbers[3];
    float variance = n->state[1] + drift, gain = variance / (variance + noise);
    n->state[0] += gain * (n->gradient - n->state[0]);
    n->state[1] = (1 - gain) * variance;
    n->value = n->value * decay - rate * n->state[0];
}

static union optimizer_constants plan(const void *config, const struct optimizer_settings *own, int64_t t) {
    const struct kalman_config *c = config;
    /* The first measurement is all that is known: its gain is near 1. */
    const float numbers[] = {(float)own->lr, (float)(1 - own->lr * own->weight_decay),
                             t == 1 ? (float)(1e6 * c->noise) : (float)c->drift, (float)c->noise};
    return extension_constants(update, numbers, sizeof numbers / sizeof *numbers);
}

static const struct optimizer_type kalman = {
    .variant = {"kalman", &schema, "Gradient descent along a slope that a Kalman filter estimates."},
    .buffers = {"slope", "variance"},
    .settings = settings,
    .start = start,
    .plan = plan,
    .rule = RULE_OWN,
};

DDPTRAIN_EXTENSION(.optimizer = &kalman);
