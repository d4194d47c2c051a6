/* agreement: verifies that all ranks have the same state. They start from the same bits and apply the same updates, so
 * a difference means that memory, a processor or the program failed. A hash of the state is part of the control
 * all-reduce every train.check_state_every steps, and is compared before every save. */
#pragma once

#include "base/fault.h"
#include "dist/comm/comm.h"
#include "train/state/state.h"

/* Numbers by which a hash is compared in an all-reduce. */
#define AGREEMENT_NUMBERS 6

/* Hash of parameters, optimizer state (unless it is sharded), moving average and counters; [with_buffers]: also running
 * statistics, which differ between ranks until they are broadcast. */
uint64_t agreement_hash(const struct state *state, bool with_buffers);

/* numbers (AGREEMENT_NUMBERS): to be summed over the ranks. */
void agreement_put(uint64_t hash, double *numbers);
/* sums (AGREEMENT_NUMBERS): whether the hashes of all [world_size] ranks are equal; the same on all ranks. */
bool agreement_is_equal(const double *sums, int world_size);

/* Compares the states. STATUS_DIVERGED names the rank and the tensor that differ, the same on all ranks. All ranks. */
status agreement_check(const struct state *state, bool with_buffers, struct comm *comm);

/* Flips the bit of [flip] in the state if this is its rank and step (for tests). */
void agreement_fault(const struct fault_flip *flip, const struct state *state, int rank);
