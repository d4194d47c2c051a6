/* plan_describe: what is said of a plan: the output of `ddptrain check` (rows, layers, processes, memory, buckets,
 * bytes per step), the drawing of `check --dot` for Graphviz, and a warning of a run. */
#pragma once

#include "base/text.h"
#include "model/model.h"
#include "train/plan/plan.h"

/* [plan]: for training or check. On the CPU its memory is compared with the free memory of this machine. */
void plan_describe(const struct plan *plan, struct text *out);

/* Adds "label, by its name (dataset.targets names another)"; of arrays the array or the file.
 * Nothing if targets have no names. */
void plan_describe_target(const struct dataset *dataset, const struct dataset_config *config, struct text *out);

/* Adds "0.5, 2, and 30 more", the weights of `weight: balanced`. */
void plan_describe_class_weights(const struct dataset_info *info, struct text *out);

/* Adds a directed graph in the DOT language: a node for each input, layer that computes something, and sum, with name,
 * type, shape of a row and parameters; an edge for each tensor that one passes to another. */
void plan_graph(const struct model *model, const char *name, struct text *out);

/* Adds the warning for a run with [plan] in [folder], without a newline; nothing if there is none. It compares with the
 * folder's config.yaml, so it is called before that is replaced. A folder that is absent or cannot be read counts as
 * none. Rank 0. */
void schedule_warn(const struct plan *plan, const char *folder, struct text *out);
