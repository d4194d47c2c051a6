/* half_copies: plans the 16-bit copies (struct half_copy of device/device.h) of matrices that the device stores in
 * float32 and that products read in 16 bits: values, gradients, and what layers save for themselves. Each has memory in
 * the model's block, from the node that writes the matrix to the last node whose product reads it, and the nodes name
 * the copies that their operators write or read. A copy is written by the operator that writes the matrix if the device
 * can do that in the same pass over memory, else by the first product that reads it. */
#ifndef MODEL_HALF_COPIES_H
#define MODEL_HALF_COPIES_H

#include "model/model.h"

/* Plans them for a device with 16-bit factors, after half_tensors and half_slots have been set. */
void half_copies_plan(struct model *model);

/* At the start of a pass of [rows]: no copy is valid. */
void half_copies_begin(struct model *model, size_t rows, const float *inputs);

#endif
