/* half: selects the tensors and gradients of a model that the device stores in 16 bits (struct half_operands
 * of device/device.h): those that only matrix products read, which round them anyway, and those that PyTorch's
 * autocast stores in 16 bits. */
#ifndef MODEL_HALF_H
#define MODEL_HALF_H

#include "model/model.h"

/* Selects them for the device in its precision and shrinks their pieces of memory; plans the copies of the others that
 * products read (below). Returns whether there are any. */
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

/* ---- copies: plans the 16-bit copies (struct half_copy of device/device.h) of matrices that the device stores in
 * float32 and that products read in 16 bits: values, gradients, and what layers save for themselves. Each has memory in
 * the model's block, from the node that writes the matrix to the last node whose product reads it, and the nodes name
 * the copies that their operators write or read. A copy is written by the operator that writes the matrix if the device
 * can do that in the same pass over memory, else by the first product that reads it. ---- */

/* Plans them for a device with 16-bit factors, after half_tensors and half_slots have been set. */
void half_copies_plan(struct model *model);

/* At the start of a pass of [rows]: no copy is valid. */
void half_copies_begin(struct model *model, size_t rows, const float *inputs);

#endif
