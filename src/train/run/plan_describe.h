/* plan_describe: the output of `ddptrain check`: rows, layers, processes, memory, buckets, bytes per step. */
#ifndef TRAIN_PLAN_DESCRIBE_H
#define TRAIN_PLAN_DESCRIBE_H

#include "base/text.h"
#include "train/plan/plan.h"

/* [plan]: for training or check. On the CPU its memory is compared with the free memory of this machine. */
void plan_describe(const struct plan *plan, struct text *out);

/* Adds "label, by its name (dataset.targets names another)"; of arrays the array or the file.
 * Nothing if targets have no names. */
void plan_describe_target(const struct dataset *dataset, const struct dataset_config *config, struct text *out);

/* Adds "0.5, 2, and 30 more", the weights of `weight: balanced`. */
void plan_describe_class_weights(const struct dataset_info *info, struct text *out);

#endif
