/* adadelta: torch.optim.Adadelta. */
#include <math.h>

#include "optim/optimizers.h"

struct adadelta_config {
    double lr, rho, eps, weight_decay;
};

static const struct schema_row rows[] = {
    OPTIMIZER_REAL(adadelta_config, lr, "1", "Learning rate: a factor of the change."),
    SCHEMA_ROW(REAL, struct adadelta_config, rho, .fallback = "0.9", .min = 0, .max = 1,
               .doc = "Decay of the running means of the squares of gradients and of changes."),
    OPTIMIZER_REAL(adadelta_config, eps, "1e-06", "Added to both means before the square root."),
    OPTIMIZER_REAL(adadelta_config, weight_decay, "0", "L2 penalty, added to the gradient."),
    {0},
};

static const struct schema schema = SCHEMA("optimizer.adadelta", struct adadelta_config, .rows = rows);

static union optimizer_constants plan(const void *config, const struct optimizer_settings *own, int64_t t) {
    const struct adadelta_config *c = config;
    (void)t;
    struct adadelta_constants s = {
        .minus_lr = (float)-own->lr,
        .rho = (float)c->rho,
        .one_minus_rho = (float)(1 - c->rho),
        .eps = optimizer_eps(c->eps),
        .weight_decay = (float)own->weight_decay,
        .has_weight_decay = own->weight_decay != 0,
    };
    return (union optimizer_constants){.adadelta = s};
}

static const struct schema_alias aliases[] = {
    CALL_ALIAS("optimizer", "adadelta", "? lr rho eps weight_decay"),
    {0},
};

const struct optimizer_type optimizer_adadelta = {
    .aliases = aliases,
    .variant = {"adadelta", &schema, "Adadelta: changes in proportion to earlier changes (torch.optim.Adadelta)."},
    .buffers = {"square_avg", "acc_delta"},
    .plan = plan,
    .rule = RULE_ADADELTA,
    .pytorch = "torch.optim.Adadelta({groups}, lr={lr}{,rho}{,eps}{,weight_decay})",
};
