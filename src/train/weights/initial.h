/* initial: the state that a new run of a config starts with, as a checkpoint in memory. So whatever uses a checkpoint
 * uses this one without a case of its own, and no run folder is read or created. */
#ifndef TRAIN_INITIAL_H
#define TRAIN_INITIAL_H

#include "base/log.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "train/config/config.h"

/* The weights are those of model.init_from, else, or where it has none, those of the seed. What a checkpoint says of
 * the data is that of the config's dataset, which is read: the scaler is fitted to its training rows. The checkpoint
 * has no state of an optimizer. Computed on the CPU by this process alone. Logs which weights they are. [name]: of the
 * checkpoint, for messages. STATUS_USAGE when a new run would continue from a checkpoint (checkpoint.resume). */
status initial_open(const struct config *config, const char *name, struct log *log, struct checkpoint **out);

#endif
