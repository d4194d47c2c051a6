/* Convolutions: plans of cuDNN (cudnn/plans.h), made before the loop for the numbers of rows that will come, and around
 * them what it leaves to us: a relu, in one pass with the bias before it, and the gradient of the bias. Workspace is
 * scratch memory of the device. */
#include <cstdlib>

#include "device/cuda/columns.cuh"
#include "device/cuda/cudnn/plans.h"

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
    bool is_exact;
    struct plan *plans[3]; /* by pass; NULL: not made yet */
    bool adds_bias;
};

} // namespace

struct device_convolution {
    struct gpu_device *gpu;
    struct convolution c;
    struct row_plans made[MOST_ROWS];
    size_t next; /* of made, to be replaced */
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

static status make_plan(struct device_convolution *d, struct row_plans *p, enum plan_pass pass) {
    const struct cudnn_module *module = d->gpu->cudnn_module;
    struct plan_wish wish = {&d->c, p->rows, pass, p->is_exact, false, MOST_WORKSPACE};
    struct plan **plan = &p->plans[pass];
    if (*plan) return OK;
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
    bool is_exact = d->gpu->precision == PRECISION_FLOAT32;
    for (struct row_plans &p : d->made)
        if (p.rows == rows && p.is_exact == is_exact) return &p;
    struct row_plans *p = &d->made[d->next++ % MOST_ROWS];
    if (p->rows) d->gpu->moves++; /* a recorded step may still run the plan */
    forget(d, p);
    p->rows = rows;
    p->is_exact = is_exact;
    return p;
}

static void destroy(struct device_convolution *d) {
    if (!d) return;
    for (struct row_plans &p : d->made) forget(d, &p);
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

static void run(call *c, struct device_convolution *d, struct row_plans *p, enum plan_pass pass,
                struct plan_operands operands) {
    const struct cudnn_module *module = d->gpu->cudnn_module;
    if (!c->is_ok()) return;
    status s = make_plan(d, p, pass);
    if (s) gpu_fail(c->gpu, passes[pass], status_message(s));
    status_free(s);
    if (!c->is_ok()) return;
    size_t bytes = module->workspace(p->plans[pass]);
    operands.workspace = bytes ? c->scratch<char>(bytes) : nullptr;
    if (!c->is_ok()) return;
    const char *failure = module->run(d->gpu->cudnn, p->plans[pass], &operands);
    if (failure) gpu_fail(c->gpu, passes[pass], failure);
}

namespace {

/* y = y + bias, then max(y, 0), NaN staying NaN */
struct ending {
    const float *bias;
    float *y;
    bool has_relu;
    struct of_channel {
        float bias;
        float *y;
        bool has_relu;
        __device__ void operator()(size_t i) const {
            float v = y[i] + bias;
            y[i] = has_relu && v <= 0 ? 0 : v;
        }
    };
    __device__ of_channel of(size_t channel) const { return {bias ? bias[channel] : 0, y, has_relu}; }
};

struct bias_terms {
    const float *dy;
    size_t channels;
    __device__ void operator()(size_t row, size_t channel, float *terms) const {
        terms[0] += dy[row * channels + channel];
    }
};

} // namespace

static void forward(struct device_convolution *d, const float *x, const float *w, const float *bias, float *y,
                    size_t rows) {
    call c(&d->gpu->base, passes[PLAN_FORWARD]);
    const struct image *out = &d->c.out;
    if (rows == 0) return;
    struct row_plans *p = plans_for(d, rows);
    const float *from = c.in(x, rows * elements(&d->c.in)), *weight = c.in(w, weights(&d->c));
    const float *row = c.in(bias, out->channels);
    float *to = c.out(y, rows * elements(out));
    run(&c, d, p, PLAN_FORWARD, {from, weight, row, to, nullptr});
    if (d->c.has_relu || (row && !p->adds_bias))
        column_each(&c, rows * out->height * out->width, out->channels,
                    ending{p->adds_bias ? nullptr : row, to, d->c.has_relu});
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
    if (db)
        column_sums<1>(&c, rows * out->height * out->width, out->channels, bias_terms{from, out->channels},
                       [=] __device__(size_t channel, const double *sums) { db[channel] += (float)sums[0]; });
    run(&c, d, p, PLAN_BACKWARD_WEIGHT, {input, slopes, nullptr, from, nullptr});
    if (to) run(&c, d, p, PLAN_BACKWARD_INPUT, {to, weight, nullptr, from, nullptr});
}

const struct convolution_ops gpu_convolutions = {
    .create = create, .destroy = destroy, .prepare = prepare, .forward = forward, .backward = backward};
