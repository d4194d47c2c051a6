/* optimizer: PyTorch's update rules over the flat buffers, with the same roundings (tests/vectors/optim.json): one call
 * of the device for all parameters, with a table of their groups (device/optimizers.h).
 * docs/adding.md describes how to add one. */
#pragma once

#include "base/schema/schema.h"
#include "device/device.h"
#include "model/params.h"
#include "optim/lbfgs.h"
#include "optim/schedule.h"

#define OPTIMIZER_MAX_BUFFERS OPTIMIZER_STATES

/* A product of one factor for each update so far (nadam), kept to continue from the update before. Initial value: 0. */
struct optimizer_product {
    int64_t updates;
    float value;
};

/* The settings that a schedule or a group can change. */
struct optimizer_settings {
    double lr, weight_decay;
    double momentum; /* or the first beta; changed by one_cycle; NAN: the rule has none that a schedule can change */
    struct optimizer_product
        *product; /* for .plan; its value depends on the config and the number of the update only */
};

/* An update of one parameter as a whole, on the host. */
struct optimizer_whole {
    struct device *device; /* the CPU */
    const struct param *param;
    const void *config;
    const struct optimizer_settings *settings;
    int64_t t;                            /* number of the update, from 1 */
    float *values, *gradient;             /* (param->count); the gradient may be overwritten */
    float *states[OPTIMIZER_MAX_BUFFERS]; /* of the parameter, in the type's order; NULL: it has none */
    float *work;                          /* as much as .work says */
};

/* A rule that reads all elements of a parameter (muon, adafactor): on the CPU, not for shards or parts. */
struct optimizer_whole_rule {
    void (*update)(const struct optimizer_whole *update);
    /* Floats of work memory for a parameter. */
    size_t (*work)(const struct param *param);
    /* Sets the [shape] (param->dims) of buffer [index] for a parameter; false: it has none. */
    bool (*state_shape)(const void *config, const struct param *param, size_t index, int64_t *shape);
    /* Whether the type's own [plan] and [rule] update a parameter instead, with settings of their own and the buffers
     * from [other_buffer] on. NULL: none. */
    bool (*is_other)(const void *config, const struct param *param);
    struct optimizer_settings (*other_settings)(const void *config);
    size_t other_buffer;
    status (*write_pytorch)(const void *config, struct text *out); /* both as the `optimizer` of a script */
    const char *what; /* the parameters that it updates: "matrices (parameters of two dimensions)" */
};

struct optimizer_type {
    struct schema_variant variant;
    const struct schema_alias *aliases;         /* of this type and of others of its file; NULL: none */
    const char *buffers[OPTIMIZER_MAX_BUFFERS]; /* PyTorch's names of its state: "exp_avg"; NULL: unused */
    /* NULL: the keys lr, weight_decay (0 without one) and, as the momentum, the first of betas or momentum, unless it
     * is 0. */
    struct optimizer_settings (*settings)(const void *config);
    /* Whether this config needs buffer [index] (SGD without momentum does not). NULL: always. */
    bool (*uses_buffer)(const void *config, size_t index);
    /* The initial value of the elements of its buffers. NULL: 0. */
    float (*start)(const void *config);
    /* The constants of update number [t] (from 1). */
    union optimizer_constants (*plan)(const void *config, const struct optimizer_settings *settings, int64_t t);
    enum update_rule rule;
    /* Its config is a struct lbfgs_config: a step evaluates the loss again, by lbfgs.h; the rule is not used. */
    bool evaluates;
    const struct optimizer_whole_rule *whole; /* NULL: the rule, of one number, is all */
    const char *pytorch; /* the optimizer in PyTorch, a template of schema_fill; {groups}: what it gets */
};

extern const struct schema_variants optimizer_variants;
const struct optimizer_type *optimizer_type_at(size_t index);
size_t optimizer_type_count(void);
/* Adds the type of an extension. False: there is one of its name. */
bool optimizer_type_add(const struct optimizer_type *type);

/* ---- groups ----
 *
 * The settings of each parameter. The first group that matches a parameter is used, else the values of the optimizer;
 * neighbours with equal values are updated together. */

/* Keys of every optimizer. */
extern const struct schema optimizer_common;

/* `in_backward` */
bool optimizer_is_in_backward(const struct variant *config);
/* The type's [evaluates]. */
bool optimizer_evaluates(const struct variant *config);
/* Whether the type updates parameters as a whole. */
bool optimizer_needs_whole(const struct variant *config);
/* `maximize`: the caller gives gradients of the other sign. */
bool optimizer_maximizes(const struct variant *config);

/* Values, and the number of parameters with them. */
struct optimizer_setting {
    const void *config; /* the optimizer's struct, with the values of a group */
    bool is_other;      /* struct optimizer_whole_rule */
    double lr, weight_decay, momentum;
    size_t tensors, elements;
    struct optimizer_product product;
};

struct optimizer_plan {
    struct optimizer_setting *settings;
    struct optimizer_run *runs; /* in order, without frozen parameters; their constants are those of the settings */
    void **configs;             /* (group_count); NULL: the group uses the optimizer's struct */
    size_t setting_count, run_count, group_count;
};

/* STATUS_USAGE with file:line:column for a group, or one of its patterns, that matches no parameter. */
status optimizer_plan_create(const struct variant *config, const struct params *params, struct optimizer_plan **out);
void optimizer_plan_destroy(struct optimizer_plan *plan); /* takes NULL */
/* What the config says about [param], also a frozen one; tensors and elements are 0. */
struct optimizer_setting optimizer_plan_setting(const struct optimizer_plan *plan, const struct variant *config,
                                                const struct param *param);

/* Adds the optimizer in PyTorch, for the parameters of `model`; with groups a function that gives their settings comes
 * first. */
status optimizer_write_pytorch(const struct variant *config, struct text *out);

/* ---- an optimizer of a run ---- */

/* The ranges of the flat buffers that a rank updates, ascending. [at]: the position of their state in the buffers of
 * the rank. */
struct optimizer_shard_range {
    size_t begin, end, at;
};
struct optimizer_shard {
    struct optimizer_shard_range *ranges; /* (count) */
    size_t count, total;                  /* total: elements of a buffer */
    float
        *gradients; /* (total) the gradients of the ranges, each at its [at]; NULL: those of the parameters are used */
};

struct optimizer {
    const struct optimizer_type *type;
    const void *config;
    double lr; /* of the config, before groups and any schedule */
    struct device *device;
    struct optimizer_plan *plan;
    const struct optimizer_shard *shard;   /* NULL: all parameters */
    float *buffers[OPTIMIZER_MAX_BUFFERS]; /* (buffer_floats) each; only those in use */
    size_t buffer_floats[OPTIMIZER_MAX_BUFFERS];
    const char *buffer_names[OPTIMIZER_MAX_BUFFERS];
    size_t buffer_count;
    struct lbfgs *lbfgs;            /* of a type that evaluates; else NULL */
    float *work;                    /* of a type that updates parameters as a whole; else NULL */
    struct optimizer_settings *now; /* (plan->setting_count) those of the planned update, of such a type */
    int64_t update;                 /* its number */
    struct optimizer_run
        *runs; /* (run_count) of all elements; OPTIMIZER_SKIP for those that this rank does not update */
    size_t run_count;
    size_t *run_ends; /* (shard->count) with gradients of the shard: the runs are those of its ranges, one range after
                         another, each counted from its begin; NULL: they are of all parameters */
    union optimizer_constants *planned,
        *constants; /* (plan->setting_count) of the update, on the host and on the device */
};

/* The elements of buffer [index] of the optimizer's state for a trained parameter, and their [shape] (param->dims); 0:
 * none. Those of all parameters follow each other in the buffer, params_padded of each. */
size_t optimizer_state_shape(const struct optimizer *optimizer, size_t index, const struct param *param,
                             int64_t *shape);

/* Bytes of state for [params]. */
size_t optimizer_memory(const struct variant *config, const struct optimizer_plan *plan, const struct params *params);

/* STATUS_USAGE with file:line:column for a group that matches no parameter. */
status optimizer_create(const struct variant *config, const struct params *params, struct device *device,
                        struct optimizer **out);
/* Only for the elements of [shard] (not owned; NULL: all). */
status optimizer_create_shard(const struct variant *config, const struct params *params, struct device *device,
                              const struct optimizer_shard *shard, struct optimizer **out);
void optimizer_destroy(struct optimizer *optimizer); /* takes NULL */

/* The settings of the config, before groups and any schedule. */
struct optimizer_settings optimizer_settings(const struct variant *config);
/* The same of a type's own struct. */
struct optimizer_settings optimizer_settings_of(const struct optimizer_type *type, const void *config);

/* Update number [t] (from 1) of all parameters that are not frozen; all gradients are zero afterwards. [schedule] at
 * [progress] gives the rate of each group and the momentum; NULL: those of the config. *clip is in device memory. */
void optimizer_step(struct optimizer *optimizer, struct params *params, int64_t t, const struct variant *schedule,
                    const struct schedule_progress *progress, const float *clip);

/* The same in two parts: optimizer_plan_step uploads the values that change from step to step; optimizer_run_step makes
 * the update. */
void optimizer_plan_step(struct optimizer *optimizer, int64_t t, const struct variant *schedule,
                         const struct schedule_progress *progress);
void optimizer_run_step(struct optimizer *optimizer, struct params *params, const float *clip);

/* Instead of optimizer_run_step: elements [begin, end) of one parameter, with their [gradients] (end - begin), which
 * are zero afterwards. The parts of an update together give the same bits as
 * optimizer_run_step. Not for shards. */
void optimizer_run_part(struct optimizer *optimizer, struct params *params, size_t begin, size_t end, float *gradients,
                        const float *clip);
