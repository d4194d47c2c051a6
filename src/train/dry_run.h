/* dry_run: the passes and the update of a run, called once while the device only determines what its operators need
 * (device_dry_run_begin). Nothing is computed, so it takes milliseconds and the state stays as it is. So all memory of
 * a run is allocated before its first step, and `check` can print how much that is. */
#ifndef TRAIN_DRY_RUN_H
#define TRAIN_DRY_RUN_H

#include "data/loader.h"
#include "train/passes.h"

struct loss_type;
struct trainer;

/* Of a trainer that has its parts (parts_create). STATUS_MEMORY where there is too little memory. Nothing happens where
 * the device is the host. */
status dry_run_training(struct trainer *trainer, const struct pass_rows *rows);

/* The same for a model that only goes forward, and for the loss of its outputs unless [loss] is NULL. [batch]: where
 * its inputs and targets will be. */
status dry_run_forward(struct model *model, struct device *device, const struct loss_type *loss,
                       const void *loss_config, const struct batch *batch);

#endif
