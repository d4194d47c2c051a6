/* baseline: how well the targets of validation rows are predicted from the training targets alone, without their
 * inputs: scikit-learn's DummyClassifier and DummyRegressor. */
#pragma once

#include "data/dataset/dataset.h"

enum baseline_kind {
    BASELINE_NONE,
    BASELINE_CLASS, /* always the most frequent class of the training rows */
    BASELINE_MEAN,  /* always the mean of the training rows, of each target */
    BASELINE_LAST   /* of windows: the target in the last row of the inputs */
};
/* "always the most frequent class", ...; (BASELINE_NONE) NULL. */
extern const char *const baseline_names[];

struct baseline {
    enum baseline_kind kind;
    double accuracy;          /* BASELINE_CLASS: over the targets that the loss counts */
    double squared, absolute; /* of the others: means of the errors of targets as they are scaled for the loss */
};

/* One pass over the targets of both parts. BASELINE_NONE where they are not in memory, are tokens, have weights or
 * names, or there are no validation rows. */
struct baseline baseline_of(const struct dataset *dataset);
