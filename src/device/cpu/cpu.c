/* The CPU device: selects the kernels for this machine and assembles the table of operators. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef DDPTRAIN_X86_KERNELS
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "base/buffer.h"
#include "base/clock.h"
#include "base/instructions.h"
#include "base/text.h"
#include "device/cpu/cpu.h"
#include "device/cpu/group.h"
#include "device/cpu/parallel.h"
#include "device/internal.h"

struct cpu_device {
    struct device base;
    const struct cpu_kernels *kernels;
    const char *bf16;                             /* as for bf16_kernels_find */
    void (*product)(const struct cpu_product *p); /* in the selected precision */
    const struct bf16_kernels *bf16_kernels;      /* NULL: in float32 */
    bool is_portable;
    struct device_ops ops;        /* with the operators of this instruction set */
    struct sequence_ops sequence; /* of the set, with attention in the selected precision */
    void *workspace;              /* (workspace_bytes) */
    size_t workspace_bytes;
};

static const struct cpu_kernels *kernels_of(struct device *device) { return ((struct cpu_device *)device)->kernels; }

const struct cpu_kernels *cpu_kernels_of(struct device *device) { return kernels_of(device); }

void cpu_product(struct device *device, const struct cpu_product *p) { ((struct cpu_device *)device)->product(p); }

bool cpu_shares_product(struct device *device, const struct cpu_product *p) {
    const struct bf16_kernels *kernels = ((struct cpu_device *)device)->bf16_kernels;
    return kernels && kernels->shared_product && (!kernels->shares || kernels->shares(p));
}

void cpu_shared_product(struct device *device, const struct cpu_product *p) {
    ((struct cpu_device *)device)->bf16_kernels->shared_product(device, p);
}

bool cpu_packs_products(struct device *device) {
    return ((struct cpu_device *)device)->product == kernels_of(device)->product;
}

bool cpu_rounds_convolutions(struct device *device) {
    const struct bf16_kernels *kernels = ((struct cpu_device *)device)->bf16_kernels;
    return kernels && kernels->rounds_convolutions;
}

const struct convolution_kernels *cpu_amx_convolution(struct device *device, const struct convolution *c) {
    const struct bf16_kernels *kernels = ((struct cpu_device *)device)->bf16_kernels;
    return kernels && kernels->convolution_of ? kernels->convolution_of(c) : NULL;
}

const struct group_ops *cpu_group_ops(struct device *device, size_t count) {
    if (!cpu_packs_products(device)) return NULL;
#ifdef DDPTRAIN_X86_KERNELS
    if (kernels_of(device)->is_avx512 && count <= cpu_kernels_avx2.group->lanes) return cpu_kernels_avx2.group;
#endif
    return kernels_of(device)->group;
}

bool cpu_is_portable(struct device *device) { return ((struct cpu_device *)device)->is_portable; }

status workspace_reserve(struct device *device, size_t bytes, const char *what) {
    struct cpu_device *cpu = (struct cpu_device *)device;
    void *workspace;
    if (bytes <= cpu->workspace_bytes) return OK;
    TRY(buffer_new(bytes, what, &workspace));
    buffer_free(cpu->workspace);
    cpu->workspace = workspace;
    cpu->workspace_bytes = bytes;
    return OK;
}

void *workspace_of(struct device *device) { return ((struct cpu_device *)device)->workspace; }

static void free_workspace(struct device *device) { buffer_free(((struct cpu_device *)device)->workspace); }

static void set_attention(struct cpu_device *device, const struct attention_kernels *attention) {
    device->sequence.attention_forward = attention->forward;
    device->sequence.attention_backward = attention->backward;
    device->sequence.cross_attention_forward = attention->cross_forward;
    device->sequence.takes_masks = true;
    device->sequence.cross_attention_backward = attention->cross_backward;
}

static void set_operators(struct cpu_device *device) {
    const struct cpu_kernels *kernels = device->kernels;
    struct device_ops *ops = &device->ops;
    *ops = *kernels->elementwise;
    ops->linear_forward = linear_forward;
    ops->linear_backward_input = linear_backward_input;
    ops->linear_backward_weight = linear_backward_weight;
    ops->linear_backward_weight_in_parts = linear_backward_weight_in_parts;
    ops->losses = &cpu_losses;
    ops->optimizers = kernels->optimizers;
    ops->image = kernels->image;
    ops->convolution = &cpu_convolution_ops;
    ops->norm_layers = kernels->norm_layers;
    ops->recurrent = kernels->recurrent;
    ops->shapes = &cpu_shape_ops;
    ops->formulas = kernels->formulas;
    device->sequence = *kernels->sequence;
    set_attention(device, kernels->attention);
    ops->sequence = &device->sequence;
}

/* ---- what the processor has ---- */

#ifdef DDPTRAIN_X86_KERNELS
static bool has_avx512(void) { return processor_has(INSTRUCTIONS_AVX512); }
static bool has_avx2(void) { return processor_has(INSTRUCTIONS_AVX2); }
static bool has_avx512_bf16(void) { return processor_has(INSTRUCTIONS_AVX512_BF16); }

/* Of arch_prctl (Linux 5.16), whose header older systems lack. */
#define REQUEST_PERMISSION 0x1023
#define TILE_DATA 18

static bool has_amx(void) {
    static _Atomic int answer; /* 0: not asked yet, 1: no, 2: yes */
    if (!processor_has(INSTRUCTIONS_AMX)) return false;
    if (!answer) answer = syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0 ? 2 : 1;
    return answer == 2;
}

/* [name]: "amx" or "avx512_bf16"; NULL: the best for this processor. NULL if it, or the system, does not support them.
 * AMX: asks the system, which saves its registers only for processes that do. */
static const struct bf16_kernels *bf16_kernels_find(const char *name) {
    if ((!name || strcmp(name, "amx") == 0) && has_amx()) return &bf16_kernels_amx;
    if ((!name || strcmp(name, "avx512_bf16") == 0) && has_avx512_bf16()) return &bf16_kernels_avx512;
    return NULL;
}

/* Kernels whose factors are sums of bfloat16. [name]: as above; NULL if that is not AMX, because with AVX-512 BF16 they
 * take longer than those of float32.
 *
 * 2 [parts]: of train.float32_matmul_precision: high, only for products of matrices. Three products of parts are added,
 * a difference of up to 3 x 2^-16 of the product of the factors' magnitudes. A factor that is infinite, or of 3.39e38
 * or more, gives NaN.
 *
 * 3: each factor is exactly their sum. Six products are added; the others are less than 2^-23 of the product of the
 * factors' magnitudes together. Results that are not finite are computed again in float32, unless they are added to c
 * or are of a convolution. Parts, and products of parts, below 2^-126 are 0, so factors below 2^-103 and products below
 * 2^-102 have fewer bits. */
static const struct bf16_kernels *bf16_kernels_find_parts(const char *name, size_t parts) {
    if (bf16_kernels_find(name) != &bf16_kernels_amx) return NULL;
    return parts == 2 ? &bf16_kernels_amx_two : &bf16_kernels_amx_three;
}
#else
static const struct bf16_kernels *bf16_kernels_find(const char *name) { return NULL; }

static const struct bf16_kernels *bf16_kernels_find_parts(const char *name, size_t parts) {
    return bf16_kernels_find(name);
}
#endif

/* ---- precision and instruction set ---- */

/* Only together with the AVX-512 kernels: a device with a smaller set represents a processor without them. */
static const struct bf16_kernels *find_bf16(const struct cpu_device *device, enum precision precision) {
    if (!device->kernels->is_avx512) return NULL;
    if (precision == PRECISION_BFLOAT16) return bf16_kernels_find(device->bf16);
    return bf16_kernels_find_parts(device->bf16, precision == PRECISION_TF32 ? 2 : 3);
}

static status set_precision(struct device *base, enum precision precision) {
    struct cpu_device *device = (struct cpu_device *)base;
    device->product = device->kernels->product;
    device->bf16_kernels = NULL;
    set_attention(device, device->kernels->attention);
    device->is_portable = precision == PRECISION_FLOAT32_PORTABLE;
    if (precision == PRECISION_FLOAT32 || device->is_portable) return OK;
    if (precision == PRECISION_FLOAT16)
        return status_usage("train.precision: float16 needs a GPU (train.device: cuda): use bfloat16 or float32");
    const struct bf16_kernels *bf16 = find_bf16(device, precision);
    if (!bf16 && precision != PRECISION_BFLOAT16) return OK;
    if (!bf16)
        return status_usage("train.precision: bfloat16 needs a processor with the instructions AVX-512 "
                            "BF16, which this one does not have: use float32");
    if (bf16->product) device->product = bf16->product;
    device->bf16_kernels = bf16;
    if (bf16->attention) set_attention(device, bf16->attention);
    device->base.description = bf16->description;
    return OK;
}

struct kernel_set {
    const char *name, *description;
    const struct cpu_kernels *kernels;
    bool is_supported;
    const char *bf16; /* as for bf16_kernels_find */
};

#ifdef __aarch64__
#define BASELINE "cpu (neon)" /* which every 64-bit ARM processor has */
#else
#define BASELINE "cpu"
#endif

bool cpu_splits_factors(void) {
#ifdef DDPTRAIN_X86_KERNELS
    return has_avx512() && bf16_kernels_find_parts(NULL, 2);
#else
    return false;
#endif
}

status cpu_device_create(const char *set, struct device **out) {
    const struct kernel_set sets[] = {
    /* best first */
#ifdef DDPTRAIN_X86_KERNELS
        {"avx512", "cpu (avx512)", &cpu_kernels_avx512, has_avx512(), NULL},
        {"amx", "cpu (avx512)", &cpu_kernels_avx512, has_avx512(), "amx"}, /* by name only, as the next one */
        {"avx512_bf16", "cpu (avx512)", &cpu_kernels_avx512, has_avx512(), "avx512_bf16"},
        {"avx2", "cpu (avx2)", &cpu_kernels_avx2, has_avx2(), NULL},
#endif
        {"baseline", BASELINE, &cpu_kernels_baseline, true, NULL},
    };
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        if (!sets[i].is_supported || (set && strcmp(set, sets[i].name) != 0)) continue;
        struct cpu_device *device = calloc(1, sizeof *device);
        if (!device) return status_memory("a device");
        device->kernels = sets[i].kernels;
        device->bf16 = sets[i].bf16;
        set_operators(device);
        device->base = (struct device){.ops = &device->ops,
                                       .description = sets[i].description,
                                       .close = free_workspace,
                                       .set_precision = set_precision};
        device->product = device->kernels->product;
        *out = &device->base;
        return OK;
    }
    struct text known = {0};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (sets[i].is_supported && !sets[i].bf16) text_printf(&known, "%s%s", known.length ? ", " : "", sets[i].name);
    status s = status_usage("this CPU does not have the instruction set '%.40s'; it has: %s", set, text_string(&known));
    text_free(&known);
    return s;
}

/* ---- the speed of the vector units ---- */

#define RATE_ROUNDS ((size_t)300000)
#define RATE_SECONDS 0.02

struct register_run {
    const struct cpu_kernels *kernels;
    double operations; /* of a thread */
    volatile float result;
};

static void multiply_registers(void *context, size_t first, size_t last) {
    struct register_run *run = context;
    double operations;
    for (size_t i = first; i < last; i++) {
        run->result = run->kernels->multiply_adds(RATE_ROUNDS, (float)i, &operations);
        if (i == 0) run->operations = operations;
    }
}

double cpu_register_rate(struct device *cpu) {
    struct register_run run = {.kernels = kernels_of(cpu)};
    size_t threads = parallel_threads();
    double best = 0;
    for (double start = clock_seconds(), end = 0; best == 0 || end - start < RATE_SECONDS;) {
        double begin = clock_seconds();
        parallel_for(threads, 1, multiply_registers, &run);
        end = clock_seconds();
        double rate = run.operations * (double)threads / (end - begin);
        if (rate > best) best = rate;
    }
    return best;
}
