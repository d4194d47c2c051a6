/* The update rules of device/optimizers.h, one kernel each; formulas and roundings are those of cpu/sets/optimizers.c.
 */
#include <cmath>

#include "device/cuda/gpu.cuh"

static void sgd(struct device *device, const struct sgd_step *step, const float *clip, float *values,
                const float *gradients, float *momentum, size_t count) {
    call c(device, "sgd");
    const struct sgd_step *s = c.in(step, 1);
    const float *factor = c.in(clip, 1);
    float *v = c.inout(values, count), *m = c.inout(momentum, count);
    const float *from = c.in(gradients, count);
    c.each(count, [=] __device__(size_t i) {
        float g = from[i] * *factor;
        if (s->has_weight_decay) g = fmaf(s->weight_decay, v[i], g);
        if (s->has_momentum) {
            float buffer = s->is_first ? g : fmaf(s->one_minus_dampening, g, m[i] * s->momentum);
            m[i] = buffer;
            g = s->is_nesterov ? fmaf(s->momentum, buffer, g) : buffer;
        }
        v[i] = fmaf(s->minus_lr, g, v[i]);
    });
}

static void adam(struct device *device, const struct adam_step *step, const float *clip, float *values,
                 const float *gradients, float *exp_avg, float *exp_avg_sq, float *max_exp_avg_sq, size_t count) {
    call c(device, "adam");
    const struct adam_step *s = c.in(step, 1);
    const float *factor = c.in(clip, 1);
    float *to = c.inout(values, count), *first = c.inout(exp_avg, count), *second = c.inout(exp_avg_sq, count);
    float *most = c.inout(max_exp_avg_sq, count);
    const float *from = c.in(gradients, count);
    c.each(count, [=] __device__(size_t i) {
        float p = to[i] * s->decay_factor, g = from[i] * *factor, m = first[i];
        if (s->has_weight_decay) g = fmaf(s->weight_decay, p, g);
        m = s->uses_lerp ? fmaf(s->one_minus_beta1, g - m, m) : fmaf(s->one_minus_beta1, g, m * s->beta1);
        float v = fmaf(s->one_minus_beta2 * g, g, second[i] * s->beta2);
        first[i] = m;
        second[i] = v;
        if (most) most[i] = v = most[i] > v ? most[i] : v;
        to[i] = p + (s->minus_step_size * m) / (sqrtf(v) / s->sqrt_correction2 + s->eps);
    });
}

static void adagrad(struct device *device, const struct adagrad_step *step, const float *clip, float *values,
                    const float *gradients, float *sum, size_t count) {
    call c(device, "adagrad");
    const struct adagrad_step *s = c.in(step, 1);
    const float *factor = c.in(clip, 1);
    float *to = c.inout(values, count), *sums = c.inout(sum, count);
    const float *from = c.in(gradients, count);
    c.each(count, [=] __device__(size_t i) {
        float p = to[i], g = from[i] * *factor;
        if (s->has_weight_decay) g = fmaf(s->weight_decay, p, g);
        float total = fmaf(g, g, sums[i]);
        sums[i] = total;
        to[i] = p + (s->minus_lr * g) / (sqrtf(total) + s->eps);
    });
}

static void rmsprop(struct device *device, const struct rmsprop_step *step, const float *clip, float *values,
                    const float *gradients, float *square_avg, float *grad_avg, float *momentum, size_t count) {
    call c(device, "rmsprop");
    const struct rmsprop_step *s = c.in(step, 1);
    const float *factor = c.in(clip, 1);
    float *to = c.inout(values, count), *squares = c.inout(square_avg, count), *means = c.inout(grad_avg, count);
    float *buffers = c.inout(momentum, count);
    const float *from = c.in(gradients, count);
    c.each(count, [=] __device__(size_t i) {
        float p = to[i], g = from[i] * *factor;
        if (s->has_weight_decay) g = fmaf(s->weight_decay, p, g);
        float v = fmaf(s->one_minus_alpha * g, g, squares[i] * s->alpha);
        squares[i] = v;
        if (means) {
            float m = fmaf(s->one_minus_alpha, g - means[i], means[i]);
            means[i] = m;
            v = fmaf(-m, m, v);
        }
        float d = sqrtf(v) + s->eps;
        if (buffers) {
            float buffer = buffers[i] * s->momentum + g / d;
            buffers[i] = buffer;
            to[i] = fmaf(s->minus_lr, buffer, p);
        } else {
            to[i] = p + (s->minus_lr * g) / d;
        }
    });
}

static void lion(struct device *device, const struct lion_step *step, const float *clip, float *values,
                 const float *gradients, float *exp_avg, size_t count) {
    call c(device, "lion");
    const struct lion_step *s = c.in(step, 1);
    const float *factor = c.in(clip, 1);
    float *to = c.inout(values, count), *means = c.inout(exp_avg, count);
    const float *from = c.in(gradients, count);
    c.each(count, [=] __device__(size_t i) {
        float p = to[i] * s->decay_factor, g = from[i] * *factor, m = means[i];
        float way = fmaf(s->one_minus_beta1, g, m * s->beta1);
        float sign = way > 0 ? 1.0f : way < 0 ? -1.0f : way; /* 0 and NaN stay what they are */
        to[i] = fmaf(s->minus_lr, sign, p);
        means[i] = fmaf(s->one_minus_beta2, g, m * s->beta2);
    });
}

static void average(struct device *device, float weight, const float *values, float *mean, size_t count) {
    call c(device, "average");
    const float *from = c.in(values, count);
    float *to = c.inout(mean, count);
    c.each(count, [=] __device__(size_t i) { to[i] = fmaf(weight, from[i] - to[i], to[i]); });
}

static void clamp(struct device *device, float limit, float *x, size_t count) {
    call c(device, "clamp");
    float *to = c.inout(x, count);
    c.each(count, [=] __device__(size_t i) {
        float low = to[i] < -limit ? -limit : to[i];
        to[i] = low > limit ? limit : low;
    });
}

const struct optimizer_ops gpu_optimizers = {
    .sgd = sgd, .adam = adam, .adagrad = adagrad, .rmsprop = rmsprop, .lion = lion, .average = average, .clamp = clamp};
