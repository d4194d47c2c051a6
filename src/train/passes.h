/* passes: the sizes of what goes through the model at once in an epoch, and whether they are enough for every layer:
 * the variance of a single value says nothing, and PyTorch's batch norm refuses it in the middle of an epoch. Here it
 * is known before the first step. */
#ifndef TRAIN_PASSES_H
#define TRAIN_PASSES_H

#include "model/model.h"
#include "train/config.h"

/* STATUS_USAGE naming a layer that would see too few rows in a pass of training, and what to change. [train_rows] rows
 * shared by [world_size] ranks. A last batch that the run does not reach does not count. */
status passes_check(const struct config *config, const struct model *model, size_t train_rows, int world_size);

#endif
