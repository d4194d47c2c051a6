/* What a model is besides its plan (build.c) and its passes (program.c): memory, initial weights, checks. */
#include "model/model.h"

#include <string.h>

#include "model/build.h"
#include "model/concat.h"
#include "model/half.h"
#include "model/init.h"
#include "model/program.h"

static const struct schema_row rows[] = {
    SCHEMA_ROW(
        VARIANT_LIST, struct model_config, layers, .flags = SCHEMA_REQUIRED, .variants = &layer_variants,
        .doc =
            "The layers in order; parameters are named as in torch.nn.Sequential (`0.weight`, `0.bias`, `2.weight`)."),
    SCHEMA_ROW(STRING_LIST, struct model_config, freeze, .fallback = "null", .flags = SCHEMA_INFERENCE,
               .doc = "Parameters that keep their values, as shell patterns on their names (`0.*`). Backward stops at "
                      "the first trainable parameter."),
    SCHEMA_ROW(VARIANT_LIST, struct model_config, init, .fallback = "[]", .variants = &init_variants,
               .flags = SCHEMA_INFERENCE,
               .doc = "Rules for the initial weights, applied in order after PyTorch's defaults (torch.nn.init); "
                      "`[gpt2]` is GPT-2's."),
    SCHEMA_ROW(SECTION, struct model_config, init_from, .present_offset = offsetof(struct model_config, has_init_from),
               .flags = SCHEMA_NULLABLE | SCHEMA_INFERENCE, .section = &weight_source_schema,
               .doc = "Start from the weights of a file instead of new ones: its path, or a mapping with the keys "
                      "below. A run folder gives its best checkpoint, else its newest. Unless there is a map or "
                      "`partial`, every name and shape must match."),
    {0},
};

static void check(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct model_config *c = config;
    if (c->layers.count == 0) problems_add(problems, where->place, "model.layers", "must have at least one layer");
}

const struct schema model_schema = SCHEMA("model", struct model_config, .rows = rows, .check = check);

status model_plan(const struct model_config *config, const struct shape *input, struct model **out) {
    return model_plan_named(config, input, NULL, out);
}

size_t model_root(const struct model *model, size_t tensor) {
    while (model->tensors[tensor].alias != NO_TENSOR) tensor = model->tensors[tensor].alias;
    return tensor;
}

status model_plan_named(const struct model_config *config, const struct shape *input, const struct model_names *names,
                        struct model **out) {
    static const struct model_names none = {0};
    struct arena *arena = arena_create();
    struct model *model = arena_alloc(arena, sizeof *model);
    model->arena = arena;
    model->in = *input;
    model->init = config->init;
    status s = build_model(model, config, names ? names : &none);
    if (!s) s = init_rules_check(model, &model->init);
    if (s) model_destroy(model);
    if (!s) *out = model;
    return s;
}

void model_add_unused(const struct model *model, struct text *out) {
    for (size_t i = 0; i < model->params.count; i++)
        if (model->params.items[i].is_unused)
            text_printf(out, "%s%s", out->length ? ", " : "", model->params.items[i].name);
}

bool model_checks_rows(const struct model *model) {
    for (size_t i = 0; i < model->layer_count; i++)
        if (model->layers[i].type->check_row && !model->layers[i].in.is_tokens) return true;
    return false;
}

status model_check_row(const struct model *model, const float *row) {
    for (size_t i = 0; i < model->layer_count; i++) {
        const struct layer *layer = &model->layers[i];
        if (layer->type->check_row && !layer->in.is_tokens) TRY(layer->type->check_row(layer, &model->params, row));
    }
    return OK;
}

bool model_carries_state(const struct model *model) {
    bool carries = false;
    for (size_t i = 0; i < model->layer_count; i++) {
        const struct layer *layer = &model->layers[i];
        carries = carries || (layer->type->stores_state && layer->buffer_count > 0);
    }
    return carries;
}

bool model_has_endless_positions(const struct model *model) {
    bool limits = false;
    for (size_t i = 0; i < model->layer_count; i++) limits = limits || model->layers[i].type->limits_positions;
    return !limits && model_carries_state(model);
}

bool model_has_rows_of_positions(const struct model *model) {
    bool stores = false;
    for (size_t i = 0; i < model->layer_count; i++) stores = stores || model->layers[i].type->stores_state;
    return !stores;
}

status model_check_independent(const struct model *model, const char *why) {
    for (size_t i = 0; i < model->layer_count; i++) {
        const struct layer *layer = &model->layers[i];
        if (layer->type->sums_over_ranks && layer->type->sums_over_ranks(layer))
            return status_usage("%s: its %s cannot be combined with %s", layer->path,
                                layer->type->stores_state ? "state of the rows of all ranks (carry_state)"
                                                          : "statistics over all ranks (sync)",
                                why);
    }
    return OK;
}

void model_destroy(struct model *model) {
    if (!model) return;
    if (model->device) {
        params_free(&model->params, model->device);
        params_free(&model->buffers, model->device);
        device_free(model->device, model->block);
        device_free(model->device, model->lengths);
        for (size_t i = 0; i < model->layer_count; i++) {
            struct layer *layer = &model->layers[i];
            if (layer->runtime) layer->type->release(layer, model->device);
        }
    }
    arena_destroy(model->arena);
}

void model_memory(const struct model *model, size_t batch, size_t *parameters, size_t *activations) {
    *parameters =
        (params_value_floats(&model->params) + params_gradient_floats(&model->params) + model->buffers.total) *
        sizeof(float);
    *activations = batch * model->row_floats * sizeof(float);
}

/* The address of a piece; NULL if its size is 0. */
static void *address(const struct model *model, const struct piece *piece) {
    return piece->size ? model->block + model->batch * piece->offset : NULL;
}

void model_allow_half_output(struct model *model) { model->allows_half_output = true; }

status model_adapt_to_device(struct model *model, const struct device *device) {
    for (size_t i = 0; i < model->layer_count; i++) {
        const struct layer *l = &model->layers[i];
        if (l->type->check_device)
            TRY(status_prefix(l->type->check_device(l, device_ops(device)), "%s: %s: on %s", place_text(l->place).s,
                              l->path, device_describe(device)));
    }
    bool has_changed = half_storage_plan(model, device);
    if (concat_plan(model, device) || has_changed) build_assign_memory(model);
    return OK;
}

status model_alloc(struct model *model, struct device *device, size_t batch) {
    TRY(model_adapt_to_device(model, device));
    model->device = device;
    model->batch = batch;
    TRY(params_alloc(&model->params, device, true));
    TRY(params_alloc(&model->buffers, device, false));
    TRY(device_alloc(device, batch * model->row_floats * sizeof(float), "the activations", (void **)&model->block));
    if (model->lengths_count) {
        size_t bytes = batch * model->lengths_count * sizeof *model->lengths;
        TRY(device_alloc(device, bytes, "the lengths of rows", (void **)&model->lengths));
    }
    for (size_t t = 0; t < model->tensor_count; t++) {
        model->tensors[t].value = address(model, &model->tensors[t].piece);
        model->tensors[t].recomputed = address(model, &model->tensors[t].recomputed_piece);
    }
    for (size_t i = 0; i < model->layer_count; i++) {
        struct layer *layer = &model->layers[i];
        layer->saved = address(model, &layer->saved_piece);
        if (layer->type->alloc) TRY(layer->type->alloc(layer, device, batch));
    }
    model->gradients = arena_alloc(model->arena, (model->slot_count + 1) * sizeof *model->gradients);
    for (size_t i = 0; i < model->slot_count; i++) model->gradients[i] = address(model, &model->slots[i]);
    concat_set_addresses(model);
    for (size_t i = 0; i < model->copy_count; i++)
        model->copies[i].copy.memory = (uint16_t *)address(model, &model->copies[i].piece);
    model->program = program_create(model);
    return OK;
}

status model_prepare(struct model *model, size_t batch, bool is_training) {
    for (size_t i = 0; batch > 0 && i < model->layer_count; i++) {
        struct layer *layer = &model->layers[i];
        if (layer->type->prepare) TRY(layer->type->prepare(layer, model->device, batch, is_training));
    }
    return OK;
}

status model_map(struct model *model) {
    struct params *params = &model->params;
    if (!params->is_exposed) TRY(device_map(model->device, (void **)&params->values));
    if (params->own) TRY(device_map(model->device, (void **)&params->own));
    return device_map(model->device, (void **)&model->buffers.values);
}

status model_unmap(struct model *model, bool has_changed) {
    struct params *params = &model->params;
    if (!params->is_exposed) TRY(device_unmap(model->device, (void **)&params->values, has_changed));
    if (params->own) TRY(device_unmap(model->device, (void **)&params->own, has_changed));
    return device_unmap(model->device, (void **)&model->buffers.values, has_changed);
}

void model_clear(struct model *model) {
    params_zero_gradients(&model->params, model->device);
    device_zero(model->device, model->params.values, params_value_floats(&model->params) * sizeof(float));
    device_zero(model->device, model->buffers.values, params_value_floats(&model->buffers) * sizeof(float));
    device_zero(model->device, model->block, model->batch * model->row_floats * sizeof(float));
    if (model->lengths)
        device_zero(model->device, model->lengths, model->batch * model->lengths_count * sizeof *model->lengths);
}

void model_init(struct model *model, struct rng *rng) {
    for (size_t i = 0; i < model->layer_count; i++) {
        const struct layer *layer = &model->layers[i];
        if (layer->is_sharing) continue;
        params_draw_begin(&model->params, layer->first_param, layer->param_count);
        if (layer->type->init) layer->type->init(layer, &model->params, rng);
        params_draw_end(&model->params, layer->first_param, layer->param_count);
        if (layer->type->init_buffers) layer->type->init_buffers(layer, &model->buffers);
    }
    init_rules_apply(model, &model->init, rng);
}

/* ---- parameters whose gradients do not all exist at once, because each is consumed as soon as it is complete. The
 * gradients of all layers share one buffer, one layer after the other, and of a large gradient only a part exists at a
 * time. Parameters that several layers use have their own memory. ---- */

/* Offsets of gradients are assigned once, before memory is allocated. */

static bool is_shared(const struct model *model, size_t param) { return model->use_counts[param] > 1; }

/* Assigns one layer's gradients from [at] on; returns their end. */
static size_t assign_memory(struct model *model, const struct layer *layer, size_t at) {
    for (size_t i = layer->first_param; i < layer->first_param + layer->param_count; i++) {
        struct param *p = &model->params.items[i];
        if (is_shared(model, i)) continue;
        if (i == layer->first_param && layer->type->gradient_part) p->part = layer->type->gradient_part(layer);
        p->gradient = at;
        at += params_padded(p->part ? p->part : p->count);
    }
    return at;
}

void model_split_gradients(struct model *model) {
    struct params *params = &model->params;
    size_t kept = 0;
    for (size_t i = 0; i < params->count; i++) {
        if (!is_shared(model, i)) continue;
        params->items[i].gradient = kept;
        kept += params_padded(params->items[i].count);
    }
    model->kept_gradients = params->gradient_floats = kept;
    for (size_t i = 0; i < model->layer_count; i++) {
        size_t end = assign_memory(model, &model->layers[i], kept);
        if (end > params->gradient_floats) params->gradient_floats = end;
    }
}

/* ---- groups of parameters whose gradients exist for a part of backward, each as a whole, because they are reduced
 * together. A group has its memory from the first node of backward that adds to it until the group after it is
 * complete, so that it can be reduced meanwhile. ---- */

/* The times in backward of the nodes that use a parameter of each group. */
static void find_times(struct model *model) {
    for (size_t n = model->node_count; n-- > 0;) {
        const struct layer *layer = model->nodes[n].dy == SIZE_MAX ? NULL : model->nodes[n].layer;
        size_t now = model->node_count - n, count = layer ? layer->param_count + layer->tied_count : 0;
        for (size_t i = 0; i < count; i++) {
            size_t p = i < layer->param_count ? layer->first_param + i : layer->tied + (i - layer->param_count);
            if (model->gradient_group_of[p] == SIZE_MAX) continue;
            struct gradient_group *group = &model->gradient_groups[model->gradient_group_of[p]];
            if (!group->piece.first) group->piece.first = now;
            group->piece.last = now;
        }
    }
    for (size_t g = 1; g < model->gradient_group_count; g++) { /* they are reduced in this order */
        size_t before = model->gradient_groups[g - 1].piece.last, *last = &model->gradient_groups[g].piece.last;
        if (*last < before) *last = before;
    }
    for (size_t g = 0; g + 1 < model->gradient_group_count; g++)
        model->gradient_groups[g].piece.last = model->gradient_groups[g + 1].piece.last;
}

/* Memory for gradients that layers compute, and no one reads, after the first [used] floats. */
static size_t assign_frozen(struct model *model, size_t used) {
    size_t end = used;
    for (size_t i = 0; i < model->layer_count; i++) {
        const struct layer *layer = &model->layers[i];
        size_t at = used;
        for (size_t p = layer->first_param; p < layer->first_param + layer->param_count; p++) {
            if (model->gradient_group_of[p] != SIZE_MAX) continue;
            model->params.items[p].gradient = at;
            at += params_padded(model->params.items[p].count);
        }
        if (at > end) end = at;
    }
    return end;
}

void model_group_gradients(struct model *model, const size_t *group_of, size_t count) {
    struct params *params = &model->params;
    struct arena *arena = model->arena;
    struct gradient_group *groups = arena_alloc(arena, (count + 1) * sizeof *groups);
    struct piece **pieces = arena_alloc(arena, (count + 1) * sizeof *pieces);
    model->gradient_groups = groups;
    model->gradient_group_count = count;
    model->gradient_group_of = arena_alloc(arena, (params->count + 1) * sizeof *group_of);
    memcpy(model->gradient_group_of, group_of, params->count * sizeof *group_of);
    for (size_t i = params->count; i-- > 0;) {
        const struct param *p = &params->items[i];
        if (group_of[i] == SIZE_MAX) continue;
        struct gradient_group *group = &groups[group_of[i]];
        if (!group->end) {
            group->end = p->offset + p->count;
            group->last = i;
        }
        group->begin = p->offset;
        group->first = i;
    }
    find_times(model);
    for (size_t g = 0; g < count; g++) {
        groups[g].piece.size = groups[g].end - groups[g].begin;
        pieces[g] = &groups[g].piece;
    }
    size_t used = placement_find_in_turn(arena, pieces, count);
    for (size_t i = 0; i < params->count; i++) {
        struct param *p = &params->items[i];
        if (group_of[i] != SIZE_MAX)
            p->gradient = groups[group_of[i]].piece.offset + (p->offset - groups[group_of[i]].begin);
    }
    params->gradient_floats = assign_frozen(model, used);
}

/* ---- values that are gathered group by group. A group is gathered before the first of successive nodes with
 * parameters that use it, and again when a later node does. ---- */

/* The groups in use, and the plan for one list of nodes. */
struct gathering {
    struct model *model;
    struct piece *pieces; /* (count) of the gathers so far, in elements */
    size_t *groups;       /* (count) */
    size_t count, capacity;
    size_t *newest;  /* (gradient_group_count) the newest gather of a group; SIZE_MAX: none */
    size_t *used_by; /* (gradient_group_count) the number of the node that used it last; 0: none */
    size_t number;   /* of the node, among those with parameters in groups */
};

static void use_group(struct gathering *g, size_t group, size_t time) {
    if (g->used_by[group] == 0 || g->used_by[group] + 1 < g->number) {
        const struct gradient_group *values = &g->model->gradient_groups[group];
        g->newest[group] = g->count;
        g->groups[g->count] = group;
        g->pieces[g->count++] = (struct piece){.size = values->end - values->begin, .first = time, .last = time};
    }
    g->pieces[g->newest[group]].last = time;
    g->used_by[group] = g->number;
}

static bool uses_groups(const struct model *model, const struct layer *layer) {
    bool uses = false;
    for (size_t p = 0; layer && p < layer->param_count; p++)
        uses |= model->gradient_group_of[layer->first_param + p] != SIZE_MAX;
    for (size_t p = 0; layer && p < layer->tied_count; p++)
        uses |= model->gradient_group_of[layer->tied + p] != SIZE_MAX;
    return uses;
}

static void use_layer(struct gathering *g, const struct layer *layer, size_t time) {
    const size_t *group_of = g->model->gradient_group_of;
    for (size_t p = layer->first_param; p < layer->first_param + layer->param_count; p++)
        if (group_of[p] != SIZE_MAX) use_group(g, group_of[p], time);
    for (size_t p = layer->tied; p < layer->tied + layer->tied_count; p++)
        if (group_of[p] != SIZE_MAX) use_group(g, group_of[p], time);
}

/* Forward of a node; one operator may run it together with the sum before it. */
static void use_forward(struct gathering *g, size_t n) {
    const struct graph_node *node = &g->model->nodes[n];
    if (!uses_groups(g->model, node->layer)) return;
    g->number++;
    use_layer(g, node->layer, n > 0 && node[-1].precedes_norm ? n - 1 : n);
    use_layer(g, node->layer, n);
}

/* Backward of a node, and what is recomputed before it. */
static void use_backward(struct gathering *g, size_t n) {
    const struct model *model = g->model;
    const struct graph_node *node = &model->nodes[n];
    if (node->dy == SIZE_MAX) return;
    bool uses = uses_groups(model, node->layer);
    const struct repeated_block *block = node->block ? &model->blocks[node->block - 1] : NULL;
    bool repeats = block && block->last == n;
    for (size_t i = repeats ? block->first : n; i < n; i++) uses |= uses_groups(model, model->nodes[i].layer);
    for (size_t r = 0; r < node->recompute_count; r++)
        uses |= uses_groups(model, model->nodes[node->recompute[r]].layer);
    if (!uses) return;
    g->number++;
    for (size_t i = repeats ? block->first : n; i < n; i++)
        if (model->nodes[i].layer) use_layer(g, model->nodes[i].layer, model->node_count - n);
    for (size_t r = 0; r < node->recompute_count; r++)
        use_layer(g, model->nodes[node->recompute[r]].layer, model->node_count - n);
    if (node->layer) use_layer(g, node->layer, model->node_count - n);
}

/* Upper bound of the gathers of a list. */
static size_t count_uses(const struct model *model) {
    size_t count = 0;
    for (size_t n = 0; n < model->node_count; n++) {
        const struct graph_node *node = &model->nodes[n];
        if (node->layer) count += 2 * (node->layer->param_count + node->layer->tied_count);
        for (size_t r = 0; r < node->recompute_count; r++) {
            const struct layer *layer = model->nodes[node->recompute[r]].layer;
            count += layer->param_count + layer->tied_count;
        }
    }
    return count;
}

/* When gather [i] starts: with the first use of the one before it, once the second before it is not used any more. */
static size_t start_ahead(const struct piece *pieces, size_t i, size_t before) {
    size_t start = before;
    if (i > 1 && pieces[i - 2].last + 1 > start) start = pieces[i - 2].last + 1;
    return start < pieces[i].first ? start : pieces[i].first;
}

/* Plans the gathers of forward or backward; returns the floats that they need at most. */
static size_t plan_gathers(struct model *model, int list, bool is_ahead) {
    struct arena *arena = model->arena;
    size_t max = count_uses(model) + 1, groups = model->gradient_group_count + 1;
    struct gathering g = {.model = model,
                          .pieces = arena_alloc(arena, max * sizeof *g.pieces),
                          .groups = arena_alloc(arena, max * sizeof *g.groups),
                          .newest = arena_alloc(arena, groups * sizeof *g.newest),
                          .used_by = arena_alloc(arena, groups * sizeof *g.used_by)};
    struct piece **pieces = arena_alloc(arena, max * sizeof *pieces);
    for (size_t n = 0; n < model->node_count; n++)
        if (list == 0)
            use_forward(&g, n);
        else
            use_backward(&g, model->node_count - 1 - n);
    struct group_gather *gathers = arena_alloc(arena, (g.count + 1) * sizeof *gathers);
    for (size_t i = 0; i < g.count; i++) {
        struct piece *piece = pieces[i] = &g.pieces[i];
        gathers[i] = (struct group_gather){.group = g.groups[i], .needed = piece->first};
        if (is_ahead && i > 0) piece->first = start_ahead(g.pieces, i, gathers[i - 1].needed);
        gathers[i].time = piece->first;
    }
    size_t floats = placement_find_in_turn(arena, pieces, g.count),
           frozen = model->params.total - model->params.trained;
    for (size_t i = 0; i < g.count; i++) gathers[i].at = frozen + g.pieces[i].offset;
    model->gathers[list] = gathers;
    model->gather_counts[list] = g.count;
    return floats;
}

void model_gather_values(struct model *model, bool is_ahead) {
    struct params *params = &model->params;
    size_t floats[2] = {plan_gathers(model, 0, is_ahead), plan_gathers(model, 1, is_ahead)};
    size_t frozen = params->total - params->trained;
    for (size_t i = 0; i < params->count; i++) {
        struct param *p = &params->items[i];
        p->value = p->is_frozen ? p->offset - params->trained : frozen;
    }
    params->value_floats = frozen + (floats[0] > floats[1] ? floats[0] : floats[1]);
}
