/* half: selects the tensors and gradients of a model that the device stores in 16 bits (struct tensor of
 * device/tensor.h): those that only matrix products read, which round them anyway, and those that PyTorch's
 * autocast stores in 16 bits. */
#pragma once

#include "model/model.h"

/* Selects them for the device in its precision and shrinks their pieces of memory; plans the copies of the others that
 * products read (below). Returns whether there are any. */
bool half_storage_plan(struct model *model, const struct device *device);

/* Whether the device runs the three nodes around a GELU, of which this is one, as one fused operation. */
bool half_storage_is_fused(const struct model *model, const struct graph_node *node);

/* Whether a tensor's value in the current pass, and a gradient slot, is 16 bits. SIZE_MAX, for none, is not. */
bool half_storage_of_value(const struct model *model, size_t tensor);
bool half_storage_of_gradient(const struct model *model, size_t slot);

/* ---- copies: plans the 16-bit copies (struct half_copy of device/tensor.h) of matrices that the device stores in
 * float32 and that products read in 16 bits: values, gradients, and what layers save for themselves. Each has memory in
 * the model's block, from the node that writes the matrix to the last node whose product reads it, and the nodes name
 * the copies that their operators write or read. A copy is written by the operator that writes the matrix if the device
 * can do that in the same pass over memory, else by the first product that reads it. ---- */

/* Plans them for a device with 16-bit factors, after half_tensors and half_slots have been set. */
void half_copies_plan(struct model *model);

/* At the start of a pass: no copy is valid. */
void half_copies_begin(struct model *model);
