/* The same calls on every instruction set of the CPU, whose results must agree with the baseline's. Operands and
 * results are blocks that end at an inaccessible page. For tests only. */
#ifndef TESTS_DEVICE_SET_WORK_H
#define TESTS_DEVICE_SET_WORK_H

#include "operator_case.h"

static inline void sets_agree(const struct operator_case *work) {
    struct results baseline, set;
    struct device *device;
    ck_assert(!cpu_device_create("baseline", &device));
    run_on(device, work, &baseline);
    for (int i = 0; i < 2; i++) {
        status missing = cpu_device_create(i ? "avx512" : "avx2", &device);
        status_free(missing);
        if (missing) continue;
        run_on(device, work, &set);
        results_agree(work, &baseline, &set, work->tolerance, i ? "baseline and avx512:" : "baseline and avx2:");
        free_results(&set);
    }
    free_results(&baseline);
}

#endif
