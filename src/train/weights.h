/* weights: a model's parameters and buffers from a checkpoint, without the rest of a run's state. */
#ifndef TRAIN_WEIGHTS_H
#define TRAIN_WEIGHTS_H

#include "base/log.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "model/model.h"
#include "train/config.h"

/* Which checkpoint, and which of the weights in it. */
struct weights_options {
    const char *folder;     /* --run-dir; NULL: runs/<name> */
    const char *checkpoint; /* a file, a run folder or its folder of checkpoints; "best": [folder]'s best
                             * checkpoint; NULL: its newest */
    const char *which;      /* --weights: "trained" or "average"; NULL: those that the run's evaluations use */
};

/* Opens it; a folder without one is STATUS_DATA. *average: whether the moving average of the weights is meant. Path,
 * place in the run and, where the file has an average, the choice are logged. */
status weights_open(const struct config *config, const struct weights_options *options, struct log *log,
                    struct checkpoint **out, bool *average);

/* The same without a config: what evaluations use is what the checkpoint's own config says. */
status weights_open_alone(const struct weights_options *options, struct log *log, struct checkpoint **out,
                          bool *average);

/* Whether a command may write [out]: STATUS_USAGE where that is a checkpoint, of whichever run. Absent is OK. */
status weights_check_out(const char *out);

/* Fills the model's parameters (with [average] from the moving average of the weights) and buffers, or changes nothing:
 * every name and shape that differs is a line of the STATUS_DATA failure. The model must have memory (model_alloc). */
status weights_load(struct model *model, struct checkpoint *checkpoint, bool average);

#endif
