/* Convolutions: plans of cuDNN (cudnn/plans.h), created before the loop for the expected numbers of rows. A relu, in
 * one pass with the bias, and the gradient of the bias are kernels here. Workspace is the device's scratch memory.
 *
 * In 16-bit precisions cuDNN reads and writes 16 bits and sums in float32, as under PyTorch's autocast; weights are
 * rounded once per pass. 16-bit operands are used in place, so that only a bias or a relu needs another pass. Other
 * operands are rounded first, unless a rounded copy exists, and results are converted to float32 in the pass that
 * adds bias and relu, or that adds to the gradient. Where cuDNN has no 16-bit plan, TF32 is used, and 16-bit operands
 * are converted to float32 for it. */
#include <cstdlib>

#include "device/cuda/columns.cuh"
#include "device/cuda/cudnn/plans.h"
#include "device/cuda/product.cuh"

extern "C" {
#include "base/system/module.h"
}

#define MAX_ROWS 4                      /* numbers of rows: full and last batches of training and evaluation */
#define MAX_WORKSPACE ((size_t)1 << 30) /* bytes; the fastest ones for float32 copy x and y */

namespace {

const char *const passes[] = {"conv forward", "conv backward to its input", "conv backward to its weight"};

/* Plans for one number of rows. */
struct row_plans {
    size_t rows; /* 0: none */
    enum precision precision;
    struct convolution_plan *plans[3]; /* by pass; NULL: not created yet */
    bool is_half[3];                   /* by pass: whether it is a 16-bit plan */
    bool adds_bias;
};

} // namespace

struct device_convolution {
    struct gpu_device *gpu;
    struct convolution c;
    struct row_plans row_plans[MAX_ROWS];
    size_t next;             /* index of the next entry to replace */
    struct gpu_copy weights; /* in 16 bits, channels innermost; made_by: the gpu_round_parameters that they are of */
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
    status whole = status_usage("train.device: cuda needs cuDNN for conv1d and conv2d: %s; see docs/gpu.md for how to "
                                "build and install it, or use device: cpu",
                                status_message(s));
    status_free(s);
    return whole;
}

void gpu_convolutions_close(struct gpu_device *gpu) {
    if (gpu->cudnn) gpu->cudnn_module->close(gpu->cudnn);
}

static bool is_half(enum precision p) { return p == PRECISION_BFLOAT16 || p == PRECISION_FLOAT16; }

/* The first request that cuDNN has a plan for: 16 bits, with the bias, without it. */
static status create_plan(struct device_convolution *d, struct row_plans *p, enum plan_pass pass) {
    const struct cudnn_module *module = d->gpu->cudnn_module;
    struct plan_request wish = {&d->c, p->rows, pass, p->precision, false, MAX_WORKSPACE};
    struct convolution_plan **plan = &p->plans[pass];
    if (*plan) return OK;
    if (is_half(p->precision)) TRY(module->plan(d->gpu->cudnn, &wish, plan));
    p->is_half[pass] = *plan != nullptr;
    if (*plan) return OK;
    if (is_half(p->precision)) wish.precision = PRECISION_TF32;
    wish.adds_bias = pass == PLAN_FORWARD && d->c.has_bias && !d->c.has_relu;
    if (wish.adds_bias) TRY(module->plan(d->gpu->cudnn, &wish, plan));
    if (pass == PLAN_FORWARD) p->adds_bias = *plan != nullptr;
    wish.adds_bias = false;
    if (!*plan) TRY(module->plan(d->gpu->cudnn, &wish, plan));
    return *plan ? OK
                 : status_usage("%s: cuDNN has no deterministic algorithm for it within %zu MiB", passes[pass],
                                MAX_WORKSPACE >> 20);
}

static void clear_plans(struct device_convolution *d, struct row_plans *p) {
    for (struct convolution_plan *plan : p->plans) d->gpu->cudnn_module->destroy(plan);
    *p = {};
}

/* The plans for [rows], or an entry for them. */
static struct row_plans *plans_for(struct device_convolution *d, size_t rows) {
    enum precision precision = d->gpu->precision;
    for (struct row_plans &p : d->row_plans)
        if (p.rows == rows && p.precision == precision) return &p;
    struct row_plans *p = &d->row_plans[d->next++ % MAX_ROWS];
    if (p->rows) d->gpu->moves++; /* a recorded step may still use the plan */
    clear_plans(d, p);
    p->rows = rows;
    p->precision = precision;
    return p;
}

static void destroy(struct device_convolution *d) {
    if (!d) return;
    for (struct row_plans &p : d->row_plans) clear_plans(d, &p);
    cudaFree(d->weights.memory);
    free(d);
}

static status prepare(struct device_convolution *d, size_t rows, bool is_training) {
    if (rows == 0) return OK;
    struct row_plans *p = plans_for(d, rows);
    TRY(create_plan(d, p, PLAN_FORWARD));
    if (!is_training) return OK;
    TRY(create_plan(d, p, PLAN_BACKWARD_INPUT));
    return create_plan(d, p, PLAN_BACKWARD_WEIGHT);
}

/* The first convolution opens cuDNN; plans are created in prepare, which gets the number of rows. */
static status create(struct device *device, const struct convolution *c, size_t rows, struct device_convolution **out) {
    (void)rows;
    *out = nullptr;
    TRY(open_cudnn((struct gpu_device *)device));
    struct device_convolution *d = (struct device_convolution *)calloc(1, sizeof *d);
    if (!d) return status_memory("a convolution");
    d->gpu = (struct gpu_device *)device;
    d->c = *c;
    *out = d;
    return OK;
}

static size_t elements(const struct image_shape *i) { return i->height * i->width * i->channels; }

static size_t weights(const struct convolution *c) {
    return c->out.channels * (c->in.channels / c->groups) * c->window.kernel[0] * c->window.kernel[1];
}

/* Whether there is a plan for the pass; creates it if necessary. */
static bool has_plan(operator_call *c, struct device_convolution *d, struct row_plans *p, enum plan_pass pass) {
    status s = c->is_ok() ? create_plan(d, p, pass) : OK;
    if (s)
        gpu_fail_as(c->gpu, status_code(s) == STATUS_MEMORY ? STATUS_MEMORY : STATUS_BUG, passes[pass],
                    status_message(s));
    status_free(s);
    return c->is_ok();
}

static void run(operator_call *c, struct device_convolution *d, struct row_plans *p, enum plan_pass pass,
                struct plan_operands operands) {
    const struct cudnn_module *module = d->gpu->cudnn_module;
    size_t bytes = module->workspace(p->plans[pass]);
    operands.workspace = bytes ? c->scratch<char>(bytes) : nullptr;
    if (!c->runs()) return;
    const char *failure = module->run(d->gpu->cudnn, p->plans[pass], &operands);
    if (failure) gpu_fail(c->gpu, passes[pass], failure);
}

namespace {

/* y = result of cuDNN + bias, then max(y, 0); NaN is not changed */
struct epilogue {
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

/* Weights (out, in, positions) in PyTorch's order, and (out, positions, in) with their channels innermost. A block
 * reorders some input channels of an output channel through shared memory, so that it accesses rows on both sides. */
struct weight_order {
    size_t out, in, positions; /* positions: of the kernel */
    unsigned channels;         /* of a block */
    unsigned stride;           /* of a channel in shared memory, odd: its banks differ from those of the next one */

    /* Element [i] of weights with their channels innermost, where it is in PyTorch's order. */
    __device__ size_t operator()(size_t i) const {
        size_t channel = i % in, rest = i / in;
        return (rest / positions * in + channel) * positions + rest % positions;
    }
};

/* The part of a block: [count] channels of an output channel, in PyTorch's order from [at] on, and with [at_inner]. */
struct weight_part {
    unsigned count;
    size_t at, at_inner;
    __device__ weight_part(const struct weight_order &o) {
        size_t parts = (o.in + o.channels - 1) / o.channels, row = blockIdx.x / parts;
        size_t first = blockIdx.x % parts * o.channels;
        count = (unsigned)(o.in - first < o.channels ? o.in - first : o.channels);
        at = (row * o.in + first) * o.positions;
        at_inner = row * o.positions * o.in + first;
    }
};

/* POSITIONS: o.positions, so that divisions by it are cheap; 0: any number. */
template <unsigned POSITIONS>
__global__ void round_part(struct weight_order o, const float *w, uint16_t *to, bool is_bfloat16) {
    float *tile = gpu_shared<float>(); /* (channels, stride) */
    struct weight_part part(o);
    unsigned positions = POSITIONS ? POSITIONS : (unsigned)o.positions;
#pragma unroll 4
    for (unsigned i = threadIdx.x; i < part.count * positions; i += GPU_THREADS)
        tile[i / positions * o.stride + i % positions] = w[part.at + i];
    __syncthreads();
#pragma unroll 4
    for (unsigned i = threadIdx.x; i < part.count * positions; i += GPU_THREADS)
        to[part.at_inner + i / part.count * o.in + i % part.count] =
            gpu_to_half(is_bfloat16, tile[i % part.count * o.stride + i / part.count]);
}

template <unsigned POSITIONS>
__global__ void add_part(struct weight_order o, const uint16_t *from, bool is_bfloat16, float *dw) {
    float *tile = gpu_shared<float>();
    struct weight_part part(o);
    unsigned positions = POSITIONS ? POSITIONS : (unsigned)o.positions;
#pragma unroll 4
    for (unsigned i = threadIdx.x; i < part.count * positions; i += GPU_THREADS)
        tile[i % part.count * o.stride + i / part.count] =
            gpu_from_half(is_bfloat16, from[part.at_inner + i / part.count * o.in + i % part.count]);
    __syncthreads();
#pragma unroll 4
    for (unsigned i = threadIdx.x; i < part.count * positions; i += GPU_THREADS)
        dw[part.at + i] += tile[i / positions * o.stride + i % positions];
}

} // namespace

#define PART_CHANNELS 256 /* of a block, at most */

/* channels 0: both orders are the same, or a channel does not fit into shared memory; then elements are accessed one by
 * one. */
static struct weight_order order_of(const struct convolution *c) {
    size_t positions = c->window.kernel[0] * c->window.kernel[1], stride = positions | 1;
    size_t channels = GPU_SHARED / sizeof(float) / stride;
    if (channels > PART_CHANNELS) channels = PART_CHANNELS;
    if (channels > c->in.channels / c->groups) channels = c->in.channels / c->groups;
    if (positions == 1) channels = 0;
    return {c->out.channels, c->in.channels / c->groups, positions, (unsigned)channels, (unsigned)stride};
}

template <typename... Parameters, typename... Arguments>
static void start_parts(operator_call *c, const struct weight_order &o, void (*kernel)(Parameters...),
                        Arguments... arguments) {
    size_t blocks = o.out * ((o.in + o.channels - 1) / o.channels);
    c->launch(kernel, (unsigned)blocks, GPU_THREADS, o.channels * o.stride * sizeof(float), o, arguments...);
}

/* to = w, rounded, with its channels innermost */
static void round_weights(operator_call *c, const struct convolution *of, const float *w, uint16_t *to) {
    struct weight_order order = order_of(of);
    bool is_bfloat16 = c->gpu->precision == PRECISION_BFLOAT16;
    if (order.channels > 0)
        start_parts(c, order, order.positions == 9 ? round_part<9> : round_part<0>, w, to, is_bfloat16);
    else
        c->each(weights(of), [=] __device__(size_t i) { to[i] = gpu_to_half(is_bfloat16, w[order(i)]); });
}

/* dw += from, which has its channels innermost */
static void add_weights(operator_call *c, const struct convolution *of, const uint16_t *from, float *dw) {
    struct weight_order order = order_of(of);
    bool is_bfloat16 = c->gpu->precision == PRECISION_BFLOAT16;
    if (order.channels > 0)
        start_parts(c, order, order.positions == 9 ? add_part<9> : add_part<0>, from, is_bfloat16, dw);
    else
        c->each(weights(of), [=] __device__(size_t i) { dw[order(i)] += gpu_from_half(is_bfloat16, from[i]); });
}

/* to (count) = from, converted between their formats */
static void convert(operator_call *c, struct gpu_numbers from, struct gpu_result to, size_t count) {
    size_t fours = from.has_fours() && to.has_fours() ? count / 4 : 0;
    c->each(count - 3 * fours, [=] __device__(size_t i) {
        if (i < fours)
            to.put(4 * i, from.four(4 * i));
        else
            to.put(i + 3 * fours, from.one(i + 3 * fours));
    });
}

static struct gpu_numbers half_numbers(const operator_call *c, const uint16_t *at) {
    return {at, gpu_half_format(c->gpu), nullptr};
}

/* An operand (count) as a plan reads it: 16 bits, or float32. */
static const void *operand(operator_call *c, struct gpu_numbers x, size_t count, bool is_half) {
    if (is_half == x.is_half()) return x.at;
    if (is_half) return gpu_half_copy(c, x, count);
    float *to = c->scratch<float>(count);
    convert(c, x, {to, {nullptr, false}, nullptr}, count);
    return to;
}

/* The address to which a plan writes a result (count): the result itself, or a buffer that is converted after. */
static void *target(operator_call *c, const struct gpu_result &to, size_t count, bool is_half) {
    if (is_half) return to.is_half() ? to.half_output.to : c->scratch<uint16_t>(count);
    return to.is_half() ? c->scratch<float>(count) : to.to;
}

static struct gpu_numbers written(const operator_call *c, const void *at, bool is_half) {
    if (is_half) return half_numbers(c, (const uint16_t *)at);
    return {at, GPU_FLOAT32, nullptr};
}

/* The weights in 16 bits, converted once per gpu_round_parameters if they are parameters */
static const uint16_t *half_weights(operator_call *c, struct device_convolution *d, const float *w) {
    const struct gpu_copy *parameters = &c->gpu->parameters.copy;
    size_t count = weights(&d->c);
    bool is_parameter =
        parameters->source && w >= parameters->source && w + count <= parameters->source + parameters->count;
    uint16_t *to = gpu_reserve(c, &d->weights, count * sizeof *to);
    if (is_parameter && d->weights.source == w && d->weights.version == parameters->version) return to;
    round_weights(c, &d->c, w, to);
    d->weights.source = is_parameter ? w : nullptr;
    d->weights.version = parameters->version;
    return to;
}

static void forward(struct device_convolution *d, const struct tensor *x, const float *w, const float *bias,
                    const struct tensor *y, size_t rows) {
    operator_call c(&d->gpu->base, passes[PLAN_FORWARD]);
    const struct image_shape *out = &d->c.out;
    if (rows == 0) return;
    struct row_plans *p = plans_for(d, rows);
    size_t positions = rows * out->height * out->width, count = rows * elements(out);
    size_t inputs = rows * elements(&d->c.in);
    struct gpu_numbers from = c.in(x, inputs);
    const float *weight = c.in(w, weights(&d->c)), *row = c.in(bias, out->channels);
    struct gpu_result to = c.out(y, count);
    if (!has_plan(&c, d, p, PLAN_FORWARD)) return;
    bool is_half = p->is_half[PLAN_FORWARD];
    void *result = target(&c, to, count, is_half);
    const void *image = operand(&c, from, inputs, is_half);
    const void *factor = is_half ? (const void *)half_weights(&c, d, weight) : weight;
    run(&c, d, p, PLAN_FORWARD, {image, factor, row, result, nullptr});
    const float *missing = p->adds_bias ? nullptr : row;
    struct gpu_numbers made = written(&c, result, is_half);
    if (!missing && !d->c.has_relu) {
        if (is_half != to.is_half()) convert(&c, made, to, count);
        return;
    }
    if (is_half) gpu_add_half_output(&c, &to);
    column_each(&c, positions, out->channels, column_has_fours(out->channels, made, to),
                epilogue{missing, made, to, d->c.has_relu});
}

/* dbias, unless NULL, += the sums of dy (positions, channels). */
static void sum_bias(operator_call *c, struct gpu_numbers dy, float *dbias, size_t positions, size_t channels) {
    if (dbias) column_add_to(c, dy, dbias, positions, channels);
}

/* dy in 16 bits, and the sums for dbias; in the same pass if possible. */
static const void *round_gradient(operator_call *c, struct gpu_numbers dy, float *dbias, size_t positions,
                                  size_t channels) {
    if (dbias && channels % 8 == 0 && !dy.is_half()) return gpu_gradient_factor(c, dy, dbias, positions, channels).at;
    sum_bias(c, dy, dbias, positions, channels);
    return operand(c, dy, positions * channels, true);
}

static void backward_weight(operator_call *c, struct device_convolution *d, struct row_plans *p, const void *x,
                            float *dw, const void *dy) {
    size_t count = weights(&d->c);
    if (!p->is_half[PLAN_BACKWARD_WEIGHT]) {
        run(c, d, p, PLAN_BACKWARD_WEIGHT, {x, dw, nullptr, dy, nullptr});
        return;
    }
    uint16_t *result = c->scratch<uint16_t>(count);
    run(c, d, p, PLAN_BACKWARD_WEIGHT, {x, result, nullptr, dy, nullptr});
    add_weights(c, &d->c, result, dw);
}

static void backward_input(operator_call *c, struct device_convolution *d, struct row_plans *p, struct gpu_result dx,
                           const float *w, const void *dy) {
    size_t count = p->rows * elements(&d->c.in);
    bool is_half = p->is_half[PLAN_BACKWARD_INPUT];
    void *result = target(c, dx, count, is_half);
    const void *factor = is_half ? (const void *)half_weights(c, d, w) : w;
    run(c, d, p, PLAN_BACKWARD_INPUT, {result, factor, nullptr, dy, nullptr});
    if (is_half != dx.is_half()) convert(c, written(c, result, is_half), dx, count);
}

static void backward(struct device_convolution *d, const struct tensor *x, const float *w, const struct tensor *dy,
                     const struct tensor *dx, float *dw, float *dbias, size_t rows) {
    operator_call c(&d->gpu->base, passes[PLAN_BACKWARD_WEIGHT]);
    const struct image_shape *in = &d->c.in, *out = &d->c.out;
    if (rows == 0) return;
    struct row_plans *p = plans_for(d, rows);
    size_t positions = rows * out->height * out->width, outputs = rows * elements(out), inputs = rows * elements(in);
    struct gpu_numbers input = c.in(x, inputs), from = c.in(dy, outputs);
    const float *weight = c.in(w, weights(&d->c));
    struct gpu_result to = c.out(dx, inputs);
    float *slopes = c.inout(dw, weights(&d->c)), *db = c.inout(dbias, out->channels);
    if (dw && !has_plan(&c, d, p, PLAN_BACKWARD_WEIGHT)) return;
    bool wants_input = to.is_wanted();
    if (wants_input && !has_plan(&c, d, p, PLAN_BACKWARD_INPUT)) return;
    bool is_half = dw && p->is_half[PLAN_BACKWARD_WEIGHT],
         is_input_half = wants_input && p->is_half[PLAN_BACKWARD_INPUT];
    bool is_any_wide = (dw && !is_half) || (wants_input && !is_input_half);
    const void *rounded = nullptr, *wide = is_any_wide ? operand(&c, from, outputs, false) : nullptr;
    if (is_half || is_input_half)
        rounded = round_gradient(&c, from, db, positions, out->channels);
    else
        sum_bias(&c, from, db, positions, out->channels);
    if (dw) backward_weight(&c, d, p, operand(&c, input, inputs, is_half), slopes, is_half ? rounded : wide);
    if (wants_input) backward_input(&c, d, p, to, weight, is_input_half ? rounded : wide);
}

const struct convolution_ops gpu_convolutions = {
    .create = create, .destroy = destroy, .prepare = prepare, .forward = forward, .backward = backward};
