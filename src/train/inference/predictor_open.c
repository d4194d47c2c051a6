/* Opens a predictor: everything that a call needs is read from the checkpoint and checked here. */
#include <stdlib.h>
#include <string.h>

#include "base/files/io.h"
#include "data/text/vocabulary.h"
#include "train/inference/predictor_internal.h"
#include "train/inference/trained.h"
#include "train/state/input_layout_json.h"
#include "train/weights/weights.h"

/* ---- the checkpoint ---- */

static bool is_config(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0);
}

static status open_checkpoint(const char *path, const struct predictor_options *options, struct checkpoint **out,
                              bool *average) {
    struct weights_options weights = {.which = options->weights};
    struct config_file *file = NULL;
    struct io_info info;
    const char *which = options->checkpoint;
    if (which && strcmp(which, CHECKPOINT_BEST) != 0 && strcmp(which, CHECKPOINT_NEWEST) != 0)
        return status_new(STATUS_USAGE,
                          "the checkpoint is '%s'; expected best or newest, or nothing for the best one if the run "
                          "keeps one, else the newest",
                          which);
    weights.checkpoint = which;
    if (is_config(path)) {
        TRY(config_load(path, NULL, 0, &file));
        status s = weights_open(config_of(file), &weights, NULL, out, average);
        if (!s) s = trained_compare_config(*out, config_of(file), true);
        config_free(file);
        return s;
    }
    TRY(io_stat(path, &info));
    if (!info.exists) return status_new(STATUS_DATA, "%s does not exist", path);
    if (which && !info.is_folder)
        return status_new(STATUS_USAGE, "%s: this is a file, and the %s checkpoint is looked for in a run folder", path,
                          which);
    if (info.is_folder)
        weights.folder = path;
    else
        weights.checkpoint = path;
    return weights_open_alone(&weights, NULL, out, average);
}

static status read_config(struct predictor *p, struct checkpoint *checkpoint, const char *path) {
    char *text = NULL;
    struct entry counters[] = {{.path = "state/epoch", .type = ENTRY_INT64, .data = &p->about.epoch},
                               {.path = "state/step", .type = ENTRY_INT64, .data = &p->about.step}};
    TRY(checkpoint_read(checkpoint, counters, 2, NULL));
    TRY(checkpoint_read_text(checkpoint, "config", &text));
    if (!text) return status_new(STATUS_DATA, "%s: it has no config", path);
    status s = config_parse(path, text, &p->file);
    free(text);
    TRY(s);
    p->config = *config_of(p->file);
    p->config.device = DEVICE_CPU;
    p->about.name = p->config.name;
    return OK;
}

/* ---- inputs ---- */

/* For a checkpoint of an earlier version: from its vocabulary or its columns; else the dataset must be there. */
static status guess_layout(struct predictor *p, struct input_layout *layout) {
    const struct preparation *preparation = p->dataset.preparation;
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
    TRY(status_prefix(dataset_open(&p->config.dataset, config_loss(&p->config)->wants_classes, true, &dataset),
                      "the checkpoint is of an earlier version without the shape of the inputs, and the dataset "
                      "cannot be read"));
    *layout = dataset_input_layout(dataset);
    struct dataset_input *inputs = arena_alloc(p->arena, (layout->input_count + 1) * sizeof *inputs);
    for (size_t i = 0; i < layout->input_count; i++) {
        inputs[i] = layout->inputs[i];
        inputs[i].name = arena_copy(p->arena, inputs[i].name);
    }
    layout->inputs = inputs;
    dataset_close(dataset);
    return OK;
}

static void list_columns(struct predictor *p) {
    const struct column_list *list = &p->dataset.columns;
    struct string_list *columns = &p->about.columns;
    if (list->count == 0 || strcmp(list->format, "csv") != 0) return; /* a dataset of a file may be many inputs */
    if (p->dataset.window.steps) return;                              /* an input is a column of one of the rows */
    columns->items = arena_alloc(p->arena, (list->count + 1) * sizeof *columns->items);
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i].role == COLUMN_INPUT) columns->items[columns->count++] = list->items[i].name;
}

static status read_inputs(struct predictor *p, struct checkpoint *checkpoint, struct trained *trained) {
    bool has_layout;
    struct input_layout *layout = &p->about.inputs;
    p->dataset = p->config.dataset;
    p->dataset.without_targets = true;
    p->dataset.input_targets.count = 0;
    dataset_remove_split(&p->dataset);
    p->dataset.validation = (struct validation_config){0};
    p->dataset.augment = (struct augment_config){0};
    p->dataset.local_ranks = 1;
    TRY(trained_read(p->arena, checkpoint, &p->dataset, trained));
    TRY(trained_vocabulary(checkpoint, &p->vocabulary));
    p->about.vocabulary = p->vocabulary;
    list_columns(p);
    TRY(input_layout_read(p->arena, checkpoint, layout, &has_layout));
    if (!has_layout) TRY(guess_layout(p, layout));
    p->info = input_layout_info(layout);
    p->about.has_preparation = p->dataset.preparation != NULL;
    if (p->about.has_preparation && p->dataset.window.steps)
        return status_new(STATUS_USAGE,
                          "the model reads windows of rows (dataset.window) with columns that are prepared "
                          "(data/preparation), which only `ddptrain predict` computes");
    if (p->about.has_preparation || layout->kind == INPUT_TOKENS) return OK;
    return input_scaling_create(layout, &p->dataset.scale, &p->scaling);
}

/* ---- the model ---- */

static status load_model(struct predictor *p, struct checkpoint *checkpoint, bool average) {
    TRY(predictor_new_worker(p, &p->first));
    struct model *model = p->first->plan->model;
    TRY(model_map(model));
    TRY(weights_load(model, checkpoint, average));
    TRY(model_unmap(model, true));
    p->values = model->params.values;
    p->buffers = model->buffers.values;
    p->about.parameters = model->params.elements;
    p->about.outputs = model->out_size;
    return OK;
}

static struct string_list copy_names(struct predictor *p, const char *const *names, size_t count,
                                     struct string_list list) {
    const char **items = arena_alloc(p->arena, (list.count + count + 1) * sizeof *items);
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
    s = predictions_make(&none, &p->meaning, p->arena);
    size_t parts = none.part_count ? none.part_count : 1;
    bool *are_classes = arena_alloc(p->arena, (p->about.outputs + 1) * sizeof *are_classes);
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
    struct checkpoint *checkpoint = NULL;
    struct trained trained;
    bool average;
    status s = open_checkpoint(path, options, &checkpoint, &average);
    if (!s) s = read_config(p, checkpoint, path);
    if (!s) s = read_inputs(p, checkpoint, &trained);
    if (!s) s = load_model(p, checkpoint, average);
    checkpoint_close(checkpoint);
    TRY(s);
    p->about.labels = trained.labels;
    p->meaning = (struct prediction_meaning){.loss = p->first->plan->loss,
                                             .loss_config = p->first->plan->loss_config,
                                             .objective = p->first->plan->objective,
                                             .output = &p->first->plan->model->out,
                                             .labels = trained.labels,
                                             .targets = trained.targets,
                                             .target_scale = trained.target_scale};
    TRY(describe_outputs(p));
    predictor_release_worker(p, p->first);
    return OK;
}

status predictor_open(const char *path, const struct predictor_options *options, struct predictor **out) {
    static const struct predictor_options automatic;
    struct predictor *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p) return status_memory("a model");
    p->arena = arena_create();
    pthread_mutex_init(&p->lock, NULL);
    status s = fill(p, path, options ? options : &automatic);
    if (s)
        predictor_close(p);
    else
        *out = p;
    return s;
}

void predictor_close(struct predictor *p) {
    if (!p) return;
    for (struct predictor_worker *w = p->idle, *next; w; w = next) {
        next = w->next;
        if (w != p->first) predictor_destroy_worker(w);
    }
    predictor_destroy_worker(p->first); /* the last, because it has the weights */
    input_scaling_destroy(p->scaling);
    vocabulary_destroy(p->vocabulary);
    config_free(p->file);
    pthread_mutex_destroy(&p->lock);
    arena_destroy(p->arena);
    free(p);
}
