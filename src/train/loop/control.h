/* control: the control all-reduce of a step. A few numbers of every rank are summed in each step, so that all ranks
 * decide the same in the same step: losses, rows, stop requests, requests to save, non-finite numbers, skipped updates,
 * and a hash of the state when that is due. */
#ifndef TRAIN_CONTROL_H
#define TRAIN_CONTROL_H

#include "train/loop/trainer.h"
#include "train/loop/update.h"

/* Sums the measured values of [update] over all ranks. STATUS_DIVERGED: the states of the ranks differ. All ranks. */
status control_all_reduce(struct trainer *trainer, struct update *update);

/* Whether the next step compares hashes of the state (train.check_state_every). */
bool control_checks_state(const struct trainer *trainer);

#endif
