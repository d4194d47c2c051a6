/* plan_describe: the plan of a run for people, as `ddptrain check` prints it: rows, layers, processes, memory, buckets,
 * bytes per step. It plans nothing itself. */
#ifndef TRAIN_PLAN_DESCRIBE_H
#define TRAIN_PLAN_DESCRIBE_H

#include "base/text.h"
#include "train/plan.h"

/* Of a plan for training or check. On the CPU the memory is compared with what is free on this machine. */
void plan_describe(const struct plan *plan, struct text *out);

#endif
