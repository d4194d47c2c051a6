/* Chooses the implementation of a convolution once, when it is created. */
#include "device/cpu/cpu.h"

#include <stdlib.h>

#include "base/system/module.h"
#include "device/cpu/onednn/host.h"

struct device_convolution {
    const struct convolution_kernels *ops;
    struct device_convolution *inner; /* of ops */
    /* Of the bias, if ops does not compute its gradient (all but the project's general one; oneDNN's own is slow on
     * channels-last memory). NULL: it does. */
    void (*bias_gradient)(const float *dy, float *dbias, size_t rows, size_t positions, size_t channels);
    size_t positions, channels;
};

/* Convolutions with at least this many multiply-adds in a forward pass use oneDNN: creating its primitives takes
 * milliseconds, and smaller convolutions are as fast here. */
#define LARGE_CONVOLUTION (1u << 22)

static size_t multiply_adds(const struct convolution *c, size_t rows) {
    return rows * c->out.height * c->out.width * c->out.channels * (c->in.channels / c->groups) * c->window.kernel[0] *
           c->window.kernel[1];
}

/* Winograd's algorithm needs a quarter of the multiplications, but more time to move data, which does not pay off
 * with few channels or with small images that tiles exceed. */
static bool is_for_winograd(const struct convolution *c) {
    const struct window *w = &c->window;
    size_t covered = (c->out.height + 3) / 4 * ((c->out.width + 3) / 4) * 16;
    return w->kernel[0] == 3 && w->kernel[1] == 3 && w->stride[0] == 1 && w->stride[1] == 1 && w->dilation[0] == 1 &&
           w->dilation[1] == 1 && c->groups == 1 && c->in.channels % 16 == 0 && c->out.channels % 16 == 0 &&
           c->in.channels >= 32 && c->out.channels >= 32 && 2 * c->out.height * c->out.width > covered;
}

#define MAX_DEPTH 1024 /* numbers of a sum for which a panel of weights stays in the second-level cache */

/* Where oneDNN's kernels for AVX2 reach a third to two thirds of the speed, or oneDNN is not used. */
static bool is_for_unit_stride(struct device *device, const struct convolution *c) {
    bool is_slow = cpu_kernels_of(device)->is_avx512 && !cpu_is_portable(device);
    const struct window *w = &c->window;
    size_t taps = w->kernel[0] * w->kernel[1];
    for (int d = 0; d < 2; d++)
        if (w->stride[d] != 1 || w->dilation[d] != 1 || w->padding[d] >= w->kernel[d]) return false;
    return !is_slow && c->groups == 1 && c->in.channels >= 8 && taps * c->in.channels <= MAX_DEPTH &&
           taps * c->out.channels <= MAX_DEPTH;
}

static bool is_depthwise(const struct convolution *c) {
    return c->groups == c->in.channels && c->groups == c->out.channels && c->groups > 1 && c->window.kernel[0] <= 16 &&
           c->window.kernel[1] <= 16;
}

#define MIN_ROUNDED_CHANNELS 64 /* from which oneDNN is faster with rounded factors */

static bool is_rounded(struct device *device, const struct convolution *c) {
    if (!cpu_rounds_convolutions(device)) return false;
    if (cpu_amx_convolution(device, c)) return true;
    /* The gradient of the weights of a dilated one is wrong in oneDNN 2.6 with AMX, if channels are no whole tiles. */
    bool is_dilated = c->window.dilation[0] > 1 || c->window.dilation[1] > 1;
    return c->in.channels >= MIN_ROUNDED_CHANNELS && c->out.channels >= MIN_ROUNDED_CHANNELS && !is_dilated;
}

/* NULL if the module is not installed or the library does not support it. */
static const struct convolution_kernels *onednn_ops(void) {
    static const struct onednn_host host = {status_new,        status_memory, status_free,
                                            workspace_reserve, workspace_of,  is_rounded};
    void *address;
    status s = module_open("onednn", ONEDNN_OPEN, &address);
    if (!s) return ((onednn_open *)address)(&host);
    status_free(s);
    return NULL;
}

/* Of the project, in float32. NULL: oneDNN's are faster. */
static const struct convolution_kernels *own_ops(struct device *device, const struct convolution *c) {
    const struct cpu_kernels *kernels = cpu_kernels_of(device);
    if (is_for_winograd(c)) return kernels->winograd;
    return is_for_unit_stride(device, c) ? kernels->unit_stride : NULL;
}

/* NULL: the general one. */
static const struct convolution_kernels *large_ops(struct device *device, const struct convolution *c,
                                                   bool *is_library) {
    const struct convolution_kernels *own = own_ops(device, c);
    if (cpu_is_portable(device)) return own;
    const struct convolution_kernels *amx = cpu_amx_convolution(device, c);
    if (amx && (!own || cpu_rounds_convolutions(device))) return amx;
    const struct convolution_kernels *library = is_rounded(device, c) || !own ? onednn_ops() : NULL;
    *is_library = library != NULL;
    return library ? library : own;
}

static status create(struct device *device, const struct convolution *c, size_t rows, struct device_convolution **out) {
    struct device_convolution *d = calloc(1, sizeof *d);
    if (!d) return status_memory("a convolution");
    const struct cpu_kernels *kernels = cpu_kernels_of(device);
    bool is_large = multiply_adds(c, rows) >= LARGE_CONVOLUTION, is_library = false;
    status s = OK;
    if (is_depthwise(c))
        d->ops = kernels->depthwise;
    else if (is_large)
        d->ops = large_ops(device, c, &is_library);
    if (d->ops) {
        d->bias_gradient = kernels->bias_gradient;
        d->positions = c->out.height * c->out.width;
        d->channels = c->out.channels;
        s = d->ops->create(device, c, rows, &d->inner);
    }
    if (s && is_library) {
        status_free(s);
        d->ops = own_ops(device, c);
        s = d->ops ? d->ops->create(device, c, rows, &d->inner) : OK;
    }
    if (!d->ops) {
        d->ops = kernels->convolution;
        d->bias_gradient = NULL;
        s = d->ops->create(device, c, rows, &d->inner);
    }
    if (s) free(d);
    if (!s) *out = d;
    return s;
}

static void destroy(struct device_convolution *d) {
    if (!d) return;
    d->ops->destroy(d->inner);
    free(d);
}

static status prepare(struct device_convolution *d, size_t rows, bool is_training) {
    return d->ops->prepare ? d->ops->prepare(d->inner, rows, is_training) : OK;
}

static void forward(struct device_convolution *d, const struct tensor *x, const float *w, const float *bias,
                    const struct tensor *y, size_t rows) {
    d->ops->forward(d->inner, floats(x), w, bias, floats(y), rows);
}

static void backward(struct device_convolution *d, const struct tensor *x, const float *w, const struct tensor *dy,
                     const struct tensor *dx, float *dw, float *dbias, size_t rows) {
    if (dbias && d->bias_gradient) {
        d->bias_gradient(floats(dy), dbias, rows, d->positions, d->channels);
        dbias = NULL;
    }
    d->ops->backward(d->inner, floats(x), w, floats(dy), floats(dx), dw, dbias, rows);
}

const struct convolution_ops cpu_convolution_ops = {
    .create = create, .destroy = destroy, .prepare = prepare, .forward = forward, .backward = backward};
