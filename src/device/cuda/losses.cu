/* Losses: a block for each position of a cross entropy, a thread for each element of the others; formulas are those of
 * cpu/losses.c. Sums are in double, in the order of call::sum. */
#include <cmath>

#include "device/cuda/gpu.cuh"

struct cross_entropy_job {
    const float *logits;
    const int64_t *targets;
    const double *weight; /* (classes) or NULL */
    float smoothing, scale, *dlogits;
    const double *count; /* what the loss is a mean over */
    int64_t ignored;
    size_t classes;
    double *loss; /* (positions) */
    float *correct, *scored;
};

__device__ static float class_weight(const struct cross_entropy_job *b, size_t c) {
    return b->weight ? (float)b->weight[c] : 1;
}

__device__ static void cross_entropy_row(const struct cross_entropy_job *b, size_t i) {
    const float *z = b->logits + i * b->classes;
    float *dz = b->dlogits ? b->dlogits + i * b->classes : nullptr;
    size_t classes = b->classes, target = (size_t)b->targets[i];
    bool is_first = threadIdx.x == 0;
    if (b->targets[i] == b->ignored) {
        for (size_t c = threadIdx.x; dz && c < classes; c += GPU_THREADS) dz[c] = 0;
        if (is_first) b->loss[i] = 0, b->correct[i] = 0, b->scored[i] = 0;
        return;
    }
    float most = z[0], sum = 0;
    for (size_t c = threadIdx.x; c < classes; c += GPU_THREADS) most = z[c] > most ? z[c] : most;
    most = gpu_reduce(most, gpu_max());
    size_t best = classes - 1;
    double shifted = 0, weights = 0;
    for (size_t c = threadIdx.x; c < classes; c += GPU_THREADS) {
        sum += math_exp(z[c] - most);
        if (z[c] == most && c < best) best = c;
        double w = b->weight ? b->weight[c] : 1;
        shifted += w * (double)(z[c] - most);
        weights += w;
    }
    sum = gpu_reduce(sum, gpu_add());
    best = gpu_reduce(best, gpu_min());
    shifted = gpu_reduce(shifted, gpu_add());
    weights = gpu_reduce(weights, gpu_add());
    float own_weight = class_weight(b, target), log_sum = logf(sum), spread = b->smoothing / (float)classes;
    if (is_first) {
        double loss = (1 - (double)b->smoothing) * (double)own_weight * -(double)(z[target] - most - log_sum);
        if (b->smoothing != 0) loss -= (double)spread * (shifted - weights * (double)log_sum);
        b->loss[i] = loss;
        b->correct[i] = best == target ? 1 : 0;
        b->scored[i] = 1;
    }
    if (!dz) return;
    float factor = *b->count > 0 ? b->scale / (float)*b->count : 0;
    float own = (1 - b->smoothing) * own_weight, whole = own + spread * (float)weights;
    for (size_t c = threadIdx.x; c < classes; c += GPU_THREADS) {
        float share = math_exp(z[c] - most) / sum * whole;
        float taken = spread == 0 ? 0 : spread * class_weight(b, c);
        dz[c] = (share - (c == target ? own + taken : taken)) * factor;
    }
}

static void cross_entropy(struct device *device, const struct cross_entropy_options *o, const float *logits,
                          const int64_t *targets, size_t positions, size_t classes, float scale, float *dlogits,
                          struct loss_sums *sums) {
    call c(device, "cross_entropy");
    double *count = c.scratch<double>(1);
    struct cross_entropy_job b = {.logits = c.in(logits, positions * classes),
                                  .targets = c.in(targets, positions),
                                  .weight = c.constant(o->weight, o->weight ? classes : 0),
                                  .smoothing = o->label_smoothing,
                                  .scale = scale,
                                  .dlogits = c.out(dlogits, positions * classes),
                                  .count = count,
                                  .ignored = o->ignored,
                                  .classes = classes,
                                  .loss = c.scratch<double>(positions),
                                  .correct = c.scratch<float>(positions),
                                  .scored = c.scratch<float>(positions)};
    struct loss_sums *to = c.inout(sums, 1);
    if (!c.is_ok()) return;
    c.each(1, [=] __device__(size_t) { *count = 0; });
    c.sum(
        positions,
        [=] __device__(size_t i) {
            return b.targets[i] == b.ignored ? 0.0 : b.weight ? (double)(float)b.weight[b.targets[i]] : 1.0;
        },
        count);
    c.rows(positions, [=] __device__(size_t i) { cross_entropy_row(&b, i); });
    c.sum(
        positions, [=] __device__(size_t i) { return b.loss[i]; }, &to->loss);
    c.sum(
        positions, [=] __device__(size_t i) { return (double)b.correct[i]; }, &to->correct);
    c.sum(
        positions, [=] __device__(size_t i) { return (double)b.scored[i]; }, &to->scored);
    c.each(1, [=] __device__(size_t) { to->count += *count; });
}

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
    call c(device, "an elementwise loss");
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

const struct loss_ops gpu_losses = {.cross_entropy = cross_entropy, .elementwise = elementwise};
