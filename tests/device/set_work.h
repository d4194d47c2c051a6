/* The same calls on every instruction set of the CPU, whose results must agree with the baseline's. Operands and
 * results are blocks that end at an inaccessible page. For tests only. */
#pragma once

#include "operator_case.h"

static inline void sets_agree(const struct operator_case *work) {
    struct results baseline, set;
    run_on(open_set("baseline"), work, &baseline);
    for (size_t i = 1; i < SETS; i++) {
        struct device *device = open_set(sets[i]);
        char between[64];
        if (!device) continue;
        snprintf(between, sizeof between, "baseline and %s:", sets[i]);
        run_on(device, work, &set);
        results_agree(work, &baseline, &set, work->tolerance, between);
        free_results(&set);
    }
    free_results(&baseline);
}
