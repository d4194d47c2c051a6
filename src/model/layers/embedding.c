/* embedding: token ids to learned vectors (torch.nn.Embedding), and learned positions that are added to them (the
 * `wte(i) + wpe(arange(T))` of GPT models). */
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "model/layer.h"
#include "model/layers/layers.h"

/* The keys of both. */
struct embedding_config {
    int64_t embedding_dim, num_embeddings, padding_idx;
    int mode; /* enum bag_mode; embedding_bag only */
};

/* [vectors_doc]: what the vectors are, [padding_min] and [padding_doc]: what padding_idx may be and means. */
#define EMBEDDING_ROWS(vectors_doc, padding_min, padding_doc)                                                          \
    SCHEMA_ROW(INT, struct embedding_config, embedding_dim, .flags = SCHEMA_REQUIRED, .min = 1, .max = 1 << 24,        \
               .doc = "Elements of a vector."),                                                                        \
        SCHEMA_ROW(INT, struct embedding_config, num_embeddings, .fallback = "null", .min = 1, .max = 1 << 30,         \
                   .doc =                                                                                              \
                       "Number of vectors" vectors_doc                                                                 \
                       "; null: the dataset's vocabulary, or what `check` prints of columns with encoding: embedding " \
                       "and of sentences, which is the same in all folds unless sentences have no tokenizer."),        \
        SCHEMA_ROW(INT, struct embedding_config, padding_idx, .fallback = "null", .min = padding_min, .max = 1 << 30,  \
                   .doc = padding_doc)

struct positional_config {
    int64_t num_embeddings;
};

static const struct schema_row embedding_rows[] = {
    EMBEDDING_ROWS(
        ", one for each token from 0 on", 0,
        "The token that fills rows up behind their last real token: its vector starts at 0 and does not learn, and "
        "attention, recurrent layers, means over positions, losses and metrics leave such positions out. null: none."),
    {0},
};
static const struct schema_row positional_rows[] = {
    SCHEMA_ROW(INT, struct positional_config, num_embeddings, .fallback = "null", .min = 1, .max = 1 << 30,
               .doc = "Number of positions; null: the length of the input."),
    {0},
};

static const struct schema embedding_schema =
    SCHEMA("model.layers.embedding", struct embedding_config, .rows = embedding_rows, .shorthand = "embedding_dim");
static const struct schema positional_schema =
    SCHEMA("model.layers.positional_embedding", struct positional_config, .rows = positional_rows);

static size_t width(const struct layer *layer) { return (size_t)layer->out.size[layer->out.dims - 1]; }

static void declare(const struct layer *layer, struct planning *planning, int64_t count) {
    int64_t shape[2] = {count, (int64_t)width(layer)};
    layer_declare(layer, planning, "weight", 2, shape);
}

static int64_t padding_of(const struct layer *layer) {
    return ((const struct embedding_config *)layer->config)->padding_idx;
}

static bool has_padding(const struct layer *layer) { return padding_of(layer) != SCHEMA_NO_INT; }

/* Draws all from normal(0, 1), and sets that of the token [padding] to 0; -1: none. */
static void embedding_draw(const struct layer *layer, const struct params *params, struct rng *rng, int64_t padding) {
    float *drawn = params_drawn(params, layer->first_param);
    rng_normal(rng, drawn, params->items[layer->first_param].count, 0, 1);
    if (padding >= 0 && drawn) memset(drawn + (size_t)padding * width(layer), 0, width(layer) * sizeof *drawn);
}

static void embedding_init(const struct layer *layer, const struct params *params, struct rng *rng) {
    embedding_draw(layer, params, rng, has_padding(layer) ? padding_of(layer) : -1);
}

static void positional_init(const struct layer *layer, const struct params *params, struct rng *rng) {
    embedding_draw(layer, params, rng, -1);
}

/* The number of vectors. */
static int64_t embedding_count(const struct layer *layer) {
    const struct embedding_config *c = layer->config;
    if (c->num_embeddings != SCHEMA_NO_INT) return c->num_embeddings;
    return layer->in.is_tokens ? layer->in.vocabulary : layer->in.tokens;
}

#define MAX_VALUE_TOKENS (1 << 24) /* 2^24 + 1 is 2^24 as a float32 */

/* They must be enough for the vocabulary of the input, and different as its values. */
static status embedding_check_count(const struct layer *layer) {
    if (!layer->in.is_tokens && embedding_count(layer) > MAX_VALUE_TOKENS)
        return status_usage("num_embeddings is %lld, but the input has values, which are float32: of whole numbers "
                            "above %d some become others. More tokens need a dataset of tokens (docs/text.md)",
                            (long long)embedding_count(layer), MAX_VALUE_TOKENS);
    if (embedding_count(layer) >= layer->in.vocabulary) return OK;
    return status_usage("num_embeddings is %lld, but the dataset's vocabulary has %lld tokens",
                        (long long)embedding_count(layer), (long long)layer->in.vocabulary);
}

/* The input must be tokens of the dataset, or its values with num_embeddings. */
static status embedding_check_input(const struct layer *layer) {
    const struct embedding_config *c = layer->config;
    if (layer->in.is_tokens) return OK;
    if (!layer->in.input)
        return status_usage("its input must be tokens of the dataset, but it is the output of a layer");
    if (c->num_embeddings == SCHEMA_NO_INT && layer->in.tokens == 0)
        return status_new(
            STATUS_USAGE,
            "its input is not text, a file of tokens, or columns of sentences or with encoding: embedding alone, so "
            "num_embeddings is needed: the dataset's values are then tokens from 0 to num_embeddings - 1");
    return OK;
}

static status embedding_plan(struct layer *layer, struct planning *planning) {
    const struct embedding_config *c = layer->config;
    TRY(embedding_check_input(layer));
    int64_t count = embedding_count(layer);
    TRY(embedding_check_count(layer));
    if (layer->in.dims >= MAX_DIMS) return status_usage("its input has too many dimensions");
    if (has_padding(layer) && c->padding_idx >= count)
        return status_usage("padding_idx is %lld, but the tokens are 0 to %lld", (long long)c->padding_idx,
                            (long long)count - 1);
    if (has_padding(layer) && layer->in.dims != 1)
        return status_usage("padding_idx needs rows of one dimension, (positions)");
    layer->out = (struct shape){.dims = layer->in.dims + 1};
    for (int d = 0; d < layer->in.dims; d++) layer->out.size[d] = layer->in.size[d];
    layer->out.size[layer->in.dims] = c->embedding_dim;
    if (has_padding(layer) && !layer->cached_positions) layer->out.lengths = ++*planning->lengths;
    declare(layer, planning, count);
    return OK;
}

static size_t vocabulary(const struct layer *layer, const struct params *params) {
    return (size_t)params->items[layer->first_param].shape[0];
}

/* An input of values must be tokens. [row]: the row of the dataset. */
static status embedding_check_values(const struct layer *layer, const struct params *params, const float *row) {
    size_t first = layer->in.input - 1, count = vocabulary(layer, params);
    for (size_t i = first; i < first + layer->in_size; i++) {
        if (row[i] >= 0 && row[i] < (float)count && row[i] == floorf(row[i])) continue;
        return status_new(
            STATUS_DATA,
            "value %zu is %g, but %s takes tokens, whole numbers from 0 to %zu (num_embeddings), that are not scaled%s",
            i, (double)row[i], layer->path, count - 1,
            row[i] == -1 ? "; an unknown category of a column with encoding: ordinal is -1, with encoding: embedding 0"
                         : "");
    }
    return OK;
}

static status embedding_check_row(const struct layer *layer, const struct params *params, const float *row) {
    TRY(embedding_check_values(layer, params, row));
    size_t first = layer->in.input - 1, padding = 0;
    for (size_t i = first; has_padding(layer) && i < first + layer->in_size; i++)
        padding += row[i] == (float)padding_of(layer);
    if (padding == layer->in_size)
        return status_data("all tokens of %s are padding (padding_idx: %lld); remove the row", layer->path,
                           (long long)padding_of(layer));
    return OK;
}

/* layer->runtime: the gradient of padding_idx, and the tokens (batch, positions) of an input of values. */
static status embedding_alloc(struct layer *layer, struct device *device, size_t batch) {
    size_t bytes = params_padded(width(layer)) * sizeof(float);
    if (!layer->in.is_tokens) bytes += batch * layer->in_size * sizeof(int32_t);
    if (layer->in.is_tokens && !has_padding(layer)) return OK;
    return device_alloc(device, bytes, "an embedding", &layer->runtime);
}

static void embedding_release(struct layer *layer, struct device *device) { device_free(device, layer->runtime); }

static int32_t *tokens_of(const struct layer *layer) {
    return (int32_t *)(void *)((float *)layer->runtime + params_padded(width(layer)));
}

/* The tokens (rows, positions) of a pass: x, or x converted into [converted] if it has values. */
static const int32_t *embedding_tokens(const struct layer *layer, const struct pass *pass, const float *x,
                                       int32_t *converted) {
    if (layer->in.is_tokens) return (const int32_t *)(const void *)x;
    pass->ops->sequence->to_tokens(pass->device, x, converted, pass->rows * layer->in_size,
                                   vocabulary(layer, pass->params));
    return converted;
}

static void embedding_forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    const struct sequence_ops *ops = pass->ops->sequence;
    size_t count = pass->rows * layer->in_size, size = vocabulary(layer, pass->params);
    const int32_t *tokens = embedding_tokens(layer, pass, floats(o.x), tokens_of(layer));
    if (layer->out.lengths)
        ops->padding_lengths(pass->device, tokens, (int32_t)padding_of(layer), pass_lengths(pass, &layer->out),
                             pass->rows, layer->in_size);
    ops->embedding_forward(pass->device, tokens, params_value(pass->params, layer->first_param), floats(o.y), count,
                           size, width(layer));
}

/* Tokens have no gradient. */
static void embedding_backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    const int32_t *tokens = layer->in.is_tokens ? (const int32_t *)(const void *)floats(o.x) : tokens_of(layer);
    float *gradient = params_gradient(pass->params, layer->first_param);
    float *padding = gradient + (has_padding(layer) ? (size_t)padding_of(layer) * width(layer) : 0);
    if (has_padding(layer)) pass->ops->copy(pass->device, F32(padding), F32(layer->runtime), width(layer));
    pass->ops->sequence->embedding_backward(pass->device, tokens, floats(o.dy), gradient, pass->rows * layer->in_size,
                                            vocabulary(layer, pass->params), width(layer));
    if (has_padding(layer)) pass->ops->copy(pass->device, F32(layer->runtime), F32(padding), width(layer));
}

static status positional_plan(struct layer *layer, struct planning *planning) {
    const struct positional_config *c = layer->config;
    if (layer->in.dims != 2)
        return status_usage("its input must be (positions, features), but is %s", shape_text(&layer->in).s);
    int64_t positions = layer->cached_positions ? (int64_t)layer->cached_positions : layer->in.size[0];
    int64_t count = c->num_embeddings == SCHEMA_NO_INT ? positions : c->num_embeddings;
    if (count < positions)
        return status_usage("num_embeddings is %lld, but the input has %lld positions", (long long)count,
                            (long long)positions);
    layer->out = layer->in;
    declare(layer, planning, count);
    return OK;
}

/* y[t] = x[t] + weight[t] for t < T: the first T rows of weight are added to each row of the batch; with
 * cached_positions the rows are positions */
static void positional_forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    const float *weight = params_value(pass->params, layer->first_param);
    size_t rows = layer->cached_positions ? 1 : pass->rows, tokens = pass->rows / rows;
    if (layer->cached_positions) weight += pass->position * layer->in_size;
    pass->ops->sequence->add_row(pass->device, floats(o.x), weight, floats(o.y), rows, tokens * layer->in_size);
}

static void positional_backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    pass->ops->sequence->sum_rows(pass->device, floats(o.dy), params_gradient(pass->params, layer->first_param),
                                  pass->rows, layer->in_size);
    if (o.dx) pass->ops->copy(pass->device, o.dy, o.dx, pass->rows * layer->in_size);
}

static int32_t padding_token(const struct layer *layer) { return has_padding(layer) ? (int32_t)padding_of(layer) : -1; }

static void embedding_facts(const struct layer *layer, struct layer_facts *to) {
    to->reads_tokens = true;
    to->unscaled = 1;
    to->padding = padding_token(layer);
}

static const char *tokens_onnx(const struct onnx_call *c) {
    return c->layer->in.is_tokens ? c->x : onnx_cast(c->g, c->x, ONNX_INT64);
}

/* The positions up to the last one that is not the padding, at least 1. [tokens]: int64 (batch, positions) */
static const char *lengths_onnx(const struct onnx_call *c, const char *tokens) {
    struct onnx_graph *g = c->g;
    const int64_t zero = 0, one = 1, padding = padding_token(c->layer);
    const char *is_padding = onnx_node2(g, "Equal", tokens, onnx_numbers(g, &padding, 1));
    const char *numbers = onnx_range(g, 1, c->layer->in.size[0]);
    const char *ends = onnx_where(g, is_padding, onnx_numbers(g, &zero, 1), numbers), *least = onnx_numbers(g, &one, 1);
    return onnx_node2(g, "Max", onnx_reduce(g, "ReduceMax", ends), least);
}

static const char *embedding_onnx(const struct onnx_call *c) {
    const char *tokens = tokens_onnx(c);
    size_t lengths = c->layer->out.lengths;
    if (onnx_are_lengths_read(c->g, lengths)) onnx_set_lengths(c->g, lengths, lengths_onnx(c, tokens));
    return onnx_node2(c->g, "Gather", onnx_param(c->g, c->layer->first_param), tokens);
}

static void set_length_c(const struct c_call *c) {
    size_t lengths = c->layer->out.lengths;
    const char *function = c->layer->in.is_tokens ? "length_of_tokens" : "length_of_values";
    if (!lengths || !c->c->m->reads_lengths[lengths - 1]) return;
    text_printf(&c->c->body, "    const size_t %s = %s(%s, %zu, %d);\n", c_length(c, lengths, 0), function, c->x,
                c->layer->in_size, (int)padding_token(c->layer));
}

static void embedding_c(const struct c_call *c) {
    const struct param *param = &c->c->m->model->params.items[c->layer->first_param];
    const char *function = c->layer->in.is_tokens ? "embedding" : "embedding_of_values";
    text_printf(&c->c->body, "    if (%s(%s, %s, %s, %zu, %lld, %lld)) return 2;\n", function, c->x,
                c_plain(c, c->layer->first_param), c->y, c->layer->in_size, (long long)param->shape[0],
                (long long)param->shape[1]);
    set_length_c(c);
}

static const char *positional_onnx(const struct onnx_call *c) {
    const int64_t *shape = c->layer->in.size; /* the first of the weight's rows */
    size_t weight = c->layer->first_param;
    bool are_all = c->g->m->model->params.items[weight].shape[0] == shape[0];
    const char *rows =
        are_all ? onnx_param(c->g, weight) : onnx_tensor(c->g, NULL, ONNX_FLOAT, c->g->m->params[weight], 2, shape);
    return onnx_node2(c->g, "Add", c->x, rows);
}

static void positional_c(const struct c_call *c) {
    text_printf(&c->c->body, "    add(%s, %s, %s, %zu);\n", c->x, c_plain(c, c->layer->first_param), c->y,
                c->layer->in_size);
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("layer", "PositionEmbedding pos_emb positional_encoding", "positional_embedding"),
    VALUE_ALIAS("layer", "emb", "embedding"),
    KEY_ALIAS("layer.embedding_bag", "dim output_dim embed_dim embedding_size size d_model features out",
              ".embedding_dim"),
    KEY_ALIAS("layer.embedding", "dim output_dim embed_dim embedding_size size d_model features out", ".embedding_dim"),
    KEY_ALIAS("layer.embedding", "vocab_size input_dim vocabulary num_tokens n_vocab vocab", ".num_embeddings"),
    KEY_ALIAS("layer.embedding", "pad_token_id padding pad_idx pad_id padding_index", ".padding_idx"),
    KEY_ALIAS_NOTE("layer.embedding", "mask_zero", ".padding_idx", "Write 'padding_idx: 0'"),
    KEY_ALIAS("layer.positional_embedding", "max_len max_length block_size positions length context_length",
              ".num_embeddings"),
    CALL_ALIAS("layer", "embedding", "num_embeddings embedding_dim"),
    {0},
};

const struct layer_type layer_embedding = {
    .aliases = aliases,
    .variant = {"embedding", &embedding_schema, "A learned vector for each token (torch.nn.Embedding)."},
    .takes_tokens = true,
    .ignores = IGNORES_Y,
    .is_by_position = true,
    .check_row = embedding_check_row,
    .plan = embedding_plan,
    .alloc = embedding_alloc,
    .release = embedding_release,
    .init = embedding_init,
    .forward = embedding_forward,
    .backward = embedding_backward,
    .facts = embedding_facts,
    .onnx = embedding_onnx,
    .c = embedding_c,
    .pytorch = "nn.Embedding({rows}, {embedding_dim}{,padding_idx})",
    .pytorch_lengths = "token_lengths({x}, {padding_idx})",
};
const struct layer_type layer_positional_embedding = {
    .variant = {"positional_embedding", &positional_schema,
                "Adds a learned vector to each position: x + weight[0:T], the weight a torch.nn.Embedding."},
    .ignores = IGNORES_X_AND_Y,
    .is_by_position = true,
    .limits_positions = true,
    .plan = positional_plan,
    .init = positional_init,
    .forward = positional_forward,
    .backward = positional_backward,
    .onnx = positional_onnx,
    .c = positional_c,
    .pytorch = "Positions({rows}, {columns})",
};

/* ---- embedding_bag ---- */

/* embedding_bag: the mean, sum or maximum of the learned vectors of a row's tokens (torch.nn.EmbeddingBag of rows of
 * the same length). */

static const char *const modes[] = {"mean", "sum", "max", NULL};

static const struct schema_row rows[] = {
    EMBEDDING_ROWS("", -(1 << 30),
                   "A token that is left out of the mean, sum or maximum, whose vector is 0 at first; below 0: counted "
                   "from the end; null: none."),
    SCHEMA_ROW(CHOICE, struct embedding_config, mode, .fallback = "mean", .choices = modes,
               .doc = "How the vectors of a row's tokens become one."),
    {0},
};
static const struct schema schema =
    SCHEMA("model.layers.embedding_bag", struct embedding_config, .rows = rows, .shorthand = "embedding_dim");

static const struct embedding_config *config_of(const struct layer *layer) { return layer->config; }
static size_t bag_width(const struct layer *layer) { return (size_t)config_of(layer)->embedding_dim; }

/* The token of padding_idx; -1: none. */
static int32_t bag_padding_of(const struct layer *layer) {
    int64_t index = config_of(layer)->padding_idx;
    return index == SCHEMA_NO_INT ? -1 : (int32_t)(index < 0 ? index + embedding_count(layer) : index);
}

static status plan(struct layer *layer, struct planning *planning) {
    const struct embedding_config *c = config_of(layer);
    int64_t shape[2] = {embedding_count(layer), c->embedding_dim};
    TRY(embedding_check_input(layer));
    if (layer->in.dims != 1) return status_usage("its input must be rows of one dimension, (tokens)");
    TRY(embedding_check_count(layer));
    if (c->padding_idx != SCHEMA_NO_INT && (c->padding_idx >= shape[0] || c->padding_idx < -shape[0]))
        return status_usage("padding_idx must be from %lld to %lld, got %lld", -(long long)shape[0],
                            (long long)shape[0] - 1, (long long)c->padding_idx);
    layer->out = (struct shape){.dims = 1, .size = {c->embedding_dim}};
    layer->saved_size = c->mode == BAG_MAX ? bag_width(layer) : 0;
    layer_declare(layer, planning, "weight", 2, shape);
    return OK;
}

/* layer->runtime: the tokens (batch, tokens) of an input of values. */
static status alloc(struct layer *layer, struct device *device, size_t batch) {
    if (layer->in.is_tokens) return OK;
    return device_alloc(device, batch * layer->in_size * sizeof(int32_t), "an embedding_bag", &layer->runtime);
}

static void release(struct layer *layer, struct device *device) { device_free(device, layer->runtime); }

static void init(const struct layer *layer, const struct params *params, struct rng *rng) {
    embedding_draw(layer, params, rng, bag_padding_of(layer));
}

static struct embedding_bag bag_of(const struct layer *layer, const struct pass *pass) {
    return (struct embedding_bag){.mode = (enum bag_mode)config_of(layer)->mode,
                                  .rows = pass->rows,
                                  .tokens = layer->in_size,
                                  .vocabulary = (size_t)embedding_count(layer),
                                  .size = bag_width(layer),
                                  .padding = bag_padding_of(layer)};
}

static void forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    struct embedding_bag bag = bag_of(layer, pass);
    pass->ops->sequence->embedding_bag_forward(
        pass->device, &bag, embedding_tokens(layer, pass, floats(o.x), layer->runtime),
        params_value(pass->params, layer->first_param), floats(o.y), (int32_t *)(void *)layer->saved);
}

/* Tokens have no gradient. */
static void backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    struct embedding_bag bag = bag_of(layer, pass);
    const int32_t *tokens = layer->in.is_tokens ? (const int32_t *)(const void *)floats(o.x) : layer->runtime;
    pass->ops->sequence->embedding_bag_backward(pass->device, &bag, tokens, (const int32_t *)(const void *)layer->saved,
                                                floats(o.dy), params_gradient(pass->params, layer->first_param));
}

static void bag_facts(const struct layer *layer, struct layer_facts *to) {
    to->reads_tokens = true;
    to->unscaled = 1;
    to->padding = bag_padding_of(layer);
}

/* The number of tokens that are not the padding, as float (batch, 1) */
static const char *counted_tokens(struct onnx_graph *g, const char *is_padding) {
    const char *one = onnx_scalar(g, 1);
    return onnx_reduce(g, "ReduceSum", onnx_where(g, is_padding, onnx_scalar(g, 0), one));
}

/* Vectors of the padding count as 0, or as below all others; a bag without tokens is 0. */
static const char *bag_onnx(const struct onnx_call *c) {
    static const char *const reductions[] = {
        [BAG_MEAN] = "ReduceMean", [BAG_SUM] = "ReduceSum", [BAG_MAX] = "ReduceMax"};
    struct onnx_graph *g = c->g;
    enum bag_mode mode = (enum bag_mode)config_of(c->layer)->mode;
    const int64_t padding = bag_padding_of(c->layer), axis = 2;
    const char *tokens = tokens_onnx(c), *reduction = reductions[mode];
    const char *x = onnx_node2(g, "Gather", onnx_param(g, c->layer->first_param), tokens);
    if (padding < 0) return onnx_reduce(g, reduction, x);
    const char *is_padding = onnx_node2(g, "Equal", tokens, onnx_numbers(g, &padding, 1));
    is_padding = onnx_node2(g, "Unsqueeze", is_padding, onnx_numbers(g, &axis, 1));
    x = onnx_where(g, is_padding, onnx_scalar(g, mode == BAG_MAX ? -INFINITY : 0), x);
    if (mode == BAG_SUM) return onnx_reduce(g, reduction, x);
    const char *count = counted_tokens(g, is_padding);
    if (mode == BAG_MEAN) {
        const char *divisor = onnx_node2(g, "Max", count, onnx_scalar(g, 1));
        return onnx_node2(g, "Div", onnx_reduce(g, "ReduceSum", x), divisor);
    }
    const char *zero = onnx_scalar(g, 0), *maximum = onnx_reduce(g, reduction, x);
    return onnx_where(g, onnx_node2(g, "Equal", count, zero), zero, maximum);
}

static void bag_c(const struct c_call *c) {
    const struct param *param = &c->c->m->model->params.items[c->layer->first_param];
    bool are_tokens = c->layer->in.is_tokens;
    text_printf(&c->c->body, "    if (embedding_bag(%s, %s, %s, %s, %zu, %lld, %lld, %d, %d)) return 2;\n",
                are_tokens ? c->x : "NULL", are_tokens ? "NULL" : c->x, c_plain(c, c->layer->first_param), c->y,
                c->layer->in_size, (long long)param->shape[0], (long long)param->shape[1],
                (int)bag_padding_of(c->layer), (int)config_of(c->layer)->mode);
}

const struct layer_type layer_embedding_bag = {
    .variant = {"embedding_bag", &schema,
                "The mean, sum or maximum of the learned vectors of a row's tokens (torch.nn.EmbeddingBag)."},
    .takes_tokens = true,
    .ignores = IGNORES_Y,
    .check_row = embedding_check_values,
    .plan = plan,
    .alloc = alloc,
    .release = release,
    .init = init,
    .forward = forward,
    .backward = backward,
    .facts = bag_facts,
    .onnx = bag_onnx,
    .c = bag_c,
    .pytorch = "nn.EmbeddingBag({rows}, {embedding_dim}{,padding_idx}{,mode})",
};
