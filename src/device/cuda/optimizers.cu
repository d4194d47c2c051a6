/* The update rules of device/optimizers.h: one kernel goes through all buffers once, four numbers a thread. The rules
 * themselves are those of the CPU: device/optimizer_rules.h. */
#include <cmath>

#include "device/cuda/elements.cuh"
#include "device/optimizer_rules.h"

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
struct sgd_update {
    using step = struct sgd_step;
    __device__ static void update(const step &s, const bool *, struct element *e) {
        sgd_rule(s.has_momentum, &s, e->gradient, &e->value, &e->state[0]);
    }
};

static void sgd(struct device *device, const struct sgd_step *step, const float *clip, float *values,
                const float *gradients, float *momentum, size_t count) {
    update<sgd_update>(device, "sgd", step, clip, values, gradients, momentum, nullptr, nullptr, count);
}

/* state: exp_avg, exp_avg_sq, max_exp_avg_sq */
struct adam_update {
    using step = struct adam_step;
    __device__ static void update(const step &s, const bool *has, struct element *e) {
        adam_rule(s.has_weight_decay, s.uses_lerp, has[2], &s, e->gradient, &e->value, &e->state[0], &e->state[1],
                  &e->state[2]);
    }
};

static void adam(struct device *device, const struct adam_step *step, const float *clip, float *values,
                 const float *gradients, float *exp_avg, float *exp_avg_sq, float *max_exp_avg_sq, size_t count) {
    update<adam_update>(device, "adam", step, clip, values, gradients, exp_avg, exp_avg_sq, max_exp_avg_sq, count);
}

/* state: sum */
struct adagrad_update {
    using step = struct adagrad_step;
    __device__ static void update(const step &s, const bool *, struct element *e) {
        adagrad_rule(&s, e->gradient, &e->value, &e->state[0]);
    }
};

static void adagrad(struct device *device, const struct adagrad_step *step, const float *clip, float *values,
                    const float *gradients, float *sum, size_t count) {
    update<adagrad_update>(device, "adagrad", step, clip, values, gradients, sum, nullptr, nullptr, count);
}

/* state: square_avg, grad_avg, momentum */
struct rmsprop_update {
    using step = struct rmsprop_step;
    __device__ static void update(const step &s, const bool *has, struct element *e) {
        rmsprop_rule(has[1], has[2], &s, e->gradient, &e->value, &e->state[0], &e->state[1], &e->state[2]);
    }
};

static void rmsprop(struct device *device, const struct rmsprop_step *step, const float *clip, float *values,
                    const float *gradients, float *square_avg, float *grad_avg, float *momentum, size_t count) {
    update<rmsprop_update>(device, "rmsprop", step, clip, values, gradients, square_avg, grad_avg, momentum, count);
}

/* state: exp_avg */
struct lion_update {
    using step = struct lion_step;
    __device__ static void update(const step &s, const bool *, struct element *e) {
        lion_rule(&s, e->gradient, &e->value, &e->state[0]);
    }
};

static void lion(struct device *device, const struct lion_step *step, const float *clip, float *values,
                 const float *gradients, float *exp_avg, size_t count) {
    update<lion_update>(device, "lion", step, clip, values, gradients, exp_avg, nullptr, nullptr, count);
}

static void average(struct device *device, float weight, const float *clip, const float *values, float *mean,
                    size_t count) {
    call c(device, "average");
    const float *from = c.in(values, count), *factor = c.in(clip, 1);
    float *to = c.inout(mean, count);
    elements(
        &c, count, to, {nullptr, false},
        [=] __device__(float v, float m) { return isnan(*factor) ? m : average_rule(weight, v, m); }, from,
        (const float *)to);
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
    c.each(count, [=] __device__(size_t i) { to[i] = clamp_rule(limit, to[i]); });
}

const struct optimizer_ops gpu_optimizers = {.sgd = sgd,
                                             .adam = adam,
                                             .adagrad = adagrad,
                                             .rmsprop = rmsprop,
                                             .lion = lion,
                                             .average = average,
                                             .settle = settle,
                                             .clamp = clamp};
