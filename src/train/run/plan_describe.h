/* plan_describe: the output of `ddptrain check`: rows, layers, processes, memory, buckets, bytes per step. */
#ifndef TRAIN_PLAN_DESCRIBE_H
#define TRAIN_PLAN_DESCRIBE_H

#include "base/text.h"
#include "train/plan/plan.h"

/* [plan]: for training or check. On the CPU its memory is compared with the free memory of this machine. */
void plan_describe(const struct plan *plan, struct text *out);

#endif
