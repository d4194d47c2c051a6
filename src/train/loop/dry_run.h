/* dry_run: calls the operators of a run's passes and update once, while the device only determines the memory that they
 * need (device_dry_run_begin). Nothing is computed, so it takes milliseconds and the state does not change. After it
 * all memory of a run is allocated, before the first step, and `check` can print the size. */
#pragma once

#include "data/dataset/loader.h"
#include "train/plan/plan.h"

struct loss_type;
struct trainer;

/* For a trainer with its parts (trainer_create). STATUS_MEMORY when there is too little memory. Does nothing when the
 * device is the host. */
status dry_run_training(struct trainer *trainer, const struct pass_rows *rows);

/* The same for forward only, and for the loss of the outputs unless [loss] is NULL. [batch]: the addresses of its
 * inputs and targets. */
status dry_run_forward(struct model *model, struct device *device, const struct loss_type *loss,
                       const void *loss_config, const struct batch *batch);
