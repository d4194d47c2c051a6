/* optimizer_rules: the update of one number by each rule of device/optimizers.h, shared by the CPU loops and the GPU
 * kernels. [gradient] is already clipped; arguments passed by address are read and written. Decisions that are the
 * same for a whole run are bools, which are compile-time constants where a rule is inlined once per combination. */
#ifndef DEVICE_OPTIMIZER_RULES_H
#define DEVICE_OPTIMIZER_RULES_H

#include <math.h>

#include "base/bits.h"
#include "device/optimizers.h"

#define RULE HOST_DEVICE static inline __attribute__((always_inline))

/* g = fmaf(wd, p, g);  buf = g at first, later fmaf(1 - damp, g, buf * mom);  nesterov: g = fmaf(mom, buf, g), else g =
 * buf; p = fmaf(-lr, g, p) */
RULE void sgd_rule(bool has_momentum, const struct sgd_step *s, float gradient, float *value, float *momentum) {
    float g = gradient;
    if (s->has_weight_decay) g = fmaf(s->weight_decay, *value, g);
    if (has_momentum) {
        float buffer = s->is_first ? g : fmaf(s->one_minus_dampening, g, *momentum * s->momentum);
        *momentum = buffer;
        g = s->is_nesterov ? fmaf(s->momentum, buffer, g) : buffer;
    }
    *value = fmaf(s->minus_lr, g, *value);
}

/* m = lerp(m, g, 1 - b1) = fmaf(1 - b1, g - m, m)  or (PyTorch < 2)  fmaf(1 - b1, g, m * b1);
 * v = fmaf((1 - b2) * g, g, v * b2);  amsgrad: v' = max(v', v), else v' = v;
 * d = sqrt(v') / bc2s + eps;  p += (-step_size * m) / d */
RULE void adam_rule(bool has_weight_decay, bool uses_lerp, bool has_max, const struct adam_step *s, float gradient,
                    float *value, float *exp_avg, float *exp_avg_sq, float *max_exp_avg_sq) {
    float p = *value * s->decay_factor, g = gradient, m = *exp_avg;
    if (has_weight_decay) g = fmaf(s->weight_decay, p, g);
    m = uses_lerp ? fmaf(s->one_minus_beta1, g - m, m) : fmaf(s->one_minus_beta1, g, m * s->beta1);
    float v = fmaf(s->one_minus_beta2 * g, g, *exp_avg_sq * s->beta2);
    *exp_avg = m;
    *exp_avg_sq = v;
    if (has_max) *max_exp_avg_sq = v = *max_exp_avg_sq > v ? *max_exp_avg_sq : v;
    *value = p + (s->minus_step_size * m) / (sqrtf(v) / s->sqrt_correction2 + s->eps);
}

/* sum = fmaf(g, g, sum);  p += (-lr * g) / (sqrt(sum) + eps) */
RULE void adagrad_rule(const struct adagrad_step *s, float gradient, float *value, float *sum) {
    float p = *value, g = gradient;
    if (s->has_weight_decay) g = fmaf(s->weight_decay, p, g);
    float total = fmaf(g, g, *sum);
    *sum = total;
    *value = p + (s->minus_lr * g) / (sqrtf(total) + s->eps);
}

/* v = fmaf((1 - a) * g, g, v * a);  centered: m = fmaf(1 - a, g - m, m), d = sqrt(fmaf(-m, m, v)) + eps, else d =
 * sqrt(v) + eps;  momentum: buf = buf * mom + g / d, p = fmaf(-lr, buf, p), else p += (-lr * g) / d */
RULE void rmsprop_rule(bool is_centered, bool has_momentum, const struct rmsprop_step *s, float gradient, float *value,
                       float *square_avg, float *grad_avg, float *momentum) {
    float p = *value, g = gradient;
    if (s->has_weight_decay) g = fmaf(s->weight_decay, p, g);
    float v = fmaf(s->one_minus_alpha * g, g, *square_avg * s->alpha);
    *square_avg = v;
    if (is_centered) {
        float m = fmaf(s->one_minus_alpha, g - *grad_avg, *grad_avg);
        *grad_avg = m;
        v = fmaf(-m, m, v);
    }
    float d = sqrtf(v) + s->eps;
    if (has_momentum) {
        float buffer = *momentum * s->momentum + g / d;
        *momentum = buffer;
        *value = fmaf(s->minus_lr, buffer, p);
    } else {
        *value = p + (s->minus_lr * g) / d;
    }
}

/* c = fmaf(1 - b1, g, m * b1);  p = fmaf(-lr, sign(c), p * (1 - lr * wd));  m = fmaf(1 - b2, g, m * b2) */
RULE void lion_rule(const struct lion_step *s, float gradient, float *value, float *exp_avg) {
    float p = *value * s->decay_factor, g = gradient, m = *exp_avg;
    float c = fmaf(s->one_minus_beta1, g, m * s->beta1);
    float sign = c > 0 ? 1.0f : c < 0 ? -1.0f : c; /* 0 and NaN do not change */
    *value = fmaf(s->minus_lr, sign, p);
    *exp_avg = fmaf(s->one_minus_beta2, g, m * s->beta2);
}

/* lerp(mean, value, weight) */
RULE float average_rule(float weight, float value, float mean) { return fmaf(weight, value - mean, mean); }

/* NaN stays NaN. */
RULE float clamp_rule(float limit, float x) {
    float low = x < -limit ? -limit : x;
    return low > limit ? limit : low;
}

#undef RULE

#endif
