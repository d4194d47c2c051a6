/* The CPU's losses, for its table of operators. */
#ifndef DEVICE_CPU_LOSSES_H
#define DEVICE_CPU_LOSSES_H

#include "device/losses.h"

extern const struct loss_ops cpu_losses;

void cpu_ctc(struct device *device, const struct ctc_options *o, const float *x, const int64_t *targets, size_t rows,
             float factor, float *dx, struct loss_sums *sums);
status cpu_ctc_prepare(struct device *device, size_t rows, size_t steps, size_t classes, size_t target_size);

void cpu_contrastive(struct device *device, const struct contrastive_options *o, const float *outputs, size_t rows,
                     float factor, float *doutputs, struct loss_sums *sums);
status cpu_contrastive_prepare(struct device *device, size_t rows, size_t world_size, size_t size);

#endif
