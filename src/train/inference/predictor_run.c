/* Predictions of a predictor: sets of activations for its threads, rows, results. */
#include "train/inference/predictor.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "train/inference/predictor_internal.h"

/* ---- sets of activations ---- */

static status create_worker(struct predictor *p, struct predictor_worker *w) {
    static const struct dist_env alone = {.world_size = 1, .local_world_size = 1};
    struct plan_options options = {.purpose = PLAN_INFERENCE, .env = &alone, .info = &p->info};
    TRY(plan_create(&p->config, &options, &w->plan));
    struct model *model = w->plan->model;
    TRY(model_alloc(model, w->plan->device, w->plan->batch));
    if (p->values) {
        params_use_values(&model->params, w->plan->device, p->values);
        params_use_values(&model->buffers, w->plan->device, p->buffers);
    }
    size_t values = w->plan->batch * p->about.inputs.size;
    TRY(buffer_new(values * sizeof *w->inputs, "a batch", (void **)&w->inputs));
    TRY(buffer_new(values * sizeof *w->values, "a batch", (void **)&w->values));
    return buffer_new(w->plan->batch * sizeof *w->positions, "a batch", (void **)&w->positions);
}

void predictor_destroy_worker(struct predictor_worker *w) {
    if (!w) return;
    buffer_free(w->inputs);
    buffer_free(w->values);
    buffer_free(w->positions);
    plan_destroy(w->plan);
    free(w);
}

status predictor_new_worker(struct predictor *p, struct predictor_worker **out) {
    struct predictor_worker *w = calloc(1, sizeof *w);
    *out = NULL;
    if (!w) return status_memory("a model");
    status s = create_worker(p, w);
    if (s)
        predictor_destroy_worker(w);
    else
        *out = w;
    return s;
}

static status take(struct predictor *p, struct predictor_worker **out) {
    pthread_mutex_lock(&p->lock);
    struct predictor_worker *w = *out = p->idle;
    if (w) p->idle = w->next;
    pthread_mutex_unlock(&p->lock);
    return w ? OK : predictor_new_worker(p, out);
}

void predictor_release_worker(struct predictor *p, struct predictor_worker *w) {
    if (!w) return;
    pthread_mutex_lock(&p->lock);
    w->next = p->idle;
    p->idle = w;
    pthread_mutex_unlock(&p->lock);
}

/* ---- rows ---- */

/* Where the rows of a call come from: one of values, tokens and dataset. */
struct rows {
    struct predictor_values values;
    const int32_t *tokens;
    struct dataset *dataset;
    size_t count;
};

/* Tokens are passed on as they are. */
static status check_tokens(const struct predictor *p, const int32_t *tokens, size_t first, size_t count) {
    size_t size = p->about.inputs.size;
    for (size_t i = first * size; i < (first + count) * size; i++)
        if (tokens[i] < 0 || tokens[i] >= p->about.inputs.vocabulary)
            return status_new(STATUS_DATA, "row %zu, token %zu: %d is not a token of the model, which has 0 to %lld",
                              i / size, i % size, (int)tokens[i], (long long)p->about.inputs.vocabulary - 1);
    return OK;
}

/* Whether the model can use the inputs (count, size) of the worker. */
static status check_values(const struct predictor_worker *w, size_t first, size_t count, size_t size) {
    for (size_t i = 0; i < count && model_checks_rows(w->plan->model); i++)
        TRY(status_prefix(model_check_row(w->plan->model, w->inputs + i * size), "row %zu", first + i));
    return OK;
}

/* The inputs of rows first .. first + count - 1. */
static status read_rows(const struct predictor *p, struct predictor_worker *w, const struct rows *rows, size_t first,
                        size_t count, const float **inputs) {
    size_t size = p->about.inputs.size, values = count * size;
    *inputs = w->inputs;
    if (rows->dataset) {
        for (size_t i = 0; i < count; i++) w->positions[i] = (int64_t)(first + i);
        TRY(dataset_read(rows->dataset, DATASET_TRAIN, w->positions, count, w->inputs, w->values));
        return check_values(w, first, count, size);
    }
    if (rows->tokens) {
        *inputs = (const float *)(const void *)(rows->tokens + first * size);
        return check_tokens(p, rows->tokens, first, count);
    }
    if (rows->values.doubles) memcpy(w->values, rows->values.doubles + first * size, values * sizeof *w->values);
    for (size_t i = 0; rows->values.floats && i < values; i++)
        w->values[i] = (double)rows->values.floats[first * size + i];
    TRY(input_scaling_apply(p->scaling, first, w->values, count, w->inputs));
    return check_values(w, first, count, size);
}

/* ---- results ---- */

/* Copies the predictions and probabilities of a part to its columns of the results of all parts. */
static void copy_part(const struct predictions *part, size_t column, size_t columns, size_t probability,
                      size_t probabilities, const struct predictor_results *to) {
    for (size_t r = 0; r < part->rows; r++) {
        for (size_t i = 0; to->predictions && i < part->count; i++) {
            size_t from = r * part->count + i;
            to->predictions[r * columns + column + i] = part->classes  ? (double)part->classes[from]
                                                        : part->values ? part->values[from]
                                                                       : (double)part->outputs[from];
        }
        if (part->probabilities)
            memcpy(to->probabilities + r * probabilities + probability, part->probabilities + r * part->n_probabilities,
                   part->n_probabilities * sizeof(float));
    }
}

static status interpret(const struct predictor *p, const float *outputs, size_t rows,
                        const struct predictor_results *to) {
    size_t columns = p->about.predictions.count, probabilities = p->about.probabilities.count;
    struct prediction_meaning meaning = p->meaning;
    struct predictions all = {.rows = rows, .outputs = outputs, .size = p->about.outputs};
    struct arena *arena = arena_create();
    meaning.wants_probabilities = to->probabilities != NULL;
    status s = predictions_make(&all, &meaning, arena);
    size_t parts = all.part_count ? all.part_count : 1;
    for (size_t i = 0, column = 0, probability = 0; !s && i < parts; i++) {
        const struct predictions *part = all.part_count ? &all.parts[i] : &all;
        copy_part(part, column, columns, probability, probabilities, to);
        column += part->count;
        probability += part->n_probabilities;
    }
    predictions_free(&all);
    arena_destroy(arena);
    return s;
}

/* The results of the rows from [first] on. */
static struct predictor_results after(const struct predictor *p, const struct predictor_results *r, size_t first) {
    const struct predictor_description *about = &p->about;
    return (struct predictor_results){
        .outputs = r->outputs ? r->outputs + first * about->outputs : NULL,
        .predictions = r->predictions ? r->predictions + first * about->predictions.count : NULL,
        .probabilities = r->probabilities ? r->probabilities + first * about->probabilities.count : NULL};
}

static status run_batch(struct predictor *p, struct predictor_worker *w, const struct rows *rows, size_t first,
                        size_t count, const struct predictor_results *results) {
    struct device *device = w->plan->device;
    struct pass pass = {.device = device, .rows = count};
    struct predictor_results to = after(p, results, first);
    const float *inputs;
    TRY(read_rows(p, w, rows, first, count, &inputs));
    if (w->prepared != count) TRY(model_prepare(w->plan->model, count, false));
    w->prepared = count;
    const float *outputs = model_forward(w->plan->model, &pass, inputs);
    TRY(device_status(device));
    if (to.outputs) memcpy(to.outputs, outputs, count * p->about.outputs * sizeof *outputs);
    return to.predictions || to.probabilities ? interpret(p, outputs, count, &to) : OK;
}

static status check_results(const struct predictor *p, const struct predictor_results *results) {
    if (!results->probabilities || p->about.probabilities.count) return OK;
    return status_new(STATUS_USAGE, "the model gives no probabilities: it does not predict one class per row");
}

/* Batches have the rows of those of `predict`: where a layer uses the statistics of its batch, the bits depend on it.
 */
static status run(struct predictor *p, const struct rows *rows, const struct predictor_results *results) {
    struct predictor_worker *w;
    TRY(check_results(p, results));
    TRY(take(p, &w));
    status s = OK;
    for (size_t done = 0; !s && done < rows->count;) {
        size_t left = rows->count - done, count = left < w->plan->batch ? left : w->plan->batch;
        s = run_batch(p, w, rows, done, count, results);
        done += count;
    }
    predictor_release_worker(p, w);
    return s;
}

static status check_kind(const struct predictor *p, bool has_tokens) {
    if (p->about.has_preparation)
        return status_new(STATUS_USAGE,
                          "the model's inputs are the columns of a table, and not all of them are numbers; "
                          "pass them by name");
    if (has_tokens == (p->about.inputs.kind == INPUT_TOKENS)) return OK;
    return has_tokens ? status_new(STATUS_USAGE, "the model's inputs are numbers, not tokens")
                      : status_new(STATUS_USAGE, "the model's inputs are tokens, not numbers");
}

status predictor_run(struct predictor *p, struct predictor_values values, size_t rows,
                     const struct predictor_results *results) {
    TRY(check_kind(p, false));
    return run(p, &(struct rows){.values = values, .count = rows}, results);
}

status predictor_run_tokens(struct predictor *p, const int32_t *tokens, size_t rows,
                            const struct predictor_results *results) {
    TRY(check_kind(p, true));
    return run(p, &(struct rows){.tokens = tokens, .count = rows}, results);
}

status predictor_run_table(struct predictor *p, const struct cells *cells, const struct predictor_results *results) {
    struct dataset_config config = p->dataset;
    struct dataset *dataset;
    if (p->about.columns.count == 0)
        return status_new(STATUS_USAGE, "the model was not trained with the columns of a table; pass rows of numbers");
    if (cells->rows == 0) return check_results(p, results);
    config.cells = cells;
    TRY(dataset_open(&config, config_loss(&p->config)->wants_classes, false, &dataset));
    status s = OK;
    const struct dataset_info *info = dataset_info(dataset);
    if (info->input_size != p->about.inputs.size || info->train_rows != cells->rows)
        s = status_new(STATUS_DATA, "the table has %zu features of %zu rows, but the model has %zu inputs",
                       info->input_size, info->train_rows, p->about.inputs.size);
    if (!s) s = run(p, &(struct rows){.dataset = dataset, .count = cells->rows}, results);
    dataset_close(dataset);
    return s;
}

const struct predictor_description *predictor_describe(const struct predictor *predictor) { return &predictor->about; }
