/* adadelta: torch.optim.Adadelta. */
#ifndef DEVICE_RULES_ADADELTA_H
#define DEVICE_RULES_ADADELTA_H

#include "device/rules/rule.h"

struct adadelta_constants {
    float minus_lr, rho, one_minus_rho, eps, weight_decay;
    bool has_weight_decay;
};

enum { ADADELTA_SQUARE_AVG, ADADELTA_ACC_DELTA };

enum { ADADELTA_HAS_WEIGHT_DECAY };

RULE unsigned adadelta_flags(const struct adadelta_constants *s) {
    return (unsigned)s->has_weight_decay << ADADELTA_HAS_WEIGHT_DECAY;
}

/* v = fmaf((1 - rho) * g, g, v * rho);  d = sqrt(a + eps) / sqrt(v + eps) * g;  a = fmaf((1 - rho) * d, d, a * rho);
 * p = fmaf(-lr, d, p) */
RULE void adadelta_rule(const struct adadelta_constants *s, unsigned flags, struct rule_number *n) {
    float g = n->gradient, a = n->state[ADADELTA_ACC_DELTA];
    if (RULE_HAS(flags, ADADELTA_HAS_WEIGHT_DECAY)) g = fmaf(s->weight_decay, n->value, g);
    float v = fmaf(s->one_minus_rho * g, g, n->state[ADADELTA_SQUARE_AVG] * s->rho);
    float d = sqrtf(a + s->eps) / sqrtf(v + s->eps) * g;
    n->state[ADADELTA_SQUARE_AVG] = v;
    n->state[ADADELTA_ACC_DELTA] = fmaf(s->one_minus_rho * d, d, a * s->rho);
    n->value = fmaf(s->minus_lr, d, n->value);
}

#endif
