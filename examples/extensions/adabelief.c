/* adabelief: Adam whose second moment is that of the gradient's deviation from its mean (Zhuang et al., 2020). */
#include "extension.h"

struct adabelief_config {
    double lr, weight_decay, eps;
    struct real_list betas;
};

static const struct schema_row keys[] = {
    OPTIMIZER_REAL(adabelief_config, lr, "0.001", "Learning rate."),
    OPTIMIZER_BETAS(adabelief_config, "[0.9, 0.999]", "Decay of the mean and of the deviation."),
    OPTIMIZER_REAL(adabelief_config, eps, "1e-16", "Added to the deviation and to its root."),
    OPTIMIZER_REAL(adabelief_config, weight_decay, "0", "Values are multiplied by 1 - lr * weight_decay."),
    {0},
};

static void check(void *config, const struct node *where, const char *path, struct problems *problems) {
    optimizer_check_betas(&((const struct adabelief_config *)config)->betas, where, path, problems);
}
static const struct schema schema = {
    .name = "optimizer.adabelief", .size = sizeof(struct adabelief_config), .rows = keys, .check = check};

static struct optimizer_settings settings(const void *config) {
    const struct adabelief_config *c = config;
    return (struct optimizer_settings){.lr = c->lr, .weight_decay = c->weight_decay, .momentum = c->betas.items[0]};
}

static void update(const float *numbers, struct rule_number *n) {
    float step = numbers[0], decay = numbers[1], beta1 = numbers[2], beta2 = numbers[3], correction = numbers[4],
          eps = numbers[5], mean = beta1 * n->state[0] + (1 - beta1) * n->gradient, error = n->gradient - mean;
    n->state[0] = mean;
    n->state[1] = beta2 * n->state[1] + (1 - beta2) * error * error + eps;
    n->value = n->value * decay - step * mean / (sqrtf(n->state[1]) / correction + eps);
}

static union optimizer_constants plan(const void *config, const struct optimizer_settings *own, int64_t t) {
    const struct adabelief_config *c = config;
    double beta1 = own->momentum, beta2 = c->betas.items[1];
    const float numbers[] = {(float)(own->lr / (1 - pow(beta1, (double)t))),
                             (float)(1 - own->lr * own->weight_decay),
                             (float)beta1,
                             (float)beta2,
                             (float)sqrt(1 - pow(beta2, (double)t)),
                             (float)c->eps};
    return extension_constants(update, numbers, sizeof numbers / sizeof *numbers);
}

static const struct optimizer_type adabelief = {
    .variant = {"adabelief", &schema, "Adam with the deviation of the gradient from its mean."},
    .buffers = {"exp_avg", "exp_avg_var"},
    .settings = settings,
    .plan = plan,
    .rule = RULE_OWN,
};

DDPTRAIN_EXTENSION(.optimizer = &adabelief);
