/* rmsprop: torch.optim.RMSprop. */
#include "optim/optimizers.h"

struct rmsprop_config {
    double lr, alpha, eps, weight_decay, momentum;
    bool centered;
};

enum { SQUARE_AVG, GRAD_AVG, MOMENTUM };

static const struct schema_row rows[] = {
    OPTIMIZER_REAL(rmsprop_config, lr, "0.01", "Learning rate."),
    SCHEMA_ROW(REAL, struct rmsprop_config, alpha, .fallback = "0.99", .min = 0, .max = 1,
               .doc = "Decay of the running mean of the gradient's square."),
    OPTIMIZER_REAL(rmsprop_config, eps, "1e-08", "Added to the denominator."),
    OPTIMIZER_REAL(rmsprop_config, weight_decay, "0", "L2 penalty, added to the gradient."),
    OPTIMIZER_REAL(rmsprop_config, momentum, "0", "Momentum factor; 0: none."),
    OPTIMIZER_BOOL(
        rmsprop_config, centered,
        "Divide by the gradient's standard deviation instead of its mean square. Rounds as PyTorch 2 (lerp)."),
    {0},
};
static const struct schema schema = SCHEMA("optimizer.rmsprop", struct rmsprop_config, .rows = rows);

static bool uses_buffer(const void *config, size_t index) {
    const struct rmsprop_config *c = config;
    return index == SQUARE_AVG || (index == GRAD_AVG && c->centered) || (index == MOMENTUM && c->momentum != 0);
}

static union optimizer_constants plan(const void *config, const struct optimizer_settings *own, int64_t t) {
    const struct rmsprop_config *c = config;
    (void)t;
    struct rmsprop_constants s = {
        .minus_lr = (float)-own->lr,
        .alpha = (float)c->alpha,
        .one_minus_alpha = (float)(1 - c->alpha),
        .eps = optimizer_eps(c->eps),
        .momentum = isnan(own->momentum) ? 0 : (float)own->momentum,
        .weight_decay = (float)own->weight_decay,
        .has_weight_decay = own->weight_decay != 0,
    };
    return (union optimizer_constants){.rmsprop = s};
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("optimizer", "rms", "rmsprop"),
    CALL_ALIAS("optimizer", "rmsprop", "? lr alpha eps weight_decay momentum"),
    {0},
};

const struct optimizer_type optimizer_rmsprop = {
    .aliases = aliases,
    .variant = {"rmsprop", &schema, "RMSprop (torch.optim.RMSprop)."},
    .buffers = {"square_avg", "grad_avg", "momentum_buffer"},
    .uses_buffer = uses_buffer,
    .plan = plan,
    .rule = RULE_RMSPROP,
    .pytorch = "torch.optim.RMSprop({groups}, lr={lr}{,alpha}{,eps}{,weight_decay}{,momentum}{,centered})",
};
