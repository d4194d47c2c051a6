/* A file of PyTorch (safetensors, torch.save) differs from a checkpoint: a tied weight has several names, and the
 * matrices of linear layers have other shapes. */

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/arena.h"
#include "base/files/io.h"
#include "base/scoped.h"
#include "checkpoint/inspect.h"
#include "checkpoint/safetensors.h"
#include "data/columns/preparation.h"
#include "train/state/data_entries.h"
#include "train/weights/weights.h"

/* ---- config.json of save_pretrained ---- */

/* config.json, which transformers' save_pretrained writes beside the weights: it has what the shapes of
 * tensors do not show (heads, eps, the base of rotary embeddings, the activation). */

/* Each key is compared with the layers that it is about: transformers' models have one value for all of them. */

#define MAX_CONFIG_BYTES ((size_t)16 << 20)
#define MAX_DIFFERENCES 10 /* lines; further ones are only counted */
#define TOLERANCE 1e-6     /* a layer has eps as float32 */

struct comparison {
    const struct model *model;
    const char *path;
    json_t *root;
    size_t layer; /* the current one */
    struct text differences;
    size_t count;
};

/* ---- the file ---- */

static status read_config(const char *path, json_t **root) {
    struct io_info info;
    SCOPED_STRING text = NULL;
    json_error_t error = {0};
    *root = NULL;
    TRY(io_read_text(path, MAX_CONFIG_BYTES, &text, &info));
    if (!info.exists) return OK;
    if (text) *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (json_is_object(*root)) return OK;
    json_decref(*root);
    *root = NULL;
    return status_data("%s: not a JSON object%s%s; it describes the model beside it: save it again, or remove it", path,
                       error.text[0] ? ": " : "", error.text);
}

/* Keys of one meaning; [part]: an object of the file that has them, or NULL. */
struct saved_key {
    const char *part, *name;
};

static const struct saved_key heads_keys[] = {{NULL, "num_attention_heads"}, {NULL, "n_head"}, {NULL, NULL}};
static const struct saved_key kv_heads_keys[] = {{NULL, "num_key_value_heads"}, {NULL, NULL}};
static const struct saved_key head_size_keys[] = {{NULL, "head_dim"}, {NULL, NULL}};
static const struct saved_key base_keys[] = {{NULL, "rope_theta"}, {"rope_parameters", "rope_theta"}, {NULL, NULL}};
static const struct saved_key rms_eps_keys[] = {{NULL, "rms_norm_eps"}, {NULL, NULL}};
static const struct saved_key layer_eps_keys[] = {{NULL, "layer_norm_epsilon"}, {NULL, "layer_norm_eps"}, {NULL, NULL}};
static const struct saved_key activation_keys[] = {
    {NULL, "hidden_activation"}, {NULL, "activation_function"}, {NULL, "hidden_act"}, {NULL, NULL}};
static const struct saved_key rope_type_keys[] = {
    {"rope_parameters", "rope_type"}, {"rope_scaling", "rope_type"}, {"rope_scaling", "type"}, {NULL, NULL}};
static const struct saved_key rotated_part_keys[] = {
    {NULL, "partial_rotary_factor"}, {"rope_parameters", "partial_rotary_factor"}, {NULL, NULL}};

/* The first of [keys] that is there and not null; NULL: none. */
static const json_t *find(const struct comparison *c, const struct saved_key *keys, const char **name) {
    for (; keys->name; keys++) {
        const json_t *value = json_object_get(keys->part ? json_object_get(c->root, keys->part) : c->root, keys->name);
        *name = keys->name;
        if (value && !json_is_null(value)) return value;
    }
    return NULL;
}

/* ---- differences ---- */

/* Whether an earlier layer is the same one of the config, by a `repeat`. */
static bool is_repeated(const struct comparison *c) {
    const struct layer *layer = &c->model->layers[c->layer];
    for (size_t i = 0; i < c->layer; i++) {
        const struct layer *other = &c->model->layers[i];
        if (other->type == layer->type && other->place.line == layer->place.line &&
            other->place.column == layer->place.column && strcmp(other->place.file, layer->place.file) == 0)
            return true;
    }
    return false;
}

/* Adds a line that begins with the place of the layer; [key]: of the file. */
static void add_difference(struct comparison *c, const char *is, const char *key, const char *value,
                           const char *advice) {
    const struct layer *layer = &c->model->layers[c->layer];
    if (is_repeated(c) || c->count++ >= MAX_DIFFERENCES) return;
    text_printf(&c->differences, "%s%s: %s: %s, but %s of %s is ", c->differences.length ? "\n" : "",
                place_text(layer->place).s, layer->path, is, key, c->path);
    text_add_value(&c->differences, value, TEXT_MAX_NAME);
    text_printf(&c->differences, "; write `%s`", advice);
}

/* Compares [own], the value of the key [name] of the current layer. */
static void compare_number(struct comparison *c, const char *name, double own, const struct saved_key *keys) {
    const char *key;
    const json_t *value = find(c, keys, &key);
    double saved = json_number_value(value);
    if (!json_is_number(value) || fabs(saved - own) <= TOLERANCE * fabs(saved)) return;
    SCOPED_STRING is = text_format("%s is %.7g", name, own);
    SCOPED_STRING expected = text_format("%.15g", saved);
    SCOPED_STRING advice = text_format("%s: %.15g", name, saved);
    add_difference(c, is, key, expected, advice);
}

static const struct activation_name {
    const char *name; /* transformers' */
    enum activation function;
    const char *layer; /* as in a config */
} activation_names[] = {
    {"gelu", ACTIVATION_GELU, "gelu"},
    {"gelu_python", ACTIVATION_GELU, "gelu"},
    {"gelu_new", ACTIVATION_GELU_TANH, "gelu: {approximate: tanh}"},
    {"gelu_fast", ACTIVATION_GELU_TANH, "gelu: {approximate: tanh}"},
    {"gelu_accurate", ACTIVATION_GELU_TANH, "gelu: {approximate: tanh}"},
    {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH, "gelu: {approximate: tanh}"},
    {"silu", ACTIVATION_SILU, "silu"},
    {"swish", ACTIVATION_SILU, "silu"},
    {"relu", ACTIVATION_RELU, "relu"},
    {NULL, 0, NULL},
};

static const struct activation_name *activation_of_name(const char *name) {
    for (size_t i = 0; name && activation_names[i].name; i++)
        if (strcmp(activation_names[i].name, name) == 0) return &activation_names[i];
    return NULL;
}

static const struct activation_name *activation_of_function(enum activation function) {
    for (size_t i = 0; activation_names[i].name; i++)
        if (activation_names[i].function == function) return &activation_names[i];
    return NULL;
}

/* Functions that are not listed, such as the tanh of BERT's pooler, have other uses than the layers of the key. */
static void compare_activation(struct comparison *c, enum activation function) {
    const char *key;
    const json_t *value = find(c, activation_keys, &key);
    const struct activation_name *own = activation_of_function(function);
    const struct activation_name *saved = activation_of_name(json_string_value(value));
    if (!own || !saved || own->function == saved->function) return;
    SCOPED_STRING is = text_format("the activation is `%s`", own->layer);
    add_difference(c, is, key, saved->name, saved->layer);
}

static void compare_rotation(struct comparison *c, const struct layer_facts *facts) {
    const char *key;
    compare_number(c, "base", facts->rotation_base, base_keys);
    if (!find(c, rotated_part_keys, &key)) compare_number(c, "head_size", (double)facts->head_size, head_size_keys);
}

static void compare_layer(struct comparison *c, const struct layer *layer) {
    struct layer_facts facts = layer_facts_of(layer);
    if (layer->has_relu) compare_activation(c, ACTIVATION_RELU);
    if (facts.kv_heads) compare_number(c, "num_kv_heads", (double)facts.kv_heads, kv_heads_keys);
    if (facts.heads) compare_number(c, "heads", (double)facts.heads, heads_keys);
    if (facts.head_size) compare_rotation(c, &facts);
    if (facts.rms_norm_eps >= 0) compare_number(c, "eps", facts.rms_norm_eps, rms_eps_keys);
    if (facts.layer_norm_eps >= 0) compare_number(c, "eps", facts.layer_norm_eps, layer_eps_keys);
    if (facts.is_activation) compare_activation(c, facts.activation);
}

/* ---- what no layer has ---- */

static bool has_rotation(const struct model *model) {
    for (size_t i = 0; i < model->layer_count; i++)
        if (layer_facts_of(&model->layers[i]).head_size) return true;
    return false;
}

static void add_unknown(const struct comparison *c, const struct saved_key *keys, const char *what,
                        struct text *warnings) {
    const char *key = NULL, *value = json_string_value(find(c, keys, &key));
    if (!value) return;
    text_printf(warnings, "\n  warning: %s of %s is ", key, c->path);
    text_add_value(warnings, value, TEXT_MAX_NAME);
    text_printf(warnings, ", %s", what);
}

/* Values of computations that no layer has, and the one that changes nothing; NAN: each does. */
static const struct other_key {
    const char *name;
    double neutral;
} other_keys[] = {
    {"embedding_multiplier", 1},
    {"residual_multiplier", 1},
    {"logits_scaling", 1},
    {"logit_scale", 1},
    {"attention_multiplier", NAN},
    {"query_pre_attn_scalar", NAN},
    {"attn_logit_softcapping", NAN},
    {"final_logit_softcapping", NAN},
    {"scale_attn_by_inverse_layer_idx", 0},
};

static void add_other_keys(const struct comparison *c, struct text *warnings) {
    for (size_t i = 0; i < sizeof other_keys / sizeof *other_keys; i++) {
        const json_t *value = json_object_get(c->root, other_keys[i].name);
        double number = json_is_true(value) ? 1 : json_number_value(value);
        bool is_set = json_is_true(value) || json_is_number(value);
        if (is_set && number != other_keys[i].neutral)
            text_printf(warnings, "\n  warning: %s of %s is %.7g, and no layer here computes this", other_keys[i].name,
                        c->path, number);
    }
}

/* Attention to the last tokens alone, where rows are longer than that. */
static void add_window(const struct comparison *c, struct text *warnings) {
    const json_t *window = json_object_get(c->root, "sliding_window");
    const struct shape *in = &c->model->in;
    bool is_off = json_is_false(json_object_get(c->root, "use_sliding_window"));
    if (!json_is_integer(window) || is_off || !in->is_tokens || json_integer_value(window) >= in->size[0]) return;
    text_printf(warnings,
                "\n  warning: sliding_window of %s is %lld, and attention here is to all of the %lld tokens of a row",
                c->path, (long long)json_integer_value(window), (long long)in->size[0]);
}

/* Types whose outputs were compared with transformers' own. */
static const char *const known_types[] = {"gpt2", "llama", "mistral", "qwen2", "bert", "vit", NULL};

static void add_type(const struct comparison *c, struct text *warnings) {
    const char *type = json_string_value(json_object_get(c->root, "model_type"));
    for (size_t i = 0; type && known_types[i]; i++)
        if (strcmp(type, known_types[i]) == 0) return;
    if (!type) return;
    text_printf(warnings, "\n  warning: model_type of %s is ", c->path);
    text_add_value(warnings, type, TEXT_MAX_NAME);
    text_add(warnings, ", which may compute something else with the same weights: compare some outputs");
}

static void add_unknown_ones(const struct comparison *c, struct text *warnings) {
    const char *key, *type = json_string_value(find(c, rope_type_keys, &key));
    const char *activation = json_string_value(find(c, activation_keys, &key));
    if (type && strcmp(type, "default") != 0 && has_rotation(c->model))
        add_unknown(c, rope_type_keys, "and rotary_embedding computes only the default one", warnings);
    if (activation && !activation_of_name(activation))
        add_unknown(c, activation_keys, "which is not compared with the activations of the model", warnings);
    add_other_keys(c, warnings);
    add_window(c, warnings);
    add_type(c, warnings);
}

/* ---- all ---- */

static status report_differences(const struct comparison *c, bool is_partial, struct text *warnings) {
    const char *lines = text_string(&c->differences);
    SCOPED_TEXT more = {0};
    if (c->count > MAX_DIFFERENCES) text_printf(&more, "\n... and %zu more", c->count - MAX_DIFFERENCES);
    if (c->count && !is_partial) return status_usage("%s%s", lines, text_string(&more));
    for (const char *line = lines; is_partial && *line;) {
        size_t length = strcspn(line, "\n");
        text_printf(warnings, "\n  warning: %.*s", (int)length, line);
        line += length + (line[length] == '\n');
    }
    return OK;
}

static status saved_config_compare(const struct model *model, const char *folder, bool is_partial,
                                   struct text *warnings) {
    SCOPED_STRING path = text_path(folder, "config.json");
    struct comparison c = {.model = model, .path = path};
    status s = read_config(c.path, &c.root);
    for (; !s && c.root && c.layer < model->layer_count; c.layer++) compare_layer(&c, &model->layers[c.layer]);
    if (!s && c.root) s = report_differences(&c, is_partial, warnings);
    if (!s && c.root) add_unknown_ones(&c, warnings);
    json_decref(c.root);
    text_free(&c.differences);
    return s;
}

/* ---- other data than in the training ---- */

/* What stands at another place in the data of a run than in those of the checkpoint whose weights it starts
 * from (model.init_from). Weights are taken by position: of other columns, categories or classes they are used without
 * a failure, which may be intended. */

/* Adds "[what] [index] was ... and is ... now". */
static void add_position(const char *what, size_t index, const char *before, const char *now, struct text *out) {
    text_printf(out, "%s%s %zu was '", out->length ? ", " : "", what, index);
    text_add_value(out, before, TEXT_MAX_NAME);
    text_add(out, "' in its training and is '");
    text_add_value(out, now, TEXT_MAX_NAME);
    text_add(out, "' now");
}

/* The first position with another text is a difference; the end of the shorter list is not. */
static void compare_texts(const char *what, const struct string_list *before, const struct string_list *now,
                          struct text *out) {
    for (size_t i = 0; i < before->count && i < now->count; i++) {
        if (strcasecmp(before->items[i], now->items[i]) == 0) continue;
        add_position(what, i, before->items[i], now->items[i], out);
        return;
    }
}

static struct string_list names_of_inputs(struct arena *arena, const struct column_list *columns) {
    struct string_list names = {.items = arena_alloc(arena, (columns->count + 1) * sizeof *names.items)};
    for (size_t i = 0; i < columns->count; i++)
        if (columns->items[i].role == COLUMN_INPUT) names.items[names.count++] = columns->items[i].name;
    return names;
}

static void compare_categories(struct arena *arena, const struct preparation *before, const struct preparation *now,
                               struct text *out) {
    for (size_t i = 0; before && now && i < before->count && i < now->count; i++) {
        const struct prepared_column *old = &before->items[i], *new = &now->items[i];
        if (strcmp(old->name, new->name) != 0) return;
        SCOPED_TEXT what = {0};
        text_add(&what, "category of '");
        text_add_value(&what, new->name, TEXT_MAX_NAME);
        text_add(&what, "'");
        compare_texts(arena_copy(arena, text_string(&what)), &old->categories, &new->categories, out);
    }
}

static void compare_inputs(struct arena *arena, const struct column_list *before, const struct dataset *dataset,
                           struct text *out) {
    struct column_list now = dataset_columns(dataset);
    struct string_list inputs = names_of_inputs(arena, before), inputs_now = names_of_inputs(arena, &now);
    compare_texts("input", &inputs, &inputs_now, out);
}

static void compare_labels(const struct string_list *before, const struct dataset *dataset, struct text *out) {
    struct string_list now = dataset_labels(dataset);
    compare_texts("class", before, &now, out);
}

static status compare_all(struct arena *arena, struct checkpoint *checkpoint, const struct dataset *dataset,
                          struct text *out) {
    struct column_list columns;
    struct string_list labels;
    struct preparation *preparation;
    TRY(column_names_read(arena, checkpoint, &columns));
    TRY(preparation_read(arena, checkpoint, &preparation));
    TRY(labels_load(arena, checkpoint, &labels));
    compare_inputs(arena, &columns, dataset, out);
    compare_categories(arena, preparation, dataset_preparation(dataset), out);
    compare_labels(&labels, dataset, out);
    return OK;
}

static status start_data_compare(struct checkpoint *checkpoint, const struct dataset *dataset, struct text *out) {
    SCOPED_ARENA arena = arena_create();
    return compare_all(arena, checkpoint, dataset, out);
}

static void start_data_compare_texts(const char *columns, const char *labels, const struct dataset *dataset,
                                     struct text *out) {
    SCOPED_ARENA arena = arena_create();
    struct column_list before;
    struct string_list labels_before;
    status s = columns ? column_names_parse(arena, columns, &before) : OK;
    if (columns && !s) compare_inputs(arena, &before, dataset, out);
    status_free(s);
    s = labels ? labels_read(arena, labels, &labels_before) : OK;
    if (labels && !s) compare_labels(&labels_before, dataset, out);
    status_free(s);
}

/* ---- loading ---- */

static void add_warning(const struct text *differences, struct text *report) {
    if (differences->length) text_printf(report, "; warning: weights are taken by position, but %s", differences->data);
}

/* Adds a warning to the report. */
static status compare_data(struct checkpoint *checkpoint, const struct dataset *dataset, struct text *report) {
    SCOPED_TEXT differences = {0};
    if (dataset) TRY(start_data_compare(checkpoint, dataset, &differences));
    add_warning(&differences, report);
    return OK;
}

static status from_checkpoint(struct model *model, const char *path, const struct dataset *dataset,
                              struct text *report) {
    SCOPED_CHECKPOINT checkpoint = NULL;
    SCOPED_TEXT warning = {0};
    SCOPED_STRING found = NULL;
    TRY(weights_open_start(path, &checkpoint, &found));
    TRY(compare_data(checkpoint, dataset, &warning));
    TRY(weights_load(model, checkpoint, false));
    if (found || warning.length) text_printf(report, "%s%s", found ? found : path, text_string(&warning));
    return OK;
}

/* Fills [names] (model->params.count) with the parameters of the layers that compute matrix products, each once, though
 * layers may share it; returns their number. */
static size_t find_products(const struct model *model, const char **names, struct arena *arena) {
    size_t count = 0;
    bool *is_found = arena_alloc(arena, model->params.count + 1);
    for (size_t i = 0; i < model->layer_count; i++) {
        const struct layer *layer = &model->layers[i];
        for (size_t p = 0; layer->type->multiply_adds && p < layer->param_count; p++) {
            size_t param = layer->first_param + p;
            if (!is_found[param]) names[count++] = model->params.items[param].name;
            is_found[param] = true;
        }
    }
    return count;
}

/* The buffers of a model but the states of rows, which a run begins with zeros. */
static const struct params *loaded_buffers(const struct params *buffers, struct arena *arena) {
    struct params *loaded = arena_alloc(arena, sizeof *loaded);
    *loaded = *buffers;
    loaded->items = arena_alloc(arena, (buffers->count + 1) * sizeof *loaded->items);
    loaded->count = 0;
    for (size_t i = 0; i < buffers->count; i++)
        if (!loading_is_carried_state(buffers->items[i].name)) loaded->items[loaded->count++] = buffers->items[i];
    return loaded;
}

/* A tied weight has a name in each layer that uses it. */
void init_from_target(const struct model *model, struct arena *arena, struct safetensors_target *out) {
    struct safetensors_alias *aliases = arena_alloc(arena, (model->layer_count + 1) * sizeof *aliases);
    const struct params **sets = arena_alloc(arena, 2 * sizeof *sets);
    const char **products = arena_alloc(arena, (model->params.count + 1) * sizeof *products);
    sets[0] = &model->params;
    sets[1] = loaded_buffers(&model->buffers, arena);
    *out = (struct safetensors_target){.sets = sets, .set_count = 2, .aliases = aliases, .products = products};
    for (size_t i = 0; i < model->layer_count; i++)
        if (model->layers[i].tied_count)
            aliases[out->alias_count++] =
                (struct safetensors_alias){arena_printf(arena, "%s.weight", model->layers[i].name),
                                           model->params.items[model->layers[i].tied].name};
    out->product_count = find_products(model, products, arena);
}

static status from_tensors(struct model *model, const struct weight_source *source, const char *path, bool is_torch,
                           const struct dataset *dataset, struct text *report) {
    SCOPED_ARENA arena = arena_create();
    struct safetensors_wanted wanted[] = {{.key = "columns"}, {.key = "labels"}};
    struct safetensors_target target;
    init_from_target(model, arena, &target);
    target.wanted = wanted;
    target.wanted_count = 2;
    target.is_torch = is_torch;
    status s =
        weight_source_is_mapped(source) ? mapped_load(path, &target, source, report) : safetensors_load(path, &target);
    SCOPED_TEXT differences = {0};
    if (!s && dataset) start_data_compare_texts(wanted[0].value, wanted[1].value, dataset, &differences);
    if (differences.length && !report->length) text_add(report, path);
    add_warning(&differences, report);
    for (size_t i = 0; i < 2; i++) free(wanted[i].value);
    return s;
}

static bool ends_with(const char *path, const char *extension) {
    const char *dot = strrchr(path, '.');
    return dot && strcmp(dot, extension) == 0;
}

static struct io_info info_of(const char *folder, const char *name, struct arena *arena) {
    struct io_info info = {0};
    status_free(io_stat(arena_printf(arena, "%s/%s", folder, name), &info));
    return info;
}

/* The files of weights, or the indices of several, that transformers' save_pretrained writes. */
static const char *const saved_files[] = {"model.safetensors", "model.safetensors" TENSOR_INDEX_ENDING,
                                          "pytorch_model.bin", "pytorch_model.bin" TENSOR_INDEX_ENDING};
#define SAVED_FILE_COUNT (sizeof saved_files / sizeof *saved_files)

/* A folder is one of a run, whose checkpoints have the names of the model, or one of save_pretrained. NULL: it has no
 * file of weights. */
static const char *find_file(const char *folder, struct arena *arena) {
    if (info_of(folder, "checkpoints", arena).is_folder) return NULL;
    for (size_t i = 0; i < SAVED_FILE_COUNT; i++)
        if (info_of(folder, saved_files[i], arena).is_file) return arena_printf(arena, "%s/%s", folder, saved_files[i]);
    return NULL;
}

/* Compares the model with the config.json beside a file of save_pretrained. */
static status compare_saved_config(const struct model *model, const char *path, bool is_partial, struct arena *arena,
                                   struct text *warnings) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *folder = slash ? arena_printf(arena, "%.*s", (int)(slash - path), path) : ".";
    for (size_t i = 0; i < SAVED_FILE_COUNT; i++)
        if (strcmp(name, saved_files[i]) == 0) return saved_config_compare(model, folder, is_partial, warnings);
    return OK;
}

static status from_path(struct model *model, const struct weight_source *source, const char *path, bool is_folder,
                        const struct dataset *dataset, struct text *report) {
    bool is_index = !is_folder && tensor_index_is_name(path);
    bool is_torch = !is_folder && (ends_with(path, ".pt") || ends_with(path, ".pth") || foreign_is_torch(path));
    bool is_safetensors = !is_folder && (ends_with(path, ".safetensors") || foreign_is_safetensors(path));
    bool is_checkpoint = !is_index && !is_safetensors && !is_torch;
    if (is_folder && weight_source_is_mapped(source))
        return status_new(
            STATUS_USAGE,
            "model.init_from: map, skip and partial are for files, and %s is a folder without model.safetensors or "
            "pytorch_model.bin; the weights of a run become a file with: ddptrain export %s --out weights.safetensors",
            path, path);
    if (is_checkpoint && weight_source_is_mapped(source))
        return status_usage("model.init_from: map, skip and partial are for safetensors files and those of torch.save, "
                            "and %s is neither; a checkpoint becomes one with ddptrain export",
                            path);
    TRY(model_map(model));
    status s = is_checkpoint ? from_checkpoint(model, path, dataset, report)
                             : from_tensors(model, source, path, !is_safetensors && !is_index, dataset, report);
    return status_prefix(status_first(s, model_unmap(model, true)), "model.init_from");
}

status init_from(struct model *model, const struct weight_source *source, const struct dataset *dataset,
                 struct text *report) {
    struct io_info info;
    if (!source->file) return OK;
    TRY(io_stat(source->file, &info));
    SCOPED_ARENA arena = arena_create();
    const char *file = info.is_folder ? find_file(source->file, arena) : source->file;
    SCOPED_TEXT warnings = {0};
    status s = file ? compare_saved_config(model, file, source->is_partial, arena, &warnings) : OK;
    if (!s) s = from_path(model, source, file ? file : source->file, !file, dataset, report);
    if (warnings.length && !report->length) text_add(report, file);
    text_add(report, text_string(&warnings));
    return s;
}
