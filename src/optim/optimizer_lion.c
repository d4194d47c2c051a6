/* lion: the sign of an interpolated momentum (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023,
 * Algorithm 2), with decoupled weight decay. PyTorch has none. */
#include "optim/optimizers.h"

struct lion_config {
    double lr, weight_decay;
    struct real_list betas;
};

static const struct schema_row rows[] = {
    OPTIMIZER_REAL(lion_config, lr, "0.0001", "Learning rate; 3 to 10 times smaller than AdamW's."),
    OPTIMIZER_BETAS(lion_config, "[0.9, 0.99]",
                    "Weight of the momentum in the update, and its decay from one update to the next."),
    OPTIMIZER_REAL(lion_config, weight_decay, "0",
                   "Decoupled weight decay: values are multiplied by 1 - lr * weight_decay."),
    {0},
};

static void check(void *config, const struct node *where, const char *path, struct problems *problems) {
    optimizer_check_betas(&((const struct lion_config *)config)->betas, where, path, problems);
}

static const struct schema schema = {
    .name = "optimizer.lion", .size = sizeof(struct lion_config), .rows = rows, .check = check};

static struct optimizer_settings settings(const void *config) {
    const struct lion_config *c = config;
    return (struct optimizer_settings){.lr = c->lr, .weight_decay = c->weight_decay, .momentum = c->betas.items[0]};
}

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

/* Names in other programs. */
static const struct schema_alias aliases[] = {
    CALL_ALIAS("optimizer", "lion", "? lr betas weight_decay"),
    {0},
};

const struct optimizer_type optimizer_lion = {
    .aliases = aliases,
    .variant = {"lion", &schema, "Lion: the sign of the momentum (Chen et al. 2023)."},
    .buffers = {"exp_avg"},
    .settings = settings,
    .plan = plan,
    .rule = RULE_LION,
    .pytorch = "Lion({groups}, lr={lr}, betas={betas}, weight_decay={weight_decay})",
};
