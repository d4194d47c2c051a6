/* The table of metrics: name, required counts, kinds of outputs, formula. */
#include "train/metrics/evaluation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "train/metrics/tally.h"

struct evaluation {
    struct evaluation_options options;
    struct tally *tally;    /* NULL: the sums of the loss are enough */
    struct loss_sums *sums; /* on the device until evaluation_finish */
    float *outputs;         /* (batch, out_size) copy on the host; NULL: not needed, or the device is the host */
    double rows;
    size_t out_size; /* of a row */
};

/* ---- formulas ---- */

/* Counts of one class: correct predictions, all predictions, targets. */
struct class_counts {
    double correct, predicted, actual;
};

static struct class_counts counts_of(const struct tally *t, size_t c) {
    struct class_counts sums = {.correct = t->confusion[c * t->classes + c]};
    for (size_t i = 0; i < t->classes; i++) {
        sums.predicted += t->confusion[i * t->classes + c];
        sums.actual += t->confusion[c * t->classes + i];
    }
    return sums;
}

static double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }
static double precision_of(struct class_counts s) { return ratio(s.correct, s.predicted); }
static double recall_of(struct class_counts s) { return ratio(s.correct, s.actual); }
static double f1_of(struct class_counts s) { return ratio(2 * s.correct, s.predicted + s.actual); }

/* The mean over the classes that occur as target or prediction; for binary decisions the value of the positive class.
 */
static double macro(const struct tally *t, double (*measure)(struct class_counts)) {
    double sum = 0, present = 0;
    if (t->options.kind == TALLY_BINARY) return measure(counts_of(t, 1));
    for (size_t c = 0; c < t->classes; c++) {
        struct class_counts s = counts_of(t, c);
        if (s.predicted + s.actual == 0) continue;
        sum += measure(s);
        present++;
    }
    return ratio(sum, present);
}

static status accuracy(const struct evaluation *e, double *out) {
    const struct tally *t = e->tally;
    double correct = 0;
    for (size_t c = 0; c < t->classes; c++) correct += t->confusion[c * t->classes + c];
    *out = ratio(correct, t->counted);
    return OK;
}

static status top5(const struct evaluation *e, double *out) {
    *out = ratio(e->tally->top5, e->tally->counted);
    return OK;
}

static status perplexity(const struct evaluation *e, double *out) {
    *out = exp(e->sums->loss / e->sums->count);
    return OK;
}

static status precision(const struct evaluation *e, double *out) {
    *out = macro(e->tally, precision_of);
    return OK;
}

static status recall(const struct evaluation *e, double *out) {
    *out = macro(e->tally, recall_of);
    return OK;
}

static status f1(const struct evaluation *e, double *out) {
    *out = macro(e->tally, f1_of);
    return OK;
}

static status auc(const struct evaluation *e, double *out) { return tally_auc(e->tally, out); }

static status mae(const struct evaluation *e, double *out) {
    double sum = 0, number = 0;
    for (size_t i = 0; i < e->out_size; i++) {
        sum += e->tally->values[i * TALLY_VALUE_SUMS + TALLY_ABSOLUTE];
        number += e->tally->values[i * TALLY_VALUE_SUMS + TALLY_NUMBER];
    }
    *out = ratio(sum, number);
    return OK;
}

/* Mean over outputs of the root of the mean squared error. */
static status rmse(const struct evaluation *e, double *out) {
    double sum = 0;
    for (size_t i = 0; i < e->out_size; i++) {
        const double *v = e->tally->values + i * TALLY_VALUE_SUMS;
        sum += sqrt(ratio(v[TALLY_SQUARE], v[TALLY_NUMBER]));
    }
    *out = sum / (double)e->out_size;
    return OK;
}

/* Mean over outputs of 1 - sum of squared errors / sum of squared deviations; if all targets are equal: 1 without
 * errors, else 0 (as scikit-learn). */
static status r2(const struct evaluation *e, double *out) {
    double sum = 0;
    for (size_t i = 0; i < e->out_size; i++) {
        const double *v = e->tally->values + i * TALLY_VALUE_SUMS;
        sum += v[TALLY_DEVIATION] > 0 ? 1 - v[TALLY_SQUARE] / v[TALLY_DEVIATION] : v[TALLY_SQUARE] == 0;
    }
    *out = sum / (double)e->out_size;
    return OK;
}

/* ---- the table ---- */

enum { FOR_CLASSES = 1 << TALLY_CLASSES, FOR_BINARY = 1 << TALLY_BINARY, FOR_REALS = 1 << TALLY_REALS };

static const struct metric {
    const char *name;
    unsigned needs; /* of enum tally_need */
    unsigned kinds; /* of outputs */
    status (*value)(const struct evaluation *, double *out);
    bool is_error; /* smaller is better */
} metrics[] = {
    {"accuracy", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, accuracy, false},
    {"top5", TALLY_TOP5, FOR_CLASSES, top5, false},
    {"perplexity", 0, FOR_CLASSES, perplexity, true},
    {"confusion_matrix", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, NULL, false},
    {"precision", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, precision, false},
    {"recall", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, recall, false},
    {"f1", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, f1, false},
    {"auc", TALLY_SCORES, FOR_CLASSES | FOR_BINARY, auc, false},
    {"mae", TALLY_VALUES, FOR_BINARY | FOR_REALS, mae, true},
    {"rmse", TALLY_VALUES, FOR_BINARY | FOR_REALS, rmse, true},
    {"r2", TALLY_VALUES, FOR_BINARY | FOR_REALS, r2, false},
};
#define METRICS (sizeof metrics / sizeof *metrics)

static const struct metric *find(const char *name) {
    for (size_t i = 0; i < METRICS; i++)
        if (strcmp(metrics[i].name, name) == 0) return &metrics[i];
    return NULL;
}

bool evaluation_is_error(const char *name) {
    const struct metric *metric = find(name);
    return metric && metric->is_error;
}

static enum tally_kind kind_of(const struct loss_type *loss) {
    return loss->wants_classes ? TALLY_CLASSES : loss->is_binary ? TALLY_BINARY : TALLY_REALS;
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

status evaluation_check(const struct string_list *names, const struct loss_type *loss, const struct schema *schema) {
    static const char *const kinds[] = {"classes", "binary decisions", "values"};
    enum tally_kind kind = kind_of(loss);
    if (names->count > EVALUATION_MAX_METRICS)
        return status_new(STATUS_USAGE, "at most %d metrics, got %zu", EVALUATION_MAX_METRICS, names->count);
    for (size_t i = 0; i < names->count; i++) {
        const struct metric *metric = find(names->items[i]);
        if (!metric) return unknown(names->items[i], schema);
        if (!(metric->kinds & 1u << kind))
            return status_new(STATUS_USAGE, "the metric '%s' does not fit the loss '%s', which is one of %s",
                              metric->name, loss->variant.name, kinds[kind]);
        for (size_t other = 0; other < i; other++)
            if (strcmp(names->items[other], metric->name) == 0)
                return status_new(STATUS_USAGE, "the metric '%s' is given twice", metric->name);
    }
    return OK;
}

/* ---- counting ---- */

/* Whether the sums of the loss contain the metric. */
static bool is_given_by_loss(const struct evaluation_options *options, const struct metric *metric) {
    return metric->value == accuracy && options->loss->wants_classes;
}

static unsigned needs_of(const struct evaluation_options *options) {
    unsigned needs = 0;
    for (size_t i = 0; i < options->metrics->count; i++) {
        const struct metric *metric = find(options->metrics->items[i]);
        if (!is_given_by_loss(options, metric)) needs |= metric->needs;
    }
    return needs;
}

static struct tally_options tally_of(const struct evaluation_options *options) {
    const struct loss_type *loss = options->loss;
    return (struct tally_options){.needs = needs_of(options),
                                  .kind = kind_of(loss),
                                  .out_size = shape_elements(options->output),
                                  .positions = loss->wants_classes ? options->info->target_size : 1,
                                  .rows = options->rows,
                                  .has_ignored = loss->ignored != NULL,
                                  .ignored = loss->ignored ? loss->ignored(options->loss_config) : 0,
                                  .target_scale = options->info->target_scale,
                                  .comm = options->comm};
}

status evaluation_check_size(const struct evaluation_options *options) {
    struct tally_options tally = tally_of(options);
    return tally_check(&tally);
}

status evaluation_create(const struct evaluation_options *options, struct evaluation **out) {
    struct evaluation *e = calloc(1, sizeof *e);
    if (!e) return status_memory("an evaluation");
    e->options = *options;
    e->out_size = shape_elements(options->output);
    struct tally_options tally = tally_of(options);
    status s = device_alloc(options->device, sizeof *e->sums, "the sums of a loss", (void **)&e->sums);
    if (!s && tally.needs) s = tally_create(&tally, &e->tally);
    if (!s && e->tally && !device_is_host(options->device))
        s = buffer_new(options->batch * e->out_size * sizeof *e->outputs, "the outputs", (void **)&e->outputs);
    if (s) {
        evaluation_destroy(e);
        return s;
    }
    *out = e;
    return OK;
}

void evaluation_destroy(struct evaluation *evaluation) {
    if (!evaluation) return;
    tally_destroy(evaluation->tally);
    buffer_free(evaluation->outputs);
    device_free(evaluation->options.device, evaluation->sums);
    free(evaluation);
}

void evaluation_start(struct evaluation *evaluation) {
    device_zero(evaluation->options.device, evaluation->sums, sizeof *evaluation->sums);
    evaluation->rows = 0;
    if (evaluation->tally) tally_start(evaluation->tally);
}

void evaluation_add_loss(const struct evaluation *evaluation, const float *outputs, const void *targets, size_t rows) {
    const struct evaluation_options *o = &evaluation->options;
    o->loss->run(o->loss_config, o->device, o->output, outputs, targets, rows, 1, NULL, evaluation->sums);
}

status evaluation_add_metrics(struct evaluation *evaluation, const float *outputs, const void *host_targets,
                              size_t rows) {
    const struct evaluation_options *o = &evaluation->options;
    evaluation->rows += (double)rows;
    if (!evaluation->tally) return OK;
    if (evaluation->outputs) {
        size_t bytes = rows * evaluation->out_size * sizeof *outputs;
        TRY(device_download(o->device, evaluation->outputs, outputs, bytes));
        outputs = evaluation->outputs;
    }
    tally_add(evaluation->tally, outputs, host_targets, rows);
    return OK;
}

status evaluation_add(struct evaluation *evaluation, const float *outputs, const void *targets,
                      const void *host_targets, size_t rows) {
    evaluation_add_loss(evaluation, outputs, targets, rows);
    return evaluation_add_metrics(evaluation, outputs, host_targets, rows);
}

static status add_metrics(const struct evaluation *e, struct evaluation_result *out) {
    const struct string_list *names = e->options.metrics;
    for (size_t i = 0; i < names->count; i++) {
        const struct metric *metric = find(names->items[i]);
        if (is_given_by_loss(&e->options, metric)) continue;
        if (!metric->value) {
            out->confusion = e->tally->confusion;
            out->classes = e->tally->classes;
            continue;
        }
        struct evaluation_metric *m = &out->metrics[out->metric_count++];
        m->name = metric->name;
        TRY(metric->value(e, &m->value));
    }
    return OK;
}

static status compute_result(struct evaluation *evaluation, struct evaluation_result *out) {
    struct loss_sums *sums = evaluation->sums;
    double totals[] = {sums->loss, sums->count, sums->correct, sums->scored, evaluation->rows};
    TRY(comm_all_reduce(evaluation->options.comm, totals, 5, COMM_FLOAT64, COMM_SUM));
    *sums = (struct loss_sums){.loss = totals[0], .count = totals[1], .correct = totals[2], .scored = totals[3]};
    if (evaluation->tally) TRY(tally_reduce(evaluation->tally));
    *out = (struct evaluation_result){.rows = (int64_t)totals[4],
                                      .loss = sums->loss / sums->count,
                                      .has_accuracy = evaluation->options.loss->wants_classes,
                                      .accuracy = ratio(sums->correct, sums->scored)};
    return add_metrics(evaluation, out);
}

status evaluation_finish(struct evaluation *evaluation, struct evaluation_result *out) {
    struct device *device = evaluation->options.device;
    TRY(device_map(device, (void **)&evaluation->sums));
    status s = compute_result(evaluation, out);
    return status_first(s, device_unmap(device, (void **)&evaluation->sums, false));
}
