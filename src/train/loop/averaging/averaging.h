/* averaging: the methods to average the gradients of an update over the ranks, one table each. The method is chosen
 * once, by run_join; a step calls its functions and does not depend on the method. The files of the methods:
 *
 *   on_device        average_on_device.c    buckets are all-reduced during backward, in place
 *   on_host          average_on_host.c      gradients of a device are copied to the host and all-reduced there
 *   elastic          average_elastic.c      batch shards of all ranks, summed in one tree
 *   sharded          average_sharded.c      buckets are reduce-scattered, each rank updates its shard (ZeRO)
 *   sharded_on_host  average_sharded.c      the same through the host
 *   in_backward      average_in_backward.c  one rank; parameters are updated while backward runs */
#ifndef TRAIN_AVERAGING_H
#define TRAIN_AVERAGING_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "model/loss.h"

struct config;
struct trainer;
struct update;
struct pass;

struct averaging {
    const char *name;
    bool keeps_gradients; /* from backward to the update; false: they are applied during backward */

    /* Before the first micro-batch of an update. NULL: nothing to do. */
    void (*start)(struct trainer *trainer, const struct update *update);

    /* The micro-batches of an update: load, forward, backward. After it the gradients are averaged, or a rank has
     * its shard of the average. All ranks. */
    status (*run)(struct trainer *trainer, struct update *update);

    /* Backward of a micro-batch, for micro_batches_run. [is_last]: of the update; only then gradients are reduced. */
    void (*backward)(struct trainer *trainer, const struct pass *pass, const float *inputs, bool is_last);
    /* After backward of the last micro-batch. NULL: nothing to wait for. */
    status (*finish_backward)(struct trainer *trainer);
    /* Replaces both on a rank without rows in the last micro-batch. NULL: nothing to do. */
    status (*contribute_zeros)(struct trainer *trainer);

    /* Checks whether the averaged gradients are finite, or with update->needs_norm computes their norm and the clipping
     * factor, into trainer->memory.results. update->has_norm: the norm was computed. All ranks. */
    status (*measure)(struct trainer *trainer, struct update *update);

    /* Waits until [stream] has finished a step, before its results are read. NULL: nothing to do. */
    status (*wait)(struct trainer *trainer, void *stream);

    /* The control all-reduce of a step: sums the losses and [counts] (count) over the ranks. All ranks. */
    status (*all_reduce_sums)(struct trainer *trainer, struct loss_sums *sums, double *counts, size_t count);

    /* The optimizer's update, after which all ranks have all parameters. NULL: already done. All ranks. */
    status (*update)(struct trainer *trainer, const struct update *update);

    /* Whether all ranks have complete gradients on their devices, so that the devices can make the update. NULL: no. */
    bool (*can_update_on_device)(const struct trainer *trainer);
};

extern const struct averaging averaging_on_device, averaging_on_host, averaging_elastic, averaging_sharded,
    averaging_sharded_on_host, averaging_in_backward;

/* After the group (trainer->comm) and the reducer or elastic are created. */
const struct averaging *averaging_choose(const struct trainer *trainer);

/* Functions that several methods share. In average_on_device.c: backward that passes gradients to the reducer, its end,
 * and the reduction of all gradients at once. */
void averaging_backward(struct trainer *trainer, const struct pass *pass, const float *inputs, bool is_last);
status averaging_finish_backward(struct trainer *trainer);
status averaging_reduce_all(struct trainer *trainer);
/* In average_on_host.c. */
status averaging_run_on_host(struct trainer *trainer, struct update *update);
/* In average_sharded.c; the same as averaging_update when the optimizer is not sharded. */
status averaging_update_shards(struct trainer *trainer, const struct update *update);
/* In averaging.c. */
void averaging_backward_alone(struct trainer *trainer, const struct pass *pass, const float *inputs, bool is_last);
status averaging_measure(struct trainer *trainer, struct update *update);
status averaging_wait(struct trainer *trainer, void *stream);
status averaging_all_reduce_sums(struct trainer *trainer, struct loss_sums *sums, double *counts, size_t count);
status averaging_update(struct trainer *trainer, const struct update *update);

#endif
