/* guard: the policy for non-finite numbers (train.on_nonfinite): the running statistics before a step, and the batches
 * that are skipped after a roll-back. The control all-reduce of a step detects non-finite numbers. The same on all
 * ranks. */
#ifndef TRAIN_GUARD_H
#define TRAIN_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/schema/schema.h"
#include "model/params.h"

enum nonfinite_policy { NONFINITE_STOP, NONFINITE_SKIP, NONFINITE_ROLLBACK };

/* `train.on_nonfinite:` */
struct guard_config {
    int policy;  /* enum nonfinite_policy */
    int64_t max; /* skipped steps in a row; roll-backs since the last checkpoint */
};
extern const struct schema guard_schema;

/* The position in the data where the micro-batches of a step begin. */
struct data_position {
    int64_t epoch, batch;
};

struct guard {
    const struct guard_config *config;
    struct device *device;
    float *buffers;                /* (buffers->total) before the step, on the device; NULL unless the policy is skip */
    struct data_position *skipped; /* (config->max) groups that are skipped after a roll-back, in no order */
    size_t skipped_count;
};

/* [buffers]: the model's running statistics. */
status guard_create(const struct guard_config *config, const struct params *buffers, struct device *device,
                    struct guard **out);
void guard_destroy(struct guard *guard); /* takes NULL */

/* Before a step: saves the running statistics; guard_restore_buffers restores them when the step is skipped. */
void guard_keep_buffers(struct guard *guard, const struct params *buffers);
void guard_restore_buffers(const struct guard *guard, struct params *buffers);

/* Whether the micro-batches of the step that begins at [position] are skipped. */
bool guard_is_skipped(const struct guard *guard, struct data_position position);
/* Skips it from now on; false when config->max groups are already skipped. */
bool guard_skip(struct guard *guard, struct data_position position);
/* Discards the groups before [position], the position of a checkpoint that is on disk. */
void guard_discard_before(struct guard *guard, struct data_position position);

#endif
