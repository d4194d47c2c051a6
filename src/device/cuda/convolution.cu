/* Convolutions: plans of cuDNN (cudnn/plans.h), made before the loop for the numbers of rows that will come, and around
 * them what it leaves to us: a relu, in one pass with the bias before it, and the gradient of the bias. Workspace is
 * scratch memory of the device.
 *
 * In the 16-bit precisions cuDNN reads and writes 16 bits and sums in float32, as under PyTorch's autocast: weights are
 * rounded once a pass. Operands that are kept in 16 bits it reads and writes where they are, so that only a bias or a
 * relu is a pass behind it. Others are rounded where they are not at hand, and what it writes becomes float32 in the
 * pass that adds the bias and the relu, or that adds to the gradient. Where it has no plan for 16 bits TF32 is taken,
 * and operands of 16 bits are widened for it. */
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
    if (!c->runs()) return;
    const char *failure = module->run(d->gpu->cudnn, p->plans[pass], &operands);
    if (failure) gpu_fail(c->gpu, passes[pass], failure);
}

namespace {

/* y = what cuDNN wrote + bias, then max(y, 0), NaN staying NaN */
struct ending {
    const float *bias;
    struct gpu_numbers from;
    struct gpu_result y;
    bool has_relu;
    template <int V> struct of_channels {
        struct gpu_several<V> bias;
        struct gpu_numbers from;
        struct gpu_result y;
        bool has_relu;
        __device__ gpu_fetched<V> get(size_t i) const { return from.fetch_some<V>(i); }
        __device__ void put(size_t i, struct gpu_fetched<V> got) const {
            struct gpu_several<V> v = from.some<V>(got);
            for (int k = 0; k < V; k++) {
                v.at[k] += bias.at[k];
                if (has_relu && v.at[k] <= 0) v.at[k] = 0;
            }
            y.put(i, v);
        }
    };
    template <int V> __device__ of_channels<V> of(size_t channel) const {
        struct of_channels<V> f = {
            {}, from, y, has_relu
        };
        for (int k = 0; bias && k < V; k++) f.bias.at[k] = bias[channel + k];
        return f;
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

/* to (count) = from, in the forms that they have */
static void convert(call *c, struct gpu_numbers from, struct gpu_result to, size_t count) {
    size_t fours = from.has_fours() && to.has_fours() ? count / 4 : 0;
    c->each(count - 3 * fours, [=] __device__(size_t i) {
        if (i < fours)
            to.put(4 * i, from.four(4 * i));
        else
            to.put(i + 3 * fours, from.one(i + 3 * fours));
    });
}

static struct gpu_numbers narrow_numbers(const call *c, const uint16_t *at) { return {at, gpu_narrow_form(c->gpu)}; }

/* An operand (count) as a plan reads it: 16 bits, or float32. */
static const void *operand(call *c, struct gpu_numbers x, size_t count, bool is_narrow) {
    if (is_narrow == x.is_narrow()) return x.at;
    if (is_narrow) return gpu_narrow_all(c, x.floats(), count);
    float *to = c->scratch<float>(count);
    convert(c, x, {to, {nullptr, false}}, count);
    return to;
}

/* Where a plan writes a result (count): in its place, or where it is converted from. */
static void *target(call *c, const struct gpu_result &to, size_t count, bool is_narrow) {
    if (is_narrow) return to.is_narrow() ? to.also.to : c->scratch<uint16_t>(count);
    return to.is_narrow() ? c->scratch<float>(count) : to.to;
}

static struct gpu_numbers written(const call *c, const void *at, bool is_narrow) {
    if (is_narrow) return narrow_numbers(c, (const uint16_t *)at);
    return {at, GPU_FLOAT32};
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
    const struct narrow &narrow = c.narrow();
    if (rows == 0) return;
    struct row_plans *p = plans_for(d, rows);
    size_t positions = rows * out->height * out->width, count = rows * elements(out);
    size_t inputs = rows * elements(&d->c.in);
    struct gpu_numbers from = c.in(x, inputs, narrow.x);
    const float *weight = c.in(w, weights(&d->c)), *row = c.in(bias, out->channels);
    struct gpu_result to = c.out(y, count, narrow.y);
    if (!made(&c, d, p, PLAN_FORWARD)) return;
    bool is_narrow = p->is_narrow[PLAN_FORWARD];
    void *result = target(&c, to, count, is_narrow);
    const void *image = operand(&c, from, inputs, is_narrow);
    const void *factor = is_narrow ? (const void *)narrow_weights(&c, d, weight) : weight;
    run(&c, d, p, PLAN_FORWARD, {image, factor, row, result, nullptr});
    const float *missing = p->adds_bias ? nullptr : row;
    struct gpu_numbers made = written(&c, result, is_narrow);
    if (!missing && !d->c.has_relu) {
        if (is_narrow != to.is_narrow()) convert(&c, made, to, count);
        return;
    }
    if (is_narrow && to.to) to.also = gpu_also_narrow(&c, d->c.has_relu && to.to == y ? y : nullptr, count);
    column_each(&c, positions, out->channels, column_has_fours(out->channels, made, to),
                ending{missing, made, to, d->c.has_relu});
}

/* dbias, unless NULL, += the sums of dy (positions, channels). */
static void sum_bias(call *c, struct gpu_numbers dy, float *dbias, size_t positions, size_t channels) {
    if (dbias) column_add_to(c, dy, dbias, positions, channels);
}

/* dy in 16 bits, and the sums for dbias; in the same pass where it can be. */
static const void *round_gradient(call *c, struct gpu_numbers dy, float *dbias, size_t positions, size_t channels) {
    if (dbias && channels % 8 == 0 && !dy.is_narrow())
        return gpu_gradient_factor(c, dy.floats(), false, dbias, positions, channels).at;
    sum_bias(c, dy, dbias, positions, channels);
    return operand(c, dy, positions * channels, true);
}

static void backward_weight(call *c, struct device_convolution *d, struct row_plans *p, const void *x, float *dw,
                            const void *dy) {
    size_t count = weights(&d->c);
    if (!p->is_narrow[PLAN_BACKWARD_WEIGHT]) {
        run(c, d, p, PLAN_BACKWARD_WEIGHT, {x, dw, nullptr, dy, nullptr});
        return;
    }
    uint16_t *result = c->scratch<uint16_t>(count);
    run(c, d, p, PLAN_BACKWARD_WEIGHT, {x, result, nullptr, dy, nullptr});
    struct weight_order order = order_of(&d->c);
    bool is_bfloat16 = p->precision == PRECISION_BFLOAT16;
    c->each(count, [=] __device__(size_t i) { dw[order(i)] += gpu_widen(is_bfloat16, result[i]); });
}

static void backward_input(call *c, struct device_convolution *d, struct row_plans *p, struct gpu_result dx,
                           const float *w, const void *dy) {
    size_t count = p->rows * elements(&d->c.in);
    bool is_narrow = p->is_narrow[PLAN_BACKWARD_INPUT];
    void *result = target(c, dx, count, is_narrow);
    const void *factor = is_narrow ? (const void *)narrow_weights(c, d, w) : w;
    run(c, d, p, PLAN_BACKWARD_INPUT, {result, factor, nullptr, dy, nullptr});
    if (is_narrow != dx.is_narrow()) convert(c, written(c, result, is_narrow), dx, count);
}

static void backward(struct device_convolution *d, const float *x, const float *w, const float *dy, float *dx,
                     float *dw, float *dbias, size_t rows) {
    call c(&d->gpu->base, passes[PLAN_BACKWARD_WEIGHT]);
    const struct image *in = &d->c.in, *out = &d->c.out;
    const struct narrow &narrow = c.narrow();
    if (rows == 0) return;
    struct row_plans *p = plans_for(d, rows);
    size_t positions = rows * out->height * out->width, outputs = rows * elements(out), inputs = rows * elements(in);
    struct gpu_numbers input = c.in(x, inputs, narrow.x), from = c.in(dy, outputs, narrow.dy);
    const float *weight = c.in(w, weights(&d->c));
    struct gpu_result to = c.out(dx, inputs, narrow.dx);
    float *slopes = c.inout(dw, weights(&d->c)), *db = c.inout(dbias, out->channels);
    if (!made(&c, d, p, PLAN_BACKWARD_WEIGHT) || (dx && !made(&c, d, p, PLAN_BACKWARD_INPUT))) return;
    bool is_narrow = p->is_narrow[PLAN_BACKWARD_WEIGHT], is_input_narrow = dx && p->is_narrow[PLAN_BACKWARD_INPUT];
    bool is_any_wide = !is_narrow || (dx && !is_input_narrow);
    const void *rounded = nullptr, *wide = is_any_wide ? operand(&c, from, outputs, false) : nullptr;
    if (is_narrow || is_input_narrow)
        rounded = round_gradient(&c, from, db, positions, out->channels);
    else
        sum_bias(&c, from, db, positions, out->channels);
    backward_weight(&c, d, p, operand(&c, input, inputs, is_narrow), slopes, is_narrow ? rounded : wide);
    if (dx) backward_input(&c, d, p, to, weight, is_input_narrow ? rounded : wide);
}

const struct convolution_ops gpu_convolutions = {
    .create = create, .destroy = destroy, .prepare = prepare, .forward = forward, .backward = backward};
