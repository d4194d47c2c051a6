/* flatten: merges all dimensions of a row into one (torch.nn.Flatten). Memory is contiguous, so nothing is copied. */
#include "model/layers/layers.h"

static status plan(struct layer *layer, struct planning *planning) {
    (void)planning;
    layer->out = (struct shape){.dims = 1, .size = {(int64_t)shape_elements(&layer->in)}};
    return OK;
}

const struct layer_type layer_flatten = {
    .variant = {"flatten", NULL, "Merges all dimensions of a row into one (torch.nn.Flatten)."},
    .is_view = true,
    .plan = plan,
};
