/* cpu: what the files of the CPU device share: its loops, compiled once per instruction set (cmake/CpuKernels.cmake),
 * products in the precision of the device, its workspace, and the operators of each file. Shapes as in device.h. */
#pragma once

#include "device/device.h"
#include "device/math.h"

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
    bool is_run;      /* of PRODUCT_ADD: a b is summed first, as a run of a long sum */
    const float *row; /* (n), of PRODUCT_ROW */
    bool has_relu;    /* c = max(0, c) */
};

/* The members of these names of struct sequence_ops, which cpu.c sets: their products have the precision of the device.
 */
struct attention_kernels {
    void (*forward)(struct device *device, const struct attention_shape *shape, const struct tensor *qkv,
                    const struct tensor *y, float *softmaxes);
    void (*backward)(struct device *device, const struct attention_shape *shape, const struct tensor *qkv,
                     const struct tensor *y, const float *softmaxes, const struct tensor *dy,
                     const struct tensor *dqkv);
    void (*cross_forward)(struct device *device, const struct attention_shape *shape, const float *q, const float *kv,
                          const struct tensor *y, float *softmaxes);
    void (*cross_backward)(struct device *device, const struct attention_shape *shape, const float *q, const float *kv,
                           const float *y, const float *softmaxes, const float *dy, float *dq, float *dkv);
};

/* One way to compute convolutions; the members are those of struct convolution_ops, whose operands here are float32. */
struct convolution_kernels {
    status (*create)(struct device *, const struct convolution *, size_t rows, struct device_convolution **out);
    void (*destroy)(struct device_convolution *);
    status (*prepare)(struct device_convolution *, size_t rows, bool is_training);
    void (*forward)(struct device_convolution *, const float *x, const float *w, const float *bias, float *y,
                    size_t rows);
    void (*backward)(struct device_convolution *, const float *x, const float *w, const float *dy, float *dx, float *dw,
                     float *dbias, size_t rows);
};

#define CPU_PACK_COLUMNS 16 /* a packed b has less than this many columns more than b */

#define SHORT_ROW 10  /* numbers */
#define SHORT_ROWS 64 /* that are computed together */

/* Partial sums of a loss, so that they do not depend on the number of threads. */
#define CPU_LOSS_PARTS 32

/* The loops of a set that files outside of sets/ call, X(result, name, arguments): in each set a function IN_SET(name)
 * (sets/set.h). */
#define CPU_LOOPS(X)                                                                                                   \
    X(void, product, (const struct cpu_product *p))                                                                    \
    /* packed (k, n and less than CPU_PACK_COLUMNS more) = b, for the member of that name */                           \
    X(void, pack, (const struct cpu_product *p, float *packed))                                                        \
    /* multiply-adds of registers alone, *operations of them; returns a sum of their results */                        \
    X(float, multiply_adds, (size_t rounds, float x, double *operations))                                              \
    /* sum (size) += each row of x (rows, size; [stride] between rows) */                                              \
    X(void, add_rows, (float *sum, const float *x, size_t rows, size_t size, size_t stride))                           \
    /* e (count) = exp(x - max), *max = the largest of x; returns their sum */                                         \
    X(float, exponentials, (const float *x, float *e, float *max, size_t count))                                       \
    /* y (rows, count) = softmax of at most SHORT_ROWS rows of 2 to SHORT_ROW numbers: exponentials / sum; max (rows)  \
     * as exponentials computes them, log_sum (rows) = log(sum) */                                                     \
    X(void, short_softmax, (const float *x, float *y, float *max, float *log_sum, size_t rows, size_t count))          \
    /* dbias (channels) += sums of dy (rows, positions, channels) */                                                   \
    X(void, bias_gradient, (const float *dy, float *dbias, size_t rows, size_t positions, size_t channels))

/* Its tables of operators, X(struct, name): in each set a constant IN_SET(name), at the end of the file that has the
 * operators. */
#define CPU_TABLES(X)                                                                                                  \
    X(device_ops, elementwise) /* some members of the table; the others are NULL */                                    \
    X(optimizer_ops, optimizers)                                                                                       \
    X(image_ops, image)                                                                                                \
    X(norm_ops, norm_layers)                                                                                           \
    X(sequence_ops, sequence) /* without attention */                                                                  \
    X(attention_kernels, attention)                                                                                    \
    X(recurrent_ops, recurrent)                                                                                        \
    X(formula_ops, formulas)                                                                                           \
    X(group_ops, group)                                                                                                \
    X(convolution_kernels, convolution) /* any */                                                                      \
    /* The caller of the others computes the gradient of the bias. For 3 x 3 kernels, stride 1, one group, channels in \
     * multiples of 16: */                                                                                             \
    X(convolution_kernels, winograd)                                                                                   \
    /* For one input and one output channel in each group, kernels of up to 16 x 16: */                                \
    X(convolution_kernels, depthwise)                                                                                  \
    /* For stride and dilation 1, one group, padding less than the kernel: */                                          \
    X(convolution_kernels, unit_stride)

struct cpu_kernels {
    bool is_avx512;
#define X(result, name, arguments) result(*name) arguments;
    CPU_LOOPS(X)
#undef X
#define X(type, name) const struct type *name;
    CPU_TABLES(X)
#undef X
};

extern const struct cpu_kernels cpu_kernels_baseline, cpu_kernels_avx2, cpu_kernels_avx512;

/* ---- kernels in bfloat16 ---- */

/* The kernels of train.precision: bfloat16, for processors with AVX-512 BF16 or AMX. Compiled once for each of them, as
 * sets for each instruction set. Operands are float32 in memory and rounded to bfloat16 while a product packs them
 * (to nearest, ties to even; subnormal numbers to 0), so it needs no pass over memory before it and no second copy of
 * the weights. Products and sums are float32, each c(i, j) in an order that depends on k alone; it is another one with
 * AMX. */
struct bf16_kernels {
    const char *description; /* of a device that uses them */
    /* One of ars and acs must be 1, and one of brs and bcs; [packed] is not used. NULL: float32. */
    void (*product)(const struct cpu_product *p);
    /* A large product on all threads, with the workspace of the device, or, with the same bits, on one thread if that
     * cannot be allocated. NULL: there is none. */
    void (*shared_product)(struct device *device, const struct cpu_product *p);
    /* Whether it is for this product; then also for a part of its rows. NULL: for each, with the bits of [product]. */
    bool (*shares)(const struct cpu_product *p);
    /* Attention of sets/attention.c with these products: the softmax and stored values stay float32. NULL: all of it
     * does. */
    const struct attention_kernels *attention;
    /* Large convolutions are rounded, too. Where [convolution_of] returns NULL, oneDNN rounds those with many channels,
     * if it is installed and they are not dilated. */
    bool rounds_convolutions;
    /* NULL: those of the device; the caller computes the gradient of the bias. */
    const struct convolution_kernels *(*convolution_of)(const struct convolution *c);
};

extern const struct bf16_kernels bf16_kernels_amx, bf16_kernels_avx512, bf16_kernels_amx_two, bf16_kernels_amx_three;

/* ---- the device ---- */

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
const struct convolution_kernels *cpu_amx_convolution(struct device *device, const struct convolution *c);

/* PRECISION_FLOAT32_PORTABLE: neither oneDNN nor a choice that depends on the instruction set. */
bool cpu_is_portable(struct device *device);
/* Floating-point operations a second of all threads when they multiply and add registers alone: no product of float32
 * on the vector units is faster. Takes 20 ms or more. */
double cpu_register_rate(struct device *device);

/* The workspace is scratch memory for operators. There is one, as large as the largest reservation, because operators
 * run one after the other. Grows it to at least this size; its content is lost. After a failure it is as before. Before
 * the loop, or by an operator before it uses the workspace. [what] as in device_alloc. */
status workspace_reserve(struct device *device, size_t bytes, const char *what);

/* The workspace, 64-byte aligned; at least as large as reserved. Get it in each operator: it may move when another
 * operator reserves more. */
void *workspace_of(struct device *device);

/* ---- operators for the device's table ---- */

/* Products are split into ranges of rows or columns for the threads of the process; a result does not depend on the
 * split. */
void linear_forward(struct device *device, const struct tensor *x, const float *w, const float *bias, bool has_relu,
                    const struct tensor *y, size_t rows, size_t in, size_t out);
void linear_backward_input(struct device *device, const struct tensor *dy, const float *w, const struct tensor *dx,
                           size_t rows, size_t in, size_t out);
void linear_backward_weight(struct device *device, const struct tensor *dy, const struct tensor *x, float *dw,
                            float *dbias, size_t rows, size_t in, size_t out);
void linear_backward_weight_in_parts(struct device *device, const float *dy, const float *x, float *dw, float *dbias,
                                     size_t rows, size_t in, size_t out, size_t max_rows,
                                     const struct part_receiver *receiver);

/* Large convolutions are oneDNN's if its module is installed, else those of sets/, of the device's kernels. */
extern const struct convolution_ops cpu_convolution_ops;
extern const struct shape_ops cpu_shape_ops;

extern const struct loss_ops cpu_losses;

void cpu_ctc(struct device *device, const struct ctc_options *o, const float *x, const int64_t *targets, size_t rows,
             float factor, float *dx, struct loss_sums *sums);
status cpu_ctc_prepare(struct device *device, size_t rows, size_t steps, size_t classes, size_t target_size);

void cpu_contrastive(struct device *device, const struct contrastive_options *o, const float *outputs, size_t rows,
                     float factor, float *doutputs, struct loss_sums *sums);
status cpu_contrastive_prepare(struct device *device, size_t rows, size_t world_size, size_t size);
