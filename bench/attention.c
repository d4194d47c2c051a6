/* Processor time of one head of attention on the CPU, forward and backward, medians, in JSON; for bench/growth.py:
 * attention TOKENS HEAD_SIZE CAUSAL TIMES */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/buffer.h"
#include "base/numbers/rng.h"
#include "device/device.h"

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static struct tensor random_tensor(size_t count, struct rng *rng) {
    void *memory;
    if (buffer_new(count * sizeof(float), "a tensor", &memory)) exit(74);
    float *values = memory;
    for (size_t i = 0; i < count; i++) values[i] = (float)(rng_u32(rng) >> 8) * 0x1p-23f - 1;
    return (struct tensor){.data = memory};
}

int main(int count, char **words) {
    struct device *device;
    struct rng rng;
    if (count != 5 || device_create("cpu", &device)) return 64;
    size_t tokens = strtoul(words[1], NULL, 10), size = strtoul(words[2], NULL, 10),
           times = strtoul(words[4], NULL, 10);
    struct attention_shape shape = {
        .rows = 1, .tokens = tokens, .heads = 1, .head_size = size, .is_causal = words[3][0] == '1'};
    rng_seed(&rng, 1);
    struct tensor qkv = random_tensor(3 * tokens * size, &rng), y = random_tensor(tokens * size, &rng),
                  dy = random_tensor(tokens * size, &rng), dqkv = random_tensor(3 * tokens * size, &rng),
                  softmaxes = random_tensor(2 * tokens, &rng);
    double *forward = calloc(2 * times, sizeof *forward), *backward = forward + times;
    const struct sequence_ops *ops = device_ops(device)->sequence;
    for (size_t i = 0; i < times; i++) {
        double start = seconds();
        ops->attention_forward(device, &shape, &qkv, &y, softmaxes.data);
        double middle = seconds();
        ops->attention_backward(device, &shape, &qkv, &y, softmaxes.data, &dy, &dqkv);
        forward[i] = middle - start, backward[i] = seconds() - middle;
    }
    qsort(forward, times, sizeof *forward, compare);
    qsort(backward, times, sizeof *backward, compare);
    printf("{\"forward\": %.6g, \"backward\": %.6g}\n", forward[times / 2], backward[times / 2]);
    return 0;
}
