/* plan: everything that is determined before a model gets memory: the opened data, the model planned for its rows and
 * the device, the config checked against both, the sizes of batches and buckets. Every command with a config makes its
 * plan here, so that a wrong config has the same message and exit code in each: `check` prints the plan
 * (run/check.c), a run, eval, predict and generate execute it.
 *
 * What only affects training, such as batches of an epoch, is checked for training and `check` only: eval and predict
 * may use other rows. */
#pragma once

#include "data/dataset/dataset.h"
#include "dist/process/env.h"
#include "model/loss.h"
#include "model/model.h"
#include "optim/optimizer.h"
#include "train/config/config.h"

/* The memory of a run, computed before anything is allocated. In bytes for each process; on the CPU not checked. */
struct device_memory {
    size_t parameters; /* with gradients and running statistics */
    size_t optimizer, average, activations;
    size_t rounded;     /* 16-bit copies of the parameters, with train.precision */
    size_t batches;     /* inputs and targets */
    size_t free, total; /* of the device, before a dry run; 0: no device */
    size_t measured;    /* in use after a dry run, with the workspace of operators and libraries; 0: not known */
};

/* The rows of the passes of a rank: [0] of a whole batch, [1] of a short last batch or a shard; 0: none. */
struct pass_rows {
    size_t training[2], evaluation[2], test[2]; /* test: of the evaluation of the test rows */
    size_t max;                                 /* rows of a batch on the device */
};

enum plan_purpose {
    PLAN_TRAINING,
    PLAN_CHECK,    /* of training: a GPU or memory that this machine lacks is no error (missing) */
    PLAN_INFERENCE /* eval, predict, generate */
};

struct plan_options {
    enum plan_purpose purpose;
    bool reads_all; /* check: read all rows; else only the metadata of the dataset */
    const struct dist_env *env;
    struct dataset *dataset; /* inference: opened with the columns of its checkpoint; owned by the plan from now on,
                                also after a failure. NULL: opens the dataset of the config */
    const struct dataset_info
        *info;               /* generate: the rows of its inputs, without a dataset. NULL: those of the dataset */
    size_t cached_positions; /* generate: as in struct model_names */
};

struct plan {
    const struct config *config; /* not owned */
    struct dist_env env;
    enum plan_purpose purpose;
    bool reads_all; /* as in struct plan_options */
    const struct loss_type *loss;
    const void *loss_config;     /* of [loss] */
    void *balanced;              /* the same with the weights of balanced classes; NULL: they are not */
    double *class_weights;       /* of [balanced] */
    struct objective *objective; /* of `losses`; NULL: `loss` */
    struct device *device;       /* NULL: it is missing (check) */
    struct dataset *dataset;     /* NULL: generate */
    struct dataset_info info;
    struct model *model;             /* without memory */
    size_t batch;                    /* rows of a whole batch of this rank; elastic: of a shard */
    struct sampler_config sampler;   /* the config's, for training and check with the rows of its file */
    struct sampler_indices *indices; /* of [sampler]; NULL: it has no file */
    status missing; /* check: a GPU or memory that this machine lacks, as STATUS_USAGE; NULL: nothing */

    /* For training and check. */
    struct optimizer_plan *optimizer;
    struct pass_rows rows;
    size_t batches, steps; /* of an epoch; a step has config->train.accumulate batches */
    size_t buckets;        /* of the gradients; 0: elastic shards, or updates in backward */
    struct device_memory memory;
};

/* STATUS_USAGE for a config that contradicts the data, the model, the device or itself; STATUS_DATA for the data.
 * Without communication. */
status plan_create(const struct config *config, const struct plan_options *options, struct plan **out);
void plan_destroy(struct plan *plan); /* takes NULL */

/* Whether batches are split into shards, for the same bits on any number of ranks. */
bool plan_is_elastic(const struct plan *plan);

/* The ranks that share an evaluation: all; elastic: each rank does all of it alone, because sums of shares would depend
 * on the number of ranks. */
struct dist_env plan_evaluation_env(const struct plan *plan);

/* The bytes that a rank on the CPU needs at least: parameters, gradients, optimizer, activations, rows. */
double plan_host_memory(const struct plan *plan);
/* The bytes of a checkpoint, nearly. For training and check. */
double plan_checkpoint_bytes(const struct plan *plan);

/* Turns STATUS_MEMORY into STATUS_USAGE with a hint, because before the first step the config is the cause; with a
 * [plan] (NULL: not known) whose rows need more memory than its model, plan_explain_rows. Returns other statuses, also
 * OK, unchanged. Consumes [failure]. */
status plan_explain_memory(const struct plan *plan, status failure);

/* Turns STATUS_MEMORY, of rows, into STATUS_IO, with the memory that there is and a hint: a larger machine may read
 * them. The same otherwise. */
status plan_explain_rows(status failure);

/* Adds a line of `check`. [device] NULL: there is none. */
void device_memory_describe(const struct device_memory *memory, const struct device *device, struct text *out);
