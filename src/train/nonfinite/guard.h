/* guard: what a run does when numbers are not finite. The trainer finds it out with the word that all ranks share in
 * every step; the guard knows the policy, counts, and remembers which batches to leave out. The same on all ranks. */
#ifndef TRAIN_GUARD_H
#define TRAIN_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/schema.h"
#include "model/params.h"

enum nonfinite_policy { NONFINITE_STOP, NONFINITE_SKIP, NONFINITE_ROLLBACK };

/* `train.on_nonfinite:` */
struct guard_config {
    int policy;  /* enum nonfinite_policy */
    int64_t max; /* steps that may be left out in a row; roll-backs since the last checkpoint */
};
extern const struct schema guard_schema;

/* Where a group of micro-batches begins. */
struct guard_place {
    int64_t epoch, batch;
};

struct guard {
    const struct guard_config *config;
    struct device *device;
    float *buffers; /* (buffers->total) as they were before the step, on the device; NULL unless steps are skipped */
    struct guard_place *left; /* (config->max) groups that a roll-back leaves out, in no order */
    size_t left_count;
};

/* [buffers]: the model's running statistics. */
status guard_create(const struct guard_config *config, const struct params *buffers, struct device *device,
                    struct guard **out);
void guard_destroy(struct guard *guard); /* takes NULL */

/* Before a step: what it changes besides the parameters can be taken back. */
void guard_keep_buffers(struct guard *guard, const struct params *buffers);
void guard_restore_buffers(const struct guard *guard, struct params *buffers);

/* Whether the group that begins at [place] is left out. */
bool guard_leaves_out(const struct guard *guard, struct guard_place place);
/* Leaves it out from now on; false when there are config->max already. */
bool guard_leave_out(struct guard *guard, struct guard_place place);
/* A checkpoint of a run that stands at [place] is on disk: what lies before is forgotten. */
void guard_forget(struct guard *guard, struct guard_place place);

#endif
