/* metric_table: the metrics of an evaluation, by name: for which losses they are, which counts they need, and their
 * values. A new metric is a formula and a row of the table in metric_table.c. */
#ifndef TRAIN_METRIC_TABLE_H
#define TRAIN_METRIC_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/schema/schema.h"
#include "model/loss.h"
#include "train/metrics/tally.h"

#define METRIC_MAX_COUNT 64 /* of an evaluation; those of all losses */

/* Checks train.metrics: STATUS_USAGE for a name that is unknown, does not fit the loss or is given twice, and for too
 * many. [schema]: of the config, for suggestions. */
status metric_check(const struct string_list *names, const struct loss_type *loss, const struct schema *schema);

/* The same for the metrics of `losses`: each must fit one of them. */
status metric_check_terms(const struct string_list *names, const struct variant_list *losses,
                          const struct schema *schema);

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

#endif
