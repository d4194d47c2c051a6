/* Matrix products on the CPU's best instruction set, or on that of DDPTRAIN_CPU, on one thread:
 * product_size SIZE TIMES: a product of this size, to count instructions
 * product_size ROWS IN OUT TIMES: of a linear layer, the medians of GFLOP/s and of their share of the multiply-adds
 * from registers, which are measured beside each; and of the tiles with operands in the first two caches */
#include <stdio.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "device/cpu/cpu.h"
#include "device/internal.h"

static float *matrix(size_t count, size_t period) {
    void *block;
    if (buffer_new(count * sizeof(float), "a matrix", &block)) exit(74);
    float *values = block;
    for (size_t i = 0; i < count; i++) values[i] = (float)(i % period) - (float)period / 2;
    return values;
}

struct layer {
    struct device *device;
    size_t rows, in, out;
    float *x, *y, *w, *dw, *bias;
};

#define MAX_PART ((size_t)1 << 21) /* floats of a gradient that is computed in parts, as layers/linear.c does */
#define NEAR_K 192 /* steps of a product whose panel stays in a first-level cache of 48 KiB, its rows in the second */
#define NEAR_ROWS 64
#define NEAR_TIMES 500

static void forward(const struct layer *l) {
    device_ops(l->device)->linear_forward(l->device, F32(l->x), l->w, l->bias, true, F32(l->y), l->rows, l->in, l->out);
}

static void backward_input(const struct layer *l) {
    device_ops(l->device)->linear_backward_input(l->device, F32(l->y), l->w, F32(l->x), l->rows, l->in, l->out);
}

static void ignore(void *user, size_t first, size_t count) { (void)user, (void)first, (void)count; }

static void backward_weight(const struct layer *l) {
    device_ops(l->device)->linear_backward_weight_in_parts(l->device, l->y, l->x, l->dw, NULL, l->rows, l->in, l->out,
                                                           MAX_PART / l->in, &(struct part_receiver){ignore, NULL});
}

static void near_product(const struct layer *l) {
    const struct cpu_kernels *kernels = cpu_kernels_of(l->device);
    size_t n = kernels->is_avx512 ? 48 : 24;
    struct cpu_product p = {.m = NEAR_ROWS,
                            .n = n,
                            .k = NEAR_K,
                            .a = l->x,
                            .ars = NEAR_K,
                            .acs = 1,
                            .b = l->w,
                            .brs = n,
                            .bcs = 1,
                            .c = l->dw,
                            .ldc = n};
    for (int i = 0; i < NEAR_TIMES; i++) kernels->product(&p);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#define MAX_TIMES 1000

static void measure(const char *name, void (*run)(const struct layer *), const struct layer *l, double operations,
                    size_t times) {
    double rates[MAX_TIMES], shares[MAX_TIMES];
    run(l);
    for (size_t i = 0; i < times; i++) {
        double limit = cpu_register_rate(l->device), start = clock_seconds();
        run(l);
        rates[i] = operations / (clock_seconds() - start);
        shares[i] = rates[i] / limit;
    }
    qsort(rates, times, sizeof *rates, compare);
    qsort(shares, times, sizeof *shares, compare);
    printf("%-24s %6.1f GFLOP/s, %5.1f %%\n", name, 1e-9 * rates[times / 2], 100 * shares[times / 2]);
}

static int measure_layer(struct device *device, char **sizes) {
    struct layer l = {.device = device,
                      .rows = strtoul(sizes[0], NULL, 10),
                      .in = strtoul(sizes[1], NULL, 10),
                      .out = strtoul(sizes[2], NULL, 10)};
    size_t times = strtoul(sizes[3], NULL, 10);
    if (l.rows < NEAR_ROWS || l.in < NEAR_K || l.out < 48 || times < 1 || times > MAX_TIMES) return 64;
    l.x = matrix(l.rows * l.in, 7), l.y = matrix(l.rows * l.out, 11), l.bias = matrix(l.out, 5);
    l.w = matrix(l.in * l.out, 13), l.dw = matrix(l.in * l.out, 3);
    double operations = 2.0 * (double)l.rows * (double)l.in * (double)l.out;
    double near = 2.0 * NEAR_ROWS * (cpu_kernels_of(device)->is_avx512 ? 48 : 24) * NEAR_K * NEAR_TIMES;
    printf("%s\n", device_describe(device));
    measure("first two caches", near_product, &l, near, times);
    measure("forward", forward, &l, operations, times);
    measure("gradient of the inputs", backward_input, &l, operations, times);
    measure("gradient of the weight", backward_weight, &l, operations, times);
    return 0;
}

int main(int argc, char **argv) {
    struct device *device;
    if ((argc != 3 && argc != 5) || device_create("cpu", &device)) return 64;
    if (argc == 5) return measure_layer(device, argv + 1);
    size_t size = strtoul(argv[1], NULL, 10);
    struct cpu_product p = {.m = size,
                            .n = size,
                            .k = size,
                            .a = matrix(size * size, 7),
                            .ars = size,
                            .acs = 1,
                            .b = matrix(size * size, 11),
                            .brs = size,
                            .bcs = 1,
                            .c = matrix(size * size, 13),
                            .ldc = size,
                            .start = PRODUCT_ZERO};
    for (long left = strtol(argv[2], NULL, 10); left > 0; left--) cpu_product(device, &p);
    printf("%s: %g\n", device_describe(device), (double)p.c[size * size - 1]);
    return 0;
}
