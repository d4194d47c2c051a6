/* weights: parameters and buffers of a model from a checkpoint, without the rest of the state. */
#pragma once

#include "base/files/digest.h"
#include "base/log.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/loading.h"
#include "data/dataset/dataset.h"
#include "model/model.h"
#include "train/config/config.h"
#include "train/state/state.h"

#define CHECKPOINT_INITIAL "initial" /* only for session_open */
#define CHECKPOINT_NEWEST "newest"

/* Selects a checkpoint and the weights in it. */
struct weights_options {
    const char *folder;            /* --run-dir; NULL: runs/<name> */
    const char *checkpoint;        /* a file, a run folder or its folder of checkpoints; "best", "newest": that of
                                    * [folder]; "initial": the start of a new run, without [folder]; NULL: the best one
                                    * of [folder] if there is one, else the newest, as of a folder */
    const struct config *training; /* of "initial": the config of that run; NULL: the one of the command */
    const char *which;             /* --weights: "trained" or "average"; NULL: those that the run's evaluations use */
};

/* Opens the checkpoint; STATUS_DATA when the folder has none. [config]: of the run, for runs/<name>; NULL: the options
 * name a folder or a file. *average: use the moving average of the weights. Logs path, epoch and step and, if the file
 * has an average, the choice. */
status weights_open(const struct config *config, const struct weights_options *options, struct log *log,
                    struct checkpoint **out, bool *average);

/* Opens a checkpoint to start from: the file [path], or of a run folder the best checkpoint, else the newest. *found:
 * its path, for free; NULL: [path]. */
status weights_open_start(const char *path, struct checkpoint **out, char **found);

/* STATUS_USAGE when [out] is a checkpoint, or anything but a file (a device), which a command must not replace. OK when
 * it does not exist. */
status weights_check_out(const char *out);

/* Loads the parameters ([average]: from the moving average) and buffers of [model], which must have memory, or changes
 * nothing: the STATUS_DATA failure has a line for every name or shape that differs. */
status weights_load(struct model *model, struct checkpoint *checkpoint, bool average);

/* ---- the state in the file of a checkpoint with the hashes that a ledger has of it (train/loop/ledger.h). It needs no
 * data: the model is planned from its config and from the shape of the inputs in the file. ---- */

struct saved_state {
    struct counters counters;
    size_t elements;              /* parameters */
    uint64_t state, parameters;   /* state_hash; state_hash_floats of the parameters with their padding */
    char sha256[DIGEST_HEX_SIZE]; /* state_sha256; "" unless it is asked for */
};

/* [config]: the one in the checkpoint. STATUS_DATA for tensors that are not those of the config, and for a file of a
 * version without the shape of the inputs, which had no ledgers. In the memory of the host. */
status saved_state_read(struct checkpoint *checkpoint, const struct config *config, bool with_sha256,
                        struct saved_state *out);

/* ---- initial weights, model.init_from (init_from.c): from a checkpoint, a run folder, or a file from PyTorch
 * (safetensors, torch.save) ---- */

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

/* ---- snapshot.c: a file of torch.save that a training script in PyTorch writes to continue from: the state_dict of
 * the model, that of the optimizer (torch.optim), and the number of epochs, as in PyTorch's DDP tutorials ---- */

/* Whether [path] is a file of torch.save. */
bool snapshot_is(const char *path);

/* The epochs that the script had run: EPOCHS_RUN, epochs_run or finished_epoch beside the weights. STATUS_DATA: there
 * is no such number. */
status snapshot_epochs(const char *path, int64_t *epochs);

/* Loads the weights, with the map of model.init_from if there is one, and the optimizer's state into the mapped [state]
 * (state_map), all of whose arrays are complete. *updates: of the state, or -1 where it does not say. Adds to
 * [warning] which settings of the file's optimizer are not those of the config, which are used, and whether the order
 * of its groups is unknown. STATUS_USAGE and STATUS_DATA: the file is of another model or optimizer; the state may then
 * be changed. */
status snapshot_load(const char *path, const struct config *config, struct state *state, int64_t *updates,
                     struct text *warning);
