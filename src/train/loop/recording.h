/* recording: records the operators of a pass once and replays them with one call (a CUDA graph), which saves the host's
 * time per operator. Recorded work may depend only on its key, on fixed addresses and on values in device memory. */
#pragma once

#include "base/log.h"
#include "device/device.h"
#include "dist/comm/comm.h"

/* What a recorded pass depends on. */
struct recording_key {
    size_t rows;
    float scale;      /* of the loss */
    float loss_scale; /* of the gradients; the update divides by it */
    bool is_last;     /* the last micro-batch of its step: gradients are averaged */
    bool is_update;   /* the pass includes the update */
    bool has_norm;    /* the update computes the norm of the gradients */
    bool continues;   /* layers begin with the state of the batch before (carry_state) */
    bool adds;        /* the averages are added to those of earlier micro-batches */
};

struct recordings;

/* *out is NULL when the device cannot record, or not [is_enabled]. [comm]: the group of the recorded NCCL calls, which
 * must be recorded by all ranks or by none; NULL: each rank alone. [log]: NULL except on rank 0. */
status recordings_create(struct device *device, struct comm *comm, bool is_enabled, struct log *log,
                         struct recordings **out);
void recordings_destroy(struct recordings *recordings); /* takes NULL */

/* Executes [work], or replays its recording with an equal key. The first call with a key executes without recording,
 * because operators may allocate memory; the second one records. [recordings] NULL: only executes. */
status recordings_run(struct recordings *recordings, const struct recording_key *key, status (*work)(void *user),
                      void *user);

/* After work with different numbers of rows on the ranks: if memory has moved on any rank, so that its recordings are
 * invalid, all ranks discard theirs. All ranks. Does nothing for NULL or a group without NCCL. */
status recordings_agree(struct recordings *recordings);
