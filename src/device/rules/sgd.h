/* sgd: torch.optim.SGD. */
#ifndef DEVICE_RULES_SGD_H
#define DEVICE_RULES_SGD_H

#include "device/rules/rule.h"

struct sgd_constants {
    float minus_lr, momentum, one_minus_dampening, weight_decay;
    bool has_weight_decay, is_nesterov, is_first; /* first: the buffer becomes the gradient */
};

enum { SGD_MOMENTUM_BUFFER };

/* g = fmaf(wd, p, g);  buf = g at first, later fmaf(1 - damp, g, buf * mom);  nesterov: g = fmaf(mom, buf, g), else g =
 * buf; p = fmaf(-lr, g, p) */
RULE void sgd_rule(const struct sgd_constants *s, unsigned flags, struct rule_number *n) {
    float g = n->gradient;
    if (s->has_weight_decay) g = fmaf(s->weight_decay, n->value, g);
    if (RULE_USES(flags, SGD_MOMENTUM_BUFFER)) {
        float *buffer = &n->state[SGD_MOMENTUM_BUFFER];
        *buffer = s->is_first ? g : fmaf(s->one_minus_dampening, g, *buffer * s->momentum);
        g = s->is_nesterov ? fmaf(s->momentum, *buffer, g) : *buffer;
    }
    n->value = fmaf(s->minus_lr, g, n->value);
}

#endif
