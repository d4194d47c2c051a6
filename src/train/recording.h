/* recording: work of a step that is recorded once and then run again by one call (a CUDA graph), so that the host's
 * time for each operator is spent once. What is recorded may depend on its key, on addresses that stay and on what lies
 * in the device's memory; nothing else may change. */
#ifndef TRAIN_RECORDING_H
#define TRAIN_RECORDING_H

#include <stdbool.h>
#include <stddef.h>

#include "base/log.h"
#include "device/device.h"
#include "dist/comm/comm.h"

/* What a pass depends on besides. */
struct recording_key {
    size_t rows;
    float scale;      /* of the loss */
    float loss_scale; /* of the gradients, which the update takes out */
    bool is_last;     /* of its group: gradients are averaged */
    bool is_update;   /* and applied */
    bool has_norm;    /* and their norm is taken */
};

struct recordings;

/* *out NULL where the device records nothing, or not [is_wanted]. [comm]: of ranks that do all work together, so that
 * it is recorded by all or by none, as NCCL wants it; NULL: each for itself. [log]: rank 0's, else NULL. */
status recordings_create(struct device *device, struct comm *comm, bool is_wanted, struct log *log,
                         struct recordings **out);
void recordings_destroy(struct recordings *recordings); /* takes NULL */

/* Does [work], or has the device do what it did with an equal key before. The first time it is done as it is, since
 * memory may have to be made for it. [recordings] NULL: it is always done as it is. */
status recordings_run(struct recordings *recordings, const struct recording_key *key, status (*work)(void *user),
                      void *user);

/* After work that other ranks may have done with other numbers of rows: where memory has moved on one of them, so that
 * its recordings do not hold any more, all forget theirs. All ranks; [recordings] NULL, or a group without NCCL:
 * nothing. */
status recordings_agree(struct recordings *recordings);

#endif
