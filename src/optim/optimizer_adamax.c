/* adamax: torch.optim.Adamax. */
#include <math.h>

#include "optim/optimizers.h"

struct adamax_config {
    struct real_list betas; /* first: see optimizer_check_betas */
    double lr, eps, weight_decay;
};

static const struct schema_row rows[] = {
    OPTIMIZER_REAL(adamax_config, lr, "0.002", "Learning rate."),
    OPTIMIZER_BETAS(adamax_config, "[0.9, 0.999]",
                    "Decay of the running mean of the gradient, and of the largest gradient so far."),
    OPTIMIZER_REAL(adamax_config, eps, "1e-08", "Added to the size of the gradient."),
    OPTIMIZER_REAL(adamax_config, weight_decay, "0", "L2 penalty, added to the gradient."),
    {0},
};

static const struct schema schema =
    SCHEMA("optimizer.adamax", struct adamax_config, .rows = rows, .check = optimizer_check_betas);

static union optimizer_constants plan(const void *config, const struct optimizer_settings *own, int64_t t) {
    const struct adamax_config *c = config;
    double beta1 = own->momentum;
    struct adamax_constants s = {
        .one_minus_beta1 = (float)(1 - beta1),
        .beta2 = (float)c->betas.items[1],
        .eps = optimizer_eps(c->eps),
        .minus_step_size = (float)-(own->lr / (1 - pow(beta1, (double)t))),
        .weight_decay = (float)own->weight_decay,
        .has_weight_decay = own->weight_decay != 0,
    };
    return (union optimizer_constants){.adamax = s};
}

static const struct schema_alias aliases[] = {
    CALL_ALIAS("optimizer", "adamax", "? lr betas eps weight_decay"),
    {0},
};

const struct optimizer_type optimizer_adamax = {
    .aliases = aliases,
    .variant = {"adamax", &schema, "Adam with the infinity norm (torch.optim.Adamax)."},
    .buffers = {"exp_avg", "exp_inf"},
    .plan = plan,
    .rule = RULE_ADAMAX,
    .pytorch = "torch.optim.Adamax({groups}, lr={lr}{,betas}{,eps}{,weight_decay})",
};
