/* The datasets of a checkpoint that are read: data/columns, data/inputs, data/preparation, data/target_scale,
 * data/labels, data/vocabulary, data/tokenizer, data/class_weights and the scaler. */
#include "train/inference/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/scoped.h"
#include "train/state/data_entries.h"
#include "train/state/state.h"
#include "train/weights/weights.h"

/* ---- the data of the training ---- */

static bool is_vector(const struct entry *entry) { return entry->type == ENTRY_FLOAT64 && entry->dims == 1; }

/* The scaler of the checkpoint, which was fitted to the training rows. */
static status read_scaler(struct session *s) {
    struct entry mean = {.path = "scaler/mean"}, scale = {.path = "scaler/scale"};
    bool has_mean, has_scale;
    TRY(checkpoint_find(s->checkpoint, &mean, &has_mean));
    TRY(checkpoint_find(s->checkpoint, &scale, &has_scale));
    if (!has_mean || !has_scale) return OK;
    if (!is_vector(&mean) || !is_vector(&scale) || mean.shape[0] != scale.shape[0] || mean.shape[0] == 0)
        return status_data("the checkpoint's scaler/mean and scaler/scale are not two float64 vectors of "
                           "the same length; the file was changed");
    mean.data = arena_alloc(s->arena, (size_t)mean.shape[0] * sizeof(double));
    scale.data = arena_alloc(s->arena, (size_t)mean.shape[0] * sizeof(double));
    struct entry entries[] = {mean, scale};
    TRY(checkpoint_read(s->checkpoint, entries, 2, NULL));
    s->mean = (struct real_list){.items = mean.data, .count = (size_t)mean.shape[0]};
    s->scale = (struct real_list){.items = scale.data, .count = (size_t)mean.shape[0]};
    s->dataset.scale.is_fitted = s->dataset.scale.mean.count == 0;
    s->dataset.scale.mean = s->mean;
    s->dataset.scale.std = s->scale;
    return OK;
}

/* Columns become features, and targets are scaled, as in training. */
static status read_preparation(struct session *s) {
    struct preparation *preparation;
    TRY(preparation_read(s->arena, s->checkpoint, &preparation));
    TRY(target_scale_read(s->arena, s->checkpoint, &s->target_scale));
    s->dataset.request.preparation = preparation;
    s->dataset.request.trained_target_scale = s->target_scale;
    s->dataset.request.is_trained = true;
    return OK;
}

/* The text at [path] in the arena; *out is unchanged when there is none. */
static status read_text(const struct session *s, const char *path, const char **out) {
    SCOPED_STRING text = NULL;
    TRY(checkpoint_read_text(s->checkpoint, path, &text));
    if (text) *out = arena_copy(s->arena, text);
    return OK;
}

/* Inputs are divided as in training, also those of a file whose format has another default, and tokens are those of the
 * training, also where the file does not have all of them. */
static status read_inputs(struct session *s) {
    struct dataset_config *dataset = &s->dataset;
    const struct input_layout *layout = &s->inputs;
    TRY(read_text(s, "data/vocabulary", &dataset->request.characters));
    TRY(read_text(s, "data/tokenizer", &dataset->request.trained_tokenizer));
    TRY(input_layout_read(s->arena, s->checkpoint, &s->inputs, &s->has_inputs));
    if (s->has_inputs && layout->kind == INPUT_VALUES && !dataset->request.preparation && layout->dims == 1)
        dataset->request.trained_inputs = layout->size;
    if (s->has_inputs && layout->kind == INPUT_VALUES && !dataset->request.preparation && isnan(dataset->divide))
        dataset->divide = layout->divide;
    if (s->has_inputs && layout->kind == INPUT_TOKENS && dataset->tokens.vocabulary == SCHEMA_NO_INT)
        dataset->tokens.vocabulary = layout->vocabulary;
    return OK;
}

/* The labels of the classes and the names of the targets. */
static status read_names(struct session *s) {
    const struct column_list *columns = &s->dataset.request.columns;
    s->targets.items = arena_alloc(s->arena, (columns->count + 1) * sizeof *s->targets.items);
    for (size_t i = 0; i < columns->count; i++)
        if (columns->items[i].role == COLUMN_TARGET) s->targets.items[s->targets.count++] = columns->items[i].name;
    return labels_load(s->arena, s->checkpoint, &s->labels);
}

/* The config of the checkpoint; *out NULL: it has none. */
static status read_config(const struct session *s, struct config_file **out) {
    const char *text = NULL;
    *out = NULL;
    TRY(read_text(s, "config", &text));
    return text ? config_parse(arena_printf(s->arena, "%s: config", s->options.path), text, out) : OK;
}

/* Reports why this version cannot read it. */
static status explain_config(const struct session *s) {
    SCOPED_CONFIG file = NULL;
    TRY(read_config(s, &file));
    return status_data("%s: it has no config", s->options.path);
}

status session_read(struct session *s) {
    if (!s->config) return explain_config(s);
    s->dataset = s->config->dataset;
    TRY(read_scaler(s));
    TRY(column_names_read(s->arena, s->checkpoint, &s->dataset.request.columns));
    TRY(read_preparation(s));
    TRY(class_weights_read(s->arena, s->checkpoint, &s->dataset.request.trained_class_weights));
    TRY(read_inputs(s));
    return read_names(s);
}

status session_vocabulary(const struct session *s, struct vocabulary **out) {
    *out = NULL;
    if (s->dataset.request.characters) return vocabulary_create(s->dataset.request.characters, out);
    if (s->dataset.request.trained_tokenizer)
        return vocabulary_create_tokenizer(s->dataset.request.trained_tokenizer, out);
    return OK;
}

/* ---- the config of the training ---- */

/* The keys that are compared; a loss says what the outputs mean, and eval may measure another one. */
static const char *const row_keys[] = {"dataset", NULL};
static const char *const model_keys[] = {"dataset", "model", NULL};
static const char *const prediction_keys[] = {"dataset", "model", "loss", "losses", NULL};

/* Adds the differences of [keys]; returns their number. */
static size_t diff_configs(const struct config *trained, const struct config *config, const char *const *keys,
                           struct text *out) {
    struct config before = *trained, now = *config;
    before.dataset.window.group = dataset_series(&before.dataset);
    now.dataset.window.group = dataset_series(&now.dataset);
    return schema_diff_keys(&config_schema, keys, SCHEMA_INFERENCE, &before, &now, out);
}

/* STATUS_USAGE with the differences of [keys] to [config] if there are any in [decisive]. */
static status compare(const struct session *s, const struct config *config, const char *const *decisive,
                      const char *const *keys) {
    SCOPED_TEXT decisive_ones = {0}, differences = {0};
    status differs = OK;
    size_t count = 0;
    if (!s->trained) return OK;
    if (diff_configs(config_of(s->trained), config, decisive, &decisive_ones))
        count = diff_configs(config_of(s->trained), config, keys, &differences);
    if (count)
        differs = status_new(
            STATUS_USAGE,
            "%s: its training had another config; %zu key%s that predictions depend on %s (training -> now):\n%sleave "
            "such keys out on the command line, and give the run folder in place of another config",
            checkpoint_path(s->checkpoint), count, text_plural(count, "s"), count == 1 ? "differs" : "differ",
            text_string(&differences));
    return differs;
}

static const char *const *keys_of(const struct session *s) {
    return s->options.predicts ? prediction_keys : model_keys;
}

status session_compare(const struct session *s) { return compare(s, s->config, keys_of(s), keys_of(s)); }

static bool are_equal(const struct string_list *a, const struct string_list *b) {
    for (size_t i = 0; a->count == b->count && i < a->count; i++)
        if (strcmp(a->items[i], b->items[i]) != 0) return false;
    return a->count == b->count;
}

bool session_leave_names(const struct session *s, struct dataset_config *dataset) {
    if (!s->trained) return false;
    const struct dataset_config *before = &config_of(s->trained)->dataset, *now = &s->config->dataset;
    bool is_other =
        dataset_has_other_names(before, now) && now->input_groups.count == 0 && now->target_groups.count == 0;
    bool left = false;
    struct string_list *lists[] = {&dataset->inputs, &dataset->targets};
    const struct string_list *olds[] = {&before->inputs, &before->targets};
    for (size_t i = 0; is_other && i < 2; i++) {
        if (lists[i]->count == 0 || !are_equal(lists[i], olds[i])) continue;
        lists[i]->count = 0;
        left = true;
    }
    return left;
}

status session_compare_split(const struct session *s, const char *fingerprint, const char **why) {
    const char *before = NULL;
    *why = NULL;
    if (s->trained && !dataset_has_same_split(&config_of(s->trained)->dataset, &s->config->dataset))
        *why = "dataset.split is not that of the training";
    TRY(read_text(s, "data/fingerprint", &before));
    if (fingerprint && before && strcmp(before, fingerprint) != 0)
        *why = "the data are not those of the training, so the split is another one";
    return OK;
}

/* ---- the start of a run ---- */

/* The state that a new run of a config starts with, as a checkpoint in memory. So whatever uses a checkpoint uses this
 * one without a case of its own, and no run folder is read or created. The plan is that of inference, so there are no
 * gradients and no state of an optimizer. */

static status check_resume(const struct config *config) {
    const char *resume = config->checkpoint.resume;
    if (strcmp(resume, "auto") == 0 || strcmp(resume, "never") == 0) return OK;
    return status_usage("a new run continues from checkpoint.resume: %s; give --checkpoint %s", resume, resume);
}

/* Weights are float32 whatever a GPU computes with. */
static struct config on_cpu(const struct config *config) {
    struct config own = *config;
    own.device = DEVICE_CPU;
    own.train.precision = TRAIN_FLOAT32;
    return own;
}

static void log_weights(const struct config *config, const struct text *report, struct log *log) {
    const char *file = config->model.init_from.file;
    if (report->length || file)
        log_line(log, "the weights that a new run starts with; model.init_from: %s",
                 report->length ? report->data : file);
    else
        log_line(log, "the weights that a new run starts with; initialized with seed %lld", (long long)config->seed);
}

/* Sets the weights as a run does (run.c). */
static status set_weights(const struct plan *plan, struct log *log) {
    const struct config *config = plan->config;
    struct model *model = plan->model;
    SCOPED_TEXT report = {0};
    struct rng rng;
    TRY(model_alloc(model, plan->device, 1));
    TRY(model_map(model));
    rng_seed(&rng, (uint64_t)config->seed);
    model_init(model, &rng);
    TRY(model_unmap(model, true));
    status s = init_from(model, &config->model.init_from, plan->dataset, &report);
    if (!s) log_weights(config, &report, log);
    return s;
}

static status make_checkpoint(const struct plan *plan, const char *config_text, struct checkpoint **out) {
    struct optimizer none = {0};
    struct state *state;
    TRY(state_create(plan->model, &none, NULL, plan->dataset, config_text, NULL, &state));
    status s = state_map(state);
    if (!s) s = checkpoint_create(CHECKPOINT_INITIAL, state->entries, state->entry_count, out);
    if (!s) s = state_unmap(state, false);
    state_destroy(state);
    return s;
}

/* The weights are those of model.init_from, else, or where it has none, those of the seed. What a checkpoint says of
 * the data is that of the config's dataset, which is read: the scaler is fitted to its training rows. The checkpoint
 * has no state of an optimizer. Computed on the CPU by this process alone. Logs which weights they are.
 * STATUS_USAGE when a new run would continue from a checkpoint (checkpoint.resume). */
static status open_start(const struct config *config, struct log *log, struct checkpoint **out) {
    static const struct dist_env alone = {.world_size = 1, .local_world_size = 1};
    struct plan_options options = {.purpose = PLAN_INFERENCE, .env = &alone};
    struct config own = on_cpu(config);
    SCOPED_TEXT config_text = {0};
    struct plan *plan;
    *out = NULL;
    TRY(check_resume(config));
    TRY(plan_create(&own, &options, &plan));
    schema_write_yaml(&config_schema, config, &config_text);
    status s = set_weights(plan, log);
    if (!s) s = make_checkpoint(plan, text_string(&config_text), out);
    plan_destroy(plan);
    return plan_explain_memory(NULL, s);
}

/* ---- opening and running ---- */

/* The start of a new run. A moving average starts as a copy of the weights, so it has none. */
static status open_initial(const struct session_options *options, struct log *log, struct checkpoint **out) {
    const struct weights_options *weights = &options->weights;
    if (weights->which && strcmp(weights->which, "trained") != 0)
        return status_usage("--weights %s: --checkpoint " CHECKPOINT_INITIAL
                            " has no moving average of the weights; leave --weights out",
                            weights->which);
    return open_start(weights->training ? weights->training : options->config, log, out);
}

static status open_checkpoint(struct session *s, struct log *log) {
    const struct session_options *options = &s->options;
    const struct weights_options *weights = &options->weights;
    bool has_start = options->config || weights->training;
    if (has_start && weights->checkpoint && strcmp(weights->checkpoint, CHECKPOINT_INITIAL) == 0)
        return open_initial(options, log, &s->checkpoint);
    return weights_open(options->config, weights, log, &s->checkpoint, &s->average);
}

status session_open(const struct session_options *options, struct log *log, struct session *s) {
    const struct config *config = options->config;
    *s = (struct session){.options = *options, .arena = arena_create()};
    TRY(open_checkpoint(s, log));
    if (options->is_own)
        status_free(read_config(s, &s->trained));
    else
        TRY(config_of_checkpoint(s->checkpoint, &s->trained));
    s->config = !options->is_own ? config : s->trained ? config_of(s->trained) : NULL;
    if (!s->trained && !options->is_own)
        log_warning(log, "%s: this version cannot read its config, so the config now cannot be compared with it",
                    checkpoint_path(s->checkpoint));
    return config ? compare(s, config, options->is_own ? keys_of(s) : row_keys, keys_of(s)) : OK;
}

void session_close_checkpoint(struct session *s) {
    checkpoint_close(s->checkpoint);
    s->checkpoint = NULL;
}

void session_close(struct session *s) {
    session_close_checkpoint(s);
    config_free(s->trained);
    arena_destroy(s->arena);
    *s = (struct session){0};
}

status session_load(const struct session *s, struct plan *plan, size_t rows) {
    struct model *model = plan->model;
    TRY(model_alloc(model, plan->device, rows));
    TRY(compare(s, plan->config, keys_of(s), keys_of(s)));
    TRY(model_map(model));
    TRY(weights_load(model, s->checkpoint, s->average));
    return model_unmap(model, true);
}

status session_run(struct plan *plan, size_t rows, size_t position, bool continues_rows, const float *inputs,
                   const float **outputs) {
    struct pass pass = {.device = plan->device, .rows = rows, .position = position, .continues_rows = continues_rows};
    *outputs = floats(model_forward(plan->model, &pass, inputs));
    return device_status(plan->device);
}

struct prediction_meaning session_meaning(const struct session *s, const struct plan *plan) {
    return (struct prediction_meaning){.loss = plan->loss,
                                       .loss_config = plan->loss_config,
                                       .objective = plan->objective,
                                       .output = &plan->model->out,
                                       .labels = s->labels,
                                       .targets = s->targets,
                                       .target_scale = s->target_scale};
}
