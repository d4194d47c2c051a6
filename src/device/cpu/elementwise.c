/* An operator fills a struct of its arguments; the function beside it does a range of elements. */
#include "device/cpu/elementwise.h"

#include <math.h>
#include <string.h>

#include "device/cpu/kernels.h"
#include "device/cpu/parallel.h"

/* Activations do more per element than a pass over memory. */
#define ACTIVATION_FLOATS (PARALLEL_FLOATS / 4)

struct job {
    const struct cpu_kernels *kernels;
    const float *a, *b, *c;
    float *to;
    enum activation f;
    float slope;
};

static void add_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    j->kernels->add(j->a + first, j->b + first, j->to + first, last - first);
}

void elementwise_add(struct device *device, const float *a, const float *b, float *y, size_t count) {
    struct job job = {.kernels = cpu_kernels_of(device), .a = a, .b = b, .to = y};
    parallel_for(count, PARALLEL_FLOATS, add_part, &job);
}

static void copy_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    memcpy(j->to + first, j->a + first, (last - first) * sizeof *j->to);
}

void elementwise_copy(struct device *device, const float *x, float *y, size_t count) {
    (void)device;
    parallel_for(count, PARALLEL_FLOATS, copy_part, &(struct job){.a = x, .to = y});
}

static void activation_forward_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    j->kernels->activation_forward(j->f, j->a + first, j->to + first, last - first);
}

void elementwise_activation_forward(struct device *device, enum activation f, const float *x, float *y, size_t count) {
    struct job job = {.kernels = cpu_kernels_of(device), .a = x, .to = y, .f = f};
    parallel_for(count, f == ACTIVATION_RELU ? PARALLEL_FLOATS : ACTIVATION_FLOATS, activation_forward_part, &job);
}

static void activation_backward_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    j->kernels->activation_backward(j->f, j->a + first, j->b + first, j->c + first, j->to + first, last - first);
}

void elementwise_activation_backward(struct device *device, enum activation f, const float *x, const float *y,
                                     const float *dy, float *dx, size_t count) {
    struct job job = {.kernels = cpu_kernels_of(device), .a = x, .b = y, .c = dy, .to = dx, .f = f};
    parallel_for(count, f == ACTIVATION_RELU ? PARALLEL_FLOATS : ACTIVATION_FLOATS, activation_backward_part, &job);
}

static void leaky_relu_forward_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    j->kernels->leaky_relu_forward(j->slope, j->a + first, j->to + first, last - first);
}

void elementwise_leaky_relu_forward(struct device *device, float slope, const float *x, float *y, size_t count) {
    struct job job = {.kernels = cpu_kernels_of(device), .a = x, .to = y, .slope = slope};
    parallel_for(count, PARALLEL_FLOATS, leaky_relu_forward_part, &job);
}

static void leaky_relu_backward_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    j->kernels->leaky_relu_backward(j->slope, j->a + first, j->b + first, j->to + first, last - first);
}

void elementwise_leaky_relu_backward(struct device *device, float slope, const float *x, const float *dy, float *dx,
                                     size_t count) {
    struct job job = {.kernels = cpu_kernels_of(device), .a = x, .b = dy, .to = dx, .slope = slope};
    parallel_for(count, PARALLEL_FLOATS, leaky_relu_backward_part, &job);
}

/* ---- optimizers ---- */

struct update {
    struct device *device;
    const struct optimizer_ops *ops;
    const void *step;
    float factor; /* clip, or the weight of an average, or the limit of a clamp */
    float *values, *state[3];
    const float *gradients;
};

static struct update new_update(struct device *device, const void *step, float factor, float *values,
                                const float *gradients) {
    return (struct update){.device = device,
                           .ops = cpu_kernels_of(device)->optimizers,
                           .step = step,
                           .factor = factor,
                           .values = values,
                           .gradients = gradients};
}

/* State [i] from element [first] on; NULL stays NULL. */
static float *from(const struct update *u, int i, size_t first) { return u->state[i] ? u->state[i] + first : NULL; }

static void sgd_part(void *context, size_t first, size_t last) {
    const struct update *u = context;
    u->ops->sgd(u->device, u->step, &u->factor, u->values + first, u->gradients + first, from(u, 0, first),
                last - first);
}

static void sgd(struct device *device, const struct sgd_step *step, const float *clip, float *values,
                const float *gradients, float *momentum, size_t count) {
    struct update u = new_update(device, step, *clip, values, gradients);
    u.state[0] = momentum;
    if (!isnan(*clip)) parallel_for(count, PARALLEL_FLOATS, sgd_part, &u);
}

static void adam_part(void *context, size_t first, size_t last) {
    const struct update *u = context;
    u->ops->adam(u->device, u->step, &u->factor, u->values + first, u->gradients + first, from(u, 0, first),
                 from(u, 1, first), from(u, 2, first), last - first);
}

static void adam(struct device *device, const struct adam_step *step, const float *clip, float *values,
                 const float *gradients, float *exp_avg, float *exp_avg_sq, float *max_exp_avg_sq, size_t count) {
    struct update u = new_update(device, step, *clip, values, gradients);
    u.state[0] = exp_avg, u.state[1] = exp_avg_sq, u.state[2] = max_exp_avg_sq;
    if (!isnan(*clip)) parallel_for(count, PARALLEL_FLOATS, adam_part, &u);
}

static void adagrad_part(void *context, size_t first, size_t last) {
    const struct update *u = context;
    u->ops->adagrad(u->device, u->step, &u->factor, u->values + first, u->gradients + first, from(u, 0, first),
                    last - first);
}

static void adagrad(struct device *device, const struct adagrad_step *step, const float *clip, float *values,
                    const float *gradients, float *sum, size_t count) {
    struct update u = new_update(device, step, *clip, values, gradients);
    u.state[0] = sum;
    if (!isnan(*clip)) parallel_for(count, PARALLEL_FLOATS, adagrad_part, &u);
}

static void rmsprop_part(void *context, size_t first, size_t last) {
    const struct update *u = context;
    u->ops->rmsprop(u->device, u->step, &u->factor, u->values + first, u->gradients + first, from(u, 0, first),
                    from(u, 1, first), from(u, 2, first), last - first);
}

static void rmsprop(struct device *device, const struct rmsprop_step *step, const float *clip, float *values,
                    const float *gradients, float *square_avg, float *grad_avg, float *momentum, size_t count) {
    struct update u = new_update(device, step, *clip, values, gradients);
    u.state[0] = square_avg, u.state[1] = grad_avg, u.state[2] = momentum;
    if (!isnan(*clip)) parallel_for(count, PARALLEL_FLOATS, rmsprop_part, &u);
}

static void lion_part(void *context, size_t first, size_t last) {
    const struct update *u = context;
    u->ops->lion(u->device, u->step, &u->factor, u->values + first, u->gradients + first, from(u, 0, first),
                 last - first);
}

static void lion(struct device *device, const struct lion_step *step, const float *clip, float *values,
                 const float *gradients, float *exp_avg, size_t count) {
    struct update u = new_update(device, step, *clip, values, gradients);
    u.state[0] = exp_avg;
    if (!isnan(*clip)) parallel_for(count, PARALLEL_FLOATS, lion_part, &u);
}

static void average_part(void *context, size_t first, size_t last) {
    const struct update *u = context;
    u->ops->average(u->device, u->factor, NULL, u->gradients + first, u->values + first, last - first);
}

static void average(struct device *device, float weight, const float *clip, const float *values, float *mean,
                    size_t count) {
    struct update u = new_update(device, NULL, weight, mean, values);
    if (!isnan(*clip)) parallel_for(count, PARALLEL_FLOATS, average_part, &u);
}

static void settle(struct device *device, const float *clip, float *values, float *kept, size_t count) {
    if (isnan(*clip))
        elementwise_copy(device, kept, values, count);
    else
        elementwise_copy(device, values, kept, count);
}

static void clamp_part(void *context, size_t first, size_t last) {
    const struct update *u = context;
    u->ops->clamp(u->device, u->factor, u->values + first, last - first);
}

static void clamp(struct device *device, float limit, float *x, size_t count) {
    struct update u = new_update(device, NULL, limit, x, NULL);
    parallel_for(count, PARALLEL_FLOATS, clamp_part, &u);
}

const struct optimizer_ops elementwise_optimizer_ops = {.sgd = sgd,
                                                        .adam = adam,
                                                        .adagrad = adagrad,
                                                        .rmsprop = rmsprop,
                                                        .lion = lion,
                                                        .average = average,
                                                        .settle = settle,
                                                        .clamp = clamp};
