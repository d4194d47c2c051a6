/* sweep_tensorboard: an event file for each run of a sweep, with its parameters and the value of the metric:
 * TensorBoard shows them in its HParams table (tensorboard --logdir sweeps/<name>). */
#pragma once

#include "sweep/trials.h"

/* [folder]/tensorboard/0042 for the run, which has ended. Nothing where the sweep does not ask for it, or the file is
 * there. After a failure it is not, so that the next start writes it. *is_done: this start knows that it is there; kept
 * by the caller, because a look at each folder takes as long as a short run. */
status sweep_tensorboard_add(const char *folder, const struct sweep_config *sweep, const struct trials *trials,
                             int64_t run, bool *is_done);
