/* compute_check: `train.check_compute: {every: N}` finds results that memory or a processor got wrong in a single step,
 * also in a run of one process, whose state no other rank can be compared with. One step in N, chosen by the seed, is
 * computed twice on every rank, piece by piece (averaging.h), from the same weights, rows, random numbers and running
 * statistics: gradients before they are averaged, loss and running statistics must have the same bits. After a
 * difference the piece is computed a third time, which shows whose result was wrong. The step goes on to its control
 * all-reduce, by which all ranks learn of it, and the run ends before the update.
 *
 * A checked step is that of a run without the check, bit for bit. It differs in time only: gradients are averaged after
 * backward instead of during it, nothing of it is a recording, and its results are read before the update. Rows that
 * are read and copied to the device are not read again (rank_sync_verify_rows compares those in memory). Where layers
 * or the loss exchange numbers with other ranks during a pass, all ranks repeat a piece together, so a wrong number can
 * be found on several of them. With optimizer.in_backward there are no gradients to compare, so a config cannot have
 * both.
 */
#pragma once

#include "train/loop/averaging.h"
#include "train/loop/trainer.h"

/* Before the first step; STATUS_USAGE: the environment variable of a test's fault is malformed. */
status compute_check_open(struct trainer *trainer);
void compute_check_close(struct trainer *trainer); /* also after a run that did not open it */

/* Whether the next step is computed by compute_check_piece: it is the one that the seed and the number of its block of
 * `every` steps choose, or it has the fault of a test. The same on all ranks. For a run with checked steps or the fault
 * of a test (trainer->compute_check.is_on). */
bool compute_check_is_due(struct trainer *trainer);

/* Computes [piece] by [compute], forward, loss and backward without averaging, as often as necessary; leaves the result
 * of the last time. All ranks. */
status compute_check_piece(struct trainer *trainer, const struct batch_piece *piece, status (*compute)(void *user),
                           void *user);

/* model_forward with the fault of a test, for a computation that has it (trainer->compute_check.injects). */
const struct tensor *compute_check_forward(struct trainer *trainer, const struct pass *pass, const float *inputs);

/* If a piece differed on any rank (trainer->compute_check.finding). STATUS_DIVERGED: names rank, host, processor and
 * the first result that differs, the same on all ranks. All ranks. */
status compute_check_report(struct trainer *trainer, int64_t step);
