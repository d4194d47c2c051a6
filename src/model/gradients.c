/* Offsets of gradients are assigned once, before memory is allocated. */
#include "model/gradients.h"

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

void gradients_start(struct model *model) {
    device_zero(model->device, model->params.gradients, model->kept_gradients * sizeof(float));
}

void gradients_before(struct model *model, const struct layer *layer) {
    for (size_t i = layer->first_param; i < layer->first_param + layer->param_count; i++) {
        const struct param *p = &model->params.items[i];
        if (!is_shared(model, i) && !p->part)
            device_zero(model->device, params_gradient(&model->params, i), p->count * sizeof(float));
    }
}

void gradients_after(struct model *model, size_t param, const struct gradient_receiver *receiver) {
    const struct param *p = &model->params.items[param];
    if (!p->part) receiver->receive(receiver->user, param, 0, p->count, params_gradient(&model->params, param));
}
