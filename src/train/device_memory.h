/* device_memory: what a run takes of a GPU's memory, added up before anything is allocated. */
#ifndef TRAIN_DEVICE_MEMORY_H
#define TRAIN_DEVICE_MEMORY_H

#include "data/dataset.h"
#include "train/config.h"

/* Bytes on each process. */
struct device_memory {
    size_t parameters; /* and gradients, running statistics */
    size_t optimizer, average, activations;
    size_t rounded;   /* 16-bit copies of the parameters, with train.precision */
    size_t batches;   /* inputs and targets */
    size_t left, all; /* of the device, before a dry run; 0: there is none to ask */
    size_t whole;     /* with what operators and libraries work in, which a dry run shows; 0: not known */
};

/* Of a run with batches of [batch] rows. */
struct device_memory device_memory_of(const struct config *config, const struct model *model,
                                      const struct dataset_info *info, size_t batch, int world_size);

/* STATUS_USAGE when that, without the operators', is more than the device has left. Nothing happens where the device is
 * the host. */
status device_memory_check(const struct device_memory *memory, struct device *device);

/* A line of `check`. [device]: NULL where there is none to ask. */
void device_memory_describe(const struct device_memory *memory, const struct device *device, struct text *out);

#endif
