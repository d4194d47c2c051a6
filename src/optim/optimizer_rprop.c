/* rprop: torch.optim.Rprop. */
#include "optim/optimizers.h"

struct rprop_config {
    double lr;
    struct real_list etas, step_sizes;
};

static const struct schema_row rows[] = {
    OPTIMIZER_REAL(rprop_config, lr, "0.01", "The first step of each weight; later updates do not read it."),
    SCHEMA_ROW(
        REAL_LIST, struct rprop_config, etas, .fallback = "[0.5, 1.2]", .min = 0, .max = INFINITY, .excludes_min = true,
        .doc = "Factors of a step: where the gradient has changed its sign (below 1), and where it has not (above 1)."),
    SCHEMA_ROW(REAL_LIST, struct rprop_config, step_sizes, .fallback = "[1.0e-06, 50]", .min = 0, .max = INFINITY,
               .doc = "The smallest and the largest step."),
    {0},
};

static void check(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct rprop_config *c = config;
    struct place place = where ? where->place : (struct place){0};
    if (c->etas.count != 2 || c->etas.items[0] >= 1 || c->etas.items[1] <= 1)
        problems_add(problems, place, path, "etas must be two numbers, one below 1 and one above 1");
    if (c->step_sizes.count != 2 || c->step_sizes.items[0] > c->step_sizes.items[1])
        problems_add(problems, place, path, "step_sizes must be two numbers, the smaller one first");
}

static const struct schema schema = SCHEMA("optimizer.rprop", struct rprop_config, .rows = rows, .check = check);

static union optimizer_constants plan(const void *config, const struct optimizer_settings *own, int64_t t) {
    const struct rprop_config *c = config;
    struct rprop_constants s = {
        .lr = (float)own->lr,
        .eta_minus = (float)c->etas.items[0],
        .eta_plus = (float)c->etas.items[1],
        .step_min = (float)c->step_sizes.items[0],
        .step_max = (float)c->step_sizes.items[1],
        .is_first = t == 1,
    };
    return (union optimizer_constants){.rprop = s};
}

static const struct schema_alias aliases[] = {
    CALL_ALIAS("optimizer", "rprop", "? lr etas step_sizes"),
    {0},
};

const struct optimizer_type optimizer_rprop = {
    .aliases = aliases,
    .variant = {"rprop", &schema,
                "Steps by the sign of the gradient, each weight with its own size, for updates from all rows at once "
                "(torch.optim.Rprop)."},
    .buffers = {"prev", "step_size"},
    .plan = plan,
    .rule = RULE_RPROP,
    .pytorch = "torch.optim.Rprop({groups}, lr={lr}{,etas}{,step_sizes})",
};
