/* objective: several losses of named outputs, each with a target and a weight, as one loss of a model's output row
 * (model_plan_named): the weighted sum of their means. */
#pragma once

#include "model/loss.h"
#include "model/model.h"

#define OBJECTIVE_MAX_TERMS 32

/* Keys of each entry of `losses:`, besides those of its type. */
struct objective_keys {
    const char *name;   /* of its metrics; NULL: that of the output, or of the type */
    const char *output; /* the name of a layer; NULL: the last one */
    const char *target; /* a target or an input of the dataset; NULL: the only target */
    double weight;
};
extern const struct schema_variants objective_variants;

/* The name of an entry's metrics. */
const char *objective_name(const struct variant *entry);

/* Values first .. first + size - 1 of a target row; [classes]: their number, [first_class] the smallest; [shape]: 0
 * dimensions: a list of values, or not known. */
struct objective_target {
    const char *name;
    size_t first, size;
    int64_t classes, first_class;
    struct shape shape;
};

/* One loss. The workspaces are in device memory, for [batch] rows. */
struct objective_term {
    const char *name;
    struct place place;
    const struct loss_type *loss;
    const void *config;
    double weight;
    struct model_output output;
    struct objective_target target;
    float *outputs, *gradient; /* (batch, output.size) */
    void *targets;             /* (batch, target.size): int64_t or float, as the loss wants */
};

struct objective {
    size_t count, output_size, target_size;
    struct objective_term terms[OBJECTIVE_MAX_TERMS];
    double weights[OBJECTIVE_MAX_TERMS];
    const struct model *model; /* not owned */
    struct loss_sums *sums;    /* (count) on the device; NULL before objective_alloc */
    struct device *device;
};

/* The loss type whose config is a struct objective. */
extern const struct loss_type loss_objective;

/* Sets the terms of [entries] for the outputs of [model]. [targets] (target_count): those of a target row of
 * [target_size] values; count 0: there are none, as in predict, and nothing is checked. STATUS_USAGE with the place of
 * an entry whose output does not fit its target. */
status objective_plan(const struct variant_list *entries, const struct model *model,
                      const struct objective_target *targets, size_t target_count, size_t target_size,
                      struct objective *out);

/* Adds a warning for each term as loss_warn_of_activation. */
void objective_warn_of_activation(const struct objective *objective, const struct model *model, struct text *out);

/* Bytes of the workspaces for [batch] rows. */
size_t objective_memory(const struct objective *objective, size_t batch);

/* Allocates the workspaces. */
status objective_alloc(struct objective *objective, struct device *device, size_t batch);
void objective_free(struct objective *objective); /* takes one that was not allocated */

/* Copies the outputs and targets of all terms for [rows] rows into their workspaces. */
void objective_split(const struct objective *objective, struct device *device, const float *outputs,
                     const void *targets, size_t rows);

/* The targets (rows, target.size) of a term from rows in host memory, as its loss wants them. */
void objective_host_targets(const struct objective *objective, size_t term, const void *targets, size_t rows,
                            void *out);
