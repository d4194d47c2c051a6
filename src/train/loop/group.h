/* group: trains several models of the same shapes at once, each in a lane of the processor's vectors
 * (device/cpu/group.h): their configs differ in the optimizer and the seeds alone. Models of one sampler.seed share
 * their batches. Each has the bits of the loop alone. */
#pragma once

#include "train/loop/trainer.h"

#define GROUP_MAX_LANES 16

/* A model, and what differs between the models. */
struct group_lane {
    const struct config *config;
    struct optimizer_plan *plan; /* of run.c's plan */
    struct optimizer *optimizer;
    struct state *state;
    struct rng generator; /* after the initial weights, for the sampler */
    double evaluation_seconds;
    bool is_lost; /* it cannot be trained with the others, or a number is not finite: it is to be trained alone */
};

struct group;

/* The memory for runs like that of [trainer], which must live as long, with [config] but for the optimizer and the
 * seeds. *out NULL: such models are not trained together, since an operator has no form for it, or since so many would
 * be faster one after another. */
status group_create(const struct trainer *trainer, const struct config *config, struct group **out);
void group_destroy(struct group *group);       /* takes NULL */
size_t group_lanes(const struct group *group); /* NULL: 0 */

/* Gives the trainer the parts of a lane. */
void group_set_lane(struct trainer *trainer, const struct group_lane *lane);

/* Before group_put: how many models there are. */
void group_set_count(struct group *group, size_t count);
/* The initial weights of lane [index] are those of the trainer's model. */
void group_put(struct group *group, size_t index, const struct trainer *trainer);

/* Trains all [lanes] (count) to the end of the run. *is_stopped: a stop request ended it; nothing is to be used then.
 */
status group_run(struct trainer *trainer, struct group *group, struct group_lane *lanes, size_t count,
                 bool *is_stopped);

/* The weights of lane [index] become those of the trainer's model, and its state that of the trainer's optimizer. */
void group_take(const struct group *group, size_t index, struct trainer *trainer);
