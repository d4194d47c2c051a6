/* The update rules of device/optimizer_rules.h as plain loops that the compiler vectorises, square roots and divisions
 * included. What a run decides once (weight decay or not) is a constant inside a loop: each rule is inlined once per
 * combination that changes which buffers are touched. */
#include "device/cpu/sets/set.h"
#include "device/optimizer_rules.h"

#define INLINE static inline __attribute__((always_inline))

static void sgd(struct device *device, const struct sgd_step *step, const float *factor, float *restrict values,
                const float *restrict gradients, float *restrict momentum, size_t count) {
    const struct sgd_step s = *step;
    const float clip = *factor;
    (void)device;
    if (!s.has_momentum) {
        for (size_t i = 0; i < count; i++) sgd_rule(false, &s, gradients[i] * clip, &values[i], NULL);
        return;
    }
    for (size_t i = 0; i < count; i++) sgd_rule(true, &s, gradients[i] * clip, &values[i], &momentum[i]);
}

INLINE void adam_loop(bool has_weight_decay, bool uses_lerp, bool has_max, const struct adam_step s, float clip,
                      float *restrict values, const float *restrict gradients, float *restrict exp_avg,
                      float *restrict exp_avg_sq, float *restrict max_exp_avg_sq, size_t count) {
    for (size_t i = 0; i < count; i++)
        adam_rule(has_weight_decay, uses_lerp, has_max, &s, gradients[i] * clip, &values[i], &exp_avg[i],
                  &exp_avg_sq[i], has_max ? &max_exp_avg_sq[i] : NULL);
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

static void adagrad(struct device *device, const struct adagrad_step *step, const float *factor, float *restrict values,
                    const float *restrict gradients, float *restrict sum, size_t count) {
    const struct adagrad_step s = *step;
    const float clip = *factor;
    (void)device;
    for (size_t i = 0; i < count; i++) adagrad_rule(&s, gradients[i] * clip, &values[i], &sum[i]);
}

INLINE void rmsprop_loop(bool is_centered, bool has_momentum, const struct rmsprop_step s, float clip,
                         float *restrict values, const float *restrict gradients, float *restrict square_avg,
                         float *restrict grad_avg, float *restrict momentum, size_t count) {
    for (size_t i = 0; i < count; i++)
        rmsprop_rule(is_centered, has_momentum, &s, gradients[i] * clip, &values[i], &square_avg[i],
                     is_centered ? &grad_avg[i] : NULL, has_momentum ? &momentum[i] : NULL);
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

static void lion(struct device *device, const struct lion_step *step, const float *factor, float *restrict values,
                 const float *restrict gradients, float *restrict exp_avg, size_t count) {
    const struct lion_step s = *step;
    const float clip = *factor;
    (void)device;
    for (size_t i = 0; i < count; i++) lion_rule(&s, gradients[i] * clip, &values[i], &exp_avg[i]);
}

static void average(struct device *device, float weight, const float *clip, const float *restrict values,
                    float *restrict mean, size_t count) {
    (void)device;
    (void)clip; /* asked before */
    for (size_t i = 0; i < count; i++) mean[i] = average_rule(weight, values[i], mean[i]);
}

static void clamp(struct device *device, float limit, float *x, size_t count) {
    (void)device;
    for (size_t i = 0; i < count; i++) x[i] = clamp_rule(limit, x[i]);
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
