/* half_storage: selects the tensors and gradients of a model that the device stores in 16 bits (struct half_operands
 * of device/device.h): those that only matrix products read, which round them anyway, and those that PyTorch's
 * autocast stores in 16 bits. */
#ifndef MODEL_HALF_STORAGE_H
#define MODEL_HALF_STORAGE_H

#include "model/model.h"

/* Selects them for the device in its precision and shrinks their pieces of memory; plans the copies of the others that
 * products read (half_copies.h). Returns whether there are any. */
bool half_storage_plan(struct model *model, const struct device *device);

/* Whether the device runs the three nodes around a GELU, of which this is one, as one fused operation. */
bool half_storage_is_fused(const struct model *model, const struct graph_node *node);

/* 16-bit operands, and copies, in the current pass: of the forward of a layer or sum; of the operator that applies a
 * relu to dy; of a layer's backward; of a sum of gradients. */
struct half_operands half_forward(const struct model *model, const struct graph_node *node);
struct half_operands half_relu(const struct model *model, const struct graph_node *node);
struct half_operands half_backward(const struct model *model, const struct graph_node *node);
struct half_operands half_add(const struct model *model, const struct slot_add *add);
/* Of the loss: its input (the output of the model) and gradient. */
struct half_operands half_loss(const struct model *model);

/* Number of contiguous elements in memory of a row of [shape]: the last dimension, or the channels. */
size_t half_storage_features(const struct shape *shape);

/* Sets them on the device, if the model stores anything in 16 bits. */
void half_set(const struct model *model, struct half_operands operands);

#endif
