/* rotary_embedding: rotary position embedding (Su et al., "RoFormer", 2021) of the queries and keys before an
 * attention, as in Llama (half-split pairs) and in the paper (interleaved pairs). */
#include <math.h>

#include "base/text.h"
#include "device/sequence.h"
#include "model/layers/layers.h"

struct rotary_config {
    int64_t heads, head_size;
    double base;
    bool is_interleaved;
};

static const struct schema_row rows[] = {
    SCHEMA_ROW(INT, struct rotary_config, head_size, .flags = SCHEMA_REQUIRED, .min = 2, .max = 1 << 16,
               .doc = "Features of a head; an even number."),
    SCHEMA_ROW(INT, struct rotary_config, heads, .fallback = "null", .min = 1, .max = 1 << 16,
               .doc = "Heads that are rotated, from the first feature on: those of queries and of keys. The other "
                      "features (the values) do not change. null: all."),
    SCHEMA_ROW(REAL, struct rotary_config, base, .fallback = "10000", .min = 1, .max = INFINITY,
               .doc = "Pair i of a head is rotated by position * base^(-2i / head_size) (rope_theta of Hugging Face)."),
    SCHEMA_KEY(BOOL, "interleaved", struct rotary_config, is_interleaved, .fallback = "false",
               .doc = "false: a pair is (i, i + head_size / 2), as in Hugging Face's Llama; true: (2i, 2i + 1), as in "
                      "the paper."),
    {0},
};
static const struct schema schema =
    SCHEMA("model.layers.rotary_embedding", struct rotary_config, .rows = rows, .shorthand = "head_size");

static const struct rotary_config *config_of(const struct layer *layer) { return layer->config; }

static size_t heads_of(const struct layer *layer) {
    const struct rotary_config *c = config_of(layer);
    return (size_t)(c->heads == SCHEMA_NO_INT ? layer->in.size[1] / c->head_size : c->heads);
}

static struct rotation rotation_of(const struct layer *layer, size_t passed_rows, bool is_inverse) {
    return (struct rotation){.rows = passed_rows,
                             .tokens = (size_t)layer->in.size[0],
                             .features = (size_t)layer->in.size[1],
                             .heads = heads_of(layer),
                             .head_size = (size_t)config_of(layer)->head_size,
                             .is_interleaved = config_of(layer)->is_interleaved,
                             .is_inverse = is_inverse};
}

static status plan(struct layer *layer, struct planning *planning) {
    const struct rotary_config *c = config_of(layer);
    if (layer->in.dims != 2)
        return status_usage("its input must be (positions, features), but is %s", shape_text(&layer->in).s);
    if (c->head_size % 2 != 0) return status_usage("head_size must be even, got %lld", (long long)c->head_size);
    if (c->heads == SCHEMA_NO_INT && layer->in.size[1] % c->head_size != 0)
        return status_usage("its input is %s: head_size (%lld) must divide the features", shape_text(&layer->in).s,
                            (long long)c->head_size);
    if (c->heads != SCHEMA_NO_INT && c->heads * c->head_size > layer->in.size[1])
        return status_usage("its input is %s: it has fewer than %lld heads of %lld features", shape_text(&layer->in).s,
                            (long long)c->heads, (long long)c->head_size);
    layer->out = layer->in;
    return OK;
}

/* layer->runtime: (positions, head_size / 2, 2) cosines and sines, in device memory. */
static status create_table(struct layer *layer, struct device *device, size_t batch) {
    const struct rotary_config *c = config_of(layer);
    size_t tokens = layer->cached_positions ? layer->cached_positions : (size_t)layer->in.size[0];
    size_t pairs = (size_t)c->head_size / 2;
    float *table;
    TRY(device_alloc(device, tokens * pairs * 2 * sizeof(float), "the angles of a rotary embedding", &layer->runtime));
    TRY(device_map(device, &layer->runtime));
    table = layer->runtime;
    for (size_t t = 0; t < tokens; t++)
        for (size_t i = 0; i < pairs; i++) {
            double angle = rotation_angle(c->base, (size_t)c->head_size, t, i);
            *table++ = (float)cos(angle);
            *table++ = (float)sin(angle);
        }
    return device_unmap(device, &layer->runtime, true);
}

static void release_table(struct layer *layer, struct device *device) {
    device_free(device, layer->runtime);
    layer->runtime = NULL;
}

static void forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    struct rotation r = rotation_of(layer, pass->rows, false);
    const float *table = layer->runtime;
    if (layer->cached_positions) {
        table += pass->position * r.head_size;
        r.rows = 1, r.tokens = pass->rows;
    }
    pass->ops->sequence->rotate(pass->device, &r, table, floats(o.x), floats(o.y));
}

static void backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    struct rotation r = rotation_of(layer, pass->rows, true);
    if (o.dx) pass->ops->sequence->rotate(pass->device, &r, layer->runtime, floats(o.dy), floats(o.dx));
}

static void facts(const struct layer *layer, struct layer_facts *to) {
    to->rotation_base = config_of(layer)->base;
    to->head_size = (size_t)config_of(layer)->head_size;
}

/* y = x * cosines + (the other one of its pair) * sines, both (tokens, features); the sines of the first of a pair are
 * negative; features that are not rotated have cosine 1 and sine 0 */
static const char *write_onnx(const struct onnx_call *c) {
    struct onnx_graph *g = c->g;
    const int64_t *shape = c->layer->in.size;
    size_t size = (size_t)config_of(c->layer)->head_size, rotated = heads_of(c->layer) * size,
           features = (size_t)shape[1];
    bool is_interleaved = config_of(c->layer)->is_interleaved;
    float *cosines = arena_alloc(g->arena, (size_t)shape[0] * features * sizeof *cosines);
    float *sines = arena_alloc(g->arena, (size_t)shape[0] * features * sizeof *sines);
    int64_t *others = arena_alloc(g->arena, features * sizeof *others);
    for (size_t j = 0; j < features; j++) {
        size_t at = j % size, pair = is_interleaved ? at / 2 : at % (size / 2);
        bool is_second = is_interleaved ? at % 2 : at >= size / 2;
        size_t distance = is_interleaved ? 1 : size / 2;
        others[j] = (int64_t)(j >= rotated ? j : is_second ? j - distance : j + distance);
        for (size_t t = 0; t < (size_t)shape[0]; t++) {
            double angle = rotation_angle(config_of(c->layer)->base, size, t, pair);
            cosines[t * features + j] = j < rotated ? (float)cos(angle) : 1;
            sines[t * features + j] = j >= rotated ? 0 : is_second ? (float)sin(angle) : -(float)sin(angle);
        }
    }
    const char *other = onnx_gather(g, c->x, onnx_numbers(g, others, features), -1);
    const char *own = onnx_node2(g, "Mul", c->x, onnx_tensor(g, NULL, ONNX_FLOAT, cosines, 2, shape));
    return onnx_node2(g, "Add", own, onnx_node2(g, "Mul", other, onnx_tensor(g, NULL, ONNX_FLOAT, sines, 2, shape)));
}

static void write_c(const struct c_call *c) {
    const struct rotary_config *config = config_of(c->layer);
    size_t tokens = (size_t)c->layer->in.size[0], size = (size_t)config->head_size, count = tokens * (size / 2) * 2;
    float *angles = arena_alloc(c->c->arena, count * sizeof *angles), *to = angles;
    for (size_t t = 0; t < tokens; t++)
        for (size_t i = 0; i < size / 2; i++) {
            double angle = rotation_angle(config->base, size, t, i);
            *to++ = (float)cos(angle);
            *to++ = (float)sin(angle);
        }
    text_printf(&c->c->body, "    rotate(%s, %s, %s, %zu, %zu, %zu, %zu, %d);\n", c->x,
                c_table(c, angles, count, "cosines and sines of a rotary embedding"), c->y, tokens,
                c_last(&c->layer->in), heads_of(c->layer), size, config->is_interleaved);
}

const struct layer_type layer_rotary_embedding = {
    .variant = {"rotary_embedding", &schema,
                "Rotary position embedding of (positions, features), for the queries and keys of the attention after "
                "it (RoPE)."},
    .ignores = IGNORES_X_AND_Y,
    .is_by_position = true,
    .limits_positions = true,
    .plan = plan,
    .alloc = create_table,
    .release = release_table,
    .forward = forward,
    .backward = backward,
    .facts = facts,
    .onnx = write_onnx,
    .c = write_c,
    .pytorch = "RotaryEmbedding({head_size}{,heads}{,base}{,interleaved})",
};
