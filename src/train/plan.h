/* plan: everything that is settled before a model gets memory: the data opened and described, the model planned for its
 * rows and for the device, what the config asks for checked against both, the sizes of batches and buckets. Every
 * command with a config makes its plan here, so that a wrong config gets the same sentence and exit code from each:
 * `check` prints it (plan_describe.h), a run, eval, predict and generate execute it.
 *
 * What only concerns training is checked for training and `check` alone: eval and predict take other rows than those of
 * the training, so whether an epoch has a batch does not concern them. */
#ifndef TRAIN_PLAN_H
#define TRAIN_PLAN_H

#include "data/dataset.h"
#include "dist/process/env.h"
#include "model/loss.h"
#include "model/model.h"
#include "optim/optimizer_groups.h"
#include "train/config.h"
#include "train/device_memory.h"
#include "train/passes.h"

enum plan_purpose {
    PLAN_TRAINING,
    PLAN_CHECK,    /* of training: rows are not read, and what only this machine lacks is not an error (missing) */
    PLAN_INFERENCE /* eval, predict, generate */
};

struct plan_options {
    enum plan_purpose purpose;
    const struct dist_env *env;
    struct dataset *dataset;         /* inference: opened as its checkpoint wants it; the plan's from now on, also after
                                        a failure. NULL: the config's dataset is opened */
    const struct dataset_info *info; /* generate: what its rows would be; no dataset is opened. NULL: the dataset's */
};

struct plan {
    const struct config *config; /* borrowed */
    struct dist_env env;
    enum plan_purpose purpose;
    const struct loss_type *loss;
    struct device *device;   /* NULL: it is missing (check) */
    struct dataset *dataset; /* NULL: generate */
    struct dataset_info info;
    struct model *model; /* without memory */
    size_t batch;        /* rows of a whole batch of this rank; of a shard, where batches are cut (elastic) */
    status missing;      /* check: what only this machine lacks, STATUS_USAGE as a run would say it; NULL: nothing */

    /* Of training and check. */
    struct optimizer_plan *optimizer;
    struct pass_rows rows;
    size_t batches, steps; /* of an epoch; a step has config->train.accumulate batches */
    size_t buckets;        /* of the gradients, averaged one after another; 0: shards, or one gradient at a time */
    struct device_memory memory;
};

/* STATUS_USAGE for a config that does not go with the data, the model, the device or itself; STATUS_DATA for the data.
 * Each rank by itself. */
status plan_create(const struct config *config, const struct plan_options *options, struct plan **out);
void plan_destroy(struct plan *plan); /* takes NULL */

/* Whether batches are cut into shards, for the same bits on any number of ranks. */
bool plan_is_elastic(const struct plan *plan);

/* Who shares an evaluation: all ranks; elastic: each does all of it by itself, since the sums of shares would depend on
 * how many there are. */
struct dist_env plan_evaluation_env(const struct plan *plan);

/* A lack of memory that shows before the first step is the config's: STATUS_MEMORY becomes STATUS_USAGE with what can
 * be made smaller. All else, NULL too, is passed on. Consumes [failure]. */
status plan_explain_memory(status failure);

#endif
