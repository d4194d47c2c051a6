/* averaging: how the gradients of a step are averaged over the ranks, one row of hooks for each way. The way is chosen
 * once, by run_join; step.c calls its hooks while it computes the micro-batches, and a hook never calls the loop. Every
 * hook is called on all ranks.
 *
 *   alone            one rank: nothing is averaged
 *   on_device        buckets are all-reduced while backward runs, in place
 *   on_host          the gradients of a device are copied to the host and all-reduced there
 *   sharded          buckets are reduce-scattered, each rank updates its shard (ZeRO)
 *   sharded_on_host  the same through the host
 *   grouped          the same, and a rank keeps the gradients of its shard only (ZeRO's stage 2)
 *   elastic          the batch shards of all ranks, summed in one tree
 *   in_backward      parameters are updated while backward runs, with each part of a gradient after its average */
#pragma once

#include "train/loop/trainer.h"

/* What one pass computes: a micro-batch, or a shard of one. */
struct batch_piece {
    struct batch batch;           /* on the device; rows 0: nothing is computed */
    size_t first_row, row_stride; /* the random numbers of its rows (struct draw_key) */
    float weight;                 /* of its gradients in the update */
    struct loss_sums *sums;       /* on the device, to which the results of its loss are added */
    size_t number;                /* of the micro-batch in the epoch, and of the piece in the micro-batch */
    size_t index;
    bool is_first, is_last; /* the micro-batch is the first, the last of the update */
};

struct averaging_hooks {
    bool keeps_gradients; /* from backward to the update; false: they are applied during backward */

    /* The gradients of each micro-batch are averaged and added up; else those of the last one, which are the sum of
     * those of all. */
    bool averages_each;

    /* Before backward of a micro-batch whose gradients are averaged. NULL: nothing to do. */
    void (*begin)(struct trainer *trainer, const struct update *update, const struct batch_piece *piece);

    /* In its backward: the gradients of a group (model_backward_in_groups) are written next. NULL: gradients are in no
     * groups. */
    void (*begin_group)(struct trainer *trainer, size_t group);

    /* Makes *piece, which is the whole micro-batch, the piece number piece->index of it; returns the number of pieces,
     * at least 1. NULL: a micro-batch is one piece. */
    size_t (*pieces)(struct trainer *trainer, const struct update *update, struct batch_piece *piece);

    /* In backward of a micro-batch whose gradients are averaged: elements [first, first + count) of the gradient of
     * parameter [index] are complete. [gradient] (count) is valid during the call. NULL: nothing to do. */
    void (*ready)(struct trainer *trainer, size_t index, size_t first, size_t count, float *gradient);

    /* After backward of a piece; may be recorded with it. NULL: nothing to do. */
    status (*piece_done)(struct trainer *trainer, const struct batch_piece *piece);

    /* After the last piece of an update: gradients are averaged, or a rank has its shard of the average. NULL: they
     * already are. */
    status (*finish)(struct trainer *trainer);

    /* Checks whether the averaged gradients are finite, or with update->needs_norm computes their norm and the clipping
     * factor, into trainer->memory.results. update->has_norm: the norm was computed. */
    status (*measure)(struct trainer *trainer, struct update *update);

    /* Sums the losses and [counts] (count) of the control all-reduce over the ranks. NULL: in order of rank. */
    status (*sum)(struct trainer *trainer, struct loss_sums *sums, double *counts, size_t count);

    /* Whether the devices of all ranks have the same complete gradients, so that each rank can decide about the update
     * without the others. NULL: no. */
    bool (*decides_alone)(const struct trainer *trainer);
};

/* After the group (trainer->comm) and the reducer or elastic are created. [is_in_backward]: config_updates_in_backward.
 */
const struct averaging_hooks *averaging_choose(const struct trainer *trainer, bool is_in_backward);
