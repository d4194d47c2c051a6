/* prune: which runs of a sweep are stopped early, by the values of the epochs so far. Both rules are Optuna's:
 * SuccessiveHalvingPruner (asha; min_resource is min_epochs) and MedianPruner. Smaller values are better here. */
#ifndef SWEEP_PRUNE_H
#define SWEEP_PRUNE_H

#include "sweep/sweep_config.h"

struct pruner;

/* NULL for early_terminate: none. */
struct pruner *pruner_create(const struct prune_config *config);
void pruner_destroy(struct pruner *pruner); /* takes NULL */

/* Run [run], one of those that are compared as [group] (runs of the same repeat), has [value] after [epoch] (from 1);
 * NAN: it is not finite. A second report of the same run and epoch replaces the first. Returns whether the run is to
 * stop. */
bool pruner_report(struct pruner *pruner, int64_t group, int64_t run, int64_t epoch, double value);
/* The run is complete: the median is that of such runs. */
void pruner_complete(struct pruner *pruner, int64_t run);

#endif
