/* rule: what the update rules of this folder share. The header of a rule <name> has the constants of an update,
 * struct <name>_step, and the update of one number:
 *
 *     RULE void <name>_rule(const struct <name>_step *s, unsigned flags, struct rule_number *n);
 *
 * The loops of the CPU and the kernel of the GPU call it for each number (device/rules.h), so it needs no loop. [flags]
 * are the same for all numbers of a loop; the CPU has one loop for each value, in which they are constants. The lower
 * bits say which buffers of state are used. The others are the rule's own (at most two), which a function of the step
 * computes; a branch that would keep a loop from being vectorised belongs there. Formulas write each fused multiply-add
 * of PyTorch's kernels as fmaf. */
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
/* Whether flag [k] of the rule's own is set. */
#define RULE_HAS(flags, k) RULE_USES(flags, OPTIMIZER_STATES + (k))

/* The flags of a rule that has none of its own. */
RULE unsigned rule_no_flags(const void *step) {
    (void)step;
    return 0;
}

/* Used beside every rule: lerp(mean, value, weight) */
RULE float average_rule(float weight, float value, float mean) { return fmaf(weight, value - mean, mean); }

/* NaN stays NaN. */
RULE float clamp_rule(float limit, float x) {
    float low = x < -limit ? -limit : x;
    return low > limit ? limit : low;
}

#endif
