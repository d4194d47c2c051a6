/* weights: a model's parameters and buffers from a checkpoint, without the rest of a run's state. */
#ifndef TRAIN_WEIGHTS_H
#define TRAIN_WEIGHTS_H

#include "base/log.h"
#include "base/status.h"
#include "model/model.h"
#include "train/checkpoint.h"
#include "train/config.h"

/* Opens [file] or, when it is NULL, the newest checkpoint of the run folder ([folder]; NULL: runs/<name>). A folder
 * without one is STATUS_DATA. The path is logged as "<path>: epoch 10, step 50". */
status weights_open(const struct config *config, const char *folder, const char *file, struct log *log,
                    struct checkpoint **out);

/* Fills the model's parameters (with [average] from the moving average of the weights) and buffers, or changes nothing:
 * every name and shape that differs is a line of the STATUS_DATA failure. The model must have memory (model_alloc). */
status weights_load(struct model *model, struct checkpoint *checkpoint, bool average);

#endif
