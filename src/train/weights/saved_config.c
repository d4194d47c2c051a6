/* Each key is compared with the layers that it is about: transformers' models have one value for all of them. */
#include "train/weights/saved_config.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/io.h"

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
    char *text = NULL;
    json_error_t error = {0};
    *root = NULL;
    TRY(io_read_text(path, MAX_CONFIG_BYTES, &text, &info));
    if (!info.exists) return OK;
    if (text) *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (json_is_object(*root)) return OK;
    json_decref(*root);
    *root = NULL;
    return status_new(STATUS_DATA,
                      "%s: not a JSON object%s%s; it describes the model beside it: save it again, or remove it", path,
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
    struct text is = {0}, expected = {0}, advice = {0};
    if (!json_is_number(value) || fabs(saved - own) <= TOLERANCE * fabs(saved)) return;
    text_printf(&is, "%s is %.7g", name, own);
    text_printf(&expected, "%.15g", saved);
    text_printf(&advice, "%s: %.15g", name, saved);
    add_difference(c, text_string(&is), key, text_string(&expected), text_string(&advice));
    text_free(&is);
    text_free(&expected);
    text_free(&advice);
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
    struct text is = {0};
    text_printf(&is, "the activation is `%s`", own->layer);
    add_difference(c, text_string(&is), key, saved->name, saved->layer);
    text_free(&is);
}

static void compare_rotation(struct comparison *c, const struct operation *operation) {
    const char *key;
    compare_number(c, "base", operation->rotation.base, base_keys);
    if (!find(c, rotated_part_keys, &key))
        compare_number(c, "head_size", (double)operation->rotation.head_size, head_size_keys);
}

static void compare_layer(struct comparison *c, const struct layer *layer) {
    struct operation operation = operation_of(layer);
    if (operation.has_relu) compare_activation(c, ACTIVATION_RELU);
    switch (operation.kind) {
    case OPERATION_ATTENTION_CORE:
        compare_number(c, "num_kv_heads", (double)operation.kv_heads, kv_heads_keys);
        compare_number(c, "heads", (double)operation.heads, heads_keys);
        break;
    case OPERATION_ATTENTION:
        compare_number(c, "heads", (double)operation.heads, heads_keys);
        break;
    case OPERATION_ROTATE:
        compare_rotation(c, &operation);
        break;
    case OPERATION_RMS_NORM:
        compare_number(c, "eps", operation.eps, rms_eps_keys);
        break;
    case OPERATION_LAYER_NORM:
        compare_number(c, "eps", operation.eps, layer_eps_keys);
        break;
    case OPERATION_ACTIVATION:
        compare_activation(c, operation.function);
        break;
    default:
        break;
    }
}

/* ---- what no layer has ---- */

static bool has_kind(const struct model *model, enum operation_kind kind) {
    for (size_t i = 0; i < model->layer_count; i++)
        if (operation_of(&model->layers[i]).kind == kind) return true;
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
    if (type && strcmp(type, "default") != 0 && has_kind(c->model, OPERATION_ROTATE))
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
    struct text more = {0};
    if (c->count > MAX_DIFFERENCES) text_printf(&more, "\n... and %zu more", c->count - MAX_DIFFERENCES);
    status s = OK;
    if (c->count && !is_partial) s = status_new(STATUS_USAGE, "%s%s", lines, text_string(&more));
    for (const char *line = lines; is_partial && *line;) {
        size_t length = strcspn(line, "\n");
        text_printf(warnings, "\n  warning: %.*s", (int)length, line);
        line += length + (line[length] == '\n');
    }
    text_free(&more);
    return s;
}

status saved_config_compare(const struct model *model, const char *folder, bool is_partial, struct text *warnings) {
    struct text path = {0};
    struct comparison c = {.model = model};
    text_printf(&path, "%s/config.json", folder);
    c.path = text_string(&path);
    status s = read_config(c.path, &c.root);
    for (; !s && c.root && c.layer < model->layer_count; c.layer++) compare_layer(&c, &model->layers[c.layer]);
    if (!s && c.root) s = report_differences(&c, is_partial, warnings);
    if (!s && c.root) add_unknown_ones(&c, warnings);
    json_decref(c.root);
    text_free(&c.differences);
    text_free(&path);
    return s;
}
