/* gradients: parameters whose gradients do not all exist at once, because each is consumed as soon as it is complete.
 * The gradients of all layers share one buffer, one layer after the other, and of a large gradient only a part exists
 * at a time. Parameters that several layers use have their own memory. */
#ifndef MODEL_GRADIENTS_H
#define MODEL_GRADIENTS_H

#include "model/model.h"

/* Called by [model_backward_in_parts] around the backward passes of the layers. */
void gradients_start(struct model *model);
void gradients_before(struct model *model, const struct layer *layer);
void gradients_after(struct model *model, size_t param, const struct gradient_receiver *receiver);

#endif
