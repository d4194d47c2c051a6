/* lion: Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023, Algorithm 2. */
#ifndef DEVICE_RULES_LION_H
#define DEVICE_RULES_LION_H

#include "device/rules/rule.h"

struct lion_constants {
    float minus_lr, beta1, one_minus_beta1, beta2, one_minus_beta2;
    float decay_factor; /* 1 - lr * weight_decay: values are multiplied by it first */
};

enum { LION_EXP_AVG };

/* c = fmaf(1 - b1, g, m * b1);  p = fmaf(-lr, sign(c), p * (1 - lr * wd));  m = fmaf(1 - b2, g, m * b2) */
RULE void lion_rule(const struct lion_constants *s, unsigned flags, struct rule_number *n) {
    float p = n->value * s->decay_factor, g = n->gradient, m = n->state[LION_EXP_AVG];
    (void)flags;
    float c = fmaf(s->one_minus_beta1, g, m * s->beta1);
    float sign = c > 0 ? 1.0f : c < 0 ? -1.0f : c; /* 0 and NaN: c itself */
    n->value = fmaf(s->minus_lr, sign, p);
    n->state[LION_EXP_AVG] = fmaf(s->one_minus_beta2, g, m * s->beta2);
}

#endif
