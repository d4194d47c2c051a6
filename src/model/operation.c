/* What all layers have; the type adds the rest. */
#include "model/operation.h"

#include "model/layer.h"

struct operation operation_of(const struct layer *layer) {
    struct operation operation = {.kind = layer->type->is_view ? OPERATION_IDENTITY : OPERATION_OTHER,
                                  .weight = OPERATION_NO_PARAM,
                                  .bias = OPERATION_NO_PARAM,
                                  .out_weight = OPERATION_NO_PARAM,
                                  .out_bias = OPERATION_NO_PARAM,
                                  .mean = OPERATION_NO_PARAM,
                                  .variance = OPERATION_NO_PARAM,
                                  .padding = -1,
                                  .has_relu = layer->has_relu};
    if (layer->type->describe) layer->type->describe(layer, &operation);
    return operation;
}
