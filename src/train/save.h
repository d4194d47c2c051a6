/* save: what the loop keeps of its state, and when; saver.c is the thread that writes it. */
#ifndef TRAIN_SAVE_H
#define TRAIN_SAVE_H

#include <stdbool.h>

#include "base/status.h"
#include "train/trainer.h"

/* Before the first step: a roll-back needs something to go back to. All ranks. */
status save_first(struct trainer *trainer);

/* Whether checkpoint.save_every asks for a save here. [is_applied]: the step before changed the parameters. */
bool save_is_due(const struct trainer *trainer, bool is_epoch_end, bool is_applied);

/* Saves what is worth it, once: parameters that are not finite never are; then the run goes on from an older state
 * (*has_moved) or ends as recovery_of_parameter says. A save that fails is a warning. All ranks. */
status save_if_good(struct trainer *trainer, bool *has_moved);

/* The same, and the state is on disk when it returns OK, unless *has_moved: before the run may say that it is done, and
 * nothing may change it meanwhile. All ranks. */
status save_last(struct trainer *trainer, bool *has_moved);

/* Waits for the save under way; one that failed is a warning. Rank 0. */
status save_settle(struct trainer *trainer);

/* Before checkpoints are written or read: where the run folder is now (run_folder_follow). Rank 0; no save is under
 * way.
 */
status save_follow_folder(struct trainer *trainer);

#endif
