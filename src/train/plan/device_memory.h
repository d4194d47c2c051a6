/* device_memory: the GPU memory of a run, computed before anything is allocated. */
#ifndef TRAIN_DEVICE_MEMORY_H
#define TRAIN_DEVICE_MEMORY_H

#include "data/dataset/dataset.h"
#include "train/config/config.h"

/* In bytes for each process. */
struct device_memory {
    size_t parameters; /* with gradients and running statistics */
    size_t optimizer, average, activations;
    size_t rounded;     /* 16-bit copies of the parameters, with train.precision */
    size_t batches;     /* inputs and targets */
    size_t free, total; /* of the device, before a dry run; 0: no device */
    size_t measured;    /* in use after a dry run, with the workspace of operators and libraries; 0: not known */
};

/* For a run with batches of [batch] rows. */
struct device_memory device_memory_of(const struct config *config, const struct model *model,
                                      const struct optimizer_plan *optimizer, const struct dataset_info *info,
                                      size_t batch, int world_size);

/* STATUS_USAGE when the sum, without workspace, is more than the free memory of the device. OK when the device is the
 * host. */
status device_memory_check(const struct device_memory *memory, struct device *device);

/* Adds a line of `check`. [device] NULL: there is none. */
void device_memory_describe(const struct device_memory *memory, const struct device *device, struct text *out);

#endif
