/* Formulas take sums over the rows of all ranks. Only the areas under curves need the ranks again: they gather scores.
 */
#include "train/metrics/metric_table.h"

#include <math.h>
#include <string.h>

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

static double precision(const struct metric_sums *s) { return macro(s->tally, precision_of); }
static double recall(const struct metric_sums *s) { return macro(s->tally, recall_of); }
static double f1(const struct metric_sums *s) { return macro(s->tally, f1_of); }
static double mean_iou(const struct metric_sums *s) { return macro(s->tally, iou_of); }

static double specificity(const struct metric_sums *s) { return macro(s->tally, specificity_of); }

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
static double rmse(const struct metric_sums *s) { return mean_over_outputs(s->tally, rmse_of); }

/* 1 - [errors] / sum of squared deviations of the targets; if all targets are equal: 1 without errors, else 0 (as
 * scikit-learn). */
static double explained(const double *v, double errors) {
    return v[TALLY_DEVIATION] > 0 ? 1 - errors / v[TALLY_DEVIATION] : errors == 0;
}

/* One value has no deviations. */
static double r2_of(const double *v) { return v[TALLY_VALUES_COUNTED] > 1 ? explained(v, v[TALLY_SQUARE]) : NAN; }
static double r2(const struct metric_sums *s) { return mean_over_outputs(s->tally, r2_of); }

static double explained_variance_of(const double *v) { return explained(v, v[TALLY_ERROR_DEVIATION]); }
static double explained_variance(const struct metric_sums *s) {
    return mean_over_outputs(s->tally, explained_variance_of);
}

static double max_error(const struct metric_sums *s) {
    double max = 0;
    for (size_t i = 0; i < s->tally->options.out_size; i++)
        max = tally_larger(max, s->tally->values[i * TALLY_VALUE_SUMS + TALLY_LARGEST]);
    return max;
}

/* ---- the table ---- */

enum { FOR_CLASSES = 1 << TALLY_CLASSES, FOR_BINARY = 1 << TALLY_BINARY, FOR_REALS = 1 << TALLY_REALS };

static const struct metric {
    const char *name;
    unsigned needs;                                   /* of enum tally_need */
    unsigned kinds;                                   /* of outputs */
    double (*value)(const struct metric_sums *);      /* NULL: area, or the confusion matrix */
    status (*area)(struct tally *tally, double *out); /* all ranks */
    bool is_error;                                    /* smaller is better */
} metrics[] = {
    {"accuracy", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, .value = accuracy},
    {"top5", TALLY_TOP, FOR_CLASSES, .value = top_k}, /* and every other top<k> */
    {"perplexity", 0, FOR_CLASSES, .value = perplexity, .is_error = true},
    {"confusion_matrix", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, .value = NULL},
    {"balanced_accuracy", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, .value = balanced_accuracy},
    {"precision", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, .value = precision},
    {"recall", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, .value = recall},
    {"f1", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, .value = f1},
    {"mean_iou", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, .value = mean_iou},
    {"specificity", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, .value = specificity},
    {"mcc", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, .value = mcc},
    {"cohen_kappa", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, .value = cohen_kappa},
    {"auc", TALLY_SCORES, FOR_CLASSES | FOR_BINARY, .area = tally_auc},
    {"average_precision", TALLY_SCORES, FOR_CLASSES | FOR_BINARY, .area = tally_average_precision},
    {"mae", TALLY_VALUES, FOR_BINARY | FOR_REALS, .value = mae, .is_error = true},
    {"rmse", TALLY_VALUES, FOR_BINARY | FOR_REALS, .value = rmse, .is_error = true},
    {"mape", TALLY_VALUES, FOR_REALS, .value = mape, .is_error = true},
    {"max_error", TALLY_VALUES, FOR_REALS, .value = max_error, .is_error = true},
    {"r2", TALLY_VALUES, FOR_BINARY | FOR_REALS, .value = r2},
    {"explained_variance", TALLY_VALUES, FOR_BINARY | FOR_REALS, .value = explained_variance},
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

unsigned metric_needs(const char *name) { return find(name)->needs; }

bool metric_is_matrix(const char *name) {
    const struct metric *metric = find(name);
    return metric && !metric->value && !metric->area;
}

bool metric_is_of_loss(const char *name, const struct loss_type *loss) {
    return find(name)->value == accuracy && loss->wants_classes;
}

status metric_value(const char *name, struct tally *tally, const struct loss_sums *sums, double *out) {
    const struct metric *metric = find(name);
    if (metric->area) return metric->area(tally, out);
    bool is_defined = !(metric->needs & (TALLY_CONFUSION | TALLY_TOP)) || tally->counted > 0;
    *out = is_defined ? metric->value(&(struct metric_sums){tally, sums, metric_top_k(name)}) : NAN;
    return OK;
}

static bool ends_with(const char *name, const char *suffix) {
    size_t length = strlen(name), end = strlen(suffix);
    return length > end + 1 && name[length - end - 1] == '_' && strcmp(name + length - end, suffix) == 0;
}

bool metric_is_error(const char *name) {
    const struct metric *metric = find(name);
    if (metric) return metric->is_error;
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
    return !loss->parts && metric->kinds & 1u << metric_kind(loss);
}

bool metric_fits(const char *name, const struct loss_type *loss) {
    const struct metric *metric = find(name);
    return metric && fits(metric, loss);
}

static status unknown(const char *name, const struct schema *schema) {
    const char *known[METRICS + 1] = {0};
    struct text list = {0}, hint = {0};
    for (size_t i = 0; i < METRICS; i++) {
        known[i] = metrics[i].name;
        text_printf(&list, "%s%s", i ? ", " : "", known[i]);
    }
    schema_suggest_value(schema, "train.metrics", name, known, &hint);
    status s = status_new(STATUS_USAGE, "unknown metric '%.40s'%s%s (known: %s)", name, hint.length ? "; " : "",
                          text_string(&hint), text_string(&list));
    text_free(&hint);
    text_free(&list);
    return s;
}

static status check_fit(const char *name, const struct loss_type *loss, const struct schema *schema) {
    static const char *const kinds[] = {"classes", "binary decisions", "values"};
    const struct metric *metric = find(name);
    if (!metric) return unknown(name, schema);
    if (fits(metric, loss)) return OK;
    return status_new(STATUS_USAGE, "the metric '%s' does not fit the loss '%s', which is one of %s", name,
                      loss->variant.name,
                      loss->parts            ? "several vectors"
                      : loss->aligns_targets ? "aligned classes, with the accuracy of whole rows"
                                             : kinds[metric_kind(loss)]);
}

/* Whether name [index] is not one of those before it. */
static status check_once(const struct string_list *names, size_t index) {
    const struct string_list before = {names->items, index};
    if (!string_list_has(&before, names->items[index])) return OK;
    return status_new(STATUS_USAGE, "the metric '%s' is given twice", names->items[index]);
}

static status check_tops(const struct string_list *names) {
    size_t tops = 0;
    for (size_t i = 0; i < names->count; i++) tops += metric_needs(names->items[i]) == TALLY_TOP;
    if (tops <= TALLY_MAX_TOPS) return OK;
    return status_new(STATUS_USAGE, "at most %d metrics top<k>, got %zu", TALLY_MAX_TOPS, tops);
}

status metric_check(const struct string_list *names, const struct loss_type *loss, const struct schema *schema) {
    if (names->count > METRIC_MAX_COUNT)
        return status_new(STATUS_USAGE, "at most %d metrics, got %zu", METRIC_MAX_COUNT, names->count);
    for (size_t i = 0; i < names->count; i++) {
        TRY(check_fit(names->items[i], loss, schema));
        TRY(check_once(names, i));
    }
    return check_tops(names);
}

static const struct loss_type *loss_of(const struct variant_list *losses, size_t index) {
    return loss_type_at((size_t)losses->items[index].index);
}

/* *fitting: the number of [losses] that the metric fits. */
static status check_fit_of_terms(const char *name, const struct variant_list *losses, const struct schema *schema,
                                 size_t *fitting) {
    const struct metric *metric = find(name);
    if (!metric) return unknown(name, schema);
    if (metric_is_matrix(name)) return status_new(STATUS_USAGE, "the metric '%s' is for one loss", name);
    *fitting = 0;
    for (size_t i = 0; i < losses->count; i++) *fitting += fits(metric, loss_of(losses, i));
    return *fitting ? OK : check_fit(name, loss_of(losses, losses->count - 1), schema);
}

status metric_check_terms(const struct string_list *names, const struct variant_list *losses,
                          const struct schema *schema) {
    size_t count = 2 * losses->count; /* the loss and the accuracy of each */
    for (size_t i = 0; i < names->count; i++) {
        size_t fitting = 0;
        TRY(check_fit_of_terms(names->items[i], losses, schema, &fitting));
        TRY(check_once(names, i));
        count += fitting;
    }
    TRY(check_tops(names));
    if (count <= METRIC_MAX_COUNT) return OK;
    return status_new(STATUS_USAGE, "at most %d metrics of all losses, got %zu", METRIC_MAX_COUNT, count);
}
