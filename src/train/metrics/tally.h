/* tally: the counts of an evaluation for its metrics: a confusion matrix, top-k hits, errors of values, and scores for
 * the areas under the ROC and the precision-recall curve. Only those that a metric needs are computed. */
#ifndef TRAIN_TALLY_H
#define TRAIN_TALLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/rows/target_scale.h"
#include "device/losses.h"
#include "dist/comm/comm.h"

/* The counts that a metric needs. */
enum tally_need { TALLY_CONFUSION = 1, TALLY_TOP = 2, TALLY_SCORES = 4, TALLY_VALUES = 8 };

/* The meaning of an output. */
enum tally_kind {
    TALLY_CLASSES, /* a score per class, targets int64_t */
    TALLY_BINARY,  /* each output is a logit (as a value: its probability), its target 0 to 1 (float) */
    TALLY_REALS    /* each output is a value, targets float */
};

#define TALLY_MAX_TOPS 8

struct tally_options {
    unsigned needs;
    size_t tops[TALLY_MAX_TOPS]; /* (top_count) numbers k of TALLY_TOP */
    size_t top_count;
    enum tally_kind kind;
    size_t out_size; /* of a row */
    /* TALLY_CLASSES: targets of a row, out_size / positions is the number of classes. Others: positions with
     * lengths, whose values are those of the same outputs; 1: none. */
    size_t positions;
    size_t rows; /* maximum of this rank */
    bool has_ignored, has_weights;
    bool is_logarithm;                       /* TALLY_REALS: outputs are logarithms of values */
    int64_t ignored;                         /* a target that is not counted */
    const struct target_scale *target_scale; /* of TALLY_REALS: outputs are scaled by it, targets are not; NULL: not */
    struct comm *comm;
};

struct tally {
    struct tally_options options;
    size_t classes;             /* of the confusion matrix: 2 for TALLY_BINARY */
    size_t columns;             /* of the scores */
    double *confusion;          /* (classes, classes) rows: targets; counts or sums of weights */
    double top[TALLY_MAX_TOPS]; /* (options.top_count) targets among the k largest outputs */
    double counted;             /* classes or decisions, or the sum of their weights */
    float *scores;              /* (rows * positions, columns) */
    uint8_t *labels;            /* the same: whether the target is the class of the column */
    float *score_weights;       /* (rows * positions) of the rows of [scores]; NULL: all 1 */
    size_t collected;           /* rows of [scores] and [labels] */
    /* of values, per output: number of values; sums of |error|, error^2, |error / target|, weights; mean and squared
     * deviations of the targets, and of the errors; the largest |error| */
    double *values;   /* (out_size, TALLY_VALUE_SUMS) */
    double *gathered; /* (world, out_size, TALLY_VALUE_SUMS) */
};
enum {
    TALLY_VALUES_COUNTED,
    TALLY_ABSOLUTE,
    TALLY_SQUARE,
    TALLY_RELATIVE,
    TALLY_NUMBER,
    TALLY_MEAN,
    TALLY_DEVIATION,
    TALLY_ERROR_MEAN,
    TALLY_ERROR_DEVIATION,
    TALLY_LARGEST,
    TALLY_VALUE_SUMS
};

/* The larger of two; NAN if one of them is. */
double tally_larger(double a, double b);

/* STATUS_USAGE when the confusion matrix would be too large. comm may be NULL. */
status tally_check(const struct tally_options *options);

status tally_create(const struct tally_options *options, struct tally **out);
void tally_destroy(struct tally *tally); /* takes NULL */

void tally_start(struct tally *tally);
/* targets: int64_t of classes, else float; with target_scale double, in the unit of the file. [weights]: of the rows,
 * in host memory. A row of weight 0, and a position that is padding, is not counted. */
void tally_add(struct tally *tally, const float *outputs, const void *targets, const struct row_weights *weights,
               size_t rows);
/* Sums the counts over all ranks, except the scores. All ranks. */
status tally_reduce(struct tally *tally);

/* The exact area under the ROC curve over all ranks: all scores are sorted, ties count half. With several columns the
 * mean of those with both labels (one class against the rest); NAN when none has both. All ranks. */
status tally_auc(struct tally *tally, double *out);

/* Likewise the average precision, as scikit-learn's average_precision_score. The mean of the columns with positive
 * labels; NAN when none has any. All ranks. */
status tally_average_precision(struct tally *tally, double *out);

#endif
