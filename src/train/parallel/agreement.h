/* agreement: whether all ranks still have the same state. They started from the same bits and apply the same updates,
 * so a difference means that memory, a processor or the program failed. A hash of the state rides with the step's word
 * every train.check_state_every steps, and is compared before every save. */
#ifndef TRAIN_AGREEMENT_H
#define TRAIN_AGREEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fault.h"
#include "dist/comm/comm.h"
#include "train/state.h"

/* Numbers that a hash takes in a word that is summed over ranks. */
#define AGREEMENT_WORD 6

/* Parameters, optimizer state (unless ranks share it out), average and counters; [with_buffers]: running statistics
 * too, which are each rank's own until they are shared. */
uint64_t agreement_hash(const struct state *state, bool with_buffers);

/* word (AGREEMENT_WORD): what this rank adds to the sum. */
void agreement_put(uint64_t hash, double *word);
/* sums (AGREEMENT_WORD): whether the hashes of all [world_size] ranks were equal; the same answer on all ranks. */
bool agreement_holds(const double *sums, int world_size);

/* Compares, and when there is a difference says which rank differs in what: STATUS_DIVERGED, the same sentence on all
 * ranks. All ranks. */
status agreement_check(const struct state *state, bool with_buffers, struct comm *comm);

/* Flips the bit of [flip] in this rank's state, when it is meant and the state is that of its step. */
void agreement_fault(const struct fault_flip *flip, const struct state *state, int rank);

#endif
