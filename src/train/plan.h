/* plan: what `ddptrain check` prints: shapes, parameters, memory, buckets and bytes per step, from the config and the
 * head of the dataset. A GPU is opened and asked for its free memory; the CPU is not needed as a device. */
#ifndef TRAIN_PLAN_H
#define TRAIN_PLAN_H

#include "base/status.h"
#include "base/text.h"
#include "train/config.h"

/* A lack of memory that shows before the first step is the config's: STATUS_MEMORY becomes STATUS_USAGE with what can
 * be made smaller. All else, NULL too, is passed on. Consumes [failure]. */
status plan_explain_memory(status failure);

/* [world_size] ranks share the work, [local_size] of them on this machine, whose free memory a warning compares. The
 * same failures as training would give before its first step. *missing: NULL, or what only this machine lacks, a GPU
 * for instance: STATUS_USAGE as training would say it; all else was looked at. */
status plan_describe(const struct config *config, int world_size, int local_size, struct text *out, status *missing);

#endif
