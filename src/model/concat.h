/* concat: keeps the output of a concat of channels in the memory of a later concat that reads it, as in a DenseNet,
 * whose layers append channels to all those before. So each channel is copied once instead of once for each layer after
 * it, and the values and gradients of a block take the memory of its last output. Batch norms, the other readers, read
 * and write such channels where they are (struct tensor's stride). The numbers are the same. */
#pragma once

#include "model/model.h"

/* Decides, on devices whose batch norms take strides and whose tensors are float32, which values and gradients are
 * parts of others (model->tensor_parts and slot_parts), and which gradients batch norms add to. Returns whether the
 * memory of the model is to be assigned again. After half_storage_plan; a second call does nothing. */
bool concat_plan(struct model *model, const struct device *device);

/* Sets the addresses of the parts, after those of all others. */
void concat_set_addresses(struct model *model);
