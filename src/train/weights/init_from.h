/* init_from: initial weights (model.init_from) from a checkpoint, a run folder, or a file from PyTorch (safetensors,
 * torch.save). */
#pragma once

#include "checkpoint/loading.h"
#include "data/dataset/dataset.h"
#include "model/model.h"

/* Loads the parameters and buffers of [model], which has memory, from source->file, if set, or changes nothing: the
 * STATUS_DATA failure has a line for every name or shape that differs, the STATUS_USAGE one for every layer that
 * differs from the config.json beside a file of transformers' save_pretrained. With a map or a folder, adds to [report]
 * what was used; of a checkpoint, too, that columns or classes of [dataset] (NULL: not compared) are at other places.
 */
status init_from(struct model *model, const struct weight_source *source, const struct dataset *dataset,
                 struct text *report);

/* What the tensors of a file are loaded into: the parameters and buffers of [model], with other names of tied ones. In
 * [arena]. */
void init_from_target(const struct model *model, struct arena *arena, struct safetensors_target *out);
