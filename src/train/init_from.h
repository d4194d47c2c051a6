/* init_from: initial weights from a file (model.init_from): a checkpoint, or a file from PyTorch (safetensors,
 * torch.save). */
#ifndef TRAIN_INIT_FROM_H
#define TRAIN_INIT_FROM_H

#include "model/model.h"

/* Loads the parameters and buffers of [model], which has memory, from [path], or changes nothing: the STATUS_DATA
 * failure has a line for every name or shape that differs. */
status init_from(struct model *model, const char *path);

#endif
