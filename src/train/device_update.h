/* device_update: the update as part of a recorded pass. The device itself checks whether the step is finite, makes the
 * update or skips it, and the host reads that later. All ranks have whole, equal gradients, so all decide the same. */
#ifndef TRAIN_DEVICE_UPDATE_H
#define TRAIN_DEVICE_UPDATE_H

#include <stdbool.h>

struct trainer;

/* Before gradients are reduced: what is not finite on this rank reaches all ranks with them. */
void device_update_check(struct trainer *trainer);

/* With averaged gradients: measures them ([has_norm]: by their norm), clips, updates parameters and average, unless a
 * loss, a gradient or a running statistic is not finite in this update or was in one before (found_inf). */
void device_update_run(struct trainer *trainer, bool has_norm, float loss_scale);

#endif
