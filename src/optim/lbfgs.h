/* lbfgs: the steps of the optimizer lbfgs, which differ from those of all others: a step evaluates the loss and its
 * gradient several times over the same rows. As torch.optim.LBFGS, with line_search_fn None or "strong_wolfe" (Nocedal
 * and Wright, "Numerical Optimization", algorithms 7.4, 3.5 and 3.6). On the CPU. */
#pragma once

#include "base/schema/schema.h"

enum lbfgs_line_search { LBFGS_NO_SEARCH, LBFGS_STRONG_WOLFE };

struct lbfgs_config {
    double lr, tolerance_grad, tolerance_change;
    int64_t max_iter, max_eval, history_size; /* max_eval SCHEMA_NO_INT: max_iter * 5 / 4 */
    int line_search;                          /* enum lbfgs_line_search */
};

/* Numbers of the state besides vectors, so that a checkpoint has them as one array of doubles. */
enum lbfgs_number {
    LBFGS_ITERATIONS,  /* so far */
    LBFGS_EVALUATIONS, /* so far */
    LBFGS_PAIRS,       /* of the history, the oldest first */
    LBFGS_STEP,        /* t: the length of the last step */
    LBFGS_SCALE,       /* H_diag */
    LBFGS_NUMBERS      /* then 1 / (y s) of each pair */
};

/* Vectors of [size] elements each. */
struct lbfgs {
    const struct lbfgs_config *config;
    size_t size, number_count;
    double *numbers;        /* (number_count) */
    float *direction;       /* d */
    float *gradient;        /* of the last step */
    float *changes, *steps; /* (history_size, size): y and s */
    float *work, *start;    /* of a step: q; parameters before it */
    float *best[2];         /* of a line search: gradients at both ends */
    double *factors;        /* (history_size): al */
};

/* Zeroed, for [size] parameters. */
status lbfgs_create(const struct lbfgs_config *config, size_t size, struct lbfgs **out);
void lbfgs_destroy(struct lbfgs *lbfgs); /* takes NULL */
/* Bytes. */
size_t lbfgs_memory(const struct lbfgs_config *config, size_t size);

/* The vectors of the state (count, size) and their name in checkpoints; index below LBFGS_VECTORS. */
#define LBFGS_VECTORS 4
struct lbfgs_vectors {
    const char *name;
    float *values;
    size_t count;
};
struct lbfgs_vectors lbfgs_vectors(const struct lbfgs *lbfgs, size_t index);

/* Computes *loss and the gradient at the parameters as they are. All ranks get the same. */
typedef status lbfgs_evaluate(void *user, double *loss);

/* A step from parameters [values] (size), whose loss is [loss] and whose gradient is [gradient] (size), which
 * [evaluate] sets. [lr] replaces that of the config. All ranks make the same calls. */
status lbfgs_step(struct lbfgs *lbfgs, double lr, float *values, const float *gradient, double loss,
                  lbfgs_evaluate *evaluate, void *user);
