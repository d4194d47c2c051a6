/* The split of rows into training, validation and test rows: scikit-learn's and torch's, with the same random draws. */
#include "data/sampling/split.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/numbers/rng.h"
#include "base/scoped.h"
#include "data/source/config.h"

/* ---- config ---- */

static const struct schema_row split_rows_table[] = {
    SCHEMA_ROW(REAL, struct split_config, test, .fallback = "0", .min = 0, .max = 1, .excludes_max = true,
               .doc = "Fraction of the rows used for validation (train_test_split's test_size), rounded up; 0: no "
                      "split. With validation or folds: fraction of the rows for a test at the end of the run."),
    SCHEMA_ROW(REAL, struct split_config, validation, .fallback = "0", .min = 0, .max = 1, .excludes_max = true,
               .doc = "With test: fraction of the rows that remain after those of test, used for validation. The rows "
                      "of test are then evaluated once, at the end of the run, and have no other effect. Alone: the "
                      "same as test alone. 0: those of test are for validation."),
    SCHEMA_ROW(REAL, struct split_config, train, .fallback = "0", .min = 0, .max = 1, .excludes_max = true,
               .doc = "Instead of test: fraction of the rows used for training, rounded down, chosen as torch's "
                      "random_split([int(train * rows), rest], torch.Generator().manual_seed(seed)); 0: not used."),
    SCHEMA_ROW(INT, struct split_config, folds, .fallback = "0", .min = 0, .max = 1000000,
               .doc = "Instead of validation: number of folds of a cross-validation, at least 2; the rows of "
                      "scikit-learn's KFold(n_splits=folds, shuffle=shuffle, random_state=seed), with stratify "
                      "StratifiedKFold, with time_series TimeSeriesSplit, with group GroupKFold; 0: not used."),
    SCHEMA_ROW(INT, struct split_config, fold, .fallback = "null", .min = 0, .max = 999999,
               .doc = "With folds: the index of the validation fold, from 0, in the order of KFold.split."),
    SCHEMA_ROW(INT, struct split_config, seed, .fallback = "0", .min = 0, .max = 4294967295.0,
               .doc = "scikit-learn's random_state; with train the seed of random_split's generator."),
    SCHEMA_ROW(
        BOOL, struct split_config, shuffle, .fallback = "true",
        .doc = "false: the last rows of the file are the validation rows, or with folds each fold has adjacent rows."),
    SCHEMA_ROW(
        BOOL, struct split_config, stratify, .fallback = "false",
        .doc = "Keep the proportion of each class in both parts (train_test_split's stratify=y), for a target that is "
               "a class, or is 0 or 1 (bce_with_logits); with test and shuffle, or with folds (StratifiedKFold)."),
    SCHEMA_ROW(BOOL, struct split_config, time_series, .fallback = "false",
               .doc =
                   "With folds: the rows of scikit-learn's TimeSeriesSplit(folds): each fold is validated by a model "
                   "of the rows before it; later rows are not used, and none are shuffled (shuffle is not used)."),
    SCHEMA_ROW(
        STRING, struct split_config, group, .fallback = "null",
        .doc = "CSV, SQLite: name of a column, HDF5, NPZ: of a dataset or an array of numbers, that says which rows "
               "belong together, such as those of one patient. They are in the same part: with test the rows of "
               "scikit-learn's GroupShuffleSplit(test_size=test, random_state=seed), with folds those of "
               "GroupKFold(folds), for which seed and shuffle are not used. The column is not an input. Null: none."),
    {0},
};

static void check_group(const struct split_config *split, const struct node *where, const char *path,
                        struct problems *problems) {
    struct place place = dataset_place(where, "group");
    if (!split->group) return;
    if (!split->folds && split->test <= 0)
        problems_add(problems, place, path, "group needs test (as GroupShuffleSplit) or folds (as GroupKFold)");
    else if (split->stratify || split->time_series)
        problems_add(problems, place, path, "group and %s exclude each other",
                     split->stratify ? "stratify" : "time_series");
    else if (!split->folds && !split->shuffle)
        problems_add(problems, place, path, "group with test needs shuffle: GroupShuffleSplit draws the groups");
}

static void check_folds(const struct split_config *split, const struct node *where, const char *path,
                        struct problems *problems) {
    bool has_fold = split->fold != SCHEMA_NO_INT;
    if (split->folds == 1)
        problems_add(problems, dataset_place(where, "folds"), path, "folds must be at least 2");
    else if (split->folds == 0 && has_fold)
        problems_add(problems, dataset_place(where, "fold"), path, "fold needs folds, the number of folds");
    else if (split->folds > 0 && !has_fold)
        problems_add(problems, dataset_place(where, "folds"), path,
                     "fold is missing: give the index of the validation fold, 0 to %lld", (long long)split->folds - 1);
    else if (has_fold && split->fold >= split->folds)
        problems_add(problems, dataset_place(where, "fold"), path,
                     "there is no fold %lld; the %lld folds have the indices 0 to %lld", (long long)split->fold,
                     (long long)split->folds, (long long)split->folds - 1);
}

static void check_split(void *config, const struct node *where, const char *path, struct problems *problems) {
    struct split_config *split = config;
    bool has_validation = split->validation > 0;
    struct place place = where ? where->place : (struct place){0};
    if (split->train > 0 && (split->test > 0 || split->folds > 0 || has_validation))
        problems_add(problems, place, path,
                     "train (as torch) and test, validation or folds (as scikit-learn) exclude each other");
    else if (has_validation && split->folds > 0)
        problems_add(problems, dataset_place(where, "validation"), path,
                     "validation and folds exclude each other: each fold is for validation once; test may be combined "
                     "with both");
    else if (has_validation && split->test <= 0) { /* one part beside that for training, by its other name */
        split->test = split->validation;
        split->validation = 0;
    }
    if (split->stratify && !split->folds && (split->test <= 0 || !split->shuffle))
        problems_add(problems, dataset_place(where, "stratify"), path,
                     "stratify needs test and shuffle, as in train_test_split, or folds");
    if (split->time_series && !split->folds)
        problems_add(problems, dataset_place(where, "time_series"), path,
                     "time_series needs folds; for the last rows as validation rows write test and shuffle: false");
    else if (split->time_series && split->stratify)
        problems_add(problems, dataset_place(where, "time_series"), path,
                     "time_series and stratify exclude each other");
    check_folds(split, where, path, problems);
    check_group(split, where, path, problems);
}

const struct schema split_section =
    SCHEMA("dataset.split", struct split_config, .rows = split_rows_table, .shorthand = "test", .check = check_split);

/* ---- two parts ---- */

/* scikit-learn's train_test_split (ShuffleSplit), whose permutation starts with the validation rows, and torch's
 * random_split, whose permutation starts with the training rows. */

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

/* ---- stratified ---- */

/* train_test_split(stratify=...), scikit-learn's StratifiedShuffleSplit, with the same random draws: the number of rows
 * of each class in each part, a permutation of each class, then one of each part. Classes are in ascending order. */

/* The rows of each class, in their order. */
struct strata {
    struct member {
        int64_t class, row;
    } * members; /* (rows), by class */
    size_t count;
    size_t *sizes;               /* (count) */
    size_t *train, *test;        /* (count) rows of each class in the two parts */
    double *remainders;          /* (count) */
    int64_t *ties, *permutation; /* (rows) workspaces */
};

static int compare_class_and_row(const void *a, const void *b) {
    const struct member *x = a, *y = b;
    if (x->class != y->class) return x->class < y->class ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

static void sort_rows(const int64_t *classes, size_t rows, struct member *members) {
    for (size_t i = 0; i < rows; i++) members[i] = (struct member){classes[i], (int64_t)i};
    qsort(members, rows, sizeof *members, compare_class_and_row);
}

/* [s]: its workspaces are set. */
static void find_strata(const int64_t *classes, size_t rows, struct strata *s) {
    sort_rows(classes, rows, s->members);
    for (size_t i = 0; i < rows; i++) {
        if (i == 0 || s->members[i].class != s->members[i - 1].class) s->count++;
        s->sizes[s->count - 1]++;
    }
}

/* scikit-learn's _approximate_mode: [draws] rows in proportion to [sizes], rounded down, then up for the largest
 * remainders, with random choice among equal ones. */
static void set_proportions(const struct strata *s, const size_t *sizes, size_t draws, struct rng *rng,
                            size_t *shares) {
    size_t sum = 0, missing = draws;
    double last = INFINITY;
    for (size_t i = 0; i < s->count; i++) sum += sizes[i];
    for (size_t i = 0; i < s->count; i++) {
        double exact = (double)sizes[i] / (double)sum * (double)draws;
        shares[i] = (size_t)exact;
        s->remainders[i] = exact - floor(exact);
        missing -= shares[i];
    }
    while (missing > 0 && last > 0) {
        double largest = -1;
        size_t count = 0;
        for (size_t i = 0; i < s->count; i++)
            if (s->remainders[i] < last && s->remainders[i] > largest) largest = s->remainders[i];
        for (size_t i = 0; i < s->count; i++)
            if (s->remainders[i] == largest) s->ties[count++] = (int64_t)i;
        rng_numpy_permutation(rng, s->permutation, count);
        for (size_t i = 0; i < count && missing > 0; i++, missing--) shares[s->ties[s->permutation[i]]]++;
        last = largest;
    }
}

/* Shuffles rows (count). */
static void shuffle(const struct strata *s, struct rng *rng, int64_t *rows, size_t count) {
    rng_numpy_permutation(rng, s->permutation, count);
    for (size_t i = 0; i < count; i++) s->ties[i] = rows[s->permutation[i]];
    for (size_t i = 0; i < count; i++) rows[i] = s->ties[i];
}

static status check_sizes(const struct strata *s, size_t n_train, size_t n_test) {
    size_t first = 0;
    for (size_t i = 0; i < s->count; first += s->sizes[i++])
        if (s->sizes[i] < 2)
            return status_data("class %lld has only one row; each class needs at least two",
                               (long long)s->members[first].class);
    if (n_train >= s->count && n_test >= s->count) return OK;
    return status_data("%zu training and %zu validation rows are too few for rows of each of %zu classes", n_train,
                       n_test, s->count);
}

static void draw(const struct strata *s, const struct split_config *config, size_t n_train, size_t n_test,
                 int64_t *order) {
    struct rng rng;
    rng_seed(&rng, (uint64_t)config->seed);
    set_proportions(s, s->sizes, n_train, &rng, s->train);
    for (size_t i = 0; i < s->count; i++) s->sizes[i] -= s->train[i];
    set_proportions(s, s->sizes, n_test, &rng, s->test);
    int64_t *test = order, *train = order + n_test;
    const struct member *members = s->members;
    for (size_t i = 0; i < s->count; i++) {
        size_t size = s->sizes[i] + s->train[i];
        rng_numpy_permutation(&rng, s->permutation, size);
        for (size_t r = 0; r < s->train[i]; r++) *train++ = members[s->permutation[r]].row;
        for (size_t r = 0; r < s->test[i]; r++) *test++ = members[s->permutation[s->train[i] + r]].row;
        members += size;
    }
    shuffle(s, &rng, order + n_test, n_train);
    shuffle(s, &rng, order, n_test);
}

status split_rows_stratified(const struct split_config *config, const int64_t *classes, size_t rows, int64_t *order) {
    size_t n_train, n_test;
    SCOPED_BUFFER int64_t *memory = NULL;
    SCOPED_BUFFER struct member *members = NULL;
    split_sizes(config, rows, &n_train, &n_test);
    TRY(rows_alloc(rows, sizeof *members, "the rows", &members));
    TRY(rows_alloc(rows, 6 * sizeof *memory, "the rows", &memory));
    struct strata strata = {.members = members,
                            .sizes = (size_t *)memory,
                            .train = (size_t *)memory + rows,
                            .test = (size_t *)memory + 2 * rows,
                            .remainders = (double *)(void *)(memory + 3 * rows),
                            .ties = memory + 4 * rows,
                            .permutation = memory + 5 * rows};
    find_strata(classes, rows, &strata);
    TRY(check_sizes(&strata, n_train, n_test));
    draw(&strata, config, n_train, n_test, order);
    return OK;
}

/* ---- folds ---- */

/* scikit-learn's KFold, StratifiedKFold and TimeSeriesSplit, with the same random draws. The rows of both parts are in
 * ascending order, as split() returns them. */

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

/* The rows class by class, the classes in the order of their first appearance: members (rows). */
static void group_rows(const int64_t *classes, size_t rows, struct member *members) {
    sort_rows(classes, rows, members);
    for (size_t i = 0, first = 0; i < rows; i++) {
        bool is_new = i == 0 || members[i].class != classes[members[i - 1].row];
        if (is_new) first = i;
        members[i].class = members[first].row;
    }
    qsort(members, rows, sizeof *members, compare_class_and_row);
}

/* StratifiedKFold: the rows sorted by class are assigned to folds 0, 1, 2, ..., 0, 1, ...; this gives the number of
 * rows of each class in each fold. The rows of a class then get these folds in order or, with shuffle, in random order.
 * false: all classes have fewer rows than there are folds. */
static bool assign_stratified(const struct split_config *config, const struct member *members, size_t rows,
                              int64_t *class_folds, int64_t *permutation, int64_t *fold_of) {
    struct rng rng;
    rng_seed(&rng, (uint64_t)config->seed);
    size_t largest = 0, folds = (size_t)config->folds;
    for (size_t first = 0, end; first < rows; first = end) {
        for (end = first; end < rows && members[end].class == members[first].class;) end++;
        size_t size = end - first, at = 0;
        for (size_t fold = 0; fold < folds; fold++)
            for (size_t i = first + (fold + folds - first % folds) % folds; i < end; i += folds)
                class_folds[at++] = (int64_t)fold;
        if (config->shuffle) rng_numpy_permutation(&rng, permutation, size);
        for (size_t i = 0; i < size; i++)
            fold_of[members[first + i].row] = class_folds[config->shuffle ? (size_t)permutation[i] : i];
        if (size > largest) largest = size;
    }
    return largest >= folds;
}

enum { WORKSPACES = 5 };

/* [memory]: (WORKSPACES, rows). */
static status fill_folds(const struct split_config *config, const int64_t *classes, size_t rows, int64_t *memory,
                         int64_t *order, size_t *n_validation) {
    int64_t *fold_of = memory, *permutation = memory + rows, *class_folds = memory + 2 * rows;
    struct member *members = (struct member *)(void *)(memory + 3 * rows);
    if (!classes) {
        assign_folds(config, rows, permutation, fold_of);
    } else {
        group_rows(classes, rows, members);
        if (!assign_stratified(config, members, rows, class_folds, permutation, fold_of))
            return status_data("all classes have fewer rows than there are folds (%lld)", (long long)config->folds);
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
    SCOPED_BUFFER int64_t *memory = NULL;
    if ((size_t)config->folds > rows)
        return status_data("%zu row%s cannot be divided into %lld folds", rows, text_plural(rows, "s"),
                           (long long)config->folds);
    TRY(rows_alloc(rows, WORKSPACES * sizeof(int64_t), "the folds", &memory));
    return fill_folds(config, classes, rows, memory, order, n_validation);
}

status split_rows_time_series(const struct split_config *config, size_t rows, int64_t *order, size_t *n_validation,
                              size_t *n_train) {
    size_t folds = (size_t)config->folds, size = rows / (folds + 1),
           first = rows - (folds - (size_t)config->fold) * size;
    if (size == 0)
        return status_data("%zu row%s cannot be divided into %zu folds, each after training rows", rows,
                           text_plural(rows, "s"), folds);
    for (size_t i = 0; i < size; i++) order[i] = (int64_t)(first + i);
    for (size_t i = 0; i < first; i++) order[size + i] = (int64_t)i;
    *n_validation = size;
    *n_train = first;
    return OK;
}

/* ---- groups ---- */

/* scikit-learn's GroupShuffleSplit and GroupKFold: groups of rows are divided instead of rows. The rows of both parts
 * are in ascending order, as split() returns them. */

/* ShuffleSplit of the groups: its permutation starts with those for validation. */
static status choose_at_random(const struct split_config *config, size_t count, int64_t *permutation, bool *chosen) {
    struct rng rng;
    size_t n_train, n_validation;
    split_sizes(config, count, &n_train, &n_validation);
    if (n_train == 0) return status_data("test %g of %zu groups leaves no group to train", config->test, count);
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
    if (folds > count) return status_data("%zu groups cannot be divided into %zu folds", count, folds);
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
    SCOPED_BUFFER struct group *sorted = NULL;
    SCOPED_BUFFER size_t *sizes = NULL;
    SCOPED_BUFFER int64_t *permutation = NULL;
    TRY(rows_alloc(count, sizeof *sorted, "the groups", &sorted));
    TRY(rows_alloc((size_t)config->folds, sizeof *sizes, "the folds", &sizes));
    TRY(rows_alloc(count, sizeof *permutation, "the groups", &permutation));
    return config->folds > 0 ? choose_fold(config, groups, rows, count, sorted, sizes, chosen)
                             : choose_at_random(config, count, permutation, chosen);
}

status split_rows_grouped(const struct split_config *config, const int64_t *groups, size_t rows, size_t count,
                          int64_t *order, size_t *n_validation, size_t *validation_groups) {
    size_t at = 0;
    SCOPED_BUFFER bool *chosen = NULL;
    TRY(rows_alloc(count, sizeof *chosen, "the groups", &chosen));
    TRY(choose_groups(config, groups, rows, count, chosen));
    *validation_groups = 0;
    for (size_t i = 0; i < count; i++) *validation_groups += chosen[i];
    for (size_t i = 0; i < rows; i++)
        if (chosen[groups[i]]) order[at++] = (int64_t)i;
    *n_validation = at;
    for (size_t i = 0; i < rows; i++)
        if (!chosen[groups[i]]) order[at++] = (int64_t)i;
    return OK;
}

/* ---- three parts ---- */

/* Three parts are two splits, one after the other: first the test rows, then the rest into training and validation
 * rows, each as it would be done alone. */

bool split_has_test(const struct split_config *config) {
    return config->test > 0 && (config->validation > 0 || config->folds > 0);
}

static struct split_config first_of(const struct split_config *config) {
    struct split_config first = *config;
    first.validation = 0;
    first.folds = 0;
    first.fold = SCHEMA_NO_INT;
    first.shuffle = config->shuffle && !config->time_series;
    first.time_series = false;
    return first;
}

static struct split_config second_of(const struct split_config *config) {
    struct split_config second = *config;
    second.test = config->validation;
    second.validation = 0;
    return second;
}

void split_sizes_three(const struct split_config *config, size_t rows, struct split_counts *counts) {
    struct split_config first = first_of(config), second = second_of(config);
    *counts = (struct split_counts){0};
    if (!split_has_test(config)) {
        split_sizes(config, rows, &counts->train, &counts->validation);
        return;
    }
    split_sizes(&first, rows, &rows, &counts->test);
    split_sizes(&second, rows, &counts->train, &counts->validation);
}

/* The rows that are divided off, in order (rows) before the others. *n_other: the others that are used. */
static status split_once(const struct split_config *config, const struct split_labels *labels, size_t rows,
                         int64_t *order, size_t *n, size_t *n_other, size_t *groups) {
    size_t first_other, first, at = 0;
    *groups = 0;
    if (config->time_series) return split_rows_time_series(config, rows, order, n, n_other);
    status s = OK;
    if (!config->folds) split_sizes(config, rows, n_other, n);
    if (config->group) {
        s = split_rows_grouped(config, labels->groups, rows, labels->group_count, order, n, groups);
    } else if (config->folds) {
        s = split_rows_folds(config, labels->classes, rows, order, n);
    } else if (config->stratify) {
        s = split_rows_stratified(config, labels->classes, rows, order);
    } else if (config->shuffle) {
        split_rows(config, rows, order, &first_other, &first);
    } else {
        for (size_t i = *n_other; i < rows; i++) order[at++] = (int64_t)i;
        for (size_t i = 0; i < *n_other; i++) order[at++] = (int64_t)i;
    }
    if (!s) *n_other = rows - *n;
    return s;
}

/* Numbers the groups that remain, in their order, and returns their count. [numbers]: (count) workspace. */
static size_t renumber(int64_t *groups, size_t rows, int64_t *numbers, size_t count) {
    size_t remaining = 0;
    memset(numbers, 0, count * sizeof *numbers);
    for (size_t i = 0; i < rows; i++) numbers[groups[i]] = 1;
    for (size_t i = 0; i < count; i++)
        if (numbers[i]) numbers[i] = (int64_t)remaining++;
    for (size_t i = 0; i < rows; i++) groups[i] = numbers[groups[i]];
    return remaining;
}

/* Divides rest (n), the rows that are not for the test. [memory]: (3, n) and (labels->group_count). */
static status split_rest(const struct split_config *config, const struct split_labels *labels, int64_t *rest, size_t n,
                         int64_t *memory, struct split_counts *counts) {
    int64_t *order = memory, *own = memory + n, *copy = memory + 2 * n;
    struct split_labels of = {0};
    struct split_config second = second_of(config);
    const int64_t *from = config->group ? labels->groups : config->stratify ? labels->classes : NULL;
    for (size_t i = 0; from && i < n; i++) own[i] = from[rest[i]];
    if (config->group)
        of = (struct split_labels){.groups = own, .group_count = renumber(own, n, memory + 3 * n, labels->group_count)};
    else
        of.classes = from ? own : NULL;
    counts->groups = of.group_count;
    TRY(split_once(&second, &of, n, order, &counts->validation, &counts->train, &counts->validation_groups));
    memcpy(copy, rest, n * sizeof *rest);
    for (size_t i = 0; i < counts->validation + counts->train; i++) rest[i] = copy[order[i]];
    return OK;
}

status split_rows_three(const struct split_config *config, const struct split_labels *labels, size_t rows,
                        int64_t *order, struct split_counts *counts) {
    struct split_config first = first_of(config);
    size_t rest, groups;
    *counts = (struct split_counts){0};
    TRY(status_prefix(split_once(&first, labels, rows, order, &counts->test, &rest, &groups), "the test rows"));
    if (rest == 0) return status_data("test %g of %zu rows leaves no other row", config->test, rows);
    SCOPED_BUFFER int64_t *memory = NULL;
    TRY(rows_alloc(3 * rest + labels->group_count, sizeof *memory, "the rows", &memory));
    TRY(split_rest(config, labels, order + counts->test, rest, memory, counts));
    if (counts->train > 0) return OK;
    return status_data("test %g and validation %g of %zu rows leave no training row", config->test, config->validation,
                       rows);
}
