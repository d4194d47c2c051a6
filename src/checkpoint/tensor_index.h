/* tensor_index: weights that are divided among several files, as transformers' save_pretrained does with large models:
 * an index, "model.safetensors.index.json", lists the file of each tensor. */
#ifndef CHECKPOINT_TENSOR_INDEX_H
#define CHECKPOINT_TENSOR_INDEX_H

#include <stdbool.h>

#include "base/status.h"
#include "checkpoint/safetensors_file.h"

#define TENSOR_INDEX_ENDING ".index.json"

/* Whether [path] ends with it. */
bool tensor_index_is_name(const char *path);

/* Reads the files that the index [path] lists, of safetensors or torch.save, which are in its folder. [file] is then as
 * after safetensors_read of one file with all tensors; call safetensors_close also after a failure. Not trusted: each
 * tensor must be in the file that the index names, and in no other. */
status tensor_index_read(const char *path, struct safetensors *file);

#endif
