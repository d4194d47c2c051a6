/* compare: whether one config is better than another: both are trained with the same seeds, and the differences of the
 * pairs are tested. The runs are a sweep of two trials, in a sweep folder of its own. */
#ifndef SWEEP_COMPARE_H
#define SWEEP_COMPARE_H

#include "sweep/sweep.h"
#include "sweep/trials.h"

/* Trains what its folder does not have yet and adds the result to [out], a table and a sentence. [file]:
 * sweep_load_comparison's. Warnings where the metric of the two is not comparable (comparability.h). STATUS_DATA with
 * fewer than two pairs of complete runs. */
status compare_run(const struct sweep_file *file, const struct sweep_options *options, struct log *log,
                   struct text *out);

#endif
