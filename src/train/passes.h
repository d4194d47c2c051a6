/* passes: the sizes of what goes through the model at once in an epoch, and whether they are enough for every layer:
 * the variance of a single value says nothing, and PyTorch's batch norm refuses it in the middle of an epoch. Here it
 * is known before the first step. */
#ifndef TRAIN_PASSES_H
#define TRAIN_PASSES_H

#include "data/dataset.h"
#include "dist/process/env.h"
#include "model/model.h"
#include "train/config.h"

/* Numbers of rows of the passes of a run: of a whole batch, of a short last one or a shard; 0: there is none. */
struct pass_rows {
    size_t training[2], evaluation[2];
    size_t most; /* of a batch on the device */
};

/* Of this rank. [batch]: rows of a whole batch or shard; [evaluates]: the ranks that share an evaluation. */
struct pass_rows passes_rows(const struct config *config, const struct dataset_info *info, const struct dist_env *env,
                             const struct dist_env *evaluates, size_t batch);

/* STATUS_USAGE naming a layer that would see too few rows in a pass of training, and what to change. [train_rows] rows
 * shared by [world_size] ranks. A last batch that the run does not reach does not count. */
status passes_check(const struct config *config, const struct model *model, size_t train_rows, int world_size);

#endif
