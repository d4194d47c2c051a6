/* scikit-learn's KFold and StratifiedKFold, draw for draw. Both parts of a fold hold their rows in ascending order, as
 * split() returns them. */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "data/internal.h"

/* The fold of each row, as KFold assigns it: of [rows] (shuffled) positions the first rows % folds folds get one more.
 */
static void assign_folds(const struct split_config *config, size_t rows, int64_t *positions, int64_t *fold_of) {
    struct rng rng;
    rng_seed(&rng, (uint64_t)config->seed);
    if (config->shuffle) rng_numpy_permutation(&rng, positions, rows);
    size_t folds = (size_t)config->folds, row = 0;
    for (size_t fold = 0; fold < folds; fold++)
        for (size_t i = 0; i < rows / folds + (fold < rows % folds); i++, row++)
            fold_of[config->shuffle ? (size_t)positions[row] : row] = (int64_t)fold;
}

/* Classes are numbered in the order in which they first appear. Returns their count. [map]: (rows) working memory. */
static size_t number_classes(const int64_t *classes, size_t rows, int64_t *map, int64_t *numbers) {
    size_t count = 0;
    for (size_t i = 0; i < rows; i++) {
        size_t c = 0;
        while (c < count && map[c] != classes[i]) c++;
        if (c == count) map[count++] = classes[i];
        numbers[i] = (int64_t)c;
    }
    return count;
}

/* The fold of each row, as StratifiedKFold assigns it: sorted by class, the rows are dealt out to the folds in turn,
 * which gives the number of rows of each class in each fold; the rows of a class then take these folds in order, or
 * (shuffle) in a random order. [next], [dealt]: (rows) working memory. false: no class has as many rows as folds. */
static bool assign_stratified(const struct split_config *config, const int64_t *numbers, size_t rows, size_t count,
                              int64_t *dealt, int64_t *picked, int64_t *fold_of) {
    struct rng rng;
    rng_seed(&rng, (uint64_t)config->seed);
    size_t first = 0, largest = 0, folds = (size_t)config->folds;
    for (size_t c = 0; c < count; c++) {
        size_t size = 0, at = 0;
        for (size_t i = 0; i < rows; i++) size += numbers[i] == (int64_t)c;
        for (size_t fold = 0; fold < folds; fold++)
            for (size_t i = first; i < first + size; i++)
                if (i % folds == fold) dealt[at++] = (int64_t)fold;
        if (config->shuffle) rng_numpy_permutation(&rng, picked, size);
        at = 0;
        for (size_t i = 0; i < rows; i++)
            if (numbers[i] == (int64_t)c) {
                fold_of[i] = dealt[config->shuffle ? (size_t)picked[at] : at];
                at++;
            }
        first += size;
        if (size > largest) largest = size;
    }
    return largest >= folds;
}

/* [memory]: (4, rows). */
static status fill_folds(const struct split_config *config, const int64_t *classes, size_t rows, int64_t *memory,
                         int64_t *order, size_t *n_validation) {
    int64_t *fold_of = memory, *numbers = memory + rows, *dealt = numbers + rows, *picked = dealt + rows;
    if (!classes) {
        assign_folds(config, rows, picked, fold_of);
    } else {
        size_t count = number_classes(classes, rows, dealt, numbers);
        if (!assign_stratified(config, numbers, rows, count, dealt, picked, fold_of))
            return status_new(STATUS_DATA, "no class has as many rows as there are folds (%lld)",
                              (long long)config->folds);
    }
    size_t at = 0;
    for (size_t i = 0; i < rows; i++)
        if (fold_of[i] == config->fold) order[at++] = (int64_t)i;
    *n_validation = at;
    for (size_t i = 0; i < rows; i++)
        if (fold_of[i] != config->fold) order[at++] = (int64_t)i;
    return OK;
}

status split_rows_folds(const struct split_config *config, const int64_t *classes, size_t rows, int64_t *order,
                        size_t *n_validation) {
    void *memory;
    if ((size_t)config->folds > rows)
        return status_new(STATUS_DATA, "%zu row%s cannot be divided into %lld folds", rows, text_plural(rows, "s"),
                          (long long)config->folds);
    TRY(rows_alloc(rows, 4 * sizeof(int64_t), "the folds", &memory));
    status s = fill_folds(config, classes, rows, memory, order, n_validation);
    buffer_free(memory);
    return s;
}
