/* device_update: the update as part of a recorded pass. The device checks whether the step is finite and applies or
 * skips the update; the host reads the result later. All ranks have the same complete gradients, so all decide the
 * same. */
#ifndef TRAIN_DEVICE_UPDATE_H
#define TRAIN_DEVICE_UPDATE_H

#include <stdbool.h>

struct trainer;

/* Before gradients are reduced: a non-finite number of this rank is put into its gradients and so reaches all ranks. */
void device_update_check(struct trainer *trainer);

/* With averaged gradients: checks them ([has_norm]: by their norm), clips, and updates the parameters and their moving
 * average, unless a loss, a gradient or a running statistic is not finite in this update or an earlier one (found_inf).
 */
void device_update_run(struct trainer *trainer, bool has_norm, float loss_scale);

#endif
