/* The sums of the loss are computed on the device, the counts of other metrics on the host. */
#include "train/metrics/evaluation.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "device/expression.h"
#include "train/metrics/own_metric.h"
#include "train/parallel/row_gather.h"

/* A metric that is an expression: the mean over the rows of its values, weighted by w unless it has w. */
struct formula_metric {
    struct expression expression;
    uint16_t weighted, weight; /* nodes: of a row */
    double sums[2];            /* of both */
};

/* A metric of an extension. */
struct own_metric {
    const struct metric_type *type;
    struct metric_state state;
};

struct evaluation {
    struct evaluation_options options;
    struct own_metric *own; /* (own_count), in the order of the metrics */
    size_t own_count;
    struct comm *own_ranks;          /* a group of all ranks for them alone; NULL: there are none */
    struct formula_metric *formulas; /* (formula_count), in the order of the metrics */
    size_t formula_count;
    struct device *host;              /* which computes them */
    float *own_outputs, *own_targets; /* (batch, out_size), (batch, target_size): in the unit of the file, for both */
    struct tally *tally;              /* NULL: the sums of the loss are enough */
    struct loss_sums *sums;           /* on the device until evaluation_finish */
    float *outputs;            /* (batch, out_size) copy on the host; NULL: not needed, or the device is the host */
    int32_t *lengths;          /* (batch) copy of the lengths of rows; NULL likewise */
    double *file_targets;      /* (batch, target_size) in the unit of the file; NULL: targets are not scaled */
    struct row_gather *gather; /* for a loss that compares the rows of all ranks; NULL: none, or one rank */
    double rows;
    size_t batches;  /* so far */
    size_t out_size; /* of a row */

    /* With several losses: an evaluation of each, and nothing of the above but options and rows. */
    const struct objective *objective; /* NULL: one loss */
    struct evaluation **terms;         /* (objective->count) */
    struct metric_list *term_metrics;  /* (objective->count): those that fit the loss */
    void *host_targets;                /* (batch, targets of one loss) */
    const char **names;                /* (METRIC_MAX_COUNT) of the results */
    struct arena *arena;               /* of lists and names */
};

/* ---- counting ---- */

static unsigned needs_of(const struct evaluation_options *options) {
    unsigned needs = 0;
    const struct metric_list *list = options->metrics;
    for (size_t i = 0; i < list->names.count; i++)
        if (!list->formulas[i] && !metric_is_of_loss(list->names.items[i], options->loss))
            needs |= metric_needs(list->names.items[i]);
    return needs;
}

static size_t positions_of(const struct evaluation_options *options) {
    if (options->loss->wants_classes) return options->info->target_size;
    return options->output->lengths ? (size_t)options->output->size[0] : 1;
}

static struct tally_options tally_of(const struct evaluation_options *options) {
    const struct loss_type *loss = options->loss;
    struct tally_options tally = {.needs = needs_of(options),
                                  .kind = metric_kind(loss),
                                  .out_size = shape_elements(options->output),
                                  .positions = positions_of(options),
                                  .rows = options->rows,
                                  .has_ignored = loss->ignored != NULL,
                                  .ignored = loss->ignored ? loss->ignored(options->loss_config) : 0,
                                  .has_weights = options->info->has_weights,
                                  .is_logarithm = loss_predicts_logarithms(loss, options->loss_config),
                                  .target_scale = options->info->target_scale,
                                  .comm = options->comm};
    for (size_t i = 0; i < options->metrics->names.count; i++) {
        size_t k = options->metrics->formulas[i] ? 0 : metric_top_k(options->metrics->names.items[i]);
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

/* The metrics that fit [loss]. */
static struct metric_list metrics_of(const struct evaluation *e, const struct loss_type *loss) {
    const struct string_list *names = &e->options.metrics->names;
    struct metric_list list = {
        .names.items = arena_alloc(e->arena, (names->count + 1) * sizeof *list.names.items),
        .formulas = arena_alloc(e->arena, (names->count + 1) * sizeof *list.formulas),
    };
    for (size_t i = 0; i < names->count; i++)
        if (metric_fits(names->items[i], loss)) list.names.items[list.names.count++] = names->items[i];
    return list;
}

static status create_terms(struct evaluation *e) {
    size_t count = e->objective->count, widest = 0;
    e->arena = arena_create();
    e->names = arena_alloc(e->arena, METRIC_MAX_COUNT * sizeof *e->names);
    e->terms = arena_alloc(e->arena, count * sizeof *e->terms);
    e->term_metrics = arena_alloc(e->arena, count * sizeof *e->term_metrics);
    for (size_t i = 0; i < count; i++) {
        const struct objective_term *t = &e->objective->terms[i];
        struct dataset_info *info = arena_alloc(e->arena, sizeof *info);
        e->term_metrics[i] = metrics_of(e, t->loss);
        struct evaluation_options options = options_of_term(e, i, info);
        TRY(evaluation_create(&options, &e->terms[i]));
        if (t->target.size > widest) widest = t->target.size;
    }
    return buffer_new(e->options.batch * widest * sizeof(int64_t), "the targets", &e->host_targets);
}

static void add_term_losses(const struct evaluation *e, const float *outputs, const struct batch *batch) {
    const struct objective *objective = e->objective;
    struct batch own = *batch;
    if (batch->rows) objective_split(objective, e->options.device, outputs, batch->targets, batch->rows);
    for (size_t i = 0; i < objective->count; i++) {
        own.targets = objective->terms[i].targets;
        evaluation_add_loss(e->terms[i], objective->terms[i].outputs, &own);
    }
}

/* add_term_losses has split the outputs. */
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
        if (result.without_targets && !out->without_targets) out->without_targets = t->name;
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

/* ---- expressions ---- */

static bool has_formulas(const struct evaluation_options *options) {
    for (size_t i = 0; i < options->metrics->names.count; i++)
        if (options->metrics->formulas[i]) return true;
    return false;
}

static status parse_formula(const char *text, struct formula_metric *out) {
    const struct expression_options options = {.names = metric_variables};
    struct expression *e = &out->expression;
    size_t at;
    TRY(expression_parse(text, &options, e, &at, NULL));
    out->weight = expression_variable(e, METRIC_WEIGHT);
    out->weighted = expression_uses(e, METRIC_WEIGHT)
                        ? e->value
                        : expression_add(e, EXPRESSION_MULTIPLY, e->value, out->weight, 0, 0);
    return OK;
}

/* Whether the value of a row is one number, and its outputs and targets have sizes that fit. */
static status check_formula(const struct evaluation_options *o, const char *text, struct formula_metric *m) {
    size_t outputs = shape_elements(o->output), targets = o->info->target_size;
    TRY(parse_formula(text, m));
    if (o->output->lengths) return status_usage("it is of whole rows, which have different numbers of positions here");
    if (expression_uses(&m->expression, METRIC_TARGET) && outputs != targets && outputs > 1 && targets > 1)
        return status_usage("y has %zu values, but t has %zu", outputs, targets);
    const bool are_vectors[] = {outputs > 1, targets > 1, false};
    if (!expression_is_vector(&m->expression, m->expression.value, are_vectors)) return OK;
    return status_usage(
        "it is as many numbers as y or t, which have %zu and %zu, and the metric of a row is one; write "
        "mean(...) or sum(...)",
        outputs, targets);
}

/* A metric of an extension: NULL: [index] is none. */
static const struct metric_type *own_type(const struct evaluation_options *o, size_t index) {
    return o->metrics->formulas[index] ? NULL : metric_type_find(o->metrics->names.items[index]);
}

static size_t count_own(const struct evaluation_options *o) {
    size_t count = 0;
    for (size_t i = 0; i < o->metrics->names.count; i++) count += own_type(o, i) != NULL;
    return count;
}

static status check_own(const struct evaluation_options *o) {
    for (size_t i = 0; i < o->metrics->names.count; i++) {
        const struct metric_type *type = own_type(o, i);
        struct metric_state state = {0};
        if (!type) continue;
        if (o->output->lengths)
            return status_new(
                STATUS_USAGE,
                "train.metrics: the metric '%s' is of whole rows, which have different numbers of positions here",
                type->name);
        status s = own_metric_create(type, shape_elements(o->output), o->info->target_size, NULL, &state);
        own_metric_free(&state);
        TRY(s);
    }
    return OK;
}

static status check_formulas(const struct evaluation_options *o) {
    struct formula_metric *m = has_formulas(o) ? malloc(sizeof *m) : NULL;
    status s = OK;
    for (size_t i = 0; m && !s && i < o->metrics->names.count; i++)
        if (o->metrics->formulas[i])
            s = status_prefix(check_formula(o, o->metrics->formulas[i], m), "train.metrics.%s",
                              o->metrics->names.items[i]);
    free(m);
    return s;
}

static struct expression_call call_of(const struct evaluation *e, struct formula_metric *m, const float *weights,
                                      size_t rows) {
    size_t targets = expression_uses(&m->expression, METRIC_TARGET) ? e->options.info->target_size : 1;
    bool has_outputs = expression_uses(&m->expression, METRIC_OUTPUT);
    size_t outputs = has_outputs ? e->out_size : 1;
    struct expression_call call = {
        .expression = &m->expression, .rows = rows, .size = outputs > targets ? outputs : targets, .sum_count = 2};
    call.variables[METRIC_OUTPUT].values = e->own_outputs;
    call.variables[METRIC_OUTPUT].is_vector = outputs > 1;
    call.variables[METRIC_TARGET].values = e->own_targets;
    call.variables[METRIC_TARGET].is_vector = targets > 1;
    call.variables[METRIC_WEIGHT].values = weights;
    call.variables[METRIC_WEIGHT].constant = 1;
    call.sums[0].node = m->weighted;
    call.sums[0].to = &m->sums[0];
    call.sums[1].node = m->weight;
    call.sums[1].to = &m->sums[1];
    return call;
}

/* What expressions and extensions read. */
static status create_rows(struct evaluation *e) {
    const struct evaluation_options *o = &e->options;
    if (!has_formulas(o) && !count_own(o)) return OK;
    TRY(buffer_new(o->batch * e->out_size * sizeof(float), "the outputs", (void **)&e->own_outputs));
    return buffer_new(o->batch * o->info->target_size * sizeof(float), "the targets", (void **)&e->own_targets);
}

static status create_formulas(struct evaluation *e) {
    const struct evaluation_options *o = &e->options;
    if (!has_formulas(o)) return OK;
    e->formulas = calloc(o->metrics->names.count, sizeof *e->formulas);
    if (!e->formulas) return status_memory("the metrics");
    TRY(device_create("cpu", &e->host));
    for (size_t i = 0; i < o->metrics->names.count; i++) {
        if (!o->metrics->formulas[i]) continue;
        struct formula_metric *m = &e->formulas[e->formula_count++];
        TRY(parse_formula(o->metrics->formulas[i], m));
        struct expression_call call = call_of(e, m, e->own_outputs, o->batch);
        TRY(device_ops(e->host)->formulas->prepare(e->host, &call));
    }
    return OK;
}

static status create_own(struct evaluation *e) {
    const struct evaluation_options *o = &e->options;
    size_t count = count_own(o);
    if (count == 0) return OK;
    e->own = calloc(count, sizeof *e->own);
    if (!e->own) return status_memory("the metrics");
    TRY(comm_split(o->comm, 0, comm_rank(o->comm), &e->own_ranks));
    for (size_t i = 0; i < o->metrics->names.count; i++) {
        const struct metric_type *type = own_type(o, i);
        if (!type) continue;
        struct own_metric *m = &e->own[e->own_count++];
        m->type = type;
        TRY(own_metric_create(type, e->out_size, o->info->target_size, e->own_ranks, &m->state));
    }
    return OK;
}

/* [targets]: of the loss, or in the unit of the file. */
static void add_rows(struct evaluation *e, const float *outputs, const void *targets, const float *weights,
                     size_t rows) {
    const struct evaluation_options *o = &e->options;
    const struct target_scale *scale = o->info->target_scale;
    size_t size = e->out_size, target_size = o->info->target_size;
    for (size_t i = 0; i < rows * size; i++)
        e->own_outputs[i] = scale ? (float)target_scale_undo(scale, i % size, (double)outputs[i]) : outputs[i];
    for (size_t i = 0; i < rows * target_size; i++)
        e->own_targets[i] = scale                    ? (float)((const double *)targets)[i]
                            : o->loss->wants_classes ? (float)((const int64_t *)targets)[i]
                                                     : ((const float *)targets)[i];
    for (size_t i = 0; i < e->formula_count; i++) {
        struct expression_call call = call_of(e, &e->formulas[i], weights, rows);
        device_ops(e->host)->formulas->run(e->host, &call);
    }
    const struct metric_rows own = {.rows = rows,
                                    .output_size = size,
                                    .target_size = target_size,
                                    .outputs = e->own_outputs,
                                    .targets = e->own_targets,
                                    .weights = weights};
    for (size_t i = 0; i < e->own_count; i++) e->own[i].type->add(&own, &e->own[i].state);
}

/* ---- the evaluation ---- */

status evaluation_check_size(const struct evaluation_options *options) {
    if (options->loss->is_objective) return OK; /* without confusion matrices */
    TRY(check_formulas(options));
    TRY(check_own(options));
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

/* What one loss needs. */
static status create_counts(struct evaluation *e) {
    const struct evaluation_options *o = &e->options;
    struct tally_options tally = tally_of(o);
    e->out_size = shape_elements(o->output);
    TRY(device_alloc(o->device, sizeof *e->sums, "the sums of a loss", (void **)&e->sums));
    TRY(loss_prepare(o->loss, o->loss_config, o->device, o->output, o->info->target_size, o->batch,
                     (size_t)comm_world_size(o->comm)));
    if (o->loss->compares_rows) TRY(create_gather(o, &e->gather));
    TRY(create_rows(e));
    TRY(create_formulas(e));
    TRY(create_own(e));
    if (!tally.needs && !e->formulas && !e->own) return OK;
    if (tally.needs) TRY(tally_create(&tally, &e->tally));
    if (o->info->target_scale)
        TRY(buffer_new(o->batch * o->info->target_size * sizeof *e->file_targets, "the unscaled targets",
                       (void **)&e->file_targets));
    if (device_is_host(o->device)) return OK;
    TRY(buffer_new(o->batch * e->out_size * sizeof *e->outputs, "the outputs", (void **)&e->outputs));
    if (!o->output->lengths) return OK;
    return buffer_new(o->batch * sizeof *e->lengths, "the lengths of rows", (void **)&e->lengths);
}

status evaluation_create(const struct evaluation_options *options, struct evaluation **out) {
    struct evaluation *e = calloc(1, sizeof *e);
    if (!e) return status_memory("an evaluation");
    e->options = *options;
    e->objective = options->loss->is_objective ? options->loss_config : NULL;
    status s = e->objective ? create_terms(e) : create_counts(e);
    if (s) evaluation_destroy(e);
    if (!s) *out = e;
    return s;
}

void evaluation_destroy(struct evaluation *evaluation) {
    if (!evaluation) return;
    destroy_terms(evaluation);
    tally_destroy(evaluation->tally);
    free(evaluation->formulas);
    for (size_t i = 0; i < evaluation->own_count; i++) own_metric_free(&evaluation->own[i].state);
    free(evaluation->own);
    comm_destroy(evaluation->own_ranks);
    device_destroy(evaluation->host);
    buffer_free(evaluation->own_outputs);
    buffer_free(evaluation->own_targets);
    row_gather_destroy(evaluation->gather);
    buffer_free(evaluation->outputs);
    buffer_free(evaluation->lengths);
    buffer_free(evaluation->file_targets);
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
    for (size_t i = 0; i < evaluation->own_count; i++)
        own_metric_start(evaluation->own[i].type, &evaluation->own[i].state);
    for (size_t i = 0; i < evaluation->formula_count; i++)
        memset(evaluation->formulas[i].sums, 0, sizeof evaluation->formulas[i].sums);
}

void evaluation_add_loss(const struct evaluation *evaluation, const float *outputs, const struct batch *batch) {
    const struct evaluation_options *o = &evaluation->options;
    if (batch->rows == 0 && !loss_compares_rows(o->loss, o->loss_config)) return;
    if (evaluation->objective) {
        add_term_losses(evaluation, outputs, batch);
        return;
    }
    struct row_weights weights = loss_weights(o->model, o->output, batch->weights, true);
    weights.target_size = o->info->target_size;
    weights.all = row_gather_batch(evaluation->gather, evaluation->batches);
    o->loss->run(o->loss_config, &(struct loss_batch){o->device, o->output, F32(outputs), batch->targets, &weights,
                                                      batch->rows, 1, NULL, evaluation->sums});
}

status evaluation_add_metrics(struct evaluation *evaluation, const float *outputs, const struct batch *host) {
    const struct evaluation_options *o = &evaluation->options;
    if (evaluation->objective) return add_term_metrics(evaluation, host);
    TRY(row_gather_take_failure(evaluation->gather));
    evaluation->rows += (double)host->rows;
    evaluation->batches++;
    if (!evaluation->tally && !evaluation->formulas && !evaluation->own) return OK;
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
    const void *targets = host->targets;
    if (evaluation->file_targets) {
        targets = evaluation->file_targets;
        TRY(dataset_read_file_targets(o->dataset, o->part, host->positions, host->rows, evaluation->file_targets));
    }
    if (evaluation->tally) tally_add(evaluation->tally, outputs, targets, &weights, host->rows);
    if (evaluation->formulas || evaluation->own) add_rows(evaluation, outputs, targets, weights.values, host->rows);
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
    const struct string_list *names = &e->options.metrics->names;
    for (size_t i = 0, formula = 0, own = 0; i < names->count; i++) {
        const struct metric_type *type = own_type(&e->options, i);
        if (type) {
            struct evaluation_metric *m = &out->metrics[out->metric_count++];
            m->name = names->items[i];
            TRY(own_metric_value(type, &e->own[own++].state, &m->value));
            continue;
        }
        if (e->options.metrics->formulas[i]) {
            const double *sums = e->formulas[formula++].sums;
            out->metrics[out->metric_count++] = (struct evaluation_metric){names->items[i], sums[0] / sums[1]};
            continue;
        }
        if (metric_is_of_loss(names->items[i], e->options.loss)) continue;
        if (metric_is_matrix(names->items[i])) {
            out->confusion = e->tally->confusion;
            out->classes = e->tally->classes;
            continue;
        }
        struct evaluation_metric *m = &out->metrics[out->metric_count++];
        m->name = names->items[i];
        TRY(metric_value(m->name, e->tally, e->sums, &m->value));
    }
    return OK;
}

static status compute_result(struct evaluation *evaluation, struct evaluation_result *out) {
    struct loss_sums *sums = evaluation->sums;
    double totals[] = {sums->loss, sums->count, sums->correct, sums->scored, evaluation->rows};
    TRY(comm_all_reduce(evaluation->options.comm, totals, 5, COMM_FLOAT64, COMM_SUM));
    *sums = (struct loss_sums){.loss = totals[0], .count = totals[1], .correct = totals[2], .scored = totals[3]};
    if (evaluation->tally) TRY(tally_reduce(evaluation->tally));
    for (size_t i = 0; i < evaluation->formula_count; i++)
        TRY(comm_all_reduce(evaluation->options.comm, evaluation->formulas[i].sums, 2, COMM_FLOAT64, COMM_SUM));
    *out = (struct evaluation_result){.rows = (int64_t)totals[4],
                                      .loss = sums->loss / sums->count,
                                      .without_targets = sums->count > 0 ? NULL : "",
                                      .has_accuracy = evaluation->options.loss->wants_classes,
                                      .accuracy = sums->correct / sums->scored};
    return add_metrics(evaluation, out);
}

status evaluation_finish(struct evaluation *evaluation, struct evaluation_result *out) {
    struct device *device = evaluation->options.device;
    if (evaluation->objective) return finish_terms(evaluation, out);
    TRY(device_map(device, (void **)&evaluation->sums));
    status s = compute_result(evaluation, out);
    return status_first(s, device_unmap(device, (void **)&evaluation->sums, false));
}
