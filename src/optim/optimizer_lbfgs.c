/* lbfgs: torch.optim.LBFGS. lbfgs.h makes its steps; nothing of it is an update of one number. */
#include "optim/lbfgs.h"
#include "optim/optimizers.h"

static const char *const searches[] = {"none", "strong_wolfe", NULL};

static const struct schema_row rows[] = {
    OPTIMIZER_REAL(lbfgs_config, lr, "1", "Length of a step; with a line search the length that is tried first."),
    SCHEMA_ROW(INT, struct lbfgs_config, max_iter, .fallback = "20", .min = 1, .max = 1e6,
               .doc = "Iterations of a step."),
    SCHEMA_ROW(INT, struct lbfgs_config, max_eval, .fallback = "null", .min = 1, .max = 1e6,
               .doc = "Evaluations of the loss in a step, after which no iteration begins; null: max_iter * 5 / 4."),
    OPTIMIZER_REAL(lbfgs_config, tolerance_grad, "1e-07",
                   "A step ends when no element of the gradient is larger than this."),
    OPTIMIZER_REAL(lbfgs_config, tolerance_change, "1e-09",
                   "A step ends when the loss, or every parameter, changes by less than this."),
    SCHEMA_ROW(INT, struct lbfgs_config, history_size, .fallback = "100", .min = 1, .max = 1e4,
               .doc =
                   "Earlier iterations of which the change of parameters and of gradient is kept: two vectors each."),
    SCHEMA_ROW(CHOICE, struct lbfgs_config, line_search, .fallback = "none", .choices = searches,
               .doc = "`strong_wolfe`: search along the direction for a step that satisfies the strong Wolfe "
                      "conditions (PyTorch's line_search_fn); `none`: a step has the length lr."),
    {0},
};
static const struct schema schema = SCHEMA("optimizer.lbfgs", struct lbfgs_config, .rows = rows);

static union optimizer_constants plan(const void *config, const struct optimizer_settings *own, int64_t t) {
    (void)config, (void)t;
    return (union optimizer_constants){.sgd = {.minus_lr = (float)-own->lr}};
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("optimizer", "L-BFGS bfgs", "lbfgs"),
    KEY_ALIAS("optimizer.lbfgs", "line_search_fn", ".line_search"),
    {0},
};

const struct optimizer_type optimizer_lbfgs = {
    .aliases = aliases,
    .variant = {"lbfgs", &schema,
                "L-BFGS: a step evaluates the loss several times over the same rows, for whole datasets as one batch "
                "(torch.optim.LBFGS)."},
    .plan = plan,
    .rule = RULE_SGD,
    .evaluates = true,
};
