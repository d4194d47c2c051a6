/* torch_file: weights as torch.save writes them: a zip archive with a pickle of the state_dict, data.pkl, and a member
 * with the values of each tensor. */
#pragma once

#include "base/status.h"
#include "checkpoint/safetensors.h"

/* Writes an OrderedDict of float32 tensors, which torch.load(weights_only=True) reads. Atomic. */
status torch_file_write(const char *path, const struct named_tensor *tensors, size_t count);

/* Reads a state_dict: a dictionary of contiguous tensors, or the one such dictionary among the values of another (a
 * training script's snapshot), whose numbers become metadata; without executing the pickle. [file] is then as after
 * safetensors_read; call safetensors_close also after a failure, which is STATUS_DATA with the file and the tensor. */
status torch_file_read(const char *path, struct safetensors *file);

/* Reads the state_dict of an optimizer (torch.optim) among the values of the dictionary: the tensors of its state
 * become "NUMBER/NAME" ("0/exp_avg", of the parameter with this number), and the header's "__metadata__" has
 * param_groups, as JSON, and the numbers of the state ("0/step"). The header is NULL if there is no such state_dict.
 * Call safetensors_close also after a failure. */
status torch_file_read_optimizer(const char *path, struct safetensors *file);
