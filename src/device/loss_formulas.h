/* loss_formulas: element-wise losses and their derivatives, for the loops of the CPU and the kernel of the GPU. */
#pragma once

#include <math.h>

#include "base/bits.h"
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

LOSS_FORMULA quantile_slope(float d, float quantile) {
    float slope = d > 0 ? 1 - quantile : d < 0 ? -quantile : 0;
    return slope_new(slope * d, slope);
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

LOSS_FORMULA hinge_embedding_slope(float x, float t, float margin) {
    struct slope s = slope_new(0, 0);
    if (t != -1) s = slope_new(x, 1);
    if (t != 1 && margin - x >= 0) s = slope_new(s.loss + (margin - x), s.derivative - 1);
    return s;
}

/* derivative: -t / (1 + exp(t x)) */
LOSS_FORMULA soft_margin_slope(float x, float t) {
    float z = t * x, e = expf(-fabsf(z));
    return slope_new(log1pf(e) + fmaxf(-z, 0), -t * (z > 0 ? e / (1 + e) : 1 / (1 + e)));
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
    case LOSS_QUANTILE:
        return quantile_slope(x - t, o->beta);
    case LOSS_POISSON:
    case LOSS_POISSON_LOG:
        s = o->loss == LOSS_POISSON ? poisson_slope(x, t, o->eps) : poisson_log_slope(x, t);
        if (o->is_full) s.loss += log_factorial(t);
        return s;
    case LOSS_FOCAL:
        return focal_slope(x, t, o->alpha, o->gamma);
    case LOSS_HINGE_EMBEDDING:
        return hinge_embedding_slope(x, t, o->beta);
    case LOSS_SOFT_MARGIN:
        return soft_margin_slope(x, t);
    }
    return slope_new(0, 0);
}

/* What a class adds to multi_margin: [v] is the margin minus the output of the target plus its own. */
LOSS_FORMULA margin_slope(bool squares, float v) {
    return v > 0 ? slope_new(squares ? v * v : v, squares ? 2 * v : 1) : slope_new(0, 0);
}

/* Rowwise losses: sums over the elements of a row in double, the loss from the sums, and the derivative of each element
 * from both. A row x has o->parts vectors of [size] elements each. [max]: the largest element of a row of
 * ROWWISE_CROSS_ENTROPY, which no other loss reads. */
struct rowwise_sums {
    double a, b, c;
};

HOST_DEVICE static inline struct rowwise_sums rowwise_sums_new(double a, double b, double c) {
    struct rowwise_sums s;
    s.a = a;
    s.b = b;
    s.c = c;
    return s;
}

HOST_DEVICE static inline struct rowwise_sums rowwise_add(struct rowwise_sums s, struct rowwise_sums t) {
    return rowwise_sums_new(s.a + t.a, s.b + t.b, s.c + t.c);
}

HOST_DEVICE static inline double sigmoid_of(float x) {
    float e = expf(-fabsf(x));
    return (double)(x > 0 ? 1 / (1 + e) : e / (1 + e));
}

HOST_DEVICE static inline double square(double x) { return x * x; }

HOST_DEVICE static inline double variance_of(const struct rowwise_options *o, float x) {
    return x > o->eps ? (double)x : (double)o->eps;
}

/* Of the pair [i] of margin_ranking, before it is limited to values >= 0. */
HOST_DEVICE static inline double ranking_of(const struct rowwise_options *o, const float *x, const float *t,
                                            size_t size, size_t i) {
    return (double)o->margin - (double)t[i] * ((double)x[i] - (double)x[size + i]);
}

/* The weighted share of class [i] in the loss of cross_entropy. */
HOST_DEVICE static inline double share_of(const struct rowwise_options *o, const float *t, size_t size, size_t i) {
    double smooth = (double)o->smooth, share = (1 - smooth) * (double)t[i] + smooth / (double)size;
    return o->weight ? o->weight[i] * share : share;
}

/* Whether the list [t] of multilabel_margin goes on at [j]. */
HOST_DEVICE static inline bool has_class(const struct rowwise_options *o, const float *t, size_t j) {
    return j < o->targets && t[j] >= 0;
}

/* How often class [i] is in the list [t]. */
HOST_DEVICE static inline size_t listed(const struct rowwise_options *o, const float *t, size_t i) {
    size_t count = 0;
    for (size_t j = 0; has_class(o, t, j); j++) count += (size_t)t[j] == i;
    return count;
}

/* 1 - [of] + [other], where it is above 0: what an output that should be larger lacks. */
HOST_DEVICE static inline double lacking(float of, float other) {
    double v = 1 - (double)of + (double)other;
    return v > 0 ? v : 0;
}

/* What all classes of the list lack to class [i], which is not in it. */
HOST_DEVICE static inline double lacking_to(const struct rowwise_options *o, const float *x, const float *t, size_t i) {
    double sum = 0;
    if (listed(o, t, i)) return 0;
    for (size_t j = 0; has_class(o, t, j); j++) sum += lacking(x[(size_t)t[j]], x[i]);
    return sum;
}

/* Its derivative by x[i]: a class of the list lacks something to so many others, each other one counts so many of the
 * list. */
HOST_DEVICE static inline double lacking_slope(const struct rowwise_options *o, const float *x, const float *t,
                                               size_t size, size_t i) {
    size_t times = listed(o, t, i), count = 0;
    for (size_t k = 0; times && k < size; k++) count += lacking(x[i], x[k]) > 0 && !listed(o, t, k);
    for (size_t j = 0; !times && has_class(o, t, j); j++) count += lacking(x[(size_t)t[j]], x[i]) > 0;
    return times ? -(double)(times * count) : (double)count;
}

/* What element [i] of each part adds to the sums: dice: p t and p + t; gaussian_nll, kl_normal, margin_ranking and
 * multilabel_margin: the loss; cosine_embedding: |x|^2, |y|^2 and x y; triplet_margin: the squared distances of anchor
 * and positive, anchor and negative, positive and negative; cross_entropy: exp(x - max), the share and the share times
 * (x - max). */
HOST_DEVICE static inline struct rowwise_sums rowwise_sums_of(const struct rowwise_options *o, const float *x,
                                                              const float *t, size_t size, size_t i, float max) {
    double p, v, a, b, c;
    switch (o->loss) {
    case ROWWISE_DICE:
        p = sigmoid_of(x[i]);
        return rowwise_sums_new(p * (double)t[i], p + (double)t[i], 0);
    case ROWWISE_GAUSSIAN_NLL:
        v = variance_of(o, x[size + i]);
        return rowwise_sums_new(0.5 * (log(v) + square((double)x[i] - (double)t[i]) / v), 0, 0);
    case ROWWISE_COSINE_EMBEDDING:
        a = (double)x[i], b = (double)x[size + i];
        return rowwise_sums_new(a * a, b * b, a * b);
    case ROWWISE_KL_NORMAL:
        v = (double)x[size + i];
        return rowwise_sums_new(0.5 * (exp(v) + square((double)x[i]) - 1 - v), 0, 0);
    case ROWWISE_TRIPLET_MARGIN:
        a = (double)x[i], b = (double)x[size + i], c = (double)x[2 * size + i];
        return rowwise_sums_new(square(a - b + (double)o->eps), square(a - c + (double)o->eps),
                                square(b - c + (double)o->eps));
    case ROWWISE_MARGIN_RANKING:
        v = ranking_of(o, x, t, size, i);
        return rowwise_sums_new(v > 0 ? v : 0, 0, 0);
    case ROWWISE_CROSS_ENTROPY:
        p = share_of(o, t, size, i);
        return rowwise_sums_new(exp((double)x[i] - (double)max), p, p * ((double)x[i] - (double)max));
    case ROWWISE_MULTILABEL_MARGIN:
        return rowwise_sums_new(lacking_to(o, x, t, i), 0, 0);
    }
    return rowwise_sums_new(0, 0, 0);
}

#define COSINE_EPS 1e-12 /* PyTorch's */

HOST_DEVICE static inline double cosine_of(struct rowwise_sums s) {
    return s.c / sqrt((s.a + COSINE_EPS) * (s.b + COSINE_EPS));
}

/* Before the loss of a triplet is limited to values >= 0. */
HOST_DEVICE static inline double triplet_of(const struct rowwise_options *o, struct rowwise_sums s) {
    double negative = o->is_swapped && s.c < s.b ? s.c : s.b;
    return (double)o->margin + sqrt(s.a) - sqrt(negative);
}

HOST_DEVICE static inline double rowwise_loss(const struct rowwise_options *o, struct rowwise_sums s, const float *t,
                                              size_t size) {
    double loss = 0;
    switch (o->loss) {
    case ROWWISE_DICE:
        return 1 - (2 * s.a + (double)o->smooth) / (s.b + (double)o->smooth);
    case ROWWISE_GAUSSIAN_NLL:
        return s.a / (double)size + (o->is_full ? 0.91893853320467274 : 0); /* log(2 pi) / 2 */
    case ROWWISE_COSINE_EMBEDDING:
        if (t[0] == 1) return 1 - cosine_of(s);
        loss = cosine_of(s) - (double)o->margin;
        break;
    case ROWWISE_KL_NORMAL:
        return s.a;
    case ROWWISE_TRIPLET_MARGIN:
        loss = triplet_of(o, s);
        break;
    case ROWWISE_MARGIN_RANKING:
    case ROWWISE_MULTILABEL_MARGIN:
        return s.a / (double)size;
    case ROWWISE_CROSS_ENTROPY:
        return s.b * log(s.a) - s.c;
    }
    return loss > 0 ? loss : 0;
}

/* p (1 - p) (n - 2 t d) / d^2, for the fraction n / d of the loss */
HOST_DEVICE static inline double dice_slope(const struct rowwise_options *o, struct rowwise_sums s, float x, float t) {
    double p = sigmoid_of(x), n = 2 * s.a + (double)o->smooth, d = s.b + (double)o->smooth;
    return p * (1 - p) * (n - 2 * (double)t * d) / (d * d);
}

/* With d = mean - t: d / v for the mean, (1 - d^2 / v) / 2 v for the variance v; PyTorch's limit of v has no slope. */
HOST_DEVICE static inline double gaussian_nll_slope(const struct rowwise_options *o, const float *x, const float *t,
                                                    size_t size, size_t i) {
    double v = variance_of(o, x[size + i % size]), d = (double)x[i % size] - (double)t[i % size];
    return (i < size ? d / v : 0.5 * (1 - d * d / v) / v) / (double)size;
}

/* The cosine's derivative: other / (|own| |other|) - own cos / |own|^2 */
HOST_DEVICE static inline double cosine_slope(const struct rowwise_options *o, struct rowwise_sums s, const float *x,
                                              float t, size_t size, size_t i) {
    double cosine = cosine_of(s), own = (double)x[i], other = (double)x[i < size ? size + i : i - size];
    double slope =
        other / sqrt((s.a + COSINE_EPS) * (s.b + COSINE_EPS)) - own * cosine / ((i < size ? s.a : s.b) + COSINE_EPS);
    return t == 1 ? -slope : cosine > (double)o->margin ? slope : 0;
}

/* Of the distance sqrt(squared) of x and y by x. */
HOST_DEVICE static inline double distance_slope(const struct rowwise_options *o, double squared, float x, float y) {
    return squared > 0 ? ((double)x - (double)y + (double)o->eps) / sqrt(squared) : 0;
}

/* The share of the distance of positive and negative in the slope of the smaller one: half of it where both are equal,
 * as of torch.min. */
HOST_DEVICE static inline double swapped_share(struct rowwise_sums s) { return s.c < s.b ? 1 : s.c == s.b ? 0.5 : 0; }

HOST_DEVICE static inline double triplet_slope(const struct rowwise_options *o, struct rowwise_sums s, const float *x,
                                               size_t size, size_t i) {
    size_t part = i / size, k = i % size;
    float anchor = x[k], positive = x[size + k], negative = x[2 * size + k];
    if (triplet_of(o, s) <= 0) return 0;
    double swapped = o->is_swapped ? swapped_share(s) : 0;
    double to_positive = distance_slope(o, s.a, anchor, positive);
    double to_negative = (1 - swapped) * distance_slope(o, s.b, anchor, negative);
    double between = swapped * distance_slope(o, s.c, positive, negative);
    return part == 0 ? to_positive - to_negative : part == 1 ? -to_positive - between : to_negative + between;
}

/* d(loss of a row) / d(x[i]), i < parts * size */
HOST_DEVICE static inline float rowwise_slope(const struct rowwise_options *o, struct rowwise_sums s, const float *x,
                                              const float *t, size_t size, size_t i, float max) {
    switch (o->loss) {
    case ROWWISE_DICE:
        return (float)dice_slope(o, s, x[i], t[i]);
    case ROWWISE_GAUSSIAN_NLL:
        return (float)gaussian_nll_slope(o, x, t, size, i);
    case ROWWISE_COSINE_EMBEDDING:
        return (float)cosine_slope(o, s, x, t[0], size, i);
    case ROWWISE_KL_NORMAL:
        return i < size ? x[i] : (float)(0.5 * (exp((double)x[i]) - 1));
    case ROWWISE_TRIPLET_MARGIN:
        return (float)triplet_slope(o, s, x, size, i);
    case ROWWISE_MARGIN_RANKING:
        return ranking_of(o, x, t, size, i % size) >= 0 ? (i < size ? -t[i] : t[i - size]) / (float)size : 0;
    case ROWWISE_CROSS_ENTROPY:
        return (float)(s.b * (exp((double)x[i] - (double)max) / s.a) - share_of(o, t, size, i));
    case ROWWISE_MULTILABEL_MARGIN:
        return (float)(lacking_slope(o, x, t, size, i) / (double)size);
    }
    return 0;
}
