/* The update rules of device/optimizers.h: one kernel goes through all buffers once, four numbers a thread. Formulas
 * and roundings are those of cpu/sets/optimizers.c. */
#include <cmath>

#include "device/cuda/gpu.cuh"

#define STATES 3

struct buffers {
    float *values;
    const float *gradients;
    float *states[STATES]; /* NULL: the rule has not this one */
    size_t count;
    bool is_aligned; /* four numbers can be read at once */
};

/* Numbers [i, i + 4), 0 past the end. */
__device__ static void load(float (&v)[4], const float *from, size_t i, const struct buffers &b) {
    if (b.is_aligned && i + 4 <= b.count) {
        float4 four = *(const float4 *)(from + i);
        v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
        return;
    }
    for (int l = 0; l < 4; l++) v[l] = i + l < b.count ? from[i + l] : 0;
}

__device__ static void store(float *to, const float (&v)[4], size_t i, const struct buffers &b) {
    if (b.is_aligned && i + 4 <= b.count) {
        *(float4 *)(to + i) = {v[0], v[1], v[2], v[3]};
        return;
    }
    for (int l = 0; l < 4 && i + l < b.count; l++) to[i + l] = v[l];
}

/* One number of each buffer: what a rule works on. */
struct element {
    float value, gradient; /* clipped */
    float state[STATES];
};

template <typename Rule>
__global__ static void update_kernel(struct buffers b, const typename Rule::step *step, const float *clip) {
    size_t i = ((size_t)blockIdx.x * GPU_THREADS + threadIdx.x) * 4;
    float factor = *clip;
    if (i >= b.count || isnan(factor)) return;
    typename Rule::step s = *step;
    float values[4], gradients[4], states[STATES][4] = {};
    bool has[STATES];
    load(values, b.values, i, b);
    load(gradients, b.gradients, i, b);
    for (int k = 0; k < STATES; k++) {
        has[k] = b.states[k];
        if (has[k]) load(states[k], b.states[k], i, b);
    }
    for (int l = 0; l < 4; l++) {
        struct element e = {values[l], gradients[l] * factor, {states[0][l], states[1][l], states[2][l]}};
        Rule::update(s, has, &e);
        values[l] = e.value;
        for (int k = 0; k < STATES; k++) states[k][l] = e.state[k];
    }
    store(b.values, values, i, b);
    for (int k = 0; k < STATES; k++)
        if (has[k]) store(b.states[k], states[k], i, b);
}

static bool is_aligned(const void *p) { return (uintptr_t)p % 16 == 0; }

template <typename Rule>
static void update(struct device *device, const char *name, const typename Rule::step *step, const float *clip,
                   float *values, const float *gradients, float *first, float *second, float *third, size_t count) {
    call c(device, name);
    const typename Rule::step *s = c.in(step, 1);
    const float *factor = c.in(clip, 1);
    struct buffers b = {c.inout(values, count),
                        c.in(gradients, count),
                        {c.inout(first, count), c.inout(second, count), c.inout(third, count)},
                        count,
                        false};
    b.is_aligned = is_aligned(b.values) && is_aligned(b.gradients) && is_aligned(b.states[0]) &&
                   is_aligned(b.states[1]) && is_aligned(b.states[2]);
    size_t numbers = 4 * GPU_THREADS; /* of a block */
    if (count > 0)
        c.launch(update_kernel<Rule>, (unsigned)((count + numbers - 1) / numbers), GPU_THREADS, 0, b, s, factor);
}

/* state: momentum */
struct sgd_rule {
    using step = struct sgd_step;
    __device__ static void update(const step &s, const bool *, struct element *e) {
        float g = e->gradient;
        if (s.has_weight_decay) g = fmaf(s.weight_decay, e->value, g);
        if (s.has_momentum) {
            float buffer = s.is_first ? g : fmaf(s.one_minus_dampening, g, e->state[0] * s.momentum);
            e->state[0] = buffer;
            g = s.is_nesterov ? fmaf(s.momentum, buffer, g) : buffer;
        }
        e->value = fmaf(s.minus_lr, g, e->value);
    }
};

static void sgd(struct device *device, const struct sgd_step *step, const float *clip, float *values,
                const float *gradients, float *momentum, size_t count) {
    update<sgd_rule>(device, "sgd", step, clip, values, gradients, momentum, nullptr, nullptr, count);
}

/* state: exp_avg, exp_avg_sq, max_exp_avg_sq */
struct adam_rule {
    using step = struct adam_step;
    __device__ static void update(const step &s, const bool *has, struct element *e) {
        float p = e->value * s.decay_factor, g = e->gradient, m = e->state[0];
        if (s.has_weight_decay) g = fmaf(s.weight_decay, p, g);
        m = s.uses_lerp ? fmaf(s.one_minus_beta1, g - m, m) : fmaf(s.one_minus_beta1, g, m * s.beta1);
        float v = fmaf(s.one_minus_beta2 * g, g, e->state[1] * s.beta2);
        e->state[0] = m;
        e->state[1] = v;
        if (has[2]) e->state[2] = v = e->state[2] > v ? e->state[2] : v;
        e->value = p + (s.minus_step_size * m) / (sqrtf(v) / s.sqrt_correction2 + s.eps);
    }
};

static void adam(struct device *device, const struct adam_step *step, const float *clip, float *values,
                 const float *gradients, float *exp_avg, float *exp_avg_sq, float *max_exp_avg_sq, size_t count) {
    update<adam_rule>(device, "adam", step, clip, values, gradients, exp_avg, exp_avg_sq, max_exp_avg_sq, count);
}

/* state: sum */
struct adagrad_rule {
    using step = struct adagrad_step;
    __device__ static void update(const step &s, const bool *, struct element *e) {
        float p = e->value, g = e->gradient;
        if (s.has_weight_decay) g = fmaf(s.weight_decay, p, g);
        float total = fmaf(g, g, e->state[0]);
        e->state[0] = total;
        e->value = p + (s.minus_lr * g) / (sqrtf(total) + s.eps);
    }
};

static void adagrad(struct device *device, const struct adagrad_step *step, const float *clip, float *values,
                    const float *gradients, float *sum, size_t count) {
    update<adagrad_rule>(device, "adagrad", step, clip, values, gradients, sum, nullptr, nullptr, count);
}

/* state: square_avg, grad_avg, momentum */
struct rmsprop_rule {
    using step = struct rmsprop_step;
    __device__ static void update(const step &s, const bool *has, struct element *e) {
        float p = e->value, g = e->gradient;
        if (s.has_weight_decay) g = fmaf(s.weight_decay, p, g);
        float v = fmaf(s.one_minus_alpha * g, g, e->state[0] * s.alpha);
        e->state[0] = v;
        if (has[1]) {
            float m = fmaf(s.one_minus_alpha, g - e->state[1], e->state[1]);
            e->state[1] = m;
            v = fmaf(-m, m, v);
        }
        float d = sqrtf(v) + s.eps;
        if (has[2]) {
            float buffer = e->state[2] * s.momentum + g / d;
            e->state[2] = buffer;
            e->value = fmaf(s.minus_lr, buffer, p);
        } else {
            e->value = p + (s.minus_lr * g) / d;
        }
    }
};

static void rmsprop(struct device *device, const struct rmsprop_step *step, const float *clip, float *values,
                    const float *gradients, float *square_avg, float *grad_avg, float *momentum, size_t count) {
    update<rmsprop_rule>(device, "rmsprop", step, clip, values, gradients, square_avg, grad_avg, momentum, count);
}

/* state: exp_avg */
struct lion_rule {
    using step = struct lion_step;
    __device__ static void update(const step &s, const bool *, struct element *e) {
        float p = e->value * s.decay_factor, g = e->gradient, m = e->state[0];
        float way = fmaf(s.one_minus_beta1, g, m * s.beta1);
        float sign = way > 0 ? 1.0f : way < 0 ? -1.0f : way; /* 0 and NaN stay what they are */
        e->value = fmaf(s.minus_lr, sign, p);
        e->state[0] = fmaf(s.one_minus_beta2, g, m * s.beta2);
    }
};

static void lion(struct device *device, const struct lion_step *step, const float *clip, float *values,
                 const float *gradients, float *exp_avg, size_t count) {
    update<lion_rule>(device, "lion", step, clip, values, gradients, exp_avg, nullptr, nullptr, count);
}

static void average(struct device *device, float weight, const float *clip, const float *values, float *mean,
                    size_t count) {
    call c(device, "average");
    const float *from = c.in(values, count), *factor = c.in(clip, 1);
    float *to = c.inout(mean, count);
    c.each(count, [=] __device__(size_t i) {
        if (!isnan(*factor)) to[i] = fmaf(weight, from[i] - to[i], to[i]);
    });
}

static void settle(struct device *device, const float *clip, float *values, float *kept, size_t count) {
    call c(device, "settle");
    const float *factor = c.in(clip, 1);
    float *own = c.inout(values, count), *other = c.inout(kept, count);
    c.each(count, [=] __device__(size_t i) {
        if (isnan(*factor))
            own[i] = other[i];
        else
            other[i] = own[i];
    });
}

static void clamp(struct device *device, float limit, float *x, size_t count) {
    call c(device, "clamp");
    float *to = c.inout(x, count);
    c.each(count, [=] __device__(size_t i) {
        float low = to[i] < -limit ? -limit : to[i];
        to[i] = low > limit ? limit : low;
    });
}

const struct optimizer_ops gpu_optimizers = {.sgd = sgd,
                                             .adam = adam,
                                             .adagrad = adagrad,
                                             .rmsprop = rmsprop,
                                             .lion = lion,
                                             .average = average,
                                             .settle = settle,
                                             .clamp = clamp};
