/* split: which rows are training rows and which are validation rows. */
#pragma once

#include "data/source/source.h"

/* Whether the config has a split. */
bool split_is_given(const struct split_config *config);

/* scikit-learn's train_test_split(range(rows), test_size=test, random_state=seed, shuffle=shuffle), or torch's
 * random_split(range(rows), [int(train * rows), rest], torch.Generator().manual_seed(seed)): the sizes of the parts,
 * and their rows in order (rows) from *first_train and *first_validation on. With shuffle false the first rows are the
 * training rows, and order is not used. */
void split_sizes(const struct split_config *config, size_t rows, size_t *n_train, size_t *n_validation);
void split_rows(const struct split_config *config, size_t rows, int64_t *order, size_t *first_train,
                size_t *first_validation);

/* Whether there are three parts: test rows are divided off first. */
bool split_has_test(const struct split_config *config);

/* What rows are divided by, as stratify and group say; NULL: nothing. */
struct split_labels {
    const int64_t *classes, *groups; /* (rows); groups as in split_rows_grouped */
    size_t group_count;
};

struct split_counts {
    size_t train, validation, test;
    size_t groups, validation_groups; /* of training and validation rows together, and of the latter */
};

/* With split_has_test: order (rows) gets the test rows, those for validation, and the training rows: the two splits of
 *     rest, test = train_test_split(range(rows), test_size=test, ...)
 *     train, validation = train_test_split(rest, test_size=validation, ...)
 * or with folds the second by KFold(...).split(rest); with stratify and group likewise. The test rows of time_series
 * are the last ones. */
status split_rows_three(const struct split_config *config, const struct split_labels *labels, size_t rows,
                        int64_t *order, struct split_counts *counts);
/* The sizes of the three parts of rows in order, without folds; test 0 without split_has_test. */
void split_sizes_three(const struct split_config *config, size_t rows, struct split_counts *counts);

/* The same with train_test_split's stratify=classes (rows), which must be >= 0: order (rows) gets the validation rows
 * and then the training rows. STATUS_DATA for classes of one row, or more classes than a part has rows. */
status split_rows_stratified(const struct split_config *config, const int64_t *classes, size_t rows, int64_t *order);

/* The rows of scikit-learn's KFold(folds, shuffle=shuffle, random_state=seed), or with [classes] (rows, each >= 0) of
 * StratifiedKFold: order (rows) holds the *n_validation rows of fold number [fold], ascending, and then the training
 * rows. STATUS_DATA for fewer rows than folds, or classes that are all smaller. */
status split_rows_folds(const struct split_config *config, const int64_t *classes, size_t rows, int64_t *order,
                        size_t *n_validation);

/* The rows of scikit-learn's TimeSeriesSplit(folds): order (rows) holds the *n_validation rows of fold number [fold]
 * and then the *n_train rows before them; later rows are in neither. STATUS_DATA for too few rows. */
status split_rows_time_series(const struct split_config *config, size_t rows, int64_t *order, size_t *n_validation,
                              size_t *n_train);

/* The rows of scikit-learn's GroupShuffleSplit(test_size=test, random_state=seed), or with folds of GroupKFold(folds),
 * which does not draw: all rows of a group are in the same part. [groups] (rows): 0 .. count - 1, in the order of
 * numpy.unique. order (rows) holds the *n_validation rows of *validation_groups groups, ascending, and then the
 * training rows. STATUS_DATA if there are too few groups. */
status split_rows_grouped(const struct split_config *config, const int64_t *groups, size_t rows, size_t count,
                          int64_t *order, size_t *n_validation, size_t *validation_groups);
