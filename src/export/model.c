/* The model is planned from the config in the checkpoint. The shape of the inputs is that of data/inputs; a checkpoint
 * of an earlier version does not have it, and it is taken from the first of these that knows it: the vocabulary, the
 * columns, the dataset, the first weight. */
#include "export/model.h"

#include <ctype.h>
#include <string.h>

#include "data/text/vocabulary.h"
#include "train/inference/session.h"

/* ---- texts ---- */

/* The name of the run, as a name in a file. */
static const char *safe_name(const struct export_source *source, const char *name) {
    char *safe = arena_copy(source->arena, name);
    for (char *c = safe; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-", *c)) *c = '_';
    return safe;
}

/* An exported model has no tokenizer, so it could not read the column. */
static status reject_texts(const struct export_source *source, const struct preparation *preparation) {
    for (size_t i = 0; preparation && i < preparation->count; i++)
        if (preparation->items[i].type == COLUMN_TEXT)
            return status_usage(
                "%s: the column '%.60s' is a text, and an exported model has no tokenizer; use `ddptrain "
                "predict` or libddptrain_predict.so (docs/embed.md)",
                source->path, preparation->items[i].name);
    return OK;
}

static status reject_expressions(const struct export_source *source, const struct export_model *m) {
    struct column_rules rules = column_rules_index(source->arena, &source->session->dataset.rules);
    for (size_t i = 0; i < m->columns.count; i++) {
        const struct column_rule *rule = column_rule_find(&rules, m->columns.items[i]);
        if (rule && rule->expression)
            return status_usage("%s: the column '%.60s' is an expression of others, which an exported model cannot "
                                "compute; use `ddptrain predict` or libddptrain_predict.so (docs/embed.md)",
                                source->path, rule->name);
    }
    return OK;
}

/* The preparation of an exported model is that of one row. */
static status reject_several_rows(const struct export_source *source, const struct export_model *m) {
    bool has_windows = m->config->dataset.window.steps > 0;
    if (!m->preparation || (!has_windows && !m->config->dataset.draw.type)) return OK;
    return status_usage("%s: the model reads %s with columns that are prepared (categories, dates, missing values, "
                        "dataset.columns), which an exported model cannot do; use `ddptrain predict`, or train with "
                        "columns of numbers (dataset.inputs)",
                        source->path,
                        has_windows ? "windows of rows (dataset.window)" : "several rows at once (dataset.draw)");
}

static status set_columns(const struct export_source *source, struct export_model *m, bool *are_features) {
    const struct session *session = source->session;
    const struct column_list *list = &session->dataset.request.columns;
    bool has_windows = m->config->dataset.window.steps > 0;
    *are_features = false;
    m->preparation = session->dataset.request.preparation;
    TRY(reject_texts(source, m->preparation));
    TRY(reject_several_rows(source, m));
    m->columns.items = arena_alloc(source->arena, (list->count + 1) * sizeof *m->columns.items);
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i].role == COLUMN_INPUT) m->columns.items[m->columns.count++] = list->items[i].name;
    TRY(reject_expressions(source, m));
    *are_features =
        list->count > 0 && strcmp(list->format, "csv") == 0 && !has_windows && !m->config->dataset.draw.type;
    if (!*are_features && !has_windows) m->columns.count = 0; /* a dataset of a file may be many inputs */
    return OK;
}

/* A window has the same columns in each of its rows; a dataset of a file may be several of them. */
static void check_window_columns(struct export_model *m, const struct shape *shape) {
    bool has_windows = m->config->dataset.window.steps > 0;
    if (has_windows && (shape->dims != 2 || shape->size[1] != (int64_t)m->columns.count)) m->columns.count = 0;
}

/* ---- the shape of the inputs ---- */

/* Of a model that was trained: its config was accepted. */
static struct model_names any_names(const struct config *config) {
    return (struct model_names){.accepts_unused = true, .batch_rows = config_batch_rows(config)};
}

static status tokens_shape(const struct export_source *source, const struct export_model *m, struct shape *shape,
                           bool *is_known) {
    const char *characters = source->session->dataset.request.characters;
    struct vocabulary *vocabulary;
    if (!characters) return OK;
    TRY(vocabulary_create(characters, &vocabulary));
    *shape = (struct shape){.dims = 1,
                            .size = {m->config->dataset.text.block_size},
                            .is_tokens = true,
                            .vocabulary = (int64_t)vocabulary_size(vocabulary)};
    vocabulary_destroy(vocabulary);
    *is_known = true;
    return OK;
}

static status dataset_shape_of(struct export_model *m, struct shape *shape) {
    struct dataset *dataset;
    const struct loss_type *loss = config_loss(m->config);
    TRY(dataset_open(&m->config->dataset, loss->wants_classes, true, &dataset));
    *shape = dataset_shape(dataset_info(dataset));
    m->divide = dataset_divide(dataset);
    dataset_close(dataset);
    return OK;
}

/* The inputs as the checkpoint describes them; false: it does not. */
static bool use_layout(const struct export_source *source, struct export_model *m, struct dataset_info *info) {
    const struct session *session = source->session;
    if (!session->has_inputs) return false;
    *info = input_layout_info(&session->inputs);
    m->divide = session->inputs.divide;
    return true;
}

/* A vector of as many values as the first matrix has columns, if the model then has the shapes of the file. */
static const struct named_tensor *first_matrix(const struct export_source *source) {
    for (size_t i = 0; i < source->tensor_count; i++)
        if (source->tensors[i].dims == 2) return &source->tensors[i];
    return NULL;
}

static status find_shape(const struct export_source *source, struct export_model *m, struct shape *shape) {
    struct dataset_info info;
    bool is_known = false, are_features = false;
    TRY(tokens_shape(source, m, shape, &is_known));
    if (is_known) return OK;
    TRY(set_columns(source, m, &are_features));
    if (use_layout(source, m, &info)) {
        *shape = dataset_shape(&info);
        return OK;
    }
    if (m->preparation) {
        *shape = (struct shape){.dims = 1, .size = {(int64_t)m->preparation->features}};
        return OK;
    }
    *shape = (struct shape){.dims = 1, .size = {(int64_t)m->columns.count}};
    if (are_features) return OK;
    status s = dataset_shape_of(m, shape);
    const struct named_tensor *matrix = first_matrix(source);
    if (!s || !matrix || m->config->dataset.divide > 0) return s;
    struct model *plan = NULL;
    *shape = (struct shape){.dims = 1, .size = {matrix->shape[1]}};
    struct model_names names = any_names(m->config);
    status unfit = model_plan_named(&m->config->model, shape, &names, &plan);
    model_destroy(plan);
    if (!unfit) {
        status_free(s);
        return OK;
    }
    status_free(unfit);
    return status_prefix(s, "the shape of the model's inputs is not in the checkpoint, and the dataset cannot be read");
}

/* ---- weights and scaler ---- */

static status find_values(const struct export_source *source, const struct params *params, const float ***out) {
    const float **values = arena_alloc(source->arena, (params->count + 1) * sizeof *values);
    for (size_t p = 0; p < params->count; p++) {
        const struct param *param = &params->items[p];
        for (size_t i = 0; i < source->tensor_count && !values[p]; i++) {
            const struct named_tensor *t = &source->tensors[i];
            if (strcmp(t->name, param->name) == 0 && t->dims == param->dims &&
                memcmp(t->shape, param->shape, (size_t)t->dims * sizeof *t->shape) == 0)
                values[p] = t->values;
        }
        if (!values[p])
            return status_data("%s: model/%s does not have the shape that the config of the file asks for",
                               source->path, param->name);
    }
    *out = values;
    return OK;
}

static status set_scaler(const struct export_source *source, struct export_model *m) {
    const struct real_list *mean = &source->session->mean, *scale = &source->session->scale;
    if (!mean->count) return OK;
    if (shape_elements(&m->model->in) % mean->count != 0)
        return status_data("%s: scaler/mean and scaler/scale do not fit the inputs; the file was changed",
                           source->path);
    m->features = mean->count;
    m->mean = mean->items;
    m->scale = scale->items;
    return OK;
}

/* The statistics of a batch depend on rows that are computed together, which differ from those of predict. */
static const char *refusal(const struct layer *layer) {
    if (!layer_is_identity(layer) && (!layer->type->onnx || !layer->type->c))
        return "is of a type that an exported model cannot have yet";
    if (layer_facts_of(layer).uses_batch)
        return "uses the statistics of the batch (track_running_stats: false), which an exported model does not have";
    return NULL;
}

static status check_layers(const struct model *model) {
    for (size_t i = 0; i < model->node_count; i++) {
        const struct layer *layer = model->nodes[i].layer;
        const char *reason = layer ? refusal(layer) : NULL;
        if (reason) return status_usage("%s: %s %s", place_text(layer->place).s, layer->path, reason);
    }
    return OK;
}

static void find_read_lengths(const struct export_source *source, struct export_model *m) {
    m->reads_lengths = arena_alloc(source->arena, (m->model->lengths_count + 1) * sizeof *m->reads_lengths);
    for (size_t i = 0; i < m->model->node_count; i++) {
        if (!m->model->nodes[i].layer) continue;
        size_t lengths = layer_facts_of(m->model->nodes[i].layer).lengths;
        if (lengths) m->reads_lengths[lengths - 1] = true;
    }
}

/* Whether the only output is that of the last layer. */
static bool has_one_output(const struct config *config) {
    const struct variant_list *layers = &config->model.layers;
    const struct layer_common *last = layers->items[layers->count - 1].common;
    if (config->losses.count != 1) return config->losses.count == 0;
    const struct objective_keys *keys = config->losses.items[0].common;
    return !keys->output || (last && last->name && strcmp(last->name, keys->output) == 0);
}

static status plan_by_dataset(struct export_model *m) {
    struct dataset_config config = m->config->dataset;
    struct dataset *dataset;
    config.request.without_targets = true;
    config.request.input_targets.count = 0;
    status s = dataset_open(&config, false, true, &dataset);
    if (s)
        return status_prefix(
            s, "the shapes of the model's inputs are not in the checkpoint, and the dataset cannot be read");
    m->divide = dataset_divide(dataset);
    s = config_plan_model(m->config, dataset_info(dataset), 0, false, &m->model);
    dataset_close(dataset);
    return s;
}

/* A model with named inputs or several outputs. */
static status plan_named(const struct export_source *source, struct export_model *m) {
    struct dataset_info info;
    bool are_features;
    TRY(set_columns(source, m, &are_features));
    TRY(use_layout(source, m, &info) ? config_plan_model(m->config, &info, 0, false, &m->model) : plan_by_dataset(m));
    struct string_list *names = &m->outputs;
    names->items = arena_alloc(source->arena, (m->config->losses.count + 1) * sizeof *names->items);
    for (size_t i = 0; i < m->config->losses.count; i++)
        names->items[names->count++] = objective_name(&m->config->losses.items[i]);
    return OK;
}

static status plan_model(const struct export_source *source, struct export_model *m) {
    struct shape shape = {0};
    if (dataset_input_groups(&m->config->dataset)->count > 0 || !has_one_output(m->config))
        return plan_named(source, m);
    TRY(find_shape(source, m, &shape));
    check_window_columns(m, &shape);
    struct model_names names = any_names(m->config);
    return model_plan_named(&m->config->model, &shape, &names, &m->model);
}

static status set_target_scale(const struct export_source *source, struct export_model *m) {
    m->target_scale = source->session->target_scale;
    if (!m->target_scale || m->target_scale->size == m->model->out_size) return OK;
    return status_data("%s: data/target_scale does not fit the outputs; the file was changed", source->path);
}

status export_model_open(const struct export_source *source, struct export_model *out) {
    const struct session *session = source->session;
    *out = (struct export_model){.divide = 1};
    TRY(session_read(source->session));
    out->config = session->config;
    out->name = safe_name(source, out->config->name);
    out->labels = session->labels;
    if (out->config->dataset.divide > 0) out->divide = out->config->dataset.divide;
    TRY(plan_model(source, out));
    TRY(check_layers(out->model));
    find_read_lengths(source, out);
    TRY(find_values(source, &out->model->params, &out->params));
    TRY(find_values(source, &out->model->buffers, &out->buffers));
    TRY(set_target_scale(source, out));
    return set_scaler(source, out);
}

void export_model_close(struct export_model *model) { model_destroy(model->model); }
