/* loss_formulas: element-wise losses and their derivatives, for the loops of the CPU and the kernel of the GPU. */
#ifndef DEVICE_LOSS_FORMULAS_H
#define DEVICE_LOSS_FORMULAS_H

#include <math.h>

#include "base/host_device.h"
#include "device/losses.h"

struct slope {
    float loss, derivative;
};

#define LOSS_FORMULA HOST_DEVICE static inline struct slope

LOSS_FORMULA slope_new(float loss, float derivative) {
    struct slope s;
    s.loss = loss;
    s.derivative = derivative;
    return s;
}

LOSS_FORMULA mse_slope(float d) { return slope_new(d * d, 2 * d); }

LOSS_FORMULA l1_slope(float d) { return slope_new(fabsf(d), d > 0 ? 1.0f : d < 0 ? -1.0f : 0.0f); }

LOSS_FORMULA smooth_l1_slope(float d, float beta) {
    if (fabsf(d) < beta) return slope_new(0.5f * d * d / beta, d / beta);
    struct slope s = l1_slope(d);
    s.loss -= 0.5f * beta;
    return s;
}

LOSS_FORMULA huber_slope(float d, float delta) {
    if (fabsf(d) <= delta) return slope_new(0.5f * d * d, d);
    return slope_new(delta * (fabsf(d) - 0.5f * delta), d > 0 ? delta : -delta);
}

/* derivative: 1 - t - w (1 - sigmoid(x)), 1 - sigmoid(x) = 1 / (1 + exp(x)) */
LOSS_FORMULA bce_slope(float x, float t, float pos_weight) {
    float w = (pos_weight - 1) * t + 1, e = expf(-fabsf(x));
    float not_positive = x > 0 ? e / (1 + e) : 1 / (1 + e);
    return slope_new((1 - t) * x + w * (log1pf(e) + fmaxf(-x, 0)), 1 - t - w * not_positive);
}

LOSS_FORMULA kl_div_slope(float x, float t) { return slope_new((t > 0 ? t * logf(t) : t == 0 ? 0 : NAN) - t * x, -t); }

LOSS_FORMULA kl_div_log_slope(float x, float t) {
    float p = expf(t);
    return slope_new(p * (t - x), -p);
}

/* Stirling's approximation of log(t!), which PyTorch uses for t > 1 */
HOST_DEVICE static inline float log_factorial(float t) {
    return t > 1 ? t * logf(t) - t + 0.5f * logf(6.2831853071795865f * t) : 0;
}

LOSS_FORMULA poisson_slope(float x, float t, float eps) { return slope_new(x - t * logf(x + eps), 1 - t / (x + eps)); }

LOSS_FORMULA poisson_log_slope(float x, float t) {
    float rate = expf(x);
    return slope_new(rate - t * x, rate - t);
}

/* With p = sigmoid(x) and m = p + t - 2 p t, the probability of the other class: a m^gamma times bce. m' / m = (1 - p)
 * for t = 0, -p for t = 1. */
LOSS_FORMULA focal_slope(float x, float t, float alpha, float gamma) {
    struct slope bce = bce_slope(x, t, 1);
    float e = expf(-fabsf(x)), p = x > 0 ? 1 / (1 + e) : e / (1 + e), q = x > 0 ? e / (1 + e) : 1 / (1 + e);
    float m = p * (1 - t) + q * t, power = powf(m, gamma);
    float relative = m > 0 ? p * q * (1 - 2 * t) / m : 0;
    float a = alpha >= 0 ? alpha * t + (1 - alpha) * (1 - t) : 1;
    return slope_new(a * bce.loss * power, a * power * (bce.derivative + bce.loss * gamma * relative));
}

/* The loss of output [x] and target [t]. */
LOSS_FORMULA slope_of(const struct elementwise_options *o, float pos_weight, float x, float t) {
    struct slope s;
    switch (o->loss) {
    case LOSS_MSE:
        return mse_slope(x - t);
    case LOSS_L1:
        return l1_slope(x - t);
    case LOSS_SMOOTH_L1:
        return smooth_l1_slope(x - t, o->beta);
    case LOSS_BCE_WITH_LOGITS:
        return bce_slope(x, t, pos_weight);
    case LOSS_KL_DIV:
        return kl_div_slope(x, t);
    case LOSS_KL_DIV_LOG:
        return kl_div_log_slope(x, t);
    case LOSS_HUBER:
        return huber_slope(x - t, o->beta);
    case LOSS_POISSON:
    case LOSS_POISSON_LOG:
        s = o->loss == LOSS_POISSON ? poisson_slope(x, t, o->eps) : poisson_log_slope(x, t);
        if (o->is_full) s.loss += log_factorial(t);
        return s;
    case LOSS_FOCAL:
        return focal_slope(x, t, o->alpha, o->gamma);
    }
    return slope_new(0, 0);
}

/* Sums over a mask: of p t, and of p + t. */
struct dice_sums {
    double both, all;
};

HOST_DEVICE static inline struct dice_sums dice_add(struct dice_sums a, struct dice_sums b) {
    a.both += b.both;
    a.all += b.all;
    return a;
}

HOST_DEVICE static inline double sigmoid_of(float x) {
    float e = expf(-fabsf(x));
    return (double)(x > 0 ? 1 / (1 + e) : e / (1 + e));
}

HOST_DEVICE static inline struct dice_sums dice_of(float x, float t) {
    double p = sigmoid_of(x);
    struct dice_sums s;
    s.both = p * (double)t;
    s.all = p + (double)t;
    return s;
}

HOST_DEVICE static inline double dice_loss(struct dice_sums s, float smooth) {
    return 1 - (2 * s.both + (double)smooth) / (s.all + (double)smooth);
}

/* p (1 - p) (n - 2 t d) / d^2, for the fraction n / d of dice_loss */
HOST_DEVICE static inline float dice_slope(struct dice_sums s, float smooth, float x, float t) {
    double p = sigmoid_of(x), n = 2 * s.both + (double)smooth, d = s.all + (double)smooth;
    return (float)(p * (1 - p) * (n - 2 * (double)t * d) / (d * d));
}

#endif
