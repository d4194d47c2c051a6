/* snapshot: a file of torch.save that a training script in PyTorch writes to continue from: the state_dict of the
 * model, that of the optimizer (torch.optim), and the number of epochs, as in PyTorch's DDP tutorials. */
#pragma once

#include "train/config/config.h"
#include "train/state/state.h"

/* Whether [path] is a file of torch.save. */
bool snapshot_is(const char *path);

/* The epochs that the script had run: EPOCHS_RUN, epochs_run or finished_epoch beside the weights. STATUS_DATA: there
 * is no such number. */
status snapshot_epochs(const char *path, int64_t *epochs);

/* Loads the weights, with the map of model.init_from if there is one, and the optimizer's state into the mapped [state]
 * (state_map), all of whose arrays are complete. *updates: of the state, or -1 where it does not say. Adds to
 * [differences] the settings of the file's optimizer that are not those of the config, which are used. STATUS_USAGE and
 * STATUS_DATA: the file is of another model or optimizer; the state may then be changed. */
status snapshot_load(const char *path, const struct config *config, struct state *state, int64_t *updates,
                     struct text *differences);
