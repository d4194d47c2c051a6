/* eval and predict share the set-up: each rank reads the checkpoint itself and computes its share of the rows; the sums
 * are reduced, the predictions gathered on rank 0. */
#include "train/inference/inference.h"

#include <string.h>

#include "base/buffer.h"
#include "base/files/io.h"
#include "base/scoped.h"
#include "base/stop.h"
#include "data/columns/raw_columns.h"
#include "data/dataset/loader.h"
#include "dist/comm/comm.h"
#include "train/inference/predictions.h"
#include "train/inference/session.h"
#include "train/loop/dry_run.h"
#include "train/metrics/evaluation.h"
#include "train/plan/feed.h"

struct inference {
    const struct config *config;
    const struct dist_env *env;
    struct log *log; /* of every rank */
    struct arena *arena;
    struct store *store;
    struct comm *comm;
    const struct loss_type *loss;
    struct session session;
    struct dataset *dataset; /* the plan's after open_model, as device and model */
    struct plan *plan;
    struct device *device;
    struct model *model;
    const struct inference_options *options;
    bool predicts, is_all; /* predict, not eval; --part all */
    enum dataset_part part;
    size_t rows, first, count; /* of the part; this rank's share of it */
    size_t batch;
    bool continues_rows; /* of the next pass */
    float *inputs;       /* (batch, input_size) */
    float *weights;      /* (batch); NULL: the rows have none */
    void *targets;       /* (batch) int64_t or (batch, target_size) float */
    struct feed *feed;
    size_t outputs;     /* values that are predicted for a row: of the model, or of all steps ahead */
    struct plan *steps; /* ahead: the model for one position after the other; NULL: not wanted */
    struct shape ahead; /* (steps, outputs of a step) */
};

static const char *part_name(const struct inference *inf) {
    if (inf->is_all) return "all";
    static const char *const names[] = {
        [DATASET_TRAIN] = "train", [DATASET_VALIDATION] = "validation", [DATASET_TEST] = "test"};
    return names[inf->part];
}

/* Labels cannot be compared with a model that was trained with numbers; of one that was trained with texts, numbers are
 * those of its classes. */
static status check_labels(const struct inference *inf, const struct dataset_config *dataset) {
    struct string_list labels = dataset_labels(inf->dataset);
    const struct string_list *known = &dataset->request.classes;
    double *numbers = arena_alloc(inf->arena, (known->count + 1) * sizeof *numbers);
    bool reads_numbers = labels.count == 0 && known->count && !dataset->request.without_targets;
    if (reads_numbers && !labels_as_numbers(known, numbers))
        log_line(inf->env->rank == 0 ? inf->log : NULL,
                 "%s: the targets are numbers, and the model was trained with labels: 0 is '%.40s', %zu is '%.40s'",
                 dataset->path ? dataset->path : "synthetic dataset", known->items[0], known->count - 1,
                 known->items[known->count - 1]);
    if (labels.count == 0 || known->count) return OK;
    return status_data("%s: the classes are labels ('%.40s', ...), but the model was trained with numbers; write the "
                       "numbers of the classes",
                       dataset->path, labels.items[0]);
}

static status choose_part(struct inference *inf, const struct inference_options *options) {
    const struct dataset_info *info = dataset_info(inf->dataset);
    bool is_train = inf->is_all || (options->part && strcmp(options->part, "train") == 0),
         is_test = options->part && strcmp(options->part, "test") == 0;
    if (options->part && !is_train && !is_test && strcmp(options->part, "validation") != 0)
        return status_usage("--part: expected validation, test, train or all, got '%s'", options->part);
    if (is_test && info->test_rows == 0)
        return status_usage("--part test: the config has no test rows; dataset.split with test and "
                            "validation (or folds) has. With test alone they are the validation rows");
    if (options->part && !is_train && info->validation_rows == 0)
        return status_usage("--part validation: the config has neither dataset.split nor dataset.validation");
    inf->part = is_test ? DATASET_TEST : is_train || info->validation_rows == 0 ? DATASET_TRAIN : DATASET_VALIDATION;
    inf->rows = dataset_part_rows(info, inf->part);
    sampler_evaluation_range(inf->rows, inf->env->rank, inf->env->world_size, &inf->first, &inf->count);
    return OK;
}

/* [failure]: the split failed; suggests --part all if the file can be read without it. Consumes [failure]. */
static status suggest_all(const struct inference *inf, struct dataset_config dataset, status failure) {
    struct dataset *all;
    if (dataset.split.test <= 0 && dataset.split.train <= 0 && dataset.split.folds == 0) return failure;
    dataset_remove_split(&dataset);
    dataset.request.without_targets = inf->predicts;
    if (inf->predicts) dataset.filter = NULL;
    if (inf->predicts) dataset.request.classes = (struct string_list){0};
    status s = dataset_open(&dataset, inf->loss->wants_classes, false, &all);
    if (s) {
        status_free(s);
        return failure;
    }
    dataset_close(all);
    s = status_new(status_code(failure), "%s; --part all uses every row", status_message(failure));
    status_free(failure);
    return s;
}

/* Logs how the columns were matched, or that they could not be compared with [trained]. */
static void log_columns(const struct inference *inf, const struct column_list *trained) {
    const struct string_list notes = dataset_notes(inf->dataset);
    const struct column_list now = dataset_columns(inf->dataset);
    const char *path = inf->config->dataset.path;
    struct log *log = inf->env->rank == 0 ? inf->log : NULL;
    for (size_t i = 0; i < notes.count; i++) log_line(log, "%s", notes.items[i]);
    if (trained->count == 0 && now.count)
        log_line(log,
                 "%s: the columns could not be compared with those of the training, because the checkpoint does not "
                 "have their names; they are used in the order of the file",
                 path);
    if (columns_count(trained, COLUMN_INPUT) == 0 || (now.count && strcmp(trained->format, now.format) == 0)) return;
    SCOPED_TEXT names = {0};
    columns_add_names(trained, COLUMN_INPUT, &names);
    log_line(log, "%s: the columns could not be compared with those of the training (%s file, inputs %s)",
             path ? path : "synthetic dataset", trained->format, text_string(&names));
}

/* A stratified split reads the classes, and one of the rows that have a target reads which these are. */
static bool needs_targets(const struct inference *inf) {
    const struct dataset_config *dataset = &inf->config->dataset;
    bool drops_rows = dataset->drops_missing_targets && !dataset->validation.path && dataset_has_validation(dataset);
    return !inf->predicts || (!inf->is_all && (dataset->split.stratify || drops_rows || dataset->draw.type));
}

/* Opens inf->dataset. Names of the training's file may be none of a file of another format, which then has its own
 * defaults. */
static status open_named(struct inference *inf) {
    struct dataset_config *dataset = &inf->session.dataset;
    status s = dataset_open(dataset, inf->loss->wants_classes, false, &inf->dataset);
    if (status_code(s) != STATUS_DATA || !session_leave_names(&inf->session, dataset)) return s;
    status_free(s);
    return dataset_open(dataset, inf->loss->wants_classes, false, &inf->dataset);
}

static status open_dataset(struct inference *inf) {
    struct dataset_config *dataset = &inf->session.dataset;
    inf->loss = config_loss(inf->config);
    TRY(session_read(&inf->session));
    if (inf->is_all) {
        dataset_remove_split(dataset);
        dataset->validation = (struct validation_config){0};
    }
    dataset->request.local_ranks = inf->env->local_world_size;
    dataset->request.skips_bad_rows = inf->options->skips_bad_rows;
    dataset->request.draws_in_order = inf->predicts && inf->is_all;
    if (inf->predicts && inf->is_all) dataset->filter = NULL; /* a line for each row */
    if (inf->predicts) {
        dataset->request.without_targets = !needs_targets(inf);
        dataset->request.input_targets.count = 0;
    }
    if (!dataset->request.without_targets)
        dataset->request.classes = inf->session.labels; /* labels have the same class numbers as in training */
    status s = open_named(inf);
    if (s) return suggest_all(inf, *dataset, dataset_explain_columns(dataset, s));
    log_columns(inf, &dataset->request.columns);
    return check_labels(inf, dataset);
}

/* Logs the number of rows and their file. */
static void log_rows(const struct inference *inf, struct log *log) {
    const struct dataset_config *dataset = &inf->config->dataset;
    const struct dataset_info *info = dataset_info(inf->dataset);
    bool is_own = inf->part == DATASET_VALIDATION && dataset->validation.path,
         is_split = !inf->is_all && !dataset->validation.path;
    const char *file = is_own ? dataset->validation.path : dataset->path ? dataset->path : "synthetic dataset";
    size_t others = is_own ? dataset->validation.others.count : dataset->others.count;
    if (others) file = arena_printf(inf->arena, "%s and %zu more", file, others);
    if (info->windows.steps) {
        const char *part = inf->is_all || !dataset_has_validation(dataset) ? ""
                           : inf->part == DATASET_VALIDATION               ? " for validation (--part all uses all)"
                           : inf->part == DATASET_TEST                     ? " for the test (--part all uses all)"
                                                                           : " for training (--part all uses all)";
        log_line(log, "%s: %zu window%s of %zu rows%s", file, inf->rows, text_plural(inf->rows, "s"),
                 info->windows.steps, part);
        return;
    }
    if (dataset->draw.type) {
        log_line(log, "%s: %zu sample%s of %zu rows (dataset.draw)%s", file, inf->rows, text_plural(inf->rows, "s"),
                 info->input_count, inf->is_all && inf->predicts ? ", one after another" : "");
        return;
    }
    size_t rows = is_split ? info->rows : inf->rows;
    if (rows == inf->rows && dataset_left_out(inf->dataset, inf->part).count)
        log_line(log, "%s: the %zu row%s left", file, rows, rows == 1 ? " that is" : "s that are");
    else if (rows == inf->rows)
        log_line(log, "%s: all %zu row%s", file, rows, text_plural(rows, "s"));
    else
        log_line(log, "%s: %zu of %zu row%s, those for %s (--part all uses all)", file, inf->rows, rows,
                 text_plural(rows, "s"), inf->part == DATASET_TRAIN ? "training" : part_name(inf));
}

/* Whether the part is made by dataset.split. */
static bool uses_split(const struct inference *inf) {
    return !inf->is_all && !inf->config->dataset.validation.path && dataset_info(inf->dataset)->validation_rows > 0;
}

/* Logs that the rows of the part are not those of the same part of the training. Rows without targets cannot be
 * compared. */
static status compare_split(const struct inference *inf, struct log *log) {
    const struct dataset_config *dataset = &inf->config->dataset;
    const char *fingerprint = needs_targets(inf) ? dataset_info(inf->dataset)->fingerprint : NULL, *why;
    if (inf->env->rank != 0 || !uses_split(inf)) return OK;
    TRY(session_compare_split(&inf->session, fingerprint, &why));
    if (why)
        log_warning(log, "%s: %s: the model may have been trained on rows for validation",
                    dataset->path ? dataset->path : "synthetic dataset", why);
    return OK;
}

static status open_model(struct inference *inf) {
    const struct dataset_info *info = dataset_info(inf->dataset);
    struct plan_options options = {.purpose = PLAN_INFERENCE, .env = inf->env, .dataset = inf->dataset};
    inf->dataset = NULL;
    TRY(plan_create(inf->config, &options, &inf->plan));
    inf->dataset = inf->plan->dataset;
    inf->device = inf->plan->device;
    inf->model = inf->plan->model;
    inf->batch = inf->plan->batch;
    inf->outputs = inf->model->out_size;
    if (inf->plan->objective) TRY(objective_alloc(inf->plan->objective, inf->device, inf->batch));
    if (!inf->predicts)
        TRY(loss_prepare(inf->loss, inf->plan->loss_config, inf->device, &inf->model->out, info->target_size,
                         inf->batch, (size_t)inf->env->world_size));
    TRY(feed_create(inf->device, info, inf->batch, &inf->feed));
    size_t target_bytes = info->target_kind == TARGET_CLASS ? sizeof(int64_t) : sizeof(float);
    TRY(buffer_new(inf->batch * info->input_size * sizeof(float), "a batch", (void **)&inf->inputs));
    if (info->has_weights) TRY(buffer_new(inf->batch * sizeof(float), "a batch", (void **)&inf->weights));
    return buffer_new(inf->batch * info->target_size * target_bytes, "a batch", &inf->targets);
}

static status join(struct inference *inf) {
    const struct dist_config *d = &inf->config->dist;
    struct store_options options = {.timeout = d->timeout,
                                    .hang = d->hang_timeout,
                                    .log = inf->log,
                                    .is_inference = true,
                                    .overdue = inf->options->overdue,
                                    .forwards_stop = true};
    if (inf->env->world_size > 1) TRY(store_open_with(inf->env, &options, &inf->store));
    TRY(comm_create(comm_backend_names[d->backend], inf->env, inf->store, d->timeout, &inf->comm));
    return comm_limit_threads(inf->comm);
}

/* Adds the difference of the columns to [failure], of weights that do not fit the rows. */
static status explain_columns(const struct inference *inf, status failure) {
    struct dataset_config dataset = inf->config->dataset;
    if (status_code(failure) != STATUS_DATA) return failure;
    dataset.request.columns = inf->session.dataset.request.columns;
    dataset.request.without_targets = inf->predicts;
    return dataset_explain_columns(&dataset, failure);
}

static void add_shape(int dims, const int64_t *sizes, struct text *out) {
    struct shape shape = {.dims = dims};
    memcpy(shape.size, sizes, (size_t)dims * sizeof *sizes);
    text_add(out, shape_text(&shape).s);
}

/* Adds the shapes of a row of images here and in the training to [failure] of opening the model, if they differ. */
static status explain_shape(const struct inference *inf, int dims, const int64_t *shape, status failure) {
    const struct input_layout *trained = &inf->session.inputs;
    SCOPED_TEXT text = {0};
    if (!failure || dims < 2) return failure;
    bool differs = inf->session.has_inputs && trained->kind == INPUT_VALUES &&
                   (trained->dims != dims || memcmp(trained->shape, shape, (size_t)dims * sizeof *shape) != 0);
    if (!differs) return failure;
    text_printf(&text, "%s\na row of the inputs is ", status_message(failure));
    add_shape(dims, shape, &text);
    text_add(&text, ", and was ");
    add_shape(trained->dims, trained->shape, &text);
    text_printf(&text, " in the training; %s",
                inf->config->dataset.window.steps ? "see dataset.window" : "for images see dataset.layout");
    status s = status_new(status_code(failure), "%s", text_string(&text));
    status_free(failure);
    return s;
}

/* The first row of [dataset] with a class from [classes] on: *row, of *part; *class 0: there is none. */
static status find_class(struct inference *inf, struct dataset *dataset, int64_t classes, enum dataset_part *part,
                         int64_t *row, int64_t *class) {
    const struct dataset_info *info = dataset_info(dataset);
    const size_t rows[] = {info->train_rows, info->validation_rows};
    float *inputs = arena_alloc(inf->arena, info->input_size * sizeof *inputs);
    int64_t *targets = arena_alloc(inf->arena, info->target_size * sizeof *targets);
    const float *values = (const float *)targets; /* of lists of classes */
    *class = 0;
    for (*part = DATASET_TRAIN; *part <= DATASET_VALIDATION; (*part)++)
        for (int64_t i = 0; i < (int64_t)rows[*part]; i++) {
            TRY(dataset_read(dataset, *part, &i, 1, inputs, targets));
            *row = dataset_row(dataset, *part, i);
            for (size_t k = 0; k < info->target_size; k++)
                if ((*class = inf->loss->wants_classes ? targets[k] : (int64_t)values[k]) >= classes) return OK;
            *class = 0;
        }
    return OK;
}

/* The outputs of the model for rows of fewer classes; 0: it cannot be planned for them either. */
static int64_t count_outputs(const struct inference *inf, const struct dataset *dataset) {
    struct dataset_info fewer = *dataset_info(dataset);
    struct plan_options options = {.purpose = PLAN_INFERENCE, .env = inf->env, .info = &fewer};
    struct plan *plan = NULL;
    fewer.classes = 1;
    fewer.first_class = fewer.absent_class = 0;
    status s = plan_create(inf->config, &options, &plan);
    int64_t outputs = !s && plan->model->out.dims == 1 ? plan->model->out.size[0] : 0;
    status_free(s);
    plan_destroy(plan);
    return outputs;
}

/* [failure] of opening the model with the config of the training: the reason is in the rows. Names that with a class
 * that the model does not have. */
static status explain_classes(struct inference *inf, status failure) {
    struct dataset *dataset = NULL;
    enum dataset_part part = DATASET_TRAIN;
    int64_t row = 0, class = 0, outputs = 0;
    bool has_classes = inf->loss->wants_classes || inf->loss->is_class_list;
    if (!failure || inf->predicts || status_code(failure) != STATUS_USAGE || !has_classes) return failure;
    const struct dataset_config *opened = &inf->session.dataset;
    status s = session_compare(&inf->session);
    if (!s) s = dataset_open(opened, inf->loss->wants_classes, false, &dataset);
    if (!s && dataset_info(dataset)->input_kind == INPUT_VALUES) outputs = count_outputs(inf, dataset);
    if (!s && outputs) s = find_class(inf, dataset, outputs, &part, &row, &class);
    bool is_own = part == DATASET_VALIDATION && opened->validation.path;
    const char *path = is_own ? opened->validation.path : opened->path;
    dataset_close(dataset);
    status_free(s);
    if (!class) return failure;
    status_free(failure);
    return status_data("%s: row %lld (the first is 0): class %lld is none of the model, which has %lld (0 to %lld)",
                       path ? path : "synthetic dataset", (long long)row, (long long)class, (long long)outputs,
                       (long long)outputs - 1);
}

/* Allocates the workspace of a GPU's operators, for whole batches and the last one. predict computes no loss. */
static status reserve_memory(const struct inference *inf) {
    struct batch batch = feed_put(inf->feed, &(struct batch){0}); /* only their addresses */
    const struct loss_type *loss = inf->predicts ? NULL : inf->loss;
    const void *loss_config = inf->plan->loss_config;
    batch.rows = inf->count < inf->batch ? inf->count : inf->batch;
    TRY(dry_run_forward(inf->model, inf->device, loss, loss_config, &batch));
    batch.rows = inf->count % inf->batch;
    return dry_run_forward(inf->model, inf->device, loss, loss_config, &batch);
}

static struct prediction_meaning meaning_of(const struct inference *inf) {
    struct prediction_meaning meaning = session_meaning(&inf->session, inf->plan);
    meaning.wants_probabilities = inf->options->wants_probabilities;
    if (!inf->steps) return meaning;
    meaning.output = &inf->ahead;
    meaning.targets = (struct string_list){0};
    return meaning;
}

/* ---- steps ahead ---- */

/* Why outputs of the model are no inputs of the next step; NULL: they are. */
static const char *reject_ahead(const struct inference *inf, const struct dataset_info *info) {
    const struct session *session = &inf->session;
    bool is_value = info->target_kind == TARGET_VALUES && !info->is_binary && info->input_kind == INPUT_VALUES;
    if (inf->plan->objective || !is_value || !inf->loss->is_regression ||
        loss_predicts_logarithms(inf->loss, inf->plan->loss_config))
        return "it needs one loss of values, such as mse";
    if (info->input_dims != 2) return "it needs rows of steps, of the shape (steps, values)";
    if (session->mean.count || session->target_scale || dataset_divide(inf->dataset) != 1)
        return "outputs have another unit than inputs: train without dataset.scale, target_scale and divide";
    if (inf->outputs != info->input_size) return "the model needs an output for each input of each step";
    return device_is_host(inf->device) ? NULL : "it is computed on the CPU: add train.device=cpu";
}

/* The parameters of the trained model must do for the positions ahead, too. */
static status check_positions(const struct inference *inf, size_t positions) {
    const struct params *trained = &inf->plan->model->params, *ahead = &inf->steps->model->params;
    for (size_t i = 0; i < trained->count && i < ahead->count; i++) {
        const struct param *before = &trained->items[i], *now = &ahead->items[i];
        if (before->shape[0] == now->shape[0]) continue;
        return status_usage(
            "--ahead: %s is of %lld positions, those of a row, and %zu steps ahead need %zu; train with "
            "num_embeddings: %zu or more",
            before->name, (long long)before->shape[0], inf->options->ahead, positions, positions);
    }
    return OK;
}

/* Plans the model for rows of one position: layers then store what later positions need of it. */
static status open_steps(struct inference *inf) {
    static const struct dist_env alone = {.world_size = 1, .local_world_size = 1};
    const struct dataset_info *info = dataset_info(inf->dataset);
    if (inf->options->ahead == 0) return OK;
    const char *why = reject_ahead(inf, info);
    if (why) return status_usage("--ahead: %s", why);
    size_t steps = (size_t)info->input_shape[0], values = info->input_size / steps;
    const struct dataset_info step = {.input_kind = INPUT_VALUES,
                                      .input_dims = 2,
                                      .input_shape = {1, (int64_t)values},
                                      .input_size = values,
                                      .target_kind = TARGET_VALUES,
                                      .target_size = values};
    struct plan_options options = {
        .purpose = PLAN_INFERENCE, .env = &alone, .info = &step, .cached_positions = steps + inf->options->ahead};
    status s = plan_create(inf->session.config, &options, &inf->steps);
    if (!s) TRY(check_positions(inf, options.cached_positions));
    if (!s) s = session_load(&inf->session, inf->steps, 1);
    if (s) return status_prefix(s, "--ahead: the model is computed one step after the other");
    inf->outputs = inf->options->ahead * values;
    inf->ahead = (struct shape){.dims = 2, .size = {(int64_t)inf->options->ahead, (int64_t)values}};
    return OK;
}

/* The steps of [row], then those whose inputs are the outputs of the steps before: out (inf->outputs). */
static status run_ahead(struct inference *inf, const float *row, float *out) {
    size_t values = inf->steps->model->out_size, steps = dataset_info(inf->dataset)->input_size / values;
    for (size_t p = 0; p + 1 < steps + inf->options->ahead; p++) {
        const float *input = p < steps ? row + p * values : out + (p - steps) * values, *output;
        TRY(session_run(inf->steps, 1, p, false, input, &output));
        if (p + 1 >= steps) memcpy(out + (p + 1 - steps) * values, output, values * sizeof *out);
    }
    return OK;
}

/* STATUS_USAGE for options that do not fit the dataset or the model. */
static status check_options(const struct inference *inf) {
    struct prediction_meaning meaning = meaning_of(inf);
    if (inf->options->wants_inputs && !dataset_has_texts(&inf->config->dataset))
        return status_usage(
            "--with-inputs copies the columns of a CSV file or an SQLite table, or the names of images, "
            "and %s has none",
            inf->config->dataset.path ? inf->config->dataset.path : "a synthetic dataset");
    if (inf->options->wants_inputs && inf->config->dataset.draw.type)
        return status_usage(
            "--with-inputs copies the columns of one row, and a prediction is of several (dataset.draw)");
    return predictions_check(&meaning);
}

static status set_up(struct inference *inf, const struct inference_options *options, struct log *log) {
    const struct session_options opening = {
        .weights = options->weights, .config = inf->config, .predicts = inf->predicts};
    struct session *session = &inf->session;
    bool writes = inf->predicts && inf->env->rank == 0 && !predictions_is_stdout(options->out);
    inf->is_all = options->part && strcmp(options->part, "all") == 0;
    status s = writes ? io_check_replace(options->out) : OK;
    if (!s) s = session_open(&opening, log, session);
    if (!s) s = plan_explain_rows(open_dataset(inf));
    if (!s) s = choose_part(inf, options);
    struct dataset_info info = {0};
    if (!s) info = *dataset_info(inf->dataset);
    if (!s) s = explain_classes(inf, open_model(inf));
    if (!s) s = explain_columns(inf, session_load(session, inf->plan, inf->batch));
    s = explain_shape(inf, info.input_dims, info.input_shape, s);
    if (!s) s = open_steps(inf);
    if (!s) s = reserve_memory(inf);
    if (!s && inf->predicts) s = check_options(inf);
    if (!s) s = compare_split(inf, log);
    session_close_checkpoint(session);
    s = plan_explain_memory(NULL, s);
    if (!s) log_rows(inf, log);
    if (s) store_report_before_joining(inf->env, NULL, 0, inf->log, s);
    return s ? s : join(inf);
}

static void tear_down(struct inference *inf, status failure) {
    if (inf->store && failure) store_report(inf->store, failure);
    comm_destroy(inf->comm);
    store_close(inf->store);
    if (inf->device) feed_destroy(inf->feed);
    buffer_free(inf->inputs);
    buffer_free(inf->weights);
    buffer_free(inf->targets);
    if (!inf->plan) dataset_close(inf->dataset);
    plan_destroy(inf->plan);
    plan_destroy(inf->steps);
    session_close(&inf->session);
    arena_destroy(inf->arena);
}

static void set_phase(const struct inference *inf, enum activity_phase phase) {
    activity_phase(inf->store ? store_activity(inf->store) : NULL, phase);
}

/* Computes *output, on the device, for [rows] rows of the part, at [positions]. *host is the batch, *fed the same on
 * the device. */
static status forward(struct inference *inf, size_t rows, const int64_t *positions, struct batch *host,
                      struct batch *fed, const float **output) {
    TRY(dataset_read(inf->dataset, inf->part, positions, rows, inf->inputs, inf->targets));
    if (inf->weights) dataset_read_weights(inf->dataset, inf->part, positions, rows, false, inf->weights);
    *host = (struct batch){rows, inf->inputs, inf->targets, positions, inf->weights};
    *fed = feed_put(inf->feed, host);
    return session_run(inf->plan, rows, 0, inf->continues_rows, fed->inputs, output);
}

/* Only with several processes; a single one ends in its signal handler. */
static status check_stop(const struct inference *inf) {
    if (!inf->store || store_failure_code(inf->store) != STATUS_STOPPED) return OK;
    return status_new(STATUS_STOPPED, "stopped on request");
}

/* Replaces the message of a collective, which names ranks, when the failure is a stop request. */
static status simplify_stop(status s) {
    if (status_code(s) != STATUS_STOPPED) return s;
    status_free(s);
    return status_new(STATUS_STOPPED, "stopped on request");
}

/* When every rank has its results: a request to a rank until here ends all of them; one from here on has no effect. All
 * ranks. */
static status end_stops(const struct inference *inf) {
    stop_defer();
    float stops = stop_is_requested();
    TRY(comm_all_reduce(inf->comm, &stops, 1, COMM_FLOAT32, COMM_SUM));
    return stops > 0 ? status_new(STATUS_STOPPED, "stopped on request") : OK;
}

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

/* positions (rows) = those of this rank after the first [done], as of loader_create_evaluation. */
static void set_positions(const struct inference *inf, size_t done, size_t rows, enum evaluation_order order,
                          int64_t *positions) {
    for (size_t i = 0; i < rows; i++)
        positions[i] = (int64_t)sampler_evaluation_row(order, inf->first, inf->count, inf->env->rank,
                                                       inf->env->world_size, inf->batch, done + i);
}

/* Adds batch number [index]; other ranks may have rows of it although this one has none. */
static status evaluate_batch(struct inference *inf, struct evaluation *evaluation, size_t index, int64_t *positions) {
    size_t done = index * inf->batch, left = inf->count > done ? inf->count - done : 0;
    size_t rows = min_size(inf->batch, left);
    const float *output;
    struct batch host, fed;
    set_phase(inf, ACTIVITY_EVALUATING);
    TRY(check_stop(inf));
    if (rows == 0) return evaluation_add_no_rows(evaluation);
    bool compares = loss_compares_rows(inf->loss, inf->plan->loss_config);
    set_positions(inf, done, rows, sampler_evaluation_order(&inf->config->sampler, compares), positions);
    inf->continues_rows = index > 0;
    TRY(forward(inf, rows, positions, &host, &fed, &output));
    return evaluation_add(evaluation, output, &fed, &host);
}

/* ---- the line of `eval` ---- */

static void add_class_json(const struct evaluation_result *r, const char *name, size_t offset, struct text *out) {
    text_printf(out, ",\"class_%s\":[", name);
    for (size_t c = 0; c < r->classes; c++) {
        struct class_scores scores = metric_class_scores(r->confusion, r->classes, c);
        text_add(out, c ? "," : "");
        text_add_double(out, *(const double *)((const char *)&scores + offset));
    }
    text_add(out, "]");
}

/* The scores of each class, and the labels of the classes. */
static void add_classes_json(const struct evaluation_result *r, const struct string_list *labels, struct text *out) {
    add_class_json(r, "precision", offsetof(struct class_scores, precision), out);
    add_class_json(r, "recall", offsetof(struct class_scores, recall), out);
    add_class_json(r, "f1", offsetof(struct class_scores, f1), out);
    add_class_json(r, "iou", offsetof(struct class_scores, iou), out);
    for (size_t c = 0; c < labels->count; c++) {
        text_add(out, c ? "," : ",\"labels\":[");
        text_add_json(out, labels->items[c]);
    }
    text_add(out, labels->count ? "]" : "");
}

/* Adds the result as a line of JSON; numbers that are not finite are null. [part]: of the dataset; [labels]: of the
 * classes, none where they are numbers. */
static void evaluation_json_add(const struct evaluation_result *r, const char *part, const struct string_list *labels,
                                struct text *out) {
    text_add(out, "{");
    text_add_member(out, "event", "eval");
    text_add_member(out, "part", part);
    text_add_member_int(out, "rows", (int64_t)r->rows);
    text_add_member_double(out, "loss", r->loss);
    if (r->has_accuracy) text_add_member_double(out, "accuracy", r->accuracy);
    for (size_t i = 0; i < r->metric_count; i++) text_add_member_double(out, r->metrics[i].name, r->metrics[i].value);
    for (size_t i = 0; r->confusion && i < r->classes * r->classes; i++)
        text_printf(out, "%s%.10g%s",
                    i == 0                ? ",\"confusion_matrix\":[["
                    : i % r->classes == 0 ? "],["
                                          : ",",
                    r->confusion[i], i + 1 == r->classes * r->classes ? "]]" : "");
    if (r->confusion) add_classes_json(r, labels, out);
    text_add(out, "}\n");
}

/* The batches of the rank with the most rows. */
static size_t batches_of(const struct inference *inf) {
    size_t first, rows;
    sampler_evaluation_range(inf->rows, 0, inf->env->world_size, &first, &rows);
    return (rows + inf->batch - 1) / inf->batch;
}

static status evaluate(struct inference *inf, struct text *out) {
    struct evaluation_options options = {.metrics = &inf->config->train.metric_list,
                                         .loss = inf->loss,
                                         .loss_config = inf->plan->loss_config,
                                         .info = dataset_info(inf->dataset),
                                         .dataset = inf->dataset,
                                         .part = inf->part,
                                         .device = inf->device,
                                         .comm = inf->comm,
                                         .output = &inf->model->out,
                                         .model = inf->model,
                                         .rows = inf->count,
                                         .all_rows = inf->rows,
                                         .batch = inf->batch};
    struct evaluation *evaluation;
    struct evaluation_result result;
    int64_t *positions = arena_alloc(inf->arena, inf->batch * sizeof *positions);
    TRY(evaluation_create(&options, &evaluation));
    status s = OK;
    evaluation_start(evaluation);
    if (loss_compares_rows(inf->loss, inf->plan->loss_config) && inf->env->rank == 0)
        log_line(inf->log, "the loss compares the rows of a batch, here of %zu rows of all processes",
                 inf->batch * (size_t)inf->env->world_size);
    for (size_t i = 0; !s && i < batches_of(inf); i++) s = evaluate_batch(inf, evaluation, i, positions);
    if (!s) s = evaluation_finish(evaluation, &result);
    if (!s) evaluation_json_add(&result, part_name(inf), &inf->session.labels, out);
    evaluation_destroy(evaluation);
    return s ? s : end_stops(inf);
}

/* Shares differ by at most one row: every rank sends as many rows as rank 0 has, and the padding is removed after. */
static status gather(struct inference *inf, const float *own, float **all) {
    size_t first, max, out_size = inf->outputs;
    sampler_evaluation_range(inf->rows, 0, inf->env->world_size, &first, &max);
    float *padded;
    TRY(buffer_new((size_t)inf->env->world_size * max * out_size * sizeof *padded, "the predictions",
                   (void **)&padded));
    status s = comm_all_gather(inf->comm, own, max * out_size, COMM_FLOAT32, padded);
    for (int rank = 0; !s && rank < inf->env->world_size; rank++) {
        size_t count;
        sampler_evaluation_range(inf->rows, rank, inf->env->world_size, &first, &count);
        memmove(padded + first * out_size, padded + (size_t)rank * max * out_size, count * out_size * sizeof *padded);
    }
    *all = padded;
    return s;
}

/* Reads the rows of the files again, as texts. */
static status read_texts(const struct inference *inf, struct csv_texts **texts) {
    const struct dataset_info *info = dataset_info(inf->dataset);
    struct dataset_config dataset = inf->config->dataset;
    const struct validation_config *validation = &dataset.validation;
    dataset.request.without_targets = !needs_targets(inf);
    bool is_own = inf->part == DATASET_VALIDATION && validation->path, is_whole = inf->is_all || validation->path;
    size_t rows = is_whole ? inf->rows : info->rows;
    if (info->windows.steps) rows = is_own ? info->windows.rows - info->rows : info->rows;
    rows += dataset_left_out(inf->dataset, inf->part).count;
    dataset.request.skips_bad_rows = inf->options->skips_bad_rows;
    return csv_texts_of(&dataset, is_own, rows, texts);
}

/* The rows of a whole file that are left out have a line without predictions. */
static struct row_list blank_rows(const struct inference *inf) {
    return uses_split(inf) || inf->config->dataset.draw.type ? (struct row_list){0}
                                                             : dataset_left_out(inf->dataset, inf->part);
}

/* The rows of the file, and whether each was left out, in its order. */
static void number_rows(const struct inference *inf, struct row_list blank, int64_t *rows, bool *is_blank) {
    for (size_t i = 0, left = 0; i < inf->rows + blank.count; i++) {
        is_blank[i] = left < blank.count && blank.items[left] == i;
        rows[i] = is_blank[i] ? (int64_t)i : dataset_row(inf->dataset, inf->part, (int64_t)(i - left));
        left += is_blank[i];
    }
}

/* The rows of each sample of dataset.draw, and the names of its inputs. */
static void set_members(const struct inference *inf, struct predictions *p) {
    const struct dataset_info *info = dataset_info(inf->dataset);
    int64_t sample[MAX_MEMBERS];
    size_t count = dataset_drawing(inf->dataset).members;
    if (!count || !inf->rows) return;
    const char **names = arena_alloc(inf->arena, count * sizeof *names);
    int64_t *rows = arena_alloc(inf->arena, inf->rows * count * sizeof *rows);
    for (size_t i = 0; i < count; i++) names[i] = info->inputs[i].name;
    for (size_t i = 0; i < inf->rows; i++) {
        dataset_members(inf->dataset, inf->part, 0, (int64_t)i, sample);
        memcpy(rows + i * count, sample, count * sizeof *rows);
    }
    p->members = rows;
    p->names_of_members = (struct string_list){names, count};
}

/* Logs the number of rows that are written. Rank 0. */
static void log_written(const struct inference *inf) {
    size_t blank = blank_rows(inf).count, rows = inf->rows + blank;
    const char *note = blank ? arena_printf(inf->arena, ", %zu without predictions", blank) : "";
    log_line(inf->log, "%s: %zu row%s%s", inf->options->out, rows, text_plural(rows, "s"), note);
}

/* outputs (inf->rows, outputs). Rank 0. */
static status write_predictions(const struct inference *inf, const float *outputs, struct text *text) {
    struct csv_texts *texts = NULL;
    struct prediction_meaning meaning = meaning_of(inf);
    struct row_list blank = blank_rows(inf);
    size_t count = inf->rows + blank.count;
    int64_t *rows;
    bool *is_blank = arena_alloc(inf->arena, count + 1);
    TRY(buffer_new(count * sizeof *rows, "the predictions", (void **)&rows));
    number_rows(inf, blank, rows, is_blank);
    struct predictions predictions = {.rows = inf->rows,
                                      .row_of = rows,
                                      .outputs = outputs,
                                      .size = inf->outputs,
                                      .wants_outputs = inf->options->wants_outputs};
    set_members(inf, &predictions);
    status s = blank.count ? predictions_spread(&predictions, is_blank, count) : OK;
    if (!s) s = predictions_make(&predictions, &meaning, inf->arena);
    if (!s && inf->options->wants_inputs) s = read_texts(inf, &texts);
    predictions.inputs = texts;
    if (!s && predictions_is_stdout(inf->options->out))
        predictions_add_csv(&predictions, inf->arena, text);
    else if (!s)
        s = predictions_write(inf->options->out, &predictions, inf->arena);
    csv_texts_close(texts);
    predictions_free(&predictions);
    buffer_free(rows);
    return s;
}

/* out (rows, inf->outputs) for rows of the part at [positions]. */
static status predict_ahead(struct inference *inf, size_t rows, const int64_t *positions, float *out) {
    size_t size = dataset_info(inf->dataset)->input_size;
    TRY(dataset_read(inf->dataset, inf->part, positions, rows, inf->inputs, inf->targets));
    for (size_t r = 0; r < rows; r++) {
        TRY(check_stop(inf));
        TRY(run_ahead(inf, inf->inputs + r * size, out + r * inf->outputs));
    }
    return OK;
}

static status predict(struct inference *inf, struct text *text) {
    size_t first, max, out_size = inf->outputs;
    int64_t *positions = arena_alloc(inf->arena, inf->batch * sizeof *positions);
    float *own = NULL, *all = NULL;
    sampler_evaluation_range(inf->rows, 0, inf->env->world_size, &first, &max);
    status s = buffer_new(max * out_size * sizeof *own, "the predictions", (void **)&own);
    for (size_t done = 0; !s && done < inf->count;) {
        size_t rows = min_size(inf->batch, inf->count - done);
        const float *output;
        struct batch host, fed;
        set_phase(inf, ACTIVITY_PREDICTING);
        s = check_stop(inf);
        set_positions(inf, done, rows, EVALUATION_IN_ORDER, positions);
        if (!s && inf->steps)
            s = predict_ahead(inf, rows, positions, own + done * out_size);
        else if (!s)
            s = forward(inf, rows, positions, &host, &fed, &output);
        if (!s && !inf->steps)
            s = device_download(inf->device, own + done * out_size, output, rows * out_size * sizeof *own);
        done += rows;
    }
    if (!s) s = gather(inf, own, &all);
    if (!s) s = end_stops(inf);
    if (!s) set_phase(inf, ACTIVITY_SAVING);
    if (!s && inf->env->rank == 0) s = write_predictions(inf, all, text);
    if (!s) s = comm_barrier(inf->comm);
    buffer_free(own);
    buffer_free(all);
    return s;
}

status inference_evaluate(const struct config *config, const struct dist_env *env,
                          const struct inference_options *options, struct log *log, struct text *out) {
    struct inference inf = {.config = config, .env = env, .log = log, .options = options, .arena = arena_create()};
    status s = set_up(&inf, options, env->rank == 0 ? log : NULL);
    if (!s) s = evaluate(&inf, out);
    tear_down(&inf, s);
    return simplify_stop(s);
}

static status check_not_input(const char *out, const struct io_info *own, const char *input) {
    struct io_info info;
    if (!input) return OK;
    TRY(io_stat(input, &info));
    if (!io_is_same(own, &info)) return OK;
    return status_usage("--out %s: this is the input dataset, which would be overwritten; choose another name", out);
}

/* STATUS_USAGE when [out] is an input file or a checkpoint. */
static status check_out(const struct dataset_config *dataset, const char *out) {
    const struct string_list *lists[] = {&dataset->others, &dataset->validation.others};
    struct io_info own;
    if (predictions_is_stdout(out)) return OK;
    TRY(io_stat(out, &own));
    TRY(check_not_input(out, &own, dataset->path));
    TRY(check_not_input(out, &own, dataset->validation.path));
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < lists[i]->count; k++) TRY(check_not_input(out, &own, lists[i]->items[k]));
    return weights_check_out(out);
}

status inference_predict(const struct config *config, const struct dist_env *env,
                         const struct inference_options *options, struct log *log, struct text *text) {
    TRY(predictions_check_name(options->out));
    TRY(check_out(&config->dataset, options->out));
    struct inference inf = {
        .config = config, .env = env, .log = log, .options = options, .arena = arena_create(), .predicts = true};
    status s = set_up(&inf, options, env->rank == 0 ? log : NULL);
    if (!s) s = predict(&inf, text);
    if (!s && env->rank == 0 && !predictions_is_stdout(options->out)) log_written(&inf);
    tear_down(&inf, s);
    return simplify_stop(s);
}
