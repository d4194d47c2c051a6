/* Builds the model by walking over the config, and plans the gradients by walking backward over the steps. */
#include "model/build.h"

#include <fnmatch.h>
#include <string.h>

#include "model/layers/layers.h"

/* Grows an arena array of [count] items by one. */
static void *grow(struct arena *arena, void *items, size_t count, size_t *capacity, size_t size) {
    if (count < *capacity) return items;
    size_t more = *capacity ? *capacity * 2 : 32;
    char *grown = arena_alloc(arena, more * size);
    if (count) memcpy(grown, items, count * size);
    *capacity = more;
    return grown;
}

static size_t add_tensor(struct builder *b, const struct shape *shape, size_t alias, bool needs_gradient) {
    struct model *m = b->model;
    m->tensors = grow(m->arena, m->tensors, m->tensor_count, &b->tensor_capacity, sizeof *m->tensors);
    m->tensors[m->tensor_count] = (struct tensor){.shape = *shape,
                                                  .size = shape_elements(shape),
                                                  .alias = alias,
                                                  .needs_gradient = needs_gradient,
                                                  .slot = SIZE_MAX};
    return m->tensor_count++;
}

static void add_step(struct builder *b, struct layer *layer, size_t in, size_t other, size_t out) {
    struct model *m = b->model;
    m->steps = grow(m->arena, m->steps, m->step_count, &b->step_capacity, sizeof *m->steps);
    m->steps[m->step_count++] = (struct step){.layer = layer,
                                              .in = in,
                                              .other = other,
                                              .out = out,
                                              .raw = SIZE_MAX,
                                              .recompute = SIZE_MAX,
                                              .dy = SIZE_MAX,
                                              .dx = SIZE_MAX};
}

static status at_place(struct place place, const char *path, status inner) {
    return status_prefix(inner, "%s:%d:%d: %s", place.file, place.line, place.column, path);
}

/* Names must differ, so that no two parameters have the same name. */
static status check_name(const struct builder *b, const struct layer *layer) {
    for (size_t i = 0; i < b->model->layer_count; i++)
        if (strcmp(b->layers[i]->name, layer->name) == 0)
            return status_new(STATUS_USAGE, "the name '%s' is already used by %s", layer->name, b->layers[i]->path);
    return OK;
}

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
        struct text what = {0};
        text_printf(&what, "model.freeze: no parameter matches '%s'", patterns->items[f]);
        status s = params_no_match(&model->params, text_string(&what));
        text_free(&what);
        return s;
    }
    size_t frozen = 0;
    for (size_t i = 0; i < model->params.count; i++) frozen += model->params.items[i].is_frozen;
    if (frozen > 0 && frozen == model->params.count)
        return status_new(STATUS_USAGE, "model.freeze: every parameter is frozen, so there is nothing to train");
    return OK;
}

static void append_layer(struct builder *b, struct layer *layer) {
    struct model *m = b->model;
    b->layers = grow(m->arena, b->layers, m->layer_count, &b->layer_capacity, sizeof *b->layers);
    b->layers[m->layer_count++] = layer;
}

/* Returns tensor [in] in the required memory order: the tensor itself, a view if the order makes no difference, or
 * the output of a reorder layer. [path] is the layer that requires it. */
static size_t ordered(struct builder *b, size_t in, bool is_channels_last, const char *path) {
    struct model *m = b->model;
    struct shape shape = m->tensors[in].shape;
    if (shape.dims < 2 || shape.is_channels_last == is_channels_last) return in;
    shape.is_channels_last = is_channels_last;
    bool needs_gradient = m->tensors[in].needs_gradient;
    if (shape.size[0] == 1 || (size_t)shape.size[0] == shape_elements(&shape)) {
        size_t root = m->tensors[in].alias == NO_TENSOR ? in : m->tensors[in].alias;
        return add_tensor(b, &shape, root, needs_gradient);
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
    add_step(b, layer, in, NO_TENSOR, out);
    return out;
}

static status add_layer(struct builder *b, struct layer *layer, size_t in, size_t *out) {
    struct model *m = b->model;
    struct planning planning = {&m->params, &m->buffers, m->arena};
    bool is_view = layer->type->is_view || b->merges_relu;
    layer->has_relu = b->has_relu;
    b->merges_relu = b->has_relu = false;
    if (layer->type->order != ORDER_ANY) in = ordered(b, in, layer->type->order == ORDER_CHANNELS_LAST, layer->path);
    layer->stream = (uint32_t)m->layer_count;
    layer->in = m->tensors[in].shape;
    layer->in_size = m->tensors[in].size;
    TRY(check_name(b, layer));
    layer->first_param = m->params.count;
    layer->first_buffer = m->buffers.count;
    if (layer->in.is_tokens && !layer->type->takes_tokens)
        return status_new(STATUS_USAGE,
                          "its input is token ids, which only an embedding accepts: insert one before it");
    TRY(layer->type->plan(layer, &planning));
    layer->param_count = m->params.count - layer->first_param;
    layer->buffer_count = m->buffers.count - layer->first_buffer;
    layer->out_size = shape_elements(&layer->out);
    if (layer->type->multiply_adds) m->multiply_adds += layer->type->multiply_adds(layer);
    append_layer(b, layer);
    bool is_trained = freeze(b, layer), needs_gradient = m->tensors[in].needs_gradient || is_trained;
    size_t root = m->tensors[in].alias == NO_TENSOR ? in : m->tensors[in].alias;
    *out = add_tensor(b, &layer->out, is_view ? root : NO_TENSOR, needs_gradient);
    if (!is_view) add_step(b, layer, in, NO_TENSOR, *out);
    return OK;
}

static status build_one(struct builder *b, const struct variant *variant, const char *path, const char *prefix,
                        size_t index, size_t in, size_t *out) {
    struct arena *arena = b->model->arena;
    const struct layer_common *common = variant->common;
    const struct layer_type *type = layer_type_at((size_t)variant->index);
    const char *own = common && common->name ? common->name : arena_printf(arena, "%zu", index);
    struct place place = variant->place;
    place.file = arena_copy(arena, place.file ? place.file : "config");
    const char *own_path = arena_printf(arena, "%s.%zu.%s", path, index, variant->name);
    if (strchr(own, '.') || strchr(own, '/') || (!*own && !type->expand))
        return at_place(place, own_path,
                        status_new(STATUS_USAGE, "a name must not be empty or contain '.' or '/', got '%s'", own));
    char *name = arena_printf(arena, "%s%s", prefix, own);
    if (!*own && *name) name[strlen(name) - 1] = '\0'; /* a composite without a name adds no level */
    if (type->expand) return type->expand(b, variant, own_path, name, in, out);
    struct layer *layer = arena_alloc(arena, sizeof *layer);
    *layer = (struct layer){.type = type, .config = variant->config, .place = place, .path = own_path, .name = name};
    return at_place(place, own_path, add_layer(b, layer, in, out));
}

static const struct layer_type *type_of(const struct variant_list *list, size_t index) {
    return index < list->count ? layer_type_at((size_t)list->items[index].index) : NULL;
}

/* Fuses the relu at [index] of a list into the layer after it or, with input tensor [in], into the step before it,
 * whose output then has no other reader. False: not a relu, or it cannot be fused. */
static bool merge_relu(struct builder *b, const struct variant_list *list, size_t index, size_t in) {
    struct model *m = b->model;
    const struct layer_type *next = type_of(list, index + 1);
    const struct layer_type *type = type_of(list, index);
    if (!type || type->relu != RELU_ITSELF) return false;
    if (next && next->relu == RELU_BEFORE) return true;
    if (index == 0 || m->step_count == 0) return false;
    struct step *last = &m->steps[m->step_count - 1];
    if (last->out != in) return false;
    if (!last->layer) return last->has_relu = true;
    if (last->layer->has_relu) return false;
    enum relu_place place = last->layer->type->relu;
    return last->layer->has_relu = place == RELU_AFTER || place == RELU_INSIDE;
}

status build_list(struct builder *builder, const struct variant_list *list, const char *path, const char *prefix,
                  size_t in, size_t *out) {
    bool has_relu_before = false;
    *out = in;
    if (++builder->lists > BUILD_MAX_LISTS || builder->model->layer_count > BUILD_MAX_LAYERS)
        return status_new(STATUS_USAGE, "model.layers: more than %d layers in all; is a 'times' too large?",
                          BUILD_MAX_LAYERS);
    for (size_t i = 0; i < list->count; i++) {
        in = *out;
        bool is_merged = merge_relu(builder, list, i, in);
        builder->merges_relu = is_merged;
        builder->has_relu = has_relu_before;
        const struct layer_type *next = type_of(list, i + 1);
        has_relu_before = is_merged && next && next->relu == RELU_BEFORE;
        TRY(build_one(builder, &list->items[i], path, prefix, i, in, out));
    }
    return OK;
}

status build_sum(struct builder *builder, size_t a, size_t b, size_t *out) {
    b = ordered(builder, b, builder->model->tensors[a].shape.is_channels_last, "the sum");
    const struct tensor *ta = &builder->model->tensors[a], *tb = &builder->model->tensors[b];
    bool is_same = ta->shape.dims == tb->shape.dims &&
                   memcmp(ta->shape.size, tb->shape.size, (size_t)ta->shape.dims * sizeof *ta->shape.size) == 0;
    if (!is_same) {
        struct text one = {0}, other = {0};
        shape_print(&ta->shape, &one);
        shape_print(&tb->shape, &other);
        status s = status_new(STATUS_USAGE, "the two sides of the sum have different shapes: %s and %s",
                              text_string(&one), text_string(&other));
        text_free(&one);
        text_free(&other);
        return s;
    }
    struct shape shape = ta->shape;
    bool needs_gradient = ta->needs_gradient || tb->needs_gradient;
    *out = add_tensor(builder, &shape, NO_TENSOR, needs_gradient);
    add_step(builder, NULL, a, b, *out);
    return OK;
}

/* Gradient slots. In backward order, a slot is allocated for the first step that contributes to a tensor's gradient
 * and released after the backward of the step that produced the tensor. Several tensors may share a slot while they
 * only read it (reference counting). */
struct pool {
    struct arena *arena;
    struct piece *slots;
    size_t *references; /* (count) tensors in use whose gradient is in the slot */
    size_t count, slot_capacity, reference_capacity;
    size_t now, end; /* times */
};

static size_t allocate_slot(struct pool *pool, size_t size) {
    pool->slots = grow(pool->arena, pool->slots, pool->count, &pool->slot_capacity, sizeof *pool->slots);
    pool->references =
        grow(pool->arena, pool->references, pool->count, &pool->reference_capacity, sizeof *pool->references);
    pool->slots[pool->count] = (struct piece){.size = size, .first = pool->now, .last = pool->end};
    pool->references[pool->count] = 1;
    return pool->count++;
}

static void release_slot(struct pool *pool, size_t slot) {
    if (--pool->references[slot] == 0) pool->slots[slot].last = pool->now;
}

/* The tensor that owns the memory: for a view, the one it is a view of. */
static struct tensor *owner(struct model *m, size_t tensor) {
    return &m->tensors[m->tensors[tensor].alias == NO_TENSOR ? tensor : m->tensors[tensor].alias];
}

static void plan_add(struct step *s, size_t to, size_t a, size_t b) {
    s->adds[s->add_count++] = (struct slot_add){to, a, b};
}

/* Whether only [tensor] (and the step's output, which is no longer needed) uses its slot, so that it may be
 * overwritten. */
static bool is_exclusive(const struct pool *pool, const struct tensor *tensor, size_t dy) {
    return pool->references[tensor->slot] - (tensor->slot == dy) == 1;
}

/* The backward of out = a + b for one side: a side without a gradient shares the slot of out's, else it is added. */
static void plan_sum_side(struct pool *pool, struct step *s, struct tensor *side) {
    if (!side->needs_gradient) return;
    if (side->slot == SIZE_MAX) {
        side->slot = s->dy;
        pool->references[s->dy]++;
    } else if (is_exclusive(pool, side, s->dy)) {
        plan_add(s, side->slot, side->slot, s->dy);
    } else {
        size_t own = allocate_slot(pool, side->size);
        plan_add(s, own, side->slot, s->dy);
        release_slot(pool, side->slot);
        side->slot = own;
    }
}

/* The derivative of a fused relu is applied to the gradient in place, or to a new slot if others read it. */
static void plan_relu(struct pool *pool, struct step *s, size_t size) {
    if (!(s->layer ? s->layer->has_relu && s->layer->type->relu == RELU_AFTER : s->has_relu)) return;
    s->raw = s->dy;
    if (pool->references[s->raw] == 1) return;
    s->dy = allocate_slot(pool, size);
    release_slot(pool, s->raw);
}

/* The first gradient of a layer's input is written to a new slot. A further one is added to the existing gradient by
 * the layer itself or through a temporary slot; if others read that gradient, to a new slot to which it is added. */
static void plan_layer(struct pool *pool, struct step *s, struct tensor *in) {
    if (!in->needs_gradient) return;
    if (in->slot == SIZE_MAX) {
        s->dx = in->slot = allocate_slot(pool, in->size);
    } else if (is_exclusive(pool, in, s->dy)) {
        s->layer->adds_to_dx = s->layer->type->can_add_to_dx && in->slot != s->dy;
        s->dx = s->layer->adds_to_dx ? in->slot : allocate_slot(pool, in->size);
        if (s->dx == in->slot) return;
        plan_add(s, in->slot, in->slot, s->dx);
        release_slot(pool, s->dx);
    } else {
        s->dx = allocate_slot(pool, in->size);
        plan_add(s, s->dx, s->dx, in->slot);
        release_slot(pool, in->slot);
        in->slot = s->dx;
    }
}

static void plan_gradients(struct model *m) {
    struct pool pool = {.arena = m->arena, .now = m->step_count, .end = 2 * m->step_count};
    m->output_slot = owner(m, m->output)->slot = allocate_slot(&pool, owner(m, m->output)->size);
    for (size_t i = m->step_count; i-- > 0;) {
        struct step *s = &m->steps[i];
        pool.now = 2 * m->step_count - i;
        s->dy = owner(m, s->out)->slot;
        if (s->dy == SIZE_MAX || !m->tensors[s->out].needs_gradient) continue;
        plan_relu(&pool, s, m->tensors[s->out].size);
        if (s->layer) {
            plan_layer(&pool, s, owner(m, s->in));
        } else {
            plan_sum_side(&pool, s, owner(m, s->in));
            plan_sum_side(&pool, s, owner(m, s->other));
        }
        release_slot(&pool, s->dy);
    }
    m->slots = pool.slots;
    m->slot_count = pool.count;
}

/* Number of steps that read a tensor's values; the output counts once more. */
static size_t readers(struct model *m, size_t tensor) {
    const struct tensor *own = owner(m, tensor);
    size_t count = owner(m, m->output) == own;
    for (size_t i = 0; i < m->step_count; i++) {
        count += owner(m, m->steps[i].in) == own;
        if (m->steps[i].other != NO_TENSOR) count += owner(m, m->steps[i].other) == own;
    }
    return count;
}

/* Whether steps i to i + 2 are a linear layer, a GELU and a linear layer whose intermediate tensors have no other
 * reader. */
static bool is_around_gelu(struct model *m, size_t i) {
    const struct step *s = &m->steps[i];
    for (int k = 0; k < 3; k++)
        if (!s[k].layer) return false;
    return layer_is_gelu_tanh(s[1].layer) && s[0].layer->type->around_gelu && s[2].layer->type->around_gelu &&
           !s[0].layer->has_relu && s[1].in == s[0].out && s[2].in == s[1].out && readers(m, s[0].out) == 1 &&
           readers(m, s[1].out) == 1;
}

/* Marks the steps that may be fused. The last of the three then computes the gradient before the GELU. */
static void plan_gelus(struct model *m) {
    for (size_t i = 0; i + 2 < m->step_count; i++) {
        if (m->steps[i].part != PART_NONE || !is_around_gelu(m, i)) continue;
        for (size_t k = 0; k < 3; k++) m->steps[i + k].part = (enum step_part)(PART_BEFORE_GELU + k);
        if (m->steps[i + 1].dx != SIZE_MAX) m->slots[m->steps[i + 1].dx].first = 2 * m->step_count - (i + 2);
    }
}

static void extend_lifetime(struct tensor *tensor, size_t time) {
    if (tensor->piece.last < time) tensor->piece.last = time;
}

/* The step that produced the tensor, if it can recompute it; else NULL. */
static const struct step *recomputing_step(const struct model *m, const struct tensor *tensor) {
    const struct step *s = tensor->piece.size ? &m->steps[tensor->piece.first] : NULL;
    return s && s->dy != SIZE_MAX && s->layer && s->layer->type->recompute ? s : NULL;
}

/* The backward of step [i] reads [tensor]: keeps it until then, or recomputes it from a tensor that is kept. */
static void keep_for_backward(struct model *m, struct tensor *tensor, size_t i) {
    size_t end = 2 * m->step_count;
    const struct step *producer = recomputing_step(m, tensor);
    if (!producer || recomputing_step(m, owner(m, producer->in)) || tensor == owner(m, m->output)) {
        extend_lifetime(tensor, end - i);
        return;
    }
    if (!tensor->recomputed_piece.size)
        tensor->recomputed_piece = (struct piece){.size = tensor->size, .last = end - i};
    tensor->recomputed_piece.first = end - i;
    tensor->reader = i;
}

/* Sets the lifetime of each value. The output is kept until the end of the pass. */
static void plan_values(struct model *m) {
    size_t end = 2 * m->step_count;
    for (size_t i = 0; i < m->step_count; i++) {
        struct step *s = &m->steps[i];
        struct tensor *out = &m->tensors[s->out];
        bool has_backward = s->dy != SIZE_MAX;
        out->piece = (struct piece){.size = out->size, .first = i, .last = i};
        extend_lifetime(owner(m, s->in), i);
        if (s->other != NO_TENSOR) extend_lifetime(owner(m, s->other), i);
        if (has_backward && s->raw != SIZE_MAX) extend_lifetime(out, end - i);
        if (!s->layer) continue;
        if (has_backward && !(s->layer->type->ignores & IGNORES_X)) keep_for_backward(m, owner(m, s->in), i);
        if (has_backward && !(s->layer->type->ignores & IGNORES_Y)) extend_lifetime(out, end - i);
        s->layer->saved_piece =
            (struct piece){.size = s->layer->saved_size, .first = i, .last = has_backward ? end - i : i};
    }
    extend_lifetime(owner(m, m->output), end);
    for (size_t t = 0; t < m->tensor_count; t++)
        if (m->tensors[t].recomputed_piece.size) m->steps[m->tensors[t].reader].recompute = m->tensors[t].piece.first;
}

void build_place(struct model *m) {
    size_t count = 0;
    struct piece **pieces =
        arena_alloc(m->arena, (2 * m->tensor_count + m->layer_count + m->slot_count + 1) * sizeof(struct piece *));
    for (size_t i = 1; i < m->tensor_count; i++) {
        pieces[count++] = &m->tensors[i].piece;
        pieces[count++] = &m->tensors[i].recomputed_piece;
    }
    for (size_t i = 0; i < m->layer_count; i++) pieces[count++] = &m->layers[i].saved_piece;
    for (size_t i = 0; i < m->slot_count; i++) pieces[count++] = &m->slots[i];
    m->row_floats = placement_find(m->arena, pieces, count);
}

status build_model(struct model *model, const struct model_config *config) {
    struct builder b = {.model = model, .freeze = &config->freeze};
    size_t input = add_tensor(&b, &model->in, NO_TENSOR, false);
    TRY(build_list(&b, &config->layers, "model.layers", "", input, &model->output));
    TRY(check_freeze(model, &config->freeze));
    params_move_frozen_last(&model->params);
    model->output = ordered(&b, model->output, false, "model.layers");
    model->out = model->tensors[model->output].shape;
    model->out_size = shape_elements(&model->out);
    model->layers = arena_alloc(model->arena, model->layer_count * sizeof *model->layers);
    for (size_t i = 0; i < model->layer_count; i++) {
        for (size_t s = 0; s < model->step_count; s++)
            if (model->steps[s].layer == b.layers[i]) model->steps[s].layer = &model->layers[i];
        model->layers[i] = *b.layers[i];
    }
    model->users = arena_alloc(model->arena, (model->params.count + 1) * sizeof *model->users);
    model->waiting = arena_alloc(model->arena, (model->params.count + 1) * sizeof *model->waiting);
    for (size_t i = 0; i < model->layer_count; i++) {
        const struct layer *layer = &model->layers[i];
        for (size_t p = 0; p < layer->param_count; p++) model->users[layer->first_param + p]++;
        for (size_t p = 0; p < layer->tied_count; p++) model->users[layer->tied + p]++;
    }
    plan_gradients(model);
    plan_gelus(model);
    plan_values(model);
    build_place(model);
    return OK;
}
