/* narrow: which tensors and gradients of a model a device keeps in 16 bits (struct narrow of device/device.h): those
 * that only products read, which would round them anyway, or that PyTorch's autocast has in 16 bits. */
#ifndef MODEL_NARROW_H
#define MODEL_NARROW_H

#include "model/model.h"

/* Decides it for the device in its precision, and makes the pieces of memory smaller; whether there are any. */
bool narrow_plan(struct model *model, const struct device *device);

/* Whether the device does the three steps around a GELU as one, of which this is a part. */
bool narrow_is_in_one(const struct model *model, const struct step *step);

/* Operands of the pass that runs: of a layer or a sum forward; of the operator that takes a relu off dy; of a layer's
 * way back; of a sum of gradients. */
struct narrow narrow_forward(const struct model *model, const struct step *step);
struct narrow narrow_relu(const struct model *model, const struct step *step);
struct narrow narrow_backward(const struct model *model, const struct step *step);
struct narrow narrow_add(const struct model *model, const struct slot_add *add);
/* Of the loss: the output and its gradient. */
struct narrow narrow_loss(const struct model *model);

/* Tells the device, if it has 16 bits anywhere. */
void narrow_set(const struct model *model, struct narrow operands);

#endif
