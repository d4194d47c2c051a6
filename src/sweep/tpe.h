/* tpe: where the next trial looks, by the results so far (Tree-structured Parzen Estimator). */
#ifndef SWEEP_TPE_H
#define SWEEP_TPE_H

#include "sweep/space.h"

/* A trial that has ended. */
struct observation {
    struct point point;
    double value; /* smaller is better; NAN: it failed */
    bool is_complete;
    int64_t epochs; /* of a pruned one: how far it came */
};

void tpe_suggest(const struct space *space, const struct observation *observations, size_t count, struct rng *rng,
                 struct point *out);

#endif
