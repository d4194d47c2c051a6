/* The update rules of device/optimizers.h as plain loops that the compiler vectorises, square roots and divisions
 * included. What a run decides once (weight decay or not) is a constant inside a loop: each rule is inlined once per
 * combination that changes which buffers are touched. */
#include <math.h>

#include "device/cpu/sets/set.h"

#define INLINE static inline __attribute__((always_inline))

/* g = fmaf(wd, p, g);  buf = g at first, later fmaf(1 - damp, g, buf * mom);  nesterov: g = fmaf(mom, buf, g), else g =
 * buf; p = fmaf(-lr, g, p) */
static void sgd(struct device *device, const struct sgd_step *step, const float *factor, float *restrict values,
                const float *restrict gradients, float *restrict momentum, size_t count) {
    const struct sgd_step s = *step;
    const float clip = *factor;
    (void)device;
    if (!s.has_momentum) {
        for (size_t i = 0; i < count; i++) {
            float g = gradients[i] * clip;
            if (s.has_weight_decay) g = fmaf(s.weight_decay, values[i], g);
            values[i] = fmaf(s.minus_lr, g, values[i]);
        }
        return;
    }
    for (size_t i = 0; i < count; i++) {
        float g = gradients[i] * clip;
        if (s.has_weight_decay) g = fmaf(s.weight_decay, values[i], g);
        float buffer = s.is_first ? g : fmaf(s.one_minus_dampening, g, momentum[i] * s.momentum);
        momentum[i] = buffer;
        g = s.is_nesterov ? fmaf(s.momentum, buffer, g) : buffer;
        values[i] = fmaf(s.minus_lr, g, values[i]);
    }
}

/* m = lerp(m, g, 1 - b1) = fmaf(1 - b1, g - m, m)  or (PyTorch < 2)  fmaf(1 - b1, g, m * b1);
 * v = fmaf((1 - b2) * g, g, v * b2);  amsgrad: v' = max(v', v), else v' = v;
 * d = sqrt(v') / bc2s + eps;  p += (-step_size * m) / d */
INLINE void adam_loop(bool has_weight_decay, bool uses_lerp, bool has_max, const struct adam_step s, float clip,
                      float *restrict values, const float *restrict gradients, float *restrict exp_avg,
                      float *restrict exp_avg_sq, float *restrict max_exp_avg_sq, size_t count) {
    for (size_t i = 0; i < count; i++) {
        float p = values[i] * s.decay_factor, g = gradients[i] * clip, m = exp_avg[i];
        if (has_weight_decay) g = fmaf(s.weight_decay, p, g);
        m = uses_lerp ? fmaf(s.one_minus_beta1, g - m, m) : fmaf(s.one_minus_beta1, g, m * s.beta1);
        float v = fmaf(s.one_minus_beta2 * g, g, exp_avg_sq[i] * s.beta2);
        exp_avg[i] = m;
        exp_avg_sq[i] = v;
        if (has_max) max_exp_avg_sq[i] = v = max_exp_avg_sq[i] > v ? max_exp_avg_sq[i] : v;
        values[i] = p + (s.minus_step_size * m) / (sqrtf(v) / s.sqrt_correction2 + s.eps);
    }
}

#define ADAM(has_weight_decay, uses_lerp, has_max)                                                                     \
    adam_loop(has_weight_decay, uses_lerp, has_max, *s, *factor, values, gradients, exp_avg, exp_avg_sq,               \
              max_exp_avg_sq, count)

static void adam(struct device *device, const struct adam_step *s, const float *factor, float *values,
                 const float *gradients, float *exp_avg, float *exp_avg_sq, float *max_exp_avg_sq, size_t count) {
    (void)device;
    switch (s->has_weight_decay << 2 | s->uses_lerp << 1 | (max_exp_avg_sq != NULL)) {
    case 0:
        ADAM(false, false, false);
        break;
    case 1:
        ADAM(false, false, true);
        break;
    case 2:
        ADAM(false, true, false);
        break;
    case 3:
        ADAM(false, true, true);
        break;
    case 4:
        ADAM(true, false, false);
        break;
    case 5:
        ADAM(true, false, true);
        break;
    case 6:
        ADAM(true, true, false);
        break;
    default:
        ADAM(true, true, true);
        break;
    }
}

/* sum = fmaf(g, g, sum);  p += (-lr * g) / (sqrt(sum) + eps) */
static void adagrad(struct device *device, const struct adagrad_step *step, const float *factor, float *restrict values,
                    const float *restrict gradients, float *restrict sum, size_t count) {
    const struct adagrad_step s = *step;
    const float clip = *factor;
    (void)device;
    for (size_t i = 0; i < count; i++) {
        float p = values[i], g = gradients[i] * clip;
        if (s.has_weight_decay) g = fmaf(s.weight_decay, p, g);
        float total = fmaf(g, g, sum[i]);
        sum[i] = total;
        values[i] = p + (s.minus_lr * g) / (sqrtf(total) + s.eps);
    }
}

/* v = fmaf((1 - a) * g, g, v * a);  centered: m = fmaf(1 - a, g - m, m), d = sqrt(fmaf(-m, m, v)) + eps, else d =
 * sqrt(v) + eps;  momentum: buf = buf * mom + g / d, p = fmaf(-lr, buf, p), else p += (-lr * g) / d */
INLINE void rmsprop_loop(bool is_centered, bool has_momentum, const struct rmsprop_step s, float clip,
                         float *restrict values, const float *restrict gradients, float *restrict square_avg,
                         float *restrict grad_avg, float *restrict momentum, size_t count) {
    for (size_t i = 0; i < count; i++) {
        float p = values[i], g = gradients[i] * clip;
        if (s.has_weight_decay) g = fmaf(s.weight_decay, p, g);
        float v = fmaf(s.one_minus_alpha * g, g, square_avg[i] * s.alpha);
        square_avg[i] = v;
        if (is_centered) {
            float m = fmaf(s.one_minus_alpha, g - grad_avg[i], grad_avg[i]);
            grad_avg[i] = m;
            v = fmaf(-m, m, v);
        }
        float d = sqrtf(v) + s.eps;
        if (has_momentum) {
            float buffer = momentum[i] * s.momentum + g / d;
            momentum[i] = buffer;
            values[i] = fmaf(s.minus_lr, buffer, p);
        } else {
            values[i] = p + (s.minus_lr * g) / d;
        }
    }
}

static void rmsprop(struct device *device, const struct rmsprop_step *s, const float *factor, float *values,
                    const float *gradients, float *square_avg, float *grad_avg, float *momentum, size_t count) {
    (void)device;
    if (grad_avg && momentum)
        rmsprop_loop(true, true, *s, *factor, values, gradients, square_avg, grad_avg, momentum, count);
    else if (grad_avg)
        rmsprop_loop(true, false, *s, *factor, values, gradients, square_avg, grad_avg, NULL, count);
    else if (momentum)
        rmsprop_loop(false, true, *s, *factor, values, gradients, square_avg, NULL, momentum, count);
    else
        rmsprop_loop(false, false, *s, *factor, values, gradients, square_avg, NULL, NULL, count);
}

/* c = fmaf(1 - b1, g, m * b1);  p = fmaf(-lr, sign(c), p * (1 - lr * wd));  m = fmaf(1 - b2, g, m * b2) */
static void lion(struct device *device, const struct lion_step *step, const float *factor, float *restrict values,
                 const float *restrict gradients, float *restrict exp_avg, size_t count) {
    const struct lion_step s = *step;
    const float clip = *factor;
    (void)device;
    for (size_t i = 0; i < count; i++) {
        float p = values[i] * s.decay_factor, g = gradients[i] * clip, m = exp_avg[i];
        float c = fmaf(s.one_minus_beta1, g, m * s.beta1);
        float sign = c > 0 ? 1.0f : c < 0 ? -1.0f : c; /* 0 and NaN stay what they are */
        values[i] = fmaf(s.minus_lr, sign, p);
        exp_avg[i] = fmaf(s.one_minus_beta2, g, m * s.beta2);
    }
}

static void average(struct device *device, float weight, const float *clip, const float *restrict values,
                    float *restrict mean, size_t count) {
    (void)device;
    (void)clip; /* asked before */
    for (size_t i = 0; i < count; i++) mean[i] = fmaf(weight, values[i] - mean[i], mean[i]);
}

static void clamp(struct device *device, float limit, float *x, size_t count) {
    (void)device;
    for (size_t i = 0; i < count; i++) {
        float low = x[i] < -limit ? -limit : x[i];
        x[i] = low > limit ? limit : low;
    }
}

const struct optimizer_ops IN_SET(optimizer_ops) = {
    .sgd = sgd,
    .adam = adam,
    .adagrad = adagrad,
    .rmsprop = rmsprop,
    .lion = lion,
    .average = average,
    .clamp = clamp,
};
