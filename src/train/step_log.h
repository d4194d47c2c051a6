/* step_log: what a completed step leaves in the counters, on the progress bar and in metrics.jsonl. */
#ifndef TRAIN_STEP_LOG_H
#define TRAIN_STEP_LOG_H

#include "train/parts.h"
#include "train/update.h"

/* The step was applied. All ranks; only rank 0 shows and writes. */
status step_log_write(struct trainer *trainer, const struct update *update);

#endif
