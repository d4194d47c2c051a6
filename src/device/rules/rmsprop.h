/* rmsprop: torch.optim.RMSprop. */
#ifndef DEVICE_RULES_RMSPROP_H
#define DEVICE_RULES_RMSPROP_H

#include "device/rules/rule.h"

struct rmsprop_constants {
    float minus_lr, alpha, one_minus_alpha, eps, momentum, weight_decay;
    bool has_weight_decay;
};

/* The second one is used by centered, the third one where any group has a momentum. */
enum { RMSPROP_SQUARE_AVG, RMSPROP_GRAD_AVG, RMSPROP_MOMENTUM_BUFFER };

enum { RMSPROP_HAS_WEIGHT_DECAY };

RULE unsigned rmsprop_flags(const struct rmsprop_constants *s) {
    return (unsigned)s->has_weight_decay << RMSPROP_HAS_WEIGHT_DECAY;
}

/* v = fmaf((1 - a) * g, g, v * a);  centered: m = fmaf(1 - a, g - m, m), d = sqrt(fmaf(-m, m, v)) + eps, else d =
 * sqrt(v) + eps;  momentum: buf = buf * mom + g / d, p = fmaf(-lr, buf, p), else p += (-lr * g) / d */
RULE void rmsprop_rule(const struct rmsprop_constants *s, unsigned flags, struct rule_number *n) {
    float p = n->value, g = n->gradient;
    if (RULE_HAS(flags, RMSPROP_HAS_WEIGHT_DECAY)) g = fmaf(s->weight_decay, p, g);
    float v = fmaf(s->one_minus_alpha * g, g, n->state[RMSPROP_SQUARE_AVG] * s->alpha);
    n->state[RMSPROP_SQUARE_AVG] = v;
    if (RULE_USES(flags, RMSPROP_GRAD_AVG)) {
        float m = n->state[RMSPROP_GRAD_AVG];
        m = fmaf(s->one_minus_alpha, g - m, m);
        n->state[RMSPROP_GRAD_AVG] = m;
        v = fmaf(-m, m, v);
    }
    float d = sqrtf(v) + s->eps;
    if (RULE_USES(flags, RMSPROP_MOMENTUM_BUFFER) && s->momentum != 0) {
        float buffer = n->state[RMSPROP_MOMENTUM_BUFFER] * s->momentum + g / d;
        n->state[RMSPROP_MOMENTUM_BUFFER] = buffer;
        n->value = fmaf(s->minus_lr, buffer, p);
    } else {
        n->value = p + (s->minus_lr * g) / d;
    }
}

#endif
