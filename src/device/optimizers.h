/* optimizers: update rules over flat buffers, one pass each, with the roundings of torch.optim's single-tensor CPU
 * code. Every rule reads gradients that are scaled by *clip (1: as they are) before use; all buffers are (count). The
 * constants of a rule ([step]) and *clip lie in the device's memory, too, since they change from one update to the next
 * and a recorded update is run again (device_record_begin). Where *clip is NaN the update is held back: nothing of it
 * is done (device_ops' hold). Constants are made in double by the caller and cast once, as PyTorch casts a Python
 * number when it meets a tensor. */
#ifndef DEVICE_OPTIMIZERS_H
#define DEVICE_OPTIMIZERS_H

#include <stdbool.h>
#include <stddef.h>

struct device;

struct sgd_step {
    float minus_lr, momentum, one_minus_dampening, weight_decay;
    bool has_momentum, has_weight_decay, is_nesterov, is_first; /* first: the buffer becomes the gradient */
};

struct adam_step {
    float beta1, one_minus_beta1, beta2, one_minus_beta2, eps;
    float minus_step_size;            /* -(lr / (1 - beta1^t)) */
    float sqrt_correction2;           /* sqrt(1 - beta2^t) */
    float weight_decay;               /* L2: added to the gradient */
    float decay_factor;               /* AdamW: values are multiplied by it first; 1: none */
    bool has_weight_decay, uses_lerp; /* lerp: the first moment as PyTorch >= 2.0 updates it */
};

struct adagrad_step {
    float minus_lr; /* -(lr / (1 + (t - 1) * lr_decay)) */
    float eps, weight_decay;
    bool has_weight_decay;
};

struct rmsprop_step {
    float minus_lr, alpha, one_minus_alpha, eps, momentum, weight_decay;
    bool has_weight_decay;
};

struct lion_step {
    float minus_lr, beta1, one_minus_beta1, beta2, one_minus_beta2;
    float decay_factor; /* 1 - lr * weight_decay: values are multiplied by it first */
};

struct optimizer_ops {
    /* [momentum]: NULL without momentum */
    void (*sgd)(struct device *, const struct sgd_step *, const float *clip, float *values, const float *gradients,
                float *momentum, size_t count);
    /* [max_exp_avg_sq]: NULL without amsgrad */
    void (*adam)(struct device *, const struct adam_step *, const float *clip, float *values, const float *gradients,
                 float *exp_avg, float *exp_avg_sq, float *max_exp_avg_sq, size_t count);
    void (*adagrad)(struct device *, const struct adagrad_step *, const float *clip, float *values,
                    const float *gradients, float *sum, size_t count);
    /* [grad_avg]: NULL unless centered; [momentum]: NULL without momentum */
    void (*rmsprop)(struct device *, const struct rmsprop_step *, const float *clip, float *values,
                    const float *gradients, float *square_avg, float *grad_avg, float *momentum, size_t count);
    void (*lion)(struct device *, const struct lion_step *, const float *clip, float *values, const float *gradients,
                 float *exp_avg, size_t count);
    /* average = lerp(average, values, weight) */
    void (*average)(struct device *, float weight, const float *clip, const float *values, float *average,
                    size_t count);
    /* kept = values; where the update is held back, values = kept */
    void (*settle)(struct device *, const float *clip, float *values, float *kept, size_t count);
    /* x = min(max(x, -limit), limit); NaN stays NaN */
    void (*clamp)(struct device *, float limit, float *x, size_t count);
};

#endif
