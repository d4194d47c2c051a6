/* my_name: an optimizer of your own. Here it is the sign of the gradient's moving average. Change update and plan;
 * `ddptrain extension test my_name.c` trains a small model with it. In a config:
 *
 *     extensions: [my_name.c]
 *     optimizer: {type: my_name, lr: 0.01}
 */
#include "extension.h"

/* The keys of the optimizer. Every one has a default (.fallback), limits and a sentence. */
struct config {
    double lr, momentum, weight_decay;
};

static const struct schema_row keys[] = {
    OPTIMIZER_REAL(config, lr, "0.01", "Learning rate."),
    SCHEMA_ROW(REAL, struct config, momentum, .fallback = "0.9", .min = 0, .max = 1, .excludes_max = true,
               .doc = "Weight of the past in the moving average of the gradient."),
    OPTIMIZER_REAL(config, weight_decay, "0", "Values are multiplied by 1 - lr * weight_decay."),
    {0},
};
static const struct schema schema = {.name = "optimizer.my_name", .size = sizeof(struct config), .rows = keys};

/* What a schedule and groups of parameters may change. */
static struct optimizer_settings settings(const void *config) {
    const struct config *c = config;
    return (struct optimizer_settings){.lr = c->lr, .weight_decay = c->weight_decay, .momentum = c->momentum};
}

/* The update of one number: n->gradient is averaged over the processes and clipped, n->state[k] is the buffer k below.
 * It is called for every number of the model, from several threads. */
static void update(const float *numbers, struct rule_number *n) {
    float rate = numbers[0], momentum = numbers[1], decay = numbers[2];
    float mean = momentum * n->state[0] + (1 - momentum) * n->gradient;
    n->state[0] = mean;
    n->value = n->value * decay - (mean > 0 ? rate : mean < 0 ? -rate : 0);
}

/* The numbers of update [t] (from 1), once for all parameters with the same settings [own]. */
static union optimizer_constants plan(const void *config, const struct optimizer_settings *own, int64_t t) {
    const float numbers[] = {(float)own->lr, (float)own->momentum, (float)(1 - own->lr * own->weight_decay)};
    (void)config, (void)t;
    return extension_constants(update, numbers, sizeof numbers / sizeof *numbers);
}

static const struct optimizer_type my_name = {
    .variant = {"my_name", &schema, "The sign of the gradient's moving average."},
    .buffers = {"mean"}, /* the state of each number, which checkpoints hold: up to three */
    .settings = settings,
    .plan = plan,
    .rule = RULE_OWN,
};

DDPTRAIN_EXTENSION(.optimizer = &my_name);
