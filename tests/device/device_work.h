/* Helpers for tests of operators: values, and the same work on different numbers of threads. */
#pragma once

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/files/digest.h"
#include "base/numbers/rng.h"
#include "device/internal.h"
#include "guarded.h"

static const char *const sets[] = {"baseline", "avx2", "avx512"};
#define SETS (sizeof sets / sizeof *sets)

/* The device of an instruction set; NULL, with a line, if this machine does not have it. */
static inline struct device *open_set(const char *set) {
    struct device *device = NULL;
    status s = cpu_device_create(set, &device);
    if (s) printf("skipped on this machine: %s\n", status_message(s));
    status_free(s);
    return device;
}

static inline void destroy_device(struct device **device) { device_destroy(*device); }
#define SCOPED_DEVICE __attribute__((cleanup(destroy_device))) struct device *

/* (count), of a normal distribution, for guarded_free. */
static inline float *random_values(size_t count, uint64_t seed) {
    struct rng rng;
    float *values = guarded_malloc(count * sizeof *values);
    rng_seed(&rng, seed);
    rng_normal(&rng, values, count, 0, 1);
    return values;
}

/* To the nearest bfloat16, ties to even. */
static inline void round_bf16(float *x, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = bits_of_float(x[i]);
        x[i] = bits_to_float((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u);
    }
}

/* Computes results and adds them to the digest. */
typedef void device_work(struct device *device, const void *context, struct digest *digest);

/* In a separate process, because the number of threads of a process does not change. */
static inline void digest_with(const char *threads, device_work *work, const void *context, char hex[DIGEST_HEX_SIZE]) {
    int ends[2], code;
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        setenv("OMP_NUM_THREADS", threads, 1);
        setenv("OMP_WAIT_POLICY", "passive", 1);
        struct device *device;
        struct digest digest;
        uint8_t hash[DIGEST_SIZE];
        if (cpu_device_create(NULL, &device)) _exit(1);
        digest_start(&digest);
        work(device, context, &digest);
        digest_finish(&digest, hash);
        digest_hex(hash, hex);
        device_destroy(device);
        _exit(write(ends[1], hex, DIGEST_HEX_SIZE) != DIGEST_HEX_SIZE);
    }
    close(ends[1]);
    ck_assert_int_eq(read(ends[0], hex, DIGEST_HEX_SIZE), DIGEST_HEX_SIZE);
    close(ends[0]);
    ck_assert_int_eq(waitpid(child, &code, 0), child);
    ck_assert_int_eq(code, 0);
}

/* One thread and three give the same bits. */
static inline void threads_agree(device_work *work, const void *context) {
    char one[DIGEST_HEX_SIZE], three[DIGEST_HEX_SIZE];
    digest_with("1", work, context, one);
    digest_with("3", work, context, three);
    ck_assert_str_eq(one, three);
}

/* Operands in device memory. */
static const float work_clip __attribute__((unused)) = 0.7f, work_whole __attribute__((unused)) = 1,
                             work_held __attribute__((unused)) = NAN;
static const uint64_t work_pass __attribute__((unused)) = 17;

static bool work_has_run[RULE_COUNT]; /* by work_update */

/* One update of (count) elements with the same constants; [g] is not changed; its copy, which the rule gets, must
 * become zero. */
static inline void work_update(struct device *d, enum update_rule rule, const union optimizer_constants *constants,
                               const float *clip, float *values, const float *g, float *const states[OPTIMIZER_STATES],
                               size_t count) {
    float *gradients = guarded_copy(g, count * sizeof *gradients);
    struct optimizer_run run = {.end = count};
    struct optimizer_update update = {.rule = rule,
                                      .constants = constants,
                                      .clip = clip,
                                      .values = values,
                                      .gradients = gradients,
                                      .runs = &run,
                                      .run_count = 1};
    memcpy(update.states, states, sizeof update.states);
    device_ops(d)->optimizers->update(d, &update);
    work_has_run[rule] = true;
    for (size_t i = 0; i < count; i++) ck_assert(gradients[i] == 0);
    guarded_free(gradients);
}

/* All options of SGD's rule. */
static const struct sgd_constants work_sgd __attribute__((unused)) = {.minus_lr = -0.1f,
                                                                      .momentum = 0.9f,
                                                                      .one_minus_dampening = 1,
                                                                      .weight_decay = 5e-4f,
                                                                      .has_weight_decay = true,
                                                                      .is_nesterov = true};

/* Rules that test_kernels.c runs with every instruction set, and operator_cases.h on GPUs: a row for a new one. */
struct work_rule {
    enum update_rule rule;
    union optimizer_constants constants;
};
#define WORK_RADAM(is_rectified_)                                                                                      \
    {                                                                                                                  \
        RULE_RADAM, {                                                                                                  \
            .radam = {                                                                                                 \
                .lr = 0.1f,                                                                                            \
                .one_minus_beta1 = 0.1f,                                                                               \
                .beta2 = 0.99f,                                                                                        \
                .one_minus_beta2 = 0.01f,                                                                              \
                .eps = 1e-8f,                                                                                          \
                .correction1 = 0.2f,                                                                                   \
                .sqrt_correction2 = 0.3f,                                                                              \
                .rectification = 0.4f,                                                                                 \
                .weight_decay = 0.1f,                                                                                  \
                .decay_factor = 1,                                                                                     \
                .has_weight_decay = true,                                                                              \
                .is_rectified = is_rectified_                                                                          \
            }                                                                                                          \
        }                                                                                                              \
    }
static const struct work_rule work_rules[] __attribute__((unused)) = {
    {RULE_NADAM,
     {.nadam = {.one_minus_beta1 = 0.1f,
                .beta2 = 0.99f,
                .one_minus_beta2 = 0.01f,
                .eps = 1e-8f,
                .correction2 = 0.1f,
                .minus_gradient_step_size = -0.02f,
                .minus_average_step_size = -0.03f,
                .decay_factor = 0.99f}}},
    WORK_RADAM(false),
    WORK_RADAM(true),
    {RULE_ADAMAX,
     {.adamax =
          {.one_minus_beta1 = 0.1f, .beta2 = 0.99f, .eps = 1e-8f, .minus_step_size = -0.01f, .weight_decay = 0.1f}}},
    {RULE_ADADELTA, {.adadelta = {.minus_lr = -0.5f, .rho = 0.9f, .one_minus_rho = 0.1f, .eps = 1e-6f}}},
    {RULE_RPROP,
     {.rprop =
          {.lr = 0.01f, .eta_minus = 0.5f, .eta_plus = 1.2f, .step_min = 1e-6f, .step_max = 50, .is_first = true}}},
    {RULE_RPROP, {.rprop = {.eta_minus = 0.5f, .eta_plus = 1.2f, .step_min = 0.01f, .step_max = 0.5f}}},
    {RULE_ASGD,
     {.asgd = {.minus_eta = -0.1f, .decay_factor = 0.99f, .mu = 0.3f, .weight_decay = 0.1f, .has_weight_decay = true}}},
};
#define WORK_RULES (sizeof work_rules / sizeof *work_rules)

/* Sets [states] to as many of [buffers] as the rule has. */
static inline void work_states(enum update_rule rule, float *const buffers[OPTIMIZER_STATES],
                               float *states[OPTIMIZER_STATES]) {
#define X(id, name, count, always, own_flags) [id] = count,
    static const int counts[RULE_COUNT] = {UPDATE_RULES(X)};
#undef X
    for (int i = 0; i < OPTIMIZER_STATES; i++) states[i] = i < counts[rule] ? buffers[i] : NULL;
}
