/* Losses whose elements do not depend on each other; cross entropy is in cross_entropy.cu. Formulas are those of
 * cpu/losses.c. Sums are in double, in the order of operator_call::sum. */
#include <cmath>

#include "device/cuda/gpu.cuh"

struct slope {
    float loss, derivative;
};

__device__ static struct slope l1(float d) { return {fabsf(d), d > 0 ? 1.0f : d < 0 ? -1.0f : 0.0f}; }

__device__ static struct slope smooth_l1(float d, float beta) {
    if (fabsf(d) < beta) return {0.5f * d * d / beta, d / beta};
    struct slope s = l1(d);
    s.loss -= 0.5f * beta;
    return s;
}

/* derivative: 1 - t - w (1 - sigmoid(x)), 1 - sigmoid(x) = 1 / (1 + exp(x)) */
__device__ static struct slope bce_with_logits(float x, float t, float pos_weight) {
    float w = (pos_weight - 1) * t + 1, e = expf(-fabsf(x));
    float not_positive = x > 0 ? e / (1 + e) : 1 / (1 + e);
    return {(1 - t) * x + w * (log1pf(e) + fmaxf(-x, 0)), 1 - t - w * not_positive};
}

__device__ static struct slope slope_of(enum elementwise_loss loss, float beta, float pos_weight, float x, float t) {
    float p;
    switch (loss) {
    case LOSS_MSE:
        return {(x - t) * (x - t), 2 * (x - t)};
    case LOSS_L1:
        return l1(x - t);
    case LOSS_SMOOTH_L1:
        return smooth_l1(x - t, beta);
    case LOSS_BCE_WITH_LOGITS:
        return bce_with_logits(x, t, pos_weight);
    case LOSS_KL_DIV:
        return {(t > 0 ? t * logf(t) : t == 0 ? 0 : nanf("")) - t * x, -t};
    case LOSS_KL_DIV_LOG:
        p = expf(t);
        return {p * (t - x), -p};
    }
    return {0, 0};
}

static void elementwise(struct device *device, const struct elementwise_options *o, const float *outputs,
                        const float *targets, size_t count, float factor, double counted, float *doutputs,
                        struct loss_sums *sums) {
    operator_call c(device, "an elementwise loss");
    const float *x = c.in(outputs, count), *t = c.in(targets, count);
    const double *weights = c.constant(o->pos_weight, o->pos_weights);
    float *dx = c.out(doutputs, count), beta = o->beta;
    size_t period = o->pos_weights;
    enum elementwise_loss loss = o->loss;
    struct loss_sums *to = c.inout(sums, 1);
    if (!c.is_ok()) return;
    c.sum(
        count,
        [=] __device__(size_t i) {
            struct slope s = slope_of(loss, beta, period ? (float)weights[i % period] : 1, x[i], t[i]);
            if (dx) dx[i] = s.derivative * factor;
            return (double)s.loss;
        },
        &to->loss);
    c.each(1, [=] __device__(size_t) { to->count += counted; });
}

const struct loss_ops gpu_losses = {.cross_entropy = gpu_cross_entropy, .elementwise = elementwise};
