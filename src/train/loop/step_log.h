/* step_log: adds a completed step to the counters, the progress line and metrics.jsonl. */
#ifndef TRAIN_STEP_LOG_H
#define TRAIN_STEP_LOG_H

#include "train/loop/trainer.h"
#include "train/loop/update.h"

/* For a step that was applied. All ranks; only rank 0 prints and writes. */
status step_log_write(struct trainer *trainer, const struct update *update);

#endif
