/* rules: the update rules of optimizers. One is a row here, the constants of an update, struct <name>_constants, and
 * the update of one number:
 *
 *     RULE void <name>_rule(const struct <name>_constants *s, unsigned flags, struct rule_number *n);
 *
 * The union of constants, the enum, the CPU's loops for every instruction set (cpu/sets/optimizers.c) and the GPU's
 * kernels (cuda/optimizers.cu) follow from them; they call the rule for each number, so it needs no loop. [flags] are
 * the same for all numbers of a loop; the CPU has one loop for each value, in which they are constants. The lower bits
 * are set for the state buffers in use. The others (at most two) are specific to the rule and computed by a function of
 * the constants, for branches that would prevent vectorisation of the loop. Formulas write each fused multiply-add of
 * PyTorch's kernels as fmaf. */
#pragma once

#include <math.h>
#include <stdbool.h>

#include "base/bits.h"

/* X(id, name, number of state buffers, how many of them (the first ones) every update uses, function of the flags) */
#define UPDATE_RULES(X)                                                                                                \
    X(RULE_SGD, sgd, 1, 0, rule_no_flags)                                                                              \
    X(RULE_ADAM, adam, 3, 2, adam_flags)                                                                               \
    X(RULE_ADAGRAD, adagrad, 1, 1, rule_no_flags)                                                                      \
    X(RULE_RMSPROP, rmsprop, 3, 1, rmsprop_flags)                                                                      \
    X(RULE_LION, lion, 1, 1, rule_no_flags)                                                                            \
    X(RULE_NADAM, nadam, 2, 2, nadam_flags)                                                                            \
    X(RULE_RADAM, radam, 2, 2, radam_flags)                                                                            \
    X(RULE_ADAMAX, adamax, 2, 2, adamax_flags)                                                                         \
    X(RULE_ADADELTA, adadelta, 2, 2, adadelta_flags)                                                                   \
    X(RULE_RPROP, rprop, 2, 2, rule_no_flags)                                                                          \
    X(RULE_ASGD, asgd, 1, 1, rule_no_flags)                                                                            \
    X(RULE_OWN, own, 3, 0, rule_no_flags)

#define OPTIMIZER_STATES 3 /* maximum buffers of state of a rule */

/* One number of each buffer, read before and written after the rule. */
struct rule_number {
    float value;
    float gradient;                /* clipped */
    float state[OPTIMIZER_STATES]; /* in the order of the optimizer's buffers */
};

#define RULE HOST_DEVICE static inline __attribute__((always_inline))

/* Whether buffer [k] of the state is used. */
#define RULE_USES(flags, k) (((flags) >> (k)&1) != 0)
/* Whether the specific flag [k] of the rule is set. */
#define RULE_HAS(flags, k) RULE_USES(flags, OPTIMIZER_STATES + (k))

/* For a rule without specific flags. */
RULE unsigned rule_no_flags(const void *constants) {
    (void)constants;
    return 0;
}

/* Moving average: lerp(mean, value, weight) */
RULE float average_rule(float weight, float value, float mean) { return fmaf(weight, value - mean, mean); }

/* NaN is not changed. */
RULE float clamp_rule(float limit, float x) {
    float low = x < -limit ? -limit : x;
    return low > limit ? limit : low;
}

/* ---- sgd: torch.optim.SGD ---- */

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

/* ---- adam: torch.optim.Adam and AdamW, which differ in has_weight_decay and decay_factor ---- */

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

/* ---- adagrad: torch.optim.Adagrad ---- */

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

/* ---- rmsprop: torch.optim.RMSprop ---- */

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

/* ---- lion: Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023, Algorithm 2 ---- */

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

/* ---- nadam: torch.optim.NAdam ---- */

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

/* ---- radam: torch.optim.RAdam ---- */

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

/* ---- adamax: torch.optim.Adamax ---- */

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

/* ---- adadelta: torch.optim.Adadelta ---- */

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

/* ---- rprop: torch.optim.Rprop ---- */

struct rprop_constants {
    float lr, eta_minus, eta_plus, step_min, step_max;
    bool is_first; /* the step is lr */
};

enum { RPROP_PREV, RPROP_STEP_SIZE };

/* s = g prev > 0 ? eta+ : g prev < 0 ? eta- : 1;  step = clamp(step s);  g = 0 where s is eta-;
 * p = p - sign(g) step;  prev = g */
RULE void rprop_rule(const struct rprop_constants *s, unsigned flags, struct rule_number *n) {
    float g = n->gradient, product = g * n->state[RPROP_PREV];
    float step = s->is_first ? s->lr : n->state[RPROP_STEP_SIZE];
    (void)flags;
    step = step * (product > 0 ? s->eta_plus : product < 0 ? s->eta_minus : 1);
    step = step < s->step_min ? s->step_min : step > s->step_max ? s->step_max : step;
    g = product < 0 ? 0 : g;
    float sign = g > 0 ? 1.0f : g < 0 ? -1.0f : g; /* 0 and NaN: g itself */
    n->state[RPROP_PREV] = g;
    n->state[RPROP_STEP_SIZE] = step;
    n->value = n->value - sign * step;
}

/* ---- asgd: torch.optim.ASGD ---- */

struct asgd_constants {
    float minus_eta, decay_factor; /* 1 - lambd eta */
    float mu;                      /* share of the new value in the average; 1: it is the value */
    float weight_decay;
    bool has_weight_decay;
};

enum { ASGD_AX };

/* g = fmaf(wd, p, g);  p = fmaf(-eta, g, p (1 - lambd eta));  ax = ax + (p - ax) mu */
RULE void asgd_rule(const struct asgd_constants *s, unsigned flags, struct rule_number *n) {
    float p = n->value, g = n->gradient, ax = n->state[ASGD_AX];
    (void)flags;
    if (s->has_weight_decay) g = fmaf(s->weight_decay, p, g);
    p = fmaf(s->minus_eta, g, p * s->decay_factor);
    float change = (p - ax) * s->mu;
    n->state[ASGD_AX] = s->mu == 1 ? p : ax + change;
    n->value = p;
}

/* ---- the tables ---- */

enum update_rule {
#define X(id, name, states, always, own_flags) id,
    UPDATE_RULES(X)
#undef X
        RULE_COUNT
};

/* ---- own: the rule of an extension, a function of the host's; not on GPUs ---- */

#define OWN_NUMBERS 14 /* constants of it */

/* The update of one number, whose state[k] is that of the optimizer's buffer k. */
typedef void own_formula(const float *numbers, struct rule_number *n);

struct own_constants {
    own_formula *update;
    float numbers[OWN_NUMBERS];
};

RULE void own_rule(const struct own_constants *s, unsigned flags, struct rule_number *n) {
    (void)flags;
    s->update(s->numbers, n);
}

/* The constants of an update for numbers with the same settings. */
union optimizer_constants {
#define X(id, name, states, always, own_flags) struct name##_constants name;
    UPDATE_RULES(X)
#undef X
};
