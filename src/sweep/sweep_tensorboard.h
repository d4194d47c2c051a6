/* sweep_tensorboard: an event file for each run of a sweep, with its parameters and the value of the metric:
 * TensorBoard shows them in its HParams table (tensorboard --logdir sweeps/<name>). */
#pragma once

#include "sweep/trials.h"

/* [folder]/tensorboard/0042 for the run, which has ended. Nothing where the sweep does not ask for it, or the file is
 * there. After a failure it is not, so that the next start writes it. */
status sweep_tensorboard_add(const char *folder, const struct sweep_config *sweep, const struct trials *trials,
                             int64_t run);
