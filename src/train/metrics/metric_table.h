/* metric_table: the metrics of an evaluation. A tally counts what they need: a confusion matrix, top-k hits, errors of
 * values, and scores for the areas under the ROC and the precision-recall curve; only those that a metric needs are
 * computed. A new metric is a formula of the tally and a row of the table in metric_table.c. */
#pragma once

#include "base/schema/schema.h"
#include "data/rows/target_scale.h"
#include "device/losses.h"
#include "dist/comm/comm.h"
#include "model/loss.h"

/* ---- counts ---- */

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

/* ---- metrics by name: for which losses they are, which counts they need, and their values ---- */

#define METRIC_MAX_COUNT 64 /* of an evaluation; those of all losses */

/* train.metrics: a list of names, or a mapping from names to expressions (docs/expressions.md). */
struct metric_list {
    struct string_list names;
    const char **formulas; /* (names.count) NULL: a metric of the table */
};

/* The list of a config: [items], and the names that they were given under. In [arena]. */
struct metric_list metric_list_of(const struct string_list *items, const struct string_groups *groups,
                                  struct arena *arena);

/* The names of the variables of a metric: outputs, targets, the weight of a row. */
enum { METRIC_OUTPUT, METRIC_TARGET, METRIC_WEIGHT };
extern const char *const metric_variables[];

/* Checks train.metrics: STATUS_USAGE for a name that is unknown, does not fit the loss or is given twice, and for too
 * many. [schema]: of the config, for suggestions. */
status metric_check(const struct metric_list *list, const struct loss_type *loss, const struct schema *schema);

/* The same for the metrics of `losses`: each must fit one of them. */
status metric_check_terms(const struct metric_list *list, const struct variant_list *losses,
                          const struct schema *schema);

/* Whether a metric of the user may have this name, which becomes a field of metrics.jsonl and of the output of eval. */
status metric_check_name(const char *name);

/* Whether the program itself has the metric [name]. */
bool metric_is_known(const char *name);

/* Whether the value of [name] is a matrix; false for an unknown name. */
bool metric_is_matrix(const char *name);

/* Whether the metric [name] can be measured for [loss]; false for an unknown name. */
bool metric_fits(const char *name, const struct loss_type *loss);

/* Whether smaller values of [name] are better: a metric, or "<loss>_<metric>" of several losses. */
bool metric_is_error(const char *name);

/* What the outputs of [loss] mean. */
enum tally_kind metric_kind(const struct loss_type *loss);

/* ---- of a name that metric_check has accepted ---- */

/* Bits of enum tally_need; 0: only the sums of the loss. */
unsigned metric_needs(const char *name);

/* The k of "top<k>"; 0: another metric. */
size_t metric_top_k(const char *name);

/* Whether the sums of [loss] contain the metric: the accuracy of classes. */
bool metric_is_of_loss(const char *name, const struct loss_type *loss);

/* The value of a metric that is not a matrix; NAN: not defined on these rows. [tally], NULL if no metric needs it, and
 * [sums] are those of all ranks. All ranks. */
status metric_value(const char *name, struct tally *tally, const struct loss_sums *sums, double *out);

/* ---- of one class ---- */

/* Of one class against the others; 0 where a denominator is 0. */
struct class_scores {
    double precision, recall, f1, iou, targets; /* targets: their number, or the sum of their weights */
};
/* Of [class] of a matrix (classes, classes) of counts, whose rows are targets. */
struct class_scores metric_class_scores(const double *confusion, size_t classes, size_t class);
