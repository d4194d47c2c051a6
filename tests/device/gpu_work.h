/* What tests of the GPU's operators share: the same calls on the CPU and, twice, on the GPU, whose results must agree
 * within a tolerance and be the same bits. For tests only. */
#ifndef TESTS_DEVICE_GPU_WORK_H
#define TESTS_DEVICE_GPU_WORK_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check_main.h"
#include "device_work.h"

#define MAX_COUNT (1 << 20)

/* Results of a case, in order. */
struct results {
    float *values; /* (MOST) */
    size_t count;
    uint8_t *bytes; /* (MOST): must be the same on both */
    size_t byte_count;
};

static inline float *next(struct results *r, size_t count) {
    float *values = r->values + r->count;
    r->count += count;
    ck_assert_uint_le(r->count, MAX_COUNT);
    return values;
}

/* A result that starts with given values, since the operator adds to it. */
static inline float *next_from(struct results *r, size_t count, uint64_t seed) {
    float *values = next(r, count), *start = random_values(count, seed);
    memcpy(values, start, count * sizeof *values);
    free(start);
    return values;
}

static inline uint8_t *next_bytes(struct results *r, size_t count) {
    uint8_t *bytes = r->bytes + r->byte_count;
    r->byte_count += count;
    ck_assert_uint_le(r->byte_count, MAX_COUNT);
    return bytes;
}

struct gpu_case {
    const char *name;
    void (*run)(struct device *, struct results *);
    double tolerance; /* of |a - b| in units of 1 + |a| */
};

static inline void run_on(const char *name, const struct gpu_case *work, struct results *r) {
    struct device *device;
    status s = device_create(name, &device);
    ck_assert_msg(!s, "%s", status_message(s));
    *r = (struct results){.values = calloc(MAX_COUNT, sizeof(float)), .bytes = calloc(MAX_COUNT, 1)};
    work->run(device, r);
    s = device_status(device);
    ck_assert_msg(!s, "%s", status_message(s));
    device_destroy(device);
}

static inline void agrees_with_the_cpu(const struct gpu_case *work) {
    struct results cpu, gpu, again;
    run_on("cpu", work, &cpu);
    run_on("cuda", work, &gpu);
    run_on("cuda", work, &again);
    ck_assert_uint_eq(cpu.count, gpu.count);
    ck_assert_uint_gt(cpu.count, 0);
    ck_assert_msg(memcmp(gpu.values, again.values, gpu.count * sizeof(float)) == 0, "%s: two runs differ", work->name);
    for (size_t k = 0; k < cpu.count; k++) {
        double a = (double)cpu.values[k], b = (double)gpu.values[k];
        if (a != b && !(isnan(a) && isnan(b)) && !(fabs(a - b) <= work->tolerance * (1 + fabs(a))))
            ck_abort_msg("%s: value %zu: CPU %.9g, GPU %.9g", work->name, k, a, b);
    }
    for (size_t k = 0; k < cpu.byte_count; k++)
        if (cpu.bytes[k] != gpu.bytes[k])
            ck_abort_msg("%s: byte %zu: CPU %d, GPU %d", work->name, k, cpu.bytes[k], gpu.bytes[k]);
    free(cpu.values), free(gpu.values), free(again.values);
    free(cpu.bytes), free(gpu.bytes), free(again.bytes);
}

/* Runs nothing where there is no GPU: 77. */
static inline int gpu_run(const char *suite, const struct check_loop *loops, size_t count) {
    status s = device_check("cuda");
    if (s) {
        printf("skipped: %s\n", status_message(s));
        status_free(s);
        return 77;
    }
    setenv("CK_FORK", "no", 1); /* a child of a process that has asked for GPUs cannot use them */
    return check_run(suite, loops, count);
}

#endif
