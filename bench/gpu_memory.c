/* How much of the device's memory bandwidth a copy and an AdamW update reach, over as many floats as GPT-2 124M has
 * parameters. The update is that of `decay: matrices` and, on a GPU, of `precision: bfloat16`. Prints one line of JSON,
 * GB/s, for bench/gpu.py:  gpu_memory [cuda|cpu] [elements] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "device/device.h"

#define TIMES 20
#define MATRIX ((size_t)1 << 20)
#define VECTOR ((size_t)1 << 10)

struct bench {
    struct device *device;
    size_t count;
    float *values, *gradients, *first, *second, *clip;
    union optimizer_constants *constants;
    struct optimizer_run *runs; /* of the host */
    size_t run_count;
};

static void copy(const struct bench *b) {
    device_ops(b->device)->copy(b->device, F32(b->gradients), F32(b->first), b->count);
}

static void adamw(const struct bench *b) {
    struct optimizer_update update = {.rule = RULE_ADAM,
                                      .constants = b->constants,
                                      .clip = b->clip,
                                      .values = b->values,
                                      .gradients = b->gradients,
                                      .states = {b->first, b->second},
                                      .runs = b->runs,
                                      .run_count = b->run_count};
    device_ops(b->device)->optimizers->update(b->device, &update);
}

/* GB/s of [run], which moves [bytes] */
static status measure(const struct bench *b, void (*run)(const struct bench *), double bytes, double *out) {
    for (int i = 0; i < 3; i++) run(b);
    TRY(device_wait(b->device));
    double start = clock_seconds();
    for (int i = 0; i < TIMES; i++) run(b);
    TRY(device_wait(b->device));
    *out = TIMES * bytes * 1e-9 / (clock_seconds() - start);
    return OK;
}

static status allocate(const struct bench *b, size_t count, float **out) {
    return device_alloc(b->device, count * sizeof **out, "the benchmark", (void **)out);
}

/* Matrices and vectors in turns. */
static status make_runs(struct bench *b) {
    b->runs = calloc(2 * (b->count / MATRIX + 1), sizeof *b->runs);
    if (!b->runs) return status_new(STATUS_BUG, "out of memory");
    for (size_t begin = 0, i = 0, end; begin < b->count; begin = end, i++) {
        size_t left = b->count - begin, size = i % 2 ? VECTOR : MATRIX;
        end = begin + (size < left ? size : left);
        b->runs[b->run_count++] = (struct optimizer_run){begin, end, begin, i % 2};
    }
    return OK;
}

static status run(const char *name, size_t count) {
    struct bench b = {.count = count};
    bool is_gpu = strcmp(name, "cuda") == 0;
    double copied, updated, n = (double)count;
    struct adam_constants adam = {.beta1 = 0.9f,
                                  .one_minus_beta1 = 0.1f,
                                  .beta2 = 0.95f,
                                  .one_minus_beta2 = 0.05f,
                                  .eps = 1e-8f,
                                  .minus_step_size = -1e-6f,
                                  .sqrt_correction2 = 1,
                                  .decay_factor = 1 - 1e-7f,
                                  .uses_lerp = true};
    union optimizer_constants constants[] = {{.adam = adam}, {.adam = adam}};
    constants[1].adam.decay_factor = 1;
    float one = 1;
    TRY(device_create(name, &b.device));
    TRY(allocate(&b, count, &b.values));
    TRY(allocate(&b, count, &b.gradients));
    TRY(allocate(&b, count, &b.first));
    TRY(allocate(&b, count, &b.second));
    TRY(allocate(&b, 1, &b.clip));
    TRY(device_alloc(b.device, sizeof constants, "the benchmark", (void **)&b.constants));
    TRY(make_runs(&b));
    device_upload(b.device, b.constants, constants, sizeof constants);
    device_upload(b.device, b.clip, &one, sizeof one);
    TRY(measure(&b, copy, 8 * n, &copied));
    if (is_gpu) TRY(device_set_precision(b.device, PRECISION_BFLOAT16));
    if (is_gpu) device_ops(b.device)->round_parameters(b.device, b.values, count);
    TRY(measure(&b, adamw, (is_gpu ? 34 : 32) * n, &updated)); /* all four are read and written, and 16 bits */
    printf("{\"copy\": %g, \"adamw\": %g}\n", copied, updated);
    device_destroy(b.device);
    free(b.runs);
    return OK;
}

int main(int argc, char **argv) {
    status s = run(argc > 1 ? argv[1] : "cuda", argc > 2 ? strtoull(argv[2], NULL, 10) : 124475904);
    if (s) fprintf(stderr, "%s\n", status_message(s));
    return s ? 1 : 0;
}
