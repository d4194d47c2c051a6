/* Convolutions: plans of cuDNN (cudnn/plans.h), made before the loop for the numbers of rows that will come, and around
 * them what it leaves to us: a relu, in one pass with the bias before it, and the gradient of the bias. Workspace is
 * scratch memory of the device.
 *
 * In the 16-bit precisions cuDNN reads and writes 16 bits and sums in float32, as under PyTorch's autocast: weights are
 * rounded once a pass, images and gradients where they are not at hand, and what it writes becomes float32 in the pass
 * that adds the bias and the relu, or that adds to the gradient. Where it has no plan for 16 bits TF32 is taken. */
#include <cstdlib>

#include "device/cuda/columns.cuh"
#include "device/cuda/cudnn/plans.h"
#include "device/cuda/product.cuh"

extern "C" {
#include "base/module.h"
}

#define MOST_ROWS 4                      /* numbers of rows: full and last batches of training and evaluation */
#define MOST_WORKSPACE ((size_t)1 << 30) /* bytes; cuDNN's fastest ones of float32 copy x and y */

namespace {

const char *const passes[] = {"conv forward", "conv backward to its input", "conv backward to its weight"};

/* Plans for one number of rows. */
struct row_plans {
    size_t rows; /* 0: none */
    enum precision precision;
    struct plan *plans[3]; /* by pass; NULL: not made yet */
    bool is_narrow[3];     /* by pass: 16 bits */
    bool adds_bias;
};

} // namespace

struct device_convolution {
    struct gpu_device *gpu;
    struct convolution c;
    struct row_plans made[MOST_ROWS];
    size_t next;             /* of made, to be replaced */
    struct gpu_copy weights; /* in 16 bits, channels innermost; call: the gpu_round_parameters that they are of */
};

static status open_cudnn(struct gpu_device *gpu) {
    if (gpu->cudnn) return OK;
    void *module = nullptr;
    status s = module_open("cudnn", "ddptrain_cudnn_plans", &module);
    if (!s) {
        gpu->cudnn_module = (const struct cudnn_module *)module;
        s = gpu->cudnn_module->open(gpu->stream, &gpu->cudnn);
    }
    if (!s) return OK;
    status whole = status_new(STATUS_USAGE,
                              "train.device: cuda needs cuDNN for conv1d and conv2d: %s; docs/gpu.md says how to build "
                              "and install it, or use device: cpu",
                              status_message(s));
    status_free(s);
    return whole;
}

void gpu_convolutions_close(struct gpu_device *gpu) {
    if (gpu->cudnn) gpu->cudnn_module->close(gpu->cudnn);
}

static bool is_narrow(enum precision p) { return p == PRECISION_BFLOAT16 || p == PRECISION_FLOAT16; }

/* The first wish that cuDNN has a plan for: 16 bits, the bias with it, without. */
static status make_plan(struct device_convolution *d, struct row_plans *p, enum plan_pass pass) {
    const struct cudnn_module *module = d->gpu->cudnn_module;
    struct plan_wish wish = {&d->c, p->rows, pass, p->precision, false, MOST_WORKSPACE};
    struct plan **plan = &p->plans[pass];
    if (*plan) return OK;
    if (is_narrow(p->precision)) TRY(module->plan(d->gpu->cudnn, &wish, plan));
    p->is_narrow[pass] = *plan != nullptr;
    if (*plan) return OK;
    if (is_narrow(p->precision)) wish.precision = PRECISION_TF32;
    wish.adds_bias = pass == PLAN_FORWARD && d->c.has_bias && !d->c.has_relu;
    if (wish.adds_bias) TRY(module->plan(d->gpu->cudnn, &wish, plan));
    if (pass == PLAN_FORWARD) p->adds_bias = *plan != nullptr;
    wish.adds_bias = false;
    if (!*plan) TRY(module->plan(d->gpu->cudnn, &wish, plan));
    return *plan ? OK
                 : status_new(STATUS_USAGE, "%s: cuDNN has no deterministic way to compute it within %zu MiB",
                              passes[pass], MOST_WORKSPACE >> 20);
}

static void forget(struct device_convolution *d, struct row_plans *p) {
    for (struct plan *plan : p->plans) d->gpu->cudnn_module->destroy(plan);
    *p = {};
}

/* What there is for [rows], or room for it. */
static struct row_plans *plans_for(struct device_convolution *d, size_t rows) {
    enum precision precision = d->gpu->precision;
    for (struct row_plans &p : d->made)
        if (p.rows == rows && p.precision == precision) return &p;
    struct row_plans *p = &d->made[d->next++ % MOST_ROWS];
    if (p->rows) d->gpu->moves++; /* a recorded step may still run the plan */
    forget(d, p);
    p->rows = rows;
    p->precision = precision;
    return p;
}

static void destroy(struct device_convolution *d) {
    if (!d) return;
    for (struct row_plans &p : d->made) forget(d, &p);
    cudaFree(d->weights.memory);
    free(d);
}

static status prepare(struct device_convolution *d, size_t rows, bool is_training) {
    if (rows == 0) return OK;
    struct row_plans *p = plans_for(d, rows);
    TRY(make_plan(d, p, PLAN_FORWARD));
    if (!is_training) return OK;
    TRY(make_plan(d, p, PLAN_BACKWARD_INPUT));
    return make_plan(d, p, PLAN_BACKWARD_WEIGHT);
}

/* The first convolution opens cuDNN; plans wait for prepare, which knows the numbers of rows. */
static status create(struct device *device, const struct convolution *c, size_t rows, struct device_convolution **out) {
    (void)rows;
    *out = nullptr;
    TRY(open_cudnn((struct gpu_device *)device));
    struct device_convolution *d = (struct device_convolution *)calloc(1, sizeof *d);
    if (!d) return status_new(STATUS_BUG, "out of memory");
    d->gpu = (struct gpu_device *)device;
    d->c = *c;
    *out = d;
    return OK;
}

static size_t elements(const struct image *i) { return i->height * i->width * i->channels; }

static size_t weights(const struct convolution *c) {
    return c->out.channels * (c->in.channels / c->groups) * c->window.kernel[0] * c->window.kernel[1];
}

/* Whether there is a plan for the pass, which is made now if it was not before. */
static bool made(call *c, struct device_convolution *d, struct row_plans *p, enum plan_pass pass) {
    status s = c->is_ok() ? make_plan(d, p, pass) : OK;
    if (s) gpu_fail(c->gpu, passes[pass], status_message(s));
    status_free(s);
    return c->is_ok();
}

static void run(call *c, struct device_convolution *d, struct row_plans *p, enum plan_pass pass,
                struct plan_operands operands) {
    const struct cudnn_module *module = d->gpu->cudnn_module;
    size_t bytes = module->workspace(p->plans[pass]);
    operands.workspace = bytes ? c->scratch<char>(bytes) : nullptr;
    if (!c->is_ok()) return;
    const char *failure = module->run(d->gpu->cudnn, p->plans[pass], &operands);
    if (failure) gpu_fail(c->gpu, passes[pass], failure);
}

namespace {

/* What cuDNN wrote, float32 or 16 bits. */
struct written {
    const float *wide; /* NULL: narrow */
    const uint16_t *narrow;
    bool is_bfloat16;
    __device__ float at(size_t i) const { return wide ? wide[i] : gpu_widen(is_bfloat16, narrow[i]); }
};

/* y = it + bias, then max(y, 0), NaN staying NaN */
struct ending {
    const float *bias;
    struct written from;
    float *y;
    bool has_relu;
    struct gpu_also also;
    struct of_channel {
        float bias;
        struct written from;
        float *y;
        bool has_relu;
        struct gpu_also also;
        __device__ float get(size_t i) const { return from.at(i); }
        __device__ void put(size_t i, float x) const {
            float v = x + bias, result = has_relu && v <= 0 ? 0 : v;
            y[i] = result;
            also.put(i, result);
        }
    };
    __device__ of_channel of(size_t channel) const { return {bias ? bias[channel] : 0, from, y, has_relu, also}; }
};

struct bias_terms {
    const float *dy;
    size_t channels;
    __device__ void operator()(size_t row, size_t channel, float *terms) const {
        terms[0] += dy[row * channels + channel];
    }
};

/* Element [i] of weights with their channels innermost, where it is in PyTorch's order. */
struct weight_order {
    size_t in, positions; /* of the kernel */
    __device__ size_t operator()(size_t i) const {
        size_t channel = i % in, rest = i / in;
        return (rest / positions * in + channel) * positions + rest % positions;
    }
};

} // namespace

static struct weight_order order_of(const struct convolution *c) {
    return {c->in.channels / c->groups, c->window.kernel[0] * c->window.kernel[1]};
}

/* y (count) = it, which is 16 bits */
static void widen(call *c, const uint16_t *from, float *y, size_t count) {
    bool is_bfloat16 = c->gpu->precision == PRECISION_BFLOAT16, is_aligned = alignment(y) >= sizeof(float4);
    size_t fours = is_aligned ? count / 4 : 0;
    c->each(count - 3 * fours, [=] __device__(size_t i) {
        if (i < fours) {
            uint2 v = ((const uint2 *)from)[i];
            ((float4 *)y)[i] = {gpu_widen(is_bfloat16, (uint16_t)v.x), gpu_widen(is_bfloat16, (uint16_t)(v.x >> 16)),
                                gpu_widen(is_bfloat16, (uint16_t)v.y), gpu_widen(is_bfloat16, (uint16_t)(v.y >> 16))};
        } else {
            y[i + 3 * fours] = gpu_widen(is_bfloat16, from[i + 3 * fours]);
        }
    });
}

/* The weights in 16 bits, made once for all passes between two calls of gpu_round_parameters where they are parameters.
 */
static const uint16_t *narrow_weights(call *c, struct device_convolution *d, const float *w) {
    const struct gpu_copy *parameters = &c->gpu->parameters.copy;
    size_t count = weights(&d->c);
    bool is_parameter = parameters->of && w >= parameters->of && w + count <= parameters->of + parameters->rows;
    uint16_t *to = gpu_reserve(c, &d->weights, count * sizeof *to);
    if (is_parameter && d->weights.of == w && d->weights.call == parameters->call) return to;
    struct weight_order order = order_of(&d->c);
    bool is_bfloat16 = c->gpu->precision == PRECISION_BFLOAT16;
    c->each(count, [=] __device__(size_t i) { to[i] = gpu_narrow(is_bfloat16, w[order(i)]); });
    d->weights.of = is_parameter ? w : nullptr;
    d->weights.call = parameters->call;
    return to;
}

static void forward(struct device_convolution *d, const float *x, const float *w, const float *bias, float *y,
                    size_t rows) {
    call c(&d->gpu->base, passes[PLAN_FORWARD]);
    const struct image *out = &d->c.out;
    if (rows == 0) return;
    struct row_plans *p = plans_for(d, rows);
    size_t positions = rows * out->height * out->width, count = rows * elements(out);
    const float *from = c.in(x, rows * elements(&d->c.in)), *weight = c.in(w, weights(&d->c));
    const float *row = c.in(bias, out->channels);
    float *to = c.out(y, count);
    if (!made(&c, d, p, PLAN_FORWARD)) return;
    if (!p->is_narrow[PLAN_FORWARD]) {
        run(&c, d, p, PLAN_FORWARD, {from, weight, row, to, nullptr});
        if (!d->c.has_relu && (!row || p->adds_bias)) return;
        struct written same = {to, nullptr, false};
        column_each(&c, positions, out->channels,
                    ending{p->adds_bias ? nullptr : row, same, to, d->c.has_relu, {nullptr, false}});
        return;
    }
    uint16_t *result = c.scratch<uint16_t>(count);
    const uint16_t *image = gpu_narrow_all(&c, from, rows * elements(&d->c.in));
    run(&c, d, p, PLAN_FORWARD, {image, narrow_weights(&c, d, weight), nullptr, result, nullptr});
    if (!row && !d->c.has_relu) {
        widen(&c, result, to, count);
        return;
    }
    struct gpu_also also = gpu_also_narrow(&c, d->c.has_relu && to == y ? y : nullptr, count);
    struct written narrow = {nullptr, result, p->precision == PRECISION_BFLOAT16};
    column_each(&c, positions, out->channels, ending{row, narrow, to, d->c.has_relu, also});
}

/* dbias += the sums of dy; what 16 bits need of it is made in the same pass where it can be: then the answer is dy. */
static const uint16_t *sum_bias(call *c, const float *dy, float *dbias, size_t positions, size_t channels,
                                bool is_narrow) {
    if (dbias && is_narrow && channels % 8 == 0)
        return (const uint16_t *)gpu_gradient_factor(c, dy, false, dbias, positions, channels).at;
    if (dbias)
        column_sums<1>(c, positions, channels, bias_terms{dy, channels},
                       [=] __device__(size_t channel, const double *sums) { dbias[channel] += (float)sums[0]; });
    return is_narrow ? gpu_narrow_all(c, dy, positions * channels) : nullptr;
}

static void backward_weight(call *c, struct device_convolution *d, struct row_plans *p, const float *x, float *dw,
                            const float *dy, const uint16_t *narrow_dy) {
    size_t count = weights(&d->c);
    if (!p->is_narrow[PLAN_BACKWARD_WEIGHT]) {
        run(c, d, p, PLAN_BACKWARD_WEIGHT, {x, dw, nullptr, dy, nullptr});
        return;
    }
    uint16_t *result = c->scratch<uint16_t>(count);
    const uint16_t *image = gpu_narrow_all(c, x, p->rows * elements(&d->c.in));
    run(c, d, p, PLAN_BACKWARD_WEIGHT, {image, result, nullptr, narrow_dy, nullptr});
    struct weight_order order = order_of(&d->c);
    bool is_bfloat16 = p->precision == PRECISION_BFLOAT16;
    c->each(count, [=] __device__(size_t i) { dw[order(i)] += gpu_widen(is_bfloat16, result[i]); });
}

static void backward_input(call *c, struct device_convolution *d, struct row_plans *p, float *dx, const float *w,
                           const float *dy, const uint16_t *narrow_dy) {
    size_t count = p->rows * elements(&d->c.in);
    if (!p->is_narrow[PLAN_BACKWARD_INPUT]) {
        run(c, d, p, PLAN_BACKWARD_INPUT, {dx, w, nullptr, dy, nullptr});
        return;
    }
    uint16_t *result = c->scratch<uint16_t>(count);
    run(c, d, p, PLAN_BACKWARD_INPUT, {result, narrow_weights(c, d, w), nullptr, narrow_dy, nullptr});
    widen(c, result, dx, count);
}

static void backward(struct device_convolution *d, const float *x, const float *w, const float *dy, float *dx,
                     float *dw, float *dbias, size_t rows) {
    call c(&d->gpu->base, passes[PLAN_BACKWARD_WEIGHT]);
    const struct image *in = &d->c.in, *out = &d->c.out;
    if (rows == 0) return;
    struct row_plans *p = plans_for(d, rows);
    const float *input = c.in(x, rows * elements(in)), *weight = c.in(w, weights(&d->c));
    const float *from = c.in(dy, rows * elements(out));
    float *to = c.out(dx, rows * elements(in)), *slopes = c.inout(dw, weights(&d->c));
    float *db = c.inout(dbias, out->channels);
    if (!made(&c, d, p, PLAN_BACKWARD_WEIGHT) || (to && !made(&c, d, p, PLAN_BACKWARD_INPUT))) return;
    bool is_any_narrow = p->is_narrow[PLAN_BACKWARD_WEIGHT] || (to && p->is_narrow[PLAN_BACKWARD_INPUT]);
    const uint16_t *narrow = sum_bias(&c, from, db, rows * out->height * out->width, out->channels, is_any_narrow);
    backward_weight(&c, d, p, input, slopes, from, narrow);
    if (to) backward_input(&c, d, p, to, weight, from, narrow);
}

const struct convolution_ops gpu_convolutions = {
    .create = create, .destroy = destroy, .prepare = prepare, .forward = forward, .backward = backward};
