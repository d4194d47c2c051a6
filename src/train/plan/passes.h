/* passes: the numbers of rows of the passes of an epoch, and whether they are enough for every layer. Batch norm needs
 * more than one value per channel; PyTorch raises an error in the middle of an epoch, this check before the first step.
 */
#ifndef TRAIN_PASSES_H
#define TRAIN_PASSES_H

#include "data/dataset/dataset.h"
#include "dist/process/env.h"
#include "model/model.h"
#include "train/config/config.h"

/* The rows of the passes of a rank: [0] of a whole batch, [1] of a short last batch or a shard; 0: none. */
struct pass_rows {
    size_t training[2], evaluation[2], test[2]; /* test: of the evaluation of the test rows */
    size_t max;                                 /* rows of a batch on the device */
};

/* For this rank. [batch]: rows of a whole batch or shard; [evaluates]: the ranks that share an evaluation. */
struct pass_rows passes_rows(const struct config *config, const struct dataset_info *info, const struct dist_env *env,
                             const struct dist_env *evaluates, size_t batch);

/* STATUS_USAGE for a layer with too few rows in a training pass, with a hint. [train_rows]: of all [world_size] ranks.
 * A last batch that the run does not reach is ignored. */
status passes_check(const struct config *config, const struct model *model, size_t train_rows, int world_size);

#endif
