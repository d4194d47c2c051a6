/* Apart from weights.c, because model.init_from, which the start of a run needs, uses weights.c. */
#include "train/weights/weights_choice.h"

#include <string.h>

#include "train/weights/initial.h"

/* A moving average starts as a copy of the weights, so the initial ones have none. */
static status open_initial(const struct config *config, const struct weights_options *options, struct log *log,
                           struct checkpoint **out) {
    if (options->which && strcmp(options->which, "trained") != 0)
        return status_new(STATUS_USAGE,
                          "--weights %s: --checkpoint " CHECKPOINT_INITIAL
                          " has no moving average of the weights; leave --weights out",
                          options->which);
    return initial_open(options->training ? options->training : config, CHECKPOINT_INITIAL, log, out);
}

status weights_choose(const struct config *config, const struct weights_options *options, struct log *log,
                      struct checkpoint **out, bool *average) {
    *out = NULL;
    *average = false;
    if (options->checkpoint && strcmp(options->checkpoint, CHECKPOINT_INITIAL) == 0)
        return open_initial(config, options, log, out);
    return config ? weights_open(config, options, log, out, average) : weights_open_alone(options, log, out, average);
}
