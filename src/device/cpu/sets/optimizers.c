/* The update rules of device/optimizer_rules.h as plain loops that the compiler vectorises, including square roots
 * and divisions. Decisions that are the same for a run (weight decay or not) are constants inside a loop: each rule
 * is inlined once per combination that changes which buffers are used. */
#include "device/cpu/sets/set.h"
#include "device/optimizer_rules.h"

#define INLINE static inline __attribute__((always_inline))

/* Scaled for use, then set to zero. */
INLINE float take(float *gradient, float clip) {
    float g = *gradient * clip;
    *gradient = 0;
    return g;
}

INLINE void sgd_loop(bool has_momentum, const struct sgd_step s, float clip, float *restrict values,
                     float *restrict gradients, float *restrict momentum, size_t count) {
    for (size_t i = 0; i < count; i++)
        sgd_rule(has_momentum, &s, take(&gradients[i], clip), &values[i], has_momentum ? &momentum[i] : NULL);
}

static void sgd(const union optimizer_step *step, float clip, float *values, float *gradients, float *const *states,
                size_t count) {
    if (step->sgd.has_momentum)
        sgd_loop(true, step->sgd, clip, values, gradients, states[0], count);
    else
        sgd_loop(false, step->sgd, clip, values, gradients, NULL, count);
}

INLINE void adam_loop(bool has_weight_decay, bool uses_lerp, bool has_max, const struct adam_step s, float clip,
                      float *restrict values, float *restrict gradients, float *restrict exp_avg,
                      float *restrict exp_avg_sq, float *restrict max_exp_avg_sq, size_t count) {
    for (size_t i = 0; i < count; i++)
        adam_rule(has_weight_decay, uses_lerp, has_max, &s, take(&gradients[i], clip), &values[i], &exp_avg[i],
                  &exp_avg_sq[i], has_max ? &max_exp_avg_sq[i] : NULL);
}

#define ADAM(has_weight_decay, uses_lerp, has_max)                                                                     \
    adam_loop(has_weight_decay, uses_lerp, has_max, *s, clip, values, gradients, states[0], states[1], states[2], count)

static void adam(const union optimizer_step *step, float clip, float *values, float *gradients, float *const *states,
                 size_t count) {
    const struct adam_step *s = &step->adam;
    switch (s->has_weight_decay << 2 | s->uses_lerp << 1 | (states[2] != NULL)) {
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

INLINE void adagrad_loop(const struct adagrad_step s, float clip, float *restrict values, float *restrict gradients,
                         float *restrict sum, size_t count) {
    for (size_t i = 0; i < count; i++) adagrad_rule(&s, take(&gradients[i], clip), &values[i], &sum[i]);
}

static void adagrad(const union optimizer_step *step, float clip, float *values, float *gradients, float *const *states,
                    size_t count) {
    adagrad_loop(step->adagrad, clip, values, gradients, states[0], count);
}

INLINE void rmsprop_loop(bool is_centered, bool has_momentum, const struct rmsprop_step s, float clip,
                         float *restrict values, float *restrict gradients, float *restrict square_avg,
                         float *restrict grad_avg, float *restrict momentum, size_t count) {
    for (size_t i = 0; i < count; i++)
        rmsprop_rule(is_centered, has_momentum, &s, take(&gradients[i], clip), &values[i], &square_avg[i],
                     is_centered ? &grad_avg[i] : NULL, has_momentum ? &momentum[i] : NULL);
}

#define RMSPROP(is_centered, has_momentum)                                                                             \
    rmsprop_loop(is_centered, has_momentum, step->rmsprop, clip, values, gradients, states[0], states[1], states[2],   \
                 count)

static void rmsprop(const union optimizer_step *step, float clip, float *values, float *gradients, float *const *states,
                    size_t count) {
    if (states[1] && states[2])
        RMSPROP(true, true);
    else if (states[1])
        RMSPROP(true, false);
    else if (states[2])
        RMSPROP(false, true);
    else
        RMSPROP(false, false);
}

INLINE void lion_loop(const struct lion_step s, float clip, float *restrict values, float *restrict gradients,
                      float *restrict exp_avg, size_t count) {
    for (size_t i = 0; i < count; i++) lion_rule(&s, take(&gradients[i], clip), &values[i], &exp_avg[i]);
}

static void lion(const union optimizer_step *step, float clip, float *values, float *gradients, float *const *states,
                 size_t count) {
    lion_loop(step->lion, clip, values, gradients, states[0], count);
}

static void average(float weight, const float *restrict values, float *restrict mean, size_t count) {
    for (size_t i = 0; i < count; i++) mean[i] = average_rule(weight, values[i], mean[i]);
}

static void clamp(float limit, float *x, size_t count) {
    for (size_t i = 0; i < count; i++) x[i] = clamp_rule(limit, x[i]);
}

const struct optimizer_kernels IN_SET(optimizer_kernels) = {
    .sgd = sgd,
    .adam = adam,
    .adagrad = adagrad,
    .rmsprop = rmsprop,
    .lion = lion,
    .average = average,
    .clamp = clamp,
};
