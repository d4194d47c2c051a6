/* scikit-learn's train_test_split (ShuffleSplit), whose permutation starts with the validation rows, and torch's
 * random_split, whose permutation starts with the training rows. */
#include <math.h>

#include "base/numbers/rng.h"
#include "data/sampling/split.h"
#include "data/source/source.h"

bool split_is_given(const struct split_config *config) {
    return config->test > 0 || config->train > 0 || config->folds > 0;
}

void split_sizes(const struct split_config *config, size_t rows, size_t *n_train, size_t *n_validation) {
    if (config->train > 0) {
        *n_train = (size_t)(config->train * (double)rows);
        *n_validation = rows - *n_train;
        return;
    }
    size_t part = (size_t)ceil(config->test * (double)rows);
    *n_validation = part < rows ? part : rows;
    *n_train = rows - *n_validation;
}

void split_rows(const struct split_config *config, size_t rows, int64_t *order, size_t *first_train,
                size_t *first_validation) {
    struct rng rng;
    size_t n_train, n_validation;
    bool is_torch = config->train > 0;
    split_sizes(config, rows, &n_train, &n_validation);
    *first_train = is_torch || !config->shuffle ? 0 : n_validation;
    *first_validation = is_torch || !config->shuffle ? n_train : 0;
    if (!config->shuffle) return;
    rng_seed(&rng, (uint64_t)config->seed);
    if (is_torch)
        rng_permutation(&rng, order, rows);
    else
        rng_numpy_permutation(&rng, order, rows);
}
