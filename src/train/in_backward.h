/* in_backward: updates during backward (optimizer.in_backward). A gradient is looked at, counted in the norm and
 * applied while it is in the cache, and is gone afterwards. What would have to stop the step is therefore asked before
 * backward: a loss or a running statistic that is not finite. A gradient that is not finite ends the run with a state
 * that is half of the step's; it is not saved. */
#ifndef TRAIN_IN_BACKWARD_H
#define TRAIN_IN_BACKWARD_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct trainer;
struct config;
struct pass;

/* Whether a run of [world_size] processes updates during backward: more than one have to average first. */
bool in_backward_applies(const struct config *config, int world_size);

/* Of the step that runs. */
struct in_backward {
    double squares;  /* of the norms of the gradients so far; NAN where nobody asked */
    const char *bad; /* the first parameter whose gradient is not finite; NULL: none */
};

/* A step begins: no gradient was taken. [wants_norm]: whether the norm will be asked for. */
void in_backward_start(struct trainer *trainer, bool wants_norm);

/* Backward of the batch of [inputs] and all updates, which were planned (optimizer_plan_step); nothing is updated after
 * a loss or a running statistic that is not finite, and from a gradient on that is not. */
void in_backward_run(struct trainer *trainer, const struct pass *pass, const float *inputs);

/* STATUS_NOT_FINITE naming the parameter. */
status in_backward_failure(const struct trainer *trainer);

#endif
