/* gradients: parameters whose gradients do not all exist at once, because each is taken as soon as it is complete. The
 * gradients of one layer after the other stand at the same place, and of a large one only a part at a time; those of
 * parameters that several layers use have places of their own. */
#ifndef MODEL_GRADIENTS_H
#define MODEL_GRADIENTS_H

#include "model/model.h"

/* What [model_backward_in_parts] does around the passes of the layers. */
void gradients_start(struct model *model);
void gradients_before(struct model *model, const struct layer *layer);
void gradients_after(struct model *model, size_t param, const struct gradient_parts *parts);

#endif
