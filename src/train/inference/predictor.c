/* Everything that a call needs is read from the checkpoint and checked when it is opened; a call takes a set of
 * activations, of which there are as many as threads predicted at once. */
#include "train/inference/predictor.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/files/io.h"
#include "base/scoped.h"
#include "data/text/vocabulary.h"
#include "train/inference/session.h"

/* A set of activations: what one thread needs for a prediction. */
struct predictor_worker {
    struct predictor_worker *next;
    struct plan *plan;  /* with the device and the model */
    float *inputs;      /* (batch, inputs.size) */
    double *values;     /* (batch, inputs.size) before scaling */
    int64_t *positions; /* (batch) */
    size_t prepared;    /* rows that model_prepare was called for; 0: none */
};

struct predictor {
    struct session session;
    struct config config; /* of the checkpoint, on the CPU */
    struct dataset_info info;
    struct predictor_description about;
    struct vocabulary *vocabulary;     /* NULL: not known */
    struct prediction_meaning meaning; /* of the outputs */
    struct input_scaling *scaling;     /* NULL: tokens, or columns with a preparation */
    struct predictor_worker *first;    /* has the weights */
    float *values, *buffers;           /* of [first], which all workers use; NULL: not loaded yet */
    pthread_mutex_t lock;              /* of [idle] */
    struct predictor_worker *idle;
};

/* ---- sets of activations ---- */

static status create_worker(struct predictor *p, struct predictor_worker *w) {
    static const struct dist_env alone = {.world_size = 1, .local_world_size = 1};
    struct plan_options options = {.purpose = PLAN_INFERENCE, .env = &alone, .info = &p->info};
    TRY(plan_create(&p->config, &options, &w->plan));
    struct model *model = w->plan->model;
    if (!p->values) {
        TRY(session_load(&p->session, w->plan, w->plan->batch));
    } else {
        TRY(model_alloc(model, w->plan->device, w->plan->batch));
        params_use_values(&model->params, w->plan->device, p->values);
        params_use_values(&model->buffers, w->plan->device, p->buffers);
    }
    size_t values = w->plan->batch * p->about.inputs.size;
    TRY(buffer_new(values * sizeof *w->inputs, "a batch", (void **)&w->inputs));
    TRY(buffer_new(values * sizeof *w->values, "a batch", (void **)&w->values));
    return buffer_new(w->plan->batch * sizeof *w->positions, "a batch", (void **)&w->positions);
}

static void destroy_worker(struct predictor_worker *w) {
    if (!w) return;
    buffer_free(w->inputs);
    buffer_free(w->values);
    buffer_free(w->positions);
    plan_destroy(w->plan);
    free(w);
}

static status new_worker(struct predictor *p, struct predictor_worker **out) {
    struct predictor_worker *w = calloc(1, sizeof *w);
    *out = NULL;
    if (!w) return status_memory("a model");
    status s = create_worker(p, w);
    if (s) destroy_worker(w);
    if (!s) *out = w;
    return s;
}

static status take(struct predictor *p, struct predictor_worker **out) {
    pthread_mutex_lock(&p->lock);
    struct predictor_worker *w = *out = p->idle;
    if (w) p->idle = w->next;
    pthread_mutex_unlock(&p->lock);
    return w ? OK : new_worker(p, out);
}

static void release_worker(struct predictor *p, struct predictor_worker *w) {
    if (!w) return;
    pthread_mutex_lock(&p->lock);
    w->next = p->idle;
    p->idle = w;
    pthread_mutex_unlock(&p->lock);
}

/* ---- the checkpoint ---- */

static bool is_config(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0);
}

static status open_session(struct predictor *p, const char *path, const struct predictor_options *options) {
    struct session_options opening = {.path = path, .is_own = true, .predicts = true};
    struct config_file *file = NULL;
    struct io_info info;
    const char *which = options->checkpoint;
    if (which && strcmp(which, CHECKPOINT_BEST) != 0 && strcmp(which, CHECKPOINT_NEWEST) != 0)
        return status_usage("the checkpoint is '%s'; expected best or newest, or nothing for the best one if the run "
                            "keeps one, else the newest",
                            which);
    opening.weights = (struct weights_options){.checkpoint = which, .which = options->weights};
    if (is_config(path)) {
        TRY(config_load(path, NULL, 0, &file));
        opening.config = config_of(file);
        status s = session_open(&opening, NULL, &p->session);
        config_free(file);
        return s;
    }
    TRY(io_stat(path, &info));
    if (!info.exists) return status_data("%s does not exist", path);
    if (which && !info.is_folder)
        return status_usage("%s: this is a file, and the %s checkpoint is looked for in a run folder", path, which);
    if (info.is_folder)
        opening.weights.folder = path;
    else
        opening.weights.checkpoint = path;
    return session_open(&opening, NULL, &p->session);
}

static status read_session(struct predictor *p) {
    struct session *session = &p->session;
    struct dataset_config *dataset = &session->dataset;
    struct entry counters[] = {{.path = "state/epoch", .type = ENTRY_INT64, .data = &p->about.epoch},
                               {.path = "state/step", .type = ENTRY_INT64, .data = &p->about.step}};
    TRY(checkpoint_read(session->checkpoint, counters, 2, NULL));
    TRY(session_read(session));
    p->config = *session->config;
    p->config.device = DEVICE_CPU;
    p->about.name = p->config.name;
    p->about.labels = session->labels;
    dataset->request.without_targets = true;
    dataset->request.input_targets.count = 0;
    dataset_remove_split(dataset);
    dataset->validation = (struct validation_config){0};
    dataset->augment = (struct augment_config){0};
    dataset->request.local_ranks = 1;
    return session_vocabulary(session, &p->vocabulary);
}

/* ---- inputs ---- */

/* For a checkpoint of an earlier version: from its vocabulary or its columns; else the dataset must be there. */
static status guess_layout(struct predictor *p, struct input_layout *layout) {
    const struct preparation *preparation = p->session.dataset.request.preparation;
    struct dataset *dataset;
    *layout = (struct input_layout){.dims = 1, .size = preparation ? preparation->features : p->about.columns.count};
    layout->divide = p->config.dataset.divide > 0 ? p->config.dataset.divide : 1;
    if (p->vocabulary) {
        layout->kind = INPUT_TOKENS;
        layout->vocabulary = (int64_t)vocabulary_size(p->vocabulary);
        layout->size = (size_t)p->config.dataset.text.block_size;
    }
    layout->shape[0] = (int64_t)layout->size;
    if (layout->size > 0 && p->config.dataset.input_groups.count == 0) return OK;
    TRY(status_prefix(
        dataset_open(&p->config.dataset, config_loss(&p->config)->wants_classes, true, &dataset),
        "the checkpoint is of an earlier version without the shape of the inputs, and the dataset cannot be read"));
    *layout = dataset_input_layout(dataset);
    struct dataset_input *inputs = arena_alloc(p->session.arena, (layout->input_count + 1) * sizeof *inputs);
    for (size_t i = 0; i < layout->input_count; i++) {
        inputs[i] = layout->inputs[i];
        inputs[i].name = arena_copy(p->session.arena, inputs[i].name);
    }
    layout->inputs = inputs;
    dataset_close(dataset);
    return OK;
}

static void list_columns(struct predictor *p) {
    const struct column_list *list = &p->session.dataset.request.columns;
    struct string_list *columns = &p->about.columns;
    if (list->count == 0 || strcmp(list->format, "csv") != 0) return; /* a dataset of a file may be many inputs */
    if (p->session.dataset.window.steps || p->session.dataset.draw.type) return; /* an input is one of several rows */
    columns->items = arena_alloc(p->session.arena, (list->count + 1) * sizeof *columns->items);
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i].role == COLUMN_INPUT) columns->items[columns->count++] = list->items[i].name;
    *columns = column_rules_read(&p->session.dataset.rules, columns, p->session.arena);
}

static status read_inputs(struct predictor *p) {
    const struct session *session = &p->session;
    struct input_layout *layout = &p->about.inputs;
    p->about.vocabulary = p->vocabulary;
    list_columns(p);
    *layout = session->inputs;
    if (!session->has_inputs) TRY(guess_layout(p, layout));
    p->info = input_layout_info(layout);
    p->about.has_preparation = session->dataset.request.preparation != NULL;
    if (p->about.has_preparation && session->dataset.window.steps)
        return status_usage("the model reads windows of rows (dataset.window) with columns that are "
                            "prepared (data/preparation), which only `ddptrain predict` computes");
    if (p->about.has_preparation && session->dataset.draw.type)
        return status_usage("the model reads several rows at once (dataset.draw) with columns that are "
                            "prepared (data/preparation), which only `ddptrain predict` computes");
    if (p->about.has_preparation || layout->kind == INPUT_TOKENS) return OK;
    return input_scaling_create(layout, &session->dataset.scale, &p->scaling);
}

/* ---- the model ---- */

static status load_model(struct predictor *p) {
    TRY(new_worker(p, &p->first));
    const struct model *model = p->first->plan->model;
    p->values = model->params.values;
    p->buffers = model->buffers.values;
    p->about.parameters = model->params.elements;
    p->about.outputs = model->out_size;
    p->meaning = session_meaning(&p->session, p->first->plan);
    return OK;
}

static struct string_list copy_names(struct predictor *p, const char *const *names, size_t count,
                                     struct string_list list) {
    const char **items = arena_alloc(p->session.arena, (list.count + count + 1) * sizeof *items);
    if (list.count) memcpy(items, list.items, list.count * sizeof *items);
    if (count) memcpy(items + list.count, names, count * sizeof *items);
    return (struct string_list){items, list.count + count};
}

/* The names of the predictions and probabilities, which no rows give, too. */
static status describe_outputs(struct predictor *p) {
    struct predictions none = {.size = p->about.outputs};
    p->meaning.wants_probabilities = true;
    status s = predictions_check(&p->meaning);
    p->meaning.wants_probabilities = !s;
    if (s && status_code(s) != STATUS_USAGE) return s;
    status_free(s);
    s = predictions_make(&none, &p->meaning, p->session.arena);
    size_t parts = none.part_count ? none.part_count : 1;
    bool *are_classes = arena_alloc(p->session.arena, (p->about.outputs + 1) * sizeof *are_classes);
    for (size_t i = 0; !s && i < parts; i++) {
        const struct predictions *part = none.part_count ? &none.parts[i] : &none;
        for (size_t k = 0; k < part->count; k++) are_classes[p->about.predictions.count + k] = part->classes != NULL;
        p->about.predictions = copy_names(p, part->names, part->count, p->about.predictions);
        p->about.probabilities = copy_names(p, part->probability_names, part->n_probabilities, p->about.probabilities);
    }
    p->about.are_classes = are_classes;
    predictions_free(&none);
    return s;
}

static status fill(struct predictor *p, const char *path, const struct predictor_options *options) {
    TRY(open_session(p, path, options));
    TRY(read_session(p));
    TRY(read_inputs(p));
    TRY(load_model(p));
    session_close_checkpoint(&p->session);
    TRY(describe_outputs(p));
    release_worker(p, p->first);
    return OK;
}

status predictor_open(const char *path, const struct predictor_options *options, struct predictor **out) {
    static const struct predictor_options automatic;
    struct predictor *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p) return status_memory("a model");
    pthread_mutex_init(&p->lock, NULL);
    status s = fill(p, path, options ? options : &automatic);
    if (s) predictor_close(p);
    if (!s) *out = p;
    return s;
}

void predictor_close(struct predictor *p) {
    if (!p) return;
    for (struct predictor_worker *w = p->idle, *next; w; w = next) {
        next = w->next;
        if (w != p->first) destroy_worker(w);
    }
    destroy_worker(p->first); /* the last, because it has the weights */
    input_scaling_destroy(p->scaling);
    vocabulary_destroy(p->vocabulary);
    session_close(&p->session);
    pthread_mutex_destroy(&p->lock);
    free(p);
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
            return status_data("row %zu, token %zu: %d is not a token of the model, which has 0 to %lld", i / size,
                               i % size, (int)tokens[i], (long long)p->about.inputs.vocabulary - 1);
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
    SCOPED_ARENA arena = arena_create();
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
    struct predictor_results to = after(p, results, first);
    const float *inputs, *outputs;
    TRY(read_rows(p, w, rows, first, count, &inputs));
    if (w->prepared != count) TRY(model_prepare(w->plan->model, count, false));
    w->prepared = count;
    TRY(session_run(w->plan, count, 0, false, inputs, &outputs));
    if (to.outputs) memcpy(to.outputs, outputs, count * p->about.outputs * sizeof *outputs);
    return to.predictions || to.probabilities ? interpret(p, outputs, count, &to) : OK;
}

static status check_results(const struct predictor *p, const struct predictor_results *results) {
    if (!results->probabilities || p->about.probabilities.count) return OK;
    return status_usage("the model gives no probabilities: it does not predict one class per row");
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
    release_worker(p, w);
    return s;
}

static status check_kind(const struct predictor *p, bool has_tokens) {
    if (p->about.has_preparation)
        return status_new(
            STATUS_USAGE,
            "the model's inputs are the columns of a table, and not all of them are numbers; pass them by name");
    if (has_tokens == (p->about.inputs.kind == INPUT_TOKENS)) return OK;
    return has_tokens ? status_usage("the model's inputs are numbers, not tokens")
                      : status_usage("the model's inputs are tokens, not numbers");
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
    struct dataset_config config = p->session.dataset;
    struct dataset *dataset;
    if (p->about.columns.count == 0)
        return status_usage("the model was not trained with the columns of a table; pass rows of numbers");
    if (cells->rows == 0) return check_results(p, results);
    config.request.cells = cells;
    TRY(dataset_open(&config, config_loss(&p->config)->wants_classes, false, &dataset));
    status s = OK;
    const struct dataset_info *info = dataset_info(dataset);
    if (info->input_size != p->about.inputs.size || info->train_rows != cells->rows)
        s = status_data("the table has %zu features of %zu rows, but the model has %zu inputs", info->input_size,
                        info->train_rows, p->about.inputs.size);
    if (!s) s = run(p, &(struct rows){.dataset = dataset, .count = cells->rows}, results);
    dataset_close(dataset);
    return s;
}

const struct predictor_description *predictor_describe(const struct predictor *predictor) { return &predictor->about; }
