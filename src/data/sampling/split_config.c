/* split_config: `dataset.split`. */
#include "data/source/config.h"

static const struct schema_row split_rows_table[] = {
    {.key = "test",
     .type = SCHEMA_REAL,
     .offset = FIELD(struct split_config, test),
     .fallback = "0",
     .min = 0,
     .max = 1,
     .excludes_max = true,
     .doc = "Fraction of the rows used for validation (train_test_split's test_size), rounded up; 0: no split. With "
            "validation or folds: fraction of the rows for a test at the end of the run."},
    {.key = "validation",
     .type = SCHEMA_REAL,
     .offset = FIELD(struct split_config, validation),
     .fallback = "0",
     .min = 0,
     .max = 1,
     .excludes_max = true,
     .doc =
         "With test: fraction of the rows that remain after those of test, used for validation. The rows of test are "
         "then evaluated once, at the end of the run, and have no other effect. Alone: the same as test alone. 0: "
         "those of test are for validation."},
    {.key = "train",
     .type = SCHEMA_REAL,
     .offset = FIELD(struct split_config, train),
     .fallback = "0",
     .min = 0,
     .max = 1,
     .excludes_max = true,
     .doc = "Instead of test: fraction of the rows used for training, rounded down, chosen as torch's "
            "random_split([int(train * rows), rest], torch.Generator().manual_seed(seed)); 0: not used."},
    {.key = "folds",
     .type = SCHEMA_INT,
     .offset = FIELD(struct split_config, folds),
     .fallback = "0",
     .min = 0,
     .max = 1000000,
     .doc = "Instead of validation: number of folds of a cross-validation, at least 2; the rows of scikit-learn's "
            "KFold(n_splits=folds, shuffle=shuffle, random_state=seed), with stratify StratifiedKFold, with "
            "time_series TimeSeriesSplit, with group GroupKFold; 0: not used."},
    {.key = "fold",
     .type = SCHEMA_INT,
     .offset = FIELD(struct split_config, fold),
     .fallback = "null",
     .min = 0,
     .max = 999999,
     .doc = "With folds: the index of the validation fold, from 0, in the order of KFold.split."},
    {.key = "seed",
     .type = SCHEMA_INT,
     .offset = FIELD(struct split_config, seed),
     .fallback = "0",
     .min = 0,
     .max = 4294967295.0,
     .doc = "scikit-learn's random_state; with train the seed of random_split's generator."},
    {.key = "shuffle",
     .type = SCHEMA_BOOL,
     .offset = FIELD(struct split_config, shuffle),
     .fallback = "true",
     .doc = "false: the last rows of the file are the validation rows, or with folds each fold has adjacent rows."},
    {.key = "stratify",
     .type = SCHEMA_BOOL,
     .offset = FIELD(struct split_config, stratify),
     .fallback = "false",
     .doc = "Keep the proportion of each class in both parts (train_test_split's stratify=y), for a target that is a "
            "class, or is 0 or 1 (bce_with_logits); with test and shuffle, or with folds (StratifiedKFold)."},
    {.key = "time_series",
     .type = SCHEMA_BOOL,
     .offset = FIELD(struct split_config, time_series),
     .fallback = "false",
     .doc =
         "With folds: the rows of scikit-learn's TimeSeriesSplit(folds): each fold is validated by a model of the rows "
         "before it; later rows are not used, and none are shuffled (shuffle is not used)."},
    {.key = "group",
     .type = SCHEMA_STRING,
     .offset = FIELD(struct split_config, group),
     .fallback = "null",
     .doc =
         "CSV, SQLite: name of a column, HDF5, NPZ: of a dataset or an array of numbers, that says which rows belong "
         "together, such as those of one patient. They are in the same part: with test the rows of scikit-learn's "
         "GroupShuffleSplit(test_size=test, random_state=seed), with folds those of GroupKFold(folds), for which "
         "seed and shuffle are not used. The column is not an input. Null: none."},
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

const struct schema split_section = {.name = "dataset.split",
                                     .size = sizeof(struct split_config),
                                     .rows = split_rows_table,
                                     .shorthand = "test",
                                     .check = check_split};
