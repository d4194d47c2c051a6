/* The steps are those of the model's program. Only what all lanes have in common is done once: batches, the counting of
 * steps, and the operators, whose numbers are those of all lanes. */
#include "train/loop/group.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/stop.h"
#include "device/cpu/group.h"
#include "model/layers/layers.h"
#include "model/losses/losses.h"
#include "model/program.h"
#include "train/loop/loop.h"
#include "train/loop/progress.h"
#include "train/loop/rank_sync.h"
#include "train/metrics/monitor.h"

#define MAX_STEPS 32
/* Of all memory of a group: the second-level cache of processors with AVX-512. Beyond it models are as fast one after
 * another. */
#define MAX_BYTES ((size_t)1 << 20)

/* A linear layer, with a relu after it, or a function of each element. */
struct step {
    const struct layer *layer;
    bool is_linear;
    size_t in, out;      /* elements of a row */
    size_t weight, bias; /* offsets in the flat buffers; bias SIZE_MAX: none */
    float *y;            /* (out, rows, lanes) */
};

struct group {
    const struct group_ops *ops;
    struct device *device;
    struct step steps[MAX_STEPS];
    size_t step_count, max_lanes, values_count, trained, floats; /* floats: of memory, for a lane */
    size_t lanes; /* of the models that are trained, at most max_lanes: those of ops */
    float *memory;
    float *values, *gradients, *states[OPTIMIZER_STATES]; /* (total, lanes), (trained, lanes) */
    float *dy[2];                                         /* (the largest out, rows, lanes) */
    struct loader *loaders[GROUP_MAX_LANES];              /* of the training rows of each lane; NULL: not needed yet */
    float *inputs;     /* (rows, in, lanes) of the lanes' batches; NULL: as loaders */
    void *targets;     /* (rows, target_size, lanes): int32_t classes or floats */
    bool has_own_rows; /* lanes have other rows in a batch; else all the same ones */
    bool is_unfit;     /* a target is ignored, which the loss has no form for */
};

/* ---- what can be trained so ---- */

static bool has_plain_config(const struct trainer *t, const struct config *c) {
    const struct train_config *r = &c->train;
    const struct dataset_info *info = dataset_info(t->dataset);
    bool is_plain_run = r->steps == SCHEMA_NO_INT && r->precision == TRAIN_FLOAT32 && r->accumulate == 1 &&
                        r->clip_grad_norm <= 0 && r->clip_grad_value <= 0 && r->ema.decay <= 0 &&
                        r->metric_list.names.count == 0 && !early_stop_of(&r->early_stop).monitor.metric &&
                        r->check_compute.every == 0 && !t->recordings && !t->evaluations && !t->test.loader;
    bool are_plain_rows = !info->has_weights && t->sampler->type != SAMPLER_EXTENSION && !c->sampler.shards &&
                          info->input_kind != INPUT_TOKENS;
    const char *resume = c->checkpoint.resume;
    return is_plain_run && are_plain_rows && (strcmp(resume, "auto") == 0 || strcmp(resume, "never") == 0);
}

static bool has_plain_loss(const struct trainer *t) {
    const struct shape *out = &t->model->out;
    size_t target_size = dataset_info(t->dataset)->target_size;
    if (out->dims != 1 || out->lengths || t->batch * t->model->out_size > LONG_SUM) return false;
    if (loss_is_mse(t->loss)) return target_size == t->model->out_size;
    return target_size == 1 && t->model->out_size >= 2 && t->model->out_size <= SHORT_ROW &&
           loss_is_plain_cross_entropy(t->loss, t->loss_config);
}

static bool make_step(const struct model *model, const struct instruction *i, struct step *out) {
    const struct layer *layer = i->layer;
    if (!layer || i->in_count != 1 || layer_joins(layer) || layer->in.dims != 1 || layer->tied_count ||
        layer->is_sharing || layer->saved_size || layer->in_size > LONG_SUM)
        return false;
    *out = (struct step){
        .layer = layer, .is_linear = layer_is_linear(layer), .in = layer->in_size, .out = layer->out_size};
    if (!out->is_linear) return layer_facts_of(layer).is_activation && !layer->has_relu && layer->param_count == 0;
    const struct param *params = model->params.items + layer->first_param;
    out->weight = params[0].offset;
    out->bias = layer->param_count > 1 ? params[1].offset : SIZE_MAX;
    return true;
}

/* Whether each step reads the one before, and the last one is the output. */
static bool make_steps(const struct model *model, struct group *g) {
    const struct instructions *list = &model->program->forward[1];
    size_t last = 0;
    if (list->count == 0 || list->count > MAX_STEPS || model->output_count > 1 || model->buffers.total) return false;
    for (size_t p = 0; p < model->params.count; p++)
        if (model->params.items[p].is_frozen) return false;
    for (size_t k = 0; k < list->count; k++) {
        const struct graph_node *node = list->items[k].node;
        if (!make_step(model, &list->items[k], &g->steps[k]) || model_root(model, node->in[0]) != last) return false;
        last = model_root(model, node->out);
    }
    g->step_count = list->count;
    return g->steps[0].is_linear && model_root(model, model->output) == last;
}

status group_create(const struct trainer *t, const struct config *config, struct group **out) {
    const struct group_ops *ops = cpu_group_ops(t->device, GROUP_MAX_LANES);
    struct group found = {
        .ops = ops, .device = t->device, .lanes = ops ? ops->lanes : 0, .max_lanes = ops ? ops->lanes : 0};
    size_t widest = 0, floats = 0, total = t->model->params.total;
    *out = NULL;
    if (found.lanes < 8 || found.lanes > GROUP_MAX_LANES || t->batch > LONG_SUM || !has_plain_config(t, config) ||
        !has_plain_loss(t) || !make_steps(t->model, &found))
        return OK;
    for (size_t i = 0; i < found.step_count; i++) {
        if (found.steps[i].out > widest) widest = found.steps[i].out;
        floats += t->batch * found.steps[i].out;
    }
    floats += (2 + OPTIMIZER_STATES) * total + 2 * t->batch * widest;
    if (floats > MAX_BYTES / sizeof(float) / found.lanes) return OK;
    struct group *g = malloc(sizeof *g);
    if (!g) return status_memory("a group of models");
    *g = found;
    g->values_count = total;
    g->trained = t->model->params.trained;
    g->floats = floats;
    status s = buffer_new(floats * g->lanes * sizeof(float), "a group of models", (void **)&g->memory);
    if (s) {
        free(g);
        return s;
    }
    float *next = g->memory;
    float **const arrays[] = {&g->values, &g->gradients, &g->states[0], &g->states[1], &g->states[2]};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++, next += total * g->lanes) *arrays[i] = next;
    for (size_t i = 0; i < 2; i++, next += t->batch * widest * g->lanes) g->dy[i] = next;
    for (size_t i = 0; i < g->step_count; i++) {
        g->steps[i].y = next;
        next += t->batch * g->steps[i].out * g->lanes;
    }
    memset(g->memory, 0, floats * g->lanes * sizeof(float));
    *out = g;
    return OK;
}

void group_destroy(struct group *g) {
    if (!g) return;
    for (size_t l = 0; l < GROUP_MAX_LANES; l++) loader_destroy(g->loaders[l]);
    buffer_free(g->inputs);
    buffer_free(g->memory);
    free(g);
}

size_t group_lanes(const struct group *g) { return g && !g->is_unfit ? g->max_lanes : 0; }

/* ---- passes ---- */

/* An operator of single numbers takes those of all lanes as so many rows. */
static struct pass pass_of(const struct group *g, size_t rows) {
    return (struct pass){.device = g->device, .rows = rows * g->lanes, .ops = device_ops(g->device)};
}

static struct group_linear linear_of(const struct step *s, bool is_batch, bool is_shared, size_t rows) {
    return (struct group_linear){rows, s->in, s->out, is_batch, is_shared};
}

/* inputs (rows, in), or not [is_shared], (rows, in, lanes). */
static const float *forward(const struct group *g, const float *inputs, bool is_shared, size_t rows) {
    const float *x = inputs;
    for (size_t i = 0; i < g->step_count; x = g->steps[i++].y) {
        const struct step *s = &g->steps[i];
        struct pass pass = pass_of(g, rows);
        if (s->is_linear) {
            struct group_linear l = linear_of(s, i == 0, i == 0 && is_shared, rows);
            const float *bias = s->bias == SIZE_MAX ? NULL : g->values + s->bias * g->lanes;
            struct group_product product = group_linear_forward(&l, x, g->values + s->weight * g->lanes, bias, s->y);
            product.has_relu = s->layer->has_relu;
            g->ops->product(&product);
        } else {
            s->layer->type->forward(s->layer, &pass,
                                    (struct operands){F32((float *)(uintptr_t)x), F32(s->y), NULL, NULL});
        }
    }
    return x;
}

/* The gradients of the weight and the bias. */
static void backward_parameters(const struct group *g, const struct step *s, bool is_first, const float *x,
                                const float *dy, size_t rows) {
    struct group_linear l = linear_of(s, is_first, is_first && !g->has_own_rows, rows);
    struct group_product product = group_linear_weight(&l, x, dy, g->gradients + s->weight * g->lanes);
    g->ops->product(&product);
    if (s->bias == SIZE_MAX) return;
    product = group_linear_bias(&l, dy, g->gradients + s->bias * g->lanes);
    g->ops->product(&product);
}

/* From the derivative of the loss, in dy[0]. A product masks its result where the step before it has a relu. */
static void backward(const struct group *g, const float *inputs, size_t rows) {
    float *dy = g->dy[0];
    bool is_masked = false;
    for (size_t i = g->step_count; i-- > 0;) {
        const struct step *s = &g->steps[i], *before = i ? s - 1 : NULL;
        const float *x = before ? before->y : inputs;
        float *dx = dy == g->dy[0] ? g->dy[1] : g->dy[0];
        struct pass pass = pass_of(g, rows);
        if (s->is_linear && s->layer->has_relu && !is_masked)
            device_ops(g->device)->image->relu_backward(g->device, F32(s->y), F32(dy), F32(dy),
                                                        rows * s->out * g->lanes);
        is_masked = s->is_linear && before && before->layer->has_relu;
        if (s->is_linear) backward_parameters(g, s, i == 0, x, dy, rows);
        if (s->is_linear && before) {
            struct group_linear l = linear_of(s, false, false, rows);
            struct group_product product = group_linear_input(&l, dy, g->values + s->weight * g->lanes, dx);
            product.mask = is_masked ? x : NULL;
            g->ops->product(&product);
        } else if (!s->is_linear) {
            s->layer->type->backward(s->layer, &pass,
                                     (struct operands){F32((float *)(uintptr_t)x), F32(s->y), F32(dy), F32(dx)});
        }
        dy = dx;
    }
}

/* What a batch adds to the sums of every lane. */
struct counts {
    double count, scored;
};

static void find_ignored(struct group *g, const struct trainer *t, const struct batch *batch) {
    const int64_t *targets = batch->targets, ignored = t->loss->ignored(t->loss_config);
    for (size_t i = 0; i < batch->rows; i++) g->is_unfit = g->is_unfit || targets[i] == ignored;
}

/* Adds the loss of a batch; [dx] NULL: without its derivative. */
static struct counts add_loss(struct group *g, const struct trainer *t, const float *x, const struct batch *batch,
                              bool is_shared, float *dx, const struct group_sums *sums) {
    size_t size = t->model->out_size, count = loss_is_mse(t->loss) ? batch->rows * size : batch->rows;
    float factor = 1 / (float)count;
    if (loss_is_mse(t->loss)) {
        g->ops->squared_error(x, batch->targets, is_shared, batch->rows, size, factor, dx, sums);
        return (struct counts){(double)count, 0};
    }
    if (is_shared) find_ignored(g, t, batch);
    if (!g->is_unfit) g->ops->cross_entropy(x, batch->targets, is_shared, batch->rows, size, factor, dx, sums);
    return (struct counts){(double)count, (double)count};
}

/* ---- rows ---- */

/* Whether the order of the rows depends on what differs between the lanes. */
static bool have_other_rows(const struct group_lane *a, const struct group_lane *b) {
    const struct config *x = a->config, *y = b->config;
    bool is_of_model = x->sampler.type == SAMPLER_DATALOADER;
    bool is_random = x->sampler.shuffle || x->sampler.type == SAMPLER_WEIGHTED; /* which does not use shuffle */
    return is_random && (is_of_model ? x->seed != y->seed : x->sampler.seed != y->sampler.seed);
}

/* Memory for the batches of the lanes, unless the group would be too large with it. */
static status make_batches(const struct trainer *t, struct group *g) {
    const struct dataset_info *info = dataset_info(t->dataset);
    size_t inputs = t->batch * info->input_size, floats = inputs + t->batch * info->target_size;
    void *block;
    if (g->inputs || floats > MAX_BYTES / sizeof(float) / g->max_lanes - g->floats) return OK;
    TRY(buffer_new(floats * g->max_lanes * sizeof(float), "batches of a group", &block));
    g->inputs = block;
    g->targets = g->inputs + inputs * g->max_lanes;
    return OK;
}

/* Without that memory lanes of other rows than the first one are lost. */
static status open_rows(const struct trainer *t, struct group *g, struct group_lane *lanes, size_t count) {
    g->has_own_rows = false;
    for (size_t l = 1; l < count; l++) g->has_own_rows = g->has_own_rows || have_other_rows(&lanes[l], &lanes[0]);
    if (!g->has_own_rows) return OK;
    TRY(make_batches(t, g));
    g->has_own_rows = g->inputs != NULL;
    if (!g->inputs) loader_set_seed(t->loader, lanes[0].config->sampler.seed, &lanes[0].generator);
    for (size_t l = 0; l < count; l++) {
        struct sampler_config sampler = *t->sampler;
        sampler.seed = lanes[l].config->sampler.seed;
        sampler.generator = &lanes[l].generator;
        lanes[l].is_lost = lanes[l].is_lost || (!g->inputs && have_other_rows(&lanes[l], &lanes[0]));
        if (!g->inputs) continue;
        if (g->loaders[l])
            loader_set_seed(g->loaders[l], sampler.seed, sampler.generator);
        else
            TRY(loader_create(t->dataset, &sampler, t->batch, 0, 1, 0, &g->loaders[l]));
    }
    return OK;
}

static status start_epoch(struct trainer *t, struct group *g, size_t count, int64_t epoch) {
    if (!g->has_own_rows) return rank_sync_seek(t, epoch, 0);
    for (size_t l = 0; l < count; l++) TRY(loader_seek(g->loaders[l], epoch, 0));
    return OK;
}

static void gather_row(const struct group *g, const struct trainer *t, const struct batch *lanes, size_t row) {
    size_t in = g->steps[0].in, size = dataset_info(t->dataset)->target_size;
    for (size_t l = 0; l < g->lanes; l++) {
        const float *inputs = lanes[l].inputs + row * in;
        float *to = g->inputs + row * in * g->lanes + l;
        for (size_t i = 0; i < in; i++) to[i * g->lanes] = inputs[i];
    }
    for (size_t i = row * size; i < (row + 1) * size; i++)
        for (size_t l = 0; l < g->lanes; l++)
            if (loss_is_mse(t->loss))
                ((float *)g->targets)[i * g->lanes + l] = ((const float *)lanes[l].targets)[i];
            else
                ((int32_t *)g->targets)[i * g->lanes + l] = (int32_t)((const int64_t *)lanes[l].targets)[i];
}

/* The next batch, whose rows are those of all lanes or of each. Lanes that are not used have those of the first one. */
static status next_batch(struct trainer *t, struct group *g, size_t count, struct batch *out) {
    struct batch lanes[GROUP_MAX_LANES];
    if (!g->has_own_rows) return feed_next(t->feed, t->loader, &lanes[0], out);
    for (size_t l = 0; l < g->lanes; l++) {
        if (l >= count) {
            lanes[l] = lanes[0];
            continue;
        }
        TRY(loader_next(g->loaders[l], &lanes[l]));
        if (!loss_is_mse(t->loss)) find_ignored(g, t, &lanes[l]);
    }
    *out = (struct batch){.rows = lanes[0].rows, .inputs = g->inputs, .targets = g->targets};
    for (size_t i = 0; i < out->rows; i++) gather_row(g, t, lanes, i);
    return OK;
}

/* ---- lanes ---- */

void group_set_lane(struct trainer *t, const struct group_lane *lane) {
    t->config = lane->config;
    t->optimizer = lane->optimizer;
    t->state = lane->state;
}

static bool have_same_conditions(enum update_rule rule, const union optimizer_constants *a,
                                 const union optimizer_constants *b) {
    if (rule == RULE_ADAM) return adam_flags(&a->adam) == adam_flags(&b->adam);
    return a->sgd.has_weight_decay == b->sgd.has_weight_decay && a->sgd.is_nesterov == b->sgd.is_nesterov;
}

/* Whether the updates of two optimizers, planned once, differ in numbers alone. */
static bool is_like(const struct optimizer *a, const struct optimizer *b) {
    enum update_rule rule = a->type->rule;
    bool is_same = rule == b->type->rule && a->buffer_count == b->buffer_count && a->run_count == b->run_count &&
                   a->plan->setting_count == b->plan->setting_count;
    for (size_t i = 0; is_same && i < a->buffer_count; i++) is_same = a->buffer_floats[i] == b->buffer_floats[i];
    for (size_t i = 0; is_same && i < a->run_count; i++) {
        const struct optimizer_run *x = &a->runs[i], *y = &b->runs[i];
        is_same = x->begin == y->begin && x->end == y->end && x->at == y->at && x->constants == y->constants &&
                  have_same_conditions(rule, &a->planned[x->constants], &b->planned[y->constants]);
    }
    return is_same;
}

static bool is_supported(const struct group_lane *lane) {
    const struct optimizer *o = lane->optimizer;
    const struct optimizer_type *type = o->type;
    return (type->rule == RULE_SGD || type->rule == RULE_ADAM) && !type->whole && !type->evaluates && !type->start &&
           !o->shard && !optimizer_maximizes(&lane->config->optimizer);
}

static void plan_step(struct trainer *t, const struct group_lane *lane) {
    group_set_lane(t, lane);
    struct schedule_progress progress = progress_of(t);
    optimizer_plan_step(lane->optimizer, lane->state->counters.step + 1, &lane->config->schedule, &progress);
}

/* Lanes that are not used, or lost, have the constants of the first one. */
static void update(struct group *g, const struct group_lane *lanes, size_t count) {
    const struct optimizer *o = lanes[0].optimizer;
    for (size_t r = 0; r < o->run_count; r++) {
        const struct optimizer_run *run = &o->runs[r];
        const union optimizer_constants *constants[GROUP_MAX_LANES];
        float *states[OPTIMIZER_STATES] = {NULL};
        for (size_t l = 0; l < g->lanes; l++)
            constants[l] = &lanes[l < count && !lanes[l].is_lost ? l : 0].optimizer->planned[run->constants];
        for (size_t b = 0; b < o->buffer_count; b++) states[b] = g->states[b] + run->at * g->lanes;
        g->ops->update(o->type->rule, constants, g->values + run->begin * g->lanes,
                       g->gradients + run->begin * g->lanes, states, run->end - run->begin);
    }
}

void group_set_count(struct group *g, size_t count) {
    g->ops = cpu_group_ops(g->device, count);
    g->lanes = g->ops->lanes;
}

void group_put(struct group *g, size_t index, const struct trainer *t) {
    const float *values = t->model->params.values;
    for (size_t i = 0; i < g->values_count; i++) g->values[i * g->lanes + index] = values[i];
}

void group_take(const struct group *g, size_t index, struct trainer *t) {
    float *values = t->model->params.values;
    for (size_t i = 0; i < g->values_count; i++) values[i] = g->values[i * g->lanes + index];
    for (size_t b = 0; b < t->optimizer->buffer_count; b++)
        for (size_t i = 0; i < t->optimizer->buffer_floats[b]; i++)
            t->optimizer->buffers[b][i] = g->states[b][i * g->lanes + index];
}

/* ---- the loop ---- */

struct all_sums {
    double loss[GROUP_MAX_LANES], correct[GROUP_MAX_LANES];
};

static struct group_sums sums_of(struct all_sums *sums) { return (struct group_sums){sums->loss, sums->correct}; }

static status take_step(struct trainer *t, struct group *g, struct group_lane *lanes, size_t count) {
    struct batch batch;
    struct all_sums sums = {{0}, {0}};
    double start = clock_seconds();
    TRY(next_batch(t, g, count, &batch));
    if (batch.rows == 0) return status_new(STATUS_BUG, "the loader ended an epoch too early");
    for (size_t l = 0; l < count; l++) plan_step(t, &lanes[l]);
    const float *outputs = forward(g, batch.inputs, !g->has_own_rows, batch.rows);
    struct group_sums to = sums_of(&sums);
    struct counts counts = add_loss(g, t, outputs, &batch, !g->has_own_rows, g->dy[0], &to);
    backward(g, batch.inputs, batch.rows);
    update(g, lanes, count);
    double seconds = (clock_seconds() - start) / (double)count;
    for (size_t l = 0; l < count; l++) {
        struct counters *c = &lanes[l].state->counters;
        c->batch++;
        c->step++;
        c->samples += (int64_t)batch.rows;
        c->epoch_loss += sums.loss[l];
        c->epoch_count += counts.count;
        c->epoch_correct += sums.correct[l];
        c->epoch_scored += counts.scored;
        c->epoch_samples += (double)batch.rows;
        c->epoch_seconds += seconds;
        c->seconds += seconds;
        lanes[l].is_lost = lanes[l].is_lost || !isfinite(sums.loss[l]);
    }
    return OK;
}

/* The results of all lanes. */
static status evaluate(struct trainer *t, struct group *g, size_t count, struct evaluation_result *results,
                       bool *is_stopped) {
    struct all_sums sums = {{0}, {0}};
    struct counts all = {0};
    int64_t rows = 0;
    TRY(loader_seek(t->validation, 0, 0));
    for (size_t i = 0; i < loader_batches(t->validation) && !*is_stopped; i++) {
        struct batch host, batch;
        TRY(feed_next(t->feed, t->validation, &host, &batch));
        struct group_sums to = sums_of(&sums);
        const float *outputs = forward(g, batch.inputs, true, batch.rows);
        struct counts counts = add_loss(g, t, outputs, &batch, true, NULL, &to);
        all.count += counts.count;
        all.scored += counts.scored;
        rows += (int64_t)batch.rows;
        *is_stopped = stop_is_requested();
    }
    for (size_t l = 0; l < count; l++)
        results[l] = (struct evaluation_result){.rows = rows,
                                                .loss = sums.loss[l] / all.count,
                                                .has_accuracy = t->loss->wants_classes,
                                                .accuracy = sums.correct[l] / all.scored};
    return OK;
}

static status finish_epoch(struct trainer *t, struct group *g, struct group_lane *lanes, size_t count, bool is_last,
                           bool *is_stopped) {
    struct evaluation_result results[GROUP_MAX_LANES] = {{0}};
    double start = clock_seconds();
    group_set_lane(t, &lanes[0]);
    bool is_evaluated = loop_is_evaluated(t, is_last);
    if (is_evaluated) TRY(evaluate(t, g, count, results, is_stopped));
    double seconds = (clock_seconds() - start) / (double)count;
    for (size_t l = 0; l < count && !*is_stopped; l++) {
        group_set_lane(t, &lanes[l]);
        t->epoch.result = results[l];
        t->epoch.evaluation_seconds = seconds;
        lanes[l].evaluation_seconds += is_evaluated ? seconds : 0;
        lanes[l].is_lost = lanes[l].is_lost || (is_evaluated && !isfinite(results[l].loss));
        TRY(loop_complete_epoch(t, true, is_last));
    }
    return OK;
}

static void start(struct trainer *t, struct group *g, struct group_lane *lanes, size_t count) {
    for (size_t i = 0; i < g->values_count; i++)
        for (size_t l = count; l < g->lanes; l++) g->values[i * g->lanes + l] = g->values[i * g->lanes];
    memset(g->gradients, 0, g->values_count * g->lanes * sizeof *g->gradients); /* also between the parameters */
    for (size_t b = 0; b < lanes[0].optimizer->buffer_count; b++)
        memset(g->states[b], 0, g->trained * g->lanes * sizeof *g->states[b]);
    for (size_t l = 0; l < count; l++) {
        plan_step(t, &lanes[l]);
        lanes[l].is_lost = !is_supported(&lanes[l]) || !is_like(lanes[l].optimizer, lanes[0].optimizer);
    }
}

/* A number that is not finite stays so in its lane, so the values are looked at once. */
static void find_lost(const struct group *g, struct group_lane *lanes, size_t count) {
    for (size_t i = 0; i < g->values_count; i++)
        for (size_t l = 0; l < count; l++)
            lanes[l].is_lost = lanes[l].is_lost || !isfinite(g->values[i * g->lanes + l]);
}

status group_run(struct trainer *t, struct group *g, struct group_lane *lanes, size_t count, bool *is_stopped) {
    int64_t epochs = lanes[0].config->train.epochs;
    start(t, g, lanes, count);
    TRY(open_rows(t, g, lanes, count));
    if (lanes[0].is_lost) { /* no lane is like it */
        for (size_t l = 0; l < count; l++) lanes[l].is_lost = true;
        return OK;
    }
    for (int64_t epoch = 0; epoch < epochs && !g->is_unfit; epoch++) {
        TRY(start_epoch(t, g, count, epoch));
        for (size_t i = 0; i < loader_batches(t->loader); i++) {
            TRY(take_step(t, g, lanes, count));
            *is_stopped = *is_stopped || stop_is_requested();
            if (*is_stopped) return OK;
        }
        TRY(finish_epoch(t, g, lanes, count, epoch + 1 == epochs, is_stopped));
        if (*is_stopped) return OK;
    }
    find_lost(g, lanes, count);
    for (size_t l = 0; l < count; l++) lanes[l].is_lost = lanes[l].is_lost || g->is_unfit;
    return OK;
}
