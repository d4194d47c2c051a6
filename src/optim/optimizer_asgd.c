/* asgd: torch.optim.ASGD. */
#include <math.h>

#include "optim/optimizers.h"

struct asgd_config {
    double lr, lambd, alpha, t0, weight_decay;
};

static const struct schema_row rows[] = {
    OPTIMIZER_REAL(asgd_config, lr, "0.01", "Learning rate."),
    OPTIMIZER_REAL(asgd_config, lambd, "0.0001", "Each update multiplies the weights by 1 - lambd * rate."),
    OPTIMIZER_REAL(asgd_config, alpha, "0.75", "The rate of update t is lr / (1 + lambd * lr * (t - 1))^alpha."),
    OPTIMIZER_REAL(asgd_config, t0, "1e6", "After so many updates the average of the weights (`ax`) begins."),
    OPTIMIZER_REAL(asgd_config, weight_decay, "0", "L2 penalty, added to the gradient."),
    {0},
};
static const struct schema schema = SCHEMA("optimizer.asgd", struct asgd_config, .rows = rows);

/* PyTorch keeps the rate and the share of the average in float32. */
static union optimizer_constants plan(const void *config, const struct optimizer_settings *own, int64_t t) {
    const struct asgd_config *c = config;
    float eta = (float)(own->lr / pow(1 + c->lambd * own->lr * (double)(t - 1), c->alpha));
    struct asgd_constants s = {
        .minus_eta = -eta,
        .decay_factor = (float)(1 - c->lambd * (double)eta),
        .mu = (float)(1 / fmax(1, (double)(t - 1) - c->t0)),
        .weight_decay = (float)own->weight_decay,
        .has_weight_decay = own->weight_decay != 0,
    };
    return (union optimizer_constants){.asgd = s};
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("optimizer", "averaged_sgd", "asgd"),
    CALL_ALIAS("optimizer", "asgd", "? lr lambd alpha t0 weight_decay"),
    {0},
};

const struct optimizer_type optimizer_asgd = {
    .aliases = aliases,
    .variant = {"asgd", &schema,
                "Gradient descent with a falling rate, and the average of the weights as its state `ax`, which "
                "train.ema replaces in practice (torch.optim.ASGD)."},
    .buffers = {"ax"},
    .plan = plan,
    .rule = RULE_ASGD,
    .pytorch = "ASGD({groups}, lr={lr}{,lambd}{,alpha}{,t0}{,weight_decay})",
};
