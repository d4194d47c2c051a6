/* scikit-learn's KFold, StratifiedKFold and TimeSeriesSplit, with the same random draws. The rows of both parts are in
 * ascending order, as split() returns them. */
#include <stdlib.h>
#include <string.h>

#include "base/numbers/rng.h"
#include "data/internal.h"
#include "data/sampling/split.h"

/* KFold: folds of consecutive (or shuffled) rows; the first rows % folds folds have one row more. */
static void assign_folds(const struct split_config *config, size_t rows, int64_t *positions, int64_t *fold_of) {
    struct rng rng;
    rng_seed(&rng, (uint64_t)config->seed);
    if (config->shuffle) rng_numpy_permutation(&rng, positions, rows);
    size_t folds = (size_t)config->folds, row = 0;
    for (size_t fold = 0; fold < folds; fold++)
        for (size_t i = 0; i < rows / folds + (fold < rows % folds); i++, row++)
            fold_of[config->shuffle ? (size_t)positions[row] : row] = (int64_t)fold;
}

/* Numbers the classes in the order of their first appearance and returns their count. [map]: (rows) workspace. */
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

/* StratifiedKFold: the rows sorted by class are assigned to folds 0, 1, 2, ..., 0, 1, ...; this gives the number of
 * rows of each class in each fold. The rows of a class then get these folds in order or, with shuffle, in random order.
 * [class_folds], [permutation]: (rows) workspaces. false: all classes have fewer rows than there are folds. */
static bool assign_stratified(const struct split_config *config, const int64_t *numbers, size_t rows, size_t count,
                              int64_t *class_folds, int64_t *permutation, int64_t *fold_of) {
    struct rng rng;
    rng_seed(&rng, (uint64_t)config->seed);
    size_t first = 0, largest = 0, folds = (size_t)config->folds;
    for (size_t c = 0; c < count; c++) {
        size_t size = 0, at = 0;
        for (size_t i = 0; i < rows; i++) size += numbers[i] == (int64_t)c;
        for (size_t fold = 0; fold < folds; fold++)
            for (size_t i = first; i < first + size; i++)
                if (i % folds == fold) class_folds[at++] = (int64_t)fold;
        if (config->shuffle) rng_numpy_permutation(&rng, permutation, size);
        at = 0;
        for (size_t i = 0; i < rows; i++)
            if (numbers[i] == (int64_t)c) {
                fold_of[i] = class_folds[config->shuffle ? (size_t)permutation[at] : at];
                at++;
            }
        first += size;
        if (size > largest) largest = size;
    }
    return largest >= folds;
}

/* [memory]: (4, rows) workspace. */
static status fill_folds(const struct split_config *config, const int64_t *classes, size_t rows, int64_t *memory,
                         int64_t *order, size_t *n_validation) {
    int64_t *fold_of = memory, *numbers = memory + rows, *first = numbers + rows, *second = first + rows;
    if (!classes) {
        assign_folds(config, rows, first, fold_of);
    } else {
        size_t count = number_classes(classes, rows, first, numbers);
        if (!assign_stratified(config, numbers, rows, count, first, second, fold_of))
            return status_new(STATUS_DATA, "all classes have fewer rows than there are folds (%lld)",
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

status split_rows_time_series(const struct split_config *config, size_t rows, int64_t *order, size_t *n_validation,
                              size_t *n_train) {
    size_t folds = (size_t)config->folds, size = rows / (folds + 1),
           first = rows - (folds - (size_t)config->fold) * size;
    if (size == 0)
        return status_new(STATUS_DATA, "%zu row%s cannot be divided into %zu folds, each after training rows", rows,
                          text_plural(rows, "s"), folds);
    for (size_t i = 0; i < size; i++) order[i] = (int64_t)(first + i);
    for (size_t i = 0; i < first; i++) order[size + i] = (int64_t)i;
    *n_validation = size;
    *n_train = first;
    return OK;
}
