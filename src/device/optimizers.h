/* optimizers: update rules (rules.h) over flat buffers, with the roundings of torch.optim's single-tensor CPU code. A
 * call updates all parameters of all groups; on a GPU it is one kernel with one pass over memory:
 * - gradients are multiplied by *clip before use;
 * - each element is updated with the constants of its run;
 * - gradients are zero afterwards (zero_grad), also those of runs that are not updated;
 * - the rounded copy of the parameters (device_ops' round_parameters), if there is one, is updated, too.
 * If *clip is NaN, the update is skipped (skip_if_nonfinite of device_ops): values and states stay unchanged, and
 * gradients become zero, so that the next step starts as usual. Constants and *clip are in device memory, because they
 * change from one update to the next while a recorded update is replayed (device_record_begin). The caller computes
 * constants in double and casts them once, as PyTorch casts a Python number that is combined with a tensor. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "device/rules.h"

struct device;

#define OPTIMIZER_SKIP SIZE_MAX /* index of constants: no update */

/* Elements [begin, end) of the flat buffers that share their constants. If there are several runs, begin, end and at
 * are multiples of 4. */
struct optimizer_run {
    size_t begin, end;
    size_t at;        /* offset of its state in the buffers of state */
    size_t constants; /* index of its constants, or OPTIMIZER_SKIP */
};

/* An update; its operands are in device memory, except the runs. */
struct optimizer_update {
    enum update_rule rule;
    const union optimizer_constants *constants;
    const float *clip;
    float *values, *gradients;       /* (end of the last run) */
    float *states[OPTIMIZER_STATES]; /* in the rule's order; NULL: not used */
    /* (run_count) in host memory: ascending from 0 without gaps. If there are several runs, they never change. */
    const struct optimizer_run *runs;
    size_t run_count;
};

struct optimizer_ops {
    void (*update)(struct device *, const struct optimizer_update *);
    /* average = lerp(average, values, weight) */
    void (*average)(struct device *, float weight, const float *clip, const float *values, float *average,
                    size_t count);
    /* saved = values; after a skipped update values = saved */
    void (*save_or_restore)(struct device *, const float *clip, float *values, float *saved, size_t count);
    /* x = min(max(x, -limit), limit); NaN is not changed */
    void (*clamp)(struct device *, float limit, float *x, size_t count);
};
