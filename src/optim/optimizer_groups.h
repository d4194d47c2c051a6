/* optimizer groups: the settings of each parameter. The first group that matches a parameter is
 * used, else the values of the optimizer; neighbours with equal values are updated together. */
#ifndef OPTIMIZER_GROUPS_H
#define OPTIMIZER_GROUPS_H

#include "optim/optimizer.h"

/* Keys of every optimizer. */
extern const struct schema optimizer_common;

/* `in_backward` */
bool optimizer_is_in_backward(const struct variant *config);

/* Values, and the number of parameters with them. */
struct optimizer_setting {
    const void *config; /* the optimizer's struct, with the values of a group */
    double lr, weight_decay;
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

#endif
