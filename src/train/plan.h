/* plan: what `ddptrain check` prints: shapes, parameters, memory, buckets and bytes per step, from the config and the
 * head of the dataset. A GPU is opened and asked for its free memory; the CPU is not needed as a device. */
#ifndef TRAIN_PLAN_H
#define TRAIN_PLAN_H

#include "base/status.h"
#include "base/text.h"
#include "train/config.h"

/* [world_size] ranks share the work, [local_size] of them on this machine, whose free memory a warning compares. The
 * same failures as training would give before its first step. *missing: NULL, or what only this machine lacks, a GPU
 * for instance: STATUS_USAGE as training would say it; all else was looked at. */
status plan_describe(const struct config *config, int world_size, int local_size, struct text *out, status *missing);

#endif
