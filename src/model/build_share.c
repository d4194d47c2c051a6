/* `share:`: a layer uses the parameters of an earlier one, a composite those of the layers inside an earlier one. */
#include <string.h>

#include "model/build.h"
#include "model/layers/layers.h"

status build_begin_sharing(struct builder *b, const struct variant *variant, const char *name,
                           const struct variant **source) {
    const struct layer_common *common = variant->common;
    const struct output_name *other;
    *source = variant;
    TRY(status_prefix(build_find_layer(b, common->share, &other), "share"));
    if (other->variant->index != variant->index)
        return status_new(STATUS_USAGE, "share: '%s' is of the type %s, and this layer of the type %s", common->share,
                          other->variant->name, variant->name);
    if (!*name) return status_new(STATUS_USAGE, "share: a layer with the name '' cannot share parameters");
    if (b->sharing.own)
        return status_new(STATUS_USAGE, "share: this layer is inside one that shares its parameters already");
    b->sharing = (struct sharing){.own = name, .other = other->layer};
    if (layer_type_at((size_t)variant->index)->expand) *source = other->variant; /* the same layers */
    return OK;
}

/* The layer whose parameters [layer] uses. */
static const struct layer *find_other(const struct builder *b, const struct layer *layer) {
    struct text name = {0};
    text_printf(&name, "%s%s", b->sharing.other, layer->name + strlen(b->sharing.own));
    const struct layer *found = NULL;
    for (size_t i = 0; i < b->model->layer_count && !found; i++)
        if (strcmp(b->layers[i]->name, text_string(&name)) == 0) found = b->layers[i];
    text_free(&name);
    return found;
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

status build_share(const struct builder *b, struct layer *layer, const struct params *params,
                   const struct params *buffers) {
    const struct model *m = b->model;
    const struct layer *other = find_other(b, layer);
    if (!other) return status_new(STATUS_BUG, "share: there is no layer for %s", layer->name);
    if (layer->tied_count || other->tied_count)
        return status_new(STATUS_USAGE, "share: a layer with a tied weight cannot share its parameters");
    if (params->count != other->param_count || buffers->count != other->buffer_count ||
        !are_equal(&m->params, other->first_param, params) || !are_equal(&m->buffers, other->first_buffer, buffers))
        return status_new(STATUS_USAGE,
                          "share: its parameters have other shapes than those of %s, because its input or its keys "
                          "differ",
                          other->path);
    layer->is_sharing = true;
    layer->first_param = other->first_param;
    layer->param_count = other->param_count;
    layer->first_buffer = other->first_buffer;
    layer->buffer_count = other->buffer_count;
    return OK;
}
