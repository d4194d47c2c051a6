/* prune: which runs of a sweep are stopped early, by the values of the epochs so far. asha and median are Optuna's
 * SuccessiveHalvingPruner (min_resource is min_epochs) and MedianPruner. Smaller values are better here.
 *
 * hyperband (Li et al. 2018, "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization") does not say
 * how early a run may be judged: it tries every way. With f = reduction_factor there are last + 1 brackets,
 * last = floor(log_f(max_epochs / min_epochs)). Bracket b is an asha of its own trials, with the rungs
 * min_epochs f^b ... min_epochs f^(last - 1), rounded down: bracket 0 has the rungs of asha, the last bracket none. Its
 * share of the trials is that of Li's n = f^(last - b) (last + 1) / (last - b + 1), without the rounding. */
#pragma once

#include "sweep/sweep_config.h"

struct pruner;

/* [runs]: of a trial. NULL for early_terminate: none. */
struct pruner *pruner_create(const struct prune_config *config, int64_t runs);
void pruner_destroy(struct pruner *pruner); /* takes NULL */

/* Run [run] has [value] after [epoch] (from 1); NAN: it is not finite. It is compared with runs of the same repeat. A
 * second report of the same run and epoch replaces the first. Returns whether the run is to stop. */
bool pruner_report(struct pruner *pruner, int64_t run, int64_t epoch, double value);
/* The run is complete: the median is that of such runs. */
void pruner_complete(struct pruner *pruner, int64_t run);

/* ---- hyperband ---- */

#define HYPERBAND_MAX_BRACKETS 100
/* The number of brackets; 1: no run would be stopped. */
int64_t hyperband_brackets(const struct prune_config *config);
/* The bracket of a trial, a function of its number: the multiples of the golden ratio without their whole part lie
 * evenly in [0, 1), so any number of successive trials is distributed by the shares. */
int64_t hyperband_bracket(const struct prune_config *config, int64_t trial);
