/* scikit-learn's GroupShuffleSplit and GroupKFold: groups of rows are divided instead of rows. The rows of both parts
 * are in ascending order, as split() returns them. */
#include <stdlib.h>

#include "base/numbers/rng.h"
#include "data/sampling/split.h"
#include "data/source/source.h"

/* ShuffleSplit of the groups: its permutation starts with those for validation. */
static status choose_at_random(const struct split_config *config, size_t count, int64_t *permutation, bool *chosen) {
    struct rng rng;
    size_t n_train, n_validation;
    split_sizes(config, count, &n_train, &n_validation);
    if (n_train == 0)
        return status_new(STATUS_DATA, "test %g of %zu groups leaves no group to train", config->test, count);
    rng_seed(&rng, (uint64_t)config->seed);
    rng_numpy_permutation(&rng, permutation, count);
    for (size_t i = 0; i < n_validation; i++) chosen[permutation[i]] = true;
    return OK;
}

struct group {
    size_t rows;
    int64_t rank;
};

/* The largest first, as argsort(sizes, kind="stable")[::-1]: among equal ones the last. */
static int compare_groups(const void *left, const void *right) {
    const struct group *a = left, *b = right;
    if (a->rows != b->rows) return a->rows < b->rows ? 1 : -1;
    return a->rank < b->rank ? 1 : -1;
}

/* GroupKFold: each group, the largest first, is added to the fold with the fewest rows, the first of these. */
static status choose_fold(const struct split_config *config, const int64_t *groups, size_t rows, size_t count,
                          struct group *sorted, size_t *sizes, bool *chosen) {
    size_t folds = (size_t)config->folds;
    if (folds > count) return status_new(STATUS_DATA, "%zu groups cannot be divided into %zu folds", count, folds);
    for (size_t i = 0; i < count; i++) sorted[i] = (struct group){.rank = (int64_t)i};
    for (size_t i = 0; i < rows; i++) sorted[groups[i]].rows++;
    qsort(sorted, count, sizeof *sorted, compare_groups);
    for (size_t i = 0; i < count; i++) {
        size_t lightest = 0;
        for (size_t fold = 1; fold < folds; fold++)
            if (sizes[fold] < sizes[lightest]) lightest = fold;
        sizes[lightest] += sorted[i].rows;
        chosen[sorted[i].rank] = lightest == (size_t)config->fold;
    }
    return OK;
}

static status choose_groups(const struct split_config *config, const int64_t *groups, size_t rows, size_t count,
                            bool *chosen) {
    size_t n = config->folds > 0 ? (size_t)config->folds : 1;
    struct group *sorted = calloc(count, sizeof *sorted);
    int64_t *permutation = calloc(count, sizeof *permutation);
    size_t *sizes = calloc(n, sizeof *sizes);
    status s = !sorted || !permutation || !sizes ? status_memory("%zu groups", count)
               : config->folds > 0               ? choose_fold(config, groups, rows, count, sorted, sizes, chosen)
                                                 : choose_at_random(config, count, permutation, chosen);
    free(sorted);
    free(permutation);
    free(sizes);
    return s;
}

status split_rows_grouped(const struct split_config *config, const int64_t *groups, size_t rows, size_t count,
                          int64_t *order, size_t *n_validation, size_t *validation_groups) {
    size_t at = 0;
    bool *chosen = calloc(count, sizeof *chosen);
    if (!chosen) return status_memory("%zu groups", count);
    status s = choose_groups(config, groups, rows, count, chosen);
    *validation_groups = 0;
    for (size_t i = 0; i < count; i++) *validation_groups += chosen[i];
    for (size_t i = 0; i < rows; i++)
        if (chosen[groups[i]]) order[at++] = (int64_t)i;
    *n_validation = at;
    for (size_t i = 0; i < rows; i++)
        if (!chosen[groups[i]]) order[at++] = (int64_t)i;
    free(chosen);
    return s;
}
