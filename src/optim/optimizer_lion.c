/* lion: the sign of an interpolated momentum (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023,
 * Algorithm 2), with decoupled weight decay. PyTorch has none. */
#include "optim/optimizers.h"

struct lion_config {
    struct real_list betas; /* first: see optimizer_check_betas */
    double lr, weight_decay;
};

static const struct schema_row rows[] = {
    OPTIMIZER_REAL(lion_config, lr, "0.0001", "Learning rate; 3 to 10 times smaller than AdamW's."),
    OPTIMIZER_BETAS(lion_config, "[0.9, 0.99]",
                    "Weight of the momentum in the update, and its decay from one update to the next."),
    OPTIMIZER_REAL(lion_config, weight_decay, "0",
                   "Decoupled weight decay: values are multiplied by 1 - lr * weight_decay."),
    {0},
};

static const struct schema schema =
    SCHEMA("optimizer.lion", struct lion_config, .rows = rows, .check = optimizer_check_betas);

static union optimizer_constants plan(const void *config, const struct optimizer_settings *own, int64_t t) {
    const struct lion_config *c = config;
    double beta1 = own->momentum, beta2 = c->betas.items[1];
    (void)t;
    struct lion_constants s = {
        .minus_lr = (float)-own->lr,
        .beta1 = (float)beta1,
        .one_minus_beta1 = (float)(1 - beta1),
        .beta2 = (float)beta2,
        .one_minus_beta2 = (float)(1 - beta2),
        .decay_factor = (float)(1 - own->lr * own->weight_decay),
    };
    return (union optimizer_constants){.lion = s};
}

static const struct schema_alias aliases[] = {
    CALL_ALIAS("optimizer", "lion", "? lr betas weight_decay"),
    {0},
};

const struct optimizer_type optimizer_lion = {
    .aliases = aliases,
    .variant = {"lion", &schema, "Lion: the sign of the momentum (Chen et al. 2023)."},
    .buffers = {"exp_avg"},
    .plan = plan,
    .rule = RULE_LION,
    .pytorch = "Lion({groups}, lr={lr}, betas={betas}, weight_decay={weight_decay})",
};
