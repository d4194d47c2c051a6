/* adam: torch.optim.Adam and AdamW, which differ in has_weight_decay and decay_factor. */
#ifndef DEVICE_RULES_ADAM_H
#define DEVICE_RULES_ADAM_H

#include "device/rules/rule.h"

struct adam_constants {
    float beta1, one_minus_beta1, beta2, one_minus_beta2, eps;
    float minus_step_size;            /* -(lr / (1 - beta1^t)) */
    float sqrt_correction2;           /* sqrt(1 - beta2^t) */
    float weight_decay;               /* L2: added to the gradient */
    float decay_factor;               /* AdamW: values are multiplied by it first; 1: none */
    bool has_weight_decay, uses_lerp; /* lerp: the first moment as PyTorch >= 2.0 updates it */
};

enum { ADAM_EXP_AVG, ADAM_EXP_AVG_SQ, ADAM_MAX_EXP_AVG_SQ };

enum { ADAM_HAS_WEIGHT_DECAY, ADAM_USES_LERP };

RULE unsigned adam_flags(const struct adam_constants *s) {
    return (unsigned)s->has_weight_decay << ADAM_HAS_WEIGHT_DECAY | (unsigned)s->uses_lerp << ADAM_USES_LERP;
}

/* m = lerp(m, g, 1 - b1) = fmaf(1 - b1, g - m, m)  or (PyTorch < 2)  fmaf(1 - b1, g, m * b1);
 * v = fmaf((1 - b2) * g, g, v * b2);  amsgrad: v' = max(v', v), else v' = v;
 * d = sqrt(v') / bc2s + eps;  p += (-step_size * m) / d */
RULE void adam_rule(const struct adam_constants *s, unsigned flags, struct rule_number *n) {
    float p = n->value * s->decay_factor, g = n->gradient, m = n->state[ADAM_EXP_AVG];
    if (RULE_HAS(flags, ADAM_HAS_WEIGHT_DECAY)) g = fmaf(s->weight_decay, p, g);
    m = RULE_HAS(flags, ADAM_USES_LERP) ? fmaf(s->one_minus_beta1, g - m, m)
                                        : fmaf(s->one_minus_beta1, g, m * s->beta1);
    float v = fmaf(s->one_minus_beta2 * g, g, n->state[ADAM_EXP_AVG_SQ] * s->beta2);
    n->state[ADAM_EXP_AVG] = m;
    n->state[ADAM_EXP_AVG_SQ] = v;
    if (RULE_USES(flags, ADAM_MAX_EXP_AVG_SQ)) {
        float *max = &n->state[ADAM_MAX_EXP_AVG_SQ];
        *max = v = *max > v ? *max : v;
    }
    n->value = p + (s->minus_step_size * m) / (sqrtf(v) / s->sqrt_correction2 + s->eps);
}

#endif
