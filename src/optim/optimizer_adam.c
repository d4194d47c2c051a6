/* adam, adamw: torch.optim.Adam and AdamW. Adam adds weight decay to the gradient; AdamW subtracts it from the weights
 * before the update. */
#include <math.h>

#include "optim/optimizers.h"

static const char *const arithmetics[] = {"torch2", "torch1", NULL};

#define SHARED_ROWS                                                                                                    \
    OPTIMIZER_REAL(adam_config, lr, "0.001", "Learning rate."),                                                        \
        OPTIMIZER_BETAS(adam_config, "[0.9, 0.999]", "Decay of the running means of the gradient and of its square."), \
        OPTIMIZER_REAL(adam_config, eps, "1e-08", "Added to the denominator."),                                        \
        OPTIMIZER_BOOL(adam_config, amsgrad, "Divide by the largest mean of squares so far (AMSGrad).")
#define ARITHMETIC_ROW                                                                                                 \
    SCHEMA_ROW(                                                                                                        \
        CHOICE, struct adam_config, arithmetic, .fallback = "torch2", .choices = arithmetics,                          \
        .doc = "Rounding of the first moment: as PyTorch 2 (lerp) or PyTorch 1 (mul, add); they differ by an ulp.")

static const struct schema_row adam_rows[] = {
    SHARED_ROWS,
    OPTIMIZER_REAL(adam_config, weight_decay, "0", "L2 penalty, added to the gradient."),
    ARITHMETIC_ROW,
    {0},
};
static const struct schema_row adamw_rows[] = {
    SHARED_ROWS,
    OPTIMIZER_REAL(adam_config, weight_decay, "0.01",
                   "Decoupled weight decay: values are multiplied by 1 - lr * weight_decay."),
    ARITHMETIC_ROW,
    {0},
};

void optimizer_check_betas(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct real_list *betas = config;
    const struct node *node = node_get(where, "betas");
    if (!node) node = where; /* of a group, whose place is that of all its keys */
    if (betas->count != 2)
        problems_add(problems, node ? node->place : (struct place){0}, path, "betas must be two numbers, got %zu",
                     betas->count);
}

static const struct schema adam_schema =
    SCHEMA("optimizer.adam", struct adam_config, .rows = adam_rows, .check = optimizer_check_betas);
static const struct schema adamw_schema =
    SCHEMA("optimizer.adamw", struct adam_config, .rows = adamw_rows, .check = optimizer_check_betas);

static bool uses_buffer(const void *config, size_t index) {
    return index < 2 || ((const struct adam_config *)config)->amsgrad;
}

/* 1 - beta^t; pow takes longest where the power is below 2^-54, half a unit in the last place, which e^-40 is */
static double correction(double beta, double t) { return (1 - beta) * t > 40 ? 1 : 1 - pow(beta, t); }

/* step_size = lr / (1 - b1^t);  bc2s = sqrt(1 - b2^t), in double, cast once */
static struct adam_constants plan_shared(const struct adam_config *c, const struct optimizer_settings *own, int64_t t) {
    double beta1 = own->momentum, beta2 = c->betas.items[1];
    return (struct adam_constants){
        .beta1 = (float)beta1,
        .one_minus_beta1 = (float)(1 - beta1),
        .beta2 = (float)beta2,
        .one_minus_beta2 = (float)(1 - beta2),
        .eps = optimizer_eps(c->eps),
        .minus_step_size = (float)-(own->lr / correction(beta1, (double)t)),
        .sqrt_correction2 = (float)sqrt(correction(beta2, (double)t)),
        .decay_factor = 1,
        .uses_lerp = c->arithmetic == ADAM_TORCH2,
    };
}

static union optimizer_constants plan_adam(const void *config, const struct optimizer_settings *own, int64_t t) {
    struct adam_constants s = plan_shared(config, own, t);
    s.has_weight_decay = own->weight_decay != 0;
    s.weight_decay = (float)own->weight_decay;
    return (union optimizer_constants){.adam = s};
}

static union optimizer_constants plan_adamw(const void *config, const struct optimizer_settings *own, int64_t t) {
    struct adam_constants s = plan_shared(config, own, t);
    s.decay_factor = (float)(1 - own->lr * own->weight_decay);
    return (union optimizer_constants){.adam = s};
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("optimizer", "adam_w adamw_torch decoupled_adam", "adamw"),
    CALL_ALIAS("optimizer", "adam", "? lr betas eps weight_decay amsgrad"),
    CALL_ALIAS("optimizer", "adamw", "? lr betas eps weight_decay amsgrad"),
    {0},
};

const struct optimizer_type optimizer_adam = {
    .aliases = aliases,
    .variant = {"adam", &adam_schema, "Adam (torch.optim.Adam)."},
    .buffers = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
    .uses_buffer = uses_buffer,
    .plan = plan_adam,
    .rule = RULE_ADAM,
    .pytorch = "torch.optim.Adam({groups}, lr={lr}{,betas}{,eps}{,weight_decay}{,amsgrad})",
};
const struct optimizer_type optimizer_adamw = {
    .variant = {"adamw", &adamw_schema, "Adam with decoupled weight decay (torch.optim.AdamW)."},
    .buffers = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
    .uses_buffer = uses_buffer,
    .plan = plan_adamw,
    .rule = RULE_ADAM,
    .pytorch = "torch.optim.AdamW({groups}, lr={lr}{,betas}{,eps}{,weight_decay}{,amsgrad})",
};
