/* adamax: torch.optim.Adamax. */
#ifndef DEVICE_RULES_ADAMAX_H
#define DEVICE_RULES_ADAMAX_H

#include "device/rules/rule.h"

struct adamax_constants {
    float one_minus_beta1, beta2, eps;
    float minus_step_size; /* -(lr / (1 - beta1^t)) */
    float weight_decay;
    bool has_weight_decay;
};

enum { ADAMAX_EXP_AVG, ADAMAX_EXP_INF };

enum { ADAMAX_HAS_WEIGHT_DECAY };

RULE unsigned adamax_flags(const struct adamax_constants *s) {
    return (unsigned)s->has_weight_decay << ADAMAX_HAS_WEIGHT_DECAY;
}

/* m = lerp(m, g, 1 - b1);  u = max(u * b2, |g| + eps);  p += (-step_size * m) / u */
RULE void adamax_rule(const struct adamax_constants *s, unsigned flags, struct rule_number *n) {
    float g = n->gradient;
    if (RULE_HAS(flags, ADAMAX_HAS_WEIGHT_DECAY)) g = fmaf(s->weight_decay, n->value, g);
    float m = average_rule(s->one_minus_beta1, g, n->state[ADAMAX_EXP_AVG]);
    float u = n->state[ADAMAX_EXP_INF] * s->beta2, size = fabsf(g) + s->eps;
    u = u > size ? u : size;
    n->state[ADAMAX_EXP_AVG] = m;
    n->state[ADAMAX_EXP_INF] = u;
    n->value = n->value + (s->minus_step_size * m) / u;
}

#endif
