/* sgd: torch.optim.SGD. */
#include "optim/optimizers.h"

struct sgd_config {
    double lr, momentum, dampening, weight_decay;
    bool nesterov;
};

static const struct schema_row rows[] = {
    OPTIMIZER_REAL(sgd_config, lr, "0.001", "Learning rate."),
    SCHEMA_ROW(REAL, struct sgd_config, momentum, .fallback = "0", .min = 0, .max = 1,
               .doc = "Momentum factor; 0: none."),
    SCHEMA_ROW(REAL, struct sgd_config, dampening, .fallback = "0", .min = 0, .max = 1,
               .doc = "Dampening for momentum."),
    OPTIMIZER_REAL(sgd_config, weight_decay, "0", "L2 penalty, added to the gradient."),
    OPTIMIZER_BOOL(sgd_config, nesterov, "Nesterov momentum; needs momentum > 0 and dampening 0."),
    {0},
};

static void check(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct sgd_config *c = config;
    if (c->nesterov && (c->momentum <= 0 || c->dampening != 0))
        problems_add(problems, where ? where->place : (struct place){0}, path,
                     "nesterov needs momentum > 0 and dampening 0");
}

static const struct schema schema = SCHEMA("optimizer.sgd", struct sgd_config, .rows = rows, .check = check);

static bool uses_buffer(const void *config, size_t index) {
    (void)index;
    return ((const struct sgd_config *)config)->momentum != 0;
}

static union optimizer_constants plan(const void *config, const struct optimizer_settings *own, int64_t t) {
    const struct sgd_config *c = config;
    bool has_momentum = !isnan(own->momentum); /* else the buffer, which another group needs, is the gradient */
    struct sgd_constants s = {
        .minus_lr = (float)-own->lr,
        .momentum = has_momentum ? (float)own->momentum : 0,
        .one_minus_dampening = has_momentum ? (float)(1 - c->dampening) : 1,
        .weight_decay = (float)own->weight_decay,
        .has_weight_decay = own->weight_decay != 0,
        .is_nesterov = c->nesterov && has_momentum,
        .is_first = t == 1,
    };
    return (union optimizer_constants){.sgd = s};
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("optimizer", "momentum SGDM sgd_momentum gd", "sgd"),
    CALL_ALIAS("optimizer", "sgd", "? lr momentum dampening weight_decay nesterov"),
    {0},
};

const struct optimizer_type optimizer_sgd = {
    .aliases = aliases,
    .variant = {"sgd", &schema, "Stochastic gradient descent (torch.optim.SGD)."},
    .buffers = {"momentum_buffer"},
    .uses_buffer = uses_buffer,
    .plan = plan,
    .rule = RULE_SGD,
    .pytorch = "torch.optim.SGD({groups}, lr={lr}{,momentum}{,dampening}{,weight_decay}{,nesterov})",
};
