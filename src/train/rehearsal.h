/* rehearsal: the passes and the update of a run, asked for once while the device only finds out what its operators need
 * (device_dry_run_begin). Nothing is computed, so it costs milliseconds and leaves no trace in the state. A run has
 * all of its memory so before its first step, and `check` can tell how much that is. */
#ifndef TRAIN_REHEARSAL_H
#define TRAIN_REHEARSAL_H

#include "data/loader.h"
#include "train/config.h"

struct loss_type;
struct trainer;

/* Numbers of rows of the passes of a run: of a whole and of a short last batch; 0: there is none. */
struct rehearsal_rows {
    size_t training[2], evaluation[2];
};

/* Of a run that has all but its run folder. STATUS_MEMORY where there is too little memory. Nothing happens where the
 * device is the host. */
status rehearsal_reserve(struct trainer *trainer, const struct rehearsal_rows *rows);

/* The same for a model that only goes forward, and for the loss of what it says unless [loss] is NULL. [batch]: where
 * its inputs and targets will be. */
status rehearsal_reserve_forward(struct model *model, struct device *device, const struct loss_type *loss,
                                 const void *loss_config, const struct batch *batch);

/* The same for `check`. *bytes: what the run takes of [device] then, on the rank that has most. [model]: planned,
 * without memory; it gets some. [batch]: rows of a whole batch or shard. */
status rehearsal_run(const struct config *config, struct model *model, const struct dataset_info *info, size_t batch,
                     const struct rehearsal_rows *rows, int world_size, struct device *device, size_t *bytes);

#endif
