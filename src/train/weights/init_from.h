/* init_from: initial weights (model.init_from) from a checkpoint, a run folder, or a file from PyTorch (safetensors,
 * torch.save). */
#ifndef TRAIN_INIT_FROM_H
#define TRAIN_INIT_FROM_H

#include "data/dataset/dataset.h"
#include "model/model.h"

/* Loads the parameters and buffers of [model], which has memory, from source->file, if set, or changes nothing: the
 * STATUS_DATA failure has a line for every name or shape that differs, the STATUS_USAGE one for every layer that
 * differs from the config.json beside a file of transformers' save_pretrained. With a map or a folder, adds to [report]
 * what was used; of a checkpoint, too, that columns or classes of [dataset] (NULL: not compared) are at other places.
 */
status init_from(struct model *model, const struct weight_source *source, const struct dataset *dataset,
                 struct text *report);

/* Whether [path] is a file of torch.save; and the epochs that the script which has written it as its snapshot had run:
 * EPOCHS_RUN, epochs_run or finished_epoch beside the weights. STATUS_DATA: there is no such number. */
bool snapshot_is(const char *path);
status snapshot_epochs(const char *path, int64_t *epochs);

#endif
