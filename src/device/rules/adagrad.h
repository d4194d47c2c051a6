/* adagrad: torch.optim.Adagrad. */
#ifndef DEVICE_RULES_ADAGRAD_H
#define DEVICE_RULES_ADAGRAD_H

#include "device/rules/rule.h"

struct adagrad_constants {
    float minus_lr; /* -(lr / (1 + (t - 1) * lr_decay)) */
    float eps, weight_decay;
    bool has_weight_decay;
};

enum { ADAGRAD_SUM };

/* sum = fmaf(g, g, sum);  p += (-lr * g) / (sqrt(sum) + eps) */
RULE void adagrad_rule(const struct adagrad_constants *s, unsigned flags, struct rule_number *n) {
    float p = n->value, g = n->gradient;
    (void)flags;
    if (s->has_weight_decay) g = fmaf(s->weight_decay, p, g);
    float sum = fmaf(g, g, n->state[ADAGRAD_SUM]);
    n->state[ADAGRAD_SUM] = sum;
    n->value = p + (s->minus_lr * g) / (sqrtf(sum) + s->eps);
}

#endif
