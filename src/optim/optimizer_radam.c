/* radam: torch.optim.RAdam. */
#include <math.h>

#include "optim/optimizers.h"

struct radam_config {
    struct real_list betas; /* first: see optimizer_check_betas */
    double lr, eps, weight_decay;
    bool decoupled_weight_decay;
};

static const struct schema_row rows[] = {
    OPTIMIZER_REAL(radam_config, lr, "0.001", "Learning rate."),
    OPTIMIZER_BETAS(radam_config, "[0.9, 0.999]", "Decay of the running means of the gradient and of its square."),
    OPTIMIZER_REAL(radam_config, eps, "1e-08", "Added to the denominator."),
    OPTIMIZER_REAL(radam_config, weight_decay, "0", "L2 penalty, added to the gradient."),
    OPTIMIZER_DECOUPLED(radam_config),
    {0},
};

static const struct schema schema =
    SCHEMA("optimizer.radam", struct radam_config, .rows = rows, .check = optimizer_check_betas);

/* rho_t: the length of the simple moving average that approximates the running mean of squares. */
static double length_at(double beta2, int64_t t) {
    double power = pow(beta2, (double)t);
    return 2 / (1 - beta2) - 1 - 2 * (double)t * power / (1 - power);
}

/* sqrt((rho_t - 4) (rho_t - 2) rho_inf / ((rho_inf - 4) (rho_inf - 2) rho_t)) */
static double rectification(double beta2, double length) {
    double limit = 2 / (1 - beta2) - 1;
    return sqrt((length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length));
}

static union optimizer_constants plan(const void *config, const struct optimizer_settings *own, int64_t t) {
    const struct radam_config *c = config;
    double beta1 = own->momentum, beta2 = c->betas.items[1], length = length_at(beta2, t);
    bool is_decoupled = c->decoupled_weight_decay, is_rectified = length > 5;
    struct radam_constants s = {
        .lr = (float)own->lr,
        .one_minus_beta1 = (float)(1 - beta1),
        .beta2 = (float)beta2,
        .one_minus_beta2 = (float)(1 - beta2),
        .eps = optimizer_eps(c->eps),
        .correction1 = (float)(1 - pow(beta1, (double)t)),
        .sqrt_correction2 = (float)sqrt(1 - pow(beta2, (double)t)),
        .rectification = is_rectified ? (float)rectification(beta2, length) : 1,
        .weight_decay = (float)own->weight_decay,
        .decay_factor = is_decoupled ? (float)(1 - own->lr * own->weight_decay) : 1,
        .has_weight_decay = own->weight_decay != 0 && !is_decoupled,
        .is_rectified = is_rectified,
    };
    return (union optimizer_constants){.radam = s};
}

static const struct schema_alias aliases[] = {
    CALL_ALIAS("optimizer", "radam", "? lr betas eps weight_decay decoupled_weight_decay"),
    {0},
};

const struct optimizer_type optimizer_radam = {
    .aliases = aliases,
    .variant = {"radam", &schema, "Adam with a rectified variance, which needs no warm-up (torch.optim.RAdam)."},
    .buffers = {"exp_avg", "exp_avg_sq"},
    .plan = plan,
    .rule = RULE_RADAM,
    .pytorch = "torch.optim.RAdam({groups}, lr={lr}{,betas}{,eps}{,weight_decay}{,decoupled_weight_decay})",
};
