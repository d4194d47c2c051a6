/* Helpers for tests of GPU operators: the same calls on the CPU and, twice, on the GPU. The results must agree within a
 * tolerance, and the two of the GPU must have the same bits. */
#pragma once

#include "operator_case.h"

static inline struct device *open_device(const char *name) {
    struct device *device;
    status s = device_create(name, &device);
    ck_assert_msg(!s, "%s", status_message(s));
    return device;
}

static inline void agrees_with_the_cpu(const struct operator_case *work) {
    struct results cpu, gpu, again;
    run_on(open_device("cpu"), work, &cpu);
    run_on(open_device("cuda"), work, &gpu);
    run_on(open_device("cuda"), work, &again);
    for (size_t i = 0; i < gpu.count; i++)
        ck_assert_msg(is_same_result(&gpu, &again, i), "%s: result %zu: two runs differ", work->name, i);
    results_agree(work, &cpu, &gpu, work->tolerance, "CPU and GPU:");
    free_results(&cpu), free_results(&gpu), free_results(&again);
}

/* Skips (77) without a GPU. */
static inline int gpu_run(const char *suite) {
    status s = device_check("cuda");
    if (s) {
        printf("skipped: %s\n", status_message(s));
        status_free(s);
        return 77;
    }
    setenv("CK_FORK", "no", 1); /* a child of a process that has initialised CUDA cannot use it */
    return check_suite(suite);
}
