/* nadam: torch.optim.NAdam. */
#ifndef DEVICE_RULES_NADAM_H
#define DEVICE_RULES_NADAM_H

#include "device/rules/rule.h"

struct nadam_constants {
    float one_minus_beta1, beta2, one_minus_beta2, eps;
    float correction2;              /* 1 - beta2^t */
    float minus_gradient_step_size; /* -lr (1 - mu_t) / (1 - mu_1 ... mu_t) */
    float minus_average_step_size;  /* -lr mu_(t+1) / (1 - mu_1 ... mu_(t+1)) */
    float weight_decay;             /* L2: added to the gradient */
    float decay_factor;             /* decoupled: values are multiplied by it first; 1: none */
    bool has_weight_decay;
};

enum { NADAM_EXP_AVG, NADAM_EXP_AVG_SQ };

enum { NADAM_HAS_WEIGHT_DECAY };

RULE unsigned nadam_flags(const struct nadam_constants *s) {
    return (unsigned)s->has_weight_decay << NADAM_HAS_WEIGHT_DECAY;
}

/* m = lerp(m, g, 1 - b1);  v = fmaf((1 - b2) * g, g, v * b2);  d = sqrt(v / (1 - b2^t)) + eps;
 * p = p + (-gradient_step_size * g) / d + (-average_step_size * m) / d */
RULE void nadam_rule(const struct nadam_constants *s, unsigned flags, struct rule_number *n) {
    float p = n->value * s->decay_factor, g = n->gradient;
    if (RULE_HAS(flags, NADAM_HAS_WEIGHT_DECAY)) g = fmaf(s->weight_decay, p, g);
    float m = average_rule(s->one_minus_beta1, g, n->state[NADAM_EXP_AVG]);
    float v = fmaf(s->one_minus_beta2 * g, g, n->state[NADAM_EXP_AVG_SQ] * s->beta2);
    n->state[NADAM_EXP_AVG] = m;
    n->state[NADAM_EXP_AVG_SQ] = v;
    float d = sqrtf(v / s->correction2) + s->eps;
    p = p + (s->minus_gradient_step_size * g) / d;
    n->value = p + (s->minus_average_step_size * m) / d;
}

#endif
