/* class_weights_json: the weights of classes of `weight: balanced`, stored in a checkpoint as "data/class_weights", so
 * that an evaluation of other rows has the loss of the training. JSON: a list of numbers, class 0 first. */
#ifndef TRAIN_CLASS_WEIGHTS_JSON_H
#define TRAIN_CLASS_WEIGHTS_JSON_H

#include "base/arena.h"
#include "base/schema/schema.h"
#include "checkpoint/checkpoint.h"

/* As JSON, allocated in [arena]. */
char *class_weights_write(struct arena *arena, const struct real_list *weights);

/* Reads those of [checkpoint] into [arena]; count 0: there are none. STATUS_DATA when they are damaged. */
status class_weights_read(struct arena *arena, struct checkpoint *checkpoint, struct real_list *out);

#endif
