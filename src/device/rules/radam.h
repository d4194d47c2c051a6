/* radam: torch.optim.RAdam. */
#ifndef DEVICE_RULES_RADAM_H
#define DEVICE_RULES_RADAM_H

#include "device/rules/rule.h"

struct radam_constants {
    float lr, one_minus_beta1, beta2, one_minus_beta2, eps;
    float correction1;      /* 1 - beta1^t */
    float sqrt_correction2; /* sqrt(1 - beta2^t) */
    float rectification;    /* of the variance; not used before it is rectified */
    float weight_decay;     /* L2: added to the gradient */
    float decay_factor;     /* decoupled: values are multiplied by it first; 1: none */
    bool has_weight_decay, is_rectified;
};

enum { RADAM_EXP_AVG, RADAM_EXP_AVG_SQ };

enum { RADAM_HAS_WEIGHT_DECAY, RADAM_IS_RECTIFIED };

RULE unsigned radam_flags(const struct radam_constants *s) {
    return (unsigned)s->has_weight_decay << RADAM_HAS_WEIGHT_DECAY | (unsigned)s->is_rectified << RADAM_IS_RECTIFIED;
}

/* m = lerp(m, g, 1 - b1);  v = fmaf((1 - b2) * g, g, v * b2);  u = m / (1 - b1^t) * lr;
 * rectified: u = u * (1 / (sqrt(v) + eps) * sqrt(1 - b2^t)) * r;  p -= u */
RULE void radam_rule(const struct radam_constants *s, unsigned flags, struct rule_number *n) {
    float p = n->value * s->decay_factor, g = n->gradient;
    if (RULE_HAS(flags, RADAM_HAS_WEIGHT_DECAY)) g = fmaf(s->weight_decay, p, g);
    float m = average_rule(s->one_minus_beta1, g, n->state[RADAM_EXP_AVG]);
    float v = fmaf(s->one_minus_beta2 * g, g, n->state[RADAM_EXP_AVG_SQ] * s->beta2);
    n->state[RADAM_EXP_AVG] = m;
    n->state[RADAM_EXP_AVG_SQ] = v;
    float u = m / s->correction1 * s->lr;
    if (RULE_HAS(flags, RADAM_IS_RECTIFIED)) u = u * (1 / (sqrtf(v) + s->eps) * s->sqrt_correction2) * s->rectification;
    n->value = p - u;
}

#endif
