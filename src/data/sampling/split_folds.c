/* scikit-learn's KFold, StratifiedKFold and TimeSeriesSplit, with the same random draws. The rows of both parts are in
 * ascending order, as split() returns them. */
#include <stdlib.h>
#include <string.h>

#include "base/numbers/rng.h"
#include "data/sampling/split.h"
#include "data/source/source.h"

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

struct member {
    int64_t class, row;
};

static int compare_members(const void *left, const void *right) {
    const struct member *a = left, *b = right;
    if (a->class != b->class) return a->class < b->class ? -1 : 1;
    return a->row < b->row ? -1 : 1;
}

/* Numbers the classes in the order of their first appearance and returns their count. [members], [map]: (rows)
 * workspaces. */
static size_t number_classes(const int64_t *classes, size_t rows, struct member *members, int64_t *map,
                             int64_t *numbers) {
    size_t count = 0;
    for (size_t i = 0; i < rows; i++) members[i] = (struct member){classes[i], (int64_t)i};
    qsort(members, rows, sizeof *members, compare_members);
    for (size_t i = 0, first = 0; i < rows; i++) {
        if (members[i].class != members[first].class) first = i;
        numbers[members[i].row] = members[first].row; /* the first row of the class, which is the smallest */
    }
    for (size_t i = 0; i < rows; i++) {
        if (numbers[i] == (int64_t)i) map[i] = (int64_t)count++;
        numbers[i] = map[numbers[i]];
    }
    return count;
}

/* Sets grouped (rows) to the rows of class 0, those of class 1, ..., each in ascending order, and ends (count) to where
 * the classes end in it. */
static void group_rows(const int64_t *numbers, size_t rows, size_t count, int64_t *grouped, int64_t *ends) {
    for (size_t c = 0; c < count; c++) ends[c] = 0;
    for (size_t i = 0; i < rows; i++) ends[numbers[i]]++;
    for (size_t c = 1; c < count; c++) ends[c] += ends[c - 1];
    for (size_t i = rows; i-- > 0;) grouped[--ends[numbers[i]]] = (int64_t)i;
    for (size_t c = 0; c < count; c++) ends[c] = c + 1 < count ? ends[c + 1] : (int64_t)rows;
}

/* Workspaces of (rows) each. */
struct strata {
    int64_t *numbers, *grouped, *ends, *class_folds, *permutation;
};

/* StratifiedKFold: the rows sorted by class are assigned to folds 0, 1, 2, ..., 0, 1, ...; this gives the number of
 * rows of each class in each fold. The rows of a class then get these folds in order or, with shuffle, in random order.
 * false: all classes have fewer rows than there are folds. */
static bool assign_stratified(const struct split_config *config, const struct strata *s, size_t rows, size_t count,
                              int64_t *fold_of) {
    struct rng rng;
    rng_seed(&rng, (uint64_t)config->seed);
    group_rows(s->numbers, rows, count, s->grouped, s->ends);
    size_t first = 0, largest = 0, folds = (size_t)config->folds;
    for (size_t c = 0; c < count; c++) {
        size_t end = (size_t)s->ends[c], size = end - first, at = 0;
        for (size_t fold = 0; fold < folds; fold++)
            for (size_t i = first + (fold + folds - first % folds) % folds; i < end; i += folds)
                s->class_folds[at++] = (int64_t)fold;
        if (config->shuffle) rng_numpy_permutation(&rng, s->permutation, size);
        for (size_t i = 0; i < size; i++)
            fold_of[s->grouped[first + i]] = s->class_folds[config->shuffle ? (size_t)s->permutation[i] : i];
        first = end;
        if (size > largest) largest = size;
    }
    return largest >= folds;
}

enum { WORKSPACES = 6 };

/* [memory]: (WORKSPACES, rows). */
static status fill_folds(const struct split_config *config, const int64_t *classes, size_t rows, int64_t *memory,
                         int64_t *order, size_t *n_validation) {
    int64_t *fold_of = memory, *spaces[WORKSPACES];
    for (size_t i = 0; i < WORKSPACES; i++) spaces[i] = memory + i * rows;
    struct strata strata = {spaces[1], spaces[2], spaces[3], spaces[4], spaces[5]};
    if (!classes) {
        assign_folds(config, rows, spaces[1], fold_of);
    } else {
        struct member *members = (struct member *)(void *)strata.grouped; /* and ends */
        size_t count = number_classes(classes, rows, members, strata.class_folds, strata.numbers);
        if (!assign_stratified(config, &strata, rows, count, fold_of))
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
    TRY(rows_alloc(rows, WORKSPACES * sizeof(int64_t), "the folds", &memory));
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
