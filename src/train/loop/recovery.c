/* The findings are gathered by all ranks, so that every rank reports the same message. */
#include "train/loop/recovery.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/scoped.h"
#include "train/loop/averaging.h"
#include "train/loop/rank_sync.h"

/* ---- the diagnosis: runs a batch again, in the order of the pass, so that it finds the cause before its consequences,
 * and names the first array that is not finite: the inputs, a parameter, a layer's output, the loss, a gradient or
 * running statistics, with the rows of the dataset ---- */

#define MAX_NAMED_ROWS 5 /* in a message */

#define DIAGNOSIS_SIZE 256

struct diagnosis {
    struct model *model;
    const struct loss_type *loss;
    const void *loss_config;
    const struct dataset *dataset;
    int64_t epoch;          /* of the batch */
    struct loss_sums *sums; /* on the device; scratch */
    bool has_gradients;     /* the model has memory for them */
};

struct search {
    const struct diagnosis *diagnosis;
    const struct batch *batch;
    const struct pass *pass;
    struct text found; /* empty: nothing yet */
};

struct matrix {
    struct tensor values; /* (rows, size) */
    size_t size;
};

static bool is_finite(const struct search *s, const struct tensor *values, size_t count) {
    return device_ops(s->pass->device)->is_finite(s->pass->device, values, count);
}

/* Whether rows [first, first + rows) of a matrix are finite. */
static bool are_rows_finite(const struct search *s, const struct matrix *m, size_t first, size_t rows) {
    struct tensor values = tensor_from(&m->values, first * m->size);
    return is_finite(s, &values, rows * m->size);
}

typedef bool row_test(const struct search *search, const void *context, size_t row);

/* " for rows 3, 17 and 2 more of the training data" */
static void name_rows(struct search *s, row_test *is_nonfinite, const void *context) {
    SCOPED_TEXT rows = {0};
    size_t count = 0;
    for (size_t i = 0; i < s->batch->rows; i++) {
        if (!is_nonfinite(s, context, i)) continue;
        if (count++ >= MAX_NAMED_ROWS) continue;
        if (count > 1) text_add(&rows, ", ");
        dataset_add_rows(s->diagnosis->dataset, DATASET_TRAIN, s->diagnosis->epoch, s->batch->positions[i], &rows);
    }
    if (count > 0) text_printf(&s->found, " for row%s %s", text_plural(count, "s"), text_string(&rows));
    if (count > MAX_NAMED_ROWS) text_printf(&s->found, " and %zu more", count - MAX_NAMED_ROWS);
    if (count > 0) text_add(&s->found, " of the training data");
}

static bool has_nonfinite_values(const struct search *s, const void *matrix, size_t row) {
    return !are_rows_finite(s, matrix, row, 1);
}

static bool find_in_inputs(struct search *s) {
    const struct dataset_info *info = dataset_info(s->diagnosis->dataset);
    struct matrix inputs = {*F32(s->batch->inputs), info->input_size};
    if (info->input_kind == INPUT_TOKENS || are_rows_finite(s, &inputs, 0, s->batch->rows)) return false;
    text_add(&s->found, "the inputs");
    name_rows(s, has_nonfinite_values, &inputs);
    return true;
}

static const struct param *nonfinite_parameter(const struct search *s, const struct layer *layer) {
    const struct params *params = &s->diagnosis->model->params;
    for (size_t p = layer->first_param; p < layer->first_param + layer->param_count; p++)
        if (!is_finite(s, F32(params_value(params, p)), params->items[p].count)) return &params->items[p];
    return NULL;
}

static bool visit(void *search, const struct layer *layer, const struct tensor *output, size_t size, size_t tensor) {
    struct search *s = search;
    (void)tensor;
    struct matrix values = {*output, size};
    if (are_rows_finite(s, &values, 0, s->batch->rows)) return true;
    const struct param *param = nonfinite_parameter(s, layer);
    if (param) {
        text_printf(&s->found, "the parameter %s, since an earlier update", param->name);
        return false;
    }
    text_printf(&s->found, "the output of layer %s (%s)", layer->name, layer->type->variant.name);
    name_rows(s, has_nonfinite_values, &values);
    return false;
}

/* Computes the loss of one row of the output and its gradient, which backward reads. */
static void run_loss_of_row(const struct search *s, const struct tensor *outputs, size_t row) {
    const struct diagnosis *d = s->diagnosis;
    size_t target_bytes = dataset_target_bytes(dataset_info(d->dataset));
    device_zero(s->pass->device, d->sums, sizeof *d->sums);
    loss_run(d->loss, d->loss_config, d->model, outputs, (const char *)s->batch->targets + row * target_bytes, NULL,
             NULL, 1, 1, d->sums);
}

/* A failure of the device is ignored here; the next device_status returns it. */
static bool is_loss_finite(const struct search *s) {
    struct loss_sums sums = {0};
    status_free(device_download(s->pass->device, &sums, s->diagnosis->sums, sizeof sums));
    return isfinite(sums.loss);
}

static bool has_nonfinite_loss(const struct search *s, const void *outputs, size_t row) {
    struct tensor output = tensor_from(outputs, row * s->diagnosis->model->out_size);
    run_loss_of_row(s, &output, row);
    return !is_loss_finite(s);
}

/* Names the part of the loss, if it has parts. */
static void explain_loss(struct search *s, const struct tensor *outputs) {
    const struct diagnosis *d = s->diagnosis;
    if (!d->loss->explain) return;
    struct row_weights weights = loss_weights(d->model, &d->model->out, s->batch->weights, false);
    weights.target_size = d->model->target_size;
    d->loss->explain(d->loss_config,
                     &(struct loss_batch){.device = s->pass->device,
                                          .shape = &d->model->out,
                                          .output = outputs,
                                          .targets = s->batch->targets,
                                          .weights = &weights,
                                          .rows = s->batch->rows},
                     &s->found);
}

static bool find_in_loss(struct search *s, const struct tensor *outputs) {
    const struct diagnosis *d = s->diagnosis;
    device_zero(s->pass->device, d->sums, sizeof *d->sums);
    loss_run(d->loss, d->loss_config, d->model, outputs, s->batch->targets, s->batch->weights, NULL, s->batch->rows, 1,
             d->sums);
    if (is_loss_finite(s)) return false;
    text_add(&s->found, "the loss");
    explain_loss(s, outputs);
    name_rows(s, has_nonfinite_loss, outputs);
    return true;
}

/* The first parameter, in the order of backward, whose gradient is not finite; NULL: none. */
static const char *nonfinite_gradient(const struct model *model, struct device *device) {
    for (size_t p = model->params.count; p-- > 0;) {
        const struct param *param = &model->params.items[p];
        if (!param->is_frozen &&
            !device_ops(device)->is_finite(device, F32(params_gradient(&model->params, p)), param->count))
            return param->name;
    }
    return NULL;
}

struct noted {
    const struct search *search;
    size_t index; /* the last parameter whose gradient is not finite; SIZE_MAX: none */
};

static void note_gradient(void *user, size_t index) {
    struct noted *noted = user;
    const struct params *params = &noted->search->diagnosis->model->params;
    bool is_later = noted->index == SIZE_MAX || index > noted->index;
    if (is_later && !is_finite(noted->search, F32(params_gradient(params, index)), params->items[index].count))
        noted->index = index;
}

/* Runs backward, which writes all gradients; returns nonfinite_gradient of them. */
static const char *run_backward(const struct search *s, const struct pass *pass, const float *inputs) {
    struct model *model = s->diagnosis->model;
    if (model->gradient_group_count) { /* they exist one group after the other */
        struct noted noted = {s, SIZE_MAX};
        model_backward_in_groups(model, pass, inputs, NULL, note_gradient, &noted);
        return noted.index == SIZE_MAX ? NULL : model->params.items[noted.index].name;
    }
    params_zero_gradients(&model->params, pass->device);
    model_backward(model, pass, inputs, NULL, NULL);
    return nonfinite_gradient(model, pass->device);
}

static bool has_nonfinite_gradient(const struct search *s, const void *context, size_t row) {
    const struct diagnosis *d = s->diagnosis;
    size_t input_size = dataset_info(d->dataset)->input_size;
    struct pass pass = *s->pass;
    (void)context;
    pass.rows = 1;
    pass.draws.first_row += row * pass.draws.row_stride;
    const float *inputs = s->batch->inputs + row * input_size;
    run_loss_of_row(s, model_forward(d->model, &pass, inputs), row);
    return run_backward(s, &pass, inputs) != NULL;
}

static bool find_in_gradients(struct search *s, const struct tensor *outputs) {
    const char *name = run_backward(s, s->pass, s->batch->inputs);
    if (!name) return false;
    text_printf(&s->found, "the gradient of %s", name);
    explain_loss(s, outputs);
    name_rows(s, has_nonfinite_gradient, NULL);
    return true;
}

/* Statistics are computed over all rows of the batch, so no row is named. */
static bool find_in_statistics(struct search *s) {
    const struct params *buffers = &s->diagnosis->model->buffers;
    for (size_t b = 0; b < buffers->count; b++) {
        if (is_finite(s, F32(params_value(buffers, b)), buffers->items[b].count)) continue;
        text_printf(&s->found, "the running statistics %s", buffers->items[b].name);
        return true;
    }
    return false;
}

/* Runs [batch], on the device, forward and backward as in [pass]. [text] is the first array that is not finite, such as
 * "the output of layer 2 (linear) for row 17 of the training data"; false: everything is finite. Overwrites the
 * gradients and changes the running statistics. */
static bool diagnose(const struct diagnosis *diagnosis, const struct batch *batch, const struct pass *pass,
                     char text[DIAGNOSIS_SIZE]) {
    struct search s = {.diagnosis = diagnosis, .batch = batch, .pass = pass};
    bool is_alone = !diagnosis->model->gathers[0]; /* else passes need all ranks, and only this one may make them */
    if (!find_in_inputs(&s) && is_alone) {
        const struct tensor *outputs = model_forward_visited(diagnosis->model, pass, batch->inputs, visit, &s);
        if (outputs && !find_in_loss(&s, outputs) && !(diagnosis->has_gradients && find_in_gradients(&s, outputs)))
            find_in_statistics(&s);
    }
    bool is_found = s.found.length > 0;
    snprintf(text, DIAGNOSIS_SIZE, "%s", text_string(&s.found));
    text_free(&s.found);
    return is_found;
}

/* ---- the origin, from the findings of all ranks ---- */

#define HOST_SIZE 64

/* The finding of a rank; fixed-size, so that it can be gathered as bytes. */
struct finding {
    bool is_found;
    char host[HOST_SIZE];
    char what[DIAGNOSIS_SIZE];
};

/* [shard]: of [batch]; NULL: no shards. */
static bool run(struct trainer *t, const struct diagnosis *diagnosis, const struct batch *batch,
                const struct elastic_shard *shard, char *what) {
    struct pass pass = trainer_pass(t, batch->rows, true);
    if (shard) pass.draws.first_row = shard->first;
    if (shard) pass.draws.row_stride = 1;
    return diagnose(diagnosis, batch, &pass, what);
}

static void search_shards(struct trainer *t, const struct diagnosis *diagnosis, const struct batch *batch,
                          struct finding *finding) {
    size_t number = (size_t)t->state->counters.batch;
    for (size_t i = 0; i < elastic_shard_count(t->averaging.elastic) && !finding->is_found; i++) {
        struct elastic_shard shard = elastic_shard(t->averaging.elastic, batch, number, i);
        if (shard.batch.rows) finding->is_found = run(t, diagnosis, &shard.batch, &shard, finding->what);
    }
}

/* Runs the micro-batches of the step again until the diagnosis finds a non-finite number. */
static status search(struct trainer *t, const struct bad_step *bad, struct finding *finding) {
    struct diagnosis diagnosis = {.model = t->model,
                                  .loss = t->loss,
                                  .loss_config = t->loss_config,
                                  .dataset = t->dataset,
                                  .epoch = bad->first.epoch,
                                  .sums = &t->memory.results->sums,
                                  .has_gradients = t->averaging.hooks->keeps_gradients};
    struct counters *c = &t->state->counters;
    int64_t batch_after = c->batch;
    status s = loader_seek(t->loader, bad->first.epoch, (size_t)bad->first.batch);
    for (size_t i = 0; !s && i < bad->batches && !finding->is_found; i++) {
        struct batch host, batch;
        c->batch = bad->first.batch + (int64_t)i;
        s = feed_next(t->feed, t->loader, &host, &batch);
        if (!s && t->averaging.elastic)
            search_shards(t, &diagnosis, &batch, finding);
        else if (!s && batch.rows > 0)
            finding->is_found = run(t, &diagnosis, &batch, NULL, finding->what);
    }
    c->batch = batch_after;
    return status_first(s, loader_seek(t->loader, c->epoch, (size_t)c->batch));
}

/* [out]: the finding of the first rank that has one, "on rank 1 (host b): the output of layer 2 (linear) for row 17 of
 * the training data"; empty: none. All ranks. */
static status gather_finding(struct trainer *t, const struct finding *own, struct text *out) {
    size_t world = (size_t)comm_world_size(t->comm);
    struct finding *all = calloc(world, sizeof *all);
    if (!all) return status_memory("the reports of the ranks");
    status s = comm_all_gather(t->comm, own, sizeof *own, COMM_UINT8, all);
    for (size_t r = 0; !s && r < world && !out->length; r++) {
        if (!all[r].is_found) continue;
        if (world > 1) text_printf(out, "on rank %zu (host %s): ", r, all[r].host);
        text_add(out, all[r].what);
    }
    free(all);
    return s;
}

/* [out]: the origin of the non-finite number, the same on all ranks; empty: not found. */
static status explain(struct trainer *t, const struct bad_step *bad, struct text *out) {
    struct finding own = {0};
    const struct zero *zero = t->averaging.zero;
    const char *averaged = NULL;
    if (zero_own_gradients(zero))
        averaged = zero_nonfinite_gradient(zero, &t->model->params, t->device);
    else if (t->averaging.hooks->keeps_gradients)
        averaged = nonfinite_gradient(t->model, t->device);
    gethostname(own.host, sizeof own.host - 1);
    TRY(search(t, bad, &own));
    TRY(recordings_agree(t->recordings)); /* the searches of the ranks differ in their passes */
    TRY(gather_finding(t, &own, out));
    if (!out->length && averaged)
        text_printf(
            out,
            t->config->dist.zero_stage == 3
                ? "the average of the gradients of %s; with dist.zero_stage: 3 no rank can repeat the step alone"
                : "the average of the gradients of %s, while those of each rank are finite",
            averaged);
    return OK;
}

/* ---- what train.on_nonfinite does ---- */

#define WARNED_EACH 3

static bool is_power_of_ten(int64_t number) {
    while (number >= 10 && number % 10 == 0) number /= 10;
    return number == 1;
}

static void begin_event(struct trainer *t, enum metrics_event event, const char *why) {
    const struct counters *c = &t->state->counters;
    metrics_begin(t->outputs.metrics, event);
    metrics_int(t->outputs.metrics, "epoch", c->epoch);
    metrics_int(t->outputs.metrics, "batch", c->batch);
    metrics_int(t->outputs.metrics, "step", c->step);
    metrics_text(t->outputs.metrics, "reason", why);
}

/* Only the first three warnings, then the 10th, 100th ... are printed: a run may skip a step in every epoch. */
static void warn(struct trainer *t, enum metrics_event event, const char *what, const char *then) {
    int64_t number = ++t->recovery.warnings;
    if (number < WARNED_EACH)
        log_warning(t->outputs.log, "%s; %s", what, then);
    else if (number == WARNED_EACH)
        log_warning(t->outputs.log, "%s; %s. From now on only the 10th, 100th ... such step is reported%s", what, then,
                    event == METRICS_SKIPPED ? "; all are in metrics.jsonl" : "");
    else if (is_power_of_ten(number))
        log_warning(t->outputs.log, "%s; %s (number %lld since the start)", what, then, (long long)number);
    begin_event(t, event, what);
}

static status stop(const char *what, const char *why) {
    return status_new(STATUS_NOT_FINITE,
                      "%s; %snothing was saved after it. Try a smaller optimizer.lr or train.clip_grad_norm, and look "
                      "for extreme values in the data",
                      what, why);
}

static status skip(struct trainer *t, const char *what) {
    struct counters *c = &t->state->counters;
    const struct params *buffers = &t->model->buffers;
    char why[96];
    if (c->skipped_in_row >= t->config->train.on_nonfinite.max) {
        bool is_one = c->skipped_in_row == 1;
        snprintf(why, sizeof why, "%lld step%s skipped before; ", (long long)c->skipped_in_row,
                 is_one ? " was" : "s in a row were");
        return stop(what, why);
    }
    if (buffers->total)
        device_ops(t->device)->copy(t->device, F32(t->memory.saved_buffers), F32(buffers->values), buffers->total);
    c->skipped++;
    c->skipped_in_row++;
    if (!t->outputs.metrics) return OK;
    warn(t, METRICS_SKIPPED, what, "the step is skipped");
    return metrics_end(t->outputs.metrics);
}

bool recovery_is_overflow(const struct trainer *t, bool is_loss_finite) {
    const struct train_config *c = &t->config->train;
    return is_loss_finite && c->precision == TRAIN_FLOAT16 &&
           loss_scale_can_overflow(&c->grad_scaler, &t->state->counters.loss_scale);
}

status recovery_overflow(struct trainer *t) {
    struct counters *c = &t->state->counters;
    double before = loss_scale_value(&t->config->train.grad_scaler, &c->loss_scale);
    char what[112];
    loss_scale_update(&t->config->train.grad_scaler, &c->loss_scale, true);
    c->skipped++;
    if (!t->outputs.metrics) return OK;
    snprintf(what, sizeof what, "gradients overflowed float16: the loss scale is reduced from %.10g to %.10g", before,
             c->loss_scale.scale);
    begin_event(t, METRICS_SKIPPED, what);
    return metrics_end(t->outputs.metrics);
}

/* ---- roll back ---- */

bool recovery_skips(const struct trainer *t, struct data_position position) {
    const struct recovery_state *r = &t->recovery;
    for (size_t i = 0; i < r->skipped_count; i++)
        if (r->skipped[i].epoch == position.epoch && r->skipped[i].batch == position.batch) return true;
    return false;
}

/* Skips the micro-batches at [position] from now on; false when on_nonfinite.max steps are already skipped. */
static bool add_skipped(struct trainer *t, struct data_position position) {
    struct recovery_state *r = &t->recovery;
    if ((int64_t)r->skipped_count >= t->config->train.on_nonfinite.max) return false;
    r->skipped[r->skipped_count++] = position;
    return true;
}

/* Positions before [position] are not reached again. */
static void discard_before(struct trainer *t, struct data_position position) {
    struct recovery_state *r = &t->recovery;
    size_t kept = 0;
    for (size_t i = 0; i < r->skipped_count; i++) {
        struct data_position g = r->skipped[i];
        bool is_before = g.epoch < position.epoch || (g.epoch == position.epoch && g.batch < position.batch);
        if (!is_before) r->skipped[kept++] = g;
    }
    r->skipped_count = kept;
}

static status reload(struct trainer *t) {
    SCOPED_CHECKPOINT checkpoint = NULL;
    SCOPED_STRING path = NULL;
    TRY(checkpoint_open_newest(run_folder_checkpoints(t->outputs.folder), t->outputs.log, &checkpoint, &path));
    if (!checkpoint) return status_new(STATUS_NOT_FINITE, "there is no checkpoint to roll back to");
    int64_t world_size = t->state->counters.world_size;
    status s = state_load(t->state, checkpoint, path, "--fresh to start over");
    t->state->counters.world_size = world_size;
    if (t->state->counters.pending_end == PENDING_END_OF_EPOCH) /* batches of this number of ranks */
        t->state->counters.batch = (int64_t)loader_batches(t->loader);
    TRY(s);
    if (t->outputs.ledger) TRY(metrics_rewind(t->outputs.ledger, t->state->counters.ledger_bytes, 0));
    return metrics_rewind(t->outputs.metrics, t->state->counters.metrics_bytes, t->state->counters.step);
}

static status roll_back(struct trainer *t, const char *what, struct data_position position,
                        struct data_position written) {
    struct counters *c = &t->state->counters;
    char why[96];
    discard_before(t, written);
    if (!add_skipped(t, position)) {
        snprintf(why, sizeof why, "%lld roll-backs to the newest checkpoint did not help; ",
                 (long long)t->config->train.on_nonfinite.max);
        return stop(what, why);
    }
    TRY(state_map(t->state));
    TRY(zero_gather(t->averaging.zero, t->state, t->comm));
    if (t->outputs.saver) TRY(reload(t));
    TRY(rank_sync_state(t));
    TRY(state_unmap(t->state, true));
    TRY(loader_seek(t->loader, c->epoch, (size_t)c->batch));
    if (!t->outputs.metrics) return OK;
    char then[96];
    snprintf(then, sizeof then, "back to epoch %lld, step %lld; its batches are skipped", (long long)c->epoch + 1,
             (long long)c->step);
    warn(t, METRICS_ROLLBACK, what, then);
    return metrics_end(t->outputs.metrics);
}

status recovery_roll_back(struct trainer *t, struct data_position written) {
    struct recovery_state *recovery = &t->recovery;
    status s = roll_back(t, text_string(&recovery->reason), recovery->position, written);
    text_free(&recovery->reason);
    return s;
}

/* Requests a roll-back for the reason [what], which is moved; the micro-batches at [position] are skipped after it. */
static status request_roll_back(struct trainer *t, struct text *what, struct data_position position) {
    text_free(&t->recovery.reason);
    t->recovery.reason = *what;
    t->recovery.position = position;
    *what = (struct text){0};
    return OK;
}

status recovery_run(struct trainer *t, const struct bad_step *bad, bool *needs_roll_back) {
    const struct counters *c = &t->state->counters;
    SCOPED_TEXT what = {0}, where = {0};
    TRY(rank_sync_verify(t, false)); /* a rank with a different state is reported instead */
    text_printf(&what, "%s not finite in epoch %lld, step %lld", bad->what, (long long)bad->first.epoch + 1,
                (long long)c->step + 1);
    status s = explain(t, bad, &where);
    if (where.length) text_printf(&what, " (first %s)", text_string(&where));
    switch (t->config->train.on_nonfinite.policy) {
    case NONFINITE_SKIP:
        s = s ? s : skip(t, text_string(&what));
        break;
    case NONFINITE_ROLLBACK:
        s = s ? s : request_roll_back(t, &what, bad->first);
        *needs_roll_back = true;
        break;
    default:
        s = s ? s : stop(text_string(&what), "");
        break;
    }
    return s;
}

status recovery_of_parameter(struct trainer *t, const char *parameter, struct data_position last) {
    const struct counters *c = &t->state->counters;
    SCOPED_TEXT what = {0};
    text_printf(&what, "the parameter %s is not finite after epoch %lld, step %lld", parameter, (long long)c->epoch,
                (long long)c->step);
    bool rolls_back = t->config->train.on_nonfinite.policy == NONFINITE_ROLLBACK;
    return rolls_back ? request_roll_back(t, &what, last) : stop(text_string(&what), "");
}

status recovery_open(struct trainer *t) {
    const struct nonfinite_config *c = &t->config->train.on_nonfinite;
    if (c->policy != NONFINITE_ROLLBACK) return OK;
    t->recovery.skipped = calloc((size_t)c->max, sizeof *t->recovery.skipped);
    return t->recovery.skipped ? OK : status_memory("the list of skipped micro-batches");
}

void recovery_close(struct trainer *t) {
    free(t->recovery.skipped);
    text_free(&t->recovery.reason);
}
