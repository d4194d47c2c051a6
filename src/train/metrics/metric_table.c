/* Formulas take sums over the rows of all ranks. Only the areas under curves need the ranks again: they gather scores.
 */
#include "train/metrics/metric_table.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/numbers/statistics.h"
#include "base/scoped.h"
#include "train/metrics/own_metric.h"

/* ---- counts ---- */

/* Counts are whole numbers in double, so their sums over ranks are exact; with weights they are sums of weights.
 * Squared deviations are combined from the means of the ranks (Chan et al. 1979), because sums of squares would lose
 * small deviations. */

#define MAX_CONFUSION_BYTES ((size_t)64 << 20)
#define MAX_OWN_NAME 100

static size_t classes_of(const struct tally_options *o) {
    return o->kind == TALLY_CLASSES ? o->out_size / o->positions : 2;
}

status tally_check(const struct tally_options *options) {
    size_t classes = classes_of(options);
    if (!(options->needs & TALLY_CONFUSION) || classes <= MAX_CONFUSION_BYTES / sizeof(double) / classes) return OK;
    return status_usage("train.metrics: a confusion matrix of %zu classes is too large", classes);
}

static status allocate(struct tally *t) {
    const struct tally_options *o = &t->options;
    size_t values = o->out_size * TALLY_VALUE_SUMS * sizeof *t->values;
    size_t rows = o->rows * o->positions, scores = rows * t->columns;
    TRY(tally_check(o));
    if (o->needs & TALLY_CONFUSION)
        TRY(buffer_new(t->classes * t->classes * sizeof *t->confusion, "the confusion matrix", (void **)&t->confusion));
    if (o->needs & TALLY_SCORES) {
        TRY(buffer_new(scores * sizeof *t->scores, "the scores of the metrics", (void **)&t->scores));
        TRY(buffer_new(scores * sizeof *t->labels, "the labels of the metrics", (void **)&t->labels));
        if (o->has_weights)
            TRY(buffer_new(rows * sizeof *t->score_weights, "the weights of scores", (void **)&t->score_weights));
    }
    if (!(o->needs & TALLY_VALUES)) return OK;
    TRY(buffer_new(values, "the metrics", (void **)&t->values));
    return buffer_new(values * (size_t)comm_world_size(o->comm), "the metrics of all ranks", (void **)&t->gathered);
}

status tally_create(const struct tally_options *options, struct tally **out) {
    struct tally *t = calloc(1, sizeof *t);
    if (!t) return status_memory("the metrics");
    t->options = *options;
    t->classes = classes_of(options);
    /* with two classes, one score is enough */
    t->columns = options->kind != TALLY_CLASSES ? options->out_size / options->positions
                 : t->classes == 2              ? 1
                                                : t->classes;
    status s = allocate(t);
    if (s) tally_destroy(t);
    if (!s) *out = t;
    return s;
}

void tally_destroy(struct tally *tally) {
    if (!tally) return;
    buffer_free(tally->confusion);
    buffer_free(tally->scores);
    buffer_free(tally->labels);
    buffer_free(tally->score_weights);
    buffer_free(tally->values);
    buffer_free(tally->gathered);
    free(tally);
}

void tally_start(struct tally *tally) {
    memset(tally->top, 0, sizeof tally->top);
    tally->counted = 0;
    tally->collected = 0;
    if (tally->confusion) memset(tally->confusion, 0, tally->classes * tally->classes * sizeof *tally->confusion);
    if (tally->values) memset(tally->values, 0, tally->options.out_size * TALLY_VALUE_SUMS * sizeof *tally->values);
}

/* ---- classes ---- */

/* A target is among the k statistics_largest if fewer than k classes have a larger score, or an equal one and a smaller
 * number. */
static void add_tops(struct tally *t, const float *z, size_t target, double weight) {
    size_t before = 0;
    for (size_t c = 0; c < t->classes; c++) before += z[c] > z[target] || (z[c] == z[target] && c < target);
    for (size_t i = 0; i < t->options.top_count; i++) t->top[i] += before < t->options.tops[i] ? weight : 0;
}

/* The score is the probability of each class; for two classes the difference of the logits, which has the same order.
 */
static void add_scores(struct tally *t, const float *z, size_t target, double weight) {
    float *scores = t->scores + t->collected * t->columns, max = z[statistics_largest(z, t->classes)];
    uint8_t *labels = t->labels + t->collected * t->columns;
    double sum = 0;
    if (t->score_weights) t->score_weights[t->collected] = (float)weight;
    t->collected++;
    if (t->classes == 2) {
        *scores = z[1] - z[0];
        *labels = target == 1;
        return;
    }
    for (size_t c = 0; c < t->classes; c++) sum += exp((double)z[c] - (double)max);
    for (size_t c = 0; c < t->classes; c++) {
        scores[c] = (float)(exp((double)z[c] - (double)max) / sum);
        labels[c] = target == c;
    }
}

/* Of element [i] of [size] of [row]; 0: padding. */
static double weight_of(const struct row_weights *weights, size_t row, size_t i, size_t size) {
    if (weights->lengths && i / (size / weights->positions) >= (size_t)weights->lengths[row]) return 0;
    return weights->values ? (double)weights->values[row] : 1;
}

static void add_classes(struct tally *t, const float *outputs, const int64_t *targets,
                        const struct row_weights *weights, size_t positions) {
    const struct tally_options *o = &t->options;
    for (size_t i = 0; i < positions; i++) {
        const float *z = outputs + i * t->classes;
        double weight = weight_of(weights, i / o->positions, i % o->positions, o->positions);
        if (weight == 0 || (o->has_ignored && targets[i] == o->ignored)) continue;
        size_t target = (size_t)targets[i];
        t->counted += weight;
        if (t->confusion) t->confusion[target * t->classes + statistics_largest(z, t->classes)] += weight;
        if (o->needs & TALLY_TOP) add_tops(t, z, target, weight);
        if (t->scores) add_scores(t, z, target, weight);
    }
}

/* ---- binary decisions and values ---- */

/* One for each output, or with lengths for each output of each position that is not padding. */
static void add_decision_scores(struct tally *t, const float *outputs, const float *targets,
                                const struct row_weights *weights, size_t rows) {
    size_t positions = t->options.positions, columns = t->columns;
    for (size_t i = 0; i < rows * positions; i++) {
        float *scores = t->scores + t->collected * columns;
        uint8_t *labels = t->labels + t->collected * columns;
        if (weights->lengths && i % positions >= (size_t)weights->lengths[i / positions]) continue;
        for (size_t c = 0; c < columns; c++) {
            scores[c] = outputs[i * columns + c];
            labels[c] = targets[i * columns + c] > 0.5f;
        }
        if (t->score_weights) t->score_weights[t->collected] = weights->values ? weights->values[i / positions] : 1;
        t->collected++;
    }
}

static void add_decisions(struct tally *t, const float *outputs, const float *targets,
                          const struct row_weights *weights, size_t rows) {
    size_t size = t->options.out_size;
    for (size_t i = 0; i < rows * size; i++) {
        bool is_positive = targets[i] > 0.5f;
        double weight = weight_of(weights, i / size, i % size, size);
        t->counted += weight;
        if (t->confusion) t->confusion[2 * is_positive + (outputs[i] > 0)] += weight;
    }
    if (t->scores) add_decision_scores(t, outputs, targets, weights, rows);
}

/* The probability 1 / (1 + exp(-z)) of a logit z, the value of a logarithm; else the output itself. */
static double value_of(const struct tally *t, float output) {
    if (t->options.is_logarithm) return exp((double)output);
    return t->options.kind == TALLY_BINARY ? 1 / (1 + exp(-(double)output)) : (double)output;
}

/* In the unit of the file. */
static double unscaled(const struct tally *t, size_t element, double value) {
    const struct target_scale *scale = t->options.target_scale;
    return scale ? target_scale_undo(scale, element, value) : value;
}

/* d = y - mean;  mean += d (w / n);  deviation += w d (y - mean), where n includes w. Equal values have exactly their
 * mean, and no deviation. */
static void add_deviation(double *mean, double *deviation, double y, double weight, double n) {
    double d = y - *mean;
    *mean += d * (weight / n);
    *deviation += weight * d * (y - *mean);
}

/* The larger of two; NAN if one of them is. */
static double larger(double a, double b) { return a > b || isnan(a) ? a : b; }

static void add_reals(struct tally *t, const float *outputs, const void *targets, const struct row_weights *weights,
                      size_t rows) {
    size_t size = t->options.out_size;
    for (size_t i = 0; i < rows * size; i++) {
        double *v = t->values + i % size * TALLY_VALUE_SUMS;
        double y = t->options.target_scale ? ((const double *)targets)[i] : (double)((const float *)targets)[i],
               x = unscaled(t, i % size, value_of(t, outputs[i]));
        double error = x - y, weight = weight_of(weights, i / size, i % size, size);
        if (weight == 0) continue;
        v[TALLY_VALUES_COUNTED]++;
        v[TALLY_ABSOLUTE] += weight * fabs(error);
        v[TALLY_SQUARE] += weight * (error * error);
        v[TALLY_RELATIVE] += weight * (fabs(error) / fmax(fabs(y), DBL_EPSILON));
        v[TALLY_NUMBER] += weight;
        add_deviation(&v[TALLY_MEAN], &v[TALLY_DEVIATION], y, weight, v[TALLY_NUMBER]);
        add_deviation(&v[TALLY_ERROR_MEAN], &v[TALLY_ERROR_DEVIATION], error, weight, v[TALLY_NUMBER]);
        v[TALLY_LARGEST] = larger(v[TALLY_LARGEST], fabs(error));
    }
}

void tally_add(struct tally *tally, const float *outputs, const void *targets, const struct row_weights *weights,
               size_t rows) {
    if (tally->options.kind == TALLY_CLASSES)
        add_classes(tally, outputs, targets, weights, rows * tally->options.positions);
    if (tally->options.kind == TALLY_BINARY) add_decisions(tally, outputs, targets, weights, rows);
    if (tally->values) add_reals(tally, outputs, targets, weights, rows);
}

/* ---- all ranks ---- */

/* d = mb - ma;  mean = ma + d (nb / n);  deviation = da + db + d^2 na nb / n, where n = na + nb > 0 */
static void combine_deviation(double *a, const double *b, size_t mean, size_t deviation) {
    double n = a[TALLY_NUMBER] + b[TALLY_NUMBER], d = b[mean] - a[mean];
    a[deviation] += b[deviation] + d * d * a[TALLY_NUMBER] * b[TALLY_NUMBER] / n;
    a[mean] += d * (b[TALLY_NUMBER] / n);
}

static void combine(double *a, const double *b) {
    if (b[TALLY_NUMBER] == 0) return;
    combine_deviation(a, b, TALLY_MEAN, TALLY_DEVIATION);
    combine_deviation(a, b, TALLY_ERROR_MEAN, TALLY_ERROR_DEVIATION);
    a[TALLY_VALUES_COUNTED] += b[TALLY_VALUES_COUNTED];
    a[TALLY_ABSOLUTE] += b[TALLY_ABSOLUTE];
    a[TALLY_SQUARE] += b[TALLY_SQUARE];
    a[TALLY_RELATIVE] += b[TALLY_RELATIVE];
    a[TALLY_NUMBER] += b[TALLY_NUMBER];
    a[TALLY_LARGEST] = larger(a[TALLY_LARGEST], b[TALLY_LARGEST]);
}

/* The real positions of rows of different lengths are values of the same outputs: all become those of the first. */
static void combine_positions(struct tally *t) {
    size_t size = t->options.out_size / t->options.positions * TALLY_VALUE_SUMS;
    for (double *v = t->values + size; v < t->values + t->options.positions * size; v += TALLY_VALUE_SUMS) {
        double *to = t->values + (size_t)(v - t->values) % size;
        combine(to, v);
    }
    memset(t->values + size, 0, (t->options.positions - 1) * size * sizeof *t->values);
}

status tally_reduce(struct tally *tally) {
    struct comm *comm = tally->options.comm;
    size_t size = tally->options.out_size * TALLY_VALUE_SUMS;
    TRY(comm_all_reduce(comm, tally->top, TALLY_MAX_TOPS, COMM_FLOAT64, COMM_SUM));
    TRY(comm_all_reduce(comm, &tally->counted, 1, COMM_FLOAT64, COMM_SUM));
    if (tally->confusion)
        TRY(comm_all_reduce(comm, tally->confusion, tally->classes * tally->classes, COMM_FLOAT64, COMM_SUM));
    if (!tally->values) return OK;
    TRY(comm_all_gather(comm, tally->values, size, COMM_FLOAT64, tally->gathered));
    memset(tally->values, 0, size * sizeof *tally->values);
    for (int rank = 0; rank < comm_world_size(comm); rank++)
        for (size_t i = 0; i < size; i += TALLY_VALUE_SUMS)
            combine(tally->values + i, tally->gathered + (size_t)rank * size + i);
    if (tally->options.positions > 1) combine_positions(tally);
    return OK;
}

/* ---- areas under curves ---- */

/* The areas under the ROC and the precision-recall curve. One column at a time is gathered from all ranks, to need less
 * memory. */

struct scored {
    float score, label, weight;
};

/* The statistics_largest score first. */
static int by_score(const void *a, const void *b) {
    float x = ((const struct scored *)a)->score, y = ((const struct scored *)b)->score;
    return (x < y) - (x > y);
}

#define SCORED_FLOATS (sizeof(struct scored) / sizeof(float))

/* Equal scores that are next to each other, from *[i] on, which is moved after them. */
struct ties {
    double positive, negative; /* sums of weights */
};

static struct ties next_ties(const struct scored *sorted, size_t count, size_t *i) {
    struct ties ties = {0};
    for (float score = sorted[*i].score; *i < count && sorted[*i].score == score; ++*i)
        *(sorted[*i].label > 0 ? &ties.positive : &ties.negative) += (double)sorted[*i].weight;
    return ties;
}

/* The area under the ROC curve, where ties count half; NAN without both labels.
 * U = for each negative the positives above it, and half of those equal to it;  area = U / (positives * negatives), all
 * of them sums of weights */
static double roc_area(const struct scored *sorted, size_t count) {
    double positives = 0, negatives = 0, u = 0;
    for (size_t i = 0; i < count;) {
        struct ties ties = next_ties(sorted, count, &i);
        u += ties.negative * (positives + ties.positive / 2);
        positives += ties.positive;
        negatives += ties.negative;
    }
    return positives > 0 && negatives > 0 ? u / (positives * negatives) : NAN;
}

/* As scikit-learn's average_precision_score; NAN without positive labels.
 * AP = sum over different scores of precision times increase of recall;  precision = positives / (positives +
 * negatives) of the scores that are not smaller;  recall = their positives / all positives */
static double precision_area(const struct scored *sorted, size_t count) {
    double positives = 0, negatives = 0, sum = 0;
    for (size_t i = 0; i < count;) {
        struct ties ties = next_ties(sorted, count, &i);
        positives += ties.positive;
        negatives += ties.negative;
        if (ties.positive > 0) sum += ties.positive * (positives / (positives + negatives));
    }
    return positives > 0 ? sum / positives : NAN;
}

/* Buffers to gather a column: at most [max] scores from each of [world] ranks. */
struct gathering {
    struct scored *own, *all; /* (max), (world, max) */
    int64_t *counts;          /* (world) */
    size_t max, world;
};

static status gather(struct tally *t, size_t column, struct gathering *g, size_t *count) {
    for (size_t i = 0; i < t->collected; i++)
        g->own[i] = (struct scored){t->scores[i * t->columns + column], t->labels[i * t->columns + column],
                                    t->score_weights ? t->score_weights[i] : 1};
    TRY(comm_all_gather(t->options.comm, g->own, SCORED_FLOATS * g->max, COMM_FLOAT32, g->all));
    *count = 0;
    for (size_t rank = 0; rank < g->world; rank++)
        for (size_t i = 0; i < (size_t)g->counts[rank]; i++) g->all[(*count)++] = g->all[rank * g->max + i];
    return OK;
}

/* The area under a curve of [count] scores, the statistics_largest first; NAN: not defined. */
typedef double area_fn(const struct scored *sorted, size_t count);

static status mean_area(struct tally *t, area_fn *area, struct gathering *g, double *out) {
    double sum = 0, defined = 0;
    for (size_t column = 0; column < t->columns; column++) {
        size_t count = 0;
        bool has_nan = false;
        TRY(gather(t, column, g, &count));
        for (size_t i = 0; i < count; i++) has_nan |= isnan(g->all[i].score);
        if (has_nan) continue;
        qsort(g->all, count, sizeof *g->all, by_score);
        double value = area(g->all, count);
        if (isnan(value)) continue;
        sum += value;
        defined++;
    }
    *out = defined > 0 ? sum / defined : NAN;
    return OK;
}

/* The exact area over all ranks. With several columns the mean of those where it is defined (one class against the
 * rest); NAN when it is for none. All ranks. */
static status gather_area(struct tally *tally, area_fn *area, double *out) {
    struct gathering g = {.world = (size_t)comm_world_size(tally->options.comm)};
    int64_t own = (int64_t)tally->collected;
    g.counts = calloc(g.world, sizeof *g.counts);
    if (!g.counts) return status_memory("the metrics");
    status s = comm_all_gather(tally->options.comm, &own, 1, COMM_INT64, g.counts);
    for (size_t i = 0; i < g.world; i++)
        if ((size_t)g.counts[i] > g.max) g.max = (size_t)g.counts[i];
    g.own = calloc(g.max + 1, sizeof *g.own);
    g.all = calloc(g.world * g.max + 1, sizeof *g.all);
    if (!s && (!g.own || !g.all)) s = status_memory("the metrics");
    if (!s) s = mean_area(tally, area, &g, out);
    free(g.own);
    free(g.all);
    free(g.counts);
    return s;
}

/* ---- formulas ---- */

/* What a formula reads. */
struct metric_sums {
    const struct tally *tally;    /* NULL: no metric needs it */
    const struct loss_sums *loss; /* on the host */
    size_t k;                     /* of top<k> */
};

static double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

/* ---- one class ---- */

/* Counts of one class: correct predictions, all predictions, targets; others: targets of other classes. */
struct class_counts {
    double correct, predicted, actual, others;
};

static struct class_counts counts_of(const double *confusion, size_t classes, size_t c) {
    struct class_counts counts = {.correct = confusion[c * classes + c]};
    for (size_t i = 0; i < classes; i++) {
        counts.predicted += confusion[i * classes + c];
        counts.actual += confusion[c * classes + i];
    }
    return counts;
}

static double precision_of(struct class_counts n) { return ratio(n.correct, n.predicted); }
static double recall_of(struct class_counts n) { return ratio(n.correct, n.actual); }
static double iou_of(struct class_counts n) { return ratio(n.correct, n.predicted + n.actual - n.correct); }
static double f1_of(struct class_counts n) { return ratio(2 * n.correct, n.predicted + n.actual); }
static double specificity_of(struct class_counts n) {
    return n.others > 0 ? 1 - (n.predicted - n.correct) / n.others : 0;
}

struct class_scores metric_class_scores(const double *confusion, size_t classes, size_t class) {
    struct class_counts n = counts_of(confusion, classes, class);
    return (struct class_scores){precision_of(n), recall_of(n), f1_of(n), iou_of(n), n.actual};
}

/* ---- classes and binary decisions ---- */

/* Sums over the classes. If all rows are of one class they are exactly its counts, also where these are sums of
 * weights.
 */
struct class_sums {
    double correct, predicted, actual;
    double predicted_squares, actual_squares, products; /* of predicted and actual */
};

static struct class_sums sums_of(const struct tally *t) {
    struct class_sums sums = {0};
    for (size_t c = 0; c < t->classes; c++) {
        struct class_counts n = counts_of(t->confusion, t->classes, c);
        sums.correct += n.correct;
        sums.predicted += n.predicted;
        sums.actual += n.actual;
        sums.predicted_squares += n.predicted * n.predicted;
        sums.actual_squares += n.actual * n.actual;
        sums.products += n.predicted * n.actual;
    }
    return sums;
}

/* The mean over the classes that occur as target or prediction; for binary decisions the value of the positive class.
 */
static double macro(const struct tally *t, double (*measure)(struct class_counts)) {
    double sum = 0, present = 0, targets = sums_of(t).actual;
    bool is_binary = t->options.kind == TALLY_BINARY;
    for (size_t c = is_binary; c < t->classes; c++) {
        struct class_counts n = counts_of(t->confusion, t->classes, c);
        if (n.predicted + n.actual == 0 && !is_binary) continue;
        n.others = targets - n.actual;
        sum += measure(n);
        present++;
    }
    return ratio(sum, present);
}

static double accuracy(const struct metric_sums *s) { return ratio(sums_of(s->tally).correct, s->tally->counted); }

/* Matthews' correlation coefficient: cov(t, p) / sqrt(cov(t, t) cov(p, p)) of targets and predictions (Gorodkin 2004);
 * 0 if one of them is always the same class. */
static double mcc(const struct metric_sums *s) {
    struct class_sums n = sums_of(s->tally);
    double targets = n.actual * n.actual - n.actual_squares;
    double predictions = n.predicted * n.predicted - n.predicted_squares;
    if (targets <= 0 || predictions <= 0) return 0;
    return (n.correct * n.actual - n.products) / (sqrt(targets) * sqrt(predictions));
}

/* (accuracy - chance) / (1 - chance), where chance is the accuracy of independent predictions; NAN if chance is 1. */
static double cohen_kappa(const struct metric_sums *s) {
    struct class_sums n = sums_of(s->tally);
    double possible = n.actual * n.predicted - n.products;
    return possible > 0 ? (n.correct * n.actual - n.products) / possible : NAN;
}

/* The mean recall of the classes that occur as target; of binary decisions of both classes. */
static double balanced_accuracy(const struct metric_sums *s) {
    const struct tally *t = s->tally;
    double sum = 0, present = 0;
    for (size_t c = 0; c < t->classes; c++) {
        struct class_counts n = counts_of(t->confusion, t->classes, c);
        sum += recall_of(n);
        present += n.actual > 0;
    }
    return ratio(sum, present);
}

static double top_k(const struct metric_sums *s) {
    const struct tally *t = s->tally;
    size_t i = 0;
    while (t->options.tops[i] != s->k) i++; /* the evaluation has asked for it */
    return ratio(t->top[i], t->counted);
}

static double perplexity(const struct metric_sums *s) { return exp(s->loss->loss / s->loss->count); }

/* ---- values ---- */

/* The mean over all elements of [sum]: TALLY_ABSOLUTE, ... */
static double mean_of(const struct tally *t, size_t sum) {
    double total = 0, number = 0;
    for (size_t i = 0; i < t->options.out_size; i++) {
        total += t->values[i * TALLY_VALUE_SUMS + sum];
        number += t->values[i * TALLY_VALUE_SUMS + TALLY_NUMBER];
    }
    return ratio(total, number);
}

/* The mean over the outputs of [measure] of an output's sums (TALLY_VALUE_SUMS); without those that are padding in all
 * rows. */
static double mean_over_outputs(const struct tally *t, double (*measure)(const double *sums)) {
    double sum = 0, outputs = 0;
    for (size_t i = 0; i < t->options.out_size; i++) {
        const double *v = t->values + i * TALLY_VALUE_SUMS;
        if (v[TALLY_NUMBER] == 0) continue;
        sum += measure(v);
        outputs++;
    }
    return ratio(sum, outputs);
}

static double mae(const struct metric_sums *s) { return mean_of(s->tally, TALLY_ABSOLUTE); }
static double mape(const struct metric_sums *s) { return mean_of(s->tally, TALLY_RELATIVE); }

static double rmse_of(const double *v) { return sqrt(v[TALLY_SQUARE] / v[TALLY_NUMBER]); }

/* 1 - [errors] / sum of squared deviations of the targets; if all targets are equal: 1 without errors, else 0 (as
 * scikit-learn). */
static double explained(const double *v, double errors) {
    return v[TALLY_DEVIATION] > 0 ? 1 - errors / v[TALLY_DEVIATION] : errors == 0;
}

/* One value has no deviations. */
static double r2_of(const double *v) { return v[TALLY_VALUES_COUNTED] > 1 ? explained(v, v[TALLY_SQUARE]) : NAN; }
static double explained_variance_of(const double *v) { return explained(v, v[TALLY_ERROR_DEVIATION]); }

static double max_error(const struct metric_sums *s) {
    double max = 0;
    for (size_t i = 0; i < s->tally->options.out_size; i++)
        max = larger(max, s->tally->values[i * TALLY_VALUE_SUMS + TALLY_LARGEST]);
    return max;
}

/* ---- the table ---- */

enum { FOR_CLASSES = 1 << TALLY_CLASSES, FOR_BINARY = 1 << TALLY_BINARY, FOR_REALS = 1 << TALLY_REALS };

static const struct metric {
    const char *name;
    unsigned needs; /* of enum tally_need */
    unsigned kinds; /* of outputs */
    /* One of these; the confusion matrix has none. */
    double (*value)(const struct metric_sums *);
    double (*of_class)(struct class_counts); /* macro */
    double (*of_output)(const double *sums); /* mean_over_outputs */
    area_fn *area;                           /* gather_area */
    bool is_error;                           /* smaller is better */
} metrics[] = {
    {"accuracy", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, .value = accuracy},
    {"top5", TALLY_TOP, FOR_CLASSES, .value = top_k}, /* and every other top<k> */
    {"perplexity", 0, FOR_CLASSES, .value = perplexity, .is_error = true},
    {"confusion_matrix", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, .value = NULL},
    {"balanced_accuracy", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, .value = balanced_accuracy},
    {"precision", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, .of_class = precision_of},
    {"recall", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, .of_class = recall_of},
    {"f1", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, .of_class = f1_of},
    {"mean_iou", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, .of_class = iou_of},
    {"specificity", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, .of_class = specificity_of},
    {"mcc", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, .value = mcc},
    {"cohen_kappa", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, .value = cohen_kappa},
    {"auc", TALLY_SCORES, FOR_CLASSES | FOR_BINARY, .area = roc_area},
    {"average_precision", TALLY_SCORES, FOR_CLASSES | FOR_BINARY, .area = precision_area},
    {"mae", TALLY_VALUES, FOR_BINARY | FOR_REALS, .value = mae, .is_error = true},
    {"rmse", TALLY_VALUES, FOR_BINARY | FOR_REALS, .of_output = rmse_of, .is_error = true},
    {"mape", TALLY_VALUES, FOR_REALS, .value = mape, .is_error = true},
    {"max_error", TALLY_VALUES, FOR_REALS, .value = max_error, .is_error = true},
    {"r2", TALLY_VALUES, FOR_BINARY | FOR_REALS, .of_output = r2_of},
    {"explained_variance", TALLY_VALUES, FOR_BINARY | FOR_REALS, .of_output = explained_variance_of},
};
#define MAX_K_DIGITS 6 /* of top<k> */
#define METRICS (sizeof metrics / sizeof *metrics)

size_t metric_top_k(const char *name) {
    size_t k = 0;
    if (strncmp(name, "top", 3) != 0 || name[3] == '0' || strlen(name) > 3 + MAX_K_DIGITS) return 0;
    for (const char *c = name + 3; *c; c++) {
        if (*c < '0' || *c > '9') return 0;
        k = 10 * k + (size_t)(*c - '0');
    }
    return k;
}

static const struct metric *find(const char *name) {
    size_t k = metric_top_k(name);
    for (size_t i = 0; i < METRICS; i++)
        if (strcmp(metrics[i].name, name) == 0 || (k && metrics[i].needs == TALLY_TOP)) return &metrics[i];
    return NULL;
}

bool metric_is_known(const char *name) { return find(name) != NULL; }

unsigned metric_needs(const char *name) {
    const struct metric *metric = find(name); /* NULL: of an extension */
    return metric ? metric->needs : 0;
}

bool metric_is_matrix(const char *name) { return strcmp(name, "confusion_matrix") == 0; }

bool metric_is_of_loss(const char *name, const struct loss_type *loss) {
    const struct metric *metric = find(name);
    return metric && metric->value == accuracy && loss->wants_classes;
}

status metric_value(const char *name, struct tally *tally, const struct loss_sums *sums, double *out) {
    const struct metric *metric = find(name);
    if (metric->area) return gather_area(tally, metric->area, out);
    bool is_defined = !(metric->needs & (TALLY_CONFUSION | TALLY_TOP)) || tally->counted > 0;
    *out = !is_defined         ? NAN
           : metric->of_class  ? macro(tally, metric->of_class)
           : metric->of_output ? mean_over_outputs(tally, metric->of_output)
                               : metric->value(&(struct metric_sums){tally, sums, metric_top_k(name)});
    return OK;
}

static bool ends_with(const char *name, const char *suffix) {
    size_t length = strlen(name), end = strlen(suffix);
    return length > end + 1 && name[length - end - 1] == '_' && strcmp(name + length - end, suffix) == 0;
}

bool metric_is_error(const char *name) {
    const struct metric *metric = find(name);
    const struct metric_type *own = metric_type_find(name);
    if (metric || own) return metric ? metric->is_error : own->is_error;
    for (size_t i = 0; i < METRICS; i++)
        if (metrics[i].is_error && ends_with(name, metrics[i].name)) return true;
    return ends_with(name, "loss");
}

/* ---- checks of the config ---- */

enum tally_kind metric_kind(const struct loss_type *loss) {
    return loss->wants_classes ? TALLY_CLASSES : loss->is_binary ? TALLY_BINARY : TALLY_REALS;
}

static bool fits(const struct metric *metric, const struct loss_type *loss) {
    if (loss->aligns_targets) return metric->value == accuracy;
    return !loss->parts && !loss->is_class_list && metric->kinds & 1u << metric_kind(loss);
}

bool metric_fits(const char *name, const struct loss_type *loss) {
    const struct metric *metric = find(name);
    return metric && fits(metric, loss); /* one of an extension is for one loss */
}

static status unknown(const char *name, const struct schema *schema) {
    const char *known[METRICS + 1] = {0};
    SCOPED_TEXT list = {0}, hint = {0};
    for (size_t i = 0; i < METRICS; i++) {
        known[i] = metrics[i].name;
        text_printf(&list, "%s%s", i ? ", " : "", known[i]);
    }
    schema_suggest_value(schema, "train.metrics", name, known, &hint);
    return status_usage("unknown metric '%.40s'%s%s (known: %s)", name, hint.length ? "; " : "", text_string(&hint),
                        text_string(&list));
}

static status check_fit(const char *name, const struct loss_type *loss, const struct schema *schema) {
    static const char *const kinds[] = {"classes", "binary decisions", "values"};
    const struct metric *metric = find(name);
    if (metric_type_find(name)) return OK;
    if (!metric) return unknown(name, schema);
    if (fits(metric, loss)) return OK;
    return status_usage("the metric '%s' does not fit the loss '%s', which is one of %s", name, loss->variant.name,
                        loss->parts            ? "several vectors"
                        : loss->is_class_list  ? "lists of classes"
                        : loss->aligns_targets ? "aligned classes, with the accuracy of whole rows"
                                               : kinds[metric_kind(loss)]);
}

/* Whether name [index] is not one of those before it. */
static status check_once(const struct string_list *names, size_t index) {
    const struct string_list before = {names->items, index};
    if (!string_list_has(&before, names->items[index])) return OK;
    return status_usage("the metric '%s' is given twice", names->items[index]);
}

static status check_tops(const struct metric_list *list) {
    size_t tops = 0;
    for (size_t i = 0; i < list->names.count; i++)
        tops += !list->formulas[i] && metric_needs(list->names.items[i]) == TALLY_TOP;
    if (tops <= TALLY_MAX_TOPS) return OK;
    return status_usage("at most %d metrics top<k>, got %zu", TALLY_MAX_TOPS, tops);
}

const char *const metric_variables[] = {"y", "t", "w", NULL};

struct metric_list metric_list_of(const struct string_list *items, const struct string_groups *groups,
                                  struct arena *arena) {
    struct metric_list list = {.names = *items,
                               .formulas = arena_alloc(arena, (items->count + 1) * sizeof *list.formulas)};
    if (groups->count == 0) return list;
    list.names.items = arena_alloc(arena, (items->count + 1) * sizeof *list.names.items);
    for (size_t g = 0, i = 0; g < groups->count; g++)
        for (size_t k = 0; k < groups->items[g].count; k++, i++) {
            bool is_of_table = (find(items->items[i]) || metric_type_find(items->items[i])) &&
                               strcmp(items->items[i], groups->items[g].name) == 0;
            list.names.items[i] = groups->items[g].name;
            list.formulas[i] = is_of_table ? NULL : items->items[i];
        }
    return list;
}

status metric_check_name(const char *name) {
    static const char *const fields[] = {"loss", "accuracy", "rows", "event", "part", "labels", NULL};
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    if (length == 0 || name[length] || length > MAX_OWN_NAME)
        return status_usage("the name of a metric has letters, digits and _, at most %d, got '%.40s'", MAX_OWN_NAME,
                            name);
    for (size_t i = 0; fields[i]; i++)
        if (strcmp(fields[i], name) == 0)
            return status_usage("'%s' is a field of the results already; give the metric another name", name);
    return OK;
}

static status check_name_of_formula(const char *name) {
    TRY(metric_check_name(name));
    if (!find(name) && !metric_type_find(name)) return OK;
    return status_usage("'%s' is a metric of the program: write %s: %s, or choose another name for the expression",
                        name, name, name);
}

status metric_check(const struct metric_list *list, const struct loss_type *loss, const struct schema *schema) {
    const struct string_list *names = &list->names;
    if (names->count > METRIC_MAX_COUNT)
        return status_usage("at most %d metrics, got %zu", METRIC_MAX_COUNT, names->count);
    for (size_t i = 0; i < names->count; i++) {
        TRY(list->formulas[i] ? check_name_of_formula(names->items[i]) : check_fit(names->items[i], loss, schema));
        TRY(check_once(names, i));
    }
    return check_tops(list);
}

static const struct loss_type *loss_of(const struct variant_list *losses, size_t index) {
    return loss_type_at((size_t)losses->items[index].index);
}

/* *fitting: the number of [losses] that the metric fits. */
static status check_fit_of_terms(const char *name, const struct variant_list *losses, const struct schema *schema,
                                 size_t *fitting) {
    const struct metric *metric = find(name);
    if (!metric) return unknown(name, schema);
    if (metric_is_matrix(name)) return status_usage("the metric '%s' is for one loss", name);
    *fitting = 0;
    for (size_t i = 0; i < losses->count; i++) *fitting += fits(metric, loss_of(losses, i));
    return *fitting ? OK : check_fit(name, loss_of(losses, losses->count - 1), schema);
}

status metric_check_terms(const struct metric_list *list, const struct variant_list *losses,
                          const struct schema *schema) {
    const struct string_list *names = &list->names;
    size_t count = 2 * losses->count; /* the loss and the accuracy of each */
    for (size_t i = 0; i < names->count; i++) {
        size_t fitting = 0;
        if (list->formulas[i] || metric_type_find(names->items[i]))
            return status_usage("the metric '%.40s' is %s, which is for one loss", names->items[i],
                                list->formulas[i] ? "an expression" : "of an extension");
        TRY(check_fit_of_terms(names->items[i], losses, schema, &fitting));
        TRY(check_once(names, i));
        count += fitting;
    }
    TRY(check_tops(list));
    if (count <= METRIC_MAX_COUNT) return OK;
    return status_usage("at most %d metrics of all losses, got %zu", METRIC_MAX_COUNT, count);
}
