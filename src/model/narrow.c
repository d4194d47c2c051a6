/* A tensor is in 16 bits if PyTorch's autocast has it so, or rounds it for all who read it; and if the step that makes
 * it writes that, and all that look at it read it. Likewise a gradient. */
#include "model/narrow.h"

#include <string.h>

static size_t root_of(const struct model *model, size_t tensor) {
    size_t alias = model->tensors[tensor].alias;
    return alias == NO_TENSOR ? tensor : alias;
}

/* What stands side by side in memory: operators work on rows of it. */
static size_t features(const struct shape *shape) {
    if (shape->dims == 0) return 1;
    return (size_t)shape->size[shape->is_channels_last ? 0 : shape->dims - 1];
}

/* A sum takes every form. */
static int forms_of(const struct step *s) {
    if (!s->layer) return NARROW_ALL;
    const struct layer_type *type = s->layer->type;
    return !type->can_narrow || type->can_narrow(s->layer) ? type->narrow : 0;
}

struct planning_narrow {
    struct model *model;
    const struct device *device;
    bool *is_16;           /* (tensors) under autocast */
    bool *rounds;          /* (tensors) all who read it, do */
    bool *tensors, *slots; /* that may still be in 16 bits */
};

/* Steps are in the order in which they run. */
static void follow_autocast(const struct planning_narrow *p) {
    const struct model *m = p->model;
    memset(p->rounds, true, m->tensor_count);
    for (size_t i = 0; i < m->step_count; i++) {
        const struct step *s = &m->steps[i];
        size_t in = root_of(m, s->in), out = root_of(m, s->out);
        enum autocast autocast = s->layer ? s->layer->type->autocast : AUTOCAST_AS_INPUT;
        bool is_16 = p->is_16[in] && (s->other == NO_TENSOR || p->is_16[root_of(m, s->other)]);
        p->is_16[out] = autocast == AUTOCAST_PRODUCT || (is_16 && autocast == AUTOCAST_AS_INPUT);
        p->rounds[in] &= autocast == AUTOCAST_PRODUCT;
        if (s->other != NO_TENSOR) p->rounds[root_of(m, s->other)] = false;
    }
    p->rounds[root_of(m, m->output)] = false;
}

/* Whether a step can have [tensor], or its gradient, so; [forms]: what it takes. */
static bool applies(const struct planning_narrow *p, size_t tensor, int forms) {
    const struct tensor *t = &p->model->tensors[tensor];
    size_t side_by_side = forms & NARROW_BY_ELEMENT ? t->size : features(&t->shape);
    return device_ops(p->device)->narrow->applies(p->device, side_by_side);
}

static void require(const struct planning_narrow *p, size_t tensor, int forms, int form) {
    p->tensors[root_of(p->model, tensor)] &= (forms & form) && applies(p, tensor, forms);
}

/* [slot] has the gradient of [tensor]. */
static void require_slot(const struct planning_narrow *p, size_t slot, size_t tensor, int forms, int form) {
    size_t root = root_of(p->model, tensor);
    if (slot != SIZE_MAX)
        p->slots[slot] &= (forms & form) && applies(p, tensor, forms) && (p->is_16[root] || p->rounds[root]);
}

/* Three steps that are done as one: all that lies between them is 16 bits, but for the gradient of the GELU itself,
 * which nobody makes. */
static void look_at_parts(const struct planning_narrow *p, const struct step *before) {
    const struct step *after = before + 2;
    int forms = forms_of(before), forms_after = forms_of(after);
    require(p, before->in, forms, NARROW_X);
    require(p, after->out, forms_after, NARROW_Y);
    require_slot(p, before->dx, before->in, forms, NARROW_DX);
    require_slot(p, after->dy, after->out, forms_after, NARROW_DY);
    if (after->dx != SIZE_MAX) p->model->slots[after->dx].size = 0;
}

static void look_at(const struct planning_narrow *p, const struct step *s) {
    int forms = forms_of(s);
    require(p, s->in, forms, NARROW_X);
    if (s->other != NO_TENSOR) require(p, s->other, NARROW_ALL, NARROW_ALL);
    require(p, s->out, forms, NARROW_Y);
    require_slot(p, s->dy, s->out, forms, NARROW_DY);
    require_slot(p, s->dx, s->in, forms, NARROW_DX);
    if (s->raw != SIZE_MAX) require_slot(p, s->raw, s->out, NARROW_ALL, NARROW_ALL);
    for (size_t a = 0; a < s->add_count; a++) {
        const struct slot_add *add = &s->adds[a];
        size_t side = s->layer ? s->in : s->out;
        /* else what is added up was rounded, but the sum is not */
        int added = p->is_16[root_of(p->model, side)] ? NARROW_ALL : 0;
        require_slot(p, add->to, side, added, NARROW_ALL);
        require_slot(p, add->a, side, added, NARROW_ALL);
        require_slot(p, add->b, side, added, NARROW_ALL);
    }
}

/* 16 bits take the room of half as many floats; the output is float32 in some passes. */
static void halve(struct piece *piece) { piece->size = (piece->size + 1) / 2; }

bool narrow_plan(struct model *model, const struct device *device) {
    if (!device_ops(device)->narrow || model->tensors_narrow) return false;
    struct arena *arena = model->arena;
    size_t output = root_of(model, model->output), tensors = model->tensor_count;
    struct planning_narrow p = {model,
                                device,
                                arena_alloc(arena, tensors),
                                arena_alloc(arena, tensors),
                                arena_alloc(arena, tensors),
                                arena_alloc(arena, model->slot_count + 1)};
    follow_autocast(&p);
    for (size_t t = 1; t < tensors; t++) p.tensors[t] = p.is_16[t] || p.rounds[t]; /* 0: the inputs */
    memset(p.slots, true, model->slot_count);
    for (size_t i = 0; i < model->step_count; i++) {
        const struct step *s = &model->steps[i];
        if (s->part == PART_BEFORE_GELU && applies(&p, s->out, NARROW_ALL))
            look_at_parts(&p, s), i += 2;
        else
            look_at(&p, s);
    }
    int output_forms = model->may_narrow_output ? NARROW_ALL : 0; /* of the loss */
    require(&p, model->output, output_forms, NARROW_X);
    require_slot(&p, model->output_slot, model->output, output_forms, NARROW_DX);
    for (size_t t = 0; t < model->tensor_count; t++) {
        if (!p.tensors[t] || t == output) continue;
        halve(&model->tensors[t].piece);
        halve(&model->tensors[t].again);
    }
    for (size_t i = 0; i < model->slot_count; i++)
        if (p.slots[i]) halve(&model->slots[i]);
    model->tensors_narrow = p.tensors;
    model->slots_narrow = p.slots;
    return true;
}

static bool is_tensor_narrow(const struct model *model, size_t tensor) {
    if (tensor == NO_TENSOR || !model->tensors_narrow) return false;
    size_t root = root_of(model, tensor);
    return model->tensors_narrow[root] && (root != root_of(model, model->output) || model->is_output_narrow);
}

static bool is_slot_narrow(const struct model *model, size_t slot) {
    return slot != SIZE_MAX && model->slots_narrow && model->slots_narrow[slot];
}

bool narrow_is_in_one(const struct model *model, const struct step *step) {
    return step->part != PART_NONE && is_tensor_narrow(model, step->part == PART_BEFORE_GELU ? step->out : step->in);
}

struct narrow narrow_forward(const struct model *model, const struct step *step) {
    return (struct narrow){.x = is_tensor_narrow(model, step->in),
                           .other = is_tensor_narrow(model, step->other),
                           .y = is_tensor_narrow(model, step->out)};
}

struct narrow narrow_relu(const struct model *model, const struct step *step) {
    return (struct narrow){.y = is_tensor_narrow(model, step->out),
                           .dy = is_slot_narrow(model, step->raw),
                           .dx = is_slot_narrow(model, step->dy)};
}

/* A layer that looks at neither x nor y may go back by the operator that it goes forward by, from dy to dx. */
struct narrow narrow_backward(const struct model *model, const struct step *step) {
    bool has_values = !step->layer || step->layer->type->ignores != IGNORES_X_AND_Y;
    struct narrow n = {.dy = is_slot_narrow(model, step->dy), .dx = is_slot_narrow(model, step->dx)};
    n.x = has_values ? is_tensor_narrow(model, step->in) : n.dy;
    n.y = has_values ? is_tensor_narrow(model, step->out) : n.dx;
    return n;
}

struct narrow narrow_add(const struct model *model, const struct slot_add *add) {
    return (struct narrow){.x = is_slot_narrow(model, add->a),
                           .other = is_slot_narrow(model, add->b),
                           .y = is_slot_narrow(model, add->to)};
}

struct narrow narrow_loss(const struct model *model) {
    return (struct narrow){.x = is_tensor_narrow(model, model->output),
                           .dx = is_slot_narrow(model, model->output_slot)};
}

void narrow_set(const struct model *model, struct narrow operands) {
    if (model->tensors_narrow) device_ops(model->device)->narrow->set(model->device, operands);
}
