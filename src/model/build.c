/* Builds the model by walking over the config. */
#include "model/build.h"

#include <fnmatch.h>
#include <search.h>
#include <string.h>

#include "base/scoped.h"
#include "model/layers/layers.h"

/* Grows an arena array of [count] items by one. */
static void *build_grow(struct arena *arena, void *items, size_t count, size_t *capacity, size_t size) {
    if (count < *capacity) return items;
    size_t more = *capacity ? *capacity * 2 : 32;
    char *grown = arena_alloc(arena, more * size);
    if (count) memcpy(grown, items, count * size);
    *capacity = more;
    return grown;
}

/* ---- names of outputs, for `from:` ---- */

/* Names of outputs: which tensor a layer's `from:` means. A name is known in the list of its layer, after that layer,
 * and in the lists inside it; each copy of a repeat has its own names. */

#define INPUT_NAME "input" /* of the model */

static void collect(struct arena *arena, const struct variant_list *list, struct string_list *out, size_t *capacity);

/* The lists of layers among the keys of a composite. */
static void collect_rows(struct arena *arena, const struct schema *schema, const void *config, struct string_list *out,
                         size_t *capacity) {
    for (const struct schema_row *row = schema ? schema->rows : NULL; row && row->key; row++) {
        const void *field = (const char *)config + row->offset;
        const struct section_list *sections = field;
        if (row->type == SCHEMA_VARIANT_LIST && row->variants->at == layer_variants.at)
            collect(arena, field, out, capacity);
        if (row->type != SCHEMA_SECTION_LIST) continue;
        for (size_t i = 0; i < sections->count; i++)
            collect_rows(arena, row->section, (const char *)sections->items + i * row->section->size, out, capacity);
    }
}

static void collect_names(struct arena *arena, const struct string_list *names, struct string_list *out,
                          size_t *capacity) {
    for (size_t n = 0; names && n < names->count; n++) {
        out->items = build_grow(arena, out->items, out->count, capacity, sizeof *out->items);
        out->items[out->count++] = names->items[n];
    }
}

static const struct string_list *sources_of(const struct layer_type *type, const struct variant *variant) {
    return type->sources ? type->sources(variant->config) : NULL;
}

static void collect(struct arena *arena, const struct variant_list *list, struct string_list *out, size_t *capacity) {
    for (size_t i = 0; i < list->count; i++) {
        const struct variant *item = &list->items[i];
        const struct layer_common *common = item->common;
        const struct layer_type *type = layer_type_at((size_t)item->index);
        if (common) collect_names(arena, &common->from, out, capacity);
        collect_names(arena, sources_of(type, item), out, capacity);
        collect_rows(arena, type->variant.schema, item->config, out, capacity);
    }
}

/* All names in `from:` of [list] and the lists inside it, in [arena]. */
static struct string_list build_sources(struct arena *arena, const struct variant_list *list) {
    struct string_list out = {0};
    size_t capacity = 0;
    collect(arena, list, &out, &capacity);
    return out;
}

static bool build_is_source(const struct builder *builder, const char *name) {
    for (size_t i = 0; i < builder->sources.count; i++)
        if (strcmp(builder->sources.items[i], name) == 0) return true;
    return false;
}

/* Whether [name] means the model's only input. */
static bool is_input(const struct builder *builder, const char *name) {
    return builder->names->input_count == 0 && strcmp(name, INPUT_NAME) == 0;
}

status build_add_name(struct builder *builder, const char *name, size_t tensor, const char *layer,
                      const struct variant *variant) {
    struct scope *scope = builder->scope;
    if (is_input(builder, name) && build_is_source(builder, name))
        return status_usage("the name '" INPUT_NAME "' means the model's input in `from:`; choose another");
    for (size_t i = 0; i < scope->count; i++)
        if (strcmp(scope->items[i].name, name) == 0)
            return scope->items[i].variant
                       ? status_usage("the name '%s' is already used by another layer of this list (%s)", name,
                                      place_text(scope->items[i].variant->place).s)
                       : status_usage("the name '%s' is already used by an input of dataset.inputs", name);
    scope->items =
        build_grow(builder->model->arena, scope->items, scope->count, &scope->capacity, sizeof *scope->items);
    scope->items[scope->count++] = (struct output_name){name, tensor, layer, variant};
    return OK;
}

static status unknown_name(const struct builder *builder, const char *name) {
    size_t count = 1;
    for (const struct scope *scope = builder->scope; scope; scope = scope->outer) count += scope->count;
    struct arena *arena = builder->model->arena;
    const char **known = arena_alloc(arena, (count + 1) * sizeof *known);
    SCOPED_TEXT list = {0};
    count = 0;
    for (const struct scope *scope = builder->scope; scope; scope = scope->outer)
        for (size_t i = 0; i < scope->count; i++) known[count++] = scope->items[i].name;
    if (is_input(builder, INPUT_NAME)) known[count++] = INPUT_NAME;
    known[count] = NULL;
    for (size_t i = 0; i < count && list.length < 200; i++) text_printf(&list, "%s%s", i ? ", " : "", known[i]);
    const char *nearest = schema_nearest(name, known);
    return status_usage("no layer before this one has the name '%s'%s%s%s; known here: %s%s", name,
                        nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "",
                        text_string(&list), list.length >= 200 ? ", ..." : "");
}

static const struct output_name *find(const struct builder *builder, const char *name) {
    for (const struct scope *scope = builder->scope; scope; scope = scope->outer)
        for (size_t i = 0; i < scope->count; i++)
            if (strcmp(scope->items[i].name, name) == 0) return &scope->items[i];
    return NULL;
}

/* The tensor that [name] means here; STATUS_USAGE with the known names. */
static status build_find(const struct builder *builder, const char *name, size_t *tensor) {
    const struct output_name *found = find(builder, name);
    *tensor = found ? found->tensor : 0;
    return found || is_input(builder, name) ? OK : unknown_name(builder, name);
}

/* The layer that [name] means here; STATUS_USAGE with the known names. */
static status build_find_layer(const struct builder *builder, const char *name, const struct output_name **out) {
    *out = find(builder, name);
    if (*out && !(*out)->layer) return status_usage("'%s' is an input, which has no parameters", name);
    return *out ? OK : unknown_name(builder, name);
}

/* The first layer of a model with several inputs. */
static status needs_source(const struct builder *builder) {
    SCOPED_TEXT names = {0};
    for (size_t i = 0; i < builder->names->input_count; i++)
        text_printf(&names, "%s%s", i ? ", " : "", builder->names->inputs[i].name);
    return status_usage("the model has several inputs, so this layer needs `from:` with one of them: %s",
                        text_string(&names));
}

/* The inputs of a layer: what `from:` names or [previous], the output of the layer before. If it joins there are at
 * least two, unless it takes one: a single name is joined with [previous], which then comes first. in
 * (BUILD_MAX_INPUTS). */
static status build_inputs(const struct builder *builder, const struct string_list *from, const struct layer_type *type,
                           size_t previous, size_t *in, size_t *count) {
    size_t named = from ? from->count : 0;
    bool joins = type->joins;
    *count = 0;
    if (!joins && named > 1)
        return status_usage("from: this layer takes one output, not %zu; join them first with add, concat or multiply",
                            named);
    if (joins && !type->takes_one && named == 0)
        return status_usage("joins several outputs, so it needs `from:` with their names (one name: joined "
                            "with the output of the layer before)");
    if (named >= BUILD_MAX_INPUTS) return status_usage("from: more than %d names", BUILD_MAX_INPUTS - 1);
    if (named == 0 || (joins && named == 1)) {
        if (previous == NO_TENSOR) return needs_source(builder);
        in[(*count)++] = previous;
    }
    for (size_t i = 0; i < named; i++) TRY(status_prefix(build_find(builder, from->items[i], &in[(*count)++]), "from"));
    return OK;
}

/* Adds the inputs that the layer's own keys name. */
static status add_sources(const struct builder *builder, const struct layer_type *type, const struct variant *variant,
                          size_t *in, size_t *count) {
    const struct string_list *names = sources_of(type, variant);
    if (names && *count + names->count > BUILD_MAX_INPUTS) return status_usage("more than %d inputs", BUILD_MAX_INPUTS);
    for (size_t i = 0; names && i < names->count; i++)
        TRY(status_prefix(build_find(builder, names->items[i], &in[(*count)++]), "%s", type->sources_key));
    return OK;
}

static void mark_used(const struct layer *layer, bool *is_used) {
    for (size_t p = 0; p < layer->param_count; p++) is_used[layer->first_param + p] = true;
    for (size_t p = 0; p < layer->tied_count; p++) is_used[layer->tied + p] = true;
}

/* Finds the parameters from which no way leads to the model's output, and freezes them. */
static void find_unused(struct model *model) {
    bool *is_reached = arena_alloc(model->arena, model->tensor_count * sizeof *is_reached);
    bool *is_used = arena_alloc(model->arena, (model->params.count + 1) * sizeof *is_used);
    is_reached[model_root(model, model->output)] = true;
    for (size_t n = model->node_count; n-- > 0;) {
        const struct graph_node *node = &model->nodes[n];
        if (!is_reached[model_root(model, node->out)]) continue;
        for (size_t i = 0; i < node->in_count; i++) is_reached[model_root(model, node->in[i])] = true;
        if (node->layer) mark_used(node->layer, is_used);
    }
    for (size_t i = 0; i < model->params.count; i++) {
        struct param *p = &model->params.items[i];
        p->is_unused = !is_used[i];
        p->is_frozen |= p->is_unused;
    }
}

/* STATUS_USAGE naming the first layer whose output no layer reads, and the parameters that are not used. */
static status build_check_read(struct model *model, bool accepts_unused) {
    SCOPED_TEXT unused = {0};
    find_unused(model);
    model_add_unused(model, &unused);
    status s = OK;
    for (size_t t = 1; t < model->tensor_count && !s && !accepts_unused; t++) {
        const struct layer *layer = model->tensors[t].producer;
        if (!layer || model->tensors[t].is_read) continue;
        s = status_usage("%s: %s: no layer takes its output%s%s; dist.find_unused_parameters: true accepts this",
                         place_text(layer->place).s, layer->path,
                         unused.length ? ", so these parameters are not trained: " : "", text_string(&unused));
    }
    return s;
}

/* After parameters that are not used were frozen, too. */
static status check_trained(const struct model *model) {
    for (size_t i = 0; i < model->params.count; i++)
        if (!model->params.items[i].is_frozen) return OK;
    if (model->params.count == 0) return OK;
    return status_usage("model: every parameter is frozen or not used, so there is nothing to train");
}

/* ---- `share:` ---- */

/* `share:`: a layer uses the parameters of an earlier one, a composite those of the layers inside an earlier one. */

/* From now on, until builder->sharing is reset, layers use the parameters of those that the entry's `share:` means.
 * [name]: of the entry. *source: the entry whose keys are used. */
static status build_begin_sharing(struct builder *b, const struct variant *variant, const char *name,
                                  const struct variant **source) {
    const struct layer_common *common = variant->common;
    const struct output_name *other;
    *source = variant;
    TRY(status_prefix(build_find_layer(b, common->share, &other), "share"));
    if (other->variant->index != variant->index)
        return status_usage("share: '%s' is of the type %s, and this layer of the type %s", common->share,
                            other->variant->name, variant->name);
    if (!*name) return status_usage("share: a layer with the name '' cannot share parameters");
    if (b->sharing.own) return status_usage("share: this layer is inside one that shares its parameters already");
    b->sharing = (struct sharing){.own = name, .other = other->layer};
    if (layer_type_at((size_t)variant->index)->expand) *source = other->variant; /* the same layers */
    return OK;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const struct layer *)a)->name, ((const struct layer *)b)->name);
}

/* The layer whose parameters [layer] uses. */
static const struct layer *find_other(const struct builder *b, const struct layer *layer) {
    SCOPED_TEXT name = {0};
    text_printf(&name, "%s%s", b->sharing.other, layer->name + strlen(b->sharing.own));
    const struct layer key = {.name = text_string(&name)}, *const *found = tfind(&key, &b->by_name, compare_names);
    return found ? *found : NULL;
}

static bool are_equal(const struct params *params, size_t first, const struct params *own) {
    bool is_equal = true;
    for (size_t i = 0; is_equal && i < own->count; i++) {
        const struct param *one = &params->items[first + i], *other = &own->items[i];
        is_equal =
            one->dims == other->dims && memcmp(one->shape, other->shape, sizeof *one->shape * (size_t)one->dims) == 0;
    }
    return is_equal;
}

/* Gives [layer] the parameters and buffers of the layer that it shares; those that it declared itself are [params] and
 * [buffers]. STATUS_USAGE if their shapes differ. */
static status build_share(const struct builder *b, struct layer *layer, const struct params *params,
                          const struct params *buffers) {
    const struct model *m = b->model;
    const struct layer *other = find_other(b, layer);
    if (!other) return status_new(STATUS_BUG, "share: there is no layer for %s", layer->name);
    if (layer->tied_count || other->tied_count)
        return status_usage("share: a layer with a tied weight cannot share its parameters");
    if (layer->type->stores_state && buffers->count)
        return status_usage("share: a layer with carry_state keeps the state of its own rows");
    if (params->count != other->param_count || buffers->count != other->buffer_count ||
        !are_equal(&m->params, other->first_param, params) || !are_equal(&m->buffers, other->first_buffer, buffers))
        return status_new(
            STATUS_USAGE,
            "share: its parameters have other shapes than those of %s, because its input or its keys differ",
            other->path);
    layer->is_sharing = true;
    layer->first_param = other->first_param;
    layer->param_count = other->param_count;
    layer->first_buffer = other->first_buffer;
    layer->buffer_count = other->buffer_count;
    return OK;
}

/* ---- memory ---- */

/* Plans the memory of a built model: the gradient slots, by walking backward over the nodes, and the lifetimes of
 * values, gradients and what layers save. */

/* Gradient slots. In backward order, a slot is allocated for the first node that contributes to a tensor's gradient
 * and released after the backward of the node that produced the tensor. Several tensors may share a slot while they
 * only read it (reference counting). */
struct pool {
    struct arena *arena;
    struct piece *slots;
    size_t *references; /* (count) tensors in use whose gradient is in the slot */
    size_t count, slot_capacity, reference_capacity;
    size_t now, end; /* times */
};

static size_t allocate_slot(struct pool *pool, size_t size) {
    pool->slots = build_grow(pool->arena, pool->slots, pool->count, &pool->slot_capacity, sizeof *pool->slots);
    pool->references =
        build_grow(pool->arena, pool->references, pool->count, &pool->reference_capacity, sizeof *pool->references);
    pool->slots[pool->count] = (struct piece){.size = size, .first = pool->now, .last = pool->end};
    pool->references[pool->count] = 1;
    return pool->count++;
}

static void release_slot(struct pool *pool, size_t slot) {
    if (--pool->references[slot] == 0) pool->slots[slot].last = pool->now;
}

/* The tensor that owns the memory: for a view, the one it is a view of. */
static struct planned_tensor *owner(struct model *m, size_t tensor) {
    return &m->tensors[m->tensors[tensor].alias == NO_TENSOR ? tensor : m->tensors[tensor].alias];
}

static void plan_add(struct graph_node *node, size_t tensor, size_t to, size_t a, size_t b) {
    node->adds[node->add_count++] = (struct slot_add){.to = to, .a = a, .b = b, .tensor = tensor};
}

/* Whether only [tensor] (and the node's output, which is no longer needed) uses its slot, so that it may be
 * overwritten. */
static bool is_exclusive(const struct pool *pool, const struct planned_tensor *tensor, size_t dy) {
    return pool->references[tensor->slot] - (tensor->slot == dy) == 1;
}

/* The backward of out = a + b for one side: a side without a gradient shares the slot of out's, else it is added. A
 * side that shares it already must not be added in place while another side is still to read it. */
static void plan_sum_side(struct pool *pool, struct model *m, struct graph_node *node, size_t input) {
    struct planned_tensor *side = owner(m, node->in[input]);
    if (!side->needs_gradient) return;
    if (side->slot == SIZE_MAX) {
        side->slot = node->dy;
        pool->references[node->dy]++;
    } else if (is_exclusive(pool, side, node->dy) && (side->slot != node->dy || input + 1 == node->in_count)) {
        plan_add(node, node->in[input], side->slot, side->slot, node->dy);
    } else {
        size_t own = allocate_slot(pool, side->size);
        plan_add(node, node->in[input], own, side->slot, node->dy);
        release_slot(pool, side->slot);
        side->slot = own;
    }
}

/* The derivative of a fused relu is applied to the gradient in place, or to a new slot if others read it. */
static void plan_relu(struct pool *pool, struct graph_node *node, size_t size) {
    if (!(node->layer ? node->layer->has_relu && node->layer->type->relu == RELU_AFTER : node->has_relu)) return;
    node->dy_after_relu = node->dy;
    if (pool->references[node->dy_after_relu] == 1) return;
    node->dy = allocate_slot(pool, size);
    release_slot(pool, node->dy_after_relu);
}

/* The first gradient of a layer's input is written to a new slot. A further one is added to the existing gradient by
 * the layer itself or through a temporary slot; if others read that gradient, to a new slot to which it is added. */
static void plan_layer(struct pool *pool, struct model *m, struct graph_node *node, size_t input) {
    struct planned_tensor *in = owner(m, node->in[input]);
    size_t *dx = &node->dx[input];
    if (!in->needs_gradient) return;
    if (in->slot == SIZE_MAX) {
        *dx = in->slot = allocate_slot(pool, in->size);
    } else if (is_exclusive(pool, in, node->dy)) {
        bool can_add = node->layer->type->can_add_to_dx && node->in_count == 1 && in->slot != node->dy;
        node->layer->adds_to_dx = can_add;
        *dx = can_add ? in->slot : allocate_slot(pool, in->size);
        if (*dx == in->slot) return;
        plan_add(node, node->in[input], in->slot, in->slot, *dx);
        release_slot(pool, *dx);
    } else {
        *dx = allocate_slot(pool, in->size);
        plan_add(node, node->in[input], *dx, *dx, in->slot);
        release_slot(pool, in->slot);
        in->slot = *dx;
    }
}

static void plan_gradients(struct model *m) {
    struct pool pool = {.arena = m->arena, .now = m->node_count, .end = 2 * m->node_count};
    m->output_slot = owner(m, m->output)->slot = allocate_slot(&pool, owner(m, m->output)->size);
    for (size_t i = m->node_count; i-- > 0;) {
        struct graph_node *node = &m->nodes[i];
        pool.now = 2 * m->node_count - i;
        node->dy = owner(m, node->out)->slot;
        if (node->dy == SIZE_MAX || !m->tensors[node->out].needs_gradient) continue;
        plan_relu(&pool, node, m->tensors[node->out].size);
        node->adds = arena_alloc(m->arena, node->in_count * sizeof *node->adds);
        for (size_t input = 0; input < node->in_count; input++)
            (node->layer ? plan_layer : plan_sum_side)(&pool, m, node, input);
        release_slot(&pool, node->dy);
    }
    m->slots = pool.slots;
    m->slot_count = pool.count;
}

/* Number of nodes that read a tensor's values; the output counts once more. */
static size_t readers(struct model *m, size_t tensor) {
    const struct planned_tensor *own = owner(m, tensor);
    size_t count = owner(m, m->output) == own;
    for (size_t i = 0; i < m->node_count; i++)
        for (size_t input = 0; input < m->nodes[i].in_count; input++) count += owner(m, m->nodes[i].in[input]) == own;
    return count;
}

/* Whether nodes i to i + 2 are a linear layer, a GELU and a linear layer whose intermediate tensors have no other
 * reader. */
static bool is_around_gelu(struct model *m, size_t i) {
    const struct graph_node *nodes = &m->nodes[i];
    for (int k = 0; k < 3; k++)
        if (!nodes[k].layer || nodes[k].block != nodes[0].block) return false;
    return layer_is_gelu_tanh(nodes[1].layer) && nodes[0].layer->type->around_gelu &&
           nodes[2].layer->type->around_gelu && !nodes[0].layer->has_relu && nodes[1].in[0] == nodes[0].out &&
           nodes[2].in[0] == nodes[1].out && readers(m, nodes[0].out) == 1 && readers(m, nodes[1].out) == 1;
}

/* Marks the nodes that may be fused. The last of the three then computes the gradient before the GELU. */
static void plan_gelus(struct model *m) {
    for (size_t i = 0; i + 2 < m->node_count; i++) {
        if (m->nodes[i].fusion != FUSION_NONE || !is_around_gelu(m, i)) continue;
        for (size_t k = 0; k < 3; k++) m->nodes[i + k].fusion = (enum gelu_fusion)(FUSION_BEFORE_GELU + k);
        if (m->nodes[i + 1].dx[0] != SIZE_MAX) m->slots[m->nodes[i + 1].dx[0]].first = 2 * m->node_count - (i + 2);
    }
}

/* Marks sums that a device may compute together with the next node. */
static void plan_sums(struct model *m) {
    for (size_t i = 0; i + 1 < m->node_count; i++) {
        struct graph_node *node = &m->nodes[i];
        node->precedes_norm = node->block == node[1].block && !node->layer && !node->has_relu && node[1].layer &&
                              node[1].layer->type->forward_of_sum && node[1].in[0] == node->out;
    }
}

static void extend_lifetime(struct planned_tensor *tensor, size_t time) {
    if (tensor->piece.last < time) tensor->piece.last = time;
}

/* The node that produced the tensor, if it can recompute it; else NULL. */
static const struct graph_node *recomputing_node(const struct model *m, const struct planned_tensor *tensor) {
    const struct graph_node *node = tensor->piece.size ? &m->nodes[tensor->piece.first] : NULL;
    return node && node->dy != SIZE_MAX && node->layer && node->layer->type->recompute ? node : NULL;
}

/* The backward of node [i] reads [tensor]: keeps it until then, or recomputes it from a tensor that is kept. */
static void keep_for_backward(struct model *m, struct planned_tensor *tensor, size_t i) {
    size_t end = 2 * m->node_count;
    const struct graph_node *producer = recomputing_node(m, tensor);
    bool is_repeated = producer && (producer->block || m->nodes[i].block);
    if (!producer || is_repeated || recomputing_node(m, owner(m, producer->in[0])) || tensor == owner(m, m->output)) {
        extend_lifetime(tensor, end - i);
        return;
    }
    if (!tensor->recomputed_piece.size)
        tensor->recomputed_piece = (struct piece){.size = tensor->size, .last = end - i};
    tensor->recomputed_piece.first = end - i;
    tensor->reader = i;
}

/* Nodes recompute what they read first in backward, each at most all of its inputs. */
static void plan_recomputations(struct model *m) {
    for (size_t t = 0; t < m->tensor_count; t++) {
        const struct planned_tensor *tensor = &m->tensors[t];
        if (!tensor->recomputed_piece.size) continue;
        struct graph_node *node = &m->nodes[tensor->reader];
        if (!node->recompute) node->recompute = arena_alloc(m->arena, node->in_count * sizeof *node->recompute);
        node->recompute[node->recompute_count++] = tensor->piece.first;
    }
}

/* The blocks end at their last node with a backward. */
static void find_blocks(struct model *m) {
    m->blocks = arena_alloc(m->arena, (m->block_count + 1) * sizeof *m->blocks);
    for (size_t i = m->node_count; i-- > 0;) {
        if (!m->nodes[i].block) continue;
        struct repeated_block *block = &m->blocks[m->nodes[i].block - 1];
        block->first = i;
        if (!block->time && m->nodes[i].dy != SIZE_MAX) {
            block->last = i;
            block->time = 2 * m->node_count - i;
        }
    }
    for (size_t i = 0; i < m->node_count; i++) { /* forward does not run again behind its last node with a backward */
        size_t *of = &m->nodes[i].block;
        if (*of && (!m->blocks[*of - 1].time || i > m->blocks[*of - 1].last)) *of = 0;
    }
}

/* A forward that runs again must not change what a run keeps. */
static status check_blocks(const struct model *m) {
    for (size_t i = 0; i < m->node_count; i++) {
        const struct layer *layer = m->nodes[i].layer;
        if (m->nodes[i].block && layer && layer->buffer_count && !layer->type->keeps_buffers)
            return status_usage(
                "%s: %s: cannot be inside a layer with recompute: true, because computing it again would "
                "change the state that it keeps from batch to batch",
                place_text(layer->place).s, layer->path);
    }
    return OK;
}

/* [piece], of which [forward_last] is the last use in forward, is computed again at [time]. */
static void repeat_piece(struct piece *piece, size_t forward_last, size_t time) {
    piece->first_again = time;
    piece->last_again = piece->last > time ? piece->last : time;
    piece->last = forward_last;
}

/* A value that only the nodes of its block read is not kept until backward. The other values that they read or write
 * are kept until they run again. */
static void plan_blocks(struct model *m) {
    for (size_t i = 0; i < m->node_count; i++) {
        struct graph_node *node = &m->nodes[i];
        if (!node->block) continue;
        const struct repeated_block *block = &m->blocks[node->block - 1];
        struct planned_tensor *out = &m->tensors[node->out];
        for (size_t input = 0; input < node->in_count; input++) {
            struct planned_tensor *in = owner(m, node->in[input]);
            if (!in->piece.last_again) extend_lifetime(in, block->time);
        }
        if (out->forward_last <= block->last && out != owner(m, m->output))
            repeat_piece(&out->piece, out->forward_last > i ? out->forward_last : i, block->time);
        else
            extend_lifetime(out, block->time);
        if (node->layer && node->layer->saved_size) repeat_piece(&node->layer->saved_piece, i, block->time);
    }
}

/* Sets the lifetime of each value. The output is kept until the end of the pass. */
static void plan_values(struct model *m) {
    size_t end = 2 * m->node_count;
    for (size_t i = 0; i < m->node_count; i++) {
        struct graph_node *node = &m->nodes[i];
        struct planned_tensor *out = &m->tensors[node->out];
        bool has_backward = node->dy != SIZE_MAX;
        out->piece = (struct piece){.size = out->size, .first = i, .last = i};
        /* of the inputs: one operator may run the next node, too, or write its output */
        size_t last = node->precedes_norm || node->fusion == FUSION_BEFORE_GELU ? i + 1 : i;
        for (size_t input = 0; input < node->in_count; input++) {
            extend_lifetime(owner(m, node->in[input]), last);
            owner(m, node->in[input])->forward_last = last;
        }
        if (has_backward && node->dy_after_relu != SIZE_MAX) extend_lifetime(out, end - i);
        if (!node->layer) continue;
        bool reads_x = has_backward && !(node->layer->type->ignores & IGNORES_X);
        for (size_t input = 0; reads_x && input < node->in_count; input++)
            keep_for_backward(m, owner(m, node->in[input]), i);
        if (has_backward && !(node->layer->type->ignores & IGNORES_Y)) extend_lifetime(out, end - i);
        node->layer->saved_piece =
            (struct piece){.size = node->layer->saved_size, .first = i, .last = has_backward ? end - i : i};
    }
    extend_lifetime(owner(m, m->output), end);
    owner(m, m->output)->forward_last = end;
    plan_blocks(m);
    plan_recomputations(m);
}

void build_assign_memory(struct model *m) {
    size_t count = 0;
    struct piece **pieces = arena_alloc(
        m->arena, (2 * m->tensor_count + m->layer_count + m->slot_count + m->copy_count + 1) * sizeof(struct piece *));
    for (size_t i = 1; i < m->tensor_count; i++) {
        pieces[count++] = &m->tensors[i].piece;
        pieces[count++] = &m->tensors[i].recomputed_piece;
    }
    for (size_t i = 0; i < m->layer_count; i++) pieces[count++] = &m->layers[i].saved_piece;
    for (size_t i = 0; i < m->slot_count; i++) pieces[count++] = &m->slots[i];
    for (size_t i = 0; i < m->copy_count; i++) pieces[count++] = &m->copies[i].piece;
    m->row_floats = placement_find(m->arena, pieces, count);
}

/* Plans gradient slots and lifetimes, then build_assign_memory. */
static void build_memory(struct model *model) {
    plan_gradients(model);
    find_blocks(model);
    plan_gelus(model);
    plan_sums(model);
    plan_values(model);
    build_assign_memory(model);
}

/* ---- layers and composites become nodes ---- */

static size_t add_tensor(struct builder *b, const struct shape *shape, size_t alias, bool needs_gradient) {
    struct model *m = b->model;
    m->tensors = build_grow(m->arena, m->tensors, m->tensor_count, &b->tensor_capacity, sizeof *m->tensors);
    m->tensors[m->tensor_count] = (struct planned_tensor){.shape = *shape,
                                                          .size = shape_elements(shape),
                                                          .alias = alias,
                                                          .needs_gradient = needs_gradient,
                                                          .slot = SIZE_MAX};
    return m->tensor_count++;
}

static void add_node(struct builder *b, struct layer *layer, const size_t *in, size_t count, size_t out) {
    struct model *m = b->model;
    struct graph_node node = {.layer = layer, .in_count = count, .out = out, .dy_after_relu = SIZE_MAX, .dy = SIZE_MAX};
    node.in = arena_alloc(m->arena, count * sizeof *node.in);
    node.dx = arena_alloc(m->arena, count * sizeof *node.dx);
    for (size_t i = 0; i < count; i++) {
        node.in[i] = in[i];
        node.dx[i] = SIZE_MAX;
    }
    m->nodes = build_grow(m->arena, m->nodes, m->node_count, &b->node_capacity, sizeof *m->nodes);
    m->nodes[m->node_count++] = node;
}

void build_add_block(struct builder *b, size_t first) {
    struct model *m = b->model;
    m->block_count++;
    for (size_t i = first; i < m->node_count; i++) m->nodes[i].block = m->block_count;
}

status build_at(const struct layer_entry *e, status failure) {
    return status_prefix(failure, "%s: %s", place_text(e->variant->place).s, e->path);
}

/* Names must differ, so that no two parameters have the same name. */
static status check_name(struct builder *b, const struct layer *layer) {
    const struct layer *const *first = tsearch(layer, &b->by_name, compare_names);
    if (!first) return status_memory("the names of the layers");
    if (*first != layer)
        return status_usage("the name '%s' is already used by %s (%s)", layer->name, (*first)->path,
                            place_text((*first)->place).s);
    return OK;
}

static void keep_layer(void *layer) {}

/* Marks the layer's frozen parameters. Returns whether it has trainable ones (a tied one counts). */
static bool freeze(struct builder *b, const struct layer *layer) {
    struct params *params = &b->model->params;
    bool is_trained = false;
    for (size_t i = 0; i < layer->param_count; i++) {
        struct param *p = &params->items[layer->first_param + i];
        for (size_t f = 0; f < b->freeze->count; f++) p->is_frozen |= fnmatch(b->freeze->items[f], p->name, 0) == 0;
        is_trained |= !p->is_frozen;
    }
    if (layer->tied_count) is_trained |= !params->items[layer->tied].is_frozen;
    return is_trained;
}

static status check_freeze(const struct model *model, const struct string_list *patterns) {
    for (size_t f = 0; f < patterns->count; f++) {
        if (params_match(&model->params, patterns->items[f]) > 0) continue;
        SCOPED_TEXT what = {0};
        text_printf(&what, "model.freeze: no parameter matches '%s'", patterns->items[f]);
        return params_no_match(&model->params, text_string(&what));
    }
    size_t frozen = 0;
    for (size_t i = 0; i < model->params.count; i++) frozen += model->params.items[i].is_frozen;
    if (frozen > 0 && frozen == model->params.count)
        return status_usage("model.freeze: every parameter is frozen, so there is nothing to train");
    return OK;
}

static void append_layer(struct builder *b, struct layer *layer) {
    struct model *m = b->model;
    b->layers = build_grow(m->arena, b->layers, m->layer_count, &b->layer_capacity, sizeof *b->layers);
    b->layers[m->layer_count++] = layer;
}

/* Returns tensor [in] in the required memory format: the tensor itself, a view if the format makes no difference, or
 * the output of a reorder layer. [path] is the layer that requires it. */
static size_t ordered(struct builder *b, size_t in, bool is_channels_last, const char *path) {
    struct model *m = b->model;
    struct shape shape = m->tensors[in].shape;
    m->tensors[in].is_read = true;
    if (shape.dims < 2 || shape.is_channels_last == is_channels_last) return in;
    shape.is_channels_last = is_channels_last;
    bool needs_gradient = m->tensors[in].needs_gradient;
    if (shape.size[0] == 1 || (size_t)shape.size[0] == shape_elements(&shape)) {
        size_t root = model_root(m, in);
        size_t view = add_tensor(b, &shape, root, needs_gradient);
        m->tensors[view].is_read = true;
        return view;
    }
    struct layer *layer = arena_alloc(m->arena, sizeof *layer);
    *layer = (struct layer){.type = &layer_reorder,
                            .path = path,
                            .name = "",
                            .in = m->tensors[in].shape,
                            .out = shape,
                            .in_size = m->tensors[in].size,
                            .out_size = m->tensors[in].size,
                            .first_param = m->params.count,
                            .first_buffer = m->buffers.count};
    append_layer(b, layer);
    size_t out = add_tensor(b, &shape, NO_TENSOR, needs_gradient);
    m->tensors[out].is_read = true;
    add_node(b, layer, &in, 1, out);
    return out;
}

/* The scores of classes (classes, ...) of [targets] as (positions, classes); other tensors are unchanged. */
static size_t by_position(struct builder *b, size_t in, const struct class_targets *targets, const char *path) {
    struct model *m = b->model;
    struct shape shape = m->tensors[in].shape;
    size_t positions = shape_elements(&shape) / (size_t)shape.size[0];
    bool fits = targets->count == 0 || (targets->count > 1 && targets->count == positions);
    if (!targets->are_classes || !fits || shape.dims < 3) return in;
    size_t last = ordered(b, in, true, path), root = model_root(m, last);
    size_t view = add_tensor(b, &(struct shape){.dims = 2, .size = {(int64_t)positions, shape.size[0]}}, root,
                             m->tensors[last].needs_gradient);
    struct shape *scores = arena_alloc(m->arena, sizeof *scores);
    *scores = shape;
    m->tensors[view].scores = scores;
    m->tensors[view].is_read = true;
    return view;
}

/* The inputs in the memory format that the layer requires; FORMAT_PRESERVE: that of the first, but positions with
 * lengths first, as the operators that take lengths need them. */
static void order_inputs(struct builder *b, const struct layer *layer, size_t *in, size_t count) {
    const struct planned_tensor *first = &b->model->tensors[in[0]];
    bool is_channels_last = layer->type->memory_format == FORMAT_PRESERVE
                                ? first->shape.is_channels_last && !first->shape.lengths
                                : layer->type->memory_format == FORMAT_CHANNELS_LAST;
    for (size_t i = 0; i < count; i++) in[i] = ordered(b, in[i], is_channels_last, layer->path);
}

/* Memory of batches is computed without checks for overflow. */
static status check_size(const struct layer *layer) {
    size_t elements = 1;
    for (int d = 0; d < layer->out.dims; d++)
        if (__builtin_mul_overflow(elements, (size_t)layer->out.size[d], &elements) || elements > BUILD_MAX_ELEMENTS)
            return status_usage("its output would be %s, more than %zu numbers", shape_text(&layer->out).s,
                                BUILD_MAX_ELEMENTS);
    return OK;
}

/* The same for the parameters from [first] on: their counts are products of sizes. */
static status check_params(const struct params *params, size_t first) {
    for (size_t i = first; i < params->count; i++) {
        const struct param *p = &params->items[i];
        size_t count = 1;
        for (int d = 0; d < p->dims; d++)
            if (__builtin_mul_overflow(count, (size_t)p->shape[d], &count) || count > BUILD_MAX_ELEMENTS)
                return status_usage("its parameter '%s' would have more than %zu numbers", p->name, BUILD_MAX_ELEMENTS);
    }
    return OK;
}

/* The lengths of the output of a layer that declares none: those of its first input that has some, if the layer keeps
 * the positions. */
static size_t lengths_after(const struct layer *layer) {
    if (layer->type->sets_lengths) return layer->out.lengths;
    bool keeps = layer->type->keeps_positions || layer->type->is_by_position;
    size_t count = layer->type->is_by_position ? layer->in_count : 1;
    for (size_t i = 0; keeps && i < count; i++) {
        const struct shape *in = &layer->ins[i];
        if (in->lengths && layer->out.dims > 1 && in->size[0] == layer->out.size[0]) return in->lengths;
    }
    return 0;
}

static status add_layer(struct builder *b, struct layer *layer, size_t *in, size_t count, size_t *out) {
    struct model *m = b->model;
    struct params shared_params = {0}, shared_buffers = {0};
    struct planning planning = {&m->params, &m->buffers, m->arena, &m->lengths_count};
    if (b->sharing.own) planning = (struct planning){&shared_params, &shared_buffers, m->arena, &m->lengths_count};
    bool is_view = layer->type->is_view || b->merges_relu, needs_gradient = false;
    layer->has_relu = b->has_relu;
    b->merges_relu = b->has_relu = false;
    order_inputs(b, layer, in, count);
    layer->stream = (uint32_t)m->layer_count;
    layer->in_count = count;
    layer->ins = arena_alloc(m->arena, count * sizeof *layer->ins);
    for (size_t i = 0; i < count; i++) {
        layer->ins[i] = m->tensors[in[i]].shape;
        needs_gradient |= m->tensors[in[i]].needs_gradient;
        if (layer->ins[i].is_tokens && !layer->type->takes_tokens)
            return status_usage("its input is token ids, which only an embedding accepts: insert one before it");
    }
    layer->cached_positions = b->names->cached_positions;
    layer->batch_rows = b->names->batch_rows;
    if (layer->cached_positions && !layer->type->is_by_position && !layer->type->stores_state)
        return status_usage("it needs all positions at once");
    layer->in = layer->ins[0];
    layer->in_size = m->tensors[in[0]].size;
    TRY(check_name(b, layer));
    layer->first_param = m->params.count;
    layer->first_buffer = m->buffers.count;
    size_t lengths = m->lengths_count, declared = planning.params->count;
    TRY(layer->type->plan(layer, &planning));
    TRY(check_size(layer));
    TRY(check_params(planning.params, declared));
    if (m->lengths_count == lengths) layer->out.lengths = lengths_after(layer);
    if (!layer->type->is_input && !is_view) layer->out.input = 0;
    layer->param_count = m->params.count - layer->first_param;
    layer->buffer_count = m->buffers.count - layer->first_buffer;
    if (b->sharing.own) TRY(build_share(b, layer, &shared_params, &shared_buffers));
    layer->out_size = shape_elements(&layer->out);
    if (layer->type->multiply_adds) m->multiply_adds += layer->type->multiply_adds(layer);
    append_layer(b, layer);
    needs_gradient |= freeze(b, layer);
    size_t root = model_root(m, in[0]);
    *out = add_tensor(b, &layer->out, is_view ? root : NO_TENSOR, needs_gradient);
    m->tensors[*out].producer = layer;
    if (!is_view) add_node(b, layer, in, count, *out);
    return OK;
}

static struct string_list copy_names(struct arena *arena, const struct string_list *names) {
    struct string_list copy = {arena_alloc(arena, (names->count + 1) * sizeof *copy.items), names->count};
    for (size_t i = 0; i < names->count; i++) copy.items[i] = arena_copy(arena, names->items[i]);
    return copy;
}

status build_layer(struct builder *builder, const struct layer_type *type, const struct layer_entry *e, size_t *out) {
    struct arena *arena = builder->model->arena;
    const struct variant *variant = e->variant;
    size_t own[BUILD_MAX_INPUTS];
    memcpy(own, e->in, e->count * sizeof *own);
    struct layer *layer = arena_alloc(arena, sizeof *layer);
    *layer = (struct layer){.type = type,
                            .entry = layer_type_at((size_t)variant->index),
                            .config = variant->config,
                            .place = variant->place,
                            .path = e->path,
                            .name = e->name};
    if (layer->place.file) layer->place.file = arena_copy(arena, layer->place.file);
    const struct layer_common *common = variant->common;
    if (common) layer->from = copy_names(arena, &common->from);
    return build_at(e, add_layer(builder, layer, own, e->count, out));
}

status build_add_part(struct builder *b, const struct layer_entry *e, const char *part, size_t first,
                      const struct shape *shape, size_t in, size_t *out) {
    struct arena *arena = b->model->arena;
    struct model_input *input = arena_alloc(arena, sizeof *input);
    const char *name = arena_printf(arena, "%s/%s", e->name, part ? part : "output");
    *input = (struct model_input){.first = first, .shape = *shape};
    struct variant one = *e->variant;
    one.config = input;
    const char *path = part ? arena_printf(arena, "%s.%s", e->path, part) : e->path;
    TRY(build_layer(b, &layer_part, &(struct layer_entry){&one, path, name, &in, 1}, out));
    return part ? build_at(e, build_add_name(b, arena_copy(arena, part), *out, name, e->variant)) : OK;
}

static status build_one(struct builder *b, const struct variant *variant, const char *path, const char *prefix,
                        size_t index, size_t previous, size_t *out) {
    struct arena *arena = b->model->arena;
    const struct layer_common *common = variant->common;
    const struct layer_type *type = layer_type_at((size_t)variant->index);
    const char *own = common && common->name ? common->name : arena_printf(arena, "%zu", index);
    size_t in[BUILD_MAX_INPUTS];
    char *name = arena_printf(arena, "%s%s", prefix, own);
    struct layer_entry e = {variant, arena_printf(arena, "%s.%zu.%s", path, index, variant->name), name, in, 0};
    if (strchr(own, '.') || strchr(own, '/') || (!*own && !type->expand))
        return build_at(&e, status_usage("a name must not be empty or contain '.' or '/', got '%s'", own));
    if (!*own && *name) name[strlen(name) - 1] = '\0'; /* a composite without a name adds no level */
    TRY(build_at(&e, build_inputs(b, common ? &common->from : NULL, type, previous, in, &e.count)));
    TRY(build_at(&e, add_sources(b, type, variant, in, &e.count)));
    struct layer_entry source = e;
    size_t first_node = b->model->node_count;
    if (common && common->share) TRY(build_at(&e, build_begin_sharing(b, variant, name, &source.variant)));
    if (type->expand)
        TRY(type->expand(b, &source, out));
    else
        TRY(build_layer(b, type, &e, out));
    if (type->add_parts) TRY(type->add_parts(b, &e, out));
    if (common && common->recompute && !type->makes_blocks) build_add_block(b, first_node);
    if (common && common->share) b->sharing = (struct sharing){0};
    if (!common || !common->name || !*own) return OK;
    return build_at(&e, build_add_name(b, own, *out, name, source.variant));
}

static const struct layer_type *type_of(const struct variant_list *list, size_t index) {
    return index < list->count ? layer_type_at((size_t)list->items[index].index) : NULL;
}

static const struct layer_common *common_of(const struct variant_list *list, size_t index) {
    return index < list->count ? list->items[index].common : NULL;
}

/* Whether the layer at [index] reads what `from:` names, not the layer before. */
static bool has_source(const struct variant_list *list, size_t index) {
    const struct layer_common *common = common_of(list, index);
    return common && common->from.count > 0;
}

/* Whether the layer at [index], or what is behind the list, reads the output of the layer before. */
static bool reads_previous(const struct variant_list *list, size_t index) {
    const struct layer_type *type = type_of(list, index);
    return !has_source(list, index) || (type->joins && common_of(list, index)->from.count == 1);
}

/* Whether another layer reads the output of the layer at [index] by its name. */
static bool is_source(const struct builder *b, const struct variant_list *list, size_t index) {
    const struct layer_common *common = common_of(list, index);
    return common && common->name && build_is_source(b, common->name);
}

/* Fuses the relu at [index] of a list into the layer after it or, with input tensor [in], into the node before it,
 * whose output then has no other reader. False: not a relu, or it cannot be fused. */
static bool merge_relu(struct builder *b, const struct variant_list *list, size_t index, size_t in) {
    struct model *m = b->model;
    const struct layer_type *next = type_of(list, index + 1);
    const struct layer_type *type = type_of(list, index);
    if (!type || type->relu != RELU_ITSELF || has_source(list, index)) return false;
    if (next && next->relu == RELU_BEFORE && !has_source(list, index + 1)) return !is_source(b, list, index);
    if (index == 0 || m->node_count == 0 || is_source(b, list, index - 1)) return false;
    struct graph_node *last = &m->nodes[m->node_count - 1];
    if (last->out != in || m->tensors[in].is_read) return false;
    if (!last->layer) return last->has_relu = true;
    if (last->layer->has_relu) return false;
    enum relu_place place = last->layer->type->relu;
    return last->layer->has_relu = place == RELU_AFTER || place == RELU_INSIDE;
}

static status build_layers(struct builder *builder, const struct variant_list *list, const char *path,
                           const char *prefix, size_t in, size_t *out) {
    bool has_relu_before = false;
    *out = in;
    for (size_t i = 0; i < list->count; i++) {
        in = *out;
        bool is_merged = merge_relu(builder, list, i, in);
        builder->merges_relu = is_merged;
        builder->has_relu = has_relu_before;
        builder->output_is_read = reads_previous(list, i + 1) || is_source(builder, list, i);
        const struct layer_type *next = type_of(list, i + 1);
        has_relu_before = is_merged && next && next->relu == RELU_BEFORE && !has_source(list, i + 1);
        TRY(build_one(builder, &list->items[i], path, prefix, i, in, out));
    }
    return OK;
}

status build_list(struct builder *builder, const struct variant_list *list, const char *path, const char *prefix,
                  size_t in, size_t *out) {
    struct scope *outer = builder->scope, scope = {.outer = outer};
    if (++builder->lists > BUILD_MAX_LISTS || builder->model->layer_count > BUILD_MAX_LAYERS)
        return status_usage("model.layers: more than %d layers in all; is a 'times' too large?", BUILD_MAX_LAYERS);
    builder->scope = &scope;
    status s = build_layers(builder, list, path, prefix, in, out);
    builder->scope = outer;
    return s;
}

static status add_two(struct builder *builder, size_t a, size_t b, size_t *out) {
    struct model *m = builder->model;
    size_t in[2] = {a, ordered(builder, b, m->tensors[a].shape.is_channels_last, "the sum")};
    const struct planned_tensor *ta = &m->tensors[a], *tb = &m->tensors[in[1]];
    if (!shape_is_equal(&ta->shape, &tb->shape))
        return status_usage("the two sides of the sum have different shapes: %s and %s", shape_text(&ta->shape).s,
                            shape_text(&tb->shape).s);
    struct shape shape = ta->shape;
    if (!shape.lengths) shape.lengths = tb->shape.lengths;
    shape.input = 0;
    bool needs_gradient = ta->needs_gradient || tb->needs_gradient;
    m->tensors[a].is_read = true;
    *out = add_tensor(builder, &shape, NO_TENSOR, needs_gradient);
    add_node(builder, NULL, in, 2, *out);
    return OK;
}

status build_sum(struct builder *builder, const size_t *in, size_t count, size_t *out) {
    *out = in[0];
    for (size_t i = 1; i < count; i++) TRY(add_two(builder, *out, in[i], out));
    return OK;
}

/* ---- inputs and outputs of a model with names ---- */

/* Makes the named inputs known: a single one is the input itself, several are copied from its row. *first: what the
 * first layer reads. */
static status add_inputs(struct builder *b, size_t row, size_t *first) {
    const struct model_names *names = b->names;
    *first = names->input_count > 1 ? NO_TENSOR : row;
    for (size_t i = 0; i < names->input_count; i++) {
        struct model_input *input = arena_alloc(b->model->arena, sizeof *input);
        *input = names->inputs[i];
        input->shape.input = 1 + input->first;
        input->name = arena_copy(b->model->arena, input->name);
        struct variant variant = {.config = input, .place = {.file = "dataset.inputs"}};
        const char *name = arena_printf(b->model->arena, "input/%s", input->name);
        size_t tensor = row;
        if (names->input_count > 1)
            TRY(build_layer(b, &layer_input, &(struct layer_entry){&variant, "dataset.inputs", name, &row, 1},
                            &tensor));
        b->model->tensors[tensor].producer = NULL;
        TRY(status_prefix(build_add_name(b, input->name, tensor, NULL, NULL), "dataset.inputs"));
    }
    return OK;
}

static status check_inputs_read(const struct builder *b, const struct scope *inputs) {
    for (size_t i = 0; i < inputs->count; i++)
        if (!b->model->tensors[inputs->items[i].tensor].is_read)
            return status_usage("dataset.inputs: no layer takes the input '%s'", inputs->items[i].name);
    return OK;
}

/* *output = a row of all outputs; [last]: the output of the last layer. */
static status join_outputs(struct builder *b, size_t last, size_t *output) {
    const struct model_names *names = b->names;
    struct model *m = b->model;
    size_t in[BUILD_MAX_INPUTS], first = 0;
    bool is_trained = false; /* an output has trainable parameters before it */
    *output = last;
    if (names->output_count == 0 && names->targets) *output = by_position(b, last, names->targets, "model.layers");
    if (names->output_count == 0) return OK;
    if (names->output_count > BUILD_MAX_INPUTS) return status_usage("losses: more than %d", BUILD_MAX_INPUTS);
    m->outputs = arena_alloc(m->arena, names->output_count * sizeof *m->outputs);
    m->output_count = names->output_count;
    for (size_t i = 0; i < names->output_count; i++) {
        in[i] = last;
        const struct place *place = &names->output_places[i];
        if (names->outputs[i])
            TRY(status_prefix(build_find(b, names->outputs[i], &in[i]), "%s: losses: output", place_text(*place).s));
        if (names->targets) in[i] = by_position(b, in[i], &names->targets[i], "losses");
        const struct planned_tensor *t = &m->tensors[in[i]];
        is_trained = is_trained || t->needs_gradient;
        m->outputs[i] = (struct model_output){.first = first, .size = t->size, .shape = t->shape, .tensor = in[i]};
        m->outputs[i].shape.is_channels_last = false;
        first += t->size;
    }
    if (!is_trained) return status_usage("losses: no output has trainable parameters before it");
    struct variant variant = {.place = {.file = "losses"}};
    return build_layer(b, &layer_outputs, &(struct layer_entry){&variant, "losses", "output/", in, names->output_count},
                       output);
}

/* Names of outputs are sources, so that what they name is not fused with the layer after it. */
static void add_output_sources(struct builder *b) {
    const struct model_names *names = b->names;
    size_t count = b->sources.count;
    const char **items = arena_alloc(b->model->arena, (count + names->output_count + 1) * sizeof *items);
    if (count) memcpy(items, b->sources.items, count * sizeof *items);
    for (size_t i = 0; i < names->output_count; i++)
        if (names->outputs[i]) items[count++] = names->outputs[i];
    b->sources = (struct string_list){items, count};
}

/* [inputs]: the scope of the names of inputs, around that of [layers]. */
static status build_all(struct builder *builder, const struct model_config *config, struct scope *inputs,
                        struct scope *layers) {
    struct model *model = builder->model;
    model->in.input = 1;
    size_t first, last, input = add_tensor(builder, &model->in, NO_TENSOR, false);
    add_output_sources(builder);
    builder->scope = inputs;
    TRY(add_inputs(builder, input, &first));
    builder->scope = layers;
    TRY(build_layers(builder, &config->layers, "model.layers", "", first, &last));
    TRY(join_outputs(builder, last, &model->output));
    model->tensors[model->output].is_read = true;
    TRY(check_inputs_read(builder, inputs));
    TRY(check_freeze(model, &config->freeze));
    TRY(build_check_read(model, builder->names->accepts_unused));
    TRY(check_trained(model));
    params_move_frozen_last(&model->params);
    model->output = ordered(builder, model->output, false, "model.layers");
    model->out = model->tensors[model->output].shape;
    model->out_size = shape_elements(&model->out);
    return OK;
}

status build_model(struct model *model, const struct model_config *config, const struct model_names *names) {
    struct builder b = {.model = model,
                        .freeze = &config->freeze,
                        .names = names,
                        .sources = build_sources(model->arena, &config->layers)};
    struct scope inputs = {0}, layers = {.outer = &inputs};
    status s = build_all(&b, config, &inputs, &layers);
    tdestroy(b.by_name, keep_layer);
    TRY(s);
    model->layers = arena_alloc(model->arena, model->layer_count * sizeof *model->layers);
    size_t next = 0; /* nodes are in the order of their layers */
    for (size_t i = 0; i < model->layer_count; i++) {
        while (next < model->node_count && !model->nodes[next].layer) next++;
        if (next < model->node_count && model->nodes[next].layer == b.layers[i])
            model->nodes[next++].layer = &model->layers[i];
        model->layers[i] = *b.layers[i];
    }
    model->use_counts = arena_alloc(model->arena, (model->params.count + 1) * sizeof *model->use_counts);
    for (size_t i = 0; i < model->layer_count; i++) {
        const struct layer *layer = &model->layers[i];
        for (size_t p = 0; p < layer->param_count; p++) model->use_counts[layer->first_param + p]++;
        for (size_t p = 0; p < layer->tied_count; p++) model->use_counts[layer->tied + p]++;
    }
    TRY(check_blocks(model));
    build_memory(model);
    return OK;
}
