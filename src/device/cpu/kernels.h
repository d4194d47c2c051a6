/* The CPU's loops, compiled once per instruction set (cmake/CpuKernels.cmake). Shapes as in device.h. */
#ifndef DEVICE_CPU_KERNELS_H
#define DEVICE_CPU_KERNELS_H

#include "device/device.h"
#include "device/long_sums.h"

/* Initial content of c, to which a product is added. */
enum product_start {
    PRODUCT_ADD,  /* c as it is */
    PRODUCT_ZERO, /* 0 */
    PRODUCT_ROW   /* [row] in every row */
};

/* c (m, n; row stride ldc) = start + a b, with a(i, k) = a[i * ars + k * acs] and b(k, j) = b[k * brs + j * bcs] */
struct cpu_product {
    size_t m, n, k;
    const float *a, *b;
    size_t ars, acs, brs, bcs;
    const float *packed; /* b as cpu_kernels.pack has packed it, for several products; NULL: the product packs it */
    float *c;
    size_t ldc;
    enum product_start start;
    const float *row; /* (n), of PRODUCT_ROW */
    bool has_relu;    /* c = max(0, c) */
};

/* A rule of rules.h over (count) elements with the same constants; clip is not NaN. */
typedef void update_kernel(const union optimizer_constants *constants, float clip, float *values, float *gradients,
                           float *const states[OPTIMIZER_STATES], size_t count);

struct optimizer_kernels {
    update_kernel *update[RULE_COUNT];
    void (*average)(float weight, const float *values, float *average, size_t count);
    void (*clamp)(float limit, float *x, size_t count);
};

/* Steps of recurrent layers for [rows] rows; formulas and arrays as in device/recurrent.h. [before]: the state before
 * the constants. */
struct recurrent_kernels {
    void (*lstm_forward)(size_t rows, size_t hidden, float *gates, const float *before, float *c, float *h);
    void (*lstm_backward)(size_t rows, size_t hidden, float *gates, const float *before, const float *c,
                          const float *dh, float *dc);
    void (*gru_forward)(size_t rows, size_t hidden, float *gates, const float *states, const float *before, float *h);
    /* dbefore += z dh */
    void (*gru_backward)(size_t rows, size_t hidden, float *gates, float *states, const float *before, const float *dh,
                         float *dbefore);
};

/* The members of these names of struct sequence_ops, which cpu.c sets: their products have the precision of the device.
 */
struct attention_kernels {
    void (*forward)(struct device *device, const struct attention_shape *shape, const float *qkv, float *y,
                    float *softmaxes);
    void (*backward)(struct device *device, const struct attention_shape *shape, const float *qkv, const float *y,
                     const float *softmaxes, const float *dy, float *dqkv);
    void (*cross_forward)(struct device *device, const struct attention_shape *shape, const float *q, const float *kv,
                          float *y, float *softmaxes);
    void (*cross_backward)(struct device *device, const struct attention_shape *shape, const float *q, const float *kv,
                           const float *y, const float *softmaxes, const float *dy, float *dq, float *dkv);
};

#define CPU_PACK_COLUMNS 16 /* a packed b has less than this many columns more than b */

#define SHORT_ROW 10  /* numbers */
#define SHORT_ROWS 64 /* that are computed together */

struct cpu_kernels {
    bool is_avx512;
    void (*product)(const struct cpu_product *p);
    /* packed (k, n and less than CPU_PACK_COLUMNS more) = b, for the member of that name */
    void (*pack)(const struct cpu_product *p, float *packed);
    /* sum (size) += each row of x (rows, size; [stride] between rows) */
    void (*add_rows)(float *sum, const float *x, size_t rows, size_t size, size_t stride);
    /* e (count) = exp(x - max), *max = the largest of x; returns their sum */
    float (*exponentials)(const float *x, float *e, float *max, size_t count);
    /* y (rows, count) = softmax of at most SHORT_ROWS rows of 2 to SHORT_ROW numbers: exponentials / sum; max and sum
     * (rows) as exponentials computes them */
    void (*short_softmax)(const float *x, float *y, float *max, float *sum, size_t rows, size_t count);
    void (*add)(const float *a, const float *b, float *y, size_t count);
    void (*activation_forward)(enum activation f, const float *x, float *y, size_t count);
    void (*activation_backward)(enum activation f, const float *x, const float *y, const float *dy, float *dx,
                                size_t count);
    void (*dropout)(const struct draw_key *key, float p, const float *x, float *y, size_t rows, size_t size);
    void (*dropout_channels)(const struct draw_key *key, float p, const float *x, float *y, size_t rows, size_t size,
                             size_t channels);
    const struct optimizer_kernels *optimizers;
    const struct image_ops *image;
    const struct convolution_ops *convolution;
    /* For 3 x 3 kernels, stride 1, one group, channels in multiples of 16; the caller computes the bias' gradient. */
    const struct convolution_ops *winograd;
    /* For one input and one output channel in each group, kernels of up to 16 x 16; the caller computes the bias'
     * gradient. */
    const struct convolution_ops *depthwise;
    /* For stride and dilation 1, one group, padding less than the kernel; the caller computes the bias' gradient. */
    const struct convolution_ops *unit_stride;
    /* dbias (channels) += sums of dy (rows, positions, channels) */
    void (*bias_gradient)(const float *dy, float *dbias, size_t rows, size_t positions, size_t channels);
    float (*norm)(const float *x, size_t count);
    bool (*is_finite)(const float *x, size_t count);
    void (*leaky_relu_forward)(float slope, const float *x, float *y, size_t count);
    void (*leaky_relu_backward)(float slope, const float *x, const float *dy, float *dx, size_t count);
    const struct norm_ops *norm_layers;
    const struct sequence_ops *sequence; /* without attention */
    const struct attention_kernels *attention;
    const struct recurrent_kernels *recurrent;
};

/* Of a CPU device. */
const struct cpu_kernels *cpu_kernels_of(struct device *device);

/* In the precision of the device, on the caller's thread. */
void cpu_product(struct device *device, const struct cpu_product *p);
/* Whether a large product, or part of its rows, is for cpu_shared_product: on all threads, with the device's workspace.
 */
bool cpu_shares_product(struct device *device, const struct cpu_product *p);
void cpu_shared_product(struct device *device, const struct cpu_product *p);
/* Whether cpu_product uses a packed b: those that round their factors do not. */
bool cpu_packs_products(struct device *device);
/* Whether large convolutions round their factors to bfloat16, as products do; and the operators with AMX for such a
 * convolution, or for one in float32, whose caller computes the gradient of the bias. NULL: there are none. */
bool cpu_rounds_convolutions(struct device *device);
const struct convolution_ops *cpu_amx_convolution(struct device *device, const struct convolution *c);

/* PRECISION_FLOAT32_PORTABLE: neither oneDNN nor a choice that depends on the instruction set. */
bool cpu_is_portable(struct device *device);

extern const struct cpu_kernels cpu_kernels_baseline, cpu_kernels_avx2, cpu_kernels_avx512;

#endif
