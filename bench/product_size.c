/* Computes a matrix product of the given size some times, on the CPU's best instruction set, to count instructions:
 * product_size SIZE TIMES */
#include <stdio.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "device/cpu/cpu.h"
#include "device/internal.h"

static float *matrix(size_t size, size_t period) {
    void *block;
    if (buffer_new(size * size * sizeof(float), "a matrix", &block)) exit(74);
    float *values = block;
    for (size_t i = 0; i < size * size; i++) values[i] = (float)(i % period) - (float)period / 2;
    return values;
}

int main(int argc, char **argv) {
    struct device *device;
    if (argc != 3 || cpu_device_create(NULL, &device)) return 64;
    size_t size = strtoul(argv[1], NULL, 10);
    struct cpu_product p = {.m = size,
                            .n = size,
                            .k = size,
                            .a = matrix(size, 7),
                            .ars = size,
                            .acs = 1,
                            .b = matrix(size, 11),
                            .brs = size,
                            .bcs = 1,
                            .c = matrix(size, 13),
                            .ldc = size,
                            .start = PRODUCT_ZERO};
    for (long left = strtol(argv[2], NULL, 10); left > 0; left--) cpu_product(device, &p);
    printf("%s: %g\n", device_describe(device), (double)p.c[size * size - 1]);
    return 0;
}
