/* Reading of configs, and what follows from a config and the data, the model or the machine. */
#include "train/config/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/find_file.h"
#include "base/utf8.h"
#include "checkpoint/checkpoint.h"
#include "optim/optimizer_groups.h"

struct config_file {
    struct document *document;
    struct config config;
};

struct config_source {
    char *path;
    struct document *document;
    char *dataset, *dataset_path; /* dataset.path as a config had it last, and what was found; NULL: none yet */
};

#define MAX_SHOWN 200      /* bytes of a line in a message */
#define REPLACED "\\ufffd" /* how schema_write_yaml writes a byte that is not UTF-8 */

/* "configs/wine_mlp.yaml" -> "wine_mlp" */
static const char *name_of_file(const char *path, struct arena *arena) {
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    struct text valid = {0};
    utf8_repair(file, strlen(file), true, &valid);
    char *name = arena_copy(arena, text_string(&valid));
    text_free(&valid);
    char *dot = strrchr(name, '.');
    if (dot && dot != name) *dot = 0;
    return name;
}

/* Fills *out from [document], which it owns also after a failure. */
static status bind(struct document *document, const char *path, struct problems *problems, struct config_file **out) {
    struct config_file *file = calloc(1, sizeof *file);
    if (!file) {
        document_destroy(document);
        return status_memory("the config");
    }
    file->document = document;
    if (document)
        schema_bind(&config_schema, document_root(document), "", &config_schema, &file->config,
                    document_arena(document), problems);
    file->config.device = file->config.train.device == DEVICE_CUDA ? DEVICE_CUDA : DEVICE_CPU;
    status s = problems_status(problems, STATUS_USAGE);
    if (s) {
        config_free(file);
        return s;
    }
    config_set_targets(&file->config, document_arena(document));
    if (!file->config.name) file->config.name = name_of_file(path, document_arena(document));
    *out = file;
    return OK;
}

/* Replaces the names of files by paths (find_file). */
static status find_files(struct config *c, const char *path, struct arena *arena) {
    bool is_resume_file = strcmp(c->checkpoint.resume, "auto") != 0 && strcmp(c->checkpoint.resume, "never") != 0;
    TRY(dataset_find_files(&c->dataset, path, arena));
    TRY(find_file_or_folder(&c->model.init_from.file, path, arena));
    return is_resume_file ? find_file(&c->checkpoint.resume, path, arena) : OK;
}

/* Keys that exclude each other: a word for one replaces another one of the file. */
static const struct {
    const char *keys[3]; /* dotted paths */
    const char *none;    /* the value of a key that is not given */
} alternatives[] = {
    {{"train.epochs", "train.steps"}, "null"},
    {{"sampler.batch_size", "sampler.global_batch_size"}, "null"},
    {{"dataset.query", "dataset.table"}, "null"},
    {{"dataset.split.test", "dataset.split.train", "dataset.split.folds"}, "0"},
};

/* Whether a word sets [key] to anything but [none], NULL: to anything. */
static bool is_set(char *const *words, size_t count, const char *key, const char *none) {
    size_t length = strlen(key);
    for (size_t i = 0; i < count; i++)
        if (strncmp(words[i], key, length) == 0 && words[i][length] == '=' &&
            (!none || strcmp(words[i] + length + 1, none) != 0))
            return true;
    return false;
}

static bool has_key(const struct document *document, const char *key) {
    const struct node *node = document_root(document);
    for (size_t length; node && *key; key += length + (key[length] == '.')) {
        char step[64];
        length = strcspn(key, ".");
        snprintf(step, sizeof step, "%.*s", (int)length, key);
        if (node->kind != NODE_MAPPING) return true; /* a short form, which may be this key */
        node = node_get(node, step);
    }
    return node != NULL;
}

static void replace_alternatives(struct document *document, char *const *words, size_t count,
                                 struct problems *problems) {
    for (size_t i = 0; i < sizeof alternatives / sizeof *alternatives; i++)
        for (size_t k = 0; k < 3 && alternatives[i].keys[k]; k++)
            for (size_t other = 0; other < 3 && alternatives[i].keys[other]; other++) {
                const char *key = alternatives[i].keys[other], *none = alternatives[i].none;
                struct text word = {0};
                if (other == k || !is_set(words, count, alternatives[i].keys[k], none)) continue;
                if (is_set(words, count, key, NULL) || !has_key(document, key)) continue;
                text_printf(&word, "%s=%s", key, none);
                schema_override(&config_schema, document, text_string(&word), problems);
                text_free(&word);
            }
}

/* Applies the words to [document], which it owns; NULL: it could not be read. */
static status complete(struct document *document, const char *path, char *const *overrides, size_t count,
                       struct problems *problems, struct config_file **out) {
    if (document) replace_alternatives(document, overrides, count, problems);
    for (size_t i = 0; document && i < count; i++) schema_override(&config_schema, document, overrides[i], problems);
    return bind(document, path, problems, out);
}

static status free_after(status s, struct config_file **file) {
    if (!s) return OK;
    config_free(*file);
    *file = NULL;
    return s;
}

/* [failure] to read the config [path], which may be the data: adds what then helps. */
static status explain_data(status failure, const char *path) {
    if (!failure || !dataset_knows_extension(path)) return failure;
    struct text word = {0};
    text_add_shell(&word, path);
    status s = status_new(status_code(failure),
                          "%s; if it is a data file, ddptrain init writes a config for it: "
                          "ddptrain init %s > CONFIG",
                          status_message(failure), text_string(&word));
    text_free(&word);
    status_free(failure);
    return s;
}

static bool is_sweep(const struct document *document) {
    const struct node *root = document_root(document);
    bool has_trials = node_get(root, "parameters") || node_get(root, "method") || node_get(root, "trials");
    return has_trials && node_get(root, "config") && !node_get(root, "model") && !node_get(root, "dataset");
}

bool config_is_sweep(const char *path) {
    struct problems problems = {0};
    struct document *document = NULL;
    status s = document_read(path, &problems, &document);
    bool is = !s && problems.count == 0 && document && is_sweep(document);
    status_free(s); /* config_load reports it */
    document_destroy(document);
    problems_free(&problems);
    return is;
}

status config_load(const char *path, char *const *overrides, size_t count, struct config_file **out) {
    struct problems problems = {0};
    struct document *document = NULL;
    *out = NULL;
    status s = document_read(path, &problems, &document);
    bool is_read = !s && problems.count == 0;
    if (is_read && document && is_sweep(document)) {
        struct text word = {0};
        text_add_shell(&word, path);
        s = status_new(STATUS_USAGE,
                       "%s: this is a sweep of a config; ddptrain sweep %s trains it, and ddptrain check %s checks it",
                       path, text_string(&word), text_string(&word));
        text_free(&word);
        document_destroy(document);
        problems_free(&problems);
        return s;
    }
    if (!s) s = complete(document, path, overrides, count, &problems, out);
    if (!s) s = find_files(&(*out)->config, path, document_arena((*out)->document));
    problems_free(&problems);
    return free_after(is_read ? s : explain_data(s, path), out);
}

status config_source_open(const char *path, struct config_source **out) {
    struct problems problems = {0};
    struct config_source *source = calloc(1, sizeof *source);
    *out = source;
    if (!source) return status_memory("the config");
    source->path = strdup(path);
    status s = source->path ? document_read(path, &problems, &source->document) : status_memory("the config");
    if (!s) s = problems_status(&problems, STATUS_USAGE);
    problems_free(&problems);
    if (!s) return OK;
    config_source_close(source);
    *out = NULL;
    return s;
}

void config_source_close(struct config_source *source) {
    if (!source) return;
    document_destroy(source->document);
    free(source->path);
    free(source->dataset);
    free(source->dataset_path);
    free(source);
}

static status find_files_once(struct config_source *source, struct config *c, struct arena *arena) {
    const char *name = c->dataset.path;
    if (name && source->dataset && strcmp(name, source->dataset) == 0) c->dataset.path = source->dataset_path;
    TRY(find_files(c, source->path, arena));
    if (!name || c->dataset.path == source->dataset_path) return OK;
    free(source->dataset);
    free(source->dataset_path);
    source->dataset = strdup(name);
    source->dataset_path = strdup(c->dataset.path);
    return source->dataset && source->dataset_path ? OK : status_memory("the config");
}

status config_source_load(struct config_source *source, char *const *overrides, size_t count,
                          struct config_file **out) {
    struct problems problems = {0};
    *out = NULL;
    status s = complete(document_copy(source->document), source->path, overrides, count, &problems, out);
    if (!s) s = find_files_once(source, &(*out)->config, document_arena((*out)->document));
    problems_free(&problems);
    return free_after(s, out);
}

status config_parse(const char *name, const char *text, struct config_file **out) {
    struct problems problems = {0};
    struct document *document = NULL;
    *out = NULL;
    status s = document_parse(name, text, strlen(text), &problems, &document);
    if (!s) s = bind(document, name, &problems, out);
    problems_free(&problems);
    return s;
}

status config_of_checkpoint(struct checkpoint *checkpoint, struct config_file **out) {
    char *text;
    *out = NULL;
    TRY(checkpoint_read_text(checkpoint, "config", &text));
    if (text) status_free(config_parse("the checkpoint's config", text, out));
    free(text);
    return OK;
}

/* The first byte that was replaced in a text of schema_write_yaml, where a backslash of a value is two; NULL: none. */
static const char *find_replaced(const char *written) {
    for (const char *at = written; (at = strchr(at, '\\')); at += at[1] ? 2 : 1)
        if (strncmp(at, REPLACED, strlen(REPLACED)) == 0) return at;
    return NULL;
}

status config_check_written(const char *written) {
    const char *at = find_replaced(written);
    if (at) {
        while (at > written && at[-1] != '\n') at--;
        at += strspn(at, " -");
        size_t length = strcspn(at, "\n");
        return status_new(STATUS_USAGE,
                          "a name is not valid UTF-8 (\\ufffd), so the config in the run folder, with %.*s, could not "
                          "be read again; rename the file or folder, or start ddptrain in the folder of the config",
                          (int)(length < MAX_SHOWN ? length : MAX_SHOWN), at);
    }
    struct config_file *file;
    status s = config_parse("config.yaml", written, &file);
    if (s)
        return status_prefix(s, "the config of the run, which has every default, could not be read again; shorten the "
                                "config");
    config_free(file);
    return OK;
}

void config_free(struct config_file *file) {
    if (!file) return;
    document_destroy(file->document);
    free(file);
}

const struct config *config_of(const struct config_file *file) { return &file->config; }

status config_check_model(const struct config *config, const struct model *model) {
    if (model->params.count == 0)
        return status_new(STATUS_USAGE, "model.layers: no layer has parameters, so there is nothing to train");
    if (config->determinism.mode == DETERMINISM_ELASTIC)
        return model_check_independent(model, "determinism.mode: elastic");
    return config->sampler.uneven ? model_check_independent(model, "sampler.uneven") : OK;
}

status config_check_loss(const struct config *config, const struct model *model, const struct dataset_info *info) {
    struct loss_targets targets = {.size = info->target_size,
                                   .classes = info->classes,
                                   .first_class = info->first_class,
                                   .absent_class = info->absent_class};
    targets.shape.dims = info->target_dims;
    memcpy(targets.shape.size, info->target_shape, sizeof info->target_shape);
    if (config->losses.count) return OK; /* config_plan_objective */
    status s = loss_check(config_loss(config), config->loss.config, model, &targets);
    return status_prefix(s, "%s: loss", place_text(config->loss.place).s);
}

bool config_device_is_auto(const struct config *config) {
    return config->train.device == DEVICE_AUTO && !optimizer_is_in_backward(&config->optimizer);
}

status config_set_auto_device(struct config_file *file, const char *why_cpu) {
    struct config *c = &file->config;
    if (!why_cpu) {
        c->device = DEVICE_CUDA;
        return OK;
    }
    c->device_reason = arena_copy(document_arena(file->document), why_cpu);
    if (c->train.precision == TRAIN_FLOAT16)
        return status_new(STATUS_USAGE, "train.precision: float16 needs a GPU: %s", why_cpu);
    if (comm_backend_needs_gpus(c->dist.backend))
        return status_new(STATUS_USAGE, "dist.backend: %s is for the memory of GPUs: %s",
                          comm_backend_names[c->dist.backend], why_cpu);
    return OK;
}

enum precision config_precision(const struct config *config) {
    const struct train_config *c = &config->train;
    if (c->precision == TRAIN_BFLOAT16) return PRECISION_BFLOAT16;
    if (c->precision == TRAIN_FLOAT16) return PRECISION_FLOAT16;
    if (config->determinism.is_portable && config->device == DEVICE_CPU) return PRECISION_FLOAT32_PORTABLE;
    return c->matmul_precision == MATMUL_HIGH ? PRECISION_TF32 : PRECISION_FLOAT32;
}

bool config_updates_in_backward(const struct config *config, int world_size) {
    return world_size == 1 && optimizer_is_in_backward(&config->optimizer);
}

bool config_ignored(const struct config *config, size_t index, struct text *out) {
    const struct train_config *c = &config->train;
    bool is_on_gpu = config->device == DEVICE_CUDA;
    const struct {
        bool is_ignored;
        const char *line;
    } lines[] = {
        {c->matmul_precision == MATMUL_HIGH && !device_has_tf32(config_device_name(config)),
         "train.float32_matmul_precision: high is for GPUs and for CPUs with AMX, which this one does not have"},
        {c->matmul_precision == MATMUL_HIGH && c->precision != TRAIN_FLOAT32 &&
             device_has_tf32(config_device_name(config)),
         "train.float32_matmul_precision: high is for precision: float32"},
        {c->precision != TRAIN_FLOAT16 && c->has_grad_scaler,
         "train.grad_scaler is for precision: float16; the loss is not scaled"},
        {c->has_cuda_graph && !is_on_gpu, "train.cuda_graph is for GPUs"},
        {config->determinism.is_portable && is_on_gpu, "determinism.portable is for CPUs"},
        {c->metrics.count > 0 && !dataset_has_validation(&config->dataset),
         "train.metrics are measured on validation rows, and there are none (dataset.split or dataset.validation)"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (lines[i].is_ignored && index-- == 0) {
            text_add(out, lines[i].line);
            return true;
        }
    return dataset_ignored_key(&config->dataset, index, out);
}

status config_create_device(const struct config *config, const struct dist_env *env, bool is_training,
                            struct device **out) {
    static const struct dist_env alone = {.world_size = 1, .local_world_size = 1};
    struct gpus_process process = dist_env_gpus(env ? env : &alone);
    TRY(device_create_local(config_device_name(config), &process, out));
    enum precision precision = config_precision(config);
    bool splits = is_training && precision == PRECISION_FLOAT32 && config->device == DEVICE_CPU;
    return device_set_precision(*out, splits ? PRECISION_FLOAT32_SPLIT : precision);
}

const struct loss_type *config_loss(const struct config *config) {
    return config->losses.count ? &loss_objective : loss_type_at((size_t)config->loss.index);
}

struct shape dataset_shape(const struct dataset_info *info) {
    struct shape shape = {.dims = info->input_dims,
                          .is_tokens = info->input_kind == INPUT_TOKENS,
                          .vocabulary = info->vocabulary,
                          .tokens = info->input_tokens};
    memcpy(shape.size, info->input_shape, (size_t)info->input_dims * sizeof *shape.size);
    return shape;
}

static struct class_targets targets_of(size_t loss, size_t count) {
    return (struct class_targets){loss_type_at(loss)->wants_classes, count};
}

/* Of the target [name]; NULL: of the only one. */
static size_t target_size(const struct dataset_info *info, const char *name) {
    for (size_t i = 0; i < info->target_count; i++)
        if (!name || strcmp(info->targets[i].name, name) == 0) return info->targets[i].size;
    return 0;
}

status config_plan_model(const struct config *config, const struct dataset_info *info, size_t cached_positions,
                         bool by_position, struct model **out) {
    struct arena *arena = arena_create();
    struct model_input *inputs = arena_alloc(arena, (info->input_count + 1) * sizeof *inputs);
    const char **outputs = arena_alloc(arena, (config->losses.count + 1) * sizeof *outputs);
    struct class_targets *targets = arena_alloc(arena, (config->losses.count + 1) * sizeof *targets);
    struct place *places = arena_alloc(arena, (config->losses.count + 1) * sizeof *places);
    struct model_names names = {.inputs = inputs,
                                .input_count = info->input_count,
                                .outputs = outputs,
                                .output_places = places,
                                .output_count = config->losses.count,
                                .targets = by_position ? targets : NULL,
                                .cached_positions = cached_positions};
    struct shape row = dataset_shape(info);
    for (size_t i = 0; i < info->input_count; i++) {
        const struct dataset_input *input = &info->inputs[i];
        inputs[i] = (struct model_input){.name = input->name, .first = input->first, .shape.dims = input->dims};
        inputs[i].shape.tokens = input->tokens;
        memcpy(inputs[i].shape.size, input->shape, (size_t)input->dims * sizeof *input->shape);
    }
    for (size_t i = 0; i < config->losses.count; i++) {
        const struct objective_keys *keys = config->losses.items[i].common;
        outputs[i] = keys->output;
        places[i] = config->losses.items[i].place;
        targets[i] = targets_of((size_t)config->losses.items[i].index, target_size(info, keys->target));
    }
    if (config->losses.count == 0) targets[0] = targets_of((size_t)config->loss.index, info->target_size);
    status s = model_plan_named(&config->model, &row, &names, out);
    arena_destroy(arena);
    return s;
}

status config_plan_objective(const struct config *config, const struct model *model, const struct dataset_info *info,
                             struct objective *objective) {
    struct objective_target targets[OBJECTIVE_MAX_TERMS * 2];
    size_t count = 0;
    *objective = (struct objective){0};
    if (config->losses.count == 0) return OK;
    for (; count < info->target_count && count < OBJECTIVE_MAX_TERMS * 2; count++) {
        const struct dataset_target *t = &info->targets[count];
        targets[count] = (struct objective_target){t->name, t->first, t->size, t->classes, t->first_class, {0}};
        targets[count].shape.dims = t->dims;
        memcpy(targets[count].shape.size, t->shape, sizeof t->shape);
    }
    return objective_plan(&config->losses, model, targets, count, info->target_size, objective);
}
