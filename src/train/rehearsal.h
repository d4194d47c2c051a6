/* rehearsal: one step and one pass of an evaluation on zeros, for the memory of a GPU that a run of this config takes.
 * Operators choose what they work in by sizes alone, so that nothing has to be learned for it. */
#ifndef TRAIN_REHEARSAL_H
#define TRAIN_REHEARSAL_H

#include "data/dataset.h"
#include "train/config.h"

/* *bytes: of [device], on the rank that has most; for batches of up to [rows] of [batch] rows. [model]: planned,
 * without memory; it gets some. STATUS_USAGE where there is too little. Not for runs whose passes are others: elastic
 * ones, and updates during backward. */
status rehearsal_run(const struct config *config, struct model *model, const struct dataset_info *info, size_t batch,
                     size_t rows, int world_size, struct device *device, size_t *bytes);

#endif
