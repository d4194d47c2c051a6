/* nadam: torch.optim.NAdam. */
#include <math.h>

#include "optim/optimizers.h"

struct nadam_config {
    struct real_list betas; /* first: see optimizer_check_betas */
    double lr, eps, weight_decay, momentum_decay;
    bool decoupled_weight_decay;
};

static const struct schema_row rows[] = {
    OPTIMIZER_REAL(nadam_config, lr, "0.002", "Learning rate."),
    OPTIMIZER_BETAS(
        nadam_config, "[0.9, 0.999]",
        "Decay of the running means of the gradient and of its square; the first one is the final momentum."),
    OPTIMIZER_REAL(nadam_config, eps, "1e-08", "Added to the denominator."),
    OPTIMIZER_REAL(nadam_config, momentum_decay, "0.004", "How fast the momentum reaches its final value."),
    OPTIMIZER_REAL(nadam_config, weight_decay, "0", "L2 penalty, added to the gradient."),
    OPTIMIZER_DECOUPLED(nadam_config),
    {0},
};

static const struct schema schema =
    SCHEMA("optimizer.nadam", struct nadam_config, .rows = rows, .check = optimizer_check_betas);

/* No momentum of settings: the product of all momenta could not be computed from the number of the update if a schedule
 * changed it. */
static struct optimizer_settings settings(const void *config) {
    const struct nadam_config *c = config;
    return (struct optimizer_settings){.lr = c->lr, .weight_decay = c->weight_decay, .momentum = NAN};
}

/* mu = b1 * (1 - 0.5 * 0.96^(t * momentum_decay)) */
static double momentum_at(const struct nadam_config *c, int64_t t) {
    return c->betas.items[0] * (1 - 0.5 * pow(0.96, (double)t * c->momentum_decay));
}

/* mu_1 ... mu_t, rounded after each factor as PyTorch's tensor mu_product. [product] continues from the update before.
 */
static float product_at(const struct nadam_config *c, int64_t t, struct optimizer_product *product) {
    if (product->updates > t || product->updates == 0) *product = (struct optimizer_product){0, 1};
    for (; product->updates < t && product->value != 0; product->updates++)
        product->value *= (float)momentum_at(c, product->updates + 1);
    product->updates = t;
    return product->value;
}

static union optimizer_constants plan(const void *config, const struct optimizer_settings *own, int64_t t) {
    const struct nadam_config *c = config;
    double beta1 = c->betas.items[0], beta2 = c->betas.items[1], mu = momentum_at(c, t),
           mu_next = momentum_at(c, t + 1);
    double product = product_at(c, t, own->product);
    bool is_decoupled = c->decoupled_weight_decay;
    return (union optimizer_constants){
        .nadam = {
            .one_minus_beta1 = (float)(1 - beta1),
            .beta2 = (float)beta2,
            .one_minus_beta2 = (float)(1 - beta2),
            .eps = optimizer_eps(c->eps),
            .correction2 = (float)(1 - pow(beta2, (double)t)),
            .minus_gradient_step_size = (float)(-own->lr * (1 - mu) / (1 - product)),
            .minus_average_step_size = (float)(-own->lr * mu_next / (1 - product * mu_next)),
            .weight_decay = (float)own->weight_decay,
            .decay_factor = is_decoupled ? (float)(1 - own->lr * own->weight_decay) : 1,
            .has_weight_decay = own->weight_decay != 0 && !is_decoupled,
        }};
}

static const struct schema_alias aliases[] = {
    CALL_ALIAS("optimizer", "nadam", "? lr betas eps weight_decay momentum_decay decoupled_weight_decay"),
    {0},
};

const struct optimizer_type optimizer_nadam = {
    .aliases = aliases,
    .variant = {"nadam", &schema, "Adam with Nesterov momentum (torch.optim.NAdam)."},
    .buffers = {"exp_avg", "exp_avg_sq"},
    .settings = settings,
    .plan = plan,
    .rule = RULE_NADAM,
    .pytorch =
        "torch.optim.NAdam({groups}, lr={lr}{,betas}{,eps}{,weight_decay}{,momentum_decay}{,decoupled_weight_decay})",
};
