/* How much of the device's memory bandwidth a copy and an AdamW update reach, over as many floats as GPT-2 124M has
 * parameters. Prints one line of JSON, GB/s, for bench/gpu.py:  gpu_memory [cuda|cpu] [elements] */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "device/device.h"

#define TIMES 20

struct bench {
    struct device *device;
    size_t count;
    float *values, *gradients, *first, *second, *clip;
    struct adam_step *step;
};

static void copy(const struct bench *b) { device_ops(b->device)->copy(b->device, b->gradients, b->first, b->count); }

static void adamw(const struct bench *b) {
    device_ops(b->device)->optimizers->adam(b->device, b->step, b->clip, b->values, b->gradients, b->first, b->second,
                                            NULL, b->count);
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

static status floats(const struct bench *b, size_t count, float **out) {
    return device_alloc(b->device, count * sizeof **out, "the benchmark", (void **)out);
}

static status run(const char *name, size_t count) {
    struct bench b = {.count = count};
    double copied, updated, n = (double)count;
    struct adam_step step = {.beta1 = 0.9f,
                             .one_minus_beta1 = 0.1f,
                             .beta2 = 0.95f,
                             .one_minus_beta2 = 0.05f,
                             .eps = 1e-8f,
                             .minus_step_size = -1e-6f,
                             .sqrt_correction2 = 1,
                             .decay_factor = 1 - 1e-7f,
                             .uses_lerp = true};
    float one = 1;
    TRY(device_create(name, &b.device));
    TRY(floats(&b, count, &b.values));
    TRY(floats(&b, count, &b.gradients));
    TRY(floats(&b, count, &b.first));
    TRY(floats(&b, count, &b.second));
    TRY(floats(&b, 1, &b.clip));
    TRY(device_alloc(b.device, sizeof step, "the benchmark", (void **)&b.step));
    device_upload(b.device, b.step, &step, sizeof step);
    device_upload(b.device, b.clip, &one, sizeof one);
    TRY(measure(&b, copy, 8 * n, &copied));
    TRY(measure(&b, adamw, 28 * n, &updated)); /* reads values, gradients and both moments, writes all but gradients */
    printf("{\"copy\": %g, \"adamw\": %g}\n", copied, updated);
    device_destroy(b.device);
    return OK;
}

int main(int argc, char **argv) {
    status s = run(argc > 1 ? argv[1] : "cuda", argc > 2 ? strtoull(argv[2], NULL, 10) : 124475904);
    if (s) fprintf(stderr, "%s\n", status_message(s));
    return s ? 1 : 0;
}
