/* The table of metrics: name, required counts, kinds of outputs, formula. */
#include "train/metrics/evaluation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "train/metrics/tally.h"
#include "train/parallel/row_gather.h"

struct evaluation {
    struct evaluation_options options;
    struct tally *tally;       /* NULL: the sums of the loss are enough */
    struct loss_sums *sums;    /* on the device until evaluation_finish */
    float *outputs;            /* (batch, out_size) copy on the host; NULL: not needed, or the device is the host */
    int32_t *lengths;          /* (batch) copy of the lengths of rows; NULL likewise */
    struct row_gather *gather; /* for a loss that compares the rows of all ranks; NULL: none, or one rank */
    double rows;
    size_t batches;  /* so far */
    size_t out_size; /* of a row */

    /* With several losses: an evaluation of each, and nothing of the above but options and rows. */
    const struct objective *objective; /* NULL: one loss */
    struct evaluation **terms;         /* (objective->count) */
    struct string_list *term_metrics;  /* (objective->count): those that fit the loss */
    void *host_targets;                /* (batch, targets of one loss) */
    const char **names;                /* (EVALUATION_MAX_METRICS) of the results */
    struct arena *arena;               /* of lists and names */
};

/* ---- formulas ---- */

/* Counts of one class: correct predictions, all predictions, targets. */
struct class_counts {
    double correct, predicted, actual;
};

static struct class_counts counts_in(const double *confusion, size_t classes, size_t c) {
    struct class_counts sums = {.correct = confusion[c * classes + c]};
    for (size_t i = 0; i < classes; i++) {
        sums.predicted += confusion[i * classes + c];
        sums.actual += confusion[c * classes + i];
    }
    return sums;
}

static struct class_counts counts_of(const struct tally *t, size_t c) { return counts_in(t->confusion, t->classes, c); }

static double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }
static double precision_of(struct class_counts s) { return ratio(s.correct, s.predicted); }
static double recall_of(struct class_counts s) { return ratio(s.correct, s.actual); }
static double iou_of(struct class_counts s) { return ratio(s.correct, s.predicted + s.actual - s.correct); }
static double f1_of(struct class_counts s) { return ratio(2 * s.correct, s.predicted + s.actual); }

struct class_scores evaluation_class_scores(const struct evaluation_result *result, size_t class) {
    struct class_counts s = counts_in(result->confusion, result->classes, class);
    return (struct class_scores){precision_of(s), recall_of(s), f1_of(s), iou_of(s), s.actual};
}

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

/* The mean recall of the classes that occur as target; of binary decisions of both classes. */
static status balanced_accuracy(const struct evaluation *e, double *out) {
    const struct tally *t = e->tally;
    double sum = 0, present = 0;
    for (size_t c = 0; c < t->classes; c++) {
        struct class_counts s = counts_of(t, c);
        sum += recall_of(s);
        present += s.actual > 0;
    }
    *out = ratio(sum, present);
    return OK;
}

static status f1(const struct evaluation *e, double *out) {
    *out = macro(e->tally, f1_of);
    return OK;
}

static status mean_iou(const struct evaluation *e, double *out) {
    *out = macro(e->tally, iou_of);
    return OK;
}

static status auc(const struct evaluation *e, double *out) { return tally_auc(e->tally, out); }

static status average_precision(const struct evaluation *e, double *out) {
    return tally_average_precision(e->tally, out);
}

/* Mean over all elements; [sum]: TALLY_ABSOLUTE, ... */
static double mean_of(const struct evaluation *e, size_t sum) {
    double total = 0, number = 0;
    for (size_t i = 0; i < e->out_size; i++) {
        total += e->tally->values[i * TALLY_VALUE_SUMS + sum];
        number += e->tally->values[i * TALLY_VALUE_SUMS + TALLY_NUMBER];
    }
    return ratio(total, number);
}

static status mae(const struct evaluation *e, double *out) {
    *out = mean_of(e, TALLY_ABSOLUTE);
    return OK;
}

static status mape(const struct evaluation *e, double *out) {
    *out = mean_of(e, TALLY_RELATIVE);
    return OK;
}

/* Mean over outputs of the root of the mean squared error. */
static status rmse(const struct evaluation *e, double *out) {
    double sum = 0, outputs = 0;
    for (size_t i = 0; i < e->out_size; i++) {
        const double *v = e->tally->values + i * TALLY_VALUE_SUMS;
        sum += sqrt(ratio(v[TALLY_SQUARE], v[TALLY_NUMBER]));
        outputs += v[TALLY_NUMBER] > 0;
    }
    *out = ratio(sum, outputs);
    return OK;
}

/* Mean over outputs of 1 - sum of squared errors / sum of squared deviations; if all targets are equal: 1 without
 * errors, else 0 (as scikit-learn). */
static status r2(const struct evaluation *e, double *out) {
    double sum = 0, outputs = 0;
    for (size_t i = 0; i < e->out_size; i++) {
        const double *v = e->tally->values + i * TALLY_VALUE_SUMS;
        if (v[TALLY_NUMBER] == 0) continue; /* padding in all rows */
        sum += v[TALLY_DEVIATION] > 0 ? 1 - v[TALLY_SQUARE] / v[TALLY_DEVIATION] : v[TALLY_SQUARE] == 0;
        outputs++;
    }
    *out = ratio(sum, outputs);
    return OK;
}

/* ---- the table ---- */

enum { FOR_CLASSES = 1 << TALLY_CLASSES, FOR_BINARY = 1 << TALLY_BINARY, FOR_REALS = 1 << TALLY_REALS };

static const struct metric {
    const char *name;
    unsigned needs;                                          /* of enum tally_need */
    unsigned kinds;                                          /* of outputs */
    status (*value)(const struct evaluation *, double *out); /* NULL: the matrix, or TALLY_TOP */
    bool is_error;                                           /* smaller is better */
} metrics[] = {
    {"accuracy", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, accuracy, false},
    {"top5", TALLY_TOP, FOR_CLASSES, NULL, false}, /* and every other top<k> */
    {"perplexity", 0, FOR_CLASSES, perplexity, true},
    {"confusion_matrix", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, NULL, false},
    {"balanced_accuracy", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, balanced_accuracy, false},
    {"precision", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, precision, false},
    {"recall", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, recall, false},
    {"f1", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, f1, false},
    {"mean_iou", TALLY_CONFUSION, FOR_CLASSES | FOR_BINARY, mean_iou, false},
    {"auc", TALLY_SCORES, FOR_CLASSES | FOR_BINARY, auc, false},
    {"average_precision", TALLY_SCORES, FOR_CLASSES | FOR_BINARY, average_precision, false},
    {"mae", TALLY_VALUES, FOR_BINARY | FOR_REALS, mae, true},
    {"rmse", TALLY_VALUES, FOR_BINARY | FOR_REALS, rmse, true},
    {"mape", TALLY_VALUES, FOR_REALS, mape, true},
    {"r2", TALLY_VALUES, FOR_BINARY | FOR_REALS, r2, false},
};
#define MAX_K_DIGITS 6 /* of top<k> */
#define METRICS (sizeof metrics / sizeof *metrics)

/* The k of "top<k>"; 0: another name. */
static size_t k_of_top(const char *name) {
    size_t k = 0;
    if (strncmp(name, "top", 3) != 0 || name[3] == '0' || strlen(name) > 3 + MAX_K_DIGITS) return 0;
    for (const char *c = name + 3; *c; c++) {
        if (*c < '0' || *c > '9') return 0;
        k = 10 * k + (size_t)(*c - '0');
    }
    return k;
}

static const struct metric *find(const char *name) {
    size_t k = k_of_top(name);
    for (size_t i = 0; i < METRICS; i++)
        if (strcmp(metrics[i].name, name) == 0 || (k && metrics[i].needs == TALLY_TOP)) return &metrics[i];
    return NULL;
}

static bool ends_with(const char *name, const char *suffix) {
    size_t length = strlen(name), end = strlen(suffix);
    return length > end + 1 && name[length - end - 1] == '_' && strcmp(name + length - end, suffix) == 0;
}

bool evaluation_is_error(const char *name) {
    const struct metric *metric = find(name);
    if (metric) return metric->is_error;
    for (size_t i = 0; i < METRICS; i++)
        if (metrics[i].is_error && ends_with(name, metrics[i].name)) return true;
    return ends_with(name, "loss");
}

static enum tally_kind kind_of(const struct loss_type *loss) {
    return loss->wants_classes ? TALLY_CLASSES : loss->is_binary ? TALLY_BINARY : TALLY_REALS;
}

static bool fits(const struct metric *metric, const struct loss_type *loss) {
    if (loss->aligns_targets) return metric->value == accuracy;
    return !loss->parts && metric->kinds & 1u << kind_of(loss);
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
    size_t tops = 0;
    if (names->count > EVALUATION_MAX_METRICS)
        return status_new(STATUS_USAGE, "at most %d metrics, got %zu", EVALUATION_MAX_METRICS, names->count);
    for (size_t i = 0; i < names->count; i++) {
        const struct metric *metric = find(names->items[i]);
        if (!metric) return unknown(names->items[i], schema);
        if (!fits(metric, loss))
            return status_new(STATUS_USAGE, "the metric '%s' does not fit the loss '%s', which is one of %s",
                              names->items[i], loss->variant.name,
                              loss->parts            ? "several vectors"
                              : loss->aligns_targets ? "aligned classes, with the accuracy of whole rows"
                                                     : kinds[kind]);
        for (size_t other = 0; other < i; other++)
            if (strcmp(names->items[other], names->items[i]) == 0)
                return status_new(STATUS_USAGE, "the metric '%s' is given twice", names->items[i]);
        tops += metric->needs == TALLY_TOP;
    }
    if (tops <= TALLY_MAX_TOPS) return OK;
    return status_new(STATUS_USAGE, "at most %d metrics top<k>, got %zu", TALLY_MAX_TOPS, tops);
}

bool evaluation_fits(const char *name, const struct loss_type *loss) {
    const struct metric *metric = find(name);
    return metric && fits(metric, loss);
}

status evaluation_check_terms(const struct string_list *names, const struct variant_list *losses,
                              const struct schema *schema) {
    size_t count = 0;
    for (size_t i = 0; i < names->count; i++) {
        struct string_list one = {&names->items[i], 1};
        status s = status_new(STATUS_USAGE, "the metric '%s' is for one loss", names->items[i]);
        bool fits = false;
        for (size_t l = 0; l < losses->count && strcmp(names->items[i], "confusion_matrix") != 0; l++) {
            status_free(s);
            s = evaluation_check(&one, loss_type_at((size_t)losses->items[l].index), schema);
            fits = fits || !s;
            count += !s;
            if (!s) s = status_new(STATUS_USAGE, "fits");
        }
        for (size_t other = 0; other < i && fits; other++)
            if (strcmp(names->items[other], names->items[i]) == 0)
                return status_free(s), status_new(STATUS_USAGE, "the metric '%s' is given twice", names->items[i]);
        if (!fits) return s;
        status_free(s);
    }
    if (count + 2 * losses->count <= EVALUATION_MAX_METRICS) return OK;
    return status_new(STATUS_USAGE, "at most %d metrics of all losses, got %zu", EVALUATION_MAX_METRICS,
                      count + 2 * losses->count);
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
    struct tally_options tally = {.needs = needs_of(options),
                                  .kind = kind_of(loss),
                                  .out_size = shape_elements(options->output),
                                  .positions = loss->wants_classes ? options->info->target_size : 1,
                                  .rows = options->rows,
                                  .has_ignored = loss->ignored != NULL,
                                  .ignored = loss->ignored ? loss->ignored(options->loss_config) : 0,
                                  .has_weights = options->info->has_weights,
                                  .is_logarithm = loss_predicts_logarithms(loss, options->loss_config),
                                  .target_scale = options->info->target_scale,
                                  .comm = options->comm};
    for (size_t i = 0; i < options->metrics->count; i++) {
        size_t k = k_of_top(options->metrics->items[i]);
        if (k) tally.tops[tally.top_count++] = k;
    }
    return tally;
}

/* ---- several losses ---- */

/* The evaluation of the loss [index]: its own rows of outputs and targets. */
static struct evaluation_options options_of_term(const struct evaluation *e, size_t index, struct dataset_info *info) {
    const struct objective_term *t = &e->objective->terms[index];
    struct evaluation_options options = e->options;
    *info = *e->options.info;
    info->target_size = t->target.size;
    info->classes = t->target.classes;
    options.info = info;
    options.loss = t->loss;
    options.loss_config = t->config;
    options.output = &t->output.shape;
    options.metrics = &e->term_metrics[index];
    return options;
}

static status create_terms(struct evaluation *e) {
    const struct string_list *names = e->options.metrics;
    size_t count = e->objective->count, widest = 0;
    e->arena = arena_create();
    e->names = arena_alloc(e->arena, EVALUATION_MAX_METRICS * sizeof *e->names);
    e->terms = arena_alloc(e->arena, count * sizeof *e->terms);
    e->term_metrics = arena_alloc(e->arena, count * sizeof *e->term_metrics);
    for (size_t i = 0; i < count; i++) {
        struct string_list *list = &e->term_metrics[i];
        const struct objective_term *t = &e->objective->terms[i];
        struct dataset_info *info = arena_alloc(e->arena, sizeof *info);
        list->items = arena_alloc(e->arena, (names->count + 1) * sizeof *list->items);
        for (size_t n = 0; n < names->count; n++)
            if (evaluation_fits(names->items[n], t->loss)) list->items[list->count++] = names->items[n];
        struct evaluation_options options = options_of_term(e, i, info);
        TRY(evaluation_create(&options, &e->terms[i]));
        if (t->target.size > widest) widest = t->target.size;
    }
    return buffer_new(e->options.batch * widest * sizeof(int64_t), "the targets", &e->host_targets);
}

/* evaluation_add_loss has split the outputs. */
static status add_term_metrics(const struct evaluation *e, const struct batch *host) {
    struct batch own = *host;
    own.targets = e->host_targets;
    for (size_t i = 0; i < e->objective->count; i++) {
        objective_host_targets(e->objective, i, host->targets, host->rows, e->host_targets);
        TRY(evaluation_add_metrics(e->terms[i], e->objective->terms[i].outputs, &own));
    }
    return OK;
}

static void add_named(const struct evaluation *e, struct evaluation_result *out, const char *loss, const char *metric,
                      double value) {
    const char **name = &e->names[out->metric_count];
    if (!*name) *name = arena_printf(e->arena, "%s_%s", loss, metric); /* the same in each evaluation */
    out->metrics[out->metric_count++] = (struct evaluation_metric){*name, value};
}

static status finish_terms(struct evaluation *e, struct evaluation_result *out) {
    *out = (struct evaluation_result){0};
    for (size_t i = 0; i < e->objective->count; i++) {
        const struct objective_term *t = &e->objective->terms[i];
        struct evaluation_result result = {0};
        TRY(evaluation_finish(e->terms[i], &result));
        out->rows = result.rows;
        out->loss += t->weight * result.loss;
        add_named(e, out, t->name, "loss", result.loss);
        if (result.has_accuracy) add_named(e, out, t->name, "accuracy", result.accuracy);
        for (size_t m = 0; m < result.metric_count; m++)
            add_named(e, out, t->name, result.metrics[m].name, result.metrics[m].value);
    }
    return OK;
}

static void destroy_terms(struct evaluation *e) {
    for (size_t i = 0; e->terms && i < e->objective->count; i++) evaluation_destroy(e->terms[i]);
    buffer_free(e->host_targets);
    if (e->arena) arena_destroy(e->arena);
}

/* ---- the evaluation ---- */

static status check_padding(const struct loss_type *loss, const struct shape *output, const struct string_list *names) {
    for (size_t i = 0; loss->is_binary && output->lengths && i < names->count; i++)
        if (find(names->items[i])->needs == TALLY_SCORES)
            return status_new(STATUS_USAGE,
                              "train.metrics: %s cannot leave out the padding of rows in binary decisions",
                              names->items[i]);
    return OK;
}

status evaluation_check_size(const struct evaluation_options *options) {
    const struct objective *objective = options->loss->is_objective ? options->loss_config : NULL;
    for (size_t i = 0; objective && i < objective->count; i++)
        TRY(check_padding(objective->terms[i].loss, &objective->terms[i].output.shape, options->metrics));
    if (objective) return OK; /* without confusion matrices */
    TRY(check_padding(options->loss, options->output, options->metrics));
    struct tally_options tally = tally_of(options);
    return tally_check(&tally);
}

static status create_gather(const struct evaluation_options *options, struct row_gather **out) {
    int world = comm_world_size(options->comm);
    if (world == 1) return OK;
    /* through the host: nothing else limits the wait for a rank that is lost in an evaluation */
    TRY(row_gather_create(options->comm, NULL, options->batch, out));
    for (int r = 0; r < world; r++) {
        size_t first, rows;
        sampler_evaluation_range(options->all_rows, r, world, &first, &rows);
        row_gather_set_rows(*out, r, rows);
    }
    return OK;
}

status evaluation_create(const struct evaluation_options *options, struct evaluation **out) {
    struct evaluation *e = calloc(1, sizeof *e);
    if (!e) return status_memory("an evaluation");
    e->options = *options;
    e->objective = options->loss->is_objective ? options->loss_config : NULL;
    if (e->objective) {
        status failure = create_terms(e);
        if (failure)
            evaluation_destroy(e);
        else
            *out = e;
        return failure;
    }
    e->out_size = shape_elements(options->output);
    struct tally_options tally = tally_of(options);
    status s = device_alloc(options->device, sizeof *e->sums, "the sums of a loss", (void **)&e->sums);
    if (!s)
        s = loss_prepare(options->loss, options->loss_config, options->device, options->output,
                         options->info->target_size, options->batch, (size_t)comm_world_size(options->comm));
    if (!s && options->loss->compares_rows) s = create_gather(options, &e->gather);
    if (!s && tally.needs) s = tally_create(&tally, &e->tally);
    if (!s && e->tally && !device_is_host(options->device))
        s = buffer_new(options->batch * e->out_size * sizeof *e->outputs, "the outputs", (void **)&e->outputs);
    if (!s && e->outputs && options->output->lengths)
        s = buffer_new(options->batch * sizeof *e->lengths, "the lengths of rows", (void **)&e->lengths);
    if (s) {
        evaluation_destroy(e);
        return s;
    }
    *out = e;
    return OK;
}

void evaluation_destroy(struct evaluation *evaluation) {
    if (!evaluation) return;
    destroy_terms(evaluation);
    tally_destroy(evaluation->tally);
    row_gather_destroy(evaluation->gather);
    buffer_free(evaluation->outputs);
    buffer_free(evaluation->lengths);
    device_free(evaluation->options.device, evaluation->sums);
    free(evaluation);
}

void evaluation_start(struct evaluation *evaluation) {
    for (size_t i = 0; evaluation->objective && i < evaluation->objective->count; i++)
        evaluation_start(evaluation->terms[i]);
    if (evaluation->objective) return;
    device_zero(evaluation->options.device, evaluation->sums, sizeof *evaluation->sums);
    evaluation->rows = 0;
    evaluation->batches = 0;
    if (evaluation->tally) tally_start(evaluation->tally);
}

void evaluation_add_loss(const struct evaluation *evaluation, const float *outputs, const struct batch *batch) {
    const struct evaluation_options *o = &evaluation->options;
    const struct objective *objective = evaluation->objective;
    if (batch->rows == 0 && !loss_compares_rows(o->loss, o->loss_config)) return;
    struct row_weights weights = loss_weights(o->model, o->output, batch->weights, true);
    weights.target_size = o->info->target_size;
    weights.all = row_gather_batch(evaluation->gather, evaluation->batches);
    struct batch own = *batch;
    if (objective && batch->rows) objective_split(objective, o->device, outputs, batch->targets, batch->rows);
    for (size_t i = 0; objective && i < objective->count; i++) {
        own.targets = objective->terms[i].targets;
        evaluation_add_loss(evaluation->terms[i], objective->terms[i].outputs, &own);
    }
    if (objective) return;
    o->loss->run(o->loss_config, o->device, o->output, outputs, batch->targets, &weights, batch->rows, 1, NULL,
                 evaluation->sums);
}

status evaluation_add_metrics(struct evaluation *evaluation, const float *outputs, const struct batch *host) {
    const struct evaluation_options *o = &evaluation->options;
    if (evaluation->objective) return add_term_metrics(evaluation, host);
    TRY(row_gather_take_failure(evaluation->gather));
    evaluation->rows += (double)host->rows;
    evaluation->batches++;
    if (!evaluation->tally) return OK;
    if (evaluation->outputs) {
        size_t bytes = host->rows * evaluation->out_size * sizeof *outputs;
        TRY(device_download(o->device, evaluation->outputs, outputs, bytes));
        outputs = evaluation->outputs;
    }
    struct row_weights weights = loss_weights(o->model, o->output, host->weights, true);
    if (weights.lengths && evaluation->lengths) {
        TRY(device_download(o->device, evaluation->lengths, weights.lengths, host->rows * sizeof *evaluation->lengths));
        weights.lengths = evaluation->lengths;
    }
    tally_add(evaluation->tally, outputs, host->targets, &weights, host->rows);
    return OK;
}

status evaluation_add(struct evaluation *evaluation, const float *outputs, const struct batch *batch,
                      const struct batch *host) {
    evaluation_add_loss(evaluation, outputs, batch);
    return evaluation_add_metrics(evaluation, outputs, host);
}

status evaluation_add_no_rows(struct evaluation *evaluation) {
    static const struct batch none = {0};
    evaluation_add_loss(evaluation, NULL, &none);
    return evaluation_add_metrics(evaluation, NULL, &none);
}

static status add_metrics(const struct evaluation *e, struct evaluation_result *out) {
    const struct string_list *names = e->options.metrics;
    size_t top = 0;
    for (size_t i = 0; i < names->count; i++) {
        const struct metric *metric = find(names->items[i]);
        if (is_given_by_loss(&e->options, metric)) continue;
        size_t k = k_of_top(names->items[i]);
        if (!metric->value && !k) {
            out->confusion = e->tally->confusion;
            out->classes = e->tally->classes;
            continue;
        }
        struct evaluation_metric *m = &out->metrics[out->metric_count++];
        m->name = names->items[i];
        if (k) m->value = ratio(e->tally->top[top++], e->tally->counted);
        if (!k) TRY(metric->value(e, &m->value));
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
    if (evaluation->objective) return finish_terms(evaluation, out);
    TRY(device_map(device, (void **)&evaluation->sums));
    status s = compute_result(evaluation, out);
    return status_first(s, device_unmap(device, (void **)&evaluation->sums, false));
}
