/* weights_choice: the checkpoint that the options of a command select: a file (weights.h), or the start of a new run,
 * which is in memory only (initial.h). */
#ifndef TRAIN_WEIGHTS_CHOICE_H
#define TRAIN_WEIGHTS_CHOICE_H

#include "train/weights/weights.h"

/* weights_open, also for the checkpoint "initial". [config] NULL: as weights_open_alone; then "initial" needs
 * options->training. */
status weights_choose(const struct config *config, const struct weights_options *options, struct log *log,
                      struct checkpoint **out, bool *average);

#endif
