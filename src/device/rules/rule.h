/* rule: declarations for the update rules of this folder. The header of a rule <name> has the constants of an update,
 * struct <name>_constants, and the update of one number:
 *
 *     RULE void <name>_rule(const struct <name>_constants *s, unsigned flags, struct rule_number *n);
 *
 * The loops of the CPU and the kernel of the GPU call it for each number (device/rules.h), so it needs no loop. [flags]
 * are the same for all numbers of a loop; the CPU has one loop for each value, in which they are constants. The lower
 * bits are set for the state buffers in use. The others (at most two) are specific to the rule and computed by a
 * function of the constants, for branches that would prevent vectorisation of the loop. Formulas write each fused
 * multiply-add of PyTorch's kernels as fmaf. */
#ifndef DEVICE_RULES_RULE_H
#define DEVICE_RULES_RULE_H

#include <math.h>
#include <stdbool.h>

#include "base/host_device.h"

#define OPTIMIZER_STATES 3 /* maximum buffers of state of a rule */

/* One number of each buffer, read before and written after the rule. */
struct rule_number {
    float value;
    float gradient;                /* clipped */
    float state[OPTIMIZER_STATES]; /* in the order of the optimizer's buffers */
};

#define RULE HOST_DEVICE static inline __attribute__((always_inline))

/* Whether buffer [k] of the state is used. */
#define RULE_USES(flags, k) (((flags) >> (k)&1) != 0)
/* Whether the specific flag [k] of the rule is set. */
#define RULE_HAS(flags, k) RULE_USES(flags, OPTIMIZER_STATES + (k))

/* For a rule without specific flags. */
RULE unsigned rule_no_flags(const void *constants) {
    (void)constants;
    return 0;
}

/* Moving average: lerp(mean, value, weight) */
RULE float average_rule(float weight, float value, float mean) { return fmaf(weight, value - mean, mean); }

/* NaN is not changed. */
RULE float clamp_rule(float limit, float x) {
    float low = x < -limit ? -limit : x;
    return low > limit ? limit : low;
}

#endif
