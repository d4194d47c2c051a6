/* tpe: where the next trial looks, from the results so far: a Tree-structured Parzen Estimator (Bergstra et al. 2011,
 * "Algorithms for Hyper-Parameter Optimization"; its parts and their names: Watanabe 2023, arXiv:2304.11127).
 *
 * The observations are divided into the best ones and the rest. Each group becomes a density: a sum of kernels, one on
 * each observation, and one wide prior. The suggestion is the best by best(x) / rest(x) of TPE_CANDIDATES points drawn
 * from the density of the best.
 *
 *   kernel     a product over the parameters, so that what is good together stays together ("multivariate"). Numbers: a
 *              normal density in [0, 1], the parameter's range, on the logarithmic scale where the parameter has one,
 *              truncated to it; whole numbers and steps are the middles of their cells. Values of a list: the
 *              observed one with 1 + 1 / kernels, any other with 1 / kernels, normalised.
 *   deviation  2 n^-0.9 for n observations, of every kernel of both groups; at least half of a whole number's cell.
 *              Bergstra's distances to neighbours, clipped at 1 / (1 + kernels), keep the kernels of the few best
 *              points too wide to come near an optimum.
 *   prior      the middle of the range with deviation 1; lists: each value as likely. It has the mean weight.
 *   best       ceil(0.15 n), at most 25; the k-th best has the weight log(best + 1/2) - log(k), as in CMA-ES (Hansen
 *              2016, arXiv:1604.00772): no scale of the metric matters. The rest: equal weights.
 *   history    Of the rest only the TPE_MAX_REST best take part. So a suggestion costs the same after any number of
 *              trials. The rest is compared with the best near the best points, where the candidates are; those trials
 *              are there, too.
 *   fronts     With several metrics (Ozaki et al. 2020, "Multiobjective Tree-structured Parzen Estimator") the best are
 *              those of the first fronts: no trial of the first is dominated, none of the second by others than those
 *              of the first, and so on. Of the front that has too many for [best], the smallest one of each metric is
 *              taken, then always the one that is farthest from those that are, in metrics as parts of their ranges in
 *              the front. They have equal weights, and deviations are 2 n^-0.7: a front is longer than a point. A
 * suggestion takes n log n steps for two metrics, at most n^2 for more. repeats    Runs repeat exactly, so a trial with
 * the values of an earlier one would say nothing new: such points are suggested only when no other one was found.
 *
 * bench/tpe.py compares it with Optuna's TPESampler, also by the hypervolume of fronts. */
#pragma once

#include "sweep/space.h"

#define TPE_STARTUP 10    /* observations with a value that are drawn at random first */
#define TPE_CANDIDATES 24 /* points of which the best is suggested */
#define TPE_MAX_BEST 25
#define TPE_MAX_REST 975
#define TPE_MAX_METRICS 4

/* A trial that has ended, or one that still runs: that has only a point, which is not suggested again. Counted as
 * failed ("constant liar"), eight at a time, those kept suggestions away from the best points, and the best values were
 * worse. */
struct observation {
    struct point point;
    bool is_running;                /* the rest is not set */
    double values[TPE_MAX_METRICS]; /* (metrics) smaller is better; one is not finite: it failed */
    bool is_complete;               /* false: it was pruned, and has the value that it had then */
    int64_t epochs;                 /* of a pruned one: how far it came */
};

/* The observations so far. */
struct tpe;
struct tpe *tpe_create(const struct space *space, size_t metrics); /* the space must outlive it */
void tpe_destroy(struct tpe *tpe);                                 /* takes NULL */
/* Sets the observation of trial [trial]. One that runs becomes one that has ended; its point stays the same. */
void tpe_observe(struct tpe *tpe, size_t trial, const struct observation *observation);

/* The next point. With one metric better are, in this order: complete trials by their value, pruned ones by their
 * epochs and then by their value, those without a finite value; of equals the one with the lower number. The result is
 * a function of the space, the observations (not of the order in which they were made) and the generator, with the same
 * bits on every machine; the first TPE_STARTUP are space_draw's. */
void tpe_suggest(struct tpe *tpe, struct rng *rng, struct point *out);
