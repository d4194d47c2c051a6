/* adagrad: torch.optim.Adagrad. */
#include "optim/optimizers.h"

struct adagrad_config {
    double lr, lr_decay, weight_decay, initial_accumulator_value, eps;
};

static const struct schema_row rows[] = {
    OPTIMIZER_REAL(adagrad_config, lr, "0.01", "Learning rate."),
    OPTIMIZER_REAL(adagrad_config, lr_decay, "0", "The rate of update t is lr / (1 + (t - 1) * lr_decay)."),
    OPTIMIZER_REAL(adagrad_config, weight_decay, "0", "L2 penalty, added to the gradient."),
    OPTIMIZER_REAL(adagrad_config, initial_accumulator_value, "0", "Initial value of the sums of squares."),
    OPTIMIZER_REAL(adagrad_config, eps, "1e-10", "Added to the denominator."),
    {0},
};
static const struct schema schema = SCHEMA("optimizer.adagrad", struct adagrad_config, .rows = rows);

static float start(const void *config) {
    return (float)((const struct adagrad_config *)config)->initial_accumulator_value;
}

static union optimizer_constants plan(const void *config, const struct optimizer_settings *own, int64_t t) {
    const struct adagrad_config *c = config;
    struct adagrad_constants s = {
        .minus_lr = (float)-(own->lr / (1 + (double)(t - 1) * c->lr_decay)),
        .eps = optimizer_eps(c->eps),
        .weight_decay = (float)own->weight_decay,
        .has_weight_decay = own->weight_decay != 0,
    };
    return (union optimizer_constants){.adagrad = s};
}

static const struct schema_alias aliases[] = {
    CALL_ALIAS("optimizer", "adagrad", "? lr"),
    {0},
};

const struct optimizer_type optimizer_adagrad = {
    .aliases = aliases,
    .variant = {"adagrad", &schema, "Adagrad (torch.optim.Adagrad)."},
    .buffers = {"sum"},
    .start = start,
    .plan = plan,
    .rule = RULE_ADAGRAD,
    .pytorch = "torch.optim.Adagrad({groups}, lr={lr}{,lr_decay}{,weight_decay}{,initial_accumulator_value}{,eps})",
};
