/* device_memory: what a run takes of a GPU's memory, added up before anything is allocated. */
#ifndef TRAIN_DEVICE_MEMORY_H
#define TRAIN_DEVICE_MEMORY_H

#include "data/dataset.h"
#include "train/config.h"

/* Bytes on each process. Operators take some more to work in, which is known at the first step only. */
struct device_memory {
    size_t parameters; /* and gradients, running statistics */
    size_t optimizer, average, activations;
    size_t rounded; /* 16-bit copies of the parameters, with train.precision */
    size_t batches; /* inputs and targets */
};

/* Of a run with batches of [batch] rows. */
struct device_memory device_memory_of(const struct config *config, const struct model *model,
                                      const struct dataset_info *info, size_t batch, int world_size);

/* STATUS_USAGE when that is more than the device has left. A line of `check` is added to [out], unless it is NULL.
 * Nothing happens where the device is the host. */
status device_memory_check(const struct device_memory *memory, struct device *device, struct text *out);

#endif
