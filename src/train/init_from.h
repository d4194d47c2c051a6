/* init_from: initial weights from a file (model.init_from): a checkpoint, or safetensors as PyTorch writes it. */
#ifndef TRAIN_INIT_FROM_H
#define TRAIN_INIT_FROM_H

#include "model/model.h"

/* Replaces the parameters and buffers of [model], which has memory, by those of [path], or changes nothing: every name
 * and shape that differs is a line of the STATUS_DATA failure. */
status init_from(struct model *model, const char *path);

#endif
